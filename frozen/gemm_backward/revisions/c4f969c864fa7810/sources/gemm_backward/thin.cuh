// Few columns N: dZ is an outer product of few terms and dW a few rows of sums, so that memory is all that counts. One pass reads X and Z
// and writes dZ; sums of dW and dbias stay in registers over the rows of a block.
#pragma once

#include <cstdint>

#include "common/activation_slopes.cuh"
#include "common/elements.cuh"
#include "common/programmatic.cuh"

namespace aicf::gemm_backward {

inline constexpr int kThinThreads = 128;
inline constexpr int kThinWarps = kThinThreads / 32;
inline constexpr int kMostThinColumns = 32;  // N

// Neighbouring columns that a thread takes; few where there are many sums for each.
template <int kN>
inline constexpr int kThinWidth = kN <= 16 ? 4 : 2;
// Columns of a block.
template <int kN>
inline constexpr int kThinStrip = 32 * kThinWidth<kN>;
// Blocks that a multiprocessor must hold at once: as many as leave registers for all sums and for the rows that are on their way.
template <int kN, int kUnroll>
inline constexpr int kThinBlocks = kUnroll > 4 ? (kN <= 4 ? 3 : 2) : (kN <= 4 ? 4 : 3);

// The sums over rows: those of dW, n rows of them, and of dbias behind them.
template <class Element>
struct ThinSums {
    Element* dw;     // null: not wanted
    Element* dbias;  // null: not wanted
    std::int64_t lddw;
    int n, k;
    bool is_nk;
    bool is_added;  // dW to what is there

    __host__ __device__ int find_first() const { return dw != nullptr ? 0 : n; }
    __host__ __device__ int find_end() const { return dbias != nullptr ? n + 1 : n; }

    __device__ __forceinline__ void store(int row, int column, float sum) const {
        if (row == n) {
            dbias[column] = from_float<Element>(sum);
            return;
        }
        Element* const place = dw + (is_nk ? row * lddw + column : column * lddw + row);
        *place = from_float<Element>(is_added ? to_float(*place) + sum : sum);
    }
};

template <class Element>
struct ThinProblem {
    const Element* dy;
    const Element* w;  // [n, k] where sums.is_nk, else [k, n]; null: dZ is not wanted
    const Element* x;  // null: dW is not wanted
    const Element* z;  // null: act is none
    Element* dz;       // null: not wanted
    std::int64_t lddy, ldw, ldx, ldz, lddz;
    int m;
    int act;
    ThinSums<Element> sums;
    float* partial_sums;  // [blocks of rows, n + 1, k], or null: a block has all rows
    int num_strips;
    int rows;  // of a block
};

// kWidth elements that a thread reads or writes together.
template <class Element, int kWidth>
struct alignas(sizeof(Element) * kWidth) ThinElements {
    Element elements[kWidth];
};

// A block takes p.rows rows of a strip of columns, a warp kUnroll rows at a time; N is at most kN. kIsWide: rows of X, Z and dZ start on
// boundaries of a thread's elements, and k is a multiple of their number; else a thread's columns lie 32 apart.
template <class Element, int kN, int kUnroll, bool kIsWide>
__global__ void __launch_bounds__(kThinThreads, kThinBlocks<kN, kUnroll>) multiply_thin(const ThinProblem<Element> p) {
    constexpr int kWidth = kThinWidth<kN>;
    constexpr int kStrip = kThinStrip<kN>;
    constexpr int kAtATime = 4;  // of N
    constexpr int kGroup = kUnroll < 16 / kWidth ? kUnroll : 16 / kWidth;  // rows that are multiplied at a time
    static_assert(kN % kAtATime == 0 && kGroup % 4 == 0 && kUnroll % kGroup == 0);
    using Elements = ThinElements<Element, kWidth>;
    __shared__ __align__(16) float weights[kN][kStrip];  // those of a thread side by side
    __shared__ __align__(16) float gradients[kThinWarps][kN][kUnroll];
    __shared__ float parts[kThinWarps][kAtATime][kStrip];

    const int thread = static_cast<int>(threadIdx.x);
    const int lane = thread % 32, warp = thread / 32;
    const int strip = static_cast<int>(blockIdx.x) % p.num_strips;
    const int block_of_rows = static_cast<int>(blockIdx.x) / p.num_strips;
    const int n = p.sums.n, k = p.sums.k;
    const int first_column = strip * kStrip;
    // A thread's i-th column in the strip.
    const auto find_column = [&](int i) { return kIsWide ? lane * kWidth + i : lane + i * 32; };
    const auto has_column = [&](int i) { return first_column + find_column(i) < k; };
    allow_successor();
    wait_for_predecessor();

    if (p.w != nullptr) {
        constexpr int kCount = kN * kStrip / kThinThreads;
        static_assert(kN * kStrip % kThinThreads == 0);
        const auto find_row = [&](int i) { return p.sums.is_nk ? i / kStrip : i % kN; };
        const auto find_place = [&](int i) { return p.sums.is_nk ? i % kStrip : i / kN; };
        float values[kCount] = {};  // all on their way at once
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const int row = find_row(i * kThinThreads + thread);
            const int column = first_column + find_place(i * kThinThreads + thread);
            const std::int64_t place = p.sums.is_nk ? row * p.ldw + column : column * p.ldw + row;
            if (row < n && column < k) values[i] = to_float(p.w[place]);
        }
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const int at = find_place(i * kThinThreads + thread);
            weights[find_row(i * kThinThreads + thread)][kIsWide ? at : at % 32 * kWidth + at / 32] = values[i];
        }
    }
    __syncthreads();

    float sums[kN][kWidth] = {};
    float column_sums[kWidth] = {};
    const int first_row = block_of_rows * p.rows;
    const int end_row = first_row + min(p.rows, p.m - first_row);
    const auto load = [&](const Element* matrix, std::int64_t stride, int row, Elements* values) {
        const Element* const source = matrix + row * stride + first_column;
        if constexpr (kIsWide) {
            if (row < end_row && has_column(0)) *values = *reinterpret_cast<const Elements*>(source + find_column(0));
        } else {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                if (row < end_row && has_column(i)) values->elements[i] = source[find_column(i)];
            }
        }
    };
    // A row of dZ: rounded, on its way to memory, and its share of dbias.
    const auto pass_row = [&](int row, float (&passed)[kWidth], const Elements& z) {
        if (p.z != nullptr) pass_gradients(p.act, passed, [&](int i) { return to_float(z.elements[i]); });
        Elements results;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) {
            column_sums[i] += passed[i];
            results.elements[i] = from_float<Element>(passed[i]);
        }
        Element* const target = p.dz + row * p.lddz + first_column;
        if constexpr (kIsWide) {
            if (has_column(0)) *reinterpret_cast<Elements*>(target + find_column(0)) = results;
        } else {
#pragma unroll
            for (int i = 0; i < kWidth; ++i) {
                if (has_column(i)) target[find_column(i)] = results.elements[i];
            }
        }
    };
    for (int row = first_row + warp * kUnroll; row < end_row; row += kThinWarps * kUnroll) {
        Elements x[kUnroll] = {}, z[kUnroll] = {};
        if (p.x != nullptr) {
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) load(p.x, p.ldx, row + u, &x[u]);
        }
        if (p.z != nullptr) {
#pragma unroll
            for (int u = 0; u < kUnroll; ++u) load(p.z, p.ldz, row + u, &z[u]);
        }
        // dY of these rows, for all lanes; zero where there is none, so that nothing comes of it.
        constexpr int kCount = (kN * kUnroll + 31) / 32;
        float dy_values[kCount] = {};
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const int u = (i * 32 + lane) / kN, column = (i * 32 + lane) % kN;
            if (u < kUnroll && row + u < end_row && column < n) dy_values[i] = to_float(p.dy[(row + u) * p.lddy + column]);
        }
        __syncwarp();
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const int u = (i * 32 + lane) / kN, column = (i * 32 + lane) % kN;
            if (u < kUnroll) gradients[warp][column][u] = dy_values[i];
        }
        __syncwarp();

#pragma unroll
        for (int group = 0; group < kUnroll; group += kGroup) {
            if (row + group >= end_row) break;
            if (group > 0) __syncwarp();
            float passed[kGroup][kWidth] = {};
#pragma unroll
            for (int i = 0; i < kN; ++i) {
                if (i > 0 && i % kAtATime == 0 && i >= n) break;
                float dy[kGroup];
#pragma unroll
                for (int u = 0; u < kGroup; u += 4) {
                    const float4 four = *reinterpret_cast<const float4*>(&gradients[warp][i][group + u]);
                    dy[u] = four.x, dy[u + 1] = four.y, dy[u + 2] = four.z, dy[u + 3] = four.w;
                }
                if (p.w != nullptr) {
                    const auto w = *reinterpret_cast<const ThinElements<float, kWidth>*>(&weights[i][lane * kWidth]);
#pragma unroll
                    for (int j = 0; j < kGroup * kWidth; ++j) {
                        float& sum = passed[j / kWidth][j % kWidth];
                        sum = fmaf(dy[j / kWidth], w.elements[j % kWidth], sum);
                    }
                }
#pragma unroll
                for (int j = 0; j < kGroup * kWidth; ++j) {
                    sums[i][j % kWidth] = fmaf(dy[j / kWidth], to_float(x[group + j / kWidth].elements[j % kWidth]), sums[i][j % kWidth]);
                }
            }
            if (p.dz == nullptr) continue;
#pragma unroll
            for (int u = 0; u < kGroup; ++u) {
                if (row + group + u >= end_row) continue;
                pass_row(row + group + u, passed[u], z[group + u]);
            }
        }
    }

    // Adds up the warps' sums, in order, and stores them, or hands them over.
    const auto finish = [&](int first, int end, const auto& read) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kAtATime; ++i) {
            if (first + i >= end) break;
#pragma unroll
            for (int j = 0; j < kWidth; ++j) parts[warp][i][j * 32 + lane] = read(i, j);
        }
        __syncthreads();
        const int count = min(end - first, kAtATime) * kStrip;
        for (int i = thread; i < count; i += kThinThreads) {
            const int row = i / kStrip, place = i % kStrip;
            const int column = first_column + (kIsWide ? place % 32 * kWidth + place / 32 : place);
            if (column >= k) continue;
            float sum = 0.0f;
#pragma unroll
            for (int of = 0; of < kThinWarps; ++of) sum += parts[of][row][place];
            if (p.partial_sums == nullptr) {
                p.sums.store(first + row, column, sum);
            } else {
                p.partial_sums[(static_cast<std::int64_t>(block_of_rows) * (n + 1) + first + row) * k + column] = sum;
            }
        }
    };
    if (p.sums.dw != nullptr) {
#pragma unroll
        for (int first = 0; first < kN; first += kAtATime) {
            if (first >= n) break;
            finish(first, n, [&](int i, int j) { return sums[first + i][j]; });
        }
    }
    if (p.sums.dbias != nullptr) finish(n, n + 1, [&](int, int j) { return column_sums[j]; });
}

inline constexpr int kThinAddRows = 8;  // of partial sums that a block reads at a time

// Adds the sums of all blocks of rows, in one order: a row of sums to each y of the grid, 32 columns to each x.
template <class Element>
__global__ void __launch_bounds__(32 * kThinAddRows)
    add_thin_sums(const float* __restrict__ partial, int num_blocks, const ThinSums<Element> sums) {
    __shared__ float parts[kThinAddRows][32];
    allow_successor();
    wait_for_predecessor();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = static_cast<int>(threadIdx.x) / 32;
    const int column = static_cast<int>(blockIdx.x) * 32 + lane;
    const int row = sums.find_first() + static_cast<int>(blockIdx.y);
    float sum = 0.0f;
    if (column < sums.k) {
#pragma unroll 4
        for (int block = first; block < num_blocks; block += kThinAddRows) {
            sum += partial[(static_cast<std::int64_t>(block) * (sums.n + 1) + row) * sums.k + column];
        }
    }
    parts[first][lane] = sum;
    __syncthreads();
    if (first > 0 || column >= sums.k) return;
#pragma unroll
    for (int i = 1; i < kThinAddRows; ++i) sum += parts[i][lane];
    sums.store(row, column, sum);
}

}  // namespace aicf::gemm_backward

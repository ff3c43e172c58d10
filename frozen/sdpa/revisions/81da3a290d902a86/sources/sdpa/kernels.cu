// Scaled dot-product attention: O[i] = sum_j exp(s_ij - max_i) V[j] / sum_j exp(s_ij - max_i), s_ij = scale Q[i] K[j], per batch and head.
//
//   rung | kernel      | one idea more than the rung before
//   -----+-------------+--------------------------------------------------------------------------------------------
//    1   | sdpa_naive  | a warp per row of Q, two passes over K: the maximum, then weights and sums
//    2   | sdpa_online | tiles of K and V in shared memory serve several rows of Q; one pass
//
// All arithmetic is fp32. A lane keeps elements lane, lane + 32, ... of a row of O: kChunks of them.
#include <cstdint>

#include "common/elements.cuh"
#include "common/reduce.cuh"
#include "sdpa/api.hpp"

namespace aicf::sdpa {

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float sum_over_warp(float value) {
    return reduce_warp(value, [](float a, float b) { return a + b; });
}

__device__ __forceinline__ float max_over_warp(float value) {
    return reduce_warp(value, [](float a, float b) { return fmaxf(a, b); });
}

// Batch, head and first row of a block: blocks of a head follow each other.
struct Place {
    std::int64_t batch, head, row;

    __device__ Place(const SdpaParams& p, int rows_per_block) {
        const std::int64_t per_head = (p.s + rows_per_block - 1) / rows_per_block;
        const std::int64_t block = blockIdx.x;
        row = block % per_head * rows_per_block;
        head = block / per_head % p.h;
        batch = block / per_head / p.h;
    }
};

// Writes the row of O, kept by the lanes of a warp as sums of `weights`, and the logarithm of its sum of exponentials.
template <int kChunks, class Element>
__device__ __forceinline__ void store_row(const SdpaParams& p, const Place& at, std::int64_t row, const float (&sums)[kChunks],
                                          float maximum, float total) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    auto* o = static_cast<Element*>(p.o) + at.batch * p.o_stride0 + at.head * p.o_stride1 + row * p.o_stride2;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const int d = c * kWarpSize + lane;
        if (d < p.d) o[d] = from_float<Element>(sums[c] / total);
    }
    if (p.lse != nullptr && lane == 0) p.lse[(at.batch * p.h + at.head) * p.s + row] = maximum + logf(total);
}

// kWarps warps a block, each takes one row of Q.
template <int kWarps, int kChunks, class Element>
__global__ void __launch_bounds__(kWarps* kWarpSize) sdpa_naive(const SdpaParams p) {
    const Place at(p, kWarps);
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    const std::int64_t row = at.row + static_cast<int>(threadIdx.x) / kWarpSize;
    if (row >= p.s) return;
    const auto* q = static_cast<const Element*>(p.q) + at.batch * p.q_stride0 + at.head * p.q_stride1 + row * p.q_stride2;
    const auto* k = static_cast<const Element*>(p.k) + at.batch * p.k_stride0 + at.head * p.k_stride1;
    const auto* v = static_cast<const Element*>(p.v) + at.batch * p.v_stride0 + at.head * p.v_stride1;
    const std::int64_t columns = p.causal && row + 1 < p.t ? row + 1 : p.t;
    const auto find_score = [&](std::int64_t j) {
        float product = 0.0f;
        for (int d = lane; d < p.d; d += kWarpSize) product = fmaf(to_float(q[d]), to_float(k[j * p.k_stride2 + d]), product);
        return p.scale * sum_over_warp(product);
    };
    float maximum = minus_infinity();
    for (std::int64_t j = 0; j < columns; ++j) maximum = fmaxf(maximum, find_score(j));
    float total = 0.0f;
    float sums[kChunks] = {};
    for (std::int64_t j = 0; j < columns; ++j) {
        const float weight = expf(find_score(j) - maximum);
        total += weight;
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
            const int d = c * kWarpSize + lane;
            if (d < p.d) sums[c] = fmaf(weight, to_float(v[j * p.v_stride2 + d]), sums[c]);
        }
    }
    store_row<kChunks, Element>(p, at, row, sums, maximum, total);
}

// Copies `count` rows of `width` elements to shared memory in fp32, rows `pitch` apart, zeros behind the first `num_valid`.
template <int kThreads, class Element>
__device__ __forceinline__ void load_rows(float* target, int pitch, const Element* source, std::int64_t stride, int count,
                                          std::int64_t num_valid, int width) {
    for (int i = static_cast<int>(threadIdx.x); i < count * width; i += kThreads) {
        const int row = i / width, d = i % width;
        target[row * pitch + d] = row < num_valid ? to_float(source[row * stride + d]) : 0.0f;
    }
}

// kWarps warps a block, each takes kRows rows of Q; kKeys rows of K and V are in shared memory at a time. A lane scores one of 32 rows of
// K. Shared memory: Q [kWarps * kRows, D], K [kKeys, D + 1] (so that lanes read different banks), V [kKeys, D].
template <int kWarps, int kRows, int kKeys, int kChunks, class Element>
__global__ void __launch_bounds__(kWarps* kWarpSize) sdpa_online(const SdpaParams p) {
    extern __shared__ float shared[];
    constexpr int kThreads = kWarps * kWarpSize, kBlockRows = kWarps * kRows, kGroups = kKeys / kWarpSize;
    const int width = static_cast<int>(p.d), lane = static_cast<int>(threadIdx.x) % kWarpSize,
              warp = static_cast<int>(threadIdx.x) / kWarpSize;
    float* const q_tile = shared;
    float* const k_tile = q_tile + kBlockRows * width;
    float* const v_tile = k_tile + kKeys * (width + 1);
    const Place at(p, kBlockRows);
    const auto* q = static_cast<const Element*>(p.q) + at.batch * p.q_stride0 + at.head * p.q_stride1 + at.row * p.q_stride2;
    const auto* k = static_cast<const Element*>(p.k) + at.batch * p.k_stride0 + at.head * p.k_stride1;
    const auto* v = static_cast<const Element*>(p.v) + at.batch * p.v_stride0 + at.head * p.v_stride1;
    load_rows<kThreads>(q_tile, width, q, p.q_stride2, kBlockRows, p.s - at.row, width);

    const std::int64_t first_row = at.row + warp * kRows;
    float maximum[kRows], total[kRows] = {}, sums[kRows][kChunks] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) maximum[r] = minus_infinity();
    // What the block's last row sees.
    const std::int64_t end = p.causal && at.row + kBlockRows < p.t ? at.row + kBlockRows : p.t;
    for (std::int64_t begin = 0; begin < end; begin += kKeys) {
        __syncthreads();
        load_rows<kThreads>(k_tile, width + 1, k + begin * p.k_stride2, p.k_stride2, kKeys, p.t - begin, width);
        load_rows<kThreads>(v_tile, width, v + begin * p.v_stride2, p.v_stride2, kKeys, p.t - begin, width);
        __syncthreads();
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const std::int64_t row = first_row + r;
            // Row 0 of K is seen by all rows, so that the maximum is finite from the first tile on.
            const std::int64_t columns = p.causal && row + 1 < p.t ? row + 1 : p.t;
            float scores[kGroups];
            float largest = maximum[r];
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
                const int j = g * kWarpSize + lane;
                float product = 0.0f;
                for (int d = 0; d < width; ++d)
                    product = fmaf(q_tile[(warp * kRows + r) * width + d], k_tile[j * (width + 1) + d], product);
                scores[g] = begin + j < columns ? p.scale * product : minus_infinity();
                largest = fmaxf(largest, scores[g]);
            }
            largest = max_over_warp(largest);
            const float shrink = expf(maximum[r] - largest);
            maximum[r] = largest;
            total[r] *= shrink;
#pragma unroll
            for (int c = 0; c < kChunks; ++c) sums[r][c] *= shrink;
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
                const float weight = expf(scores[g] - largest);
                total[r] += sum_over_warp(weight);
                for (int j = 0; j < kWarpSize; ++j) {
                    const float each = __shfl_sync(kFullMask, weight, j);
#pragma unroll
                    for (int c = 0; c < kChunks; ++c) {
                        const int d = c * kWarpSize + lane;
                        if (d < width) sums[r][c] = fmaf(each, v_tile[(g * kWarpSize + j) * width + d], sums[r][c]);
                    }
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        if (first_row + r < p.s) store_row<kChunks, Element>(p, at, first_row + r, sums[r], maximum[r], total[r]);
    }
}

}  // namespace aicf::sdpa

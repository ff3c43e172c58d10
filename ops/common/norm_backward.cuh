// Gradients of layer normalisation and RMS normalisation: the kernels that both ops share.
//
//     n = (x - mean) * rstd,   g = dy * weight,   mean = 0 for RMS normalisation
//     dx      = rstd * (g - mean_j(g) - n * mean_j(g * n)) + dsum      without mean_j(g) for RMS normalisation
//     dweight = sum over rows of dy * n,   dbias = sum over rows of dy
//
// The sums over rows are made in two steps, each in a fixed order: partial sums of some rows into the workspace, then the sums of those.
#pragma once

#include <cstdint>

#include "common/rows.cuh"

namespace aicf {

// Row-major [rows, columns] with row strides, where x is what was normalised; null where a tensor is absent.
template <class Element>
struct NormGradient {
    const Element *dy, *x, *weight, *dsum;
    const float *mean, *rstd;  // [rows]
    Element *dx, *dweight, *dbias;
    std::int64_t rows, columns, lddy, ldx, lddsum, lddx;
    float* partials;  // [kNumSums, num_partials, columns]
    int num_partials;
};

template <class Element>
struct NormGradientRow {
    const Element *dy, *x, *dsum;
    Element* dx;
    float mean, rstd;

    __device__ __forceinline__ NormGradientRow(const NormGradient<Element>& p, std::int64_t row)
        : dy(p.dy + row * p.lddy),
          x(p.x + row * p.ldx),
          dsum(p.dsum == nullptr ? nullptr : p.dsum + row * p.lddsum),
          dx(p.dx + row * p.lddx),
          mean(p.mean == nullptr ? 0.0f : p.mean[row]),
          rstd(p.rstd[row]) {}

    __device__ __forceinline__ float normalise(float value) const { return (value - mean) * rstd; }
};

// The sums of g and of g * n over a part of a row.
struct NormSums {
    float g = 0.0f, gn = 0.0f;

    __device__ __forceinline__ void add(float gradient, float n) {
        g += gradient;
        gn = fmaf(gradient, n, gn);
    }
};

__device__ __forceinline__ NormSums combine(NormSums a, NormSums b) { return {a.g + b.g, a.gn + b.gn}; }

__device__ __forceinline__ NormSums shuffle_xor(NormSums value, int offset) {
    return {shuffle_xor(value.g, offset), shuffle_xor(value.gn, offset)};
}

// dweight, and dbias where there is one.
template <bool kIsCentred>
inline constexpr int kNumSums = kIsCentred ? 2 : 1;

// Means of g (0 for RMS normalisation) and of g * n.
template <bool kIsCentred>
__device__ __forceinline__ NormSums find_means(NormSums sums, std::int64_t columns) {
    return {kIsCentred ? sums.g / static_cast<float>(columns) : 0.0f, sums.gn / static_cast<float>(columns)};
}

__device__ __forceinline__ float find_slope(float g, float n, NormSums means, float rstd) { return (g - means.g - n * means.gn) * rstd; }

// dx: a thread per row, one pass for the sums and one for the result.
template <bool kIsCentred, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_naive(const NormGradient<Element> p) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= p.rows) return;
    const NormGradientRow<Element> at(p, row);
    NormSums sums;
    for (std::int64_t j = 0; j < p.columns; ++j) sums.add(to_float(at.dy[j]) * to_float(p.weight[j]), at.normalise(to_float(at.x[j])));
    const NormSums means = find_means<kIsCentred>(sums, p.columns);
    for (std::int64_t j = 0; j < p.columns; ++j) {
        const float slope = find_slope(to_float(at.dy[j]) * to_float(p.weight[j]), at.normalise(to_float(at.x[j])), means, at.rstd);
        at.dx[j] = from_float<Element>(slope + (at.dsum == nullptr ? 0.0f : to_float(at.dsum[j])));
    }
}

// dweight and dbias: a thread per column.
template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_columns_naive(const NormGradient<Element> p) {
    const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (j >= p.columns) return;
    float dweight = 0.0f, dbias = 0.0f;
    for (std::int64_t row = 0; row < p.rows; ++row) {
        const NormGradientRow<Element> at(p, row);
        dweight += to_float(at.dy[j]) * at.normalise(to_float(at.x[j]));
        dbias += to_float(at.dy[j]);
    }
    p.dweight[j] = from_float<Element>(dweight);
    if (p.dbias != nullptr) p.dbias[j] = from_float<Element>(dbias);
}

// dx: a block per row of any length, which is read twice, the second time mostly from L2.
template <bool kIsCentred, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_passes(const NormGradient<Element> p, bool is_packed) {
    using Group = RowGroup<kThreads>;
    __shared__ NormSums partials[Group::kPartials];
    const Group group;
    const NormGradientRow<Element> at(p, group.row);
    NormSums sums;
    visit_row<Element, kThreads>(p.columns, group.rank, [&](std::int64_t column, int num_valid) {
        const auto dy = load_pack_or(at.dy + column, num_valid, is_packed, 0.0f);
        const auto weight = load_pack_or(p.weight + column, num_valid, is_packed, 0.0f);
        const auto x = load_pack_or(at.x + column, num_valid, is_packed, at.mean);
#pragma unroll
        for (int i = 0; i < kPackElems<Element>; ++i) sums.add(dy.values[i] * weight.values[i], at.normalise(x.values[i]));
    });
    sums = group.reduce(sums, partials, [](NormSums a, NormSums b) { return combine(a, b); });
    const NormSums means = find_means<kIsCentred>(sums, p.columns);
    visit_row<Element, kThreads>(p.columns, group.rank, [&](std::int64_t column, int num_valid) {
        const auto dy = load_pack_or(at.dy + column, num_valid, is_packed, 0.0f);
        const auto weight = load_pack_or(p.weight + column, num_valid, is_packed, 0.0f);
        const auto x = load_pack_or(at.x + column, num_valid, is_packed, 0.0f);
        Pack<Element> dx = {};
        if (at.dsum != nullptr) dx = load_pack_or(at.dsum + column, num_valid, is_packed, 0.0f);
#pragma unroll
        for (int i = 0; i < kPackElems<Element>; ++i) {
            dx.values[i] += find_slope(dy.values[i] * weight.values[i], at.normalise(x.values[i]), means, at.rstd);
        }
        store_pack_part(at.dx + column, dx, num_valid, is_packed);
    });
}

inline constexpr int kColumnWidth = 32;

// Partial sums over rows: a block takes kColumnWidth chunks of columns by 16 bytes, and every num_partials-th group of rows, in order.
template <bool kIsCentred, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_columns(const NormGradient<Element> p, bool is_packed) {
    constexpr int kLanes = kThreads / kColumnWidth, kElems = kPackElems<Element>;
    __shared__ float shared[kLanes][kColumnWidth * kElems + 1];
    const int place = static_cast<int>(threadIdx.x) % kColumnWidth, lane = static_cast<int>(threadIdx.x) / kColumnWidth;
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.x) * kColumnWidth + place) * kElems;
    const std::int64_t num_valid = p.columns - column;
    float dweight[kElems] = {}, dbias[kElems] = {};
    if (num_valid > 0) {
        for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kLanes + lane; row < p.rows;
             row += std::int64_t{kLanes} * gridDim.y) {
            const NormGradientRow<Element> at(p, row);
            const auto dy = load_pack_or(at.dy + column, num_valid, is_packed, 0.0f);
            const auto x = load_pack_or(at.x + column, num_valid, is_packed, 0.0f);
#pragma unroll
            for (int i = 0; i < kElems; ++i) {
                dweight[i] = fmaf(dy.values[i], at.normalise(x.values[i]), dweight[i]);
                dbias[i] += dy.values[i];
            }
        }
    }
#pragma unroll
    for (int which = 0; which < kNumSums<kIsCentred>; ++which) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kElems; ++i) shared[lane][place * kElems + i] = which == 0 ? dweight[i] : dbias[i];
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < kColumnWidth * kElems; i += kThreads) {
            const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kColumnWidth * kElems + i;
            float sum = shared[0][i];
            for (int other = 1; other < kLanes; ++other) sum += shared[other][i];
            if (at < p.columns) p.partials[(static_cast<std::int64_t>(which) * p.num_partials + blockIdx.y) * p.columns + at] = sum;
        }
    }
}

// All in one: num_partials blocks take rows in turn, kThreads threads a row of at most kThreads * kElems elements, kRows rows at a time. x
// and dy are read once; the partial sums over rows stay in registers to the end. kIsWhole as for RowSpan; else elements lie kThreads apart.
template <bool kIsCentred, class Element, int kThreads, int kRows, int kElems, bool kIsWhole>
__global__ void __launch_bounds__(kThreads* kRows) norm_backward_registers(const NormGradient<Element> p) {
    using Group = RowGroup<kThreads, kRows>;
    using Span = RowSpan<Element, kThreads, kElems, kIsWhole>;
    __shared__ NormSums partials[2][Group::kPartials];
    __shared__ float shared[kRows > 1 ? kRows * kThreads * kElems : 1];
    const Group group;
    const Span span = {static_cast<int>(p.columns), group.rank, kIsWhole};
    constexpr bool kKeepsWeight = kThreads <= 512 && kElems <= 8;  // in registers, where there are enough
    Pack<Element> weight[Span::kChunks];
    if constexpr (kKeepsWeight) span.load_all(p.weight, weight);
    float dweight[kElems] = {}, dbias[kElems] = {};
    int parity = 0;  // two reductions in a row use different memory

    // Whole blocks go round together; a group past the last row counts nothing.
    for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows; first < p.rows; first += std::int64_t{kRows} * gridDim.x) {
        const std::int64_t row = first + static_cast<int>(threadIdx.x) / kThreads;
        const bool is_real = row < p.rows;
        const NormGradientRow<Element> at(p, is_real ? row : p.rows - 1);
        Pack<Element> g[Span::kChunks], n[Span::kChunks];
        NormSums sums;
        span.load_all(at.dy, g);
        span.load_all(at.x, n);
        if constexpr (!kKeepsWeight) span.load_all(p.weight, weight);
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
            if (!kIsWhole && !span.is_there(c)) continue;
#pragma unroll
            for (int i = 0; i < Span::kChunkElems; ++i) {
                const float dy = is_real ? g[c].values[i] : 0.0f;
                float& normalised = n[c].values[i];
                normalised = span.holds(c, i) ? at.normalise(normalised) : 0.0f;
                float& sum = dweight[c * Span::kChunkElems + i];
                sum = fmaf(dy, normalised, sum);
                dbias[c * Span::kChunkElems + i] += dy;
                g[c].values[i] *= weight[c].values[i];
                sums.add(g[c].values[i], normalised);
            }
        }
        sums = group.reduce(sums, partials[parity], [](NormSums a, NormSums b) { return combine(a, b); });
        parity ^= 1;
        const NormSums means = find_means<kIsCentred>(sums, p.columns);
        if (!is_real) continue;
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
            if (!span.is_there(c)) continue;
            Pack<Element> dx = {};
            if (at.dsum != nullptr) dx = span.load(at.dsum, c, 0.0f);
#pragma unroll
            for (int i = 0; i < Span::kChunkElems; ++i) dx.values[i] += find_slope(g[c].values[i], n[c].values[i], means, at.rstd);
            span.store(at.dx, c, dx);
        }
    }

#pragma unroll
    for (int which = 0; which < kNumSums<kIsCentred>; ++which) {
        float* target = p.partials + (static_cast<std::int64_t>(which) * p.num_partials + blockIdx.x) * p.columns;
        if constexpr (kRows > 1) {
            __syncthreads();
#pragma unroll
            for (int e = 0; e < kElems; ++e) {
                shared[static_cast<int>(threadIdx.x) / kThreads * (kThreads * kElems) + e * kThreads + group.rank] =
                    which == 0 ? dweight[e] : dbias[e];
            }
            __syncthreads();
            if (threadIdx.x >= kThreads) continue;
        }
#pragma unroll
        for (int e = 0; e < kElems; ++e) {
            float sum = which == 0 ? dweight[e] : dbias[e];
            if constexpr (kRows > 1) {
                for (int other = 1; other < kRows; ++other) sum += shared[other * (kThreads * kElems) + e * kThreads + group.rank];
            }
            const int column = span.find_column(e / Span::kChunkElems, e % Span::kChunkElems);
            if (column < p.columns) target[column] = sum;
        }
    }
}

// The sums of the partial sums, each in the order of the blocks; a block takes kColumnWidth columns.
template <bool kIsCentred, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_finish(const NormGradient<Element> p) {
    constexpr int kLanes = kThreads / kColumnWidth;
    __shared__ float shared[kNumSums<kIsCentred>][kLanes][kColumnWidth];
    const int place = static_cast<int>(threadIdx.x) % kColumnWidth, lane = static_cast<int>(threadIdx.x) / kColumnWidth;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnWidth + place;
#pragma unroll
    for (int which = 0; which < kNumSums<kIsCentred>; ++which) {
        float sum = 0.0f;
        if (column < p.columns) {
            const float* source = p.partials + static_cast<std::int64_t>(which) * p.num_partials * p.columns + column;
#pragma unroll 8
            for (int i = lane; i < p.num_partials; i += kLanes) sum += source[i * p.columns];
        }
        shared[which][lane][place] = sum;
    }
    __syncthreads();
    if (lane >= kNumSums<kIsCentred> || column >= p.columns || (lane == 1 && p.dbias == nullptr)) return;
    float sum = shared[lane][0][place];
    for (int other = 1; other < kLanes; ++other) sum += shared[lane][other][place];
    (lane == 0 ? p.dweight : p.dbias)[column] = from_float<Element>(sum);
}

// All matrices have rows, and the vectors begin, on 16-byte boundaries.
template <class Element>
bool has_packs(const NormGradient<Element>& p) {
    return has_pack_rows<Element>(p.dy, p.lddy) && has_pack_rows<Element>(p.x, p.ldx) && has_pack_rows<Element>(p.dsum, p.lddsum) &&
           has_pack_rows<Element>(p.dx, p.lddx) && has_pack_rows<Element>(p.weight, 0);
}

template <class Element>
bool has_whole_packs(const NormGradient<Element>& p) {
    return has_packs(p) && p.columns % kPackElems<Element> == 0;
}

}  // namespace aicf

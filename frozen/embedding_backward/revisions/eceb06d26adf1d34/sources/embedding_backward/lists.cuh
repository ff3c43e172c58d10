// Rows of the table by lists of the indices that point to them, in no particular order: no sort. Sums are of terms that are multiples of
// one power of two, which follows from the largest term and the number of them: they are exact in 64 bits, and come out the same in any
// order.
//
// `count` numbers the indices of each row as they come, `place` gives each row its part of the lists, `fill` writes these; then a group of
// threads takes a row, or blocks the columns of a row whose list is long. Which place an index has in its list differs from run to run, and
// the sum does not.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "common/indices.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "embedding_backward/params.h"
#include "embedding_backward/sort.cuh"

namespace aicf::embedding_backward {

// A row with more indices than this is a long one: a group would take them one after the other for too long.
inline constexpr int kLongRow = 64;
inline constexpr int kLongThreads = 512, kLongPacks = 2;  // a block's threads, and the neighbouring packs of a row that it takes

struct Lists {
    std::int32_t* counts;  // [vocabulary]: how many indices point to a row
    std::int32_t* totals;  // [2]: places given out, long rows
    std::int32_t* starts;  // [vocabulary]: where a row's list begins
    std::int32_t* long_rows;  // [count / (kLongRow + 1)]
    std::int32_t* ranks;  // [count]: an index's number in its list, -1 for a wrong one
    std::int32_t* places;  // [count]: the lists
};

template <class Index>
__global__ void __launch_bounds__(kSortThreads) count_lists(const EmbeddingBackwardParams p, const Lists lists) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    if (i - lane >= p.count) return;
    const std::int64_t index = i < p.count ? read_index<Index>(p.indices, i, p.vocabulary, true, p.status) : -1;
    // One addition for all lanes of a row.
    const unsigned same = __match_any_sync(kFullMask, static_cast<std::int32_t>(index));
    const int leader = __ffs(static_cast<int>(same)) - 1;
    int base = 0;
    if (index >= 0 && lane == leader) base = atomicAdd(&lists.counts[index], __popc(same));
    base = __shfl_sync(kFullMask, base, leader);
    if (i < p.count) lists.ranks[i] = index < 0 ? -1 : base + __popc(same & ((1u << lane) - 1u));
}

__global__ void __launch_bounds__(kSortThreads) place_lists(const EmbeddingBackwardParams p, const Lists lists) {
    __shared__ int partials[kSortWarps], first;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
    const int own = row < p.vocabulary ? lists.counts[row] : 0;
    const int end = scan_block(own, partials);
    if (threadIdx.x == kSortThreads - 1) first = end > 0 ? atomicAdd(&lists.totals[0], end) : 0;
    __syncthreads();
    if (own > 0) lists.starts[row] = first + end - own;
    if (own > kLongRow) lists.long_rows[atomicAdd(&lists.totals[1], 1)] = static_cast<std::int32_t>(row);
}

template <class Index>
__global__ void __launch_bounds__(kSortThreads) fill_lists(const EmbeddingBackwardParams p, const Lists lists) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
    if (i >= p.count) return;
    const std::int32_t rank = lists.ranks[i];
    const auto index = static_cast<std::int64_t>(static_cast<const Index*>(p.indices)[i]);
    if (rank >= 0) lists.places[lists.starts[index] + rank] = static_cast<std::int32_t>(i);
}

inline constexpr unsigned kInfinity = 0x7f800000u;

__device__ __forceinline__ unsigned find_magnitude(float value) { return __float_as_uint(value) & 0x7fffffffu; }

__device__ __forceinline__ double raise_two(int exponent) { return __hiloint2double((1023 + exponent) << 20, 0); }

// The power of two that `count` terms are multiples of, as its exponent: of finite ones, the largest of which has these bits.
__device__ __forceinline__ int find_unit(unsigned largest, int count) {
    const int exponent = static_cast<int>(largest >> 23);  // a subnormal term is below the least normal one, too
    const int top = (exponent > 0 ? exponent : 1) - 126;  // all terms are below 2^top
    return top - (62 - (32 - __clz(count)));  // and fewer than 2^(62 - bits of the count) units
}

// What the terms of one pack's elements come to, gathered in two looks at them.
template <class Element>
struct ExactSum {
    static constexpr int kElems = kPackElems<Element>;
    unsigned largest[kElems] = {};
    long long units[kElems] = {};

    __device__ __forceinline__ void look(const Pack<Element>& terms) {
#pragma unroll
        for (int e = 0; e < kElems; ++e) largest[e] = max(largest[e], find_magnitude(terms.values[e]));
    }

    __device__ __forceinline__ void add(const Pack<Element>& terms, const double (&scales)[kElems]) {
#pragma unroll
        for (int e = 0; e < kElems; ++e) units[e] += __double2ll_rn(static_cast<double>(terms.values[e]) * scales[e]);
    }

    __device__ __forceinline__ bool is_finite() const {
        bool found = true;
#pragma unroll
        for (int e = 0; e < kElems; ++e) found = found && largest[e] < kInfinity;
        return found;
    }

    __device__ __forceinline__ void find_scales(int count, double (&scales)[kElems]) const {
#pragma unroll
        for (int e = 0; e < kElems; ++e) scales[e] = raise_two(-find_unit(largest[e], count));
    }

    // Where the largest term is no finite number, the sum is that of all such terms.
    __device__ __forceinline__ Pack<Element> finish(int count, const Pack<Element>& infinite) const {
        Pack<Element> sum;
#pragma unroll
        for (int e = 0; e < kElems; ++e) {
            const double exact = static_cast<double>(units[e]) * raise_two(find_unit(largest[e], count));
            sum.values[e] = largest[e] < kInfinity ? static_cast<float>(exact) : infinite.values[e];
        }
        return sum;
    }
};

template <class Element>
__device__ __forceinline__ void add_infinite(Pack<Element>& sum, const Pack<Element>& terms) {
#pragma unroll
    for (int e = 0; e < kPackElems<Element>; ++e) sum.values[e] += find_magnitude(terms.values[e]) < kInfinity ? 0.0f : terms.values[e];
}

// Calls visit(pack) for the row part of each `step`-th index of a list from `first` on, and with zeros a few times at the end.
template <class Element, class Span, class Visit>
__device__ __forceinline__ void visit_list(const EmbeddingBackwardParams& p, const std::int32_t* list, int first, int count, int step,
                                           const Span& span, int chunk, const Visit& visit) {
    constexpr int kInFlight = 4;
    for (int i = first; i < count; i += kInFlight * step) {
        std::int32_t places[kInFlight];
        Pack<Element> parts[kInFlight];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) places[u] = i + u * step < count ? list[i + u * step] : -1;
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
            parts[u] = {};
            if (places[u] >= 0) parts[u] = span.load(static_cast<const Element*>(p.dy) + places[u] * p.lddy, chunk, 0.0f);
        }
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) visit(parts[u]);
    }
}

// A group of kThreads per row of the table, but for the long ones.
template <class Element, int kThreads, int kRows>
__global__ void __launch_bounds__(kThreads* kRows) backward_lists(const EmbeddingBackwardParams p, const Lists lists, bool is_packed) {
    constexpr int kElems = kPackElems<Element>;
    const RowGroup<kThreads, kRows> group;
    if (group.row >= p.vocabulary) return;
    const int count = lists.counts[group.row];
    if (count > kLongRow) return;
    const std::int32_t* const list = lists.places + (count > 0 ? lists.starts[group.row] : 0);
    auto* const target = static_cast<Element*>(p.dtable) + group.row * p.lddtable;
    const RowSpan<Element, kThreads, kElems> span{static_cast<int>(p.width), group.rank, is_packed};
    for (int chunk = 0; span.is_there(chunk); ++chunk) {
        Pack<Element> sum = {};
        if (count <= 2) {  // one addition at most, which has no order
            visit_list<Element>(p, list, 0, count, 1, span, chunk, [&](const Pack<Element>& terms) {
#pragma unroll
                for (int e = 0; e < kElems; ++e) sum.values[e] += terms.values[e];
            });
        } else {
            ExactSum<Element> exact;
            visit_list<Element>(p, list, 0, count, 1, span, chunk, [&](const Pack<Element>& terms) { exact.look(terms); });
            double scales[kElems];
            exact.find_scales(count, scales);
            visit_list<Element>(p, list, 0, count, 1, span, chunk, [&](const Pack<Element>& terms) { exact.add(terms, scales); });
            if (!exact.is_finite()) {
                visit_list<Element>(p, list, 0, count, 1, span, chunk, [&](const Pack<Element>& terms) { add_infinite(sum, terms); });
            }
            sum = exact.finish(count, sum);
        }
        span.store(target, chunk, sum);
    }
}

// The values of all threads of a block that have the same pack, for each of them. `shared` is free again behind the next barrier.
template <int kElems, class T, class Combine>
__device__ __forceinline__ void reduce_packs(T (&values)[kElems], T (*shared)[kLongPacks][kElems], const Combine& combine) {
    constexpr int kWarps = kLongThreads / kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int e = 0; e < kElems; ++e) {
#pragma unroll
        for (int offset = kLongPacks; offset < kWarpSize; offset *= 2) {
            values[e] = combine(values[e], __shfl_xor_sync(kFullMask, values[e], offset));
        }
        if (lane < kLongPacks) shared[warp][lane][e] = values[e];
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < kElems; ++e) {
        values[e] = shared[0][lane % kLongPacks][e];
        for (int other = 1; other < kWarps; ++other) values[e] = combine(values[e], shared[other][lane % kLongPacks][e]);
    }
}

// Blocks take kLongPacks neighbouring packs of a long row at a time; threads with the same pack share its list.
template <class Element>
__global__ void __launch_bounds__(kLongThreads) backward_long_lists(const EmbeddingBackwardParams p, const Lists lists, bool is_packed) {
    constexpr int kElems = kPackElems<Element>, kStep = kLongThreads / kLongPacks, kWarps = kLongThreads / kWarpSize;
    __shared__ unsigned magnitudes[kWarps][kLongPacks][kElems];
    __shared__ long long units[kWarps][kLongPacks][kElems];
    __shared__ float infinite[kWarps][kLongPacks][kElems];
    const int first = static_cast<int>(threadIdx.x) / kLongPacks;
    const RowSpan<Element, kLongPacks, kElems> span{static_cast<int>(p.width), static_cast<int>(threadIdx.x) % kLongPacks, is_packed};
    const int chunks = (static_cast<int>(p.width) - 1) / (kLongPacks * kElems) + 1;
    const std::int64_t items = static_cast<std::int64_t>(lists.totals[1]) * chunks;
    for (std::int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        const std::int64_t row = lists.long_rows[item / chunks];
        const int chunk = static_cast<int>(item % chunks), count = lists.counts[row];
        const std::int32_t* const list = lists.places + lists.starts[row];
        ExactSum<Element> exact;
        visit_list<Element>(p, list, first, count, kStep, span, chunk, [&](const Pack<Element>& terms) { exact.look(terms); });
        reduce_packs(exact.largest, magnitudes, [](unsigned a, unsigned b) { return max(a, b); });
        double scales[kElems];
        exact.find_scales(count, scales);
        visit_list<Element>(p, list, first, count, kStep, span, chunk, [&](const Pack<Element>& terms) { exact.add(terms, scales); });
        reduce_packs(exact.units, units, [](long long a, long long b) { return a + b; });
        Pack<Element> sum = {};
        if (__syncthreads_or(!exact.is_finite())) {
            visit_list<Element>(p, list, first, count, kStep, span, chunk, [&](const Pack<Element>& terms) { add_infinite(sum, terms); });
            reduce_packs(sum.values, infinite, [](float a, float b) { return a + b; });
        }
        if (first == 0) span.store(static_cast<Element*>(p.dtable) + row * p.lddtable, chunk, exact.finish(count, sum));
        __syncthreads();  // the shared results are read, before the next item's
    }
}

}  // namespace aicf::embedding_backward

// Rows of a matrix, each taken by a group of threads: the lanes of a warp or a part of them, or a block.
//
// A kernel of one row reduction is: where the group stands (RowGroup), a visit of the row's packs (visit_row), a reduction over the group.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "common/reduce.cuh"

namespace aicf {

// The result for every thread of a group of kThreads: lanes of a warp, or a whole block (then kThreads is the block). `partials` as for
// reduce_block, unused within a warp.
template <int kThreads, class T, class Combine>
__device__ __forceinline__ T reduce_group(T value, T* partials, Combine combine) {
    if constexpr (kThreads > kWarpSize) return reduce_block<kThreads>(value, partials, combine);
#pragma unroll
    for (int offset = (kThreads < kWarpSize ? kThreads : kWarpSize) / 2; offset > 0; offset /= 2) {
        value = combine(value, shuffle_xor(value, offset));
    }
    return value;
}

// kThreads threads take a row, kRows such groups a block (kRows is 1 beyond a warp).
template <int kThreads, int kRows = 1>
struct RowGroup {
    static_assert(kThreads <= kWarpSize || kRows == 1, "a group is lanes of a warp, or the block");
    static_assert(kThreads * kRows % kWarpSize == 0, "whole warps take part in shuffles");
    static constexpr int kBlockThreads = kThreads * kRows;
    // Partial results of a block-wide reduction; two reductions in a row need an array each.
    static constexpr int kPartials = kThreads > kWarpSize ? kThreads / kWarpSize : 1;

    int rank;               // of the thread in its group
    std::int64_t row;       // may lie past the last one: go along for the shuffles, on find_source(), and store nothing
    __device__ RowGroup()
        : rank(static_cast<int>(threadIdx.x) % kThreads),
          row(static_cast<std::int64_t>(blockIdx.x) * kRows + static_cast<int>(threadIdx.x) / kThreads) {}

    // The row to read: the last one for groups past it.
    __device__ std::int64_t find_source(std::int64_t rows) const { return row < rows ? row : rows - 1; }

    template <class T, class Combine>
    __device__ T reduce(T value, T* partials, Combine combine) const {
        return reduce_group<kThreads>(value, partials, combine);
    }

    __device__ float reduce_sum(float value, float* partials) const {
        return reduce(value, partials, [](float a, float b) { return a + b; });
    }

    __device__ float reduce_max(float value, float* partials) const {
        return reduce(value, partials, [](float a, float b) { return fmaxf(a, b); });
    }
};

// Calls visit(column, num_valid) for each pack of a row that falls to the thread of this rank; num_valid is the pack's size but at the end.
template <class Element, int kThreads, class Visit>
__device__ __forceinline__ void visit_row(std::int64_t columns, int rank, const Visit& visit) {
    constexpr int kElems = kPackElems<Element>;
    for (std::int64_t column = static_cast<std::int64_t>(rank) * kElems; column < columns; column += kThreads * kElems) {
        const std::int64_t left = columns - column;
        visit(column, left < kElems ? static_cast<int>(left) : kElems);
    }
}

}  // namespace aicf

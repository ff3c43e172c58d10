// Rows that follow one another in memory, whatever their length: a block takes as many as begin and end on 16 bytes, through shared memory.
// There may be gaps between them (RunStride), which are neither read nor written.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/division.hpp"
#include "common/reduce.cuh"

namespace aicf {

// Which of a block's kRows rows a group of kThreads lanes takes. Rows of one warp's groups lie so far apart that lanes, which read
// neighbours, meet in no bank: `apart` rows of an odd number of elements are an odd multiple of a group's own accesses, and of twice an odd
// number half as many are.
template <int kThreads, int kRows>
__device__ __forceinline__ int find_spread_row(int columns) {
    constexpr int kGroups = kWarpSize / kThreads;
    static_assert(kRows % kWarpSize == 0, "as many as lie apart, for each group of a warp");
    const int log_apart = __ffs(kThreads) - 1 - (columns % 2 == 0 && kThreads > 1 ? 1 : 0);
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize, group = static_cast<int>(threadIdx.x) % kWarpSize / kThreads;
    const int beside = warp & ((1 << log_apart) - 1), behind = warp >> log_apart;
    return beside + ((behind * kGroups + group) << log_apart);
}

// Elements from one row of a run to the next, with what it takes to find an element's column.
struct RunStride {
    int elems;
    Divisor divisor;

    __device__ __forceinline__ int find_column(int place) const { return divisor.find_remainder(place, divisor.divide(place)); }
};

inline RunStride make_run_stride(std::int64_t elems) { return {static_cast<int>(elems), make_divisor(elems == 0 ? 1 : elems)}; }

// Begins to copy a run of `count` elements, which begins on 16 bytes, to shared memory.
template <int kThreads, class Element>
__device__ __forceinline__ void begin_run(const Element* from, int count, Element* shared) {
    constexpr int kElems = 16 / static_cast<int>(sizeof(Element));
    const int packs = count / kElems, rank = static_cast<int>(threadIdx.x);
#pragma unroll 4
    for (int pack = rank; pack < packs; pack += kThreads) copy_async<16>(shared + pack * kElems, from + pack * kElems);
    // Of the last block alone.
    const int at = packs * kElems + rank;
    if (at < count) shared[at] = from[at];
}

// The same for rows with gaps. Neighbouring threads copy neighbouring kUnit elements, 4 bytes or 8, that are all a row's; those in front of
// the first such and behind the last, a thread for each row, when the others are under way.
template <int kThreads, int kUnit, class Element>
__device__ __forceinline__ void begin_rows(const Element* from, const RunStride& stride, int columns, int rows, Element* shared) {
    constexpr int kStep = kThreads * kUnit, kWordElems = 4 / static_cast<int>(sizeof(Element));
    const int count = (rows - 1) * stride.elems + columns, rank = static_cast<int>(threadIdx.x);
    if (stride.elems == columns) return begin_run<kThreads>(from, count, shared);
    if constexpr (kUnit > kWordElems) {
        if (stride.elems % kUnit != 0) return begin_rows<kThreads, kWordElems>(from, stride, columns, rows, shared);
    }
    const int step = stride.find_column(kStep);
    int column = stride.find_column(rank * kUnit);
#pragma unroll 4
    for (int place = rank * kUnit; place < count; place += kStep) {
        if (column + kUnit <= columns) copy_async<kUnit* static_cast<int>(sizeof(Element))>(shared + place, from + place);
        column += step;
        if (column >= stride.elems) column -= stride.elems;
    }
    if constexpr (kUnit > 1) {
        for (int row = rank; row < rows; row += kThreads) {
            const int begin = row * stride.elems, head = begin % kUnit == 0 ? 0 : 1;
            if (head != 0) shared[begin] = from[begin];
            for (int i = head + (columns - head) / kUnit * kUnit; i < columns; ++i) shared[begin + i] = from[begin + i];
        }
    }
}

// The same for one row, which may begin anywhere: `shared` lies behind a boundary of 16 bytes as it does.
template <int kThreads, class Element>
__device__ __forceinline__ void begin_row(const Element* row, int columns, Element* shared) {
    constexpr int kElems = 16 / static_cast<int>(sizeof(Element));
    const int rank = static_cast<int>(threadIdx.x),
              behind = static_cast<int>((reinterpret_cast<std::uintptr_t>(row) & 15) / sizeof(Element));
    const int head = min(columns, (kElems - behind) % kElems);
    if (rank < head) shared[rank] = row[rank];
    begin_run<kThreads>(row + head, columns - head, shared + head);
}

// What was begun is there for all threads when this returns.
__device__ __forceinline__ void await_runs() {
    commit_copies();
    wait_copies<0>();
    __syncthreads();
}

// Copies what all threads have written to shared memory back.
template <int kThreads, class Element>
__device__ __forceinline__ void write_run(const Element* shared, int count, Element* to) {
    constexpr int kElems = 16 / static_cast<int>(sizeof(Element));
    __syncthreads();
    const int packs = count / kElems, rank = static_cast<int>(threadIdx.x);
#pragma unroll 4
    for (int pack = rank; pack < packs; pack += kThreads) {
        *reinterpret_cast<uint4*>(to + pack * kElems) = *reinterpret_cast<const uint4*>(shared + pack * kElems);
    }
    const int at = packs * kElems + rank;
    if (at < count) to[at] = shared[at];
}

// The same for rows with gaps of a run, which begins on 16 bytes: 4 to 32 lanes take a row, and each a word, or the half of it that is the
// row's.
template <int kThreads, class Element>
__device__ __forceinline__ void write_rows(const Element* shared, int stride, int columns, int rows, Element* to) {
    if (stride == columns) return write_run<kThreads>(shared, rows * columns, to);
    constexpr int kElems = 4 / static_cast<int>(sizeof(Element));
    __syncthreads();
    const int words = columns / kElems + kElems - 1, log_lanes = words <= 4 ? 2 : words <= 8 ? 3 : words <= 16 ? 4 : 5;
    const int rank = static_cast<int>(threadIdx.x), lane = rank & ((1 << log_lanes) - 1);
#pragma unroll 1
    for (int row = rank >> log_lanes; row < rows; row += kThreads >> log_lanes) {
        const int begin = row * stride, end = begin + columns;
        for (int place = (begin & -kElems) + lane * kElems; place < end; place += kElems << log_lanes) {
            const bool has_first = kElems == 1 || place >= begin, has_last = kElems == 1 || place + 1 < end;
            if (has_first && has_last) {
                *reinterpret_cast<std::uint32_t*>(to + place) = *reinterpret_cast<const std::uint32_t*>(shared + place);
            } else {
                const int one = has_first ? place : place + 1;
                to[one] = shared[one];
            }
        }
    }
}

}  // namespace aicf

// Rows that follow one another in memory, whatever their length: a block takes as many as begin and end on 16 bytes, through shared memory.
// There may be gaps between them, which are neither read nor written.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
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

// Begins to copy a run of `count` elements, which begins on 16 bytes, to shared memory: kThreads threads do, each of its rank.
template <int kThreads, class Element>
__device__ __forceinline__ void begin_run(const Element* from, int count, Element* shared, int rank = static_cast<int>(threadIdx.x)) {
    constexpr int kElems = 16 / static_cast<int>(sizeof(Element));
    const int packs = count / kElems;
#pragma unroll 4
    for (int pack = rank; pack < packs; pack += kThreads) copy_async<16>(shared + pack * kElems, from + pack * kElems);
    // Of the last block alone.
    const int at = packs * kElems + rank;
    if (at < count) shared[at] = from[at];
}

// Calls copy(place) for all kUnit elements that lie on their boundary and are all a row's, and copy_one(place) for each of the others, of
// rows with gaps of a run, a multiple of kUnit apart where that is more than a word: 4 to 32 lanes take a row, and of the rows that a
// thread has a part in the same part.
template <int kThreads, int kUnit, class Copy, class CopyOne>
__device__ __forceinline__ void visit_rows(int stride, int columns, int rows, const Copy& copy, const CopyOne& copy_one) {
    static_assert(kThreads / kWarpSize % 2 == 0, "the rows of a thread lie alike: two of 16 bits are a word");
    const int units = columns / kUnit + (kUnit > 1 ? 1 : 0), log_lanes = units <= 4 ? 2 : units <= 8 ? 3 : units <= 16 ? 4 : 5;
    const int lane = static_cast<int>(threadIdx.x) & ((1 << log_lanes) - 1), first = static_cast<int>(threadIdx.x) >> log_lanes;
    const int begin = first * stride, step = kThreads >> log_lanes;
    const auto visit = [&](int place, const auto& call) {
#pragma unroll 4
        for (int row = first; row < rows; row += step, place += step * stride) call(place);
    };
#pragma unroll 1
    for (int column = lane * kUnit - begin % kUnit; column < columns; column += kUnit << log_lanes) {
        if (column >= 0 && column + kUnit <= columns) {
            visit(begin + column, copy);
        } else {
#pragma unroll 1
            for (int i = max(column, 0); i < min(column + kUnit, columns); ++i) visit(begin + i, copy_one);
        }
    }
}

// The same for rows with gaps: kUnit elements, of 4 bytes or 8, a copy, where rows lie a multiple of that apart.
template <int kThreads, int kUnit, class Element>
__device__ __forceinline__ void begin_rows(const Element* from, int stride, int columns, int rows, Element* shared) {
    constexpr int kWordElems = 4 / static_cast<int>(sizeof(Element));
    if (stride == columns) return begin_run<kThreads>(from, rows * columns, shared);
    if constexpr (kUnit > kWordElems) {
        if (stride % kUnit != 0) return begin_rows<kThreads, kWordElems>(from, stride, columns, rows, shared);
    }
    visit_rows<kThreads, kUnit>(
        stride, columns, rows, [&](int place) { copy_async<kUnit* static_cast<int>(sizeof(Element))>(shared + place, from + place); },
        [&](int place) { shared[place] = from[place]; });
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

// The same without waiting for anything: of elements of 16 bits the packs alone that are whole, not the row's edges.
template <int kThreads, class Element>
__device__ __forceinline__ void begin_packs(const Element* row, int columns, Element* shared) {
    constexpr int kElems = 16 / static_cast<int>(sizeof(Element));
    const int rank = static_cast<int>(threadIdx.x),
              behind = static_cast<int>((reinterpret_cast<std::uintptr_t>(row) & 15) / sizeof(Element));
    const int head = min(columns, (kElems - behind) % kElems), end = head + (columns - head) / kElems * kElems;
#pragma unroll 4
    for (int column = head + rank * kElems; column < end; column += kThreads * kElems) copy_async<16>(shared + column, row + column);
    if constexpr (sizeof(Element) == 4) {
        if (rank < head) copy_async<4>(shared + rank, row + rank);
        if (end + rank < columns) copy_async<4>(shared + end + rank, row + end + rank);
    }
}

// What was begun is there for all threads when this returns.
__device__ __forceinline__ void await_runs() {
    commit_copies();
    wait_copies<0>();
    __syncthreads();
}

// The same of copies of a warp that are for its own lanes.
__device__ __forceinline__ void await_warp_runs() {
    commit_copies();
    wait_copies<0>();
    __syncwarp();
}

// Copies a run, which those threads see in shared memory, back.
template <int kThreads, class Element>
__device__ __forceinline__ void copy_run(const Element* shared, int count, Element* to, int rank = static_cast<int>(threadIdx.x)) {
    constexpr int kElems = 16 / static_cast<int>(sizeof(Element));
    const int packs = count / kElems;
#pragma unroll 4
    for (int pack = rank; pack < packs; pack += kThreads) {
        *reinterpret_cast<uint4*>(to + pack * kElems) = *reinterpret_cast<const uint4*>(shared + pack * kElems);
    }
    const int at = packs * kElems + rank;
    if (at < count) to[at] = shared[at];
}

// Copies what all threads have written to shared memory back.
template <int kThreads, class Element>
__device__ __forceinline__ void write_run(const Element* shared, int count, Element* to) {
    __syncthreads();
    copy_run<kThreads>(shared, count, to);
}

// The same for rows with gaps.
template <int kThreads, class Element>
__device__ __forceinline__ void write_rows(const Element* shared, int stride, int columns, int rows, Element* to) {
    if (stride == columns) return write_run<kThreads>(shared, rows * columns, to);
    using Word = std::uint32_t;
    __syncthreads();
    visit_rows<kThreads, static_cast<int>(sizeof(Word) / sizeof(Element))>(
        stride, columns, rows, [&](int place) { *reinterpret_cast<Word*>(to + place) = *reinterpret_cast<const Word*>(shared + place); },
        [&](int place) { to[place] = shared[place]; });
}

}  // namespace aicf

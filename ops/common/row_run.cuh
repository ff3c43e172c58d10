// Rows that follow one another in memory, whatever their length: a block takes as many as begin and end on 16 bytes, through shared memory.
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

}  // namespace aicf

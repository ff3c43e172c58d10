// A stable sort of keys below 2^31 with the places that they came from: radix sort by digits of 9 bits, the lowest first.
//
// A pass is three kernels. `count` counts the digits of each tile of keys; `scan` turns a digit's counts by tile into where the tile's
// keys begin among those of the digit; `move` takes each key to its place. A single tile needs `move` alone. The order of equal keys is
// that of their places: nothing depends on which block comes first.
#pragma once

#include <cstdint>

#include "common/reduce.cuh"

namespace aicf::embedding_backward {

inline constexpr int kDigitBits = 9, kDigits = 1 << kDigitBits;
inline constexpr int kSortThreads = 256, kSortWarps = kSortThreads / kWarpSize;
inline constexpr int kTileRounds = 8, kTileKeys = kSortThreads * kTileRounds;  // a warp's keys are neighbours, 32 a round

struct Pairs {
    std::uint32_t* keys;
    std::int32_t* places;
};

__device__ __forceinline__ int find_digit(std::uint32_t key, int shift) { return static_cast<int>(key >> shift) & (kDigits - 1); }

// Of a warp's key in a round.
__device__ __forceinline__ std::int64_t find_key(int round) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
    return static_cast<std::int64_t>(blockIdx.x) * kTileKeys + (warp * kTileRounds + round) * kWarpSize + lane;
}

// Calls visit(round, digit, rank) for each key of this warp, `rank` being how many keys of the same digit the warp had before; counts[d]
// is 0 before, and the warp's number of keys of digit d after it.
template <class Visit>
__device__ __forceinline__ void rank_keys(const std::uint32_t* keys, std::int64_t count, int shift, int* counts, const Visit& visit) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    for (int round = 0; round < kTileRounds; ++round) {
        const std::int64_t at = find_key(round);
        if (at - lane >= count) break;
        const int digit = at < count ? find_digit(keys[at], shift) : kDigits;  // no key: a digit of its own
        const unsigned same = __match_any_sync(kFullMask, digit);
        const int before = __popc(same & ((1u << lane) - 1u));
        int base = 0;
        if (at < count) base = counts[digit];
        __syncwarp();
        if (at < count && before == 0) counts[digit] = base + __popc(same);
        __syncwarp();
        if (at < count) visit(at, digit, base + before);
    }
}

__device__ __forceinline__ void clear(int* values, int count) {
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSortThreads) values[i] = 0;
    __syncthreads();
}

// counts[digit][tile]
__global__ void __launch_bounds__(kSortThreads) sort_count(const std::uint32_t* keys, std::int64_t count, int shift, std::int32_t* counts) {
    __shared__ int shared[kDigits];
    clear(shared, kDigits);
    for (int round = 0; round < kTileRounds; ++round) {
        const std::int64_t at = find_key(round);
        if (at < count) atomicAdd(&shared[find_digit(keys[at], shift)], 1);
    }
    __syncthreads();
    for (int d = static_cast<int>(threadIdx.x); d < kDigits; d += kSortThreads) {
        counts[static_cast<std::int64_t>(d) * gridDim.x + blockIdx.x] = shared[d];
    }
}

// The sum of the values of this lane and of those before it.
__device__ __forceinline__ int scan_warp(int value) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int offset = 1; offset < kWarpSize; offset *= 2) {
        const int other = __shfl_up_sync(kFullMask, value, offset);
        if (lane >= offset) value += other;
    }
    return value;
}

// The same of threads of the block.
__device__ __forceinline__ int scan_block(int value, int* partials) {
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize, lane = static_cast<int>(threadIdx.x) % kWarpSize;
    value = scan_warp(value);
    if (lane == kWarpSize - 1) partials[warp] = value;
    __syncthreads();
    for (int i = 0; i < warp; ++i) value += partials[i];
    return value;
}

// A warp per digit: counts become sums of those before, and totals[digit] all of them.
__global__ void __launch_bounds__(kSortThreads) sort_scan(std::int32_t* counts, std::int64_t tiles, std::int32_t* totals) {
    const int digit = (static_cast<int>(blockIdx.x) * kSortThreads + static_cast<int>(threadIdx.x)) / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    std::int32_t* row = counts + digit * tiles;
    int before = 0;
    for (std::int64_t first = 0; first < tiles; first += kWarpSize) {
        const std::int64_t at = first + lane;
        const int own = at < tiles ? row[at] : 0, sum = scan_warp(own);
        if (at < tiles) row[at] = before + sum - own;
        before += __shfl_sync(kFullMask, sum, kWarpSize - 1);
    }
    if (lane == 0) totals[digit] = before;
}

// Moves keys and places; `from.places` is null where a key's place is its own. `counts` is null for a single tile.
__global__ void __launch_bounds__(kSortThreads)
    sort_move(Pairs from, Pairs to, std::int64_t count, int shift, const std::int32_t* counts, const std::int32_t* totals) {
    constexpr int kPerThread = kDigits / kSortThreads;
    __shared__ int ranks[kSortWarps][kDigits];  // how many a warp has of a digit, then where its keys of that digit begin
    __shared__ int partials[kSortWarps];
    clear(&ranks[0][0], kSortWarps * kDigits);
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    rank_keys(from.keys, count, shift, ranks[warp], [](std::int64_t, int, int) {});
    __syncthreads();

    // A thread takes neighbouring digits: what all smaller digits have, what earlier tiles have of it, what earlier warps have of it.
    const int first = static_cast<int>(threadIdx.x) * kPerThread;
    int numbers[kPerThread], own = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        numbers[i] = 0;
        if (counts != nullptr) numbers[i] = totals[first + i];
        for (int w = 0; counts == nullptr && w < kSortWarps; ++w) numbers[i] += ranks[w][first + i];
        own += numbers[i];
    }
    int begin = scan_block(own, partials) - own;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
        const int digit = first + i;
        int at = begin + (counts == nullptr ? 0 : counts[static_cast<std::int64_t>(digit) * gridDim.x + blockIdx.x]);
        begin += numbers[i];
        for (int w = 0; w < kSortWarps; ++w) {
            const int number = ranks[w][digit];
            ranks[w][digit] = at;
            at += number;
        }
    }
    __syncthreads();
    rank_keys(from.keys, count, shift, ranks[warp], [&](std::int64_t at, int, int target) {
        to.keys[target] = from.keys[at];
        to.places[target] = from.places == nullptr ? static_cast<std::int32_t>(at) : from.places[at];
    });
}

}  // namespace aicf::embedding_backward

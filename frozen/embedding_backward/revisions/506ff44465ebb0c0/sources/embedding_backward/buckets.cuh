// Keys by tile of the table, for tiles that would otherwise look through all indices each. A block takes a chunk of the indices, counts
// those of each tile, and writes their keys, by tile, where the chunk has its place; a tile picks up its part of each chunk.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/division.hpp"
#include "common/indices.cuh"
#include "common/programmatic.cuh"
#include "common/reduce.cuh"
#include "embedding_backward/keys.cuh"
#include "embedding_backward/params.h"
#include "embedding_backward/sort.cuh"

namespace aicf::embedding_backward {

inline constexpr int kBucketThreads = kSortThreads, kMostBuckets = 1023;  // with the end of the last, four for each thread
inline constexpr int kBucketChunk = kBucketThreads * kLookAhead;  // indices of a block

// begins[b, c] is where chunk c has the keys of bucket b, from its own first on, up to those of the next bucket.
struct Buckets {
    std::uint32_t* keys;   // [chunks, kBucketChunk]
    std::int32_t* begins;  // [num_buckets + 1, chunks]
    int num_buckets, chunks;
    Divisor rows;  // of the table, of a bucket
};

// A chunk's keys; within a bucket they lie in no order.
template <class Index>
__global__ void __launch_bounds__(kBucketThreads)
    fill_buckets(const EmbeddingBackwardParams p, const Buckets buckets, const bool has_aligned_indices) {
    constexpr int kOwn = kMostBuckets / kBucketThreads + 1;  // buckets of a thread, next to each other
    __shared__ int counts[kOwn * kBucketThreads], totals[kBucketThreads / kWarpSize];
    const int rank = static_cast<int>(threadIdx.x);
    clear(counts, kOwn * kBucketThreads);
    allow_successor();
    const Look<Index, kBucketThreads> look(p, static_cast<std::int32_t>(blockIdx.x) * kBucketChunk, has_aligned_indices, true);
    int bucket[kLookAhead], place[kLookAhead];
#pragma unroll
    for (int u = 0; u < kLookAhead; ++u) {
        using Unsigned = std::make_unsigned_t<Index>;
        const bool is_right = static_cast<Unsigned>(look.found[u]) < static_cast<Unsigned>(p.vocabulary);
        bucket[u] = is_right ? buckets.rows.divide(static_cast<int>(look.found[u])) : -1;
        place[u] = is_right ? atomicAdd(&counts[bucket[u]], 1) : 0;
    }
    __syncthreads();
    int own[kOwn], sum = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        own[i] = sum;
        sum += counts[rank * kOwn + i];
    }
    const int begin = scan_block(sum, totals) - sum;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
        const int b = rank * kOwn + i;
        counts[b] = begin + own[i];
        if (b <= buckets.num_buckets) buckets.begins[static_cast<std::int64_t>(b) * buckets.chunks + blockIdx.x] = begin + own[i];
    }
    __syncthreads();
    std::uint32_t* const keys = buckets.keys + static_cast<std::int64_t>(blockIdx.x) * kBucketChunk;
#pragma unroll
    for (int u = 0; u < kLookAhead; ++u) {
        if (bucket[u] < 0) continue;
        const int row = buckets.rows.find_remainder(static_cast<int>(look.found[u]), bucket[u]);
        keys[counts[bucket[u]] + place[u]] = make_key(row, look.find_place(u));
    }
}

// Picks up a bucket's keys of chunks `begin_chunk` to `end_chunk`; they lie in no order.
template <int kThreads>
__device__ __forceinline__ void take_bucket(const Kept& kept, const Buckets& buckets, std::int64_t bucket, int begin_chunk, int end_chunk) {
    constexpr int kTeam = 8;  // threads that take a chunk's part
    const int rank = static_cast<int>(threadIdx.x), in_team = rank % kTeam;
    const std::int32_t *const begins = buckets.begins + bucket * buckets.chunks, *const ends = begins + buckets.chunks;
    for (int first = begin_chunk; first < end_chunk; first += kThreads / kTeam) {
        const int chunk = first + rank / kTeam;
        const bool is_there = chunk < end_chunk;
        const int begin = is_there ? begins[chunk] : 0, num_keys = is_there ? ends[chunk] - begin : 0;
        int at = 0;
        if (in_team == 0 && num_keys > 0) at = atomicAdd(kept.count, num_keys);
        at = __shfl_sync(kFullMask, at, 0, kTeam);
        const std::uint32_t* const keys = buckets.keys + static_cast<std::int64_t>(chunk) * kBucketChunk + begin;
#pragma unroll 4
        for (int i = in_team; i < num_keys; i += kTeam) {
            if (at + i < kMostKept) kept.keys[at + i] = keys[i];
        }
    }
}

}  // namespace aicf::embedding_backward

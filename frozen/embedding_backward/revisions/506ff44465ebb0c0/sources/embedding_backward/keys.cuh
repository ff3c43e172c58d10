// Keys of indices: a row of a tile of the table above a place among the indices, kept in a block's shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/indices.cuh"
#include "common/reduce.cuh"
#include "embedding_backward/params.h"
#include "embedding_backward/sort.cuh"

namespace aicf::embedding_backward {

// So keys are sorted by row and then by place.
inline constexpr int kPlaceBits = 20, kMostTilePlaces = 1 << kPlaceBits, kMostTileRows = 1 << (32 - kPlaceBits);
inline constexpr int kMostKept = 8192;  // keys
inline constexpr int kLookAhead = 8;  // indices of a thread under way together

__device__ __forceinline__ int row_of(std::uint32_t key) { return static_cast<int>(key >> kPlaceBits); }
__device__ __forceinline__ std::uint32_t make_key(int row, std::int32_t place) {
    return static_cast<std::uint32_t>(row) << kPlaceBits | static_cast<std::uint32_t>(place);
}

__device__ __forceinline__ std::int32_t place_of(std::uint32_t key) { return static_cast<std::int32_t>(key & (kMostTilePlaces - 1)); }

// The rows of the table that are kept now, and what is kept: in no order, with a count that goes on where the keys are full.
struct Kept {
    std::int64_t first;
    int num_rows;
    std::uint32_t* keys;  // [kMostKept]
    int* count;
};

// A thread's kLookAhead indices of those from `begin` on; -1 stands for one beyond the last.
template <class Index, int kThreads>
struct Look {
    static constexpr int kAccess = 16 / static_cast<int>(sizeof(Index));
    alignas(16) Index found[kLookAhead];
    std::int32_t begin;
    bool is_aligned;

    __device__ __forceinline__ Look(const EmbeddingBackwardParams& p, std::int32_t begin, bool is_aligned, bool counts)
        : begin(begin), is_aligned(is_aligned) {
        const auto* const indices = static_cast<const Index*>(p.indices);
        const auto end = static_cast<std::int32_t>(p.count);
#pragma unroll
        for (int u = 0; u < kLookAhead; u += kAccess) {
            if (is_aligned && find_place(u) + kAccess <= end) {
                *reinterpret_cast<uint4*>(found + u) = *reinterpret_cast<const uint4*>(indices + find_place(u));
            } else {
#pragma unroll
                for (int e = u; e < u + kAccess; ++e) found[e] = find_place(e) < end ? indices[find_place(e)] : Index{-1};
            }
        }
        if (!counts) return;
#pragma unroll
        for (int u = 0; u < kLookAhead; ++u) {
            if (find_place(u) < end) check_index(found[u], p.vocabulary, true, p.status);
        }
    }

    __device__ __forceinline__ std::int32_t find_place(int u) const {
        const int rank = static_cast<int>(threadIdx.x);
        return begin + (is_aligned ? (u / kAccess * kThreads + rank) * kAccess + u % kAccess : u * kThreads + rank);
    }

    // Bit u is set where index u points to one of the rows.
    __device__ __forceinline__ unsigned find_hits(const Kept& kept) const {
        using Unsigned = std::make_unsigned_t<Index>;
        unsigned hits = 0;
#pragma unroll
        for (int u = 0; u < kLookAhead; ++u) {
            const bool is_hit = static_cast<Unsigned>(found[u]) - static_cast<Unsigned>(kept.first) < static_cast<Unsigned>(kept.num_rows);
            hits |= is_hit ? 1u << u : 0u;
        }
        return hits;
    }

    // Keys of the hits, from `at` on.
    __device__ __forceinline__ void keep(const Kept& kept, unsigned hits, int at) const {
#pragma unroll
        for (int u = 0; u < kLookAhead; ++u) {
            if ((hits >> u & 1u) == 0) continue;
            if (at < kMostKept) kept.keys[at] = make_key(static_cast<int>(found[u] - static_cast<Index>(kept.first)), find_place(u));
            ++at;
        }
    }
};

// What the warp's lanes found: `own` of the lane, `total` of all, and `before` of the lanes in front of it.
struct Found {
    int own, before, total;

    explicit __device__ __forceinline__ Found(unsigned hits) {
        own = __popc(hits);
        const int last = scan_warp(own);
        before = last - own;
        total = __shfl_sync(kFullMask, last, kWarpSize - 1);
    }
};

}  // namespace aicf::embedding_backward

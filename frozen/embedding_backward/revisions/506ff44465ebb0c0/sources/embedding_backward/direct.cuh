// Few indices: a block takes some rows of the table, picks out the indices that point there, and writes all of its rows, in one launch.
#pragma once

#include <cstdint>

#include "common/division.hpp"
#include "common/elements.cuh"
#include "common/indices.cuh"
#include "common/reduce.cuh"
#include "embedding_backward/params.h"

namespace aicf::embedding_backward {

inline constexpr int kMostDirect = 2048;

// Rows of the table that a block takes, and chunks of a row.
struct DirectShare {
    std::int64_t rows;
    int chunks;
    Divisor divisor;  // by `chunks`
};

// The indices that point to a block's rows, in their order: row in the block, and place.
struct Picked {
    int count;
    std::int32_t rows[kMostDirect], places[kMostDirect];
};

template <class Index, int kThreads>
__device__ __forceinline__ void pick(Picked& picked, const EmbeddingBackwardParams& p, std::int64_t first, std::int64_t num_rows) {
    constexpr int kRounds = kMostDirect / kThreads, kWarps = kThreads / kWarpSize;
    __shared__ int counts[kRounds][kWarps];
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
    std::int64_t indices[kRounds];
    int rows[kRounds];  // in the block; -1 for an index that points to another's
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const std::int64_t i = round * kThreads + static_cast<int>(threadIdx.x);
        indices[round] = i < p.count ? static_cast<std::int64_t>(static_cast<const Index*>(p.indices)[i]) : 0;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const std::int64_t i = round * kThreads + static_cast<int>(threadIdx.x);
        rows[round] = -1;
        if (i < p.count) {
            // A wrong index is counted by one block.
            const std::int64_t index = check_index(indices[round], p.vocabulary, blockIdx.x == 0, p.status);
            if (index >= first && index < first + num_rows) rows[round] = static_cast<int>(index - first);
        }
    }
    const auto find_takers = [&](int round) { return __ballot_sync(kFullMask, rows[round] >= 0); };
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const unsigned takers = find_takers(round);
        if (lane == 0) counts[round][warp] = __popc(takers);
    }
    __syncthreads();
    int before = 0;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const unsigned takers = find_takers(round);
        int at = before + __popc(takers & ((1u << lane) - 1u));
        for (int other = 0; other < kWarps; ++other) {
            if (other < warp) at += counts[round][other];
            before += counts[round][other];
        }
        if (rows[round] < 0) continue;
        picked.rows[at] = rows[round];
        picked.places[at] = round * kThreads + static_cast<int>(threadIdx.x);
    }
    if (threadIdx.x == 0) picked.count = before;
    __syncthreads();
}

// Elements that are accessed together.
template <class Element, int kElems>
struct alignas(kElems * sizeof(Element)) Chunk {
    Element values[kElems];
};

template <class Element, class Index, int kThreads, int kElems>
__global__ void __launch_bounds__(kThreads, 4) backward_direct(const EmbeddingBackwardParams p, const DirectShare share) {
    using Access = Chunk<Element, kElems>;
    __shared__ Picked picked;
    const std::int64_t first = blockIdx.x * share.rows;
    const std::int64_t num_rows = first + share.rows < p.vocabulary ? share.rows : p.vocabulary - first;
    pick<Index, kThreads>(picked, p, first, num_rows);
    const int count = picked.count;
    for (int i = static_cast<int>(threadIdx.x); i < num_rows * share.chunks; i += kThreads) {
        const int row = share.divisor.divide(i), column = share.divisor.find_remainder(i, row) * kElems;
        float sums[kElems] = {};
        for (int at = 0; at < count; ++at) {
            if (picked.rows[at] != row) continue;
            const auto dy = *reinterpret_cast<const Access*>(static_cast<const Element*>(p.dy) + picked.places[at] * p.lddy + column);
#pragma unroll
            for (int e = 0; e < kElems; ++e) sums[e] += to_float(dy.values[e]);
        }
        Access result;
#pragma unroll
        for (int e = 0; e < kElems; ++e) result.values[e] = from_float<Element>(sums[e]);
        *reinterpret_cast<Access*>(static_cast<Element*>(p.dtable) + (first + row) * p.lddtable + column) = result;
    }
}

}  // namespace aicf::embedding_backward

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

// Rows of the table that a block takes, and chunks of a row: of 16 bytes where rows of dy and dtable are whole packs, else elements.
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
    std::int64_t rows[kRounds];
    unsigned takers[kRounds];
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const std::int64_t i = round * kThreads + static_cast<int>(threadIdx.x);
        rows[round] = -1;
        // A wrong index is counted by one block.
        if (i < p.count) rows[round] = read_index<Index>(p.indices, i, p.vocabulary, blockIdx.x == 0, p.status) - first;
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        takers[round] = __ballot_sync(kFullMask, rows[round] >= 0 && rows[round] < num_rows);
        if (lane == 0) counts[round][warp] = __popc(takers[round]);
    }
    __syncthreads();
    int before = 0;
    for (int round = 0; round < kRounds; ++round) {
        for (int other = 0; other < kWarps; ++other) {
            if (other == warp && (takers[round] >> lane & 1u) != 0) {
                const int at = before + __popc(takers[round] & ((1u << lane) - 1u));
                picked.rows[at] = static_cast<std::int32_t>(rows[round]);
                picked.places[at] = round * kThreads + static_cast<int>(threadIdx.x);
            }
            before += counts[round][other];
        }
    }
    if (threadIdx.x == 0) picked.count = before;
    __syncthreads();
}

template <class Element, class Index, int kThreads, bool kIsPacked>
__global__ void __launch_bounds__(kThreads) backward_direct(const EmbeddingBackwardParams p, const DirectShare share) {
    constexpr int kElems = kIsPacked ? kPackElems<Element> : 1;
    __shared__ Picked picked;
    const std::int64_t first = blockIdx.x * share.rows;
    const std::int64_t num_rows = first + share.rows < p.vocabulary ? share.rows : p.vocabulary - first;
    pick<Index, kThreads>(picked, p, first, num_rows);
    const int count = picked.count;
    for (int i = static_cast<int>(threadIdx.x); i < num_rows * share.chunks; i += kThreads) {
        const int row = share.divisor.divide(i), column = share.divisor.find_remainder(i, row) * kElems;
        const Element* const dy = static_cast<const Element*>(p.dy) + column;
        Element* const target = static_cast<Element*>(p.dtable) + (first + row) * p.lddtable + column;
        if constexpr (kIsPacked) {
            Pack<Element> sum = {};
            for (int at = 0; at < count; ++at) {
                if (picked.rows[at] != row) continue;
                const auto loaded = load_pack(dy + picked.places[at] * p.lddy);
#pragma unroll
                for (int e = 0; e < kElems; ++e) sum.values[e] += loaded.values[e];
            }
            store_pack(target, sum);
        } else {
            float sum = 0.0f;
            for (int at = 0; at < count; ++at) {
                if (picked.rows[at] == row) sum += to_float(dy[picked.places[at] * p.lddy]);
            }
            *target = from_float<Element>(sum);
        }
    }
}

}  // namespace aicf::embedding_backward

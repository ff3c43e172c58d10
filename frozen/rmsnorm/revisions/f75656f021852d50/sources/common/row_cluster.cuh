// A row that is taken by a cluster of blocks, for rows that are long and few (sm_90).
#pragma once

#include <cstdint>
#include <cstring>

#include "common/cluster.cuh"
#include "common/distributed.cuh"
#include "common/programmatic.cuh"
#include "common/reduce.cuh"

namespace aicf {

inline constexpr int kRowCluster = 8;

// kThreads threads a block, kRowCluster blocks a row: as RowGroup of all their threads. Launch it with launch_early().
template <int kThreads>
struct RowCluster {
    static constexpr int kTotalThreads = kThreads * kRowCluster;
    static constexpr int kPartials = kThreads / kWarpSize;
    static_assert(kThreads > kWarpSize, "blocks of several warps");

    int rank;
    std::int64_t row;
    __device__ RowCluster()
        : rank(static_cast<int>(find_cluster_rank()) * kThreads + static_cast<int>(threadIdx.x)), row(blockIdx.x / kRowCluster) {
        wait_for_predecessor();
    }

    // The result for all threads of the cluster, in the same order everywhere. `partials` as for reduce_block.
    template <class T, class Combine>
    __device__ T reduce(T value, T* partials, Combine combine) const {
        static_assert(sizeof(T) <= sizeof(float4), "a block's result is read by one access");
        __shared__ float4 result;
        value = reduce_block<kThreads>(value, partials, combine);
        float4 part = {};
        std::memcpy(&part, &value, sizeof(T));
        if (threadIdx.x == 0) result = part;
        sync_cluster();
        part = load_from_block(&result.x, threadIdx.x % kRowCluster);
        std::memcpy(&value, &part, sizeof(T));
#pragma unroll
        for (int offset = kRowCluster / 2; offset > 0; offset /= 2) value = combine(value, shuffle_xor(value, offset));
        sync_cluster();  // the shared memory of a block is there, and its result as it was, until all have read it
        return value;
    }

    __device__ float reduce_sum(float value, float* partials) const {
        return reduce(value, partials, [](float a, float b) { return a + b; });
    }
};

}  // namespace aicf

// Rows that are taken by clusters of blocks: those that are long and few, and those that are longer than a block's registers hold (sm_90).
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/cluster_stores.cuh"
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
        sync_cluster_shared();
        part = load_from_block(&result.x, threadIdx.x % kRowCluster);
        std::memcpy(&value, &part, sizeof(T));
#pragma unroll
        for (int offset = kRowCluster / 2; offset > 0; offset /= 2) value = combine(value, shuffle_xor(value, offset));
        sync_cluster_shared();  // the shared memory of a block is there, and its result as it was, until all have read it
        return value;
    }

    __device__ float reduce_sum(float value, float* partials) const {
        return reduce(value, partials, [](float a, float b) { return a + b; });
    }
};

// kThreads threads of each of kBlocks blocks take rows in turn, as RowGroup of all of them does, but for where its warps stand: neighbours
// are of different blocks, so that a row of any length is shared evenly. Launch it with launch_early().
template <int kThreads, int kClusterBlocks>
class RowTeam {
public:
    static constexpr int kBlocks = kClusterBlocks, kBlockThreads = kThreads, kTotalThreads = kThreads * kBlocks;
    static constexpr int kPartials = kTotalThreads / kWarpSize;
    // Blocks that a multiprocessor has room for, of threads with 64 registers: where one meets the others, another's accesses are under
    // way.
    static constexpr int kResident = 1024 / kThreads;
    static_assert(kPartials >= kWarpSize && kBlocks <= kWarpSize, "a lane has a partial result to read, and at most a block to write to");

    int rank;
    std::int64_t row;  // the first of this team
    __device__ RowTeam() : row(blockIdx.x / kBlocks) {
        __shared__ Barrier barrier;
        const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarpSize;
        rank = (thread / kWarpSize * kBlocks + static_cast<int>(find_cluster_rank())) * kWarpSize + lane;
        barrier_ = &barrier;
        if (thread == 0) init_barrier(&barrier, 1);
        publish_barriers();
        announce_to_cluster();
        wait_for_predecessor();
    }

    // A team has a row, where it is launched for one.
    __device__ bool is_real(std::int64_t rows) const { return row < rows; }

    // After the last call of reduce().
    __device__ void leave() const { await_cluster(); }

    __device__ std::int64_t find_source(std::int64_t rows) const { return is_real(rows) ? row : rows - 1; }

    // Sends a warp's value, which all its lanes have, to all warps of the team, and calls use(partials) where those of all are there.
    // `partials` is shared memory, aligned as T is long, for one T of 4 or 8 bytes a warp of the team. Blocks meet without a fence of
    // global memory, which would wait for all that was written there: what they pass on are these values alone, which complete on a
    // barrier.
    template <class T, class Use>
    __device__ void exchange(T value, T* partials, const Use& use) {
        using Words = std::conditional_t<sizeof(T) == sizeof(float), float, float2>;
        static_assert(sizeof(T) == sizeof(Words), "a warp's value is sent at once");
        if (threadIdx.x == 0) arrive_expecting(barrier_, kPartials * sizeof(T));
        await_cluster();  // all have read what was sent before
        const std::uint32_t lane = threadIdx.x % kWarpSize;
        Words words;
        std::memcpy(&words, &value, sizeof(T));
        if (lane < kBlocks) send_to_block(reinterpret_cast<float*>(partials + rank / kWarpSize), barrier_, lane, words);
        wait_phase(barrier_, parity_);
        parity_ ^= 1;
        use(partials);
        release_shared_memory();
        announce_to_cluster();
    }

    // The result for all threads of the team, in the same order everywhere. `partials` as for exchange().
    template <class T, class Combine>
    __device__ T reduce(T value, T* partials, Combine combine) {
        exchange(reduce_warp(value, combine), partials, [&](const T* parts) {
            const std::uint32_t lane = threadIdx.x % kWarpSize;
            value = parts[lane];
#pragma unroll
            for (int i = 1; i < kPartials / kWarpSize; ++i) value = combine(value, parts[i * kWarpSize + lane]);
        });
        return reduce_warp(value, combine);
    }

    __device__ float reduce_sum(float value, float* partials) {
        return reduce(value, partials, [](float a, float b) { return a + b; });
    }

    __device__ float reduce_max(float value, float* partials) {
        return reduce(value, partials, [](float a, float b) { return fmaxf(a, b); });
    }

private:
    Barrier* barrier_;
    std::uint32_t parity_ = 0;
};

}  // namespace aicf

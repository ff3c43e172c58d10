// Thread block clusters and warp groups (sm_90).
#pragma once

#include <cstdint>

namespace aicf {

inline constexpr int kWarpGroupThreads = 128;

// This block's number in its cluster, x fastest.
__device__ __forceinline__ std::uint32_t find_cluster_rank() {
    std::uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// A barrier of all threads of all blocks of the cluster; what was written before is visible behind it.
__device__ __forceinline__ void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Orders this thread's accesses of its block's shared memory, and what it has seen completed there, ahead of its next arrival at the
// cluster's barrier: a fence of that memory alone (PTX ISA 9.0, "fence", .sync_restrict), where .release is one of the GPU's memory, which
// waits until all writes have come there.
__device__ __forceinline__ void release_shared_memory() { asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory"); }

// The same barrier without its fences, for threads that share no ordinary writes, or none but those of publish_barriers().
__device__ __forceinline__ void meet_cluster() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same barrier for blocks that pass on nothing but what they wrote to their shared memory.
__device__ __forceinline__ void sync_cluster_shared() {
    release_shared_memory();
    meet_cluster();
}

// Named barriers of a block, 1 to 15 (0 is __syncthreads): kThreads of them meet, whole warps.
template <int kThreads>
__device__ __forceinline__ void sync_named(int id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// As sync_named for the count, without waiting.
template <int kThreads>
__device__ __forceinline__ void arrive_named(int id) {
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "n"(kThreads) : "memory");
}

// Registers per thread of the warp group that runs it (sm_90a), a multiple of 8. Needs a cap at entry: __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ __forceinline__ void release_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void claim_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// True in one lane of a converged warp.
__device__ __forceinline__ bool elect_lane() {
    std::uint32_t is_elected;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "elect.sync _|p, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(is_elected)
        :
        : "memory");
    return is_elected != 0;
}

}  // namespace aicf

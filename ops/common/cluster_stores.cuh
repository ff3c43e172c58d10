// Stores into another block's shared memory within a cluster, and the barrier that must be ahead of them (sm_90).
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace aicf {

// The halves of a barrier behind which all blocks of the cluster run, so that their shared memory is there: before and after what needs
// none of it.
__device__ __forceinline__ void announce_to_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void await_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Puts four floats into the shared memory of block `rank` of this cluster, at the place that `shared` has in this block's; 16-byte aligned.
__device__ __forceinline__ void store_to_block(float* shared, std::uint32_t rank, float4 value) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "st.shared::cluster.v4.f32 [remote], {%2, %3, %4, %5};\n"
        "}" ::"r"(find_shared_address(shared)),
        "r"(rank), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
        : "memory");
}

}  // namespace aicf

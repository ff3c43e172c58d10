// Stores into another block's shared memory within a cluster that complete on a barrier of that block (sm_90): what a release of the whole
// cluster would cost, a fence of the GPU's memory, they do not.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace aicf {

// The halves of a barrier behind which all blocks of the cluster run and have published their barriers: ahead of what needs none of that,
// and behind it.
__device__ __forceinline__ void announce_to_cluster() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void await_cluster() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Sends four floats to block `rank` of this cluster, to the place that `target` has in this block's shared memory, 16-byte aligned: 16
// bytes of what its `barrier` expects.
__device__ __forceinline__ void send_to_block(float* target, Barrier* barrier, std::uint32_t rank, float4 value) {
    asm volatile(
        "{\n"
        ".reg .b32 remote, signal;\n"
        "mapa.shared::cluster.u32 remote, %0, %2;\n"
        "mapa.shared::cluster.u32 signal, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [remote], {%3, %4, %5, %6}, [signal];\n"
        "}" ::"r"(find_shared_address(target)),
        "r"(find_shared_address(barrier)), "r"(rank), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
        : "memory");
}

// Two floats likewise, 8-byte aligned.
__device__ __forceinline__ void send_to_block(float* target, Barrier* barrier, std::uint32_t rank, float2 value) {
    asm volatile(
        "{\n"
        ".reg .b32 remote, signal;\n"
        "mapa.shared::cluster.u32 remote, %0, %2;\n"
        "mapa.shared::cluster.u32 signal, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [remote], {%3, %4}, [signal];\n"
        "}" ::"r"(find_shared_address(target)),
        "r"(find_shared_address(barrier)), "r"(rank), "f"(value.x), "f"(value.y)
        : "memory");
}

// One float likewise.
__device__ __forceinline__ void send_to_block(float* target, Barrier* barrier, std::uint32_t rank, float value) {
    asm volatile(
        "{\n"
        ".reg .b32 remote, signal;\n"
        "mapa.shared::cluster.u32 remote, %0, %2;\n"
        "mapa.shared::cluster.u32 signal, %1, %2;\n"
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [remote], %3, [signal];\n"
        "}" ::"r"(find_shared_address(target)),
        "r"(find_shared_address(barrier)), "r"(rank), "f"(value)
        : "memory");
}

}  // namespace aicf

// Reads of another block's shared memory within a cluster (sm_90).
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

namespace aicf {

// Four floats of block `rank` of this cluster, at the place in its shared memory that `shared` has in this block's; 16-byte aligned.
__device__ __forceinline__ float4 load_from_block(const float* shared, std::uint32_t rank) {
    float4 value;
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %4, %5;\n"
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
        "}"
        : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
        : "r"(find_shared_address(shared)), "r"(rank)
        : "memory");
    return value;
}

}  // namespace aicf

// Copies of boxes of a tensor between global and shared memory by the copy engine (TMA, sm_90). A tensor map (tensor_map.hpp) says shape,
// strides, box and swizzle; coordinates are elements, innermost first. What lies outside the tensor is read as zero and never written.
#pragma once

#include <cstdint>

#include "common/mbarrier.cuh"

struct CUtensorMap_st;

namespace aicf {

using TensorMap = CUtensorMap_st;

__device__ __forceinline__ void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }

// One thread starts the copy of a box to shared memory; its bytes count towards the phase of `barrier`.
__device__ __forceinline__ void load_box(void* shared, const TensorMap* map, int x, int y, Barrier* barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     find_shared_address(shared)),
                 "l"(map), "r"(x), "r"(y), "r"(find_shared_address(barrier))
                 : "memory");
}

// The same box to the same place in every block of the cluster whose bit is set in `blocks`; each gets the bytes on its own barrier.
__device__ __forceinline__ void load_box_multicast(void* shared, const TensorMap* map, int x, int y, Barrier* barrier,
                                                   std::uint16_t blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
        " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(find_shared_address(shared)),
        "l"(map), "r"(x), "r"(y), "r"(find_shared_address(barrier)), "h"(blocks)
        : "memory");
}

// One thread starts the copy of a box from shared to global memory. Ordinary stores to the box need publish_shared_writes() in each
// writing thread and a barrier before it.
__device__ __forceinline__ void store_box(const TensorMap* map, int x, int y, const void* shared) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map), "r"(x), "r"(y),
                 "r"(find_shared_address(shared))
                 : "memory");
}

// Makes this thread's ordinary writes to shared memory visible to the copy engine and to wgmma.
__device__ __forceinline__ void publish_shared_writes() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Closes the group of this thread's stores since the last commit.
__device__ __forceinline__ void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most kNumPending of this thread's latest groups still read shared memory.
template <int kNumPending>
__device__ __forceinline__ void wait_stores_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kNumPending) : "memory");
}

// Waits until at most kNumPending of this thread's latest groups are unfinished; the writes of the others are then visible to this thread.
template <int kNumPending>
__device__ __forceinline__ void wait_stores() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kNumPending) : "memory");
}

}  // namespace aicf

// Barriers in shared memory (sm_80; clusters and transaction counts sm_90): a phase ends when all expected arrivals came and all expected
// bytes were copied. Waiting takes the parity of the phase to see the end of: 0 for the first, then alternating; the parity of "the phase
// before the first" is 1 and returns at once, which is how a ring's producer finds its slots empty.
#pragma once

#include <cstdint>

namespace aicf {

using Barrier = std::uint64_t;

// A 32-bit address in this block's window of shared memory.
__device__ __forceinline__ std::uint32_t find_shared_address(const void* shared) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
}

__device__ __forceinline__ void init_barrier(Barrier* barrier, std::uint32_t num_arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(find_shared_address(barrier)), "r"(num_arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster and to asynchronous copies; the threads that use them need a barrier behind it.
__device__ __forceinline__ void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

__device__ __forceinline__ void arrive(Barrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(find_shared_address(barrier)) : "memory");
}

// Arrives, and lets the phase wait for `num_bytes` more of asynchronous copies.
__device__ __forceinline__ void arrive_expecting(Barrier* barrier, std::uint32_t num_bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(find_shared_address(barrier)), "r"(num_bytes) : "memory");
}

// Arrives at the barrier that lies at the same place in the shared memory of block `rank` of this cluster. It orders what wgmma and copies
// have read or written there, which is complete; ordinary accesses would want .release.cluster, a fence of the whole GPU (MEMBAR.ALL.GPU).
__device__ __forceinline__ void arrive_at_block(Barrier* barrier, std::uint32_t rank) {
    asm volatile(
        "{\n"
        ".reg .b32 remote;\n"
        "mapa.shared::cluster.u32 remote, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
        "}" ::"r"(find_shared_address(barrier)),
        "r"(rank)
        : "memory");
}

__device__ __forceinline__ bool has_ended(Barrier* barrier, std::uint32_t parity) {
    std::uint32_t ended;
    asm volatile(
        "{\n"
        ".reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.u32 %0, 1, 0, p;\n"
        "}"
        : "=r"(ended)
        : "r"(find_shared_address(barrier)), "r"(parity)
        : "memory");
    return ended != 0;
}

// Waits for the end of the phase of that parity. What arriving threads of this block wrote before, and what copies brought, is then
// visible.
__device__ __forceinline__ void wait_phase(Barrier* barrier, std::uint32_t parity) {
    while (!has_ended(barrier, parity)) {
    }
}

// A place in a ring of kNumStages slots: which slot, and the parity of the round.
template <int kNumStages>
struct RingPosition {
    int stage = 0;
    std::uint32_t parity = 0;

    // `num_stages` of a ring that may have fewer than there are barriers for.
    __device__ __forceinline__ void advance(int num_stages = kNumStages) {
        if (++stage == num_stages) {
            stage = 0;
            parity ^= 1;
        }
    }

    __device__ __forceinline__ void skip(int num_steps) {
        const int end = stage + num_steps;
        parity ^= static_cast<std::uint32_t>(end / kNumStages) & 1u;
        stage = end % kNumStages;
    }
};

}  // namespace aicf

// Kernels of test_bulk_cluster.py: copies and arrivals between the blocks of a cluster.
#include <cooperative_groups.h>
#include <cuda.h>

#include <cstdint>

namespace {

namespace cg = cooperative_groups;

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ uint32_t peer_address(uint32_t address, uint32_t rank) {
    uint32_t at;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(address), "r"(rank));
    return at;
}
__device__ void init(uint64_t* bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
}
__device__ void arrive_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ void arrive_at(uint64_t* bar, uint32_t rank) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer_address(shared_address(bar), rank)) : "memory");
}
__device__ void wait_parity(uint64_t* bar, uint32_t parity) {
    uint32_t ok = 0;
    while (!ok) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok)
                     : "r"(shared_address(bar)), "r"(parity)
                     : "memory");
    }
}

// Block 0 loads tiles of 128 words into all blocks of the mask; all blocks say when they have read them. `fault`: 1 a block does not
// announce its bytes, 2 block 0 does not wait for the others before it loads again, 3 the mask names a block too many.
__global__ void __cluster_dims__(4, 1, 1) multicast(const uint32_t* in, uint32_t* out, int rounds, int fault) {
    __shared__ alignas(128) uint32_t tile[128];
    __shared__ uint64_t full, empty;
    cg::cluster_group cluster = cg::this_cluster();
    const uint32_t rank = cluster.block_rank(), t = threadIdx.x;
    if (t == 0) init(&full, 1), init(&empty, 4);
    cluster.sync();
    uint32_t sum = 0;
    for (int r = 0; r < rounds; ++r) {
        if (t == 0) {
            if (fault != 1 || rank != 2) arrive_expect(&full, 512);
            if (rank == 0) {
                if (r > 0 && fault != 2) wait_parity(&empty, (r - 1) & 1);
                const uint16_t mask = fault == 3 ? 0x1F : 0xF;
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], 512, [%2], %3;" ::"r"(
                        shared_address(tile)),
                    "l"(in + r * 128), "r"(shared_address(&full)), "h"(mask)
                    : "memory");
            }
        }
        wait_parity(&full, r & 1);
        sum += tile[t] * (rank + 1);
        __syncthreads();
        if (t == 0) arrive_at(&empty, 0);
    }
    out[rank * 128 + t] = sum;
    cluster.sync();
}

// Each block sends 64 words to the next one: by a bulk copy, and by st.async.
__global__ void __cluster_dims__(2, 1, 1) exchange(uint32_t* out) {
    __shared__ alignas(128) uint32_t mine[64], theirs[64], words[64];
    __shared__ uint64_t bar;
    cg::cluster_group cluster = cg::this_cluster();
    const uint32_t rank = cluster.block_rank(), t = threadIdx.x, peer = rank ^ 1;
    if (t == 0) init(&bar, 1);
    mine[t] = rank * 1000 + t;
    asm volatile("fence.proxy.async;" ::: "memory");
    cluster.sync();
    if (t == 0) {
        arrive_expect(&bar, 512);
        asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(
                         peer_address(shared_address(theirs), peer)),
                     "r"(shared_address(mine)), "r"(peer_address(shared_address(&bar), peer))
                     : "memory");
    }
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                     peer_address(shared_address(&words[t]), peer)),
                 "r"(rank * 77 + t), "r"(peer_address(shared_address(&bar), peer))
                 : "memory");
    wait_parity(&bar, 0);
    out[rank * 128 + t] = theirs[t];
    out[rank * 128 + 64 + t] = words[t];
    cluster.sync();
}

}  // namespace

extern "C" {
void run_multicast(const uint32_t* in, uint32_t* out, int rounds, int fault) { multicast<<<4, 128>>>(in, out, rounds, fault); }
void run_exchange(uint32_t* out) { exchange<<<2, 64>>>(out); }
}

// What libraries for tensor cores count on, each clean and with a fault: one thread that speaks for its warpgroup, tiles at the edge of a
// matrix, a bulk store that a whole warp issues, shared memory that is handed from warp to warp.
#include <cuda_bf16.h>

#include <cstdint>

namespace {

__device__ uint32_t shared_address(const void* at) { return static_cast<uint32_t>(__cvta_generic_to_shared(at)); }

// Rows of 16 elements without swizzle: 8 rows of 16 bytes lie together, the second half of the rows 128 bytes on, the next 8 rows 256.
__device__ uint64_t descriptor(const void* at) {
    return (shared_address(at) >> 4 & 0x3FFF) | uint64_t{128 >> 4} << 16 | uint64_t{256 >> 4} << 32;
}

// Warps 0 to 3 multiply ones by ones; thread 0 tells warp 4 that the operands are free, which it then overwrites. Faults: 1, thread 0 tells
// so before it has waited; 2, it tells nobody, and warp 4 does not wait.
__global__ void __launch_bounds__(160) speak_for_warpgroup(float* out, int fault) {
    __shared__ __align__(128) __nv_bfloat16 a[64 * 16], b[8 * 16];
    __shared__ uint64_t barrier;
    for (int i = threadIdx.x; i < 64 * 16; i += 160) a[i] = __float2bfloat16(1.0f);
    for (int i = threadIdx.x; i < 8 * 16; i += 160) b[i] = __float2bfloat16(1.0f);
    const uint32_t free = shared_address(&barrier);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(free) : "memory");
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x >= 128) {
        uint32_t done = fault == 2;
        while (!done)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(free)
                         : "memory");
        for (int i = threadIdx.x - 128; i < 64 * 16; i += 32) a[i] = __float2bfloat16(7.0f);
        return;
    }
    float d[4] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %5, 0, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "l"(descriptor(a)), "l"(descriptor(b)));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    const bool speaks = threadIdx.x == 0 && fault != 2;
    if (speaks && fault == 1) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(free) : "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])::"memory");
    if (speaks && fault == 0) asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(free) : "memory");
    for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}

// Rows 0 to 7 of A are there; the first `stored` rows of A B^T are stored.
__global__ void edge_tile(const uint4* a, const uint32_t* b, float* c, int stored) {
    __shared__ uint4 tile[32];
    const int lane = threadIdx.x;
    if (lane < 16) tile[lane] = a[lane];
    __syncwarp();
    uint32_t x[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(shared_address(&tile[lane % 16 * 2 + lane / 16])));
    float d[4] = {};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(b[lane / 4 * 8 + lane % 4]), "r"(b[lane / 4 * 8 + lane % 4 + 4]));
    for (int i = 0; i < 4; ++i) {
        const int row = lane / 4 + i / 2 * 8;
        if (row < stored) c[row * 8 + lane % 4 * 2 + i % 2] = d[i];
    }
}

// Every thread of the warp issues one and the same store. Fault 1: from another source, to the same place.
__global__ void store_by_all(uint32_t* out, int fault) {
    __shared__ __align__(16) uint32_t tile[32 * 4];
    for (int i = threadIdx.x; i < 32 * 4; i += 32) tile[i] = i;
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncwarp();
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 16;" ::"l"(__cvta_generic_to_global(out)),
                 "r"(shared_address(&tile[fault ? threadIdx.x * 4 : 0]))
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\n cp.async.bulk.wait_group 0;" ::: "memory");
}

// Warp 0 reads; warp 1, which meets it, writes and reads; warp 2, which meets warp 1, writes. Fault 1: warp 2 meets nobody.
__global__ void hand_on(int* out, int fault) {
    __shared__ int word;
    const int warp = threadIdx.x / 32;
    const bool first = threadIdx.x % 32 == 0;
    if (threadIdx.x == 0) word = 1;
    __syncthreads();
    const auto meet = [](int barrier) { asm volatile("bar.sync %0, 64;" ::"r"(barrier) : "memory"); };
    if (warp == 0) out[threadIdx.x] = word;
    if (warp <= 1) meet(1);
    if (warp == 1) {
        if (first) word = 2;
        __syncwarp();
        out[threadIdx.x] = word;
    }
    if (warp >= 1 && fault != 1) meet(2);
    if (warp == 2 && first) word = 3;
}

}  // namespace

extern "C" {
void run_speak_for_warpgroup(float* out, int fault) { speak_for_warpgroup<<<1, 160>>>(out, fault); }
void run_edge_tile(const void* a, const uint32_t* b, float* c, int stored) {
    edge_tile<<<1, 32>>>(static_cast<const uint4*>(a), b, c, stored);
}
void run_store_by_all(uint32_t* out, int fault) { store_by_all<<<1, 32>>>(out, fault); }
void run_hand_on(int* out, int fault) { hand_on<<<1, 96>>>(out, fault); }
}

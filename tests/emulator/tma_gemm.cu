// C = A B^T with tensor copies and wgmma: a warp of producers, two warp groups of consumers, a ring of four stages, and C through shared
// memory by a tensor copy. A is [m, k], B is [n, k], both bf16; C is [m, n], float. m and n are any sizes, k too: what is out of bounds is
// zero.
#include <cuda.h>
#include <cuda_bf16.h>

#include <cstdint>

namespace {

constexpr int kTileM = 128, kTileN = 128, kTileK = 64, kStages = 4;
constexpr int kTileBytes = kTileM * kTileK * 2;
constexpr int kThreads = 384, kConsumers = 256;
constexpr int kSharedBytes = kStages * 2 * kTileBytes + 1024;

enum Fault { kNone, kNoEmptyWait, kNoFullWait, kNoWgmmaFence, kNoWgmmaWait, kNoStoreFence, kShortTx, kNoStoreWait };

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void init(uint64_t* bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
__device__ void arrive(uint64_t* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory"); }
__device__ void arrive_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ void wait_parity(uint64_t* bar, uint32_t parity) {
    asm volatile("{ .reg .pred p; WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra DONE; bra WAIT; DONE: }" ::"r"(
                     shared_address(bar)),
                 "r"(parity)
                 : "memory");
}
__device__ void load(void* to, const CUtensorMap* map, int x, int y, uint64_t* bar) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                     shared_address(to)),
                 "l"(map), "r"(x), "r"(y), "r"(shared_address(bar))
                 : "memory");
}
// K-major, 128-byte swizzle: groups of 8 rows are 1024 bytes apart.
__device__ uint64_t descriptor(const void* tile) {
    return static_cast<uint64_t>((shared_address(tile) & 0x3FFFF) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}
__device__ void wgmma(float (&d)[64], uint64_t a, uint64_t b, int keep) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
        "%64, %65, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
          "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(keep));
}

__global__ void __launch_bounds__(kThreads) gemm(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                                                 const __grid_constant__ CUtensorMap map_c, int k, int fault) {
    extern __shared__ uint8_t dynamic[];
    __shared__ uint64_t full[kStages], empty[kStages];
    uint8_t* tiles = dynamic + (-shared_address(dynamic) & 1023);
    const auto tile_a = [&](int stage) { return tiles + stage * 2 * kTileBytes; };
    const auto tile_b = [&](int stage) { return tiles + stage * 2 * kTileBytes + kTileBytes; };
    const int row = blockIdx.y * kTileM, column = blockIdx.x * kTileN;
    const int group = threadIdx.x / 128, steps = (k + kTileK - 1) / kTileK;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) init(&full[i], 1), init(&empty[i], kConsumers);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncthreads();
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            for (int i = 0; i < steps; ++i) {
                const int stage = i % kStages, parity = i / kStages % 2;
                if (fault != kNoEmptyWait) wait_parity(&empty[stage], parity ^ 1);
                arrive_expect(&full[stage], 2 * kTileBytes - (fault == kShortTx ? 1024 : 0));
                load(tile_a(stage), &map_a, i * kTileK, row, &full[stage]);
                load(tile_b(stage), &map_b, i * kTileK, column, &full[stage]);
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float d[64];
    for (int i = 0; i < steps; ++i) {
        const int stage = i % kStages, parity = i / kStages % 2;
        if (fault != kNoFullWait) wait_parity(&full[stage], parity);
        if (fault != kNoWgmmaFence) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        const uint64_t a = descriptor(tile_a(stage) + (group - 1) * 64 * kTileK * 2), b = descriptor(tile_b(stage));
#pragma unroll
        for (int s = 0; s < 4; ++s) wgmma(d, a + 2 * s, b + 2 * s, i + s > 0);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
        if (i > 0) arrive(&empty[(i - 1) % kStages]);  // the step before this one has been computed
    }
    if (fault != kNoWgmmaWait) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    // All tiles of A and B have been read by this group once both groups are here; C takes their place.
    asm volatile("bar.sync 1, 256;" ::: "memory");
    float* c = reinterpret_cast<float*>(tiles) + (group - 1) * 64 * kTileN;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
    for (int i = 0; i < 64; ++i) {
        const int r = warp * 16 + lane / 4 + (i / 2 % 2) * 8, q = (i / 4) * 8 + lane % 4 * 2 + i % 2;
        c[r * kTileN + q] = d[i];
    }
    if (fault != kNoStoreFence) asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
    if (threadIdx.x % 128 == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map_c), "r"(column),
                     "r"(row + (group - 1) * 64), "r"(shared_address(c))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        if (fault != kNoStoreWait) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
}

bool make_map(CUtensorMap* map, CUtensorMapDataType type, const void* base, int columns, int rows, int element_bytes, uint32_t box_columns,
              uint32_t box_rows, CUtensorMapSwizzle swizzle) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) != cudaSuccess || !function)
        return false;
    const cuuint64_t dims[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
    const cuuint64_t strides[] = {static_cast<cuuint64_t>(columns) * element_bytes};
    const cuuint32_t box[] = {box_columns, box_rows}, ones[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
               map, type, 2, const_cast<void*>(base), dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
               CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

}  // namespace

extern "C" int run_gemm(const void* a, const void* b, float* c, int m, int n, int k, int fault) {
    CUtensorMap map_a, map_b, map_c;
    const bool made = make_map(&map_a, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, a, k, m, 2, kTileK, kTileM, CU_TENSOR_MAP_SWIZZLE_128B) &&
                      make_map(&map_b, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, b, k, n, 2, kTileK, kTileN, CU_TENSOR_MAP_SWIZZLE_128B) &&
                      make_map(&map_c, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, c, n, m, 4, kTileN, 64, CU_TENSOR_MAP_SWIZZLE_NONE);
    if (!made) return 1;
    cudaFuncSetAttribute(gemm, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    gemm<<<dim3((n + kTileN - 1) / kTileN, (m + kTileM - 1) / kTileM), kThreads, kSharedBytes>>>(map_a, map_b, map_c, k, fault);
    return 0;
}

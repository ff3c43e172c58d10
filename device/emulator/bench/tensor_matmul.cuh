// Matrix products on tensor cores whose emulation is timed: C = A B, A n x n bf16 by rows, B n x n bf16 by columns, C float; n a multiple
// of 128.
#pragma once

#include <cuda.h>

// With mma.sync: blocks of 128 x 128, 8 warps of 64 x 32 each, slices
// of 32 along k in two stages of cp.async. Rows in shared memory are padded to 80 bytes, so that ldmatrix has no conflicts.
namespace {
constexpr int kBlock = 128, kSlice = 32, kRowBytes = kSlice * 2 + 16;

__device__ unsigned shared_address(const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); }

__device__ void load_slice(unsigned char* to, const unsigned short* from, int n, int k) {
    for (int i = threadIdx.x; i < kBlock * 4; i += 256) {
        const unsigned at = shared_address(to + i / 4 * kRowBytes + i % 4 * 16);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from + static_cast<long>(i / 4) * n + k + i % 4 * 8));
    }
}

__device__ void load_matrices(unsigned (&r)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at));
}
}  // namespace

__global__ void __launch_bounds__(256) tensor_matmul(const unsigned short* a, const unsigned short* b, float* c, int n) {
    __shared__ __align__(128) unsigned char as[2][kBlock * kRowBytes], bs[2][kBlock * kRowBytes];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp / 4 * 64, column = warp % 4 * 32;
    a += static_cast<long>(blockIdx.y) * kBlock * n;
    b += static_cast<long>(blockIdx.x) * kBlock * n;
    float sum[4][4][4] = {};
    const auto fetch = [&](int k) {
        load_slice(as[k / kSlice % 2], a, n, k);
        load_slice(bs[k / kSlice % 2], b, n, k);
        asm volatile("cp.async.commit_group;");
    };
    fetch(0);
    for (int k = 0; k < n; k += kSlice) {
        if (k + kSlice < n) {
            fetch(k + kSlice);
            asm volatile("cp.async.wait_group 1;" ::: "memory");
        } else {
            asm volatile("cp.async.wait_group 0;" ::: "memory");
        }
        __syncthreads();
        const int stage = k / kSlice % 2;
        for (int half = 0; half < 2; ++half) {
            unsigned x[4][4], y[2][4];
            for (int i = 0; i < 4; ++i)
                load_matrices(x[i], shared_address(as[stage] + (row + 16 * i + lane % 16) * kRowBytes + half * 32 + lane / 16 * 16));
            for (int j = 0; j < 2; ++j)
                load_matrices(y[j], shared_address(bs[stage] + (column + 16 * j + lane / 16 * 8 + lane % 8) * kRowBytes + half * 32 +
                                                   lane / 8 % 2 * 16));
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) {
                    float (&s)[4] = sum[i][j];
                    asm volatile(
                        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
                        "%3};"
                        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3])
                        : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "r"(y[j / 2][j % 2 * 2]), "r"(y[j / 2][j % 2 * 2 + 1]));
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            float* to = c + static_cast<long>(blockIdx.y * kBlock + row + 16 * i + lane / 4) * n + blockIdx.x * kBlock + column + 8 * j +
                        lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = make_float2(sum[i][j][0], sum[i][j][1]);
            *reinterpret_cast<float2*>(to + 8 * n) = make_float2(sum[i][j][2], sum[i][j][3]);
        }
    }
}

extern "C" void run_tensor_matmul(const float* a, const float* b, float* c, int n) {
    tensor_matmul<<<dim3(n / kBlock, n / kBlock), 256>>>(reinterpret_cast<const unsigned short*>(a),
                                                         reinterpret_cast<const unsigned short*>(b), c, n);
}

// The same product with wgmma on tiles that TMA brings: blocks of 128 x 128, slices of 64 along k, swizzled by 128 bytes, two stages; one
// warp group holds two 64 x 128 halves of the result.
namespace {
constexpr int kSlab = 64, kTileBytes = kBlock * kSlab * 2;

__device__ void wait_parity(unsigned barrier, unsigned parity) {
    asm volatile(
        "{.reg .pred p;\n"
        "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
        "@!p bra again;}" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ void load_tile(unsigned to, const CUtensorMap* map, int k, int row, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(k), "r"(row), "r"(barrier)
                 : "memory");
}

// Rows of 128 bytes in the 128-byte swizzle; groups of 8 rows lie 1024 bytes apart.
__device__ unsigned long long describe(unsigned at) { return (at >> 4 & 0x3FFFull) | 1ull << 16 | 64ull << 32 | 1ull << 62; }

#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
__device__ void multiply(float (&d)[64], unsigned long long a, unsigned long long b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, "
        "%17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
        "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"
        : D8(0), D8(8), D8(16), D8(24), D8(32), D8(40), D8(48), D8(56)
        : "l"(a), "l"(b));
}
}  // namespace

__global__ void __launch_bounds__(128)
    warpgroup_matmul(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int n) {
    extern __shared__ __align__(1024) unsigned char tiles[];  // [stage][A, B]
    __shared__ unsigned long long full[2];
    const int thread = threadIdx.x;
    const unsigned base = (shared_address(tiles) + 1023) / 1024 * 1024, barrier = shared_address(full);
    const auto fetch = [&](int step) {
        const unsigned to = base + step % 2 * 2 * kTileBytes, own = barrier + step % 2 * 8;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(own), "r"(2 * kTileBytes) : "memory");
        load_tile(to, &a, step * kSlab, blockIdx.y * kBlock, own);
        load_tile(to + kTileBytes, &b, step * kSlab, blockIdx.x * kBlock, own);
    };
    if (thread == 0) {
        for (int i = 0; i < 2; ++i) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier + 8 * i) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    __syncthreads();
    if (thread == 0) fetch(0);
    float sum[2][64] = {};
    const int steps = n / kSlab;
    for (int step = 0; step < steps; ++step) {
        if (thread == 0 && step + 1 < steps) fetch(step + 1);
        wait_parity(barrier + step % 2 * 8, step / 2 % 2);
        const unsigned at = base + step % 2 * 2 * kTileBytes, bt = at + kTileBytes;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int k = 0; k < kSlab / 16; ++k) {
            for (int half = 0; half < 2; ++half) multiply(sum[half], describe(at + half * 64 * 128 + k * 32), describe(bt + k * 32));
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        __syncthreads();  // before the stage is filled again
    }
    const int lane = thread % 32, warp = thread / 32;
    for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < 16; ++i) {
            float* to = c + static_cast<long>(blockIdx.y * kBlock + half * 64 + warp * 16 + lane / 4) * n + blockIdx.x * kBlock + 8 * i +
                        lane % 4 * 2;
            *reinterpret_cast<float2*>(to) = make_float2(sum[half][4 * i], sum[half][4 * i + 1]);
            *reinterpret_cast<float2*>(to + 8 * n) = make_float2(sum[half][4 * i + 2], sum[half][4 * i + 3]);
        }
    }
}

static CUtensorMap describe_matrix(const void* data, int n) {
    static decltype(&cuTensorMapEncodeTiled) encode = nullptr;
    if (!encode) {
        cudaDriverEntryPointQueryResult found;
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", reinterpret_cast<void**>(&encode), 12000, cudaEnableDefault, &found);
    }
    CUtensorMap map;
    const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(n), static_cast<cuuint64_t>(n)}, strides[1] = {static_cast<cuuint64_t>(n) * 2};
    const cuuint32_t box[2] = {kSlab, kBlock}, steps[2] = {1, 1};
    encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(data), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
           CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

extern "C" void run_warpgroup_matmul(const float* a, const float* b, float* c, int n) {
    constexpr int kBytes = 4 * kTileBytes + 1024;
    cudaFuncSetAttribute(warpgroup_matmul, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
    warpgroup_matmul<<<dim3(n / kBlock, n / kBlock), 128, kBytes>>>(describe_matrix(a, n), describe_matrix(b, n), c, n);
}

// Kernels for the tests of tensor-core instructions; each `run_*` takes device pointers and sizes. `fault` plants one, 0 is the clean
// kernel.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <mma.h>

#include <cstdint>

namespace {

__device__ uint32_t shared_address(const void* pointer) { return static_cast<uint32_t>(__cvta_generic_to_shared(pointer)); }

// --- C = A B^T, bf16, with cp.async, ldmatrix and mma: tiles of 128 x 128 x 32, eight warps of 64 x 32
// -------------------------------------

constexpr int kTile = 128, kDepth = 32, kPitch = kDepth + 8;  // the pitch keeps ldmatrix free of bank conflicts

__device__ void copy_tile(__nv_bfloat16* to, const __nv_bfloat16* from, int k) {
    for (int i = threadIdx.x; i < kTile * kDepth / 8; i += blockDim.x) {
        const int row = i / (kDepth / 8), part = i % (kDepth / 8);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to + row * kPitch + part * 8)),
                     "l"(from + static_cast<size_t>(row) * k + part * 8));
    }
}

__device__ void load_matrices(uint32_t* r, const __nv_bfloat16* at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(at)));
}

__global__ void __launch_bounds__(256) mma_gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k, int fault) {
    __shared__ __align__(16) __nv_bfloat16 tile_a[2][kTile * kPitch], tile_b[2][kTile * kPitch];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, row = warp / 4 * 64, column = warp % 4 * 32;
    a += static_cast<size_t>(blockIdx.y) * kTile * k;
    b += static_cast<size_t>(blockIdx.x) * kTile * k;
    float sum[4][4][4] = {};
    copy_tile(tile_a[0], a, k);
    copy_tile(tile_b[0], b, k);
    asm volatile("cp.async.commit_group;");
    for (int step = 0; step < k / kDepth; ++step) {
        if (step + 1 < k / kDepth) {
            copy_tile(tile_a[(step + 1) % 2], a + (step + 1) * kDepth, k);
            copy_tile(tile_b[(step + 1) % 2], b + (step + 1) * kDepth, k);
        }
        asm volatile("cp.async.commit_group;");
        if (fault != 1) asm volatile("cp.async.wait_group 1;" ::: "memory");
        if (fault != 2) __syncthreads();
        const __nv_bfloat16 *left = tile_a[step % 2], *right = tile_b[step % 2];
        for (int inner = 0; inner < kDepth; inner += 16) {
            uint32_t x[4][4], y[2][4];
            for (int i = 0; i < 4; ++i) load_matrices(x[i], left + (row + i * 16 + lane % 16) * kPitch + inner + lane / 16 * 8);
            for (int i = 0; i < 2; ++i)
                load_matrices(y[i], right + (column + i * 16 + lane / 16 * 8 + lane % 8) * kPitch + inner + lane / 8 % 2 * 8);
            for (int i = 0; i < 4; ++i) {
                for (int j = 0; j < 4; ++j) {
                    float* d = sum[i][j];
                    asm volatile(
                        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                        "{%0, %1, %2, %3};"
                        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                        : "r"(x[i][0]), "r"(x[i][1]), "r"(x[i][2]), "r"(x[i][3]), "r"(y[j / 2][j % 2 * 2]), "r"(y[j / 2][j % 2 * 2 + 1]));
                }
            }
        }
        if (fault != 3) __syncthreads();
    }
    for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) {
            for (int half = 0; half < 2; ++half) {
                const int y = blockIdx.y * kTile + row + i * 16 + lane / 4 + half * 8,
                          x = blockIdx.x * kTile + column + j * 8 + lane % 4 * 2;
                *reinterpret_cast<float2*>(c + static_cast<size_t>(y) * n + x) = make_float2(sum[i][j][half * 2], sum[i][j][half * 2 + 1]);
            }
        }
    }
}

// --- The same with wgmma: tiles of 128 x 128 x 64 in rows of 128 bytes, swizzled, filled by ordinary stores; two warpgroups
// -----------------

enum WgmmaFault {
    kNoFence = 1,         // no wgmma.fence before the first
    kNoWait,              // accumulators read while the multiplication is under way
    kOverwritten,         // operands overwritten before the wait
    kNoProxyFence,        // stores not made visible to the async proxy
    kWarpMissing,         // one warp of a warpgroup does not take part
    kPartOfTile,          // a part of the tile is never stored
    kOutside,             // the descriptor names memory past the block's
    kWrittenAfterFence,   // accumulators changed after the fence
};

__device__ void wgmma_128(float* d, uint64_t a, uint64_t b, int accumulates) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %66, 0;"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
        "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
        "%22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, "
        "%42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, "
        "%62, %63 "
        "}, %64, %65, p, 1, 1, 0, 0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]),
          "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),
          "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]),
          "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]),
          "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),
          "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),
          "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
        : "l"(a), "l"(b), "r"(accumulates));
}

__device__ void fill_swizzled(char* to, const __nv_bfloat16* from, int k, int rows) {
    for (int i = threadIdx.x; i < rows * 8; i += blockDim.x) {
        const int row = i / 8, part = i % 8;
        *reinterpret_cast<uint4*>(to + row * 128 + (part ^ row % 8) * 16) =
            *reinterpret_cast<const uint4*>(from + static_cast<size_t>(row) * k + part * 8);
    }
}

__device__ uint64_t describe(uint32_t address) {
    return (address & 0x3FFFF) >> 4 | 1ull << 16 | static_cast<uint64_t>(1024 >> 4) << 32 | 1ull << 62;
}

template <int kFault>
__global__ void __launch_bounds__(256) wgmma_gemm(const __nv_bfloat16* a, const __nv_bfloat16* b, float* c, int n, int k) {
    extern __shared__ __align__(1024) char tiles[];
    char *tile_a = tiles, *tile_b = tiles + 128 * 128;
    const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    a += static_cast<size_t>(blockIdx.y) * 128 * k;
    b += static_cast<size_t>(blockIdx.x) * 128 * k;
    float d[64];
    for (int step = 0; step < k / 64; ++step) {
        if (kFault == kOverwritten && step > 0) __syncthreads();
        fill_swizzled(tile_a, a + step * 64, k, kFault == kPartOfTile ? 100 : 128);
        fill_swizzled(tile_b, b + step * 64, k, 128);
        if (kFault != kNoProxyFence) asm volatile("fence.proxy.async;" ::: "memory");
        __syncthreads();
        if (kFault == kOverwritten && step > 0) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        if (kFault != kNoFence) asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        if (kFault == kWrittenAfterFence && step > 0) {
#pragma unroll
            for (int i = 0; i < 64; ++i) d[i] *= 2;
        }
        const uint32_t base_a = shared_address(tile_a) + group * 64 * 128 + (kFault == kOutside ? 1 << 16 : 0);
        const uint32_t base_b = shared_address(tile_b);
        if (kFault != kWarpMissing || threadIdx.x / 32 != 2) {
#pragma unroll
            for (int inner = 0; inner < 4; ++inner) {
                wgmma_128(d, describe(base_a + inner * 32), describe(base_b + inner * 32), step + inner > 0);
            }
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (kFault == kNoWait) {
#pragma unroll
            for (int i = 0; i < 64; ++i) d[i] += 1;
        }
        if (kFault != kOverwritten) {
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            __syncthreads();
        }
    }
    if (kFault == kOverwritten) asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const int y = blockIdx.y * 128 + group * 64 + warp * 16 + lane / 4, x = blockIdx.x * 128 + lane % 4 * 2;
    for (int i = 0; i < 64; ++i) c[static_cast<size_t>(y + i / 2 % 2 * 8) * n + x + i / 4 * 8 + i % 2] = d[i];
}

template <int kFault>
void start_wgmma(const void* a, const void* b, float* c, int m, int n, int k) {
    const auto* left = static_cast<const __nv_bfloat16*>(a);
    const auto* right = static_cast<const __nv_bfloat16*>(b);
    wgmma_gemm<kFault><<<dim3(n / 128, m / 128), 256, 2 * 128 * 128>>>(left, right, c, n, k);
}

// --- The same with tensor copies: a producer warp and two consuming warpgroups over a ring of stages
// ----------------------------------------

constexpr int kStages = 3, kStageBytes = 2 * 128 * 128;

enum PipelineFault {
    kNotEmpty = 1,  // the producer does not wait for a stage to be free
    kNotFull,       // the consumers do not wait for their tiles
    kReleaseEarly,  // a stage is released before its multiplication is done
};

__device__ void wait_for(uint32_t barrier, int parity) {
    asm volatile(
        "{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @p bra DONE; bra AGAIN; DONE: }" ::"r"(barrier),
        "r"(parity)
        : "memory");
}

__device__ void arrive_at(uint32_t barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }

__device__ void load_box(uint32_t to, const CUtensorMap* map, int x, int y, uint32_t barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(map), "r"(x), "r"(y), "r"(barrier)
                 : "memory");
}

template <int kFault>
__global__ void __launch_bounds__(384)
    pipelined_gemm(const __grid_constant__ CUtensorMap a, const __grid_constant__ CUtensorMap b, float* c, int n, int k) {
    extern __shared__ __align__(1024) char stages[];
    __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
    const uint32_t first = shared_address(stages), full_at = shared_address(full), empty_at = shared_address(empty);
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full_at + i * 8));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 2;" ::"r"(empty_at + i * 8));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int steps = k / 64;
    if (threadIdx.x < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 0) return;
        for (int step = 0; step < steps; ++step) {
            const int stage = step % kStages;
            const uint32_t at = first + stage * kStageBytes, barrier = full_at + stage * 8;
            if (step >= kStages && kFault != kNotEmpty) wait_for(empty_at + stage * 8, (step / kStages - 1) & 1);
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kStageBytes) : "memory");
            load_box(at, &a, step * 64, blockIdx.y * 128, barrier);
            load_box(at + kStageBytes / 2, &b, step * 64, blockIdx.x * 128, barrier);
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    float d[64];
    for (int step = 0; step < steps; ++step) {
        const int stage = step % kStages;
        if (kFault != kNotFull) wait_for(full_at + stage * 8, step / kStages & 1);
        const uint32_t base_a = first + stage * kStageBytes + group * 64 * 128, base_b = first + stage * kStageBytes + kStageBytes / 2;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int inner = 0; inner < 4; ++inner) {
            wgmma_128(d, describe(base_a + inner * 32), describe(base_b + inner * 32), step + inner > 0);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        if (kFault == kReleaseEarly) {
            if (threadIdx.x % 128 == 0) arrive_at(empty_at + stage * 8);
        } else {
            // One group stays under way; the stage before this one is free.
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
            asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
            if (step > 0 && threadIdx.x % 128 == 0) arrive_at(empty_at + (step - 1) % kStages * 8);
        }
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    const int y = blockIdx.y * 128 + group * 64 + warp * 16 + lane / 4, x = blockIdx.x * 128 + lane % 4 * 2;
    for (int i = 0; i < 64; ++i) c[static_cast<size_t>(y + i / 2 % 2 * 8) * n + x + i / 4 * 8 + i % 2] = d[i];
}

// A map of a row-major matrix [rows][k] in boxes of 128 rows of 128 bytes.
CUtensorMap map_matrix(const void* at, int rows, int k) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult state;
    cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &state);
    CUtensorMap map{};
    const cuuint64_t sizes[] = {static_cast<cuuint64_t>(k), static_cast<cuuint64_t>(rows)}, strides[] = {static_cast<cuuint64_t>(k) * 2};
    const cuuint32_t box[] = {64, 128}, steps[] = {1, 1};
    reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
        &map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<void*>(at), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

template <int kFault>
void start_pipelined(const CUtensorMap& a, const CUtensorMap& b, float* c, int m, int n, int k) {
    cudaFuncSetAttribute(pipelined_gemm<kFault>, cudaFuncAttributeMaxDynamicSharedMemorySize, kStages * kStageBytes);
    pipelined_gemm<kFault><<<dim3(n / 128, m / 128), 384, kStages * kStageBytes>>>(a, b, c, n, k);
}

// --- wmma: C = A B of one tile, doubled and shifted element by element -------------------------------------------------------------------

template <int M, int N, int K, typename T, typename Acc, typename LayoutA, typename LayoutB, typename Element = T>
__global__ void wmma_tile(const T* a, const T* b, Acc* c, int column_major) {
    using namespace nvcuda;
    __shared__ __align__(32) T staged[M * K];
    for (int i = threadIdx.x; i < M * K; i += 32) staged[i] = a[i];
    __syncwarp();
    wmma::fragment<wmma::matrix_a, M, N, K, Element, LayoutA> left;
    wmma::fragment<wmma::matrix_b, M, N, K, Element, LayoutB> right;
    wmma::fragment<wmma::accumulator, M, N, K, Acc> sum, old;
    constexpr bool kRowA = std::is_same_v<LayoutA, wmma::row_major>, kRowB = std::is_same_v<LayoutB, wmma::row_major>;
    wmma::load_matrix_sync(left, staged, kRowA ? K : M);
    wmma::load_matrix_sync(right, b, kRowB ? N : K);
    wmma::fill_fragment(sum, Acc(0));
    wmma::mma_sync(sum, left, right, sum);
    const auto layout = column_major ? wmma::mem_col_major : wmma::mem_row_major;
    wmma::load_matrix_sync(old, c, column_major ? M : N, layout);
    for (int i = 0; i < sum.num_elements; ++i) sum.x[i] = sum.x[i] + sum.x[i] + old.x[i];
    wmma::store_matrix_sync(c, sum, column_major ? M : N, layout);
}

// --- ldmatrix, stmatrix and movmatrix over 8x8 matrices of 16-bit elements ---------------------------------------------------------------

template <int kNumber, bool kTranspose>
__global__ void matrices(const uint16_t* in, uint16_t* out, uint32_t* registers, int shift) {
    __shared__ __align__(16) uint16_t from[4 * 64 + 8], to[4 * 64];
    for (int i = threadIdx.x; i < 64 * kNumber; i += 32) from[i] = in[i];
    __syncwarp();
    const uint32_t read = shared_address(from) + threadIdx.x * 16 % (kNumber * 128) + shift,
                   write = shared_address(to) + threadIdx.x * 16 % (kNumber * 128);
    uint32_t r[4] = {}, turned;
    if constexpr (kNumber == 4 && kTranspose) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                     : "r"(read));
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%4], {%0, %1, %2, %3};" ::"r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]),
                     "r"(write)
                     : "memory");
    } else if constexpr (kNumber == 2) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(r[0]), "=r"(r[1]) : "r"(read));
        asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%2], {%0, %1};" ::"r"(r[0]), "r"(r[1]), "r"(write) : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(read));
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(turned) : "r"(r[0]));
        asm volatile("stmatrix.sync.aligned.m8n8.x1.shared.b16 [%1], {%0};" ::"r"(turned), "r"(write) : "memory");
    }
    __syncwarp();
    for (int i = threadIdx.x; i < 64 * kNumber; i += 32) out[i] = to[i];
    for (int i = 0; i < kNumber; ++i) registers[i * 32 + threadIdx.x] = r[i];
}

// C = A B^T of one tile by way of ordinary loads from shared memory, where one row of A is missing; rows [first, last) are stored.
__global__ void rows_of_mma(const uint32_t* a, const uint32_t* b, float* c, int missing, int first, int last) {
    __shared__ uint32_t tile[16 * 8];
    for (int i = threadIdx.x; i < 16 * 8; i += 32) {
        if (i / 8 != missing) tile[i] = a[i];
    }
    __syncwarp();
    const int row = threadIdx.x / 4, part = threadIdx.x % 4;
    uint32_t x[4], y[2];
    for (int i = 0; i < 4; ++i) x[i] = tile[(row + i % 2 * 8) * 8 + part + i / 2 * 4];
    for (int i = 0; i < 2; ++i) y[i] = b[row * 8 + part + i * 4];
    float d[4] = {};
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    for (int i = 0; i < 4; ++i) {
        const int to = row + i / 2 * 8;
        if (to >= first && to < last) c[to * 8 + part * 2 + i % 2] = d[i];
    }
}

using Row = nvcuda::wmma::row_major;
using Col = nvcuda::wmma::col_major;

}  // namespace

extern "C" {

void run_mma_gemm(const void* a, const void* b, float* c, int m, int n, int k, int fault) {
    mma_gemm<<<dim3(n / kTile, m / kTile), 256>>>(static_cast<const __nv_bfloat16*>(a), static_cast<const __nv_bfloat16*>(b), c, n, k,
                                                  fault);
}

void run_wgmma_gemm(const void* a, const void* b, float* c, int m, int n, int k, int fault) {
    constexpr decltype(&start_wgmma<0>) kStart[] = {start_wgmma<0>, start_wgmma<1>, start_wgmma<2>, start_wgmma<3>, start_wgmma<4>,
                                                    start_wgmma<5>, start_wgmma<6>, start_wgmma<7>, start_wgmma<8>};
    kStart[fault](a, b, c, m, n, k);
}

void run_pipelined_gemm(const void* a, const void* b, float* c, int m, int n, int k, int fault) {
    constexpr decltype(&start_pipelined<0>) kStart[] = {start_pipelined<0>, start_pipelined<1>, start_pipelined<2>, start_pipelined<3>};
    kStart[fault](map_matrix(a, m, k), map_matrix(b, n, k), c, m, n, k);
}

void run_wmma(const void* a, const void* b, void* c, int which, int column_major) {
    const auto start = [&](auto kernel, auto factor, auto accumulator) {
        kernel<<<1, 32>>>(static_cast<const decltype(factor)*>(a), static_cast<const decltype(factor)*>(b),
                          static_cast<decltype(accumulator)*>(c), column_major);
    };
    using namespace nvcuda;
    switch (which) {
        case 0: return start(wmma_tile<16, 16, 16, half, float, Row, Col>, half{}, 0.0f);
        case 1: return start(wmma_tile<32, 8, 16, half, float, Col, Row>, half{}, 0.0f);
        case 2: return start(wmma_tile<8, 32, 16, half, half, Row, Row>, half{}, half{});
        case 3: return start(wmma_tile<16, 16, 16, __nv_bfloat16, float, Col, Col>, __nv_bfloat16{}, 0.0f);
        case 4: return start(wmma_tile<16, 16, 16, signed char, int, Row, Col>, static_cast<signed char>(0), 0);
        case 5: return start(wmma_tile<8, 32, 16, unsigned char, int, Col, Row>, static_cast<unsigned char>(0), 0);
        case 6: return start(wmma_tile<16, 16, 8, float, float, Row, Row, wmma::precision::tf32>, 0.0f, 0.0f);
        default: return start(wmma_tile<8, 8, 4, double, double, Row, Col>, 0.0, 0.0);
    }
}

void run_rows_of_mma(const uint32_t* a, const uint32_t* b, float* c, int missing, int first, int last) {
    rows_of_mma<<<1, 32>>>(a, b, c, missing, first, last);
}

void run_matrices(const uint16_t* in, uint16_t* out, uint32_t* registers, int number, int shift) {
    if (number == 4)
        matrices<4, true><<<1, 32>>>(in, out, registers, shift);
    else if (number == 2)
        matrices<2, false><<<1, 32>>>(in, out, registers, shift);
    else
        matrices<1, false><<<1, 32>>>(in, out, registers, shift);
}

}  // extern "C"

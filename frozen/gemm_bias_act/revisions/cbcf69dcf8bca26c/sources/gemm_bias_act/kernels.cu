// fp32 GEMM with bias and activation: Y[m, n] = act(A[m, k] B[k, n] + bias[n] + residual[m, n]), optionally Z, the same
// before act. Row-major, ragged sizes.
// Rungs 1 and 7 also take B as [n, k].
//
//   rung | kernel              | one idea more than the rung before
//   -----+---------------------+------------------------------------------------------------------------------------------
//    1   | multiply_naive      | a thread per element; the lanes of a warp walk down a column of Y
//    2   | multiply_coalesced  | the lanes walk along a row: B and Y are read and written in whole sectors, A is broadcast
//    3   | multiply_smem_tiled | a block shares tiles of A and B in shared memory: each element is read m/tile times, not m
//    4   | multiply_reg_tiled  | a thread owns a patch in registers: 2 loads from shared memory serve many products
//    5   | multiply_vectorised | float4 from global and shared memory; A is transposed on its way so that its reads are too
//    6   | multiply_warp_tiled | a warp owns a compact tile: its lanes read few, neighbouring float4, without bank conflicts
//    7   | multiply_pipelined  | cp.async fills a ring of stages while products are taken (pipelined.cuh)
//
// Rungs 1-4 and 7 take any alignment; 5 and 6 read float4 and ask for aligned rows of A and B.
#include "gemm_bias_act/pipelined.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {

// A block of kTileM x kTileN threads, one element of Y each. threadIdx.x runs down the rows. B lies as [n, k] if kIsNk.
template <int kTileM, int kTileN, bool kIsNk, bool kDrops>
__global__ void __launch_bounds__(kTileM* kTileN) multiply_naive(const Gemm gemm) {
    const TileOrigin origin = find_tile<kTileM, kTileN>(gemm.m, gemm.n);
    const int row = origin.row + static_cast<int>(threadIdx.x) % kTileM;
    const int column = origin.column + static_cast<int>(threadIdx.x) / kTileM;
    if (row >= gemm.m || column >= gemm.n) return;
    float sum = 0.0f;
    for (int k = 0; k < gemm.k; ++k) {
        const float b = kIsNk ? gemm.b[column * gemm.ldb + k] : gemm.b[k * gemm.ldb + column];
        sum = fmaf(gemm.a[row * gemm.lda + k], b, sum);
    }
    store_element<kDrops>(gemm, row, column, sum);
}

// As multiply_naive, with threadIdx.x along the columns.
template <int kTileM, int kTileN>
__global__ void __launch_bounds__(kTileM* kTileN) multiply_coalesced(const Gemm gemm) {
    const TileOrigin origin = find_tile<kTileM, kTileN>(gemm.m, gemm.n);
    const int row = origin.row + static_cast<int>(threadIdx.x) / kTileN;
    const int column = origin.column + static_cast<int>(threadIdx.x) % kTileN;
    if (row >= gemm.m || column >= gemm.n) return;
    float sum = 0.0f;
    for (int k = 0; k < gemm.k; ++k) sum = fmaf(gemm.a[row * gemm.lda + k], gemm.b[k * gemm.ldb + column], sum);
    store_element(gemm, row, column, sum);
}

// Copies a kRows x kColumns tile of a matrix into shared memory element by element, zeros outside of it.
template <int kRows, int kColumns, int kThreads>
__device__ __forceinline__ void load_elements(const float* source, std::int64_t stride, int rows_left, int columns_left, float* target) {
#pragma unroll
    for (int base = 0; base < kRows * kColumns; base += kThreads) {
        const int i = base + static_cast<int>(threadIdx.x);
        if (kRows * kColumns % kThreads != 0 && i >= kRows * kColumns) break;
        const int row = i / kColumns;
        const int column = i % kColumns;
        target[i] = row < rows_left && column < columns_left ? source[row * stride + column] : 0.0f;
    }
}

// A block of kTileM x kTileN threads, one element of Y each; the tiles are kTileM x kTileK and kTileK x kTileN.
template <int kTileM, int kTileN, int kTileK>
__global__ void __launch_bounds__(kTileM* kTileN) multiply_smem_tiled(const Gemm gemm) {
    constexpr int kThreads = kTileM * kTileN;
    __shared__ float tile_a[kTileM * kTileK];
    __shared__ float tile_b[kTileK * kTileN];
    const TileOrigin origin = find_tile<kTileM, kTileN>(gemm.m, gemm.n);
    const int row = static_cast<int>(threadIdx.x) / kTileN;
    const int column = static_cast<int>(threadIdx.x) % kTileN;
    float sum = 0.0f;
    for (int k0 = 0; k0 < gemm.k; k0 += kTileK) {
        const float* a = gemm.a + origin.row * gemm.lda + k0;
        const float* b = gemm.b + k0 * gemm.ldb + origin.column;
        load_elements<kTileM, kTileK, kThreads>(a, gemm.lda, gemm.m - origin.row, gemm.k - k0, tile_a);
        load_elements<kTileK, kTileN, kThreads>(b, gemm.ldb, gemm.k - k0, gemm.n - origin.column, tile_b);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kTileK; ++k) sum = fmaf(tile_a[row * kTileK + k], tile_b[k * kTileN + column], sum);
        __syncthreads();
    }
    if (origin.row + row < gemm.m && origin.column + column < gemm.n) store_element(gemm, origin.row + row, origin.column + column, sum);
}

// Each thread owns kThreadM x kThreadN elements of Y, kTileM / kThreadM rows and kTileN / kThreadN columns apart: neighbouring threads
// read neighbouring words of B.
template <int kTileM, int kTileN, int kTileK, int kThreadM, int kThreadN>
__global__ void __launch_bounds__(kTileM / kThreadM * (kTileN / kThreadN)) multiply_reg_tiled(const Gemm gemm) {
    constexpr int kRows = kTileM / kThreadM;
    constexpr int kColumns = kTileN / kThreadN;
    constexpr int kThreads = kRows * kColumns;
    extern __shared__ __align__(16) float shared[];
    float* tile_a = shared;
    float* tile_b = shared + kTileM * kTileK;
    const TileOrigin origin = find_tile<kTileM, kTileN>(gemm.m, gemm.n);
    const int row = static_cast<int>(threadIdx.x) / kColumns;
    const int column = static_cast<int>(threadIdx.x) % kColumns;
    float sums[kThreadM][kThreadN] = {};
    for (int k0 = 0; k0 < gemm.k; k0 += kTileK) {
        const float* a = gemm.a + origin.row * gemm.lda + k0;
        const float* b = gemm.b + k0 * gemm.ldb + origin.column;
        load_elements<kTileM, kTileK, kThreads>(a, gemm.lda, gemm.m - origin.row, gemm.k - k0, tile_a);
        load_elements<kTileK, kTileN, kThreads>(b, gemm.ldb, gemm.k - k0, gemm.n - origin.column, tile_b);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kTileK; ++k) {
            float fragment_a[kThreadM];
            float fragment_b[kThreadN];
#pragma unroll
            for (int i = 0; i < kThreadM; ++i) fragment_a[i] = tile_a[(row + i * kRows) * kTileK + k];
#pragma unroll
            for (int j = 0; j < kThreadN; ++j) fragment_b[j] = tile_b[k * kTileN + column + j * kColumns];
            add_outer_product(sums, fragment_a, fragment_b);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadN; ++j) shared[(row + i * kRows) * kTileN + column + j * kColumns] = sums[i][j];
    }
    __syncthreads();
    store_tile<kTileM, kTileN, kThreads>(gemm, shared, origin);
}

// Each thread owns a compact kThreadM x kThreadN patch. Rows of A and B start on 16-byte boundaries.
template <int kTileM, int kTileN, int kTileK, int kThreadM, int kThreadN>
__global__ void __launch_bounds__(kTileM / kThreadM * (kTileN / kThreadN)) multiply_vectorised(const Gemm gemm) {
    constexpr int kThreads = kTileM / kThreadM * (kTileN / kThreadN);
    constexpr int kPitchA = kTileM + kVectorElems;
    extern __shared__ __align__(16) float shared[];
    float* tile_a = shared;
    float* tile_b = shared + kTileK * kPitchA;
    const TileOrigin origin = find_tile<kTileM, kTileN>(gemm.m, gemm.n);
    const int row = static_cast<int>(threadIdx.x) / (kTileN / kThreadN) * kThreadM;
    const int column = static_cast<int>(threadIdx.x) % (kTileN / kThreadN) * kThreadN;
    float sums[kThreadM][kThreadN] = {};
    for (int k0 = 0; k0 < gemm.k; k0 += kTileK) {
        load_a_transposed<kTileM, kTileK, kPitchA, kThreads>(gemm, origin.row, k0, tile_a);
        load_b_vectors<kTileK, kTileN, kThreads>(gemm, k0, origin.column, tile_b);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kTileK; ++k) {
            float fragment_a[kThreadM];
            float fragment_b[kThreadN];
            load_fragment<kThreadM, kVectorElems>(tile_a + k * kPitchA + row, fragment_a);
            load_fragment<kThreadN, kVectorElems>(tile_b + k * kTileN + column, fragment_b);
            add_outer_product(sums, fragment_a, fragment_b);
        }
        __syncthreads();
    }
    stage_sums<kTileN, kVectorElems, kVectorElems>(sums, shared + row * kTileN + column);
    __syncthreads();
    store_tile<kTileM, kTileN, kThreads>(gemm, shared, origin);
}

// Each warp owns kWarpM x kWarpN elements of Y, its lanes 4 x 4 patches of them as WarpLayout says. Rows of A and B start on 16-byte
// boundaries.
template <int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN, int kThreadM, int kThreadN>
__global__ void __launch_bounds__(kTileM / kThreadM * (kTileN / kThreadN)) multiply_warp_tiled(const Gemm gemm) {
    using Layout = WarpLayout<kWarpM, kWarpN, kThreadM, kThreadN>;
    constexpr int kThreads = kTileM / kThreadM * (kTileN / kThreadN);
    constexpr int kPitchA = kTileM + kVectorElems;
    extern __shared__ __align__(16) float shared[];
    float* tile_a = shared;
    float* tile_b = shared + kTileK * kPitchA;
    const TileOrigin origin = find_tile<kTileM, kTileN>(gemm.m, gemm.n);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = warp / (kTileN / kWarpN) * kWarpM + Layout::row_of(lane);
    const int column = warp % (kTileN / kWarpN) * kWarpN + Layout::column_of(lane);
    float sums[kThreadM][kThreadN] = {};
    for (int k0 = 0; k0 < gemm.k; k0 += kTileK) {
        load_a_transposed<kTileM, kTileK, kPitchA, kThreads>(gemm, origin.row, k0, tile_a);
        load_b_vectors<kTileK, kTileN, kThreads>(gemm, k0, origin.column, tile_b);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kTileK; ++k) {
            float fragment_a[kThreadM];
            float fragment_b[kThreadN];
            load_fragment<kThreadM, Layout::kStepM>(tile_a + k * kPitchA + row, fragment_a);
            load_fragment<kThreadN, Layout::kStepN>(tile_b + k * kTileN + column, fragment_b);
            add_outer_product(sums, fragment_a, fragment_b);
        }
        __syncthreads();
    }
    stage_sums<kTileN, Layout::kStepM, Layout::kStepN>(sums, shared + row * kTileN + column);
    __syncthreads();
    store_tile<kTileM, kTileN, kThreads>(gemm, shared, origin);
}

}  // namespace aicf::gemm_bias_act

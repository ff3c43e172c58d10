// The fp32 kernel for few rows of A (M up to 16) and B as [n, k]: it streams rows of B once, at the speed of memory. A block owns kColumns
// columns of Y, that is rows of B, and all rows of A; its warps take every kWarps-th 128 elements of k, a lane 4 of them, and their sums
// meet in shared memory in one order: 32 kWarps chains a sum, which errs less than one.
#pragma once

#include <cstdint>

#include "common/programmatic.cuh"
#include "common/reduce.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {

// 16 bytes that nobody reads again.
__device__ __forceinline__ float4 load_passing(const float* source) {
    float4 four;
    asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "l"(__cvta_generic_to_global(source)));
    return four;
}

// Y[m, n] = act(A[m, k] B[n, k]^T + bias[n]), Z the same before act; m is at most kRows. k and the strides are multiples of 4, rows of A
// and B start on 16-byte boundaries. kUnroll chunks of each row of B are on their way at a time.
template <int kRows, int kColumns, int kWarps, int kUnroll>
__global__ void __launch_bounds__(kWarps * 32) multiply_rows(const Gemm gemm) {
    __shared__ float parts[kWarps][kRows * kColumns];
    const int thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32;
    const int lane = thread % 32;
    const int first_column = static_cast<int>(blockIdx.x) * kColumns;
    wait_for_predecessor();
    // Columns and rows past the end repeat the last one; their sums are not stored.
    const float* rows_b[kColumns];
#pragma unroll
    for (int j = 0; j < kColumns; ++j) rows_b[j] = gemm.b + min(first_column + j, gemm.n - 1) * gemm.ldb;
    float sums[kRows][kColumns] = {};
    constexpr int kStep = kWarps * 32 * kVectorElems;
    const auto add_chunk = [&](int k, const float4(&b)[kColumns]) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            const float4 a = load_vector(gemm.a + min(i, gemm.m - 1) * gemm.lda + k);
#pragma unroll
            for (int j = 0; j < kColumns; ++j) {
                sums[i][j] = fmaf(a.x, b[j].x, sums[i][j]);
                sums[i][j] = fmaf(a.y, b[j].y, sums[i][j]);
                sums[i][j] = fmaf(a.z, b[j].z, sums[i][j]);
                sums[i][j] = fmaf(a.w, b[j].w, sums[i][j]);
            }
        }
    };
    int k = thread * kVectorElems;
    for (; k + (kUnroll - 1) * kStep < gemm.k; k += kUnroll * kStep) {
        float4 b[kUnroll][kColumns];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
            for (int j = 0; j < kColumns; ++j) b[u][j] = load_passing(rows_b[j] + k + u * kStep);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) add_chunk(k + u * kStep, b[u]);
    }
    for (; k < gemm.k; k += kStep) {
        float4 b[kColumns];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) b[j] = load_passing(rows_b[j] + k);
        add_chunk(k, b);
    }
    __syncwarp();
    allow_successor();
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
            const float sum = reduce_warp(sums[i][j], [](float a, float b) { return a + b; });
            if (lane == 0) parts[warp][i * kColumns + j] = sum;
        }
    }
    __syncthreads();
    for (int place = thread; place < kRows * kColumns; place += kWarps * 32) {
        const int row = place / kColumns;
        const int column = first_column + place % kColumns;
        if (row >= gemm.m || column >= gemm.n) continue;
        float sum = parts[0][place];
#pragma unroll
        for (int i = 1; i < kWarps; ++i) sum += parts[i][place];
        store_element(gemm, row, column, sum);
    }
}

}  // namespace aicf::gemm_bias_act

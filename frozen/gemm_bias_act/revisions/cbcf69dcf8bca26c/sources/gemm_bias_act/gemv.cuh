// The kernel for few rows of A (M up to 4) and 16-bit floats: it streams B [n, k] once, at the speed of memory. A warp owns kColumns
// columns of Y, that is rows of B, and all rows of A; its lanes take chunks of 8 elements of k in turn.
#pragma once

#include <cstdint>

#include "common/activations.cuh"
#include "common/half_types.cuh"
#include "common/programmatic.cuh"
#include "common/reduce.cuh"
#include "gemm_bias_act/mma.cuh"

namespace aicf::gemm_bias_act {

inline constexpr int kGemvMaxRows = 4;

// 16 bytes that nobody reads again.
__device__ __forceinline__ uint4 load_streaming(const void* source) {
    uint4 words;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(__cvta_generic_to_global(source)));
    return words;
}

template <class Element>
__device__ __forceinline__ void unpack_chunk(const uint4& words, float (&values)[8]) {
    const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const float2 pair = unpack_pair<Element>(pairs[i]);
        values[2 * i] = pair.x;
        values[2 * i + 1] = pair.y;
    }
}

// Y[m, n] = act(A[m, k] B[n, k]^T + bias[n]), Z the same before act; m is at most kRows. k and the strides are multiples of 8, rows of A
// and B start on 16-byte boundaries. kUnroll chunks of each row of B are on their way at a time.
template <class Element, int kRows, int kColumns, int kWarps, int kUnroll>
__global__ void __launch_bounds__(kWarps * 32) multiply_gemv(const HalfGemm<Element> gemm) {
    const int warp = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first_column = warp * kColumns;
    if (first_column >= gemm.n) return;
    wait_for_predecessor();
    // Columns and rows past the end repeat the last one; their sums are not stored.
    const Element* rows_b[kColumns];
#pragma unroll
    for (int i = 0; i < kColumns; ++i) rows_b[i] = gemm.b + min(first_column + i, gemm.n - 1) * gemm.ldb;
    const Element* rows_a[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i) rows_a[i] = gemm.a + min(i, gemm.m - 1) * gemm.lda;
    float sums[kRows][kColumns] = {};
    constexpr int kStep = 32 * 8;
    const auto add_chunk = [&](int k, const uint4(&b)[kColumns]) {
        float weights[kColumns][8];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) unpack_chunk<Element>(b[j], weights[j]);
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
            float values[8];
            unpack_chunk<Element>(*reinterpret_cast<const uint4*>(rows_a[i] + k), values);
#pragma unroll
            for (int j = 0; j < kColumns; ++j) {
#pragma unroll
                for (int e = 0; e < 8; ++e) sums[i][j] = fmaf(values[e], weights[j][e], sums[i][j]);
            }
        }
    };
    int k = lane * 8;
    for (; k + (kUnroll - 1) * kStep < gemm.k; k += kUnroll * kStep) {
        uint4 b[kUnroll][kColumns];
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
            for (int j = 0; j < kColumns; ++j) b[u][j] = load_streaming(rows_b[j] + k + u * kStep);
        }
#pragma unroll
        for (int u = 0; u < kUnroll; ++u) add_chunk(k + u * kStep, b[u]);
    }
    for (; k < gemm.k; k += kStep) {
        uint4 b[kColumns];
#pragma unroll
        for (int j = 0; j < kColumns; ++j) b[j] = load_streaming(rows_b[j] + k);
        add_chunk(k, b);
    }
    __syncwarp();
    allow_successor();
    float mine = 0.0f;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kColumns; ++j) {
            const float sum = reduce_warp(sums[i][j], [](float a, float b) { return a + b; });
            if (lane == i * kColumns + j) mine = sum;
        }
    }
    static_assert(kRows * kColumns <= 32, "one lane stores one sum");
    const int row = lane / kColumns;
    const int column = first_column + lane % kColumns;
    if (row >= min(kRows, gemm.m) || column >= gemm.n) return;
    if (gemm.bias != nullptr) mine += to_float(gemm.bias[column]);
    if (gemm.residual != nullptr) mine += to_float(gemm.residual[row * gemm.ldresidual + column]);
    if (gemm.z != nullptr) gemm.z[row * gemm.ldz + column] = from_float<Element>(mine);
    gemm.y[row * gemm.ldy + column] = from_float<Element>(apply_rough_activation(gemm.act, mine));
}

}  // namespace aicf::gemm_bias_act

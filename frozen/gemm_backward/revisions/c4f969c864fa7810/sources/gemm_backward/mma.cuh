// The kernels for any GPU from sm_80 up, any sizes, any alignment: the main loop of common/mma_pipeline.cuh.
#pragma once

#include <cstdint>

#include "common/activation_slopes.cuh"
#include "common/mma_pipeline.cuh"

namespace aicf::gemm_backward {

// One product D[m, n] = A B of 16-bit floats. Sizes fit an int (checked by the launcher), offsets are taken in 64 bits.
template <class Element>
struct MmaProblem {
    MmaOperand<Element> a, b;
    Element* d;
    std::int64_t ldd;
    int m, n, k;
    bool has_pairs;  // rows of d, and of z, start on 4-byte boundaries
    // Of dZ alone:
    const Element* z;  // [m, n], row stride ldz, or null
    std::int64_t ldz;
    int act;
    float* partial_sums;  // [rows of warps, n], or null
    // Of dW alone:
    bool is_added;  // to what d has
};

template <class Element, int kAct, class L>
__device__ __forceinline__ void pass_sums(float (&sums)[L::kWarpM / 16][L::kWarpN / 8][4], const MmaProblem<Element>& problem,
                                          int first_row, int first_column) {
    visit_pairs(sums, first_row, first_column, problem.m, problem.n, [&](int row, int column, float& first, float& second) {
        const Element* z = problem.z + row * problem.ldz + column;
        if (problem.has_pairs && column + 1 < problem.n) {
            const float2 pair = unpack_pair<Element>(*reinterpret_cast<const std::uint32_t*>(z));
            first = pass_gradient<kAct>(first, pair.x);
            second = pass_gradient<kAct>(second, pair.y);
            return;
        }
        first = pass_gradient<kAct>(first, to_float(z[0]));
        if (column + 1 < problem.n) second = pass_gradient<kAct>(second, to_float(z[1]));
    });
}

// Sums of this warp's columns over its rows of D, to its own row of partial sums.
template <class Element, class L>
__device__ __forceinline__ void store_column_sums(const float (&sums)[L::kWarpM / 16][L::kWarpN / 8][4], const MmaProblem<Element>& problem,
                                                  int first_row, int first_column) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    float* target = problem.partial_sums + static_cast<std::int64_t>(first_row / L::kWarpM) * problem.n;
#pragma unroll
    for (int j = 0; j < L::kWarpN / 8; ++j) {
        float2 pair = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < L::kWarpM / 16; ++i) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // Rows past the end are products of zeros with what may be infinite.
                if (first_row + i * 16 + half * 8 + lane / 4 >= problem.m) continue;
                pair.x += sums[i][j][2 * half];
                pair.y += sums[i][j][2 * half + 1];
            }
        }
#pragma unroll
        for (int bit = 4; bit < 32; bit *= 2) {
            pair.x += __shfl_xor_sync(0xffffffffu, pair.x, bit);
            pair.y += __shfl_xor_sync(0xffffffffu, pair.y, bit);
        }
        const int column = first_column + j * 8 + lane % 4 * 2;
        if (lane < 4 && column < problem.n) target[column] = pair.x;
        if (lane < 4 && column + 1 < problem.n) target[column + 1] = pair.y;
    }
}

// D[m, n] = A B, times act'(Z) where there is a Z, with the sums of its columns where they are wanted.
template <class Element, class L, bool kTransposedA, bool kTransposedB, int kGroup>
__global__ void __launch_bounds__(L::kThreads) multiply_mma(const MmaProblem<Element> problem) {
    extern __shared__ __align__(128) unsigned char mma_shared[];
    const TileOrigin origin = find_tile<L::kTileM, L::kTileN, kGroup>(problem.m, problem.n);
    float sums[L::kWarpM / 16][L::kWarpN / 8][4] = {};
    multiply_block_tile<Element, L, kTransposedA, kTransposedB>(sums, mma_shared, problem.a, problem.b, problem.m, problem.n, problem.k,
                                                                origin);
    const TileOrigin part = find_warp_part<L>();
    const int row = origin.row + part.row;
    const int column = origin.column + part.column;
    if (problem.z != nullptr) {
        switch (problem.act) {
            case AICF_ACT_RELU: pass_sums<Element, AICF_ACT_RELU, L>(sums, problem, row, column); break;
            case AICF_ACT_GELU_TANH: pass_sums<Element, AICF_ACT_GELU_TANH, L>(sums, problem, row, column); break;
            case AICF_ACT_GELU_ERF: pass_sums<Element, AICF_ACT_GELU_ERF, L>(sums, problem, row, column); break;
            case AICF_ACT_SILU: pass_sums<Element, AICF_ACT_SILU, L>(sums, problem, row, column); break;
            default: break;
        }
    }
    if (problem.partial_sums != nullptr) store_column_sums<Element, L>(sums, problem, row, column);
    visit_pairs(sums, row, column, problem.m, problem.n, [&](int at_row, int at_column, float first, float second) {
        Element* const target = problem.d + at_row * problem.ldd;
        if (problem.is_added) {
            first += to_float(target[at_column]);
            if (at_column + 1 < problem.n) second += to_float(target[at_column + 1]);
        }
        store_pair(target, at_column, problem.n, problem.has_pairs, first, second);
    });
}

}  // namespace aicf::gemm_backward

// boxed for tens to hundreds of rows of A, and for last waves that are short: the main loop of common/boxed_evenly.cuh.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/boxed_evenly.cuh"
#include "common/programmatic.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {

// Y[m, n] = act(A[m, k] B + bias[n] + residual[m, n]), Z the same before act. B is [n, k] where L::kTurnsB, else [k, n]. Rows of A and B
// start on 16-byte boundaries. The `splits` blocks of a cluster have one tile, each its part of k; without a cluster there is one.
template <class L, int kGroup, int kMinBlocks>
__global__ void __launch_bounds__(L::kThreads, kMinBlocks)
    multiply_boxed_evenly(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const Gemm gemm,
                          const int splits) {
    extern __shared__ __align__(1024) std::uint8_t even_shared[];
    const int block = static_cast<int>(blockIdx.x);
    const TileOrigin origin = find_tile<L::kTileM, L::kTileN, kGroup>(gemm.m, gemm.n, block / splits);
    const EvenPart<L> part(block, splits, gemm.k);
    const EvenPlace<L> at(static_cast<int>(threadIdx.x));
    float sums[L::kThreadM][L::kThreadN] = {};
    multiply_evenly<L>(sums, even_shared, &map_a, &map_b, origin, part, at, gemm.k, [] { wait_for_predecessor(); });
    allow_successor();
    hand_over_evenly<L>(sums, even_shared, part, at);
#pragma unroll 1
    for (int own = at.slice; own < part.num_own; own += L::kSlices) {
        const float4 total = add_even_parts<L>(even_shared, part, own);
        const int group = own * splits + part.rank;
        const int row = origin.row + at.find_row(group);
        const int column = origin.column + at.find_column(group);
        if (row < gemm.m && column < gemm.n) store_vector_or_elements(gemm, row, column, total);
    }
}

}  // namespace aicf::gemm_bias_act

// fp32, few tiles of Y and short k: the main loop of common/short_products.cuh, whose blocks of a cluster share the k of a tile.
#pragma once

#include "common/cluster.cuh"
#include "common/programmatic.cuh"
#include "common/short_products.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {

// Y[m, n] = act(A[m, k] B + bias[n]), B as [n, k] if kIsNk. A cluster of `splits` blocks has one tile; each multiplies its part of k and
// finishes its share of the rows.
template <class L, bool kIsNk>
__global__ void __launch_bounds__(L::kThreads, L::kMinBlocks)
    multiply_tiny(const Gemm gemm, const ShortOperand<float> a, const ShortOperand<float> b, int splits) {
    extern __shared__ __align__(16) float tiny_shared[];
    allow_successor();
    if (splits > 1) announce_to_cluster();
    wait_for_predecessor();
    const int part = static_cast<int>(blockIdx.x) % splits;
    const TileOrigin origin = find_tile<L::kTileM, L::kTileN>(gemm.m, gemm.n, static_cast<int>(blockIdx.x) / splits);
    const int steps = divide_up(gemm.k, L::kTileK);
    const auto find_begin = [&](int at) { return static_cast<int>(static_cast<std::int64_t>(steps) * at / splits) * L::kTileK; };
    multiply_short_tile<L, false, !kIsNk>(tiny_shared, a, b, gemm.m, gemm.n, find_begin(part), min(find_begin(part + 1), gemm.k), origin);
    if (splits > 1) {
        await_cluster();
        hand_over_sums<L>(tiny_shared, part, 0, splits);
        sync_cluster();
    }
    constexpr int kPerRow = L::kTileN / kVectorElems;
    const int share = count_share<L>(splits);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < share * kPerRow; i += L::kThreads) {
        const int row = origin.row + part * share + i / kPerRow;
        const int column = i % kPerRow * kVectorElems;
        if (row >= gemm.m || origin.column + column >= gemm.n) continue;
        store_vector_or_elements(gemm, row, origin.column + column, add_handed_sums<L>(tiny_shared, i / kPerRow, column, splits));
    }
}

}  // namespace aicf::gemm_bias_act

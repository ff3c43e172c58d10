// fp32, few tiles of Y and short k: the main loop of common/short_products.cuh, whose blocks of a cluster share the k of a tile.
#pragma once

#include "common/programmatic.cuh"
#include "common/short_products.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {

// The bias of four neighbouring columns, of which the first may be outside Y; zeros without one.
__device__ __forceinline__ float4 load_bias(const Gemm& gemm, int column) {
    float4 bias = {0.0f, 0.0f, 0.0f, 0.0f};
    if (gemm.bias == nullptr) return bias;
    const float* const source = gemm.bias + column;
    if (gemm.has_vector_outputs && column + kVectorElems <= gemm.n) return load_vector(source);
    if (column < gemm.n) bias.x = source[0];
    if (column + 1 < gemm.n) bias.y = source[1];
    if (column + 2 < gemm.n) bias.z = source[2];
    if (column + 3 < gemm.n) bias.w = source[3];
    return bias;
}

// Y[m, n] = act(A[m, k] B + bias[n]), B as [n, k] if kIsNk. A cluster of `splits` blocks has one tile; each multiplies its part of k and
// finishes its share of the rows.
template <class L, bool kIsNk>
__global__ void __launch_bounds__(L::kThreads, L::kMinBlocks)
    multiply_tiny(const Gemm gemm, const ShortOperand<float> a, const ShortOperand<float> b, int splits) {
    extern __shared__ __align__(16) float tiny_shared[];
    __shared__ Barrier handed;
    allow_successor();
    if (splits > 1) {
        if (threadIdx.x == 0) expect_sums(&handed, L::kHandedBytes);
        announce_to_cluster();
    }
    const int part = static_cast<int>(blockIdx.x) & (splits - 1);
    const TileOrigin origin = find_tile<L::kTileM, L::kTileN>(gemm.m, gemm.n, static_cast<int>(blockIdx.x) >> (__ffs(splits) - 1));
    const int end = min(find_short_part<L>(gemm.k, part + 1, splits), gemm.k);
    constexpr int kPerRow = L::kTileN / kVectorElems;
    static_assert(L::kThreads % kPerRow == 0, "a thread keeps its columns");
    const int column = origin.column + static_cast<int>(threadIdx.x) % kPerRow * kVectorElems;
    wait_for_predecessor();
    // On its way while the block multiplies: behind the products it would be waited for.
    const float4 bias = load_bias(gemm, column);
    Gemm rest = gemm;
    rest.bias = nullptr;
    multiply_short_tile<L, false, !kIsNk>(tiny_shared, a, b, gemm.m, gemm.n, find_short_part<L>(gemm.k, part, splits), end, origin);
    if (splits > 1) {
        await_cluster();
        hand_over_sums<L>(tiny_shared, &handed, part, 0, splits);
        wait_phase(&handed, 0);
    }
    const int share = count_share<L>(splits);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < share * kPerRow; i += L::kThreads) {
        const int row = origin.row + part * share + i / kPerRow;
        if (row >= gemm.m || column >= gemm.n) continue;
        float4 sums = add_handed_sums<L>(tiny_shared, i / kPerRow, column - origin.column, splits);
        if (gemm.bias != nullptr) sums = {sums.x + bias.x, sums.y + bias.y, sums.z + bias.z, sums.w + bias.w};
        store_vector_or_elements(rest, row, column, sums);
    }
}

}  // namespace aicf::gemm_bias_act

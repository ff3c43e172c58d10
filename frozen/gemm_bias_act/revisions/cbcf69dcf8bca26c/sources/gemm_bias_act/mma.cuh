// The kernel for 16-bit floats on any GPU from sm_80 up, any sizes, any alignment: the main loop of common/mma_pipeline.cuh.
#pragma once

#include <cstdint>

#include "common/activations.cuh"
#include "common/mma_pipeline.cuh"
#include "common/philox.cuh"

namespace aicf::gemm_bias_act {

// One problem of 16-bit floats as the kernel sees it. Sizes fit an int (checked by the launcher), offsets are taken in 64 bits.
template <class Element>
struct HalfGemm {
    const Element* a;     // [m, k], row stride lda
    const Element* b;     // [k, n] or [n, k], row stride ldb
    const Element* bias;  // [n] or null
    Element* y;           // [m, n], row stride ldy
    Element* z;           // [m, n], row stride ldz, or null
    std::int64_t lda, ldb, ldy, ldz;
    int m, n, k;
    int act;
    bool has_chunks_a, has_chunks_b;  // rows start on 16-byte boundaries
    bool has_pairs;                   // rows of y and z start on 4-byte boundaries
    const Element* residual;          // [m, n], row stride ldresidual, or null
    std::int64_t ldresidual;
    Dropout dropout;  // of kernels that drop
};

template <int kAct, int kBlocksM, int kBlocksN>
__device__ __forceinline__ void activate_sums(float (&sums)[kBlocksM][kBlocksN][4]) {
#pragma unroll
    for (int i = 0; i < kBlocksM * kBlocksN * 4; ++i) {
        float& sum = sums[i / (4 * kBlocksN)][i / 4 % kBlocksN][i % 4];
        sum = apply_rough_activation<kAct>(sum);
    }
}

// Y[m, n] = act(A[m, k] B + bias[n] + residual[m, n]), of which elements are dropped where kDrops; Z the same before act. B is [k, n] where
// kTransposedB, else [n, k].
template <class Element, bool kTransposedB, int kTileM, int kTileN, int kWarpM, int kWarpN, int kNumStages, int kGroup, bool kDrops>
__global__ void __launch_bounds__((MmaLayout<kTileM, kTileN, kWarpM, kWarpN, kNumStages>::kThreads))
    multiply_mma(const HalfGemm<Element> gemm) {
    using L = MmaLayout<kTileM, kTileN, kWarpM, kWarpN, kNumStages>;
    extern __shared__ __align__(128) unsigned char mma_shared[];
    const TileOrigin origin = find_tile<kTileM, kTileN, kGroup>(gemm.m, gemm.n);
    float sums[kWarpM / 16][kWarpN / 8][4] = {};
    multiply_block_tile<Element, L, false, kTransposedB>(sums, mma_shared, {gemm.a, gemm.lda, gemm.has_chunks_a},
                                                         {gemm.b, gemm.ldb, gemm.has_chunks_b}, gemm.m, gemm.n, gemm.k, origin);

    const TileOrigin part = find_warp_part<L>();
    const int first_row = origin.row + part.row;
    const int first_column = origin.column + part.column;
    visit_pairs(sums, first_row, first_column, gemm.m, gemm.n, [&](int row, int column, float& first, float& second) {
        if (gemm.bias != nullptr) {
            first += to_float(gemm.bias[column]);
            if (column + 1 < gemm.n) second += to_float(gemm.bias[column + 1]);
        }
        if (gemm.residual != nullptr) {
            const Element* addend = gemm.residual + row * gemm.ldresidual;
            first += to_float(addend[column]);
            if (column + 1 < gemm.n) second += to_float(addend[column + 1]);
        }
        if (gemm.z != nullptr) store_pair(gemm.z + row * gemm.ldz, column, gemm.n, gemm.has_pairs, first, second);
    });
    switch (gemm.act) {
        case AICF_ACT_RELU: activate_sums<AICF_ACT_RELU>(sums); break;
        case AICF_ACT_GELU_TANH: activate_sums<AICF_ACT_GELU_TANH>(sums); break;
        case AICF_ACT_GELU_ERF: activate_sums<AICF_ACT_GELU_ERF>(sums); break;
        case AICF_ACT_SILU: activate_sums<AICF_ACT_SILU>(sums); break;
        default: break;
    }
    visit_pairs(sums, first_row, first_column, gemm.m, gemm.n, [&](int row, int column, float& first, float& second) {
        if constexpr (kDrops) {
            float y[] = {first, second};
            drop_elements(gemm.dropout, static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(gemm.n) + column, y);
            first = y[0], second = y[1];
        }
        store_pair(gemm.y + row * gemm.ldy, column, gemm.n, gemm.has_pairs, first, second);
    });
}

}  // namespace aicf::gemm_bias_act

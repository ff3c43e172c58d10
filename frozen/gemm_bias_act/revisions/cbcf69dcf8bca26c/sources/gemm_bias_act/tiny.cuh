// Few tiles of Y and short k, in fp32, bf16 or fp16: the main loop of common/short_products.cuh, whose blocks of a cluster share the k of
// a tile.
#pragma once

#include "common/activations.cuh"
#include "common/programmatic.cuh"
#include "common/quads.cuh"
#include "common/short_products.cuh"

namespace aicf::gemm_bias_act {

template <class Element>
struct TinyProblem {
    ShortOperand<Element> a, b;  // [m, k]; [n, k], or [k, n]
    const Element* bias;         // [n] or null
    Element* y;                  // [m, n], row stride ldy
    Element* z;                  // [m, n], row stride ldz, or null
    const Element* residual;     // [m, n], row stride ldresidual, or null
    std::int64_t ldy, ldz, ldresidual;
    int m, n, k;
    int act;
    int splits;
    bool has_quads;  // four elements of bias, y, z and residual at multiples of four of a row are aligned
};

// The bias of a tile follows the sums that blocks hand over.
template <class L>
inline constexpr int kTinySharedBytes =
    L::kSharedFloats * static_cast<int>(sizeof(float)) + L::kTileN * static_cast<int>(sizeof(typename L::Element));

template <class Element>
__device__ __forceinline__ float activate_tiny(int act, float z) {
    if constexpr (sizeof(Element) == 4) return apply_activation(act, z);
    return apply_rough_activation(act, z);
}

// Finishes four neighbouring elements of Y, the first of which is inside of it; `bias` is theirs.
template <class Element>
__device__ __forceinline__ void store_tiny(const TinyProblem<Element>& problem, int row, int column, float4 sums, const float4& bias) {
    const int num_valid = problem.n - column;
    if (problem.bias != nullptr) sums = add_quads(sums, bias);
    if (problem.residual != nullptr) {
        sums = add_quads(sums, load_quad(problem.residual + row * problem.ldresidual + column, num_valid, problem.has_quads));
    }
    if (problem.z != nullptr) store_quad(problem.z + row * problem.ldz + column, sums, num_valid, problem.has_quads);
    const int act = problem.act;
    const float4 y = {activate_tiny<Element>(act, sums.x), activate_tiny<Element>(act, sums.y), activate_tiny<Element>(act, sums.z),
                      activate_tiny<Element>(act, sums.w)};
    store_quad(problem.y + row * problem.ldy + column, y, num_valid, problem.has_quads);
}

// Y[m, n] = act(A[m, k] B + bias[n] + residual[m, n]), Z the same before act; B as [n, k] if kIsNk. A cluster of `splits` blocks has one
// tile; each multiplies its part of k and finishes its share of the rows.
template <class L, bool kIsNk>
__global__ void __launch_bounds__(L::kThreads, L::kMinBlocks) multiply_tiny(const TinyProblem<typename L::Element> problem) {
    using Element = typename L::Element;
    constexpr int kPerRow = L::kTileN / kVectorElems;
    static_assert(L::kThreads % kPerRow == 0, "a thread keeps its columns");
    extern __shared__ __align__(16) float tiny_shared[];
    __shared__ Barrier handed;
    allow_successor();
    const int splits = problem.splits;
    if (splits > 1) {
        if (threadIdx.x == 0) expect_sums(&handed, L::kHandedBytes);
        announce_to_cluster();
    }
    const int part = static_cast<int>(blockIdx.x) & (splits - 1);
    const TileOrigin origin = find_tile<L::kTileM, L::kTileN>(problem.m, problem.n, static_cast<int>(blockIdx.x) >> (__ffs(splits) - 1));
    const int end = min(find_short_part<L>(problem.k, part + 1, splits), problem.k);
    const int place = static_cast<int>(threadIdx.x) % kPerRow * kVectorElems, column = origin.column + place;
    Element* const bias_tile = reinterpret_cast<Element*>(tiny_shared + L::kSharedFloats);
    const bool is_copied = problem.has_quads && column + kVectorElems <= problem.n;
    wait_for_predecessor();
    if (problem.bias != nullptr && is_copied && static_cast<int>(threadIdx.x) < kPerRow) {
        // On its way with the first stage of the ring: behind the products it would be waited for.
        copy_async<kVectorElems* static_cast<int>(sizeof(Element))>(bias_tile + place, problem.bias + column);
    }
    multiply_short_tile<L, false, !kIsNk>(tiny_shared, problem.a, problem.b, problem.m, problem.n,
                                          find_short_part<L>(problem.k, part, splits), end, origin);
    if (splits > 1) {
        await_cluster();
        hand_over_sums<L>(tiny_shared, &handed, part, 0, splits);
        wait_phase(&handed, 0);
    }
    if (column >= problem.n) return;
    float4 bias = {0.0f, 0.0f, 0.0f, 0.0f};
    if (problem.bias != nullptr) {
        bias = load_quad(is_copied ? bias_tile + place : problem.bias + column, problem.n - column, is_copied);
    }
    const int share = count_share<L>(splits);
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) / kPerRow; i < share; i += L::kThreads / kPerRow) {
        const int row = origin.row + part * share + i;
        if (row >= problem.m) break;
        store_tiny(problem, row, column, add_handed_sums<L>(tiny_shared, i, place, splits), bias);
    }
}

}  // namespace aicf::gemm_bias_act

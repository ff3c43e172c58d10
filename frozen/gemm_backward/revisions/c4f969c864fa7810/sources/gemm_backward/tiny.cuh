// Few tiles and short sums, in one launch: tiles of dZ and of dW are blocks of one grid, as in ffma.cuh, on the main loop of
// common/short_products.cuh; fp32, bf16 and fp16. The blocks of a cluster hand over sums, of products and of columns, and none waits for
// another's reads.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/programmatic.cuh"
#include "common/quads.cuh"
#include "common/short_products.cuh"
#include "gemm_backward/ffma.cuh"

namespace aicf::gemm_backward {

// As FfmaProduct.
template <class Element>
struct TinyProduct {
    ShortOperand<Element> a, b;
    Element* d;
    std::int64_t ldd;
    int rows, columns, k;
    int splits, strips;
    bool is_added;  // to what d has
    bool has_quads;  // four elements of d, and of z, at multiples of four of a row are aligned
};

// As FfmaProblem.
template <class Element>
struct TinyProblem {
    TinyProduct<Element> dz, dw;
    int num_dz_blocks, cluster;
    const Element* z;
    std::int64_t ldz;
    int act;
    Element* dbias;       // [dz.columns], or null
    float* partial_sums;  // [dz.strips, dz.columns], whose sums are dbias; or null where there is one strip
};

// What a block waits for: sums of its share of a tile, and of columns from all blocks of the cluster.
struct TinyBarriers {
    Barrier sums, columns;
};

// The sums of this block's part of the tile's k go to those that finish it; its share of the tile's is there in the end.
template <class L, bool kAlongA, bool kAlongB>
__device__ __forceinline__ void multiply_tiny_part(const TinyProduct<typename L::Element>& product, const FfmaWork& work, int cluster,
                                                   float* shared, TinyBarriers* barriers) {
    const bool has_tile = work.origin.row < product.rows;
    if (has_tile) {
        const int end = min(find_short_part<L>(product.k, work.part + 1, product.splits), product.k);
        multiply_short_tile<L, kAlongA, kAlongB>(shared, product.a, product.b, product.rows, product.columns,
                                                 find_short_part<L>(product.k, work.part, product.splits), end, work.origin);
    }
    if (cluster > 1) await_cluster();
    if (has_tile && product.splits > 1) {
        hand_over_sums<L>(shared, &barriers->sums, work.part, work.first_rank, product.splits);
        wait_phase(&barriers->sums, 0);
    }
}

// Calls `use(place, row, column)` for this thread's groups of four elements in this block's share of the tile: their place in the share,
// rows of kTileN, and in D; `column` is this thread's own, and inside of D.
template <class L, class Use>
__device__ __forceinline__ void visit_tiny_share(const TinyProduct<typename L::Element>& product, const FfmaWork& work, Use use) {
    constexpr int kPerRow = L::kTileN / kVectorElems;
    constexpr int kRowsAtOnce = L::kThreads / kPerRow;
    static_assert(L::kThreads % kPerRow == 0, "a thread keeps its columns");
    const int column = static_cast<int>(threadIdx.x) % kPerRow * kVectorElems;
    if (work.origin.column + column >= product.columns) return;
    const int share = count_share<L>(product.splits);
    const int first = work.origin.row + work.part * share;
    const int end = min(share, product.rows - first);
#pragma unroll 1
    for (int row = static_cast<int>(threadIdx.x) / kPerRow; row < end; row += kRowsAtOnce) {
        use(TileOrigin{row, column}, first + row, work.origin.column + column);
    }
}

template <class L>
inline constexpr int kTinyWarps = L::kThreads / 32;

inline constexpr int kTinyCluster = 8;

// Sums of columns, a row for each warp and then one for each block of the cluster, follow those that blocks hand over; then z.
template <class L>
inline constexpr int kTinyZPlace = L::kSharedFloats + (kTinyWarps<L> + kTinyCluster) * L::kTileN;
template <class L>
inline constexpr int kTinySharedBytes =
    kTinyZPlace<L> * static_cast<int>(sizeof(float)) + L::kTileM * L::kTileN * static_cast<int>(sizeof(typename L::Element));

// Adds the threads' sums of columns, of this block, then of the cluster, in order of rank.
template <class L>
__device__ __forceinline__ void store_tiny_columns(const TinyProblem<typename L::Element>& problem, const FfmaWork& work, float* shared,
                                                   TinyBarriers* barriers, float4 own) {
    constexpr int kPerRow = L::kTileN / kVectorElems;
    float* const of_warps = shared + L::kSharedFloats;
    float* const of_blocks = of_warps + kTinyWarps<L> * L::kTileN;
#pragma unroll
    for (int lanes = kPerRow; lanes < 32; lanes *= 2) {
        own.x += __shfl_xor_sync(0xffffffffu, own.x, lanes);
        own.y += __shfl_xor_sync(0xffffffffu, own.y, lanes);
        own.z += __shfl_xor_sync(0xffffffffu, own.z, lanes);
        own.w += __shfl_xor_sync(0xffffffffu, own.w, lanes);
    }
    const int thread = static_cast<int>(threadIdx.x);
    const int column = thread * kVectorElems;
    if (thread % 32 < kPerRow) store_vector(of_warps + thread / 32 * L::kTileN + thread % 32 * kVectorElems, own);
    __syncthreads();
    if (thread < kPerRow) {
        own = load_vector(of_warps + column);
#pragma unroll
        for (int warp = 1; warp < kTinyWarps<L>; ++warp) own = add_quads(own, load_vector(of_warps + warp * L::kTileN + column));
        if (problem.cluster > 1) send_to_block(of_blocks + find_cluster_rank() * L::kTileN + column, &barriers->columns, 0, own);
    }
    if (problem.cluster > 1) {
        if (find_cluster_rank() > 0) return;
        wait_phase(&barriers->columns, 0);
    }
    const int num_valid = problem.dz.columns - work.origin.column - column;
    if (thread >= kPerRow || num_valid <= 0) return;
    if (problem.cluster > 1) {
        own = load_vector(of_blocks + column);
#pragma unroll 1
        for (int rank = 1; rank < problem.cluster; ++rank) own = add_quads(own, load_vector(of_blocks + rank * L::kTileN + column));
    }
    if (problem.partial_sums != nullptr) {
        float* const row = problem.partial_sums + static_cast<std::int64_t>(work.strip) * problem.dz.columns;
        store_quad(row + work.origin.column + column, own, num_valid, false);
    } else {
        store_quad(problem.dbias + work.origin.column + column, own, num_valid, false);
    }
}

template <class L, bool kIsNk>
__device__ __forceinline__ void make_tiny_act_grad(const TinyProblem<typename L::Element>& problem, const FfmaWork& work, float* shared,
                                                   TinyBarriers* barriers) {
    using Element = typename L::Element;
    const TinyProduct<Element>& dz = problem.dz;
    auto* const z_share = reinterpret_cast<Element*>(shared + kTinyZPlace<L>);
    const auto is_copied = [&](int column) { return dz.has_quads && dz.columns - column >= kVectorElems; };
    if (problem.z != nullptr) {
        // What each thread will want of z, on its way with the first stage of the ring: behind the products it would be waited for.
        visit_tiny_share<L>(dz, work, [&](TileOrigin place, int row, int column) {
            if (!is_copied(column)) return;
            constexpr int kBytes = kVectorElems * static_cast<int>(sizeof(Element));
            copy_async<kBytes>(z_share + place.row * L::kTileN + place.column, problem.z + row * problem.ldz + column);
        });
    }
    multiply_tiny_part<L, false, kIsNk>(dz, work, problem.cluster, shared, barriers);
    float4 columns = {0.0f, 0.0f, 0.0f, 0.0f};
    visit_tiny_share<L>(dz, work, [&](TileOrigin place, int row, int column) {
        const int num_valid = dz.columns - column;
        float4 sums = add_handed_sums<L>(shared, place.row, place.column, dz.splits);
        if (problem.z != nullptr) {
            const bool is_there = is_copied(column);
            const Element* const source =
                is_there ? z_share + place.row * L::kTileN + place.column : problem.z + row * problem.ldz + column;
            const float4 z = load_quad(source, num_valid, is_there);
            sums = pass_by_code(problem.act, sums, {{z.x, z.y, z.z, z.w}});
        }
        columns = add_quads(columns, sums);
        store_quad(dz.d + row * dz.ldd + column, sums, num_valid, dz.has_quads);
    });
    if (problem.dbias != nullptr) store_tiny_columns<L>(problem, work, shared, barriers, columns);
}

template <class L>
__device__ __forceinline__ void make_tiny_weight_grad(const TinyProduct<typename L::Element>& dw, const FfmaWork& work, int cluster,
                                                      float* shared, TinyBarriers* barriers) {
    multiply_tiny_part<L, true, true>(dw, work, cluster, shared, barriers);
    visit_tiny_share<L>(dw, work, [&](TileOrigin place, int row, int column) {
        float4 sums = add_handed_sums<L>(shared, place.row, place.column, dw.splits);
        typename L::Element* const target = dw.d + row * dw.ldd + column;
        const int num_valid = dw.columns - column;
        if (dw.is_added) sums = add_quads(sums, load_quad(target, num_valid, dw.has_quads));
        store_quad(target, sums, num_valid, dw.has_quads);
    });
}

// dZ[m, k] = (dY W') * act'(Z) with the sums of its columns, and dW = A' B of operands that both lie along the rows of dY.
template <class L, bool kIsNk>
__global__ void __launch_bounds__(L::kThreads, L::kMinBlocks) multiply_tiny(const TinyProblem<typename L::Element> problem) {
    extern __shared__ __align__(16) float tiny_shared[];
    __shared__ TinyBarriers barriers;
    allow_successor();
    if (problem.cluster > 1) {
        if (threadIdx.x == 0) {
            expect_sums(&barriers.sums, L::kHandedBytes);
            expect_sums(&barriers.columns, problem.cluster * L::kTileN * 4);
        }
        announce_to_cluster();
    }
    const int block = static_cast<int>(blockIdx.x);
    if (block < problem.num_dz_blocks) {
        const FfmaWork work = find_work<L, 1>(problem.dz, block, problem.cluster);
        wait_for_predecessor();
        make_tiny_act_grad<L, kIsNk>(problem, work, tiny_shared, &barriers);
    } else {
        const FfmaWork work = find_work<L, 1>(problem.dw, block - problem.num_dz_blocks, problem.cluster);
        wait_for_predecessor();
        make_tiny_weight_grad<L>(problem.dw, work, problem.cluster, tiny_shared, &barriers);
    }
}

}  // namespace aicf::gemm_backward

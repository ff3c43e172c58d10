// fp32 in one launch: tiles of dZ and of dW, neither of which needs the other, are blocks of one grid. The blocks of a cluster (sm_90)
// share the k of a tile where tiles are few, and those of dZ lie one below the other, so that their column sums meet in shared memory:
// where a cluster has all rows, dbias needs no second launch.
#pragma once

#include <cstdint>

#include "common/activation_slopes.cuh"
#include "common/cluster.cuh"
#include "common/elements.cuh"
#include "common/ffma_pipeline.cuh"
#include "common/programmatic.cuh"

namespace aicf::gemm_backward {

// One product D[rows, columns] = A B over k. Sizes fit an int (checked by the launcher), offsets are taken in 64 bits.
struct FfmaProduct {
    FfmaOperand a, b;
    float* d;
    std::int64_t ldd;
    int rows, columns, k;
    int splits;       // blocks that share the k of a tile: neighbours in a cluster, whose size is a multiple
    int strips;       // clusters that lie one below the other; each has cluster / splits tiles, of the same columns
    bool is_added;     // to what d has
    bool has_vectors;  // rows of d, and of z, start on 16-byte boundaries
};

struct FfmaProblem {
    FfmaProduct dz, dw;
    int num_dz_blocks;  // the first of the grid; those of dw follow
    int cluster;        // blocks
    // Of dZ alone:
    const float* z;  // [dz.rows, dz.columns], row stride ldz, or null
    std::int64_t ldz;
    int act;
    float* column_sums;  // [dz.strips, dz.columns], which is dbias where there is one strip; or null
};

// A block's place: its tile, and which part of the tile's k, and of its rows in the end, it takes.
struct FfmaWork {
    TileOrigin origin;  // a row of product.rows or more: none
    int strip, part, first_rank;
};

template <class L, int kGroup, class Product>
__device__ __forceinline__ FfmaWork find_work(const Product& product, int block, int cluster) {
    const int rank = block % cluster;
    const TileOrigin place = find_tile<1, 1, kGroup>(product.strips, divide_up(product.columns, L::kTileN), block / cluster);
    const int row = place.row * (cluster / product.splits) + rank / product.splits;
    return {{row * L::kTileM, place.column * L::kTileN}, place.row, rank % product.splits, rank / product.splits * product.splits};
}

// Waits for all blocks of the cluster, or of this one alone.
__device__ __forceinline__ void sync_blocks(int count) {
    if (count > 1) {
        sync_cluster();
    } else {
        __syncthreads();
    }
}

// The sums of this block's part of the tile's k, staged in shared memory. All blocks that share the tile have theirs behind the next
// barrier.
template <class L, bool kAlongA, bool kAlongB>
__device__ __forceinline__ void multiply_part(const FfmaProduct& product, const FfmaWork& work, float* shared) {
    if (work.origin.row >= product.rows) return;
    const int steps = divide_up(product.k, L::kTileK);
    const auto find_begin = [&](int part) {
        return static_cast<int>(static_cast<std::int64_t>(steps) * part / product.splits) * L::kTileK;
    };
    float sums[L::kThreadM][L::kThreadN] = {};
    multiply_ffma_tile<L, kAlongA, kAlongB>(sums, shared, product.a, product.b, product.rows, product.columns, find_begin(work.part),
                                            min(find_begin(work.part + 1), product.k), work.origin);
    stage_ffma_sums<L>(sums, shared);
}

// Calls `use(row, column, four sums)` for this block's share of the tile, rows of D that follow each other; `column` is this thread's own,
// and inside of D.
template <class L, class Use>
__device__ __forceinline__ void visit_share(const FfmaProduct& product, const FfmaWork& work, const float* shared, Use use) {
    constexpr int kPerRow = L::kTileN / kVectorElems;
    constexpr int kRowsAtOnce = L::kThreads / kPerRow;
    static_assert(L::kThreads % kPerRow == 0, "a thread keeps its columns");
    const int column = static_cast<int>(threadIdx.x) % kPerRow * kVectorElems;
    if (work.origin.column + column >= product.columns) return;
    const int end = min(L::kTileM * (work.part + 1) / product.splits, product.rows - work.origin.row);
    for (int row = L::kTileM * work.part / product.splits + static_cast<int>(threadIdx.x) / kPerRow; row < end; row += kRowsAtOnce) {
        const float4 sums = add_ffma_parts<L>(shared, row * L::kTileN + column, work.first_rank, product.splits);
        use(work.origin.row + row, work.origin.column + column, sums);
    }
}

// Of four neighbouring elements the first `num_valid`.
__device__ __forceinline__ void store_four(float* target, const float4& values, int num_valid, bool has_vectors) {
    store_pack_part<float>(target, {{values.x, values.y, values.z, values.w}}, num_valid, has_vectors);
}

template <int kAct>
__device__ __forceinline__ float4 pass_four(const float4& gradients, const Pack<float>& z) {
    return {pass_gradient<kAct>(gradients.x, z.values[0]), pass_gradient<kAct>(gradients.y, z.values[1]),
            pass_gradient<kAct>(gradients.z, z.values[2]), pass_gradient<kAct>(gradients.w, z.values[3])};
}

__device__ __forceinline__ float4 pass_by_code(int act, const float4& gradients, const Pack<float>& z) {
    switch (act) {
        case AICF_ACT_RELU: return pass_four<AICF_ACT_RELU>(gradients, z);
        case AICF_ACT_GELU_TANH: return pass_four<AICF_ACT_GELU_TANH>(gradients, z);
        case AICF_ACT_GELU_ERF: return pass_four<AICF_ACT_GELU_ERF>(gradients, z);
        case AICF_ACT_SILU: return pass_four<AICF_ACT_SILU>(gradients, z);
        default: return gradients;
    }
}

// Adds the threads' sums of columns, of this block, then of the cluster, in order of rank; `sums` is shared memory of four floats a thread.
template <class L>
__device__ __forceinline__ void store_column_sums(const FfmaProblem& problem, const FfmaWork& work, float* sums, const float4& own) {
    constexpr int kRowsAtOnce = L::kThreads * kVectorElems / L::kTileN;
    store_vector(sums + static_cast<int>(threadIdx.x) * kVectorElems, own);
    __syncthreads();
    for (int column = static_cast<int>(threadIdx.x); column < L::kTileN; column += L::kThreads) {
        float sum = sums[column];
#pragma unroll 4
        for (int row = 1; row < kRowsAtOnce; ++row) sum += sums[row * L::kTileN + column];
        sums[column] = sum;
    }
    sync_blocks(problem.cluster);
    const int column = static_cast<int>(threadIdx.x) * kVectorElems;
    if ((problem.cluster == 1 || find_cluster_rank() == 0) && column < L::kTileN && work.origin.column + column < problem.dz.columns) {
        float4 total = load_vector(sums + column);
        for (int rank = 1; rank < problem.cluster; ++rank) {
            const float4 part = load_from_block(sums + column, static_cast<std::uint32_t>(rank));
            total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
        }
        float* row = problem.column_sums + static_cast<std::int64_t>(work.strip) * problem.dz.columns;
        store_four(row + work.origin.column + column, total, problem.dz.columns - work.origin.column - column, false);
    }
}

template <class L, bool kIsNk>
__device__ __forceinline__ void make_act_grad(const FfmaProblem& problem, const FfmaWork& work, float* shared) {
    const FfmaProduct& dz = problem.dz;
    multiply_part<L, false, kIsNk>(dz, work, shared);
    sync_blocks(dz.splits);
    float4 columns = {0.0f, 0.0f, 0.0f, 0.0f};
    visit_share<L>(dz, work, shared, [&](int row, int column, float4 sums) {
        if (problem.z != nullptr) {
            sums = pass_by_code(problem.act, sums,
                                load_pack_or(problem.z + row * problem.ldz + column, dz.columns - column, dz.has_vectors, 0.0f));
        }
        columns = {columns.x + sums.x, columns.y + sums.y, columns.z + sums.z, columns.w + sums.w};
        store_four(dz.d + row * dz.ldd + column, sums, dz.columns - column, dz.has_vectors);
    });
    if (problem.column_sums != nullptr) store_column_sums<L>(problem, work, shared + L::kSharedElems, columns);
}

// Of four neighbouring elements the first `num_valid`: stored, or added to what is there.
__device__ __forceinline__ void store_weight_grad(float* target, float4 sums, int num_valid, bool is_aligned, bool is_added) {
    if (is_added) {
        const Pack<float> before = load_pack_or(target, num_valid, is_aligned, 0.0f);
        sums = {sums.x + before.values[0], sums.y + before.values[1], sums.z + before.values[2], sums.w + before.values[3]};
    }
    store_four(target, sums, num_valid, is_aligned);
}

template <class L>
__device__ __forceinline__ void make_weight_grad(const FfmaProduct& dw, const FfmaWork& work, float* shared) {
    multiply_part<L, true, true>(dw, work, shared);
    sync_blocks(dw.splits);
    visit_share<L>(dw, work, shared, [&](int row, int column, float4 sums) {
        store_weight_grad(dw.d + row * dw.ldd + column, sums, dw.columns - column, dw.has_vectors, dw.is_added);
    });
}

template <class L>
inline constexpr int kFfmaSharedBytes = (L::kSharedElems + L::kThreads * kVectorElems) * static_cast<int>(sizeof(float));

// dZ[m, k] = (dY[m, n] W') * act'(Z) with the sums of its columns, and dW = A' B of operands that both lie along the rows of dY.
template <class L, bool kIsNk, int kGroup, int kMinBlocks>
__global__ void __launch_bounds__(L::kThreads, kMinBlocks) multiply_ffma(const FfmaProblem problem) {
    extern __shared__ __align__(16) float ffma_shared[];
    allow_successor();
    wait_for_predecessor();
    const int block = static_cast<int>(blockIdx.x);
    if (block < problem.num_dz_blocks) {
        make_act_grad<L, kIsNk>(problem, find_work<L, kGroup>(problem.dz, block, problem.cluster), ffma_shared);
    } else {
        make_weight_grad<L>(problem.dw, find_work<L, kGroup>(problem.dw, block - problem.num_dz_blocks, problem.cluster), ffma_shared);
    }
    // No block may leave while another reads its sums.
    if (problem.cluster > 1) sync_cluster();
}

}  // namespace aicf::gemm_backward

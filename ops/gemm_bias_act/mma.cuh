// The kernel for 16-bit floats on any GPU from sm_80 up, any sizes, any alignment: mma.sync on tiles that cp.async brings.
#pragma once

#include <cstdint>

#include "common/activations.cuh"
#include "common/async_copy.cuh"
#include "common/half_types.cuh"
#include "common/mma.cuh"
#include "gemm_bias_act/tiles.cuh"

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
};

// Shapes and places in shared memory. Tiles of A are [bm, 64], of B [bn, 64] or [64, bn], in chunks of 8 elements whose place in a row is
// exclusive-ored with the row's number: the 8 rows that one phase of ldmatrix reads then lie in different banks.
template <int kTileM, int kTileN, int kWarpM, int kWarpN, int kNumStages>
struct MmaLayout {
    static constexpr int kTileK = 64;
    static constexpr int kChunkElems = 8;
    static constexpr int kThreads = kTileM / kWarpM * (kTileN / kWarpN) * 32;
    static constexpr int kElemsA = kTileM * kTileK;
    static constexpr int kElemsB = kTileN * kTileK;
    static constexpr int kSharedBytes = kNumStages * (kElemsA + kElemsB) * 2;
    static_assert(kTileN % kTileK == 0 && kWarpM % 16 == 0 && kWarpN % 16 == 0, "rows of 8 chunks at least, fragments of 16 x 16");
};

// Element offset of a chunk in a swizzled tile with kColumns columns.
template <int kColumns>
__device__ __forceinline__ int find_chunk(int row, int chunk) {
    return row * kColumns + (chunk ^ row % 8) * 8;
}

// Copies the kRows x kColumns tile at (row0, column0) of a matrix into a swizzled tile, zeros outside of the matrix. Where rows are not on
// 16-byte boundaries the elements come one by one, through registers; both are complete behind the caller's wait and barrier.
template <int kRows, int kColumns, int kThreads, class Element>
__device__ __forceinline__ void copy_tile(Element* target, const Element* matrix, std::int64_t stride, int rows, int columns, int row0,
                                          int column0, bool has_chunks) {
    constexpr int kPerRow = kColumns / 8;
    constexpr int kChunks = kRows * kPerRow;
    static_assert(kChunks % kThreads == 0, "every thread copies the same number of chunks");
#pragma unroll
    for (int i = 0; i < kChunks / kThreads; ++i) {
        const int index = i * kThreads + static_cast<int>(threadIdx.x);
        const int row = index / kPerRow;
        const int chunk = index % kPerRow;
        const int left = row0 + row < rows ? min(max(columns - (column0 + chunk * 8), 0), 8) : 0;
        // What is copied in no part points at the first element, which is there.
        const Element* source = left > 0 ? matrix + (row0 + row) * stride + column0 + chunk * 8 : matrix;
        Element* place = target + find_chunk<kColumns>(row, chunk);
        if (has_chunks) {
            copy_async<16>(place, source, left * 2);
            continue;
        }
        std::uint32_t words[4] = {};
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            if (j < left) words[j / 2] |= static_cast<std::uint32_t>(source[j].bits) << 16 * (j % 2);
        }
        *reinterpret_cast<uint4*>(place) = {words[0], words[1], words[2], words[3]};
    }
}

// Adds the products of one tile in shared memory to a warp's sums.
template <class Element, bool kTransposedB, int kTileN, int kBlocksM, int kBlocksN>
__device__ __forceinline__ void multiply_fragments(float (&sums)[kBlocksM][kBlocksN][4], const Element* tile_a, const Element* tile_b,
                                                   int warp_row, int warp_column) {
    constexpr int kTileK = 64;
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int step = 0; step < kTileK / 16; ++step) {
        std::uint32_t a[kBlocksM][4];
        std::uint32_t b[kBlocksN / 2][4];
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) {
            const int row = warp_row + i * 16 + lane % 16;
            load_matrices(a[i], find_shared_address(tile_a + find_chunk<kTileK>(row, 2 * step + lane / 16)));
        }
#pragma unroll
        for (int j = 0; j < kBlocksN / 2; ++j) {
            const int column = warp_column + j * 16;
            // Words 0, 1 are the two halves of k for the first 8 columns, 2, 3 for the next.
            if constexpr (kTransposedB) {
                const int k = step * 16 + lane / 8 % 2 * 8 + lane % 8;
                load_matrices_transposed(b[j], find_shared_address(tile_b + find_chunk<kTileN>(k, column / 8 + lane / 16)));
            } else {
                const int row = column + lane / 16 * 8 + lane % 8;
                load_matrices(b[j], find_shared_address(tile_b + find_chunk<kTileK>(row, 2 * step + lane / 8 % 2)));
            }
        }
#pragma unroll
        for (int i = 0; i < kBlocksM; ++i) {
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j) multiply_warp<Element>(sums[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }
}

// Stores a pair of neighbouring columns, or what of it lies in the matrix.
template <class Element>
__device__ __forceinline__ void store_pair(Element* row, int column, int num_columns, bool has_pairs, float first, float second) {
    if (has_pairs && column + 1 < num_columns) {
        *reinterpret_cast<std::uint32_t*>(row + column) = pack_pair<Element>(first, second);
        return;
    }
    if (column < num_columns) row[column] = from_float<Element>(first);
    if (column + 1 < num_columns) row[column + 1] = from_float<Element>(second);
}

template <int kAct, int kBlocksM, int kBlocksN>
__device__ __forceinline__ void activate_sums(float (&sums)[kBlocksM][kBlocksN][4]) {
#pragma unroll
    for (int i = 0; i < kBlocksM * kBlocksN * 4; ++i) {
        float& sum = sums[i / (4 * kBlocksN)][i / 4 % kBlocksN][i % 4];
        sum = apply_rough_activation<kAct>(sum);
    }
}

// Calls `use(row, column, sums of the pair)` for each pair of a warp's sums that begins inside the matrix.
template <int kBlocksM, int kBlocksN, class Use>
__device__ __forceinline__ void visit_pairs(float (&sums)[kBlocksM][kBlocksN][4], int first_row, int first_column, int rows, int columns,
                                            Use use) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int i = 0; i < kBlocksM; ++i) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + i * 16 + half * 8 + lane / 4;
            if (row >= rows) continue;
#pragma unroll
            for (int j = 0; j < kBlocksN; ++j) {
                const int column = first_column + j * 8 + lane % 4 * 2;
                if (column < columns) use(row, column, sums[i][j][2 * half], sums[i][j][2 * half + 1]);
            }
        }
    }
}

// Y[m, n] = act(A[m, k] B + bias[n]), Z the same before act. B is [k, n] where kTransposedB, else [n, k].
template <class Element, bool kTransposedB, int kTileM, int kTileN, int kWarpM, int kWarpN, int kNumStages, int kGroup>
__global__ void __launch_bounds__((MmaLayout<kTileM, kTileN, kWarpM, kWarpN, kNumStages>::kThreads))
    multiply_mma(const HalfGemm<Element> gemm) {
    using L = MmaLayout<kTileM, kTileN, kWarpM, kWarpN, kNumStages>;
    extern __shared__ __align__(128) unsigned char mma_shared[];
    auto* tiles = reinterpret_cast<Element*>(mma_shared);
    const TileOrigin origin = find_tile<kTileM, kTileN, kGroup>(gemm.m, gemm.n);
    const int num_steps = divide_up(gemm.k, L::kTileK);
    const auto copy_step = [&](int step) {
        Element* tile_a = tiles + step % kNumStages * (L::kElemsA + L::kElemsB);
        Element* tile_b = tile_a + L::kElemsA;
        const int k = step * L::kTileK;
        copy_tile<kTileM, L::kTileK, L::kThreads>(tile_a, gemm.a, gemm.lda, gemm.m, gemm.k, origin.row, k, gemm.has_chunks_a);
        if constexpr (kTransposedB) {
            copy_tile<L::kTileK, kTileN, L::kThreads>(tile_b, gemm.b, gemm.ldb, gemm.k, gemm.n, k, origin.column, gemm.has_chunks_b);
        } else {
            copy_tile<kTileN, L::kTileK, L::kThreads>(tile_b, gemm.b, gemm.ldb, gemm.n, gemm.k, origin.column, k, gemm.has_chunks_b);
        }
    };
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int warp_row = warp / (kTileN / kWarpN) * kWarpM;
    const int warp_column = warp % (kTileN / kWarpN) * kWarpN;
    float sums[kWarpM / 16][kWarpN / 8][4] = {};
#pragma unroll
    for (int step = 0; step < kNumStages - 1; ++step) {
        if (step < num_steps) copy_step(step);
        commit_copies();
    }
    for (int step = 0; step < num_steps; ++step) {
        wait_copies<kNumStages - 2>();
        __syncthreads();
        // Into the slot that all warps left before this barrier.
        if (step + kNumStages - 1 < num_steps) copy_step(step + kNumStages - 1);
        commit_copies();
        const Element* tile_a = tiles + step % kNumStages * (L::kElemsA + L::kElemsB);
        multiply_fragments<Element, kTransposedB, kTileN>(sums, tile_a, tile_a + L::kElemsA, warp_row, warp_column);
    }

    const int first_row = origin.row + warp_row;
    const int first_column = origin.column + warp_column;
    visit_pairs(sums, first_row, first_column, gemm.m, gemm.n, [&](int row, int column, float& first, float& second) {
        if (gemm.bias != nullptr) {
            first += to_float(gemm.bias[column]);
            if (column + 1 < gemm.n) second += to_float(gemm.bias[column + 1]);
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
        store_pair(gemm.y + row * gemm.ldy, column, gemm.n, gemm.has_pairs, first, second);
    });
}

}  // namespace aicf::gemm_bias_act

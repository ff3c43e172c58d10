// The main loop for 16-bit floats on any GPU from sm_80 up, D = A B with fp32 sums: mma.sync on tiles that cp.async brings, any sizes, any
// alignment. An operand lies along k ([m, k], [n, k]) or is transposed ([k, m], [k, n]).
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/half_types.cuh"
#include "common/mma.cuh"
#include "common/tile_grid.cuh"

namespace aicf {

// Shapes and places in shared memory. Tiles are [bm, 64] and [bn, 64], or [64, bm] and [64, bn] of transposed operands, in chunks of 8
// elements whose place in a row is exclusive-ored with the row's number: the 8 rows that one phase of ldmatrix reads then lie in different
// banks.
template <int kBlockM, int kBlockN, int kPerWarpM, int kPerWarpN, int kStages>
struct MmaLayout {
    static constexpr int kTileM = kBlockM, kTileN = kBlockN, kWarpM = kPerWarpM, kWarpN = kPerWarpN, kNumStages = kStages;
    static constexpr int kTileK = 64;
    static constexpr int kChunkElems = 8;
    static constexpr int kThreads = kTileM / kWarpM * (kTileN / kWarpN) * 32;
    static constexpr int kElemsA = kTileM * kTileK;
    static constexpr int kElemsB = kTileN * kTileK;
    static constexpr int kSharedBytes = kNumStages * (kElemsA + kElemsB) * 2;
    static_assert(kTileM % kTileK == 0 && kTileN % kTileK == 0 && kWarpM % 16 == 0 && kWarpN % 16 == 0,
                  "rows of 8 chunks at least, fragments of 16 x 16");
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

// One operand: [rows of D, k] or [k, rows of D] where transposed, with columns of D for rows in case of B.
template <class Element>
struct MmaOperand {
    const Element* base;
    std::int64_t stride;  // elements from row to row
    bool has_chunks;      // rows start on 16-byte boundaries
};

// Adds the products of one tile in shared memory to a warp's sums.
template <class Element, bool kTransposedA, bool kTransposedB, int kTileM, int kTileN, int kBlocksM, int kBlocksN>
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
            const int row = warp_row + i * 16;
            if constexpr (kTransposedA) {
                const int k = step * 16 + lane / 16 * 8 + lane % 8;
                load_matrices_transposed(a[i], find_shared_address(tile_a + find_chunk<kTileM>(k, row / 8 + lane / 8 % 2)));
            } else {
                load_matrices(a[i], find_shared_address(tile_a + find_chunk<kTileK>(row + lane % 16, 2 * step + lane / 16)));
            }
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

// The first row and column of this warp's part of its block's tile.
template <class L>
__device__ __forceinline__ TileOrigin find_warp_part() {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    return {warp / (L::kTileN / L::kWarpN) * L::kWarpM, warp % (L::kTileN / L::kWarpN) * L::kWarpN};
}

// The products of the block's tile at `origin` of D[m, n] = A B, all steps of k; each warp gets the sums of its part. L is an MmaLayout.
template <class Element, class L, bool kTransposedA, bool kTransposedB>
__device__ __forceinline__ void multiply_block_tile(float (&sums)[L::kWarpM / 16][L::kWarpN / 8][4], void* shared,
                                                    const MmaOperand<Element>& a, const MmaOperand<Element>& b, int m, int n, int k,
                                                    const TileOrigin& origin) {
    auto* tiles = static_cast<Element*>(shared);
    const int num_steps = divide_up(k, L::kTileK);
    const auto copy_step = [&](int step) {
        Element* tile_a = tiles + step % L::kNumStages * (L::kElemsA + L::kElemsB);
        Element* tile_b = tile_a + L::kElemsA;
        const int first_k = step * L::kTileK;
        if constexpr (kTransposedA) {
            copy_tile<L::kTileK, L::kTileM, L::kThreads>(tile_a, a.base, a.stride, k, m, first_k, origin.row, a.has_chunks);
        } else {
            copy_tile<L::kTileM, L::kTileK, L::kThreads>(tile_a, a.base, a.stride, m, k, origin.row, first_k, a.has_chunks);
        }
        if constexpr (kTransposedB) {
            copy_tile<L::kTileK, L::kTileN, L::kThreads>(tile_b, b.base, b.stride, k, n, first_k, origin.column, b.has_chunks);
        } else {
            copy_tile<L::kTileN, L::kTileK, L::kThreads>(tile_b, b.base, b.stride, n, k, origin.column, first_k, b.has_chunks);
        }
    };
    const TileOrigin part = find_warp_part<L>();
#pragma unroll
    for (int step = 0; step < L::kNumStages - 1; ++step) {
        if (step < num_steps) copy_step(step);
        commit_copies();
    }
    for (int step = 0; step < num_steps; ++step) {
        wait_copies<L::kNumStages - 2>();
        __syncthreads();
        // Into the slot that all warps left before this barrier.
        if (step + L::kNumStages - 1 < num_steps) copy_step(step + L::kNumStages - 1);
        commit_copies();
        const Element* tile_a = tiles + step % L::kNumStages * (L::kElemsA + L::kElemsB);
        multiply_fragments<Element, kTransposedA, kTransposedB, L::kTileM, L::kTileN>(sums, tile_a, tile_a + L::kElemsA, part.row,
                                                                                      part.column);
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

}  // namespace aicf

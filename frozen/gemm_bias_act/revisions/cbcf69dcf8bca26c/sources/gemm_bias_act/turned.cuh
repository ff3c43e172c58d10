// The Hopper kernel for tens to hundreds of rows of A: operands change places. Columns of Y are the rows of wgmma's D, 64 to a warp group
// and block, and rows of Y its columns, in groups of 8: tens of rows are padded to the next 8, 16 or 32 and not to 64, and B, which is most
// of the bytes, is read once. The steps of k of all tiles are dealt out evenly (stream-K), so that every multiprocessor has its share of B
// whatever the number of tiles. Tiles of D leave transposed, through shared memory, by ordinary stores: rows of Y may begin anywhere.
#pragma once

#include <cstdint>

#include "common/activations.cuh"
#include "common/split_order.cuh"
#include "common/turned_tiles.cuh"
#include "common/wgmma_pipeline.cuh"
#include "gemm_bias_act/outputs.cuh"
#include "gemm_bias_act/wgmma.cuh"

namespace aicf::gemm_bias_act {

// Shared memory of a warp group beside the ring: parts of Y on their way out, and the bias of its columns.
template <int kBlocks, int kGroups, int kItemBytes>
struct TurnedStage : TurnedPart<kItemBytes> {
    using Part = TurnedPart<kItemBytes>;
    static constexpr int kGroupBytes = Part::kCopies * Part::kBytes + kBlocks * Part::kColumns * static_cast<int>(sizeof(float));
    static constexpr int kAllBytes = kGroups * kGroupBytes;
};

// Y = act(D' + bias + residual), and Z the same before act. T's rows are columns of Y.
//
// What is done to an element stands once in the code, in a loop over parts of the tile; only the way to registers that all parts use, from
// those of the products, which have no index at run time, is different code for each part. Written out for all parts it is 100 KB, most of
// which is jumped over, and fetching it from cold memory takes several times as long as running it.
template <class Element, class T>
struct TurnedEpilogue {
    using L = WgmmaLayout<T>;
    using Stage = TurnedStage<L::kBlocksM, T::groups, T::item_bytes>;
    using Sums = TurnedSums<T, T::item_bytes>;
    static constexpr int kSums = Stage::kSums;
    static constexpr int kGroupBarrier = 1;  // and the next: of one warp group

    const OutputProblem& problem;
    const TileGrid& tiles;
    std::uint8_t* stage;  // this warp group's
    int next = 0;  // copy of it

    __device__ __forceinline__ TurnedEpilogue(const OutputProblem& of, const TileGrid& grid, std::uint8_t* shared)
        : problem(of), tiles(grid), stage(shared + L::kEpilogueOffset + find_consumer() * Stage::kGroupBytes) {}

    // A thread's number in its group, found where it is wanted if registers are few: what follows from it would take some beside the
    // products.
    __device__ static __forceinline__ int find_thread() {
        const int thread = find_group_thread();
        return T::pingpong || T::groups > 2 ? compute_here(thread) : thread;
    }

    // Of this warp's 16 columns in each block.
    __device__ __forceinline__ float* find_bias(int thread) const {
        return reinterpret_cast<float*>(stage + Stage::kCopies * Stage::kBytes) + thread / 32 * (L::kBlocksM * 16);
    }

    // The bias is in shared memory before the products, which are waited for anyway.
    __device__ __forceinline__ void begin(const TileWork& tile) {
        const int thread = find_thread();
        const int lane = thread % 32;
        float* const bias = find_bias(thread);
        __syncwarp();  // the last tile's bias has been read
#pragma unroll
        for (int i = 0; i < L::kBlocksM * 16; i += 32) {
            const int place = i + lane;
            if (place >= L::kBlocksM * 16) break;
            const int column = tile.row + place / 16 * Stage::kColumns + thread / 32 * 16 + place % 16;
            const bool has_bias = problem.bias != nullptr && column < problem.n;
            bias[place] = has_bias ? read_element<Element>(problem.bias, column) : 0.0f;
        }
        __syncwarp();
    }

    __device__ __forceinline__ void end() const {}

    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
        const int thread = find_thread();
        const float* const bias = find_bias(thread) + thread % 32 / 4;
        const int rows = min(problem.m - tile.column, T::count_columns(tiles));
        const int num_parts = (rows + Stage::kRows - 1) / Stage::kRows;
#pragma unroll 1
        for (int block = 0; block < L::kBlocksM; ++block) {
            const float addends[2] = {bias[block * 16], bias[block * 16 + 8]};
            const int column = tile.row + block * Stage::kColumns;
#pragma unroll 1
            for (int part = 0; part < num_parts; ++part) {
                float z[kSums];
                visit_number<0, L::kBlocksM * Sums::kParts>(block * Sums::kParts + part,
                                                            [&](auto number) { Sums::template take<number.value>(sums, z); });
#pragma unroll
                for (int i = 0; i < kSums; ++i) z[i] += addends[i % 4 / 2];
                const int row = tile.column + part * Stage::kRows;
                const int num_rows = rows - part * Stage::kRows;
                if (problem.residual != nullptr) add_residual(z, thread, row, num_rows, column);
                if (problem.z != nullptr) store(problem.z, problem.ldz, z, thread, row, num_rows, column);
                activate_slab<kSums>(problem.act, z);
                store(problem.y, problem.ldy, z, thread, row, num_rows, column);
            }
        }
    }

    // To this thread's elements of a part whose first row and column are given, and of whose rows num_rows are there.
    __device__ __forceinline__ void add_residual(float (&z)[kSums], int thread, int first_row, int num_rows, int first_column) const {
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
            const int row = Stage::find_row(thread % 32, i);
            const int column = first_column + Stage::find_column(thread, i);
            if (row >= num_rows || column >= problem.n) continue;
            z[i] += read_element<Element>(problem.residual, (first_row + row) * problem.ldresidual + column);
        }
    }

    // The same part to a matrix, by way of shared memory: a row of the part is a line of memory.
    __device__ __forceinline__ void store(void* target, std::int64_t stride, const float (&z)[kSums], int thread, int first_row,
                                          int num_rows, int first_column) {
        std::uint8_t* const own = stage + next * Stage::kBytes;
        if constexpr (Stage::kCopies == 1) {
            sync_named<kWarpGroupThreads>(kGroupBarrier + find_consumer());  // the last part has been read
        } else {
            next ^= 1;
        }
        turn_part<Element, T::item_bytes>(own, thread, z);
        sync_named<kWarpGroupThreads>(kGroupBarrier + find_consumer());
        store_part_rows<T::item_bytes>(own, thread, target, stride, problem.n, problem.has_chunks, first_row, num_rows, first_column);
    }
};

// Y[m, n] = act(A[m, k] B + bias[n] + residual[m, n]), Z the same before act, as D = B' A' with k split. B is [k, n] where kTransposedB,
// else [n, k].
template <class Element, class T, bool kTransposedB, class Grid>
__device__ __forceinline__ void multiply_turned_tiles(const TensorMap* map_b, const TensorMap* map_a, const OutputProblem& problem,
                                                      const Grid& grid) {
    extern __shared__ __align__(1024) std::uint8_t wgmma_shared[];
    std::uint8_t* const shared = wgmma_shared;
    using Epilogue = TurnedEpilogue<Element, T>;
    multiply_tiles<Element, T, kTransposedB, false, SplitOrder>(
        map_b, map_a, grid, shared, [&] { return PartsEpilogue<T, true, Epilogue>{grid, Epilogue(problem, grid, shared)}; });
}

template <class Element, class T, bool kTransposedB>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_turned(const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_a, const OutputProblem problem,
                    const SplitGrid grid) {
    multiply_turned_tiles<Element, T, kTransposedB>(&map_b, &map_a, problem, grid);
}

// With tiles of as many rows of Y as divide them evenly.
template <class Element, class T, bool kTransposedB>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_turned_evenly(const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_a,
                           const OutputProblem problem, const EvenSplitGrid grid) {
    multiply_turned_tiles<Element, T, kTransposedB>(&map_b, &map_a, problem, grid);
}

// Adds up the parts of split tiles to Y and Z, whose rows are the columns of D where kTurned.
template <class Element, class T, bool kTurned>
__device__ __forceinline__ void add_parts_of(const OutputProblem& problem, const SplitGrid& grid) {
    allow_successor();
    wait_for_predecessor();
    add_parts<T, kTurned>(grid, [&](int row, int column, const float4& sums) {
        if (row >= problem.m || column >= problem.n) return;
        float z[4] = {sums.x, sums.y, sums.z, sums.w};
        if (problem.bias != nullptr) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (column + i < problem.n) z[i] += read_element<Element>(problem.bias, column + i);
            }
        }
        finish_four<Element>(problem, row, column, z);
    });
}

// Grid: (blocks of split tiles, count_add_blocks).
template <class Element, class T, bool kTurned>
__global__ void __launch_bounds__(kAddThreads) add_split_parts(const OutputProblem problem, const SplitGrid grid) {
    add_parts_of<Element, T, kTurned>(problem, grid);
}

template <class Element, class T>
__global__ void __launch_bounds__(kAddThreads) add_even_parts(const OutputProblem problem, const EvenSplitGrid grid) {
    add_parts_of<Element, T, true>(problem, grid);
}

}  // namespace aicf::gemm_bias_act

// The Hopper kernel for tens to hundreds of rows of A: operands change places. Columns of Y are the rows of wgmma's D, 64 to a warp group
// and block, and rows of Y its columns, in groups of 8: tens of rows are padded to the next 8, 16 or 32 and not to 64, and B, which is most
// of the bytes, is read once. The steps of k of all tiles are dealt out evenly (stream-K), so that every multiprocessor has its share of B
// whatever the number of tiles. Tiles of D leave transposed, through shared memory, by ordinary stores: rows of Y may begin anywhere.
#pragma once

#include <cstdint>

#include "common/activations.cuh"
#include "common/split_order.cuh"
#include "common/store_rounded.cuh"
#include "common/wgmma_pipeline.cuh"
#include "gemm_bias_act/wgmma.cuh"

namespace aicf::gemm_bias_act {

// What a warp has on its way out at a time: fp32 sums of 32 rows of Y by 16 columns, beside the bias of its columns. With this pitch the 8
// columns by 4 pairs of rows that a warp writes at once lie in different banks, and so do the rows of four columns that 8 lanes read.
template <int kBlocks, int kGroups>
struct TurnedStage {
    static constexpr int kRows = 32;
    static constexpr int kColumns = 16;
    static constexpr int kPitch = kColumns + 4;
    static constexpr int kFloats = kRows * kPitch;
    static constexpr int kWarpFloats = kFloats + kBlocks * kColumns;
    static constexpr int kAllBytes = kGroups * 4 * kWarpFloats * static_cast<int>(sizeof(float));
};

// One problem, beside its tensor maps and its tiles.
struct OutputProblem {
    const void* bias;  // [n] or null
    void* y;  // [m, n], row stride ldy
    void* z;  // [m, n], row stride ldz, or null
    std::int64_t ldy, ldz;
    int m, n;
    int act;
    bool has_chunks;  // rows of y and z start on 16-byte boundaries
    const void* residual;  // [m, n], row stride ldresidual, or null
    std::int64_t ldresidual;
};

template <class Element>
__device__ __forceinline__ float read_element(const void* base, std::int64_t index) {
    return to_float(static_cast<const Element*>(base)[index]);
}

template <>
__device__ __forceinline__ float read_element<Tf32>(const void* base, std::int64_t index) {
    return static_cast<const float*>(base)[index];
}

// Four neighbouring columns of a row of D' + bias on their way to Y and Z: what is outside is left out.
template <class Element>
__device__ __forceinline__ void finish_four(const OutputProblem& problem, int row, int column, float (&z)[4]) {
    if (problem.residual != nullptr) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (column + i < problem.n) z[i] += read_element<Element>(problem.residual, row * problem.ldresidual + column + i);
        }
    }
    if (problem.z != nullptr) store_four_rounded<Element>(problem.z, problem.ldz, problem.n, problem.has_chunks, row, column, z);
    activate_slab<4>(problem.act, z);
    store_four_rounded<Element>(problem.y, problem.ldy, problem.n, problem.has_chunks, row, column, z);
}

// Y = act(D' + bias + residual), and Z the same before act. T's rows are columns of Y. Each warp is on its own.
//
// What is done to an element stands once in the code, in a loop over parts of the tile; only the way from registers, which have no index at
// run time, to shared memory is different code for each part. Written out for all parts it is 100 KB, most of which is jumped over, and
// fetching it from cold memory takes several times as long as running it.
template <class Element, class T>
struct TurnedEpilogue {
    using L = WgmmaLayout<T>;
    using Stage = TurnedStage<L::kBlocksM, T::groups>;
    static constexpr int kGroupColumns = 64;  // of a block of D, 16 a warp
    static constexpr int kParts = (T::bn + Stage::kRows - 1) / Stage::kRows;  // of a block

    const OutputProblem& problem;
    const TileGrid& tiles;
    float* stage;  // this warp's, then the bias of its columns

    __device__ __forceinline__ TurnedEpilogue(const OutputProblem& of, const TileGrid& grid, std::uint8_t* shared)
        : problem(of),
          tiles(grid),
          stage(reinterpret_cast<float*>(shared + L::kEpilogueOffset) + (find_consumer() * 4 + find_group_warp()) * Stage::kWarpFloats) {}

    // A thread's number, with T::pingpong found where it is wanted: what follows from it would take registers beside the products.
    __device__ static __forceinline__ int find_lane() {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        return T::pingpong ? compute_here(lane) : lane;
    }

    // The bias is in shared memory before the products, which are waited for anyway.
    __device__ __forceinline__ void begin(const TileWork& tile) {
        const int lane = find_lane();
        __syncwarp();  // the last tile's bias has been read
#pragma unroll
        for (int i = 0; i < L::kBlocksM * Stage::kColumns; i += 32) {
            const int place = i + lane;
            if (place >= L::kBlocksM * Stage::kColumns) break;
            const int column =
                tile.row + place / Stage::kColumns * kGroupColumns + find_group_warp() * Stage::kColumns + place % Stage::kColumns;
            const bool has_bias = problem.bias != nullptr && column < problem.n;
            stage[Stage::kFloats + place] = has_bias ? read_element<Element>(problem.bias, column) : 0.0f;
        }
    }

    __device__ __forceinline__ void end() const {}

    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
        const int lane = find_lane();
        // This lane's place among the sums of a part, and the four columns and every eighth row of it that it finishes.
        float* const own = stage + lane % 4 * 2 * Stage::kPitch + lane / 4;
        const int four = lane % 4 * 4;
        const int first_row = lane / 4 % 2 * 4 + lane / 8;
        const int rows = min(problem.m - tile.column, T::count_columns(tiles));
        const int num_parts = (rows + Stage::kRows - 1) / Stage::kRows;
#pragma unroll 1
        for (int block = 0; block < L::kBlocksM; ++block) {
            const int column = tile.row + block * kGroupColumns + find_group_warp() * Stage::kColumns + four;
#pragma unroll 1
            for (int part = 0; part < num_parts; ++part) {
                __syncwarp();  // the last part has been read
                visit_number<0, L::kBlocksM * kParts>(block * kParts + part, [&](auto number) { stage_part<number.value>(sums, own); });
                __syncwarp();
                const float4 bias = *reinterpret_cast<const float4*>(stage + Stage::kFloats + block * Stage::kColumns + four);
#pragma unroll
                for (int i = 0; i < Stage::kRows; i += 8) {
                    const int row = part * Stage::kRows + i + first_row;
                    if (row >= rows || column >= problem.n) continue;
                    const float4 sum = *reinterpret_cast<const float4*>(stage + (i + first_row) * Stage::kPitch + four);
                    float z[4] = {sum.x + bias.x, sum.y + bias.y, sum.z + bias.z, sum.w + bias.w};
                    finish_four<Element>(problem, tile.column + row, column, z);
                }
            }
        }
    }

    // A thread's sums of a part of the tile to their places: rows of D become columns.
    template <int kPart>
    __device__ __forceinline__ static void stage_part(const float (&sums)[L::kBlocksM][L::kSums], float* own) {
        constexpr int kSumsOfPart = Stage::kRows / 2;
        constexpr int kFrom = kPart % kParts * kSumsOfPart;
        constexpr int kCount = kFrom + kSumsOfPart <= L::kSums ? kSumsOfPart : L::kSums - kFrom;
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            own[(i / 4 * 8 + i % 2) * Stage::kPitch + i % 4 / 2 * 8] = sums[kPart / kParts][kFrom + i];
        }
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

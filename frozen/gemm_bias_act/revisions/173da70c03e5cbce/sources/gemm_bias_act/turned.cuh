// The Hopper kernel for tens to hundreds of rows of A: operands change places. Columns of Y are the rows of wgmma's D, 64 to a warp group
// and block, and rows of Y its columns, in groups of 8: tens of rows are padded to the next 8, 16 or 32 and not to 64, and B, which is most
// of the bytes, is read once. The steps of k of all tiles are dealt out evenly (stream-K), so that every multiprocessor has its share of B
// whatever the number of tiles. Tiles of D leave transposed, through shared memory, by ordinary stores: rows of Y may begin anywhere.
#pragma once

#include <cstdint>

#include "common/activations.cuh"
#include "common/split_order.cuh"
#include "common/wgmma_pipeline.cuh"
#include "gemm_bias_act/outputs.cuh"
#include "gemm_bias_act/wgmma.cuh"

namespace aicf::gemm_bias_act {

// What a warp group has on its way out at a time, beside the bias of its columns: 32 rows of Y by 64 columns, rounded. The next are written
// while slower warps read the last, where two of them are small.
template <int kBlocks, int kGroups, int kItemBytes>
struct TurnedStage {
    static constexpr int kRows = 32;
    static constexpr int kColumns = 64;
    static constexpr int kRowBytes = kColumns * kItemBytes;
    static constexpr int kBytes = kRows * kRowBytes;
    static constexpr int kCopies = kItemBytes == 2 ? 2 : 1;
    static constexpr int kGroupBytes = kCopies * kBytes + kBlocks * kColumns * static_cast<int>(sizeof(float));
    static constexpr int kAllBytes = kGroups * kGroupBytes;

    // Where 16 bytes lie: of a row's, those that a warp writes or reads at once are in different banks.
    __device__ static __forceinline__ int find_chunk(int row, int chunk) {
        return row * kRowBytes + (chunk ^ (kItemBytes == 2 ? row % 8 : row / 2 % 4 * 2)) * 16;
    }
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
    static constexpr bool kRounds = T::item_bytes == 2;
    using Output = std::conditional_t<kRounds, std::uint16_t, float>;  // an element's bits
    static constexpr int kParts = (T::bn + Stage::kRows - 1) / Stage::kRows;  // of a block
    static constexpr int kSums = Stage::kRows / 2;  // of a part, per thread: pairs of rows of Y, of two columns 8 apart
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
                visit_number<0, L::kBlocksM * kParts>(block * kParts + part, [&](auto number) { take_part<number.value>(sums, z); });
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

    template <int kPart>
    __device__ __forceinline__ static void take_part(const float (&sums)[L::kBlocksM][L::kSums], float (&part)[kSums]) {
        constexpr int kFrom = kPart % kParts * kSums;
        constexpr int kCount = kFrom + kSums <= L::kSums ? kSums : L::kSums - kFrom;
#pragma unroll
        for (int i = 0; i < kCount; ++i) part[i] = sums[kPart / kParts][kFrom + i];
    }

    // To this thread's elements of a part whose first row and column are given, and of whose rows num_rows are there.
    __device__ __forceinline__ void add_residual(float (&z)[kSums], int thread, int first_row, int num_rows, int first_column) const {
        const int lane = thread % 32;
        const int column = first_column + thread / 32 * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
            const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (row >= num_rows || column + i % 4 / 2 * 8 >= problem.n) continue;
            z[i] += read_element<Element>(problem.residual, (first_row + row) * problem.ldresidual + column + i % 4 / 2 * 8);
        }
    }

    // The same part to a matrix, by way of shared memory: a row of the part is a line of memory.
    __device__ __forceinline__ void store(void* target, std::int64_t stride, const float (&z)[kSums], int thread, int first_row,
                                          int num_rows, int first_column) {
        constexpr int kElems = 16 / T::item_bytes;  // of a chunk
        constexpr int kChunks = Stage::kColumns / kElems;  // of a row
        std::uint8_t* const own = stage + next * Stage::kBytes;
        if constexpr (Stage::kCopies == 1) {
            sync_named<kWarpGroupThreads>(kGroupBarrier + find_consumer());  // the last part has been read
        } else {
            next ^= 1;
        }
        turn(own, thread, z);
        sync_named<kWarpGroupThreads>(kGroupBarrier + find_consumer());
        const int chunk = thread % kChunks;
        const int column = first_column + chunk * kElems;
        if (column >= problem.n) return;
#pragma unroll
        for (int i = 0; i < Stage::kRows; i += kWarpGroupThreads / kChunks) {
            const int row = i + thread / kChunks;
            if (row >= num_rows) return;
            const std::uint8_t* const source = own + Stage::find_chunk(row, chunk);
            Output* const place = static_cast<Output*>(target) + (first_row + row) * stride + column;
            if (problem.has_chunks && column + kElems <= problem.n) {
                *reinterpret_cast<uint4*>(place) = *reinterpret_cast<const uint4*>(source);
                continue;
            }
#pragma unroll
            for (int j = 0; j < kElems; ++j) {
                if (column + j < problem.n) place[j] = reinterpret_cast<const Output*>(source)[j];
            }
        }
    }

    // This thread's elements of a part to shared memory, rounded: rows of D become columns.
    __device__ __forceinline__ static void turn(std::uint8_t* own, int thread, const float (&z)[kSums]) {
        const int lane = thread % 32;
        if constexpr (kRounds) {
            // Of two blocks of 8 rows of Y by two of 8 columns, this lane has the place of one block's row.
            const int chunk = thread / 32 * 2 + lane / 8 % 2;
            const std::uint32_t address = find_shared_address(own + Stage::find_chunk(lane / 16 * 8 + lane % 8, chunk));
#pragma unroll
            for (int i = 0; i < kSums; i += 8) {
                const std::uint32_t words[4] = {pack_pair<Element>(z[i], z[i + 1]), pack_pair<Element>(z[i + 2], z[i + 3]),
                                                pack_pair<Element>(z[i + 4], z[i + 5]), pack_pair<Element>(z[i + 6], z[i + 7])};
                store_matrices_transposed(address + i / 8 * 16 * Stage::kRowBytes, words);
            }
        } else {
#pragma unroll
            for (int i = 0; i < kSums; ++i) {
                const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
                const int column = thread / 32 * 16 + i % 4 / 2 * 8 + lane / 4;
                reinterpret_cast<float*>(own + Stage::find_chunk(row, column / 4))[column % 4] = z[i];
            }
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

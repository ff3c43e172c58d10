// The Hopper kernel for tens to hundreds of rows of A: operands change places. Columns of Y are the rows of wgmma's D, 64 to a warp group
// and block, and rows of Y its columns, in groups of 8: tens of rows are padded to the next 8, 16 or 32 and not to 64, and B, which is most
// of the bytes, is read once. The steps of k of all tiles are dealt out evenly (stream-K), so that every multiprocessor has its share of B
// whatever the number of tiles. Tiles of D leave transposed, through shared memory, by ordinary stores: rows of Y may begin anywhere.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/activations.cuh"
#include "common/split_order.cuh"
#include "common/store_rounded.cuh"
#include "common/wgmma_pipeline.cuh"
#include "gemm_bias_act/wgmma.cuh"

namespace aicf::gemm_bias_act {

// What a warp group stores at a time: 64 columns of Y, of up to kMostRows rows; two of them a warp group in turns.
template <int kBm, int kItemBytes>
struct TurnedStage {
    static constexpr int kMostRows = 32;
    static constexpr int kColumns = 64;
    // store_matrices_transposed writes 16 rows at once.
    static constexpr int kRows = kBm >= kMostRows ? kMostRows : 16;
    // 16-bit rows are swizzled; fp32 rows are padded, so that a warp's 8 rows of 4 columns lie in different banks.
    static constexpr int kPitchBytes = kItemBytes == 2 ? kSwizzleBytes : (kColumns + 4) * kItemBytes;
    static constexpr int kBytes = kRows * kPitchBytes;
    static constexpr int kAllBytes = 2 * 2 * kBytes;  // of two warp groups
    static_assert(kBm % 8 == 0, "wgmma has columns in groups of 8");
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

// Y = act(D' + bias + residual), and Z the same before act. T's rows are columns of Y.
template <class Element, class T>
struct TurnedEpilogue {
    using L = WgmmaLayout<T>;
    using Stage = TurnedStage<T::bn, T::item_bytes>;
    static constexpr int kBarrier = 1;  // and 2: of one warp group
    static constexpr int kChunkElems = 16 / T::item_bytes;
    // What an element is stored as. Sums that become integers anywhere are kept as such in the loop of products, which then waits for each.
    using Stored = std::conditional_t<T::item_bytes == 2, std::uint16_t, float>;

    const OutputProblem& problem;
    std::uint8_t* stages;  // two of this warp group
    int turn = 0;

    __device__ __forceinline__ TurnedEpilogue(const OutputProblem& of, std::uint8_t* shared)
        : problem(of), stages(shared + L::kEpilogueOffset + find_consumer() * 2 * Stage::kBytes) {}

    // A thread's number, with T::pingpong found where it is wanted: what follows from it would take registers beside the products.
    __device__ static __forceinline__ int find_here(int number) { return T::pingpong ? compute_here(number) : number; }

    __device__ __forceinline__ void begin(const TileWork&) {}
    __device__ __forceinline__ void end() const {}

    __device__ __forceinline__ float load_bias(int column) const {
        if (problem.bias == nullptr || column >= problem.n) return 0.0f;
        return read_element<Element>(problem.bias, column);
    }

    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
#pragma unroll
        for (int block = 0; block < L::kBlocksM; ++block) {
            const int column = tile.row + block * 64;
            const int own = column + find_group_warp() * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
            const float bias[2] = {load_bias(own), load_bias(own + 8)};
#pragma unroll
            for (int i = 0; i < L::kSums; ++i) sums[block][i] += bias[i % 4 / 2];
            constexpr int kWhole = T::bn / Stage::kRows;
            constexpr int kRest = T::bn % Stage::kRows;
#pragma unroll
            for (int part = 0; part < kWhole; ++part) {
                finish_rows<Stage::kRows>(sums[block] + part * Stage::kRows / 2, tile.column + part * Stage::kRows, column);
            }
            if constexpr (kRest > 0)
                finish_rows<kRest>(sums[block] + kWhole * Stage::kRows / 2, tile.column + kWhole * Stage::kRows, column);
        }
    }

    // kRows rows of Y from `row` on: this thread's values of z.
    template <int kRows>
    __device__ __forceinline__ void finish_rows(float* z, int row, int column) {
        if (row >= problem.m) return;  // the same for the whole warp group
        if (problem.residual != nullptr) add_residual<kRows>(z, row, column);
        if (problem.z != nullptr) store_rows<kRows>(problem.z, problem.ldz, z, row, column);
        activate_slab<kRows / 2>(problem.act, z);
        store_rows<kRows>(problem.y, problem.ldy, z, row, column);
    }

    template <int kRows>
    __device__ __forceinline__ void add_residual(float* z, int row, int column) const {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int own = column + find_group_warp() * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < kRows / 2; ++i) {
            const int at_row = row + i / 4 * 8 + lane % 4 * 2 + i % 2;
            const int at_column = own + i % 4 / 2 * 8;
            if (at_row >= problem.m || at_column >= problem.n) continue;
            z[i] += read_element<Element>(problem.residual, at_row * problem.ldresidual + at_column);
        }
    }

    template <int kRows>
    __device__ __forceinline__ void store_rows(void* target, std::int64_t stride, const float* values, int row, int column) {
        std::uint8_t* stage = stages + turn * Stage::kBytes;
        turn ^= 1;
        stage_rows<kRows>(stage, values);
        // The other stage may still be read by a slower warp.
        sync_named<kWarpGroupThreads>(kBarrier + find_consumer());
        auto* const base = static_cast<Stored*>(target);
        const int thread = find_here(find_group_thread());
        if (problem.has_chunks) {
            constexpr int kChunks = Stage::kColumns / kChunkElems;
#pragma unroll
            for (int i = thread; i < kRows * kChunks; i += kWarpGroupThreads) {
                const int at_row = i / kChunks;
                const int chunk = i % kChunks;
                const int at_column = column + chunk * kChunkElems;
                if (row + at_row >= problem.m || at_column >= problem.n) continue;
                const Stored* source = find_place(stage, at_row, chunk * kChunkElems);
                Stored* place = base + (row + at_row) * stride + at_column;
                if (at_column + kChunkElems <= problem.n) {
                    *reinterpret_cast<uint4*>(place) = *reinterpret_cast<const uint4*>(source);
                } else {
                    for (int j = 0; j < problem.n - at_column; ++j) place[j] = source[j];
                }
            }
            return;
        }
        for (int i = thread; i < kRows * Stage::kColumns; i += kWarpGroupThreads) {
            const int at_row = i / Stage::kColumns;
            const int at_column = i % Stage::kColumns;
            if (row + at_row >= problem.m || column + at_column >= problem.n) continue;
            base[(row + at_row) * stride + column + at_column] = *find_place(stage, at_row, at_column);
        }
    }

    // Where an element lies in a stage.
    __device__ static __forceinline__ Stored* find_place(std::uint8_t* stage, int row, int column) {
        if constexpr (T::item_bytes == 2) {
            return reinterpret_cast<Stored*>(stage + row * Stage::kPitchBytes + (column / 8 ^ row % 8) * 16) + column % 8;
        } else {
            return reinterpret_cast<Stored*>(stage + row * Stage::kPitchBytes) + column;
        }
    }

    // A thread's values, in the order of wgmma's sums, to their places: rows of D become columns.
    template <int kRows>
    __device__ __forceinline__ void stage_rows(std::uint8_t* stage, const float* values) {
        const int lane = find_here(static_cast<int>(threadIdx.x) % 32);
        if constexpr (T::item_bytes == 2) {
            // Matrices 0 to 3: the warp's first 8 columns and its next, in 8 rows, then in the next 8, which may be more than there are.
            const int row = lane / 16 * 8 + lane % 8;
            const int column = find_group_warp() * 16 + lane / 8 % 2 * 8;
#pragma unroll
            for (int i = 0; i < kRows; i += 16) {
                const float* z = values + i / 2;
                const int next = i + 16 <= kRows ? 4 : 0;
                const std::uint32_t words[4] = {pack_pair<Element>(z[0], z[1]), pack_pair<Element>(z[2], z[3]),
                                                pack_pair<Element>(z[next], z[next + 1]), pack_pair<Element>(z[next + 2], z[next + 3])};
                store_matrices_transposed(find_shared_address(find_place(stage, i + row, column)), words);
            }
        } else {
            const int column = find_group_warp() * 16 + lane / 4;
#pragma unroll
            for (int i = 0; i < kRows / 2; ++i) {
                *find_place(stage, i / 4 * 8 + lane % 4 * 2 + i % 2, column + i % 4 / 2 * 8) = values[i];
            }
        }
    }
};

// Y[m, n] = act(A[m, k] B + bias[n] + residual[m, n]), Z the same before act, as D = B' A' with k split. B is [k, n] where kTransposedB,
// else [n, k].
template <class Element, class T, bool kTransposedB>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_turned(const __grid_constant__ CUtensorMap map_b, const __grid_constant__ CUtensorMap map_a, const OutputProblem problem,
                    const SplitGrid grid) {
    extern __shared__ __align__(1024) std::uint8_t wgmma_shared[];
    std::uint8_t* const shared = wgmma_shared;
    using Epilogue = TurnedEpilogue<Element, T>;
    multiply_tiles<Element, T, kTransposedB, false, SplitOrder>(
        &map_b, &map_a, grid, shared, [&] { return PartsEpilogue<T, true, Epilogue>{grid, Epilogue(problem, shared)}; });
}

// Adds up the parts of split tiles to Y and Z, whose rows are the columns of D where kTurned. Grid: (blocks of split tiles,
// count_add_blocks).
template <class Element, class T, bool kTurned>
__global__ void __launch_bounds__(kAddThreads) add_split_parts(const OutputProblem problem, const SplitGrid grid) {
    allow_successor();
    wait_for_predecessor();
    add_parts<T, kTurned>(grid, [&](int row, int column, const float4& sums) {
        if (row >= problem.m || column >= problem.n) return;
        float z[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (column + i >= problem.n) continue;
            if (problem.bias != nullptr) z[i] += read_element<Element>(problem.bias, column + i);
            if (problem.residual != nullptr) z[i] += read_element<Element>(problem.residual, row * problem.ldresidual + column + i);
        }
        if (problem.z != nullptr) store_four_rounded<Element>(problem.z, problem.ldz, problem.n, problem.has_chunks, row, column, z);
        activate_slab<4>(problem.act, z);
        store_four_rounded<Element>(problem.y, problem.ldy, problem.n, problem.has_chunks, row, column, z);
    });
}

}  // namespace aicf::gemm_bias_act

// The main loop of fp32 products on CUDA cores (sm_80): tiles of both operands arrive by cp.async in a ring of shared memory while others
// are multiplied, and warps may share the k of one tile.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/compute_here.cuh"
#include "common/distributed.cuh"
#include "common/ffma_tiles.cuh"
#include "common/tile_grid.cuh"

namespace aicf {

// An operand of D[rows, columns] = A B: [k, rows or columns] where rows of memory run along the tile, else [rows or columns, k].
struct FfmaOperand {
    const float* base;
    std::int64_t stride;  // from one row of memory to the next, elements
    bool has_vectors;     // rows of memory start on 16-byte boundaries
};

// Shapes and places in shared memory. A stage holds kTileK rows of A's tile, then of B's. kSlices groups of warps compute the same tile,
// each from kSliceK of a stage's k: for tiles so small that warps of their own could not hide the latencies of shared memory.
template <int kTileM_, int kTileN_, int kTileK_, int kWarpM_, int kWarpN_, int kThreadM_, int kThreadN_, int kNumStages_, int kSlices_>
struct FfmaLayout {
    static constexpr int kTileM = kTileM_, kTileN = kTileN_, kTileK = kTileK_;
    static constexpr int kWarpM = kWarpM_, kWarpN = kWarpN_, kThreadM = kThreadM_, kThreadN = kThreadN_;
    static constexpr int kNumStages = kNumStages_, kSlices = kSlices_;
    using Warp = WarpLayout<kWarpM, kWarpN, kThreadM, kThreadN>;

    static constexpr int kSliceThreads = kTileM / kWarpM * (kTileN / kWarpN) * 32;
    static constexpr int kThreads = kSlices * kSliceThreads;
    static constexpr int kSliceK = kTileK / kSlices;
    // 4 more than a multiple of 32: the 8 x 4 elements (k, row) that a warp copies at once fall into 32 different banks.
    static constexpr int kPitchM = kTileM + 4, kPitchN = kTileN + 4;
    static constexpr int kElemsM = kTileK * kPitchM, kElemsN = kTileK * kPitchN;
    static constexpr int kStageElems = kElemsM + kElemsN;
    // Sums of all slices take the place of the ring.
    static constexpr int kTileElems = kTileM * kTileN;
    static constexpr int kSharedElems = kNumStages * kStageElems > kSlices* kTileElems ? kNumStages * kStageElems : kSlices * kTileElems;

    static_assert(kTileM % 32 == 0 && kTileN % 32 == 0, "the pitches must be 4 modulo 32");
    static_assert(kTileK % 8 == 0 && kTileK % kSlices == 0 && kSliceK % 2 == 0, "fragments alternate between two buffers");
};

// One thread's copies of an operand, tile after tile of its k; zeros outside of it. Across, lanes cover 8 consecutive k of 4 rows, a full
// 32-byte sector of each; along, neighbouring elements, four at a time where rows are aligned.
template <int kTile, int kTileK, int kPitch, int kThreads, bool kAlong>
struct FfmaCopy {
    static constexpr int kLanesK = 8;
    static_assert(kAlong || kTileK % kLanesK == 0);

    const FfmaOperand& operand;
    const float* next;  // the first that this thread copies
    int left;           // rows or columns that the operand has from there on

    __device__ __forceinline__ FfmaCopy(const FfmaOperand& from, int first, int size, int first_k) : operand(from) {
        const int own = kAlong ? find_column() : static_cast<int>(threadIdx.x) / kLanesK;
        const int k = first_k + (kAlong ? static_cast<int>(threadIdx.x) / find_threads_per_row() : static_cast<int>(threadIdx.x) % kLanesK);
        const std::int64_t row = kAlong ? k : first + own;
        next = operand.base + row * operand.stride + (kAlong ? first + own : k);
        left = size - first - own;
    }

    // Along: threads that copy a row of the tile, and this one's first column.
    __device__ __forceinline__ int find_threads_per_row() const { return operand.has_vectors ? kTile / kVectorElems : kTile; }
    __device__ __forceinline__ int find_column() const {
        return static_cast<int>(threadIdx.x) % find_threads_per_row() * (operand.has_vectors ? kVectorElems : 1);
    }

    // Copies the next kTileK, of which the operand has `k_left`.
    __device__ __forceinline__ void copy_next(float* target, int k_left) {
        if constexpr (!kAlong) {
            copy_across(target, k_left);
            next += kTileK;
        } else {
            if (operand.has_vectors) {
                copy_along<kVectorElems>(target, k_left);
            } else {
                copy_along<1>(target, k_left);
            }
            next += kTileK * operand.stride;
        }
    }

    // Which rows are inside, and where they lie, is found anew for each tile: the sums need the registers.
    __device__ __forceinline__ void copy_across(float* target, int k_left) const {
        constexpr int kAtOnce = kThreads / kLanesK;
        const int thread = compute_here(static_cast<int>(threadIdx.x));
        const int k = thread % kLanesK;
        const int row = thread / kLanesK;
        const float* source = next;
        target += k * kPitch + row;
#pragma unroll
        for (int i = 0; i < kTile; i += kAtOnce) {
            if (kTile % kAtOnce == 0 || i + row < kTile) {
#pragma unroll
                for (int chunk = 0; chunk < kTileK; chunk += kLanesK) {
                    copy_async<4>(target + chunk * kPitch + i, source + chunk, i < left && k + chunk < k_left ? 4 : 0);
                }
            }
            source = compute_here(source + kAtOnce * operand.stride);
        }
    }

    template <int kWidth>
    __device__ __forceinline__ void copy_along(float* target, int k_left) const {
        constexpr int kPerRow = kTile / kWidth;
        constexpr int kAtOnce = kThreads / kPerRow;
        static_assert(kAtOnce > 0 && kThreads % kPerRow == 0, "whole rows of the tile at a time");
        const int thread = compute_here(static_cast<int>(threadIdx.x));
        const int k = thread / kPerRow;
        const int bytes = 4 * max(0, min(kWidth, left));
        const float* source = next;
        target += k * kPitch + thread % kPerRow * kWidth;
#pragma unroll
        for (int i = 0; i < kTileK; i += kAtOnce) {
            if (kTileK % kAtOnce == 0 || i + k < kTileK) {
                copy_async<4 * kWidth>(target + i * kPitch, source, i + k < k_left ? bytes : 0);
            }
            source = compute_here(source + kAtOnce * operand.stride);
        }
    }
};

// A thread's first element in the tile.
template <class L>
__device__ __forceinline__ TileOrigin find_ffma_part() {
    constexpr int kWarpsN = L::kTileN / L::kWarpN;
    const int thread = static_cast<int>(threadIdx.x) % L::kSliceThreads;
    const int warp = thread / 32;
    return {warp / kWarpsN * L::kWarpM + L::Warp::row_of(thread % 32), warp % kWarpsN * L::kWarpN + L::Warp::column_of(thread % 32)};
}

// Adds A B over k in [first_k, end_k) to `sums`, for the tile at `origin` of D[rows, columns]. What a thread has is where L::Warp says, in
// the warp's part of the tile; the sums of a tile are those of all its slices. Behind it the ring is free, and all threads have met.
template <class L, bool kAlongA, bool kAlongB>
__device__ __forceinline__ void multiply_ffma_tile(float (&sums)[L::kThreadM][L::kThreadN], float* shared, const FfmaOperand& a,
                                                   const FfmaOperand& b, int rows, int columns, int first_k, int end_k, TileOrigin origin) {
    FfmaCopy<L::kTileM, L::kTileK, L::kPitchM, L::kThreads, kAlongA> copy_a(a, origin.row, rows, first_k);
    FfmaCopy<L::kTileN, L::kTileK, L::kPitchN, L::kThreads, kAlongB> copy_b(b, origin.column, columns, first_k);
    const int num_tiles = divide_up(end_k - first_k, L::kTileK);
    int k_left = end_k - first_k;
    // Past the last tile this copies zeros, so that what the last step loads ahead is defined.
    const auto copy_tile = [&](float* stage) {
        copy_a.copy_next(stage, k_left);
        copy_b.copy_next(stage + L::kElemsM, k_left);
        k_left -= L::kTileK;
        commit_copies();
    };
#pragma unroll
    for (int stage = 0; stage < L::kNumStages - 1; ++stage) copy_tile(shared + stage * L::kStageElems);

    const int slice = static_cast<int>(threadIdx.x) / L::kSliceThreads;
    const TileOrigin own = find_ffma_part<L>();
    float fragment_a[2][L::kThreadM];
    float fragment_b[2][L::kThreadN];
    float* const last_stage = shared + (L::kNumStages - 1) * L::kStageElems;
    const float* reading = shared;
    float* writing = last_stage;
    const auto load_fragments = [&](int k, int buffer) {
        const float* stage = reading + L::kElemsM;
        load_fragment<L::kThreadM, L::Warp::kStepM>(reading + (slice * L::kSliceK + k) * L::kPitchM + own.row, fragment_a[buffer]);
        load_fragment<L::kThreadN, L::Warp::kStepN>(stage + (slice * L::kSliceK + k) * L::kPitchN + own.column, fragment_b[buffer]);
    };

    wait_copies<L::kNumStages - 2>();
    __syncthreads();
    load_fragments(0, 0);
#pragma unroll 1
    for (int tile = 0; tile < num_tiles; ++tile) {
#pragma unroll
        for (int k = 0; k < L::kSliceK; ++k) {
            if (k == L::kSliceK - 1) {
                // Every warp has its last fragments of this tile, whose stage may now be overwritten, and the next tile is complete.
                wait_copies<L::kNumStages - 2>();
                __syncthreads();
                reading = reading == last_stage ? shared : reading + L::kStageElems;
            }
            load_fragments((k + 1) % L::kSliceK, (k + 1) % 2);
            if (k == 0) {
                copy_tile(writing);
                writing = writing == last_stage ? shared : writing + L::kStageElems;
            }
            add_outer_product(sums, fragment_a[k % 2], fragment_b[k % 2]);
        }
    }
    wait_copies<0>();
    __syncthreads();
}

// Puts the sums of all slices into shared memory, a row-major tile for each.
template <class L>
__device__ __forceinline__ void stage_ffma_sums(const float (&sums)[L::kThreadM][L::kThreadN], float* shared) {
    const int slice = static_cast<int>(threadIdx.x) / L::kSliceThreads;
    const TileOrigin own = find_ffma_part<L>();
    stage_sums<L::kTileN, L::Warp::kStepM, L::Warp::kStepN>(sums, shared + slice * L::kTileElems + own.row * L::kTileN + own.column);
}

// Four neighbouring elements of the tile, from `place` on: the staged sums of all slices of `num_blocks` blocks of the cluster from
// `first_rank` on, which share the k of the tile; in order of block, then slice. One block stands for itself, in a cluster or not.
template <class L>
__device__ __forceinline__ float4 add_ffma_parts(const float* shared, int place, int first_rank, int num_blocks) {
    float4 total = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int block = 0; block < num_blocks; ++block) {
#pragma unroll
        for (int slice = 0; slice < L::kSlices; ++slice) {
            const float* source = shared + slice * L::kTileElems + place;
            const float4 part =
                num_blocks == 1 ? load_vector(source) : load_from_block(source, static_cast<std::uint32_t>(first_rank + block));
            total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
        }
    }
    return total;
}

}  // namespace aicf

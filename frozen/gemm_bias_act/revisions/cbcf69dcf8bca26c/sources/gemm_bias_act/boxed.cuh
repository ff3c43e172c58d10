// Rung 8, for Hopper: tensor copies (TMA) fill the ring of the pipelined kernel, two instructions of one thread a tile. They cannot
// transpose A, or B where it is [n, k], so that the threads do it a tile ahead, 16 bytes in and four times 4 bytes out, between two shared
// buffers.
//
// A could be read as it lies, four k of a row at a time; it was, and the main loop fell to 84 % of the pipelined one's speed: all rows'
// values of one k then lie in registers of one bank, and half of the sums too.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/cluster.cuh"
#include "common/mbarrier.cuh"
#include "common/programmatic.cuh"
#include "common/tensor_copy.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {

// A thread's part of transposing [kTile, kTileK] to [kTileK, kTile]: chunk `thread` of 4 k in each pass.
template <int kTile, int kTileK, int kThreads>
struct TileTurner {
    // 4 more than a multiple of 32: what a warp writes at once, 2 chunks of k of 16 rows, falls into 32 different banks.
    static constexpr int kPitch = kTile + kVectorElems;
    static constexpr int kElems = kTileK * kPitch;
    static constexpr int kChunks = kTileK / kVectorElems;  // of a row
    static constexpr int kPasses = kTile * kChunks / kThreads;
    static_assert(kTile * kChunks % kThreads == 0, "every thread transposes the same number of chunks");
    static_assert(kTile % 32 == 0 && kTile <= 256, "banks of the transposed tile, and rows of a box");

    float4 chunks[kPasses];

    __device__ __forceinline__ void read(const float* tile, int thread) {
#pragma unroll
        for (int i = 0; i < kPasses; ++i) chunks[i] = load_vector(tile + thread * kVectorElems + i * kThreads * kVectorElems);
    }

    __device__ __forceinline__ void write(float* target, int thread) const {
        target += thread % kChunks * kVectorElems * kPitch + thread / kChunks;
#pragma unroll
        for (int i = 0; i < kPasses; ++i) {
            float* place = target + i * (kThreads / kChunks);
            place[0] = chunks[i].x;
            place[kPitch] = chunks[i].y;
            place[2 * kPitch] = chunks[i].z;
            place[3 * kPitch] = chunks[i].w;
        }
    }
};

// Shapes and places in shared memory, in floats: a stage holds A as it lies, [kTileM, kTileK], then B, [kTileK, kTileN], or [kTileN,
// kTileK] where kTurnsB; behind the ring two transposed tiles of A, and of such a B.
template <int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN, int kNumStages, bool kTurnsB>
struct BoxedLayout {
    static constexpr int kThreads = kTileM / kWarpM * (kTileN / kWarpN) * 32;
    using TurnerA = TileTurner<kTileM, kTileK, kThreads>;
    using TurnerB = TileTurner<kTileN, kTileK, kThreads>;
    static constexpr int kElemsA = kTileM * kTileK;
    static constexpr int kStageElems = kElemsA + kTileK * kTileN;
    static constexpr int kPitchB = kTurnsB ? TurnerB::kPitch : kTileN;  // of the rows of k that fragments come from
    static constexpr int kTurnedElems = TurnerA::kElems + (kTurnsB ? TurnerB::kElems : 0);
    static constexpr int kRingElems = kNumStages * kStageElems;
    static constexpr int kLoopElems = kRingElems + 2 * kTurnedElems;
    static constexpr int kDataElems = kLoopElems > kTileM* kTileN ? kLoopElems : kTileM * kTileN;
    static constexpr int kBarrierOffset = kDataElems * 4;
    static constexpr int kSharedBytes = kBarrierOffset + kNumStages * static_cast<int>(sizeof(Barrier));
    static_assert(kTileN <= 256 && kTileK % 8 == 0, "boxes, and steps at which tiles are transposed");
};

// Y[m, n] = act(A[m, k] B + bias[n]), Z the same before act. B is [n, k] where kTurnsB, else [k, n]. Rows of A and B start on 16-byte
// boundaries.
template <int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN, int kThreadM, int kThreadN, int kNumStages, int kGroup,
          int kMinBlocks, int kSplits, bool kTurnsB>
__global__ void __launch_bounds__((BoxedLayout<kTileM, kTileN, kTileK, kWarpM, kWarpN, kNumStages, kTurnsB>::kThreads), kMinBlocks)
    multiply_boxed(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const Gemm gemm) {
    using L = BoxedLayout<kTileM, kTileN, kTileK, kWarpM, kWarpN, kNumStages, kTurnsB>;
    using Layout = WarpLayout<kWarpM, kWarpN, kThreadM, kThreadN>;
    extern __shared__ __align__(128) std::uint8_t boxed_shared[];
    float* const ring = reinterpret_cast<float*>(boxed_shared);
    float* const transposed = ring + L::kRingElems;
    Barrier* const full = reinterpret_cast<Barrier*>(boxed_shared + L::kBarrierOffset);
    const TileOrigin origin = find_tile<kTileM, kTileN, kGroup>(gemm.m, gemm.n, static_cast<int>(blockIdx.x) / kSplits);
    const int thread = static_cast<int>(threadIdx.x);
    const int rank = static_cast<int>(blockIdx.x) % kSplits;
    const int all_tiles = divide_up(gemm.k, kTileK);
    const int first_tile = all_tiles * rank / kSplits;
    const int num_tiles = all_tiles * (rank + 1) / kSplits - first_tile;
    const auto copy_tile = [&](int tile, int stage) {
        float* target = ring + stage * L::kStageElems;
        const int k = (first_tile + tile) * kTileK;
        arrive_expecting(full + stage, L::kStageElems * 4);
        load_box(target, &map_a, k, origin.row, full + stage);
        load_box(target + L::kElemsA, &map_b, kTurnsB ? k : origin.column, kTurnsB ? origin.column : k, full + stage);
    };
    if (thread == 0) {
        for (int i = 0; i < kNumStages; ++i) init_barrier(full + i, 1);
        publish_barriers();
        wait_for_predecessor();
        for (int i = 0; i < kNumStages && i < num_tiles; ++i) copy_tile(i, i);
    }
    __syncthreads();
    wait_for_predecessor();

    const int warp = thread / 32;
    const int lane = thread % 32;
    const int row = warp / (kTileN / kWarpN) * kWarpM + Layout::row_of(lane);
    const int column = warp % (kTileN / kWarpN) * kWarpN + Layout::column_of(lane);
    // Of a tile of A, then, a quarter of a tile later, of one of B: the registers are the same.
    typename L::TurnerA turner_a;
    typename L::TurnerB turner_b;

    float sums[kThreadM][kThreadN] = {};
    float fragment_a[2][kThreadM];
    float fragment_b[2][kThreadN];
    const auto load_fragments = [&](const float* turned, const float* stage, int k, int buffer) {
        const float* tile_b = kTurnsB ? turned + L::TurnerA::kElems : stage + L::kElemsA;
        load_fragment<kThreadM, Layout::kStepM>(turned + k * L::TurnerA::kPitch + row, fragment_a[buffer]);
        load_fragment<kThreadN, Layout::kStepN>(tile_b + k * L::kPitchB + column, fragment_b[buffer]);
    };

    const float* stage = ring;
    float* reading = transposed;
    float* writing = transposed + L::kTurnedElems;
    RingPosition<kNumStages> position;
    if (num_tiles > 0) {
        wait_phase(full, 0);
        const auto turn_first = [&](float* target) {
            turner_a.read(stage, thread);
            turner_a.write(target, thread);
            if constexpr (kTurnsB) {
                turner_b.read(stage + L::kElemsA, thread);
                turner_b.write(target + L::TurnerA::kElems, thread);
            }
        };
        turn_first(reading);
        // What the last step loads ahead is defined, where there is no second tile.
        if (num_tiles == 1) turn_first(writing);
        __syncthreads();
        load_fragments(reading, stage, 0, 0);
    }
    constexpr int kWriteA = kTurnsB ? kTileK / 4 : kTileK / 2;
#pragma unroll 1
    for (int tile = 0; tile < num_tiles; ++tile) {
        const bool is_last = tile + 1 == num_tiles;
        const int last_stage = position.stage;
        position.advance();
        const float* next = position.stage == 0 ? ring : stage + L::kStageElems;
        // Behind the last tile its own columns are read once more, and not used.
        if (is_last) next = stage;
#pragma unroll
        for (int k = 0; k < kTileK; ++k) {
            if (k == 0 && !is_last) {
                wait_phase(full + position.stage, position.parity);
                turner_a.read(next, thread);
            }
            if (k == kWriteA && !is_last) turner_a.write(writing, thread);
            if constexpr (kTurnsB) {
                if (k == kTileK / 2 && !is_last) turner_b.read(next + L::kElemsA, thread);
                if (k == kTileK / 4 * 3 && !is_last) turner_b.write(writing + L::TurnerA::kElems, thread);
            }
            // Every warp has its last fragments of this tile, and the next one is transposed.
            if (k == kTileK - 1) __syncthreads();
            load_fragments(k + 1 < kTileK ? reading : writing, k + 1 < kTileK ? stage : next, (k + 1) % kTileK, (k + 1) % 2);
            add_outer_product(sums, fragment_a[k % 2], fragment_b[k % 2]);
        }
        // All warps have left this slot behind the barrier.
        if (thread == 0 && tile + kNumStages < num_tiles) copy_tile(tile + kNumStages, last_stage);
        stage = next;
        float* const swapped = reading;
        reading = writing;
        writing = swapped;
    }
    allow_successor();
    __syncthreads();
    stage_sums<kTileN, Layout::kStepM, Layout::kStepN>(sums, ring + row * kTileN + column);
    if constexpr (kSplits == 1) {
        __syncthreads();
        store_tile<kTileM, kTileN, L::kThreads>(gemm, ring, origin);
    } else {
        sync_cluster();
        store_split_tile<kTileM, kTileN, L::kThreads, kSplits>(gemm, ring, origin, rank);
        // No block may leave while another reads its sums.
        sync_cluster();
    }
}

}  // namespace aicf::gemm_bias_act

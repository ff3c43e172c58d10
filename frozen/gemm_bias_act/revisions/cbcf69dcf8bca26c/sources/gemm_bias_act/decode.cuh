// The Hopper kernel for tens to hundreds of rows of A and 16-bit floats, where B is read once and memory is the limit. Operands change
// places: 64 columns of Y are the rows of a wgmma, the rows of A its columns, so that a product is 64 x 8 to 64 x 256 and no tensor core
// waits on padding. Where tiles are few, blocks of a cluster split their k: as many as leave all tiles running at once. Sums go from thread
// to thread through distributed shared memory, and are added in order of k by the block that finishes their rows: in one kernel.
//
// Measured on an H200, cold: a second kernel that adds parts takes 4 to 5 us, and reads of other blocks' sums between two barriers of the
// cluster 3.5 to 5.5 us, a bias that is fetched behind the products 1 us of them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/cluster.cuh"
#include "common/cluster_stores.cuh"
#include "common/exchange.cuh"
#include "common/programmatic.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"
#include "gemm_bias_act/outputs.cuh"

namespace aicf::gemm_bias_act {

inline constexpr int kMostSplits = 8;  // blocks of a cluster that any device takes

// At most bm rows and bn columns of Y a block; `stages` tiles of 64 k in its ring.
template <int kBm, int kTileN, int kStages>
struct DecodeLayout {
    static constexpr int kTileK = 64;
    static constexpr int kGroups = kTileN / 64;  // warp groups, 64 columns of Y each
    static constexpr int kConsumers = kGroups * kWarpGroupThreads;  // threads that multiply
    static constexpr int kThreads = kConsumers + 32;  // one thread of the last warp copies
    static constexpr int kSlabBytes = 64 * kSwizzleBytes;  // 64 columns of Y and 64 k of B, in either order
    static constexpr int kBytesA = kBm * kSwizzleBytes;
    static constexpr int kBytesB = kGroups * kSlabBytes;
    static constexpr int kStageBytes = kBytesA + kBytesB;
    // In place of the ring: four sums a thread of each group of 8 rows, by all blocks of the cluster of those that this one finishes.
    static constexpr int kRowGroups = kBm / 8;
    static constexpr int kPartBytes = kConsumers * static_cast<int>(sizeof(float4));
    static constexpr int kSumsBytes = (kRowGroups + kMostSplits - 1) * kPartBytes;
    static constexpr int kBarrierOffset = kStages * kStageBytes > kSumsBytes ? kStages * kStageBytes : kSumsBytes;
    static constexpr int kSharedBytes = kBarrierOffset + (2 * kStages + 1) * static_cast<int>(sizeof(Barrier));
    static_assert(kBm % 8 == 0 && kTileN % 64 == 0, "a tile is whole groups of 8 rows of A, and 64 columns a warp group");
    static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit shared memory");
};

// Y[m, n] = act(A[m, k] B + bias[n] + residual[m, n]), Z the same before act. B is [k, n] where kTransposedB, else [n, k]. A tile has
// `tile_rows` rows of Y, a multiple of 8 and at most kBm. Grid: (blocks of the cluster, tiles of n, tiles of m).
template <class Element, bool kTransposedB, int kBm, int kTileN, int kStages>
__global__ void __launch_bounds__((DecodeLayout<kBm, kTileN, kStages>::kThreads))
    multiply_decode(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const OutputProblem problem,
                    const int k, const int tile_rows) {
    using L = DecodeLayout<kBm, kTileN, kStages>;
    extern __shared__ __align__(1024) std::uint8_t decode_shared[];
    Barrier* full = reinterpret_cast<Barrier*>(decode_shared + L::kBarrierOffset);
    Barrier* empty = full + kStages;
    Barrier* received = empty + kStages;
    const int thread = static_cast<int>(threadIdx.x);
    const int rank = static_cast<int>(blockIdx.x);
    const int splits = static_cast<int>(gridDim.x);
    const int first_column = static_cast<int>(blockIdx.y) * kTileN;
    const int first_row = static_cast<int>(blockIdx.z) * tile_rows;
    const int num_groups = (min(tile_rows, problem.m - first_row) + 7) / 8;
    const int all_steps = (k + L::kTileK - 1) / L::kTileK;
    const int first_step = all_steps * rank / splits;
    const int num_steps = all_steps * (rank + 1) / splits - first_step;
    const auto copy_step = [&](int step, int stage) {
        std::uint8_t* tile_b = decode_shared + stage * L::kStageBytes;
        std::uint8_t* tile_a = tile_b + L::kBytesB;
        const int from = (first_step + step) * L::kTileK;
        arrive_expecting(full + stage, static_cast<std::uint32_t>(L::kBytesB + tile_rows * kSwizzleBytes));
        if constexpr (kTransposedB) {
#pragma unroll
            for (int group = 0; group < L::kGroups; ++group) {
                load_box(tile_b + group * L::kSlabBytes, &map_b, first_column + group * 64, from, full + stage);
            }
        } else {
            load_box(tile_b, &map_b, from, first_column, full + stage);
        }
        load_box(tile_a, &map_a, from, first_row, full + stage);
    };
    if (thread == L::kConsumers) {
        prefetch_map(&map_a);
        prefetch_map(&map_b);
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + i, 1);
            init_barrier(empty + i, 4 * L::kGroups);
        }
        init_barrier(received, 1);
        publish_barriers();
        // The ring's first round, on its way before the other warps are there.
        wait_for_predecessor();
        for (int step = 0; step < kStages && step < num_steps; ++step) copy_step(step, step);
        if (splits > 1) {
            const int num_own = (num_groups - rank + splits - 1) / splits;
            arrive_expecting(received, static_cast<std::uint32_t>(max(num_own, 0) * splits * L::kPartBytes));
        }
    } else if (thread < L::kConsumers && tile_rows < kBm) {
        // Rows of A that no copy brings, and whose products nobody wants.
        const int num_chunks = (kBm - tile_rows) * kSwizzleBytes / 16;
        for (int i = thread; i < kStages * num_chunks; i += L::kConsumers) {
            std::uint8_t* tile_a = decode_shared + i / num_chunks * L::kStageBytes + L::kBytesB;
            *reinterpret_cast<uint4*>(tile_a + tile_rows * kSwizzleBytes + i % num_chunks * 16) = {};
        }
        publish_shared_writes();
    }
    __syncthreads();
    wait_for_predecessor();
    if (thread >= L::kConsumers) {
        if (thread == L::kConsumers) {
            RingPosition<kStages> position;
            position.parity = 1;
            for (int step = kStages; step < num_steps; ++step, position.advance()) {
                wait_phase(empty + position.stage, position.parity ^ 1);
                copy_step(step, position.stage);
            }
        }
        allow_successor();
        if (splits > 1) {
            __syncwarp();
            meet_cluster();
        }
        return;
    }
    const int lane = thread % 32;
    // Behind exchange_fours: of the four columns that this thread has in each of its rows.
    const int four = lane / 4 % 4;
    const int column = first_column + thread / 32 * 16 + four / 2 * 8 + lane / 16 * 4;
    float bias[4] = {};
    if (problem.bias != nullptr) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (column + i < problem.n) bias[i] = read_element<Element>(problem.bias, column + i);
        }
    }
    float sums[kBm / 2];
    RingPosition<kStages> position;
    int last_stage = 0;
#pragma unroll
    for (int i = 0; i < kBm / 2; ++i) sums[i] = 0.0f;
    for (int step = 0; step < num_steps; ++step, position.advance()) {
        const std::uint8_t* tile_b = decode_shared + position.stage * L::kStageBytes;
        wait_phase(full + position.stage, position.parity);
        pin_sums(sums);
        fence_products();
        const std::uint64_t b = describe_tile<16, kSwizzleAtomBytes>(tile_b + thread / kWarpGroupThreads * L::kSlabBytes);
        const std::uint64_t a = describe_tile<16, kSwizzleAtomBytes>(tile_b + L::kBytesB);
#pragma unroll
        for (int i = 0; i < L::kTileK / 16; ++i) {
            constexpr int kStepB = kTransposedB ? 16 * kSwizzleBytes : 32;
            multiply_group<Element, kTransposedB, false>(sums, b + ((i * kStepB) >> 4), a + ((i * 32) >> 4), true);
        }
        commit_products();
        pin_sums(sums);
        wait_products<1>();
        if (step > 0 && thread % 32 == 0) arrive(empty + last_stage);
        last_stage = position.stage;
    }
    wait_products<0>();
    pin_sums(sums);
    // Not earlier: blocks of the next kernel that came while this one reads B would be spread unevenly over the multiprocessors.
    allow_successor();
    // All blocks are done with their rings, whose place the sums take.
    if (splits > 1) {
        sync_cluster_shared();
    } else {
        sync_named<L::kConsumers>(1);
    }
    // Groups of rows are dealt out to the blocks. What `block` has of this block's i-th lies at place i splits + block.
    float4* const parts = reinterpret_cast<float4*>(decode_shared) + thread;
    const auto find_sums = [&](int group) {
        return float4{sums[group * 4], sums[group * 4 + 1], sums[group * 4 + 2], sums[group * 4 + 3]};
    };
    if (splits > 1) {
        int owner = 0, place = rank;
#pragma unroll
        for (int group = 0; group < L::kRowGroups; ++group) {
            if (group >= num_groups) break;
            send_to_block(reinterpret_cast<float*>(parts + place * L::kConsumers), received, static_cast<std::uint32_t>(owner),
                          find_sums(group));
            if (++owner == splits) {
                owner = 0;
                place += splits;
            }
        }
        wait_phase(received, 0);
    } else {
        // Where a number is an index of registers, all that is done to a group would stand in the code once for each. A block without a
        // cluster may not send, not even to itself (H200: an illegal instruction).
#pragma unroll
        for (int group = 0; group < L::kRowGroups; ++group) {
            if (group >= num_groups) break;
            parts[group * L::kConsumers] = find_sums(group);
        }
    }
    const float4* part = parts;
#pragma unroll 1
    for (int group = rank; group < num_groups; group += splits) {
        float4 total = *part;
        part += L::kConsumers;
#pragma unroll 4
        for (int block = 1; block < splits; ++block, part += L::kConsumers) {
            total = {total.x + part->x, total.y + part->y, total.z + part->z, total.w + part->w};
        }
        total = exchange_fours<4>(total, four);
        const int row = first_row + group * 8 + lane % 4 * 2 + four % 2;
        float z[4] = {total.x + bias[0], total.y + bias[1], total.z + bias[2], total.w + bias[3]};
        if (row < problem.m && column < problem.n) finish_four<Element>(problem, row, column, z);
    }
}

}  // namespace aicf::gemm_bias_act

// The Hopper kernel for few rows of A (tens) and 16-bit floats, where B is read once and memory is the limit. Operands change places: 64
// columns of Y are the rows of a wgmma, the rows of A its columns, so that a product is 64 x 8 to 64 x 128 and no tensor core waits on
// padding. Blocks of a cluster split k, and add their sums through distributed shared memory: in one kernel, in one order.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/cluster.cuh"
#include "common/distributed.cuh"
#include "common/programmatic.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"
#include "gemm_bias_act/gemv.cuh"

namespace aicf::gemm_bias_act {

// bm rows and bn columns of Y a block; `stages` tiles of 64 k in its ring; `splits` blocks share the k of one tile.
template <int kBm, int kTileN, int kStages, int kSplits>
struct DecodeLayout {
    static constexpr int kTileK = 64;
    static constexpr int kGroups = kTileN / 64;                    // warp groups, 64 columns of Y each
    static constexpr int kConsumers = kGroups * kWarpGroupThreads;  // threads that multiply
    static constexpr int kThreads = kConsumers + 32;                // one thread of the last warp copies
    static constexpr int kSlabBytes = 64 * kSwizzleBytes;           // 64 columns of Y and 64 k of B, in either order
    static constexpr int kBytesA = kBm * kSwizzleBytes;
    static constexpr int kBytesB = kGroups * kSlabBytes;
    static constexpr int kStageBytes = kBytesA + kBytesB;
    // Sums of the block, [bm, bn] floats, in place of the ring; rows are padded so that neither way of access meets bank conflicts.
    static constexpr int kPitch = kTileN + 4;
    static constexpr int kSumsBytes = kBm * kPitch * 4;
    static constexpr int kBarrierOffset = kStages * kStageBytes > kSumsBytes ? kStages * kStageBytes : kSumsBytes;
    static constexpr int kSharedBytes = kBarrierOffset + 2 * kStages * static_cast<int>(sizeof(Barrier));
    static_assert(kBm % 8 == 0 && kTileN % 64 == 0, "a tile is whole groups of 8 rows of A, and 64 columns a warp group");
    static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit shared memory");
};

struct DecodeProblem {
    const void* bias;  // [n] or null
    void* y;           // [m, n], row stride ldy
    void* z;           // [m, n], row stride ldz, or null
    std::int64_t ldy, ldz;
    int m, n, k;
    int act;
    const void* residual;  // [m, n], row stride ldresidual, or null
    std::int64_t ldresidual;
};

// Y[m, n] = act(A[m, k] B + bias[n] + residual[m, n]), Z the same before act. B is [k, n] where kTransposedB, else [n, k]. Grid: (splits,
// tiles of n, tiles of m).
template <class Element, bool kTransposedB, int kBm, int kTileN, int kStages, int kSplits>
__global__ void __launch_bounds__((DecodeLayout<kBm, kTileN, kStages, kSplits>::kThreads))
    multiply_decode(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, const DecodeProblem problem) {
    using L = DecodeLayout<kBm, kTileN, kStages, kSplits>;
    extern __shared__ __align__(1024) std::uint8_t decode_shared[];
    Barrier* full = reinterpret_cast<Barrier*>(decode_shared + L::kBarrierOffset);
    Barrier* empty = full + kStages;
    const int thread = static_cast<int>(threadIdx.x);
    const int rank = static_cast<int>(blockIdx.x);
    const int first_column = static_cast<int>(blockIdx.y) * kTileN;
    const int first_row = static_cast<int>(blockIdx.z) * kBm;
    const int all_steps = (problem.k + L::kTileK - 1) / L::kTileK;
    const int first_step = all_steps * rank / kSplits;
    const int num_steps = all_steps * (rank + 1) / kSplits - first_step;
    const auto copy_step = [&](int step, int stage) {
        std::uint8_t* tile_b = decode_shared + stage * L::kStageBytes;
        std::uint8_t* tile_a = tile_b + L::kBytesB;
        const int k = (first_step + step) * L::kTileK;
        arrive_expecting(full + stage, L::kStageBytes);
        if constexpr (kTransposedB) {
#pragma unroll
            for (int group = 0; group < L::kGroups; ++group) {
                load_box(tile_b + group * L::kSlabBytes, &map_b, first_column + group * 64, k, full + stage);
            }
        } else {
            load_box(tile_b, &map_b, k, first_column, full + stage);
        }
        load_box(tile_a, &map_a, k, first_row, full + stage);
    };
    if (thread == L::kConsumers) {
        prefetch_map(&map_a);
        prefetch_map(&map_b);
        for (int i = 0; i < kStages; ++i) {
            init_barrier(full + i, 1);
            init_barrier(empty + i, 4 * L::kGroups);
        }
        publish_barriers();
    }
    if (thread == L::kConsumers) {
        // The ring's first round, on its way before the other warps are there.
        wait_for_predecessor();
        for (int step = 0; step < kStages && step < num_steps; ++step) copy_step(step, step);
    }
    __syncthreads();
    wait_for_predecessor();
    float sums[kBm / 2];
    if (thread >= L::kConsumers) {
        if (thread == L::kConsumers) {
            RingPosition<kStages> position;
            position.parity = 1;
            for (int step = kStages; step < num_steps; ++step, position.advance()) {
                wait_phase(empty + position.stage, position.parity ^ 1);
                copy_step(step, position.stage);
            }
        }
    } else {
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
        // All warps are done with the ring, whose place the sums take.
        sync_named<L::kConsumers>(1);
        float* tile = reinterpret_cast<float*>(decode_shared);
        const int lane = thread % 32;
#pragma unroll
        for (int i = 0; i < kBm / 2; ++i) {
            const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
            const int column = thread / 32 * 16 + lane / 4 + i % 4 / 2 * 8;
            tile[row * L::kPitch + column] = sums[i];
        }
    }
    // Not earlier: blocks of the next kernel that came while this one reads B would be spread unevenly over the multiprocessors.
    allow_successor();
    if constexpr (kSplits > 1) {
        // The copying thread meets its warp again.
        __syncwarp();
        sync_cluster();
    } else {
        if (thread >= L::kConsumers) return;
        sync_named<L::kConsumers>(1);
    }
    // Each block of the cluster finishes its part of the tile: groups of 4 columns, the blocks' sums added in order of k.
    const float* tile = reinterpret_cast<const float*>(decode_shared);
    constexpr int kGroups = kBm * kTileN / 4;
    constexpr int kFinishers = kSplits > 1 ? L::kThreads : L::kConsumers;
    for (int i = rank * kFinishers + thread; i < kGroups; i += kSplits * kFinishers) {
        const int row = i / (kTileN / 4);
        const int column = i % (kTileN / 4) * 4;
        if (first_row + row >= problem.m) break;
        float z[4] = {};
#pragma unroll
        for (int block = 0; block < kSplits; ++block) {
            const float* place = tile + row * L::kPitch + column;
            const float4 part =
                kSplits > 1 ? load_from_block(place, static_cast<std::uint32_t>(block)) : *reinterpret_cast<const float4*>(place);
            z[0] += part.x;
            z[1] += part.y;
            z[2] += part.z;
            z[3] += part.w;
        }
        const auto* bias = static_cast<const Element*>(problem.bias);
        const Element* residual =
            problem.residual == nullptr ? nullptr : static_cast<const Element*>(problem.residual) + (first_row + row) * problem.ldresidual;
        Element* y = static_cast<Element*>(problem.y) + (first_row + row) * problem.ldy;
        Element* saved = problem.z == nullptr ? nullptr : static_cast<Element*>(problem.z) + (first_row + row) * problem.ldz;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const int place = first_column + column + j;
            if (place >= problem.n) break;
            if (bias != nullptr) z[j] += to_float(bias[place]);
            if (residual != nullptr) z[j] += to_float(residual[place]);
            if (saved != nullptr) saved[place] = from_float<Element>(z[j]);
            y[place] = from_float<Element>(apply_rough_activation(problem.act, z[j]));
        }
    }
    // No block may leave while another reads its sums.
    if constexpr (kSplits > 1) {
        __syncwarp();
        sync_cluster();
    }
}

}  // namespace aicf::gemm_bias_act

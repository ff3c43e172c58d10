// The fp32 kernel for few rows of A: B streams once from memory through a ring of cp.async, k is split over the warps of a block and over
// the blocks of a cluster, whose sums meet through distributed shared memory: one kernel, one order of summation, no workspace.
//
// A thread copies exactly the elements of B that it multiplies, so that the ring needs no barrier: a thread waits for its own copies. Only
// A, transposed into chunks of kChunkK, is shared by the block.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/cluster.cuh"
#include "common/distributed.cuh"
#include "common/programmatic.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {

// Shapes and places in shared memory, in floats. kTileK elements of k arrive a stage.
template <int kBm, int kTileN, int kTileK, int kNumStages, int kSplits>
struct SkinnyLayout {
    static constexpr int kThreads = 256;
    static constexpr int kColumnThreads = kTileN / kVectorElems;  // threads side by side, 4 columns each
    static constexpr int kGroups = kThreads / kColumnThreads;     // of threads, which take every kGroups-th k
    static constexpr int kUnroll = kTileK / kGroups;              // k of one group in a stage
    static constexpr int kChunkK = 256;
    static constexpr int kStepsPerChunk = kChunkK / kTileK;
    // 4 more than a multiple of 8: the 8 x 4 elements (k, row) that a warp copies at once fall into different banks.
    static constexpr int kPitchA = kBm >= kVectorElems ? kBm + kVectorElems : kBm;
    static constexpr int kElemsA = kChunkK * kPitchA;
    static constexpr int kRingElems = kNumStages * kTileK * kTileN;
    static constexpr int kSumElems = kGroups * kBm * kTileN;  // in place of the ring
    static constexpr int kRingOrSums = kRingElems > kSumElems ? kRingElems : kSumElems;
    static constexpr int kSharedBytes = 4 * (2 * kElemsA + kRingOrSums);
    static_assert(kTileK % kGroups == 0 && kChunkK % kTileK == 0, "a stage is whole rounds of the groups, a chunk whole stages");
    static_assert(kNumStages - 1 <= kStepsPerChunk, "the next chunk of A is complete when the ring says so");
    static_assert(kBm == 1 || kBm % kVectorElems == 0, "rows of A are read four at a time");
    static_assert(kSharedBytes <= 227 * 1024, "ring and chunks do not fit shared memory");
};

// Copies chunk [k0, k0 + kChunkK) of kBm rows of A, transposed; zeros past k_end. Rows past the end repeat the last one.
template <class L, int kBm>
__device__ __forceinline__ void copy_chunk(const Gemm& gemm, int first_row, int k0, int k_end, float* target) {
    constexpr int kRowsAtOnce = kBm < 4 ? kBm : 4;
    constexpr int kLanesK = L::kThreads / kRowsAtOnce;  // of a block; 8 neighbours in k make a sector
#pragma unroll
    for (int row0 = 0; row0 < kBm; row0 += kRowsAtOnce) {
#pragma unroll
        for (int base = 0; base < L::kChunkK; base += kLanesK) {
            const int thread = static_cast<int>(threadIdx.x);
            const int row = row0 + (kRowsAtOnce == 1 ? 0 : thread / 8 % kRowsAtOnce);
            const int k = base + (kRowsAtOnce == 1 ? thread : thread / (8 * kRowsAtOnce) * 8 + thread % 8);
            if (L::kChunkK % kLanesK != 0 && k >= L::kChunkK) continue;
            const float* source = gemm.a + min(first_row + row, gemm.m - 1) * gemm.lda + k0 + k;
            const bool is_valid = k0 + k < k_end;
            copy_async<4>(target + k * L::kPitchA + row, is_valid ? source : gemm.a, is_valid ? 4 : 0);
        }
    }
}

// Y[m, n] = act(A[m, k] B[k, n] + bias[n]), Z the same before act. Rows of B start on 16-byte boundaries. Grid: (splits, tiles of n, tiles
// of m).
template <int kBm, int kTileN, int kTileK, int kNumStages, int kSplits, int kMinBlocks>
__global__ void __launch_bounds__((SkinnyLayout<kBm, kTileN, kTileK, kNumStages, kSplits>::kThreads), kMinBlocks)
    multiply_skinny(const Gemm gemm) {
    using L = SkinnyLayout<kBm, kTileN, kTileK, kNumStages, kSplits>;
    extern __shared__ __align__(16) float shared[];
    float* const chunks = shared;
    float* const ring = shared + 2 * L::kElemsA;
    const int thread = static_cast<int>(threadIdx.x);
    const int group = thread / L::kColumnThreads;
    const int column = thread % L::kColumnThreads * kVectorElems;
    const int rank = static_cast<int>(blockIdx.x);
    const int first_column = static_cast<int>(blockIdx.y) * kTileN;
    const int first_row = static_cast<int>(blockIdx.z) * kBm;
    // Each block of the cluster has whole chunks of k.
    const int all_chunks = divide_up(gemm.k, L::kChunkK);
    const int first_chunk = all_chunks * rank / kSplits;
    const int num_chunks = all_chunks * (rank + 1) / kSplits - first_chunk;
    const int k_begin = first_chunk * L::kChunkK;
    const int k_end = min((first_chunk + num_chunks) * L::kChunkK, gemm.k);
    const int num_steps = divide_up(k_end - k_begin, kTileK);
    const int bytes_b = 4 * max(0, min(kVectorElems, gemm.n - first_column - column));

    wait_for_predecessor();
    const float* next_b = gemm.b + (k_begin + group) * gemm.ldb + first_column + column;
    int next_k = k_begin + group;
    float* const own = ring + thread * kVectorElems;
    const auto copy_stage = [&](int stage) {
#pragma unroll
        for (int i = 0; i < L::kUnroll; ++i) {
            const int bytes = next_k < k_end ? bytes_b : 0;
            copy_async<16>(own + (stage * L::kUnroll + i) * L::kThreads * kVectorElems, bytes > 0 ? next_b : gemm.b, bytes);
            next_b += L::kGroups * gemm.ldb;
            next_k += L::kGroups;
        }
    };
    copy_chunk<L, kBm>(gemm, first_row, k_begin, k_end, chunks);
#pragma unroll
    for (int stage = 0; stage < kNumStages - 1; ++stage) {
        copy_stage(stage);
        commit_copies();
    }

    float sums[kBm][kVectorElems] = {};
    int reading = 0;
    for (int step = 0; step < num_steps; ++step) {
        wait_copies<kNumStages - 2>();
        const int chunk = step / L::kStepsPerChunk;
        if (step % L::kStepsPerChunk == 0) {
            // This chunk of A is complete in all threads, and all have left the buffer that the next one goes to.
            __syncthreads();
            const int next_chunk = k_begin + (chunk + 1) * L::kChunkK;
            if (next_chunk < k_end) copy_chunk<L, kBm>(gemm, first_row, next_chunk, k_end, chunks + (chunk + 1) % 2 * L::kElemsA);
        }
        const float* a = chunks + chunk % 2 * L::kElemsA + (step % L::kStepsPerChunk * kTileK + group) * L::kPitchA;
        const float* b = own + reading * L::kUnroll * L::kThreads * kVectorElems;
#pragma unroll
        for (int i = 0; i < L::kUnroll; ++i) {
            const float4 four = load_vector(b + i * L::kThreads * kVectorElems);
            const float values[kVectorElems] = {four.x, four.y, four.z, four.w};
            float rows[kBm];
            if constexpr (kBm == 1) {
                rows[0] = a[i * L::kGroups];
            } else {
                load_fragment<kBm, kVectorElems>(a + i * L::kGroups * L::kPitchA, rows);
            }
            add_outer_product(sums, rows, values);
        }
        // The stage that this thread read a step ago.
        copy_stage(reading == 0 ? kNumStages - 1 : reading - 1);
        commit_copies();
        reading = reading + 1 == kNumStages ? 0 : reading + 1;
    }
    allow_successor();
    wait_copies<0>();
    __syncthreads();

    // Sums of the groups, [group][row][column], then of the blocks: each adds its part of the tile over all of them, in order of k.
    float* const partial = ring;
#pragma unroll
    for (int i = 0; i < kBm; ++i) {
        const float4 value = {sums[i][0], sums[i][1], sums[i][2], sums[i][3]};
        store_vector(partial + (group * kBm + i) * kTileN + column, value);
    }
    __syncthreads();
    constexpr int kVectors = kBm * kTileN / kVectorElems;
    const auto add_groups = [&](int place) {
        float4 total = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
        for (int g = 0; g < L::kGroups; ++g) {
            const float4 part = load_vector(partial + (g * kVectors + place) * kVectorElems);
            total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
        }
        return total;
    };
    if constexpr (kSplits > 1) {
        // A thread writes only what it alone has read of group 0.
        for (int i = thread; i < kVectors; i += L::kThreads) store_vector(partial + i * kVectorElems, add_groups(i));
        sync_cluster();
        store_split_tile<kBm, kTileN, L::kThreads, kSplits>(gemm, partial, {first_row, first_column}, rank);
    } else {
        for (int i = thread; i < kVectors; i += L::kThreads) {
            const int row = first_row + i * kVectorElems / kTileN;
            const int place = first_column + i * kVectorElems % kTileN;
            if (row < gemm.m && place < gemm.n) store_vector_or_elements(gemm, row, place, add_groups(i));
        }
    }
    // No block may leave while another reads its sums.
    if constexpr (kSplits > 1) sync_cluster();
}

}  // namespace aicf::gemm_bias_act

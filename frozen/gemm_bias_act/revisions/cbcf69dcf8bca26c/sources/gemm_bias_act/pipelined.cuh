// Rung 7: tiles of the next steps arrive by cp.async while this one is multiplied. Where tiles of Y are few, the blocks of a cluster split
// the k of one (sm_90), and each finishes its share of it from all their sums, in order of k.
#pragma once

#include "common/async_copy.cuh"
#include "common/cluster.cuh"
#include "common/compute_here.cuh"
#include "common/programmatic.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {

// Shapes and places in shared memory of one pipelined configuration. A stage holds A transposed, kTileK rows of kPitchA, then B, kTileK
// rows of kPitchB, which is transposed too where it is [n, k].
template <int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN, int kThreadM, int kThreadN, int kNumStages, bool kIsNk>
struct Pipeline {
    static constexpr int kThreads = kTileM / kWarpM * (kTileN / kWarpN) * 32;
    // 4 more than a multiple of 32: the 8 x 4 elements (k, row) that a warp copies at once fall into 32 different banks.
    static constexpr int kPitchA = kTileM + 4;
    static constexpr int kPitchB = kIsNk ? kTileN + 4 : kTileN;
    static constexpr int kElemsA = kTileK * kPitchA;
    static constexpr int kElemsB = kTileK * kPitchB;
    static constexpr int kStageElems = kElemsA + kElemsB;
    static constexpr int kSharedElems = kNumStages * kStageElems > kTileM* kTileN ? kNumStages * kStageElems : kTileM * kTileN;
    static constexpr int kSharedBytes = kSharedElems * static_cast<int>(sizeof(float));

    // A, and B as [n, k]: lanes cover 8 consecutive k of 4 rows, a full 32-byte sector of each row.
    static constexpr int kLanesK = 8;
    static constexpr int kRowsPerPass = kThreads / kLanesK;
    static constexpr int kPassesA = kTileM / kRowsPerPass;
    static constexpr int kPassesB = kTileN / kRowsPerPass;
    static constexpr int kChunksK = kTileK / kLanesK;
    static_assert(kTileM % kRowsPerPass == 0 && kTileK % kLanesK == 0, "every thread copies the same number of A's elements");
    static_assert(kTileN % kRowsPerPass == 0, "and of B's, where B is [n, k]");
    static_assert(kTileM % 32 == 0 && kTileN % 32 == 0, "the pitch of what is transposed must be 4 modulo 32");
};

// Copies of one thread from B as [k, n]: kWidth elements each (4 where rows of B are aligned, else 1).
template <class P, int kTileK, int kTileN, int kWidth>
struct CopyB {
    static constexpr int kPerRow = kTileN / kWidth;
    static constexpr int kRowsPerPass = P::kThreads / kPerRow > 0 ? P::kThreads / kPerRow : 1;
    static constexpr int kColumnsPerPass = P::kThreads / kRowsPerPass;
    static constexpr int kPassesK = kTileK / kRowsPerPass;
    static constexpr int kPassesN = kPerRow / kColumnsPerPass;
    static_assert(kRowsPerPass * kColumnsPerPass == P::kThreads && kTileK % kRowsPerPass == 0 && kPerRow % kColumnsPerPass == 0,
                  "every thread copies the same number of B's elements");
};

// Y[m, n] = act(A[m, k] B[k, n] + bias[n]), where B lies as [n, k] if kIsNk.
//
// kNumStages tiles of A and B in a ring; kNumStages - 1 of them are on their way or being read at any time. Fragments of the next k are
// loaded from shared memory while this one's products are taken, across the border of two tiles too. A is transposed by the copy
// itself, element by element, which asks nothing of its alignment; B as [n, k] likewise (kWidthB is 1 then).
template <int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN, int kThreadM, int kThreadN, int kNumStages, int kGroup,
          int kMinBlocks, int kWidthB, int kSplits, bool kIsNk, bool kDrops>
__global__ void __launch_bounds__((Pipeline<kTileM, kTileN, kTileK, kWarpM, kWarpN, kThreadM, kThreadN, kNumStages, kIsNk>::kThreads),
                                  kMinBlocks) multiply_pipelined(const Gemm gemm) {
    using P = Pipeline<kTileM, kTileN, kTileK, kWarpM, kWarpN, kThreadM, kThreadN, kNumStages, kIsNk>;
    using B = CopyB<P, kTileK, kTileN, kWidthB>;
    using Layout = WarpLayout<kWarpM, kWarpN, kThreadM, kThreadN>;
    static_assert(kTileK % 2 == 0, "fragments alternate between two buffers");
    extern __shared__ __align__(16) float shared[];

    const TileOrigin origin = find_tile<kTileM, kTileN, kGroup>(gemm.m, gemm.n, static_cast<int>(blockIdx.x) / kSplits);
    const int thread = static_cast<int>(threadIdx.x);
    const int rank = static_cast<int>(blockIdx.x) % kSplits;
    const int all_tiles = divide_up(gemm.k, kTileK);
    const int first_k = kSplits == 1 ? 0 : all_tiles * rank / kSplits * kTileK;
    const int num_tiles = kSplits == 1 ? all_tiles : all_tiles * (rank + 1) / kSplits - all_tiles * rank / kSplits;
    if constexpr (kSplits > 1) wait_for_predecessor();

    // A: rows past the end repeat the last one; their products are never stored.
    const int lane_k = thread % P::kLanesK;
    const int row_in_pass = thread / P::kLanesK;
    unsigned row_offsets[P::kPassesA];
#pragma unroll
    for (int i = 0; i < P::kPassesA; ++i) {
        const int row = min(row_in_pass + i * P::kRowsPerPass, gemm.m - 1 - origin.row);
        row_offsets[i] = static_cast<unsigned>(row) * static_cast<unsigned>(gemm.lda);
    }
    const float* next_a = gemm.a + origin.row * gemm.lda + lane_k + first_k;
    const int target_a = lane_k * P::kPitchA + row_in_pass;

    // B: columns past the end are zeros.
    const int copy_k = kIsNk ? lane_k : thread / B::kColumnsPerPass;
    const int copy_column = kIsNk ? row_in_pass : thread % B::kColumnsPerPass * kWidthB;
    const float* next_b = kIsNk ? gemm.b + (origin.column + copy_column) * gemm.ldb + copy_k + first_k
                                : gemm.b + (copy_k + first_k) * gemm.ldb + origin.column + copy_column;
    const int target_b = P::kElemsA + copy_k * P::kPitchB + copy_column;
    const int columns_left = gemm.n - origin.column - copy_column;
    int next_k = first_k;

    const auto copy_tile = [&](float* stage) {
#pragma unroll
        for (int chunk = 0; chunk < P::kChunksK; ++chunk) {
            const int bytes = next_k + chunk * P::kLanesK + lane_k < gemm.k ? 4 : 0;
#pragma unroll
            for (int i = 0; i < P::kPassesA; ++i) {
                copy_async<4>(stage + target_a + chunk * P::kLanesK * P::kPitchA + i * P::kRowsPerPass,
                              next_a + chunk * P::kLanesK + row_offsets[i], bytes);
            }
        }
        if constexpr (kIsNk) {
            // Neither which columns are inside nor how far apart they lie is kept from tile to tile: the sums need the registers.
            const int left = compute_here(columns_left);
            const float* source = next_b;
#pragma unroll
            for (int i = 0; i < P::kPassesB; ++i) {
#pragma unroll
                for (int chunk = 0; chunk < P::kChunksK; ++chunk) {
                    const int bytes = next_k + chunk * P::kLanesK + lane_k < gemm.k && i * P::kRowsPerPass < left ? 4 : 0;
                    copy_async<4>(stage + target_b + chunk * P::kLanesK * P::kPitchB + i * P::kRowsPerPass, source + chunk * P::kLanesK,
                                  bytes);
                }
                source = compute_here(source + P::kRowsPerPass * gemm.ldb);
            }
        } else {
#pragma unroll
            for (int i = 0; i < B::kPassesK; ++i) {
                const bool is_row = next_k + copy_k + i * B::kRowsPerPass < gemm.k;
#pragma unroll
                for (int j = 0; j < B::kPassesN; ++j) {
                    const int left = columns_left - j * B::kColumnsPerPass * kWidthB;
                    const int bytes = is_row ? 4 * max(0, min(kWidthB, left)) : 0;
                    copy_async<4 * kWidthB>(stage + target_b + i * B::kRowsPerPass * P::kPitchB + j * B::kColumnsPerPass * kWidthB,
                                            next_b + i * B::kRowsPerPass * gemm.ldb + j * B::kColumnsPerPass * kWidthB, bytes);
                }
            }
        }
        next_a += kTileK;
        next_b += kIsNk ? kTileK : kTileK * gemm.ldb;
        next_k += kTileK;
        commit_copies();
    };

#pragma unroll
    for (int stage = 0; stage < kNumStages - 1; ++stage) copy_tile(shared + stage * P::kStageElems);

    const int warp = thread / 32;
    const int lane = thread % 32;
    const int row = warp / (kTileN / kWarpN) * kWarpM + Layout::row_of(lane);
    const int column = warp % (kTileN / kWarpN) * kWarpN + Layout::column_of(lane);

    float sums[kThreadM][kThreadN] = {};
    float fragment_a[2][kThreadM];
    float fragment_b[2][kThreadN];
    const float* reading = shared;
    float* writing = shared + (kNumStages - 1) * P::kStageElems;
    const auto load_fragments = [&](int k, int buffer) {
        load_fragment<kThreadM, Layout::kStepM>(reading + k * P::kPitchA + row, fragment_a[buffer]);
        load_fragment<kThreadN, Layout::kStepN>(reading + P::kElemsA + k * P::kPitchB + column, fragment_b[buffer]);
    };

    wait_copies<kNumStages - 2>();
    __syncthreads();
    load_fragments(0, 0);

#pragma unroll 1
    for (int tile = 0; tile < num_tiles; ++tile) {
#pragma unroll
        for (int k = 0; k < kTileK; ++k) {
            if (k == kTileK - 1) {
                // Every warp has its last fragments of this tile, whose stage may now be overwritten, and the next tile is complete.
                wait_copies<kNumStages - 2>();
                __syncthreads();
                reading = reading == shared + (kNumStages - 1) * P::kStageElems ? shared : reading + P::kStageElems;
            }
            load_fragments((k + 1) % kTileK, (k + 1) % 2);
            if (k == 0) {
                // Past the last tile this copies zeros, so that what the last step loads ahead is defined.
                copy_tile(writing);
                writing = writing == shared + (kNumStages - 1) * P::kStageElems ? shared : writing + P::kStageElems;
            }
            add_outer_product(sums, fragment_a[k % 2], fragment_b[k % 2]);
        }
    }

    wait_copies<0>();
    __syncthreads();
    stage_sums<kTileN, Layout::kStepM, Layout::kStepN>(sums, shared + row * kTileN + column);
    if constexpr (kSplits == 1) {
        __syncthreads();
        store_tile<kTileM, kTileN, P::kThreads, kDrops>(gemm, shared, origin);
    } else {
        sync_cluster();
        store_split_tile<kTileM, kTileN, P::kThreads, kSplits, kDrops>(gemm, shared, origin, rank);
        // No block may leave while another reads its sums.
        sync_cluster();
    }
}

}  // namespace aicf::gemm_bias_act

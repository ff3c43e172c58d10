// The main loop of fp32 products on CUDA cores for tens to hundreds of rows, and for last waves that are short (sm_90): tiles of as many
// rows as take the least time, 8 by 8 (even_shapes.cuh), and k split over as many blocks of a cluster as run at once. Groups of warps
// (slices) share the k of a stage where tiles are narrow.
//
// Shared memory is what small tiles wait for. So an operand that lies across its k is transposed without conflicts, from boxes that the
// copy engine swizzles, a part of a tile between any two steps of k.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/cluster_stores.cuh"
#include "common/ffma_tiles.cuh"
#include "common/mbarrier.cuh"
#include "common/quads.cuh"
#include "common/tensor_copy.cuh"
#include "common/tile_grid.cuh"

namespace aicf {

// A warp's tile: 8 lanes of kThreadM rows by 4 lanes of 8 columns, in patches of four, what is left of a lane's rows in one of two and one
// of one.
template <int kThreadM>
struct EvenWarp {
    static constexpr int kRowLanes = 8, kThreadN = 8, kColumns = 32;
    static constexpr int kRows = kRowLanes * kThreadM;
    using Lanes = PairedLanes<kRowLanes, 32 / kRowLanes>;

    __host__ __device__ static constexpr int find_patch(int i) {
        if (i < kThreadM / 4 * 4) return 4;
        return i < kThreadM / 2 * 2 ? 2 : 1;
    }
    // The first of a lane's row i and its neighbours in a patch, which starts at a multiple of its size.
    __device__ static int find_row(int row_lane, int i) {
        const int size = find_patch(i);
        const int first = i / size * size;
        return first * kRowLanes + row_lane * size + i - first;
    }

    // `source` is row 0 of the warp's tile.
    __device__ __forceinline__ static void load_rows(const float* source, int row_lane, float (&rows)[kThreadM]) {
#pragma unroll
        for (int i = 0; i < kThreadM; i += find_patch(i)) {
            const float* patch = source + i * kRowLanes + row_lane * find_patch(i);
            if (find_patch(i) == 4) {
                const float4 value = load_vector(patch);
                rows[i] = value.x;
                rows[i + 1] = value.y;
                rows[i + 2] = value.z;
                rows[i + 3] = value.w;
            } else if (find_patch(i) == 2) {
                const float2 value = *reinterpret_cast<const float2*>(patch);
                rows[i] = value.x;
                rows[i + 1] = value.y;
            } else {
                rows[i] = *patch;
            }
        }
    }
};

// A thread's part of transposing [kRows, kTileK], in 16-byte chunks swizzled by the copy engine, to [kTileK, kRows], pass by pass. A warp
// takes two chunks of 16 rows at a time.
template <int kRows, int kTileK, int kThreads>
struct SwizzledTurner {
    static constexpr int kChunks = kTileK / kVectorElems;
    static constexpr int kPairs = kChunks / 2;
    static constexpr int kRowsPerPass = kThreads / 32 / kPairs * 16;
    static constexpr int kPasses = divide_up(kRows, kRowsPerPass);
    // 4 modulo 8: the second chunk's elements, four rows of k further, are 16 banks away.
    static constexpr int kPitch = kRows + kVectorElems;
    static constexpr int kElems = kTileK * kPitch;
    // What the swizzle of 64 or 128 bytes repeats after.
    static constexpr int kSwizzleBytes = kTileK * 4;
    static_assert(kTileK == 16 || kTileK == 32, "rows of a box are 64 or 128 bytes");
    static_assert(kRows % 8 == 0 && kRows <= 256 && kThreads / 32 % kPairs == 0, "rows of a box, whose swizzle repeats after 8");

    int row, source, target;

    __device__ __forceinline__ explicit SwizzledTurner(int thread) {
        const int chunk = thread / 32 % kPairs * 2 + thread % 32 / 16;
        row = thread / 32 / kPairs * 16 + thread % 16;
        source = row * kTileK + (chunk ^ (row / (32 / kTileK) % kChunks)) * kVectorElems;
        target = chunk * kVectorElems * kPitch + row;
    }

    __device__ __forceinline__ bool is_inside(int pass) const {
        return (pass + 1) * kRowsPerPass <= kRows || row + pass * kRowsPerPass < kRows;
    }

    __device__ __forceinline__ void read(const float* tile, int pass, float4& chunk) const {
        if (is_inside(pass)) chunk = load_vector(tile + source + pass * kRowsPerPass * kTileK);
    }

    __device__ __forceinline__ void write(float* turned, int pass, const float4& chunk) const {
        if (!is_inside(pass)) return;
        float* place = turned + target + pass * kRowsPerPass;
        place[0] = chunk.x;
        place[kPitch] = chunk.y;
        place[2 * kPitch] = chunk.z;
        place[3 * kPitch] = chunk.w;
    }
};

// Shapes and places in shared memory, in floats: a stage holds A's tile, then B's. One that is turned comes as the copy engine swizzles it,
// [rows or columns, kTileK], and is transposed; one that is not as it lies, [kTileK, rows or columns]. Behind the ring lie two transposed
// tiles of each that is turned. Sums that the blocks of a cluster hand each other take the place of all that.
template <int kThreadM_, int kTileN_, int kTileK_, int kNumStages_, int kSlices_, int kMostSplits, bool kTurnsA_, bool kTurnsB_>
struct EvenLayout {
    static constexpr int kThreadM = kThreadM_, kTileN = kTileN_, kTileK = kTileK_, kNumStages = kNumStages_, kSlices = kSlices_;
    static constexpr bool kTurnsA = kTurnsA_, kTurnsB = kTurnsB_;
    using Warp = EvenWarp<kThreadM>;
    static constexpr int kThreadN = Warp::kThreadN;
    static constexpr int kTileM = Warp::kRows;
    static constexpr int kSliceThreads = kTileN / Warp::kColumns * 32;
    static constexpr int kThreads = kSlices * kSliceThreads;
    static constexpr int kSliceK = kTileK / kSlices;
    using TurnerA = SwizzledTurner<kTileM, kTileK, kThreads>;
    using TurnerB = SwizzledTurner<kTileN, kTileK, kThreads>;
    static constexpr int kElemsA = kTileM * kTileK;
    static constexpr int kStageElems = kElemsA + kTileN * kTileK;
    // Of the rows of k that fragments come from.
    static constexpr int kPitchA = kTurnsA ? TurnerA::kPitch : kTileM;
    static constexpr int kPitchB = kTurnsB ? TurnerB::kPitch : kTileN;
    static constexpr int kTurnedElemsA = kTurnsA ? TurnerA::kElems : 0;
    static constexpr int kTurnedElems = kTurnedElemsA + (kTurnsB ? TurnerB::kElems : 0);
    static constexpr int kRingElems = kNumStages * kStageElems;
    static constexpr int kPassesA = kTurnsA ? TurnerA::kPasses : 0;
    static constexpr int kPasses = kPassesA + (kTurnsB ? TurnerB::kPasses : 0);
    static constexpr int kPassSteps = kPasses > 0 ? kSliceK / kPasses : kSliceK;  // steps of k from pass to pass
    // Where both operands are turned, a stage is free when they have been, a tile earlier than where fragments come from it.
    static constexpr bool kLeavesStage = kTurnsA && kTurnsB;
    // Four neighbouring sums of a thread make a group. Groups are dealt out to the blocks of the cluster, and a block's to its slices.
    static constexpr int kGroups = kThreadM * 2;
    static constexpr int kPartElems = kSliceThreads * kVectorElems;
    static constexpr int kSumElems = (kGroups + kMostSplits - 1) * kSlices * kPartElems;
    static constexpr int kLoopElems = kRingElems + 2 * kTurnedElems;
    static constexpr int kBarrierOffset = (kLoopElems > kSumElems ? kLoopElems : kSumElems) * 4;
    static constexpr int kSharedBytes = kBarrierOffset + (kNumStages + 1) * static_cast<int>(sizeof(Barrier));
    static_assert(kTurnsA || !kTurnsB, "a B that is turned alone is not made");
    static_assert(kPassSteps >= 1 && kSliceK % 2 == 0, "a pass a step, and fragments alternate between two buffers");
    static_assert(kStageElems * 4 % 1024 == 0 || kTileK == 16, "boxes begin where their swizzle does");
    static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit shared memory");
};

// Which part of a tile's k a block has, one of the `splits` of a cluster, and which groups of sums it finishes. Without a cluster there is
// one.
template <class L>
struct EvenPart {
    int rank, splits;
    int first_tile, num_tiles;  // of k
    int num_own;                // groups of sums

    __device__ __forceinline__ EvenPart(int block, int num_splits, int k) : rank(block % num_splits), splits(num_splits) {
        const int all_tiles = divide_up(k, L::kTileK);
        first_tile = all_tiles * rank / splits;
        num_tiles = all_tiles * (rank + 1) / splits - first_tile;
        num_own = (L::kGroups - rank + splits - 1) / splits;
    }
};

// Places of a thread's fragments and sums in the tile.
template <class L>
struct EvenPlace {
    using Warp = typename L::Warp;
    int slice, row_lane, column;  // of its group of warps; of its warp; in the tile

    __device__ __forceinline__ explicit EvenPlace(int thread) {
        const int lane = thread % 32;
        slice = thread / L::kSliceThreads;
        row_lane = Warp::Lanes::find_row(lane);
        column = thread % L::kSliceThreads / 32 * Warp::kColumns + Warp::Lanes::find_column(lane) * kVectorElems;
    }

    // Of a group of sums.
    __device__ __forceinline__ int find_row(int group) const { return Warp::find_row(row_lane, group / 2); }
    __device__ __forceinline__ int find_column(int group) const { return column + group % 2 * (Warp::kColumns / 2); }
};

template <class L>
__device__ __forceinline__ Barrier* find_even_barriers(std::uint8_t* shared) {
    return reinterpret_cast<Barrier*>(shared + L::kBarrierOffset);
}

// Adds the products of this block's part of k to `sums`, of the tile at `origin`: A is [rows, k] where L::kTurnsA, else [k, rows]; B is
// [columns, k] where L::kTurnsB, else [k, columns]. `begin()` comes before a thread's first access to global memory. Behind it warps may
// still read the ring.
template <class L, class Begin>
__device__ __forceinline__ void multiply_evenly(float (&sums)[L::kThreadM][L::kThreadN], std::uint8_t* shared, const TensorMap* map_a,
                                                const TensorMap* map_b, TileOrigin origin, const EvenPart<L>& part, const EvenPlace<L>& at,
                                                int k_size, Begin begin) {
    using Warp = typename L::Warp;
    float* const ring = reinterpret_cast<float*>(shared);
    float* const transposed = ring + L::kRingElems;
    Barrier* const full = find_even_barriers<L>(shared);
    Barrier* const received = full + L::kNumStages;
    const int thread = static_cast<int>(threadIdx.x);
    const auto copy_tile = [&](int tile, int stage) {
        float* target = ring + stage * L::kStageElems;
        const int k = (part.first_tile + tile) * L::kTileK;
        arrive_expecting(full + stage, L::kStageElems * 4);
        load_box(target, map_a, L::kTurnsA ? k : origin.row, L::kTurnsA ? origin.row : k, full + stage);
        load_box(target + L::kElemsA, map_b, L::kTurnsB ? k : origin.column, L::kTurnsB ? origin.column : k, full + stage);
    };
    if (thread == 0) {
        for (int i = 0; i < L::kNumStages; ++i) init_barrier(full + i, 1);
        init_barrier(received, 1);
        publish_barriers();
        begin();
        for (int i = 0; i < L::kNumStages && i < part.num_tiles; ++i) copy_tile(i, i);
        if (part.splits > 1) {
            arrive_expecting(received, static_cast<std::uint32_t>(part.num_own * part.splits * L::kSlices * L::kPartElems * 4));
        }
    }
    __syncthreads();
    begin();

    const typename L::TurnerA turner_a(thread);
    const typename L::TurnerB turner_b(thread);
    float4 chunk = {};
    const auto read_chunk = [&](const float* stage, int pass) {
        if (pass < L::kPassesA) {
            turner_a.read(stage, pass, chunk);
        } else {
            turner_b.read(stage + L::kElemsA, pass - L::kPassesA, chunk);
        }
    };
    const auto write_chunk = [&](float* target, int pass) {
        if (pass < L::kPassesA) {
            turner_a.write(target, pass, chunk);
        } else {
            turner_b.write(target + L::kTurnedElemsA, pass - L::kPassesA, chunk);
        }
    };

    float fragment_a[2][L::kThreadM];
    float fragment_b[2][L::kThreadN];
    const auto load_fragments = [&](const float* turned, const float* stage, int k, int buffer) {
        const float* tile_a = L::kTurnsA ? turned : stage;
        const float* tile_b = (L::kTurnsB ? turned + L::kTurnedElemsA : stage + L::kElemsA) + at.column;
        const int step = at.slice * L::kSliceK + k;
        Warp::load_rows(tile_a + step * L::kPitchA, at.row_lane, fragment_a[buffer]);
        load_fragment<L::kThreadN, Warp::kColumns / 2>(tile_b + step * L::kPitchB, fragment_b[buffer]);
    };

    const float* stage = ring;
    float* reading = transposed;
    float* writing = transposed + L::kTurnedElems;
    RingPosition<L::kNumStages> position;
    // Of the last tile. Where it is short, what it has no k for is left out, 4 steps at a time.
    [[maybe_unused]] const int steps_left = k_size - (part.first_tile + part.num_tiles - 1) * L::kTileK - at.slice * L::kSliceK;
    wait_phase(full, 0);
    if constexpr (L::kPasses > 0) {
#pragma unroll
        for (int pass = 0; pass < L::kPasses; ++pass) {
            read_chunk(stage, pass);
            write_chunk(reading, pass);
        }
        __syncthreads();
    }
    if (L::kLeavesStage && thread == 0 && L::kNumStages < part.num_tiles) copy_tile(L::kNumStages, 0);
    load_fragments(reading, stage, 0, 0);
#pragma unroll 1
    for (int tile = 0; tile < part.num_tiles; ++tile) {
        const bool has_next = tile + 1 < part.num_tiles;
        const int last_stage = position.stage;
        position.advance();
        const float* next = position.stage == 0 ? ring : stage + L::kStageElems;
#pragma unroll
        for (int k = 0; k < L::kSliceK; ++k) {
            if (L::kPasses > 0 && has_next) {
                if (k == 0) wait_phase(full + position.stage, position.parity);
                const int pass = k / L::kPassSteps;
                if (k % L::kPassSteps == 0 && pass <= L::kPasses) {
                    if (pass > 0) write_chunk(writing, pass - 1);
                    if (pass < L::kPasses) read_chunk(next, pass);
                }
                if (k == L::kSliceK - 1 && pass < L::kPasses) write_chunk(writing, L::kPasses - 1);
            }
            // Every warp has its last fragments of this tile, and the next one is transposed, or there.
            if (k == L::kSliceK - 1 && (L::kPasses > 0 || has_next)) {
                if (L::kPasses == 0) wait_phase(full + position.stage, position.parity);
                __syncthreads();
            }
            if (k + 1 < L::kSliceK) {
                load_fragments(reading, stage, k + 1, (k + 1) % 2);
            } else if (has_next) {
                load_fragments(writing, next, 0, (k + 1) % 2);
            }
            add_outer_product(sums, fragment_a[k % 2], fragment_b[k % 2]);
            if (L::kPasses == 0 && k % 4 == 3 && k + 1 < L::kSliceK && !has_next && k + 1 >= steps_left) break;
        }
        if (thread == 0) {
            const int copied = tile + L::kNumStages + (L::kLeavesStage ? 1 : 0);
            if (copied < part.num_tiles) copy_tile(copied, L::kLeavesStage ? position.stage : last_stage);
        }
        stage = next;
        float* const swapped = reading;
        reading = writing;
        writing = swapped;
    }
}

// Hands the sums of all slices, and of all blocks of the cluster, to those that finish them. Behind it they are there.
template <class L>
__device__ __forceinline__ void hand_over_evenly(const float (&sums)[L::kThreadM][L::kThreadN], std::uint8_t* shared,
                                                 const EvenPart<L>& part, const EvenPlace<L>& at) {
    Barrier* const received = find_even_barriers<L>(shared) + L::kNumStages;
    // All warps, and all blocks of the cluster, are done with their rings. What slice s of block b has of a block's i-th group is at place
    // (i splits + b) kSlices + s.
    float* const parts = reinterpret_cast<float*>(shared) + static_cast<int>(threadIdx.x) % L::kSliceThreads * kVectorElems;
    if (part.splits > 1) {
        sync_cluster_shared();
    } else {
        __syncthreads();
    }
    int owner = 0, place = part.rank;
#pragma unroll
    for (int group = 0; group < L::kGroups; ++group) {
        const int i = group / 2, j = group % 2 * kVectorElems;
        const float4 four = {sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]};
        float* const target = parts + (place * L::kSlices + at.slice) * L::kPartElems;
        // A block without a cluster may not send, not even to itself.
        if (part.splits > 1) {
            send_to_block(target, received, static_cast<std::uint32_t>(owner), four);
        } else {
            store_vector(target, four);
        }
        if (++owner == part.splits) {
            owner = 0;
            place += part.splits;
        }
    }
    if (part.splits > 1) {
        wait_phase(received, 0);
    } else if (L::kSlices > 1) {
        __syncthreads();
    }
}

// Adds up the parts of this block's group `own`, which is the tile's group own * splits + rank, in order of block, then slice.
template <class L>
__device__ __forceinline__ float4 add_even_parts(const std::uint8_t* shared, const EvenPart<L>& part, int own) {
    const int num_parts = part.splits * L::kSlices;
    const float* four = reinterpret_cast<const float*>(shared) + static_cast<int>(threadIdx.x) % L::kSliceThreads * kVectorElems +
                        own * num_parts * L::kPartElems;
    float4 total = load_vector(four);
#pragma unroll 4
    for (int i = 1; i < num_parts; ++i) {
        four += L::kPartElems;
        total = add_quads(total, load_vector(four));
    }
    return total;
}

}  // namespace aicf

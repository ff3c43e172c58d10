// Products of few tiles and short k, in fp32 on CUDA cores or in 16 bits by mma.sync (sm_90), where latencies are all that counts. What a
// block reads is on its way at once, in a deep ring of tiles as they lie in memory; groups of warps (slices) share the k of every stage;
// blocks of a cluster share the k of a tile and hand their sums to the one that finishes them, so that nobody waits but for
// what it needs. The code is kept short: instructions that are read for the first time are a latency too.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/async_copy.cuh"
#include "common/cluster_stores.cuh"
#include "common/elements.cuh"
#include "common/mma.cuh"
#include "common/tile_grid.cuh"
#include "common/vector_access.cuh"

namespace aicf {

// An operand of D[rows, columns] = A B: [k, rows or columns] where rows of memory run along the tile, else [rows or columns, k].
template <class Element>
struct ShortOperand {
    const Element* base;
    std::int64_t stride;  // from one row of memory to the next, elements
    int width;            // bytes of a copy: the most of 16, 4 and 2 that rows are aligned to
};

template <class Element>
ShortOperand<Element> make_short_operand(const void* base, std::int64_t stride) {
    constexpr int kBytes = static_cast<int>(sizeof(Element));
    const auto is_aligned = [&](unsigned bytes) {
        return reinterpret_cast<std::uintptr_t>(base) % bytes == 0 && stride * kBytes % bytes == 0;
    };
    return {static_cast<const Element*>(base), stride, is_aligned(16) ? 16 : is_aligned(4) ? 4 : kBytes};
}

// Shapes and places in shared memory, whose unit is a float. A stage holds a box of A, then one of B: 128 bytes of k, by the tile's edge.
template <class Value, int kTileRows, int kTileColumns, int kStages>
struct ShortLayout {
    using Element = Value;
    static constexpr bool kIsHalf = sizeof(Element) == 2;
    static constexpr int kTileM = kTileRows, kTileN = kTileColumns, kNumStages = kStages;
    static constexpr int kTileK = 128 / static_cast<int>(sizeof(Element));
    // 16 bytes more than a multiple of 64: eight rows that are read at once lie in different banks.
    static constexpr int kPad = 16 / static_cast<int>(sizeof(Element));

    // fp32: 8 x 8 threads have a tile, kPatchM x kPatchN sums each. 16 bits: a warp has 32 x 32 of it.
    static constexpr int kLanes = 8;
    static constexpr int kPatchM = kTileM / kLanes, kPatchN = kTileN / kLanes;
    static constexpr int kWarpsN = kTileN / 32;
    static constexpr int kSliceThreads = kIsHalf ? kTileM / 32 * kWarpsN * 32 : kLanes * kLanes;
    static constexpr int kSlices = kIsHalf && kTileM * kTileN > 1024 ? 2 : 4;
    static constexpr int kThreads = kSlices * kSliceThreads;
    static constexpr int kSliceK = kTileK / kSlices;
    static constexpr int kSums = kIsHalf ? 32 : kPatchM * kPatchN;
    // Of a multiprocessor: 8 x 8 sums and their operands take more than half of its registers.
    static constexpr int kMinBlocks = kTileM * kTileN > 2048 ? 1 : 2;

    static constexpr int count_box(int edge, bool is_along) { return is_along ? kTileK * (edge + kPad) : edge * (kTileK + kPad); }
    static constexpr int kElemsM = count_box(kTileM, true) > count_box(kTileM, false) ? count_box(kTileM, true) : count_box(kTileM, false);
    static constexpr int kElemsN = count_box(kTileN, true) > count_box(kTileN, false) ? count_box(kTileN, true) : count_box(kTileN, false);
    static constexpr int kStageElems = kElemsM + kElemsN;
    static constexpr int kRingFloats = kNumStages * kStageElems * static_cast<int>(sizeof(Element)) / 4;
    // Sums of all slices take the place of the ring; those that blocks hand each other follow it.
    static constexpr int kSumPitch = kTileN + 8;
    static constexpr int kSliceFloats = kTileM * kSumPitch;
    static constexpr int kHandedPlace = kRingFloats > kSlices* kSliceFloats ? kRingFloats : kSlices * kSliceFloats;
    static constexpr int kSharedFloats = kHandedPlace + kTileM * kTileN;
    static constexpr int kHandedBytes = kTileM * kTileN * 4;

    static_assert(kTileM % 32 == 0 && kTileN % 32 == 0 && kTileM <= 64 && kTileN <= 64, "patches of 4 x 4 to 8 x 8, or warps of 32 x 32");
};

// Copies a box of kRows x kColumns into rows of kPitch, kWidth bytes at a time; zeros beyond the matrix's `rows_left` and `columns_left`.
template <int kWidth, int kRows, int kColumns, int kPitch, int kThreads, class Element>
__device__ __forceinline__ void copy_box_by(Element* target, const Element* source, std::int64_t stride, int rows_left, int columns_left) {
    constexpr int kElems = kWidth / static_cast<int>(sizeof(Element));
    constexpr int kPerRow = kColumns / kElems;
    constexpr int kAtOnce = kThreads / kPerRow;
    static_assert(kThreads % kPerRow == 0 && kRows % kAtOnce == 0, "every thread copies as much as any other");
    const int first = static_cast<int>(threadIdx.x) / kPerRow;
    const int column = static_cast<int>(threadIdx.x) % kPerRow * kElems;
    const int num_valid = max(0, min(kElems, columns_left - column));
    source += first * stride + column;
    target += first * kPitch + column;
#pragma unroll 4
    for (int i = 0; i < kRows; i += kAtOnce) {
        const int valid = i + first < rows_left ? num_valid : 0;
        if constexpr (kWidth >= 4) {
            copy_async<kWidth>(target + i * kPitch, source, valid * static_cast<int>(sizeof(Element)));
        } else {
            target[i * kPitch] = valid > 0 ? *source : Element{};
        }
        source += kAtOnce * stride;
    }
}

// The box of an operand at `first` of its rows or columns and at `k`.
template <class L, int kEdge, bool kAlong>
__device__ __forceinline__ void copy_box(typename L::Element* target, const ShortOperand<typename L::Element>& from, int first, int size,
                                         int k, int end_k) {
    using Element = typename L::Element;
    constexpr int kRows = kAlong ? L::kTileK : kEdge;
    constexpr int kColumns = kAlong ? kEdge : L::kTileK;
    const int row = kAlong ? k : first;
    const int column = kAlong ? first : k;
    const Element* source = from.base + row * from.stride + column;
    const int rows_left = (kAlong ? end_k : size) - row;
    const int columns_left = (kAlong ? size : end_k) - column;
    const auto copy = [&](auto width) {
        copy_box_by<decltype(width)::value, kRows, kColumns, kColumns + L::kPad, L::kThreads>(target, source, from.stride, rows_left,
                                                                                              columns_left);
    };
    if (from.width == 16) {
        copy(std::integral_constant<int, 16>{});
    } else if (from.width == 4) {
        copy(std::integral_constant<int, 4>{});
    } else if constexpr (L::kIsHalf) {
        copy(std::integral_constant<int, 2>{});
    }
}

// The row or column of a lane's sum i, of kCount in fp32: neighbouring lanes read neighbouring rows of a box, whole or 16 bytes of one.
template <class L, bool kAlong>
__device__ __forceinline__ int find_place(int lane, int i) {
    return kAlong ? lane * kVectorElems + i % kVectorElems + i / kVectorElems * kVectorElems * L::kLanes : lane + i * L::kLanes;
}

// Four k of a lane's rows or columns.
template <class L, int kEdge, bool kAlong, int kCount>
__device__ __forceinline__ void load_patch(float (&patch)[kVectorElems][kCount], const float* box, int k, int lane) {
    if constexpr (kAlong) {
#pragma unroll
        for (int step = 0; step < kVectorElems; ++step) {
#pragma unroll
            for (int i = 0; i < kCount; i += kVectorElems) {
                const float4 value = load_vector(box + (k + step) * (kEdge + L::kPad) + find_place<L, true>(lane, i));
                patch[step][i] = value.x;
                patch[step][i + 1] = value.y;
                patch[step][i + 2] = value.z;
                patch[step][i + 3] = value.w;
            }
        }
    } else {
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const float4 value = load_vector(box + find_place<L, false>(lane, i) * (L::kTileK + L::kPad) + k);
            patch[0][i] = value.x;
            patch[1][i] = value.y;
            patch[2][i] = value.z;
            patch[3][i] = value.w;
        }
    }
}

// Adds this slice's k of a stage to a thread's sums: [row][column] of its patch in fp32.
template <class L, bool kAlongA, bool kAlongB>
__device__ __forceinline__ void multiply_fp32_slice(float (&sums)[L::kPatchM * L::kPatchN / 4][4], const float* a, const float* b) {
    const int thread = static_cast<int>(threadIdx.x) % L::kSliceThreads;
    const int first = static_cast<int>(threadIdx.x) / L::kSliceThreads * L::kSliceK;
#pragma unroll
    for (int k = 0; k < L::kSliceK; k += kVectorElems) {
        float rows[kVectorElems][L::kPatchM];
        float columns[kVectorElems][L::kPatchN];
        load_patch<L, L::kTileM, kAlongA>(rows, a, first + k, thread / L::kLanes);
        load_patch<L, L::kTileN, kAlongB>(columns, b, first + k, thread % L::kLanes);
#pragma unroll
        for (int step = 0; step < kVectorElems; ++step) {
#pragma unroll
            for (int i = 0; i < L::kPatchM; ++i) {
#pragma unroll
                for (int j = 0; j < L::kPatchN; ++j) {
                    float& sum = sums[(i * L::kPatchN + j) / 4][j % 4];
                    sum = fmaf(rows[step][i], columns[step][j], sum);
                }
            }
        }
    }
}

// The first row and column of a warp's 32 x 32 of the tile, in 16 bits.
template <class L>
__device__ __forceinline__ TileOrigin find_short_warp() {
    const int warp = static_cast<int>(threadIdx.x) % L::kSliceThreads / 32;
    return {warp / L::kWarpsN * 32, warp % L::kWarpsN * 32};
}

// The same in 16 bits: 2 x 4 fragments of 16 x 8.
template <class L, bool kAlongA, bool kAlongB>
__device__ __forceinline__ void multiply_half_slice(float (&sums)[8][4], const typename L::Element* a, const typename L::Element* b) {
    constexpr int kPitchA = (kAlongA ? L::kTileM : L::kTileK) + L::kPad;
    constexpr int kPitchB = (kAlongB ? L::kTileN : L::kTileK) + L::kPad;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int first = static_cast<int>(threadIdx.x) / L::kSliceThreads * L::kSliceK;
    const TileOrigin warp = find_short_warp<L>();
#pragma unroll
    for (int step = 0; step < L::kSliceK; step += 16) {
        const int k = first + step;
        std::uint32_t rows[2][4];
        std::uint32_t columns[2][4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = warp.row + i * 16;
            if constexpr (kAlongA) {
                const int place = (k + lane / 16 * 8 + lane % 8) * kPitchA + row + lane / 8 % 2 * 8;
                load_matrices_transposed(rows[i], find_shared_address(a + place));
            } else {
                load_matrices(rows[i], find_shared_address(a + (row + lane % 16) * kPitchA + k + lane / 16 * 8));
            }
            const int column = warp.column + i * 16;
            // Words 0, 1 are the two halves of k for the first 8 columns, 2, 3 for the next.
            if constexpr (kAlongB) {
                const int place = (k + lane / 8 % 2 * 8 + lane % 8) * kPitchB + column + lane / 16 * 8;
                load_matrices_transposed(columns[i], find_shared_address(b + place));
            } else {
                const int place = (column + lane / 16 * 8 + lane % 8) * kPitchB + k + lane / 8 % 2 * 8;
                load_matrices(columns[i], find_shared_address(b + place));
            }
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                multiply_warp<typename L::Element>(sums[i * 4 + j], rows[i], columns[j / 2][j % 2 * 2], columns[j / 2][j % 2 * 2 + 1]);
            }
        }
    }
}

// Puts a thread's sums into its slice's tile in shared memory.
template <class L, bool kAlongA, bool kAlongB>
__device__ __forceinline__ void stage_short_sums(const float (&sums)[L::kSums / 4][4], float* shared) {
    float* const tile = shared + static_cast<int>(threadIdx.x) / L::kSliceThreads * L::kSliceFloats;
    if constexpr (L::kIsHalf) {
        const TileOrigin warp = find_short_warp<L>();
        const int lane = static_cast<int>(threadIdx.x) % 32;
        float* const first = tile + (warp.row + lane / 4) * L::kSumPitch + warp.column + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                float* const place = first + i * 16 * L::kSumPitch + j * 8;
                *reinterpret_cast<float2*>(place) = {sums[i * 4 + j][0], sums[i * 4 + j][1]};
                *reinterpret_cast<float2*>(place + 8 * L::kSumPitch) = {sums[i * 4 + j][2], sums[i * 4 + j][3]};
            }
        }
    } else {
        const int thread = static_cast<int>(threadIdx.x) % L::kSliceThreads;
#pragma unroll
        for (int i = 0; i < L::kPatchM; ++i) {
            float* const row = tile + find_place<L, kAlongA>(thread / L::kLanes, i) * L::kSumPitch;
#pragma unroll
            for (int j = 0; j < L::kPatchN; ++j) {
                row[find_place<L, kAlongB>(thread % L::kLanes, j)] = sums[(i * L::kPatchN + j) / 4][j % 4];
            }
        }
    }
}

// A B over k in [first_k, end_k), for the tile at `origin` of D[rows, columns]: the sums of all slices, staged in shared memory. All
// threads have theirs there.
template <class L, bool kAlongA, bool kAlongB>
__device__ __forceinline__ void multiply_short_tile(float* shared, const ShortOperand<typename L::Element>& a,
                                                    const ShortOperand<typename L::Element>& b, int rows, int columns, int first_k,
                                                    int end_k, TileOrigin origin) {
    using Element = typename L::Element;
    constexpr int kAhead = L::kNumStages - 1;
    auto* const ring = reinterpret_cast<Element*>(shared);
    const int num_steps = divide_up(end_k - first_k, L::kTileK);
    float sums[L::kSums / 4][4] = {};
    // One place in the code for all copies, those ahead of the first step too.
#pragma unroll 1
    for (int copied = 0; copied < num_steps + kAhead; ++copied) {
        const int step = copied - kAhead;
        if (step >= 0) {
            wait_copies<kAhead - 1>();
            __syncthreads();
        }
        if (copied < num_steps) {
            // Into the stage that all warps left before this barrier.
            Element* const stage = ring + copied % L::kNumStages * L::kStageElems;
            const int k = first_k + copied * L::kTileK;
            copy_box<L, L::kTileM, kAlongA>(stage, a, origin.row, rows, k, end_k);
            copy_box<L, L::kTileN, kAlongB>(stage + L::kElemsM, b, origin.column, columns, k, end_k);
        }
        commit_copies();
        if (step >= 0) {
            const Element* const stage = ring + step % L::kNumStages * L::kStageElems;
            if constexpr (L::kIsHalf) {
                multiply_half_slice<L, kAlongA, kAlongB>(sums, stage, stage + L::kElemsM);
            } else {
                multiply_fp32_slice<L, kAlongA, kAlongB>(sums, stage, stage + L::kElemsM);
            }
        }
    }
    __syncthreads();
    stage_short_sums<L, kAlongA, kAlongB>(sums, shared);
    __syncthreads();
}

// Four neighbouring elements of the tile: the staged sums of all slices of this block, in order.
template <class L>
__device__ __forceinline__ float4 add_slices(const float* shared, int row, int column) {
    const float* const place = shared + row * L::kSumPitch + column;
    float4 total = load_vector(place);
#pragma unroll
    for (int slice = 1; slice < L::kSlices; ++slice) {
        const float4 part = load_vector(place + slice * L::kSliceFloats);
        total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
    }
    return total;
}

// Makes a barrier that ends its phase when `num_bytes` have been sent to it. All threads of the cluster meet before the first is.
__device__ __forceinline__ void expect_sums(Barrier* barrier, int num_bytes) {
    init_barrier(barrier, 1);
    publish_barriers();
    arrive_expecting(barrier, static_cast<std::uint32_t>(num_bytes));
}

// How many rows of its tile a block finishes that shares the tile's k with others: the tile's rows in `splits`, a power of two.
template <class L>
__device__ __forceinline__ int count_share(int splits) {
    return L::kTileM >> (__ffs(splits) - 1);
}

// Hands each block of those from `first_rank` on, which share the k of a tile, the sums that this block, number `part` of them, has of its
// share. They are there when the phase of that block's `barrier` ends, which expects kHandedBytes; all blocks must run by now.
template <class L>
__device__ __forceinline__ void hand_over_sums(float* shared, Barrier* barrier, int part, int first_rank, int splits) {
    constexpr int kPerRow = L::kTileN / kVectorElems;
    const int share = count_share<L>(splits);
    const int share_bits = __ffs(share) - 1;
    float* const handed = shared + L::kHandedPlace + part * share * L::kTileN;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < L::kTileM * kPerRow; i += L::kThreads) {
        const int row = i / kPerRow;
        const int column = i % kPerRow * kVectorElems;
        const auto rank = static_cast<std::uint32_t>(first_rank + (row >> share_bits));
        send_to_block(handed + (row & (share - 1)) * L::kTileN + column, barrier, rank, add_slices<L>(shared, row, column));
    }
}

// Four neighbouring elements of this block's share, whose rows count from 0: what all blocks have handed over, in order; or its own sums.
template <class L>
__device__ __forceinline__ float4 add_handed_sums(const float* shared, int row, int column, int splits) {
    if (splits == 1) return add_slices<L>(shared, row, column);
    const int step = count_share<L>(splits) * L::kTileN;
    const float* place = shared + L::kHandedPlace + row * L::kTileN + column;
    float4 total = load_vector(place);
#pragma unroll 1
    for (int part = 1; part < splits; ++part) {
        place += step;
        const float4 other = load_vector(place);
        total = {total.x + other.x, total.y + other.y, total.z + other.z, total.w + other.w};
    }
    return total;
}

// The k at which part `part` of a tile's k begins, and the one ahead of it ends.
template <class L>
__device__ __forceinline__ int find_short_part(int k, int part, int splits) {
    return (divide_up(k, L::kTileK) * part >> (__ffs(splits) - 1)) * L::kTileK;
}

// Blocks along k, a power of two: as many as `num_blocks` allow for, which are all that shall run, with a step for each.
inline int count_short_splits(std::int64_t num_tiles, std::int64_t num_steps, int num_blocks, int most) {
    int splits = 1;
    while (splits < most && num_tiles * splits * 2 <= num_blocks && num_steps >= 2 * splits) splits *= 2;
    return splits;
}

}  // namespace aicf

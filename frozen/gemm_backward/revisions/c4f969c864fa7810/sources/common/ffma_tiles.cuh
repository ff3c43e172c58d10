// Products of fp32 on CUDA cores: what a thread holds of a warp's tile, and how it takes its operands from shared memory.
#pragma once

#include "common/vector_access.cuh"

namespace aicf {

// Which of kLanesM rows and kLanesN columns of lanes one of a warp has. Lanes i and i ^ 1 have the same rows, i and i ^ 2 the same columns:
// 16-byte reads of shared memory then take two passes over the banks, where they take four if no such pairs have the same address.
template <int kLanesM, int kLanesN>
struct PairedLanes {
    static_assert(kLanesM * kLanesN == 32, "a warp has 32 lanes");

    __device__ static int find_row(int lane) {
        if constexpr (kLanesM == 1 || kLanesN == 1) return lane / kLanesN;
        return lane / 2 % 2 + lane / (2 * kLanesN) * 2;
    }
    __device__ static int find_column(int lane) {
        if constexpr (kLanesM == 1 || kLanesN == 1) return lane % kLanesN;
        return lane % 2 + lane / 4 % (kLanesN / 2) * 2;
    }
};

// Where a thread's kTileM x kTileN products lie in the tile of a warp of kWarpM x kWarpN: 4 x 4 patches, one every kLanesM * 4 rows and
// every kLanesN * 4 columns, so that the lanes of a warp read neighbouring float4 of A and of B.
template <int kWarpM, int kWarpN, int kThreadM, int kThreadN>
struct WarpLayout {
    static constexpr int kLanesM = kWarpM / kThreadM;
    static constexpr int kLanesN = kWarpN / kThreadN;
    static constexpr int kStepM = kLanesM * kVectorElems;
    static constexpr int kStepN = kLanesN * kVectorElems;
    using Lanes = PairedLanes<kLanesM, kLanesN>;
    static_assert(kThreadM % kVectorElems == 0 && kThreadN % kVectorElems == 0, "patches are 4 x 4");

    // First row and column of a lane's first patch in the warp's tile.
    __device__ static int row_of(int lane) { return Lanes::find_row(lane) * kVectorElems; }
    __device__ static int column_of(int lane) { return Lanes::find_column(lane) * kVectorElems; }
};

// Takes kElems values, float4 by float4 with kStep elements between them, from shared memory.
template <int kElems, int kStep>
__device__ __forceinline__ void load_fragment(const float* source, float (&fragment)[kElems]) {
#pragma unroll
    for (int i = 0; i < kElems / kVectorElems; ++i) {
        const float4 value = load_vector(source + i * kStep);
        fragment[4 * i + 0] = value.x;
        fragment[4 * i + 1] = value.y;
        fragment[4 * i + 2] = value.z;
        fragment[4 * i + 3] = value.w;
    }
}

template <int kThreadM, int kThreadN>
__device__ __forceinline__ void add_outer_product(float (&sums)[kThreadM][kThreadN], const float (&a)[kThreadM],
                                                  const float (&b)[kThreadN]) {
#pragma unroll
    for (int i = 0; i < kThreadM; ++i) {
#pragma unroll
        for (int j = 0; j < kThreadN; ++j) {
            // Back and forth: neighbouring products share an operand, which the register reuse cache then holds.
            const int column = i % 2 == 0 ? j : kThreadN - 1 - j;
            sums[i][column] = fmaf(a[i], b[column], sums[i][column]);
        }
    }
}

// Puts a thread's sums, laid out as WarpLayout says, into the block's tile in shared memory; `target` is the thread's first element.
template <int kPitch, int kStepM, int kStepN, int kThreadM, int kThreadN>
__device__ __forceinline__ void stage_sums(const float (&sums)[kThreadM][kThreadN], float* target) {
#pragma unroll
    for (int i = 0; i < kThreadM; ++i) {
        const int row = i / kVectorElems * kStepM + i % kVectorElems;
#pragma unroll
        for (int j = 0; j < kThreadN; j += kVectorElems) {
            const float4 value = {sums[i][j], sums[i][j + 1], sums[i][j + 2], sums[i][j + 3]};
            store_vector(target + row * kPitch + j / kVectorElems * kStepN, value);
        }
    }
}

}  // namespace aicf

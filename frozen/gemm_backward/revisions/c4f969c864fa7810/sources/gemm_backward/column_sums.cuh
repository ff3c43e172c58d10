// dbias: each warp or warp group writes the sums of its columns over its own rows of dZ, a row of partial sums; a second kernel adds those
// rows in one order.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "common/programmatic.cuh"

namespace aicf::gemm_backward {

// Half of what is left of a lane's values: those with bit 2 kHalf of the lane set keep the upper half, and give the lower half away.
template <int kHalf>
__device__ __forceinline__ void halve(float (&values)[16], int lane) {
    const bool keeps_upper = (lane & 2 * kHalf) != 0;
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
        const float given = keeps_upper ? values[i] : values[i + kHalf];
        const float kept = keeps_upper ? values[i + kHalf] : values[i];
        values[i] = kept + __shfl_xor_sync(0xffffffffu, given, 2 * kHalf);
    }
}

// Adds over the 8 lanes of the same lane % 4, which hold rows, and deals the sums out: of the 8 pairs of columns that each lane brings,
// lane l gets the sums of pair l / 4.
__device__ __forceinline__ float2 add_over_rows(float (&pairs)[16], int lane) {
    halve<8>(pairs, lane);
    halve<4>(pairs, lane);
    halve<2>(pairs, lane);
    return {pairs[0], pairs[1]};
}

inline constexpr int kSumColumns = 32;
inline constexpr int kSumRows = 16;

// dbias[column] = sum over partial[num_rows, num_columns], fp32. A warp reads 32 neighbouring columns of every 16th row.
template <class Element>
__global__ void __launch_bounds__(kSumColumns* kSumRows)
    add_partial_sums(const float* __restrict__ partial, Element* __restrict__ dbias, int num_rows, int num_columns) {
    __shared__ float sums[kSumRows][kSumColumns];
    allow_successor();
    wait_for_predecessor();
    const int lane = static_cast<int>(threadIdx.x) % kSumColumns;
    const int first = static_cast<int>(threadIdx.x) / kSumColumns;
    const int column = static_cast<int>(blockIdx.x) * kSumColumns + lane;
    float sum = 0.0f;
    if (column < num_columns) {
        for (int row = first; row < num_rows; row += kSumRows) sum += partial[static_cast<std::int64_t>(row) * num_columns + column];
    }
    sums[first][lane] = sum;
    __syncthreads();
    if (first > 0 || column >= num_columns) return;
#pragma unroll
    for (int i = 1; i < kSumRows; ++i) sum += sums[i][lane];
    dbias[column] = from_float<Element>(sum);
}

}  // namespace aicf::gemm_backward

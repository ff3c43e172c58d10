// Without W, X' gradient is dY itself: dZ = dY * act'(Z), one pass over memory, with the sums of columns on the way.
#pragma once

#include <cstdint>

#include "common/activation_slopes.cuh"
#include "common/elements.cuh"
#include "common/programmatic.cuh"

namespace aicf::gemm_backward {

inline constexpr int kStreamThreads = 256;
inline constexpr int kStreamGroups = kStreamThreads / 32;  // warps, which take every kStreamGroups-th row

template <class Element>
struct StreamProblem {
    const Element* dy;
    const Element* z;  // null: act is none
    Element* dz;
    float* partial_sums;  // [blocks of rows, columns], or null
    std::int64_t lddy, ldz, lddz;
    int rows, columns;
    int num_column_blocks;
};

// kWidth neighbouring elements: those of one access of 16 bytes, or 1.
template <class Element, int kWidth>
struct Chunk {
    Element elements[kWidth];
};

template <class Element, int kWidth>
__device__ __forceinline__ Chunk<Element, kWidth> load_chunk(const Element* place) {
    static_assert(kWidth == kPackElems<Element> || kWidth == 1);
    Chunk<Element, kWidth> chunk;
    if constexpr (kWidth > 1) {
        *reinterpret_cast<uint4*>(chunk.elements) = __ldcs(reinterpret_cast<const uint4*>(place));
    } else {
        chunk.elements[0] = *place;
    }
    return chunk;
}

template <class Element, int kWidth>
__device__ __forceinline__ void store_chunk(Element* place, const float (&values)[kWidth]) {
    if constexpr (kWidth > 1) {
        Pack<Element> pack;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) pack.values[i] = values[i];
        store_pack(place, pack);
    } else {
        *place = from_float<Element>(values[0]);
    }
}

// dZ[rows, columns] = dY * act'(Z). A block takes kRows rows of 32 kWidth columns; a warp kUnroll of its rows at a time. Rows of all
// matrices start on boundaries of kWidth elements, and columns is a multiple of kWidth.
template <class Element, int kAct, int kWidth, int kRows, int kUnroll>
__global__ void __launch_bounds__(kStreamThreads) pass_rows(const StreamProblem<Element> problem) {
    static_assert(kRows % (kStreamGroups * kUnroll) == 0, "every warp has the same number of rows");
    __shared__ float sums[kStreamGroups][32 * kWidth];
    allow_successor();
    wait_for_predecessor();
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int group = static_cast<int>(threadIdx.x) / 32;
    const int block_row = static_cast<int>(blockIdx.x) / problem.num_column_blocks;
    const int first_column = static_cast<int>(blockIdx.x) % problem.num_column_blocks * 32 * kWidth;
    const int column = first_column + lane * kWidth;
    const bool has_column = column < problem.columns;
    const std::int64_t first_row = static_cast<std::int64_t>(block_row) * kRows + group;
    float column_sums[kWidth] = {};
    for (int step = 0; step < kRows; step += kStreamGroups * kUnroll) {
        Chunk<Element, kWidth> gradients[kUnroll];
        Chunk<Element, kWidth> z[kUnroll];
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            const std::int64_t row = first_row + step + i * kStreamGroups;
            if (!has_column || row >= problem.rows) continue;
            gradients[i] = load_chunk<Element, kWidth>(problem.dy + row * problem.lddy + column);
            if constexpr (kAct != AICF_ACT_NONE) z[i] = load_chunk<Element, kWidth>(problem.z + row * problem.ldz + column);
        }
#pragma unroll
        for (int i = 0; i < kUnroll; ++i) {
            const std::int64_t row = first_row + step + i * kStreamGroups;
            if (!has_column || row >= problem.rows) continue;
            float passed[kWidth];
#pragma unroll
            for (int j = 0; j < kWidth; ++j) {
                const float x = kAct != AICF_ACT_NONE ? to_float(z[i].elements[j]) : 0.0f;
                passed[j] = pass_gradient<kAct>(to_float(gradients[i].elements[j]), x);
                column_sums[j] += passed[j];
            }
            store_chunk<Element, kWidth>(problem.dz + row * problem.lddz + column, passed);
        }
    }
    if (problem.partial_sums == nullptr) return;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sums[group][j * 32 + lane] = column_sums[j];
    __syncthreads();
    float* target = problem.partial_sums + static_cast<std::int64_t>(block_row) * problem.columns + first_column;
    for (int i = static_cast<int>(threadIdx.x); i < 32 * kWidth; i += kStreamThreads) {
        // Stored by place in the chunk first, so that lanes meet no bank conflict.
        const int at = i % 32 * kWidth + i / 32;
        if (first_column + at >= problem.columns) continue;
        float sum = 0.0f;
#pragma unroll
        for (int of = 0; of < kStreamGroups; ++of) sum += sums[of][i];
        target[at] = sum;
    }
}

}  // namespace aicf::gemm_backward

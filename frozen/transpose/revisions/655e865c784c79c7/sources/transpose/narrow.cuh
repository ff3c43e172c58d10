// Matrices of few columns (tall) or few rows (wide). A block takes a slab: `length` places along the long side, and the short side,
// `width`, whole. One matrix has the long side as its rows' count, and a slab of it is one run of memory where its rows follow each other;
// the other has runs of `length`. All lanes are busy on both sides whatever the width is.
#pragma once

#include <cstdint>

#include "common/division.hpp"
#include "transpose/tiles.cuh"

namespace aicf::transpose {

// Element n along the short side and l along the long one has number i = l * width + n in its slab, and lies at i ^ (i >> shift & mask).
//
// With width = 2^a * odd, mask = 2^min(a, 5) - 1 and shift = max(a, 5), neither 32 elements in a row, from a multiple of 32 on, nor 32 of
// one n, from such an l on, share a bank: the former differ in the low five bits of i and are equal above. Of the latter, i = 2^a * q + r
// with one r < 2^a and q all remainders by 32, each once; the bank's upper 5 - a bits are the lower ones of q, and its lower a bits the
// next a of q, exchanged by r. From a = 5 on the five bits of q are exchanged by those of r.
struct Slab {
    int length;  // a multiple of 32
    int shift, mask;
    Divisor width;   // of the short side
    Divisor groups;  // 32 places along the long side each

    __device__ __forceinline__ int find_place(int i) const { return i ^ ((i >> shift) & mask); }
};

// Loads to registers are unrolled whole, to be in flight at once; stores, which wait for nothing, by this many.
inline constexpr int kStoreUnroll = 4;

// A thread's share of a slab on its way between the matrix whose rows are short (`base`, row stride ld) and registers: numbers from
// threadIdx.x on. `count` elements of the slab are in the matrix; kIsRun says that its rows follow each other.
template <int kThreads, int kItems, int kUnroll, bool kIsRun, class Move>
__device__ __forceinline__ void walk_short_rows(const Slab& slab, std::int64_t ld, int count, const Move& move) {
    const int width = static_cast<int>(slab.width.divisor);
#pragma unroll kUnroll
    for (int k = 0; k < kItems; ++k) {
        const int i = k * kThreads + static_cast<int>(threadIdx.x);
        if (i >= count) continue;
        if constexpr (kIsRun) {
            move(k, i, std::int64_t{i});
        } else {
            const int l = slab.width.divide(i);
            move(k, i, l * ld + (i - l * width));
        }
    }
}

// The same for the matrix whose rows are long: a warp takes 32 places of one row at a time. `length` places of the slab are in the matrix.
template <int kThreads, int kItems, int kUnroll, class Move>
__device__ __forceinline__ void walk_long_rows(const Slab& slab, std::int64_t ld, int length, const Move& move) {
    const int width = static_cast<int>(slab.width.divisor);
    const int groups = static_cast<int>(slab.groups.divisor);
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll kUnroll
    for (int k = 0; k < kItems; ++k) {
        const int group = k * (kThreads / 32) + warp;
        const int n = slab.groups.divide(group);
        const int l = (group - n * groups) * 32 + static_cast<int>(threadIdx.x) % 32;
        if (n < width && l < length) move(k, l * width + n, n * ld + l);
    }
}

// X has few columns: rows of X are short and those of Y long. Without a run, a load needs its own address, twice the registers of its
// value.
template <int kThreads, int kItems, bool kIsRun>
__global__ void __launch_bounds__(kThreads, count_blocks(kThreads, kIsRun ? kItems : 2 * kItems))
    transpose_tall(const Matrices m, const Slab slab) {
    __shared__ float tile[kThreads * kItems];
    const int first = static_cast<int>(blockIdx.x) * slab.length;
    const int length = min(slab.length, m.rows - first);
    const float* x = m.x + first * m.ldx;
    float* y = m.y + first;
    float values[kItems];
    walk_short_rows<kThreads, kItems, kItems, kIsRun>(slab, m.ldx, length * m.columns,
                                                      [&](int k, int, std::int64_t at) { values[k] = x[at]; });
    walk_short_rows<kThreads, kItems, kItems, kIsRun>(slab, m.ldx, length * m.columns,
                                                      [&](int k, int i, std::int64_t) { tile[slab.find_place(i)] = values[k]; });
    __syncthreads();
    walk_long_rows<kThreads, kItems, kStoreUnroll>(slab, m.ldy, length,
                                                   [&](int, int i, std::int64_t at) { y[at] = tile[slab.find_place(i)]; });
}

// X has few rows: rows of X are long and those of Y short.
template <int kThreads, int kItems, bool kIsRun>
__global__ void __launch_bounds__(kThreads, count_blocks(kThreads, kItems)) transpose_wide(const Matrices m, const Slab slab) {
    __shared__ float tile[kThreads * kItems];
    const int first = static_cast<int>(blockIdx.x) * slab.length;
    const int length = min(slab.length, m.columns - first);
    const float* x = m.x + first;
    float* y = m.y + first * m.ldy;
    float values[kItems];
    walk_long_rows<kThreads, kItems, kItems>(slab, m.ldx, length, [&](int k, int, std::int64_t at) { values[k] = x[at]; });
    walk_long_rows<kThreads, kItems, kItems>(slab, m.ldx, length,
                                             [&](int k, int i, std::int64_t) { tile[slab.find_place(i)] = values[k]; });
    __syncthreads();
    walk_short_rows<kThreads, kItems, kStoreUnroll, kIsRun>(slab, m.ldy, length * m.rows,
                                                            [&](int, int i, std::int64_t at) { y[at] = tile[slab.find_place(i)]; });
}

}  // namespace aicf::transpose

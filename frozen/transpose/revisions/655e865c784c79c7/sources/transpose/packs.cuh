// Slabs of matrices of few columns or few rows (narrow.cuh), whose run of memory is accessed by 16 bytes: a fourth of the instructions
// there.
//
// Elements lie in shared memory as in narrow.cuh, at i ^ s with s = i >> shift & mask. Four neighbours of the run, from a multiple of four
// on, have one s, and so lie in one pack of 16 bytes, in an order that is exchanged by the low two bits of s.
#pragma once

#include <cstdint>

#include "common/vector_access.cuh"
#include "transpose/narrow.cuh"
#include "transpose/strips.cuh"

namespace aicf::transpose {

inline constexpr int kPack = 4;

// Element k of the result is element k ^ by.
__device__ __forceinline__ float4 exchange(float4 v, int by) {
    if (by & 1) v = {v.y, v.x, v.w, v.z};
    if (by & 2) v = {v.z, v.w, v.x, v.y};
    return v;
}

// A thread's share of a slab as packs of its run: move(k, i, left) for the pack of elements from i on, `left` of which are in the matrix.
template <int kThreads, int kItems, class Move>
__device__ __forceinline__ void walk_packs(int count, const Move& move) {
#pragma unroll
    for (int k = 0; k < kItems / kPack; ++k) {
        const int i = kPack * (k * kThreads + static_cast<int>(threadIdx.x));
        if (i < count) move(k, i, count - i);
    }
}

// A thread's share of the long rows, as in narrow.cuh, but without a division for each element: a warp goes on by as many groups of 32
// places as there are warps, which is so many rows and so many groups, and one row more where these end. move(k, i, offset) for the
// element with number i in the slab, `offset` elements from the matrix' first one in the slab.
template <int kThreads, int kItems, int kUnroll, class Move>
__device__ __forceinline__ void walk_rows(const Slab& slab, std::int64_t ld, int length, const Move& move) {
    constexpr int kWarps = kThreads / 32;
    const int width = static_cast<int>(slab.width.divisor), groups = static_cast<int>(slab.groups.divisor);
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int rows_on = slab.groups.divide(kWarps), groups_on = kWarps - rows_on * groups;
    int row = slab.groups.divide(warp), group = warp - row * groups;
    int i = (group * 32 + lane) * width + row;
    std::int64_t offset = row * ld + group * 32 + lane;
    const int i_on = groups_on * 32 * width + rows_on, i_back = groups * 32 * width - 1;
    const std::int64_t offset_on = rows_on * ld + groups_on * 32, offset_back = groups * 32 - ld;
    const int num_groups = (length - lane + 31) / 32;  // of this lane, of a row
#pragma unroll kUnroll
    for (int k = 0; k < kItems; ++k) {
        if (row < width && group < num_groups) move(k, i, offset);
        row += rows_on;
        group += groups_on;
        i += i_on;
        offset += offset_on;
        if (group >= groups) {
            group -= groups;
            ++row;
            i -= i_back;
            offset -= offset_back;
        }
    }
}

// A thread's share of the long rows as packs of four places: move(k, i, offset, left) for the pack whose first element has number i in the
// slab and whose others follow at steps of the width, `left` of them in the matrix. The slab's quarters are its length over four.
template <int kThreads, int kItems, class Move>
__device__ __forceinline__ void walk_row_packs(const Slab& slab, std::int64_t ld, int length, const Move& move) {
    const int width = static_cast<int>(slab.width.divisor), quarters = slab.length / kPack;
#pragma unroll
    for (int k = 0; k < kItems / kPack; ++k) {
        const int number = k * kThreads + static_cast<int>(threadIdx.x);
        // quarters are eight to each group of 32 places
        const int row = slab.groups.divide(number >> 3), l = kPack * (number - row * quarters);
        if (row < width && l < length) move(k, l * width + row, row * ld + l, length - l);
    }
}

// X has few columns, and its rows follow each other from a multiple of 16 bytes on. kHasPackedRows: so do packs of each row of Y.
template <int kThreads, int kItems, bool kHasPackedRows>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) transpose_tall_packs(const Matrices m, const Slab slab) {
    __shared__ __align__(16) float tile[kThreads * kItems];
    const int first = static_cast<int>(blockIdx.x) * slab.length;
    const int length = min(slab.length, m.rows - first);
    const float* x = m.x + static_cast<std::int64_t>(first) * m.columns;
    float* y = m.y + first;
    float4 packs[kItems / kPack];
    walk_packs<kThreads, kItems>(length * m.columns, [&](int k, int i, int left) { packs[k] = load_vector_or_zero(x + i, left); });
    walk_packs<kThreads, kItems>(length * m.columns, [&](int k, int i, int) {
        const int swizzle = (i >> slab.shift) & slab.mask;
        store_shared_vector(tile + (i ^ (swizzle & ~(kPack - 1))), exchange(packs[k], swizzle));
    });
    __syncthreads();
    if constexpr (kHasPackedRows) {
        walk_row_packs<kThreads, kItems>(slab, m.ldy, length, [&](int, int i, std::int64_t at, int left) {
            float values[kPack] = {};
#pragma unroll
            for (int e = 0; e < kPack; ++e) {
                if (e < left) values[e] = tile[slab.find_place(i + e * m.columns)];
            }
            if (left >= kPack) {
                store_vector(y + at, {values[0], values[1], values[2], values[3]});
            } else {
                for (int e = 0; e < left; ++e) y[at + e] = values[e];
            }
        });
    } else {
        walk_rows<kThreads, kItems, kItems>(slab, m.ldy, length, [&](int, int i, std::int64_t at) { y[at] = tile[slab.find_place(i)]; });
    }
}

// X has few rows, and rows of Y follow each other from a multiple of 16 bytes on. kHasPackedRows: so do packs of each row of X.
template <int kThreads, int kItems, bool kHasPackedRows>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) transpose_wide_packs(const Matrices m, const Slab slab) {
    __shared__ __align__(16) float tile[kThreads * kItems];
    const int first = static_cast<int>(blockIdx.x) * slab.length;
    const int length = min(slab.length, m.columns - first);
    const float* x = m.x + first;
    float* y = m.y + static_cast<std::int64_t>(first) * m.rows;
    if constexpr (kHasPackedRows) {
        float4 packs[kItems / kPack];
        walk_row_packs<kThreads, kItems>(slab, m.ldx, length,
                                         [&](int k, int, std::int64_t at, int left) { packs[k] = load_vector_or_zero(x + at, left); });
        walk_row_packs<kThreads, kItems>(slab, m.ldx, length, [&](int k, int i, std::int64_t, int left) {
            const float values[kPack] = {packs[k].x, packs[k].y, packs[k].z, packs[k].w};
#pragma unroll
            for (int e = 0; e < kPack; ++e) {
                if (e < left) tile[slab.find_place(i + e * m.rows)] = values[e];
            }
        });
    } else {
        float values[kItems];
        int places[kItems];
#pragma unroll
        for (int k = 0; k < kItems; ++k) places[k] = -1;
        walk_rows<kThreads, kItems, kItems>(slab, m.ldx, length, [&](int k, int i, std::int64_t at) {
            values[k] = x[at];
            places[k] = slab.find_place(i);
        });
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
            if (places[k] >= 0) tile[places[k]] = values[k];
        }
    }
    __syncthreads();
    walk_packs<kThreads, kItems>(length * m.rows, [&](int, int i, int left) {
        if (left < kPack) {
            for (int e = 0; e < left; ++e) y[i + e] = tile[slab.find_place(i + e)];
            return;
        }
        const int swizzle = (i >> slab.shift) & slab.mask;
        store_vector(y + i, exchange(load_vector(tile + (i ^ (swizzle & ~(kPack - 1)))), swizzle));
    });
}

}  // namespace aicf::transpose

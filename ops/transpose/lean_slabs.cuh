// Slabs of matrices of few rows (narrow.cuh) by short code: all of a small slab is under way at once by copies to shared
// memory, which need no registers. A slab is 2^log_groups groups of 32 places along the long side, kItems elements a thread at most.
//
// Elements lie in shared memory as in narrow.cuh. Groups of the matrix whose rows are long are numbered row by row: their number's low bits
// are the group of its row.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/division.hpp"
#include "common/vector_access.cuh"
#include "transpose/packs.cuh"
#include "transpose/tiles.cuh"

namespace aicf::transpose {

struct LeanSlab {
    Divisor width;  // of the short side
    int log_groups;
    int shift, mask;  // of places, as in narrow.cuh

    __device__ __forceinline__ int find_place(int i) const { return i ^ ((i >> shift) & mask); }
};

// A value that the compiler keeps in a register: it would read parameters anew for each of the copies, under their conditions.
__device__ __forceinline__ int keep(int value) {
    asm volatile("" : "+r"(value));
    return value;
}
__device__ __forceinline__ std::uint32_t keep(std::uint32_t value) {
    asm volatile("" : "+r"(value));
    return value;
}
template <class T>
__device__ __forceinline__ T* keep(T* value) {
    asm volatile("" : "+l"(value));
    return value;
}

// The same address in shared memory as a number.
__device__ __forceinline__ std::uint32_t find_shared(const float* shared) {
    return keep(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)));
}

// An element of a matrix with up to 2^30 elements from row to row, by a multiplication of 32 bits.
template <class T>
__device__ __forceinline__ T* find_element(T* base, std::uint32_t ld, int row, int column) {
    return base + std::uint64_t{static_cast<std::uint32_t>(row)} * ld + static_cast<std::uint32_t>(column);
}

// X has few rows: a warp copies groups of them, and packs of Y follow each other in memory where kIsRun, from a multiple of 16 bytes on.
template <int kThreads, int kItems, bool kIsRun>
__global__ void __launch_bounds__(kThreads, 1536 / kThreads) transpose_lean_wide(const Matrices m, const LeanSlab slab) {
    __shared__ __align__(16) float tile[kThreads * kItems];
    constexpr int kWarps = kThreads / 32;
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const int first = static_cast<int>(blockIdx.x) << (5 + slab.log_groups);
    const int left = keep(m.columns - first), width = keep(static_cast<int>(slab.width.divisor)), log_groups = keep(slab.log_groups);
    const float* const x = keep(m.x + first);
    const std::uint32_t ldx = keep(static_cast<std::uint32_t>(m.ldx)), to = find_shared(tile);
    const int shift = keep(slab.shift), mask = keep(slab.mask), groups = keep((1 << log_groups) - 1);
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
        const int number = warp + k * kWarps, row = number >> log_groups;
        const int place = 32 * (number & groups) + lane, i = place * width + row;
        if (row < width && place < left) copy_word_async(to + 4 * (i ^ ((i >> shift) & mask)), find_element(x, ldx, row, place));
    }
    commit_copies();
    wait_copies<0>();
    __syncthreads();
    const int count = min(left, 32 << slab.log_groups) * width;
    if constexpr (kIsRun) {
        float* const y = m.y + static_cast<std::int64_t>(first) * width;
#pragma unroll
        for (int k = 0; k < kItems / kPack; ++k) {
            const int i = kPack * (k * kThreads + static_cast<int>(threadIdx.x));
            const int swizzle = (i >> slab.shift) & slab.mask;
            if (i + kPack <= count) store_vector(y + i, exchange(load_vector(tile + (i ^ (swizzle & ~(kPack - 1)))), swizzle));
        }
        // What is left of a pack.
        const int i = count / kPack * kPack + static_cast<int>(threadIdx.x);
        if (i < count) y[i] = tile[slab.find_place(i)];
    } else {
#pragma unroll 1
        for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
            const int place = slab.width.divide(i);
            m.y[(first + place) * m.ldy + (i - place * width)] = tile[slab.find_place(i)];
        }
    }
}

}  // namespace aicf::transpose

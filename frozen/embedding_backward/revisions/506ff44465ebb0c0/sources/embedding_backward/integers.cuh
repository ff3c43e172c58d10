// Narrow rows: sums of a tile of the table in shared memory, as integers, which are the same in whichever order they are added up. So keys
// need no sort.
//
// An element's terms are multiples of a power of two that its largest term decides (Demmel and Nguyen, "Fast reproducible floating-point
// summation", ARITH 2013: terms rounded ahead to a common unit), 2^-42 of that term or below: a first pass over a tile's terms finds the
// largest exponent of each element, a second adds up. 24 bits of a term, 19 behind the unit of the largest, and 20 for the number of terms
// fill 64 bits with their sign.
#pragma once

#include <cstdint>

#include "common/division.hpp"
#include "common/elements.cuh"
#include "common/programmatic.cuh"
#include "embedding_backward/buckets.cuh"
#include "embedding_backward/keys.cuh"
#include "embedding_backward/params.h"

namespace aicf::embedding_backward {

inline constexpr int kMostIntegers = 8192, kMostIntegerWidth = 64;  // sums of a tile, and of a row of it
inline constexpr int kIntegerBytes = 12;

// How the table is shared out: `rows` to a block, and the division of an element's number by the width.
struct IntegerShare {
    std::int64_t rows;
    Divisor width;
};

// A tile's sums, each in two words, and the largest exponent among the terms of each.
struct Integers {
    static constexpr int kInfinite = 255, kBehind = 19, kMantissaBits = 23;
    // What was added where exponents are kInfinite.
    static constexpr unsigned kPositive = 1, kNegative = 2, kNan = 4;

    unsigned* low;
    int *high, *exponents;

    static __device__ __forceinline__ int find_exponent(float value) {
        return static_cast<int>(__float_as_uint(value) >> kMantissaBits & 255);
    }

    __device__ __forceinline__ void raise(int at, float value) const {
        if (const int exponent = find_exponent(value); exponent > 0) atomicMax(exponents + at, exponent);
    }

    // After raise() was called for all terms.
    __device__ __forceinline__ void add(int at, float value) const {
        const unsigned bits = __float_as_uint(value), fraction = bits & ((1u << kMantissaBits) - 1);
        const int exponent = find_exponent(value), largest = exponents[at];
        const bool is_negative = bits >> 31 != 0;
        if (largest == kInfinite) {
            if (exponent == kInfinite) atomicOr(low + at, fraction != 0 ? kNan : is_negative ? kNegative : kPositive);
            return;
        }
        // A denormal has the exponent of the least normal number.
        const unsigned mantissa = exponent > 0 ? fraction | 1u << kMantissaBits : fraction;
        const int shift = kBehind - (max(largest, 1) - max(exponent, 1));
        if (mantissa == 0 || shift < -kMantissaBits - 1) return;
        const std::uint64_t magnitude =
            shift >= 0 ? static_cast<std::uint64_t>(mantissa) << shift : (mantissa + (1u << (-shift - 1))) >> -shift;
        const std::uint64_t term = is_negative ? 0 - magnitude : magnitude;
        const auto term_low = static_cast<unsigned>(term);
        const unsigned before = atomicAdd(low + at, term_low);
        const int term_high = static_cast<int>(term >> 32) + (before + term_low < before ? 1 : 0);
        if (term_high != 0) atomicAdd(high + at, term_high);
    }

    __device__ __forceinline__ float read(int at) const {
        const int largest = exponents[at];
        if (largest == kInfinite) {
            const unsigned found = low[at];
            return found == kPositive   ? __int_as_float(0x7f800000)
                   : found == kNegative ? __int_as_float(0xff800000)
                                        : __int_as_float(0x7fffffff);
        }
        const auto sum = static_cast<std::int64_t>(static_cast<std::uint64_t>(static_cast<unsigned>(high[at])) << 32 | low[at]);
        // Exponents of floats are 127 above those of their leading bits, of doubles 1023.
        const int scale = max(largest, 1) - 127 - kMantissaBits - kBehind;
        return __double2float_rn(static_cast<double>(sum) * __hiloint2double((scale + 1023) << 20, 0));
    }
};

// A block per bucket of rows, two of 512 threads an SM; launch it with launch_early() behind fill_buckets().
template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads)
    backward_integers(const EmbeddingBackwardParams p, const IntegerShare share, const Buckets buckets) {
    constexpr int kHeld = 8;  // terms of a thread that stay in registers between the passes
    constexpr int kSlab = kMostKept / kBucketChunk;  // chunks whose keys always fit
    extern __shared__ __align__(16) std::uint32_t keys[];  // [kMostKept], and behind them the integers
    __shared__ int count;
    const int rank = static_cast<int>(threadIdx.x), width = static_cast<int>(p.width);
    const std::int64_t first = blockIdx.x * share.rows;
    const int num_rows = static_cast<int>(first + share.rows < p.vocabulary ? share.rows : p.vocabulary - first);
    const int num_sums = num_rows * width;
    auto* const low = keys + kMostKept;
    auto* const high = reinterpret_cast<int*>(low + num_sums);
    const Integers integers = {low, high, high + num_sums};
    const Kept kept = {first, num_rows, keys, &count};
    for (int i = rank; i < 3 * num_sums; i += kThreads) low[i] = 0;
    if (rank == 0) count = 0;
    __syncthreads();
    // Calls visit(u, number of the element, value) for a thread's terms from `begin` on, of `num_terms`; u is below kHeld.
    const auto visit_terms = [&](int begin, int num_terms, const auto& visit) {
        int at[kHeld];
        float values[kHeld];
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            const int term = begin + u * kThreads + rank;
            const int number = share.width.divide(term), column = share.width.find_remainder(term, number);
            const std::uint32_t key = term < num_terms ? keys[number] : 0;
            at[u] = term < num_terms ? row_of(key) * width + column : -1;
            values[u] = term < num_terms ? to_float(static_cast<const Element*>(p.dy)[place_of(key) * p.lddy + column]) : 0.0f;
        }
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            if (at[u] >= 0) visit(u, at[u], values[u]);
        }
    };
    const auto raise = [&](int, int at, float value) { integers.raise(at, value); };
    const auto add = [&](int, int at, float value) { integers.add(at, value); };
    const auto visit_all = [&](const auto& visit) {
        const int num_terms = count * width;
        for (int begin = 0; begin < num_terms; begin += kHeld * kThreads) visit_terms(begin, num_terms, visit);
    };

    wait_for_predecessor();
    take_bucket<kThreads>(kept, buckets, blockIdx.x, 0, buckets.chunks);
    __syncthreads();
    if (count <= kMostKept && count * width <= kHeld * kThreads) {
        int at[kHeld];
        float values[kHeld];
#pragma unroll
        for (int u = 0; u < kHeld; ++u) at[u] = -1;
        visit_terms(0, count * width, [&](int u, int where, float value) {
            at[u] = where;
            values[u] = value;
            integers.raise(where, value);
        });
        __syncthreads();
#pragma unroll
        for (int u = 0; u < kHeld; ++u) {
            if (at[u] >= 0) integers.add(at[u], values[u]);
        }
    } else if (count <= kMostKept) {
        visit_all(raise);
        __syncthreads();
        visit_all(add);
    } else {
        const auto visit_slabs = [&](const auto& visit) {
            for (int begin = 0; begin < buckets.chunks; begin += kSlab) {
                __syncthreads();
                if (rank == 0) count = 0;
                __syncthreads();
                take_bucket<kThreads>(kept, buckets, blockIdx.x, begin, min(begin + kSlab, buckets.chunks));
                __syncthreads();
                visit_all(visit);
            }
        };
        visit_slabs(raise);
        visit_slabs(add);
    }
    __syncthreads();
    for (int i = rank; i < num_sums; i += kThreads) {
        const int row = share.width.divide(i), column = share.width.find_remainder(i, row);
        static_cast<Element*>(p.dtable)[(first + row) * p.lddtable + column] = from_float<Element>(integers.read(i));
    }
}

}  // namespace aicf::embedding_backward

// A piece with zeros around it, in a dense y whose rows are whole pairs of elements: a thread makes pairs of y, which lie in one row, and
// lanes have pairs beside each other, so that each access of a warp is of few lines.
#pragma once

#include <cstdint>

namespace aicf::strided_copy {

// An axis of rows, from the innermost on: those places from `first` on, `count` of them, are x's.
struct MarginAxis {
    std::uint32_t multiplier, shift;  // of rows, by all axes up to this one; 0 for the last
    std::uint32_t minus_extent, first, count;
    std::uint32_t x_step;  // of quotients by all axes before this one, as a route has it (routed.cuh), in elements
};

// All places of the last axis are x's; axes before it that a piece does not have have one place, which is x's.
template <int kOuter>
struct Margins {
    const char* x;  // of the element that is x's first in y's first row, were all rows x's
    char* y;
    std::uint32_t num_pairs;
    std::uint32_t minus_extent, multiplier, shift;  // of y's rows: elements, and the divisor in pairs
    std::uint32_t first, count;               // of a row's elements, those that are x's
    MarginAxis axes[kOuter];
};

#ifdef __CUDACC__
// A pair of y: where it comes from, and which of its elements do.
struct Pair {
    int at;  // in elements
    bool is_inside[2];
};

// Two elements as the access that stores both.
__device__ __forceinline__ std::uint16_t lay_pair(std::uint8_t first, std::uint8_t second) {
    return static_cast<std::uint16_t>(first | second << 8);
}
__device__ __forceinline__ std::uint32_t lay_pair(std::uint16_t first, std::uint16_t second) { return first | std::uint32_t{second} << 16; }
__device__ __forceinline__ uint2 lay_pair(std::uint32_t first, std::uint32_t second) { return {first, second}; }
__device__ __forceinline__ uint4 lay_pair(std::uint64_t first, std::uint64_t second) {
    return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(first >> 32), static_cast<std::uint32_t>(second),
            static_cast<std::uint32_t>(second >> 32)};
}

template <int kOuter>
__device__ __forceinline__ Pair find_pair(const Margins<kOuter>& m, std::uint32_t number) {
    const std::uint32_t row = __umulhi(number, m.multiplier) >> m.shift;
    const std::uint32_t from_first = 2 * number - m.first + row * m.minus_extent;
    std::uint32_t at = from_first, left = row;
    bool is_inside = number < m.num_pairs;
#pragma unroll
    for (int k = 0; k < kOuter; ++k) {
        const MarginAxis& axis = m.axes[k];
        at += left * axis.x_step;
        if (k + 1 == kOuter) break;
        const std::uint32_t quotient = __umulhi(row, axis.multiplier) >> axis.shift;
        is_inside &= left - axis.first + quotient * axis.minus_extent < axis.count;
        left = quotient;
    }
    return {static_cast<int>(at), {is_inside && from_first < m.count, is_inside && from_first + 1 < m.count}};
}
#endif

}  // namespace aicf::strided_copy

// Division of small integers by a divisor that the host knows: a multiplication and a shift, where the GPU's own takes some 40
// instructions.
#pragma once

#include <cstdint>

namespace aicf {

// Quotients of 0 <= value < 2^31 by a divisor from 1 to 2^31 - 1: (value * multiplier) >> (32 + shift), exact (Granlund and Montgomery,
// "Division by invariant integers using multiplication", PLDI 1994, theorem 4.2 with 31-bit values).
struct Divisor {
    std::uint32_t divisor;
    std::uint32_t multiplier;
    std::uint32_t shift;

#ifdef __CUDACC__
    __device__ __forceinline__ int divide(int value) const {
        // A divisor of 1 has no multiplier of 32 bits.
        return divisor == 1 ? value : divide_by_two_or_more(value);
    }

    __device__ __forceinline__ int divide_by_two_or_more(int value) const {
        return static_cast<int>(__umulhi(static_cast<std::uint32_t>(value), multiplier) >> shift);
    }

    __device__ __forceinline__ int find_remainder(int value, int quotient) const { return value - quotient * static_cast<int>(divisor); }
#endif
};

inline Divisor make_divisor(std::int64_t divisor) {
    std::uint32_t shift = 0;
    while ((std::int64_t{1} << (shift + 1)) < divisor) ++shift;
    // 2^(32 + shift) / divisor rounded up, with 2^shift < divisor <= 2^(shift + 1): from 2^31 to 2^32 - 1.
    const std::uint64_t power = std::uint64_t{1} << (32 + shift);
    const auto d = static_cast<std::uint64_t>(divisor);
    return {static_cast<std::uint32_t>(divisor), static_cast<std::uint32_t>((power + d - 1) / d), shift};
}

// The same without an exception for a divisor of 1: twice the value is multiplied, by half of 2^32 there.
struct WideDivisor {
    std::uint32_t multiplier;
    std::uint32_t shift;

#ifdef __CUDACC__
    __device__ __forceinline__ std::uint32_t divide(std::uint32_t value) const { return __umulhi(2 * value, multiplier) >> shift; }
#endif
};

inline WideDivisor make_wide_divisor(std::int64_t divisor) {
    if (divisor == 1) return {0x80000000u, 0};
    const Divisor narrow = make_divisor(divisor);
    return {narrow.multiplier, narrow.shift + 1};
}

}  // namespace aicf

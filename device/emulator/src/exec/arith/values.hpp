// Floating-point values: NaN results, subnormal flushing, saturation, and exact narrowing. All of it is branch-free on purpose.
#pragma once

#include "lanes.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {

// What an arithmetic instruction gives for "not a number". The one place to change when the hardware shows otherwise.
inline constexpr uint32_t kNan32 = 0x7fffffff;
inline constexpr uint64_t kNan64 = 0xfff8000000000000;  // also what x86 gives
inline constexpr uint32_t kNanF16 = 0x7fff;
inline constexpr uint32_t kNanBF16 = 0x7fff;

[[gnu::always_inline]] inline float nan32() { return as<float>(kNan32); }

template <class T>
[[gnu::always_inline]] inline bool is_nan(T value) {
    return value != value;
}

[[gnu::always_inline]] inline float canonical(float value) { return value != value ? as<float>(kNan32) : value; }

// A double NaN result takes the payload of a NaN operand, quieted, as the host's arithmetic does; a new one is kNan64.
[[gnu::always_inline]] inline double canonical(double value) {
    const auto bits = as<uint64_t>(value);
    return as<double>(value != value ? bits | 0x0008000000000000 : bits);
}

// .ftz: subnormals become zeros of the same sign.
[[gnu::always_inline]] inline float flush(float value) {
    const auto bits = as<uint32_t>(value);
    return as<float>((bits & 0x7f800000u) == 0 ? bits & 0x80000000u : bits);
}
[[gnu::always_inline]] inline float flush_if(bool flushing, float value) { return flushing ? flush(value) : value; }

// .sat: [0, 1], NaN becomes +0.
template <class T>
[[gnu::always_inline]] inline T saturate(T value) {
    const T low = value > T{0} ? value : T{0};
    return low < T{1} ? low : T{1};
}

[[gnu::always_inline]] inline float widen(F16 half) {
    const auto bits = static_cast<uint32_t>(half.bits);
    const uint32_t magnitude = (bits & 0x7fff) << 13;
    // Subnormals sit below 2^-14 in steps of 2^-24, which is an ulp of 2^-14 after the shift. No subnormal f32 is touched: they are slow.
    const auto subnormal = as<uint32_t>(as<float>(magnitude + (113u << 23)) - 0x1p-14f);
    const uint32_t finite = magnitude < 0x00800000 ? subnormal : magnitude + (112u << 23);
    const uint32_t value = magnitude >= 0x0f800000 ? magnitude | 0x7f800000 : finite;
    return as<float>(value | (bits & 0x8000) << 16);
}
[[gnu::always_inline]] inline float widen(BF16 half) { return as<float>(static_cast<uint32_t>(half.bits) << 16); }

// Round to nearest even, NaN to the canonical one.
[[gnu::always_inline]] inline F16 to_f16(float value) {
    const auto bits = as<uint32_t>(value);
    const uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    const uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
    const uint32_t subnormal = as<uint32_t>(as<float>(magnitude) + 0.5f) - 0x3f000000;  // 0.5f has an ulp of 2^-24, f16's least value
    uint32_t result = magnitude < 0x38800000 ? subnormal : normal;
    result = magnitude >= 0x47800000 ? 0x7c00 : result;
    return {static_cast<uint16_t>(magnitude > 0x7f800000 ? kNanF16 : result | sign)};
}
[[gnu::always_inline]] inline BF16 to_bf16(float value) {
    const auto bits = as<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return {static_cast<uint16_t>((bits & 0x7fffffff) > 0x7f800000 ? kNanBF16 : rounded)};
}

// Rounding to odd: inexact results get an odd last bit, so that a second rounding to fewer bits is as good as one from the exact value.
// (Boldo, Melquiond: "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008.)
template <class T>
[[gnu::always_inline]] inline T add_to_odd(T a, T b) {
    using U = Slot<T>;
    const T sum = a + b;
    const T b_part = sum - a;
    const T error = (a - (sum - b_part)) + (b - b_part);  // exact (Knuth's two-sum)
    const U bits = as<U>(sum);
    const bool is_inexact = (error < 0 ? -error : error) > 0;                         // false for NaN, which an infinite sum gives
    const U is_above = (as<U>(error) ^ bits) >> (sizeof(T) * 8 - 1);                  // the sum is above the exact one in magnitude
    return as<T>(is_inexact ? (bits - is_above) | 1 : bits);
}
[[gnu::always_inline]] inline float narrow_to_odd(double value) {
    const auto narrowed = static_cast<float>(value);
    const auto back = static_cast<double>(narrowed);
    const auto bits = as<uint32_t>(narrowed);
    const uint32_t truncated = bits - (__builtin_fabs(back) > __builtin_fabs(value) ? 1 : 0);
    return as<float>(back != value ? truncated | 1 : bits);  // a NaN stays one
}

[[gnu::always_inline]] inline float fma32(float a, float b, float c) {
#ifdef __FMA__
    return __builtin_fmaf(a, b, c);
#else
    return static_cast<float>(add_to_odd(static_cast<double>(a) * static_cast<double>(b), static_cast<double>(c)));
#endif
}

// A small binary floating-point format; bits but `sign` are those of a positive value.
struct Format {
    int mantissa_bits;
    int min_exponent;  // of the least normal value
    uint32_t max_finite, infinity, nan, sign;
};
inline constexpr Format kFormatF16{10, -14, 0x7bff, 0x7c00, kNanF16, 0x8000};
inline constexpr Format kFormatBF16{7, -126, 0x7f7f, 0x7f80, kNanBF16, 0x8000};
inline constexpr Format kFormatTF32{10, -126, 0x3fbff, 0x3fc00, 0x3ffff, 0x40000};  // the upper 19 bits of an f32
inline constexpr Format kFormatE4M3{3, -6, 0x7e, 0x7f, 0x7f, 0x80};              // no infinity
inline constexpr Format kFormatE5M2{2, -14, 0x7b, 0x7c, 0x7f, 0x80};

// Rounds `value` to a format in any direction. Source: IEEE 754-2019, section 4.3.
uint32_t round_to(const Format& format, double value, Round round, bool saturate_finite);

// An integer as a double that rounds like it to 51 bits or fewer, in any direction (rounded to odd where it is inexact).
double to_odd_double(unsigned __int128 magnitude, bool is_negative);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

// The floats of a tensor core, as storage: 16-bit ones with their conversions from and to fp32. No CUDA type header: those cost a second a
// build.
#pragma once

#include <cstdint>

namespace aicf {

// Storage of bfloat16 (8 bits of significand, the exponents of fp32).
struct Bf16 {
    std::uint16_t bits;
};

// Storage of IEEE binary16 (11 bits of significand, largest value 65504).
struct Fp16 {
    std::uint16_t bits;
};

// fp32 in memory, of which a tensor core takes the sign, 8 bits of exponent and the upper 10 of the fraction.
struct Tf32 {
    float value;
};

__device__ __forceinline__ float to_float(Bf16 value) { return __uint_as_float(static_cast<unsigned>(value.bits) << 16); }

__device__ __forceinline__ float to_float(Fp16 value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}

template <class Element>
__device__ __forceinline__ Element from_float(float value);

template <>
__device__ __forceinline__ Bf16 from_float<Bf16>(float value) {
    Bf16 result;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

template <>
__device__ __forceinline__ Fp16 from_float<Fp16>(float value) {
    Fp16 result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}

// Two values rounded to nearest even into one word; `low` has the lower address.
template <class Element>
__device__ __forceinline__ std::uint32_t pack_pair(float low, float high);

template <>
__device__ __forceinline__ std::uint32_t pack_pair<Bf16>(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <>
__device__ __forceinline__ std::uint32_t pack_pair<Fp16>(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// pack_pair of the larger of each value and zero; NaN stays NaN. The clamp costs nothing beside the conversion.
template <class Element>
__device__ __forceinline__ std::uint32_t pack_relu_pair(float low, float high);

template <>
__device__ __forceinline__ std::uint32_t pack_relu_pair<Bf16>(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

template <>
__device__ __forceinline__ std::uint32_t pack_relu_pair<Fp16>(float low, float high) {
    std::uint32_t pair;
    asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

// The two values of a word of pack_pair.
template <class Element>
__device__ __forceinline__ float2 unpack_pair(std::uint32_t pair) {
    return {to_float(Element{static_cast<std::uint16_t>(pair)}), to_float(Element{static_cast<std::uint16_t>(pair >> 16)})};
}

// Halves of a register are converted where they are; as values of 16 bits each upper one would be moved first.
template <>
__device__ __forceinline__ float2 unpack_pair<Fp16>(std::uint32_t pair) {
    float2 values;
    asm("{\n\t.reg .b16 low, high;\n\tmov.b32 {low, high}, %2;\n\tcvt.f32.f16 %0, low;\n\tcvt.f32.f16 %1, high;\n\t}"
        : "=f"(values.x), "=f"(values.y)
        : "r"(pair));
    return values;
}

}  // namespace aicf

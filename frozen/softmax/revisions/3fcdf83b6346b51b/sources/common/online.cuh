// Maximum and sum of exponentials of a row in one pass. (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018.)
#pragma once

#include "common/reduce.cuh"
#include "common/special_functions.cuh"

namespace aicf {

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// A part of a row: its maximum, and the sum of exp(x - maximum).
struct Online {
    float maximum = minus_infinity();
    float sum = 0.0f;
};

// exp(value - maximum) with 1 where they are equal, which keeps parts that saw nothing, or nothing but -inf, free of -inf - (-inf).
__device__ __forceinline__ float weigh(float value, float maximum) { return value == maximum ? 1.0f : expf(value - maximum); }

// exp(t) of t <= 0 as a weight of an Element: for 16 bits a product and a power of two, whose two roundings move it by 2^-23 |t|, where
// expf takes eight instructions.
template <class Element>
__device__ __forceinline__ float find_weight(float t) {
    if constexpr (sizeof(Element) == 4) return expf(t);
    return raise_two(t * 1.44269504f);
}

__device__ __forceinline__ Online combine(Online a, Online b) {
    const float maximum = fmaxf(a.maximum, b.maximum);
    return {maximum, a.sum * weigh(a.maximum, maximum) + b.sum * weigh(b.maximum, maximum)};
}

__device__ __forceinline__ Online shuffle_xor(Online value, int offset) {
    return {shuffle_xor(value.maximum, offset), shuffle_xor(value.sum, offset)};
}

}  // namespace aicf

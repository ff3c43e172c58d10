// The functions of chains that CUDA does not have, in fp32. Activations are those of common/activations.cuh.
//
// contract/expressions/functions.py has the same table in float64, with the error of each.
#pragma once

#include <cstdint>

#include "common/activations.cuh"
#include "common/elements.cuh"
#include "common/philox.cuh"
#include "common/special_functions.cuh"

namespace aicf::elementwise {

// NaN where either is, unlike fmaxf and fminf.
__device__ __forceinline__ float find_maximum(float a, float b) {
    float result;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

__device__ __forceinline__ float find_minimum(float a, float b) {
    float result;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}

__device__ __forceinline__ float clip(float x, float low, float high) { return find_minimum(find_maximum(x, low), high); }

// NaN and zeros stay what they are.
__device__ __forceinline__ float find_sign(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : x); }

// An overflowing e^-x gives 0, off by less than 2^-126.
__device__ __forceinline__ float sigmoid(float x) { return invert(1.0f + expf(-x)); }

__device__ __forceinline__ float find_relu_slope(float x) { return x > 0.0f ? 1.0f : (x <= 0.0f ? 0.0f : x); }

// The normal distribution at x: its P(x) and e^(-x^2 / 2).
struct Normal {
    float share, power;
};

// P(-a) = e^(-a^2 / 2) t Q(t) for a >= 0, with t = 1 / (1 + 0.4 a) and Q fitted to a relative error of 1.5e-8 up to a = 13.5, where it
// leaves the range of normal numbers: a third of the instructions of erfcf. The reciprocal is refined: an error of t weighs twice.
__device__ __forceinline__ Normal find_normal(float x) {
    constexpr float kFit[] = {0.159576654f, 0.159611866f,  0.133274451f, 0.0906919762f, -0.0249589346f,
                              0.115966216f, -0.369792402f, 0.379127353f, -0.175462797f, 0.0319656357f};
    constexpr int kTerms = sizeof(kFit) / sizeof(float);
    constexpr float kFarthest = 20.0f;                 // where the power is zero already; infinities are there, too
    constexpr float kHalfOfLog2E = 0.7213475204444817f;
    const float a = fminf(fabsf(x), kFarthest), d = fmaf(a, 0.4f, 1.0f);
    const float rough = invert(d), t = fmaf(rough, fmaf(-d, rough, 1.0f), rough);
    float q = kFit[kTerms - 1];
#pragma unroll
    for (int i = kTerms - 2; i >= 0; --i) q = fmaf(q, t, kFit[i]);
    const float power = raise_two(a * a * -kHalfOfLog2E);
    const float tail = power * (q * t);
    return {x < 0.0f ? tail : 1.0f - tail, power};
}

// Instead of that of common/activations.cuh.
__device__ __forceinline__ float gelu_erf(float x) { return x * find_normal(x).share; }

// P(x) + x p(x), with the normal distribution's density p.
__device__ __forceinline__ float find_gelu_slope(float x) {
    const Normal normal = find_normal(x);
    return fmaf(0.3989422804014327f * x, normal.power, normal.share);
}

// s + x s (1 - s) t', with s = sigmoid(t). Of s and 1 - s one is 1 / (1 + q), the other q / (1 + q), with q = e^-|t|: without cancellation,
// by one exponential and one quotient.
__device__ __forceinline__ float find_gated_slope(float x, float t, float slope_of_t) {
    const float q = expf(-fabsf(t)), larger = invert(1.0f + q), smaller = q * larger;
    return fmaf(x * smaller * slope_of_t, larger, t < 0.0f ? smaller : larger);
}

__device__ __forceinline__ float find_silu_slope(float x) { return find_gated_slope(x, x, 1.0f); }

__device__ __forceinline__ float find_gelu_tanh_slope(float x) {
    constexpr float kLinear = 1.5957691216057308f;  // 2 sqrt(2/pi)
    constexpr float kCubic = 0.07135481282553305f;  // 2 sqrt(2/pi) 0.044715
    // Beyond 16 the slope is 0 or 1 to within 2^-126, and x^2 t' may overflow.
    if (fabsf(x) > 16.0f) return x > 0.0f ? 1.0f : 0.0f;
    return find_gated_slope(x, x * fmaf(kCubic * x, x, kLinear), fmaf(3.0f * kCubic * x, x, kLinear));
}

}  // namespace aicf::elementwise

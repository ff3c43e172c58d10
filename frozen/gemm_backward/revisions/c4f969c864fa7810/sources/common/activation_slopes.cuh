// Derivatives of the activations, for backward passes, in fp32: within 2^-18 of the exact slope, which reaches from -0.13 to 1.13. At -inf
// and +inf they are their limits, 0 and 1; NaN gives NaN, but for relu, which lets the gradient through as it would for 1.
#pragma once

#include "common/activations.h"
#include "common/special_functions.cuh"

namespace aicf {

// x cut to [-kLimit, kLimit], behind which every slope is 0 or 1 to within 2^-40; NaN stays NaN, as fminf and fmaxf do not have it.
__device__ __forceinline__ float clamp_keeping_nan(float x, float limit) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(limit));
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(x) : "f"(-limit));
    return x;
}

// x sigmoid(t(x)) has the slope s + x s (1 - s) t'. `power` is -t log2(e), at most 126.
__device__ __forceinline__ float find_gated_slope(float x, float power, float slope_of_t) {
    const float decay = raise_two(power);  // e^-t
    const float sigmoid = invert(1.0f + decay);
    // 1 - s = e^-t s, without cancellation.
    return fmaf(x * sigmoid * slope_of_t, decay * sigmoid, sigmoid);
}

template <int kAct>
__device__ __forceinline__ float find_slope(float x) {
    constexpr float kLog2E = 1.4426950408889634f;
    if constexpr (kAct == AICF_ACT_SILU) {
        x = clamp_keeping_nan(x, 40.0f);
        return find_gated_slope(x, -kLog2E * x, 1.0f);
    } else if constexpr (kAct == AICF_ACT_GELU_TANH) {
        // t = 2 sqrt(2/pi) (x + 0.044715 x^3)
        constexpr float kLinear = 1.5957691216057308f;
        constexpr float kCubic = 0.07135481282553305f;
        x = clamp_keeping_nan(x, 10.0f);
        const float square = x * x;
        return find_gated_slope(x, x * fmaf(-kLog2E * kCubic, square, -kLog2E * kLinear), fmaf(3.0f * kCubic, square, kLinear));
    } else if constexpr (kAct == AICF_ACT_GELU_ERF) {
        // P(x) + x p(x), with the normal distribution's P and p. erfc(y) = e^(-y^2) Q(1 / (1 + 0.3275911 y)) to 1.5e-7 (M. Abramowitz and
        // I. A. Stegun, Handbook of Mathematical Functions, 7.1.26), y = |x| / sqrt 2; the coefficients here are halved.
        x = clamp_keeping_nan(x, 10.0f);
        const float bell = raise_two(-0.5f * kLog2E * x * x);
        const float w = invert(fmaf(0.3275911f * 0.7071067811865476f, fabsf(x), 1.0f));
        const float q = w * fmaf(w, fmaf(w, fmaf(w, fmaf(w, 0.5307027145f, -0.7265760135f), 0.7107068705f), -0.142248368f), 0.127414796f);
        const float tail = bell * q;
        return fmaf(0.3989422804f * x, bell, x < 0.0f ? tail : 1.0f - tail);
    } else {
        return 1.0f;
    }
}

// The gradient that goes through an activation at x. relu selects: a gradient of infinity at a negative x gives 0.
template <int kAct>
__device__ __forceinline__ float pass_gradient(float gradient, float x) {
    if constexpr (kAct == AICF_ACT_NONE) return gradient;
    if constexpr (kAct == AICF_ACT_RELU) return x <= 0.0f ? 0.0f : gradient;
    return gradient * find_slope<kAct>(x);
}

// Multiplies gradients by act' of what `read(i)` has for each of them.
template <int kAct, int kCount, class Read>
__device__ __forceinline__ void pass_gradients(float (&gradients)[kCount], const Read& read) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) gradients[i] = pass_gradient<kAct>(gradients[i], read(i));
}

template <int kCount, class Read>
__device__ __forceinline__ void pass_gradients(int act, float (&gradients)[kCount], const Read& read) {
    switch (act) {
        case AICF_ACT_RELU: pass_gradients<AICF_ACT_RELU>(gradients, read); break;
        case AICF_ACT_GELU_TANH: pass_gradients<AICF_ACT_GELU_TANH>(gradients, read); break;
        case AICF_ACT_GELU_ERF: pass_gradients<AICF_ACT_GELU_ERF>(gradients, read); break;
        case AICF_ACT_SILU: pass_gradients<AICF_ACT_SILU>(gradients, read); break;
        default: break;
    }
}

}  // namespace aicf

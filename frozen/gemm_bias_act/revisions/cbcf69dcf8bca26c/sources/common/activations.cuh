// Activations in fp32: no data-dependent branch, NaN in gives NaN out, and infinities as the formulas have them in float64
// (an activation of -inf that is inf * 0 is NaN).
#pragma once

#include "common/activations.h"

namespace aicf {

// Not fmaxf, which drops NaN.
__device__ __forceinline__ float relu(float x) {
    float result;
    asm("max.NaN.f32 %0, %1, 0f00000000;" : "=f"(result) : "f"(x));
    return result;
}

// x / (1 + e^-t). An overflowing e^-t gives a zero of x's sign, off by less than |x| * 2^-126.
__device__ __forceinline__ float scale_by_sigmoid(float x, float t) { return __fdividef(x, 1.0f + expf(-t)); }

__device__ __forceinline__ float silu(float x) { return scale_by_sigmoid(x, x); }

// 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): without the cancellation of 1 + tanh in the negative tail.
__device__ __forceinline__ float gelu_tanh(float x) {
    constexpr float kLinear = 1.5957691216057308f;  // 2 sqrt(2/pi)
    constexpr float kCubic = 0.07135481282553305f;  // 2 sqrt(2/pi) 0.044715
    return scale_by_sigmoid(x, x * fmaf(kCubic * x, x, kLinear));
}

// 0.5 x (1 + erf(x / sqrt 2)) = 0.5 x erfc(-x / sqrt 2): relatively accurate in the negative tail too.
__device__ __forceinline__ float gelu_erf(float x) { return 0.5f * x * erfcf(-0.7071067811865476f * x); }

// `act` is the same for all threads of a launch, so that the switch never diverges.
__device__ __forceinline__ float apply_activation(int act, float x) {
    switch (act) {
        case AICF_ACT_RELU: return relu(x);
        case AICF_ACT_GELU_TANH: return gelu_tanh(x);
        case AICF_ACT_GELU_ERF: return gelu_erf(x);
        case AICF_ACT_SILU: return silu(x);
        default: return x;
    }
}

// max rel. error 2^-11 (PTX ISA, tanh.approx.f32): one instruction of the special-function unit.
__device__ __forceinline__ float tanh_approximate(float x) {
    float result;
    asm("tanh.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 0.5 x (1 + tanh(t)): the form of every smooth activation here. Off by at most 2^-12 |x| for an exact t.
__device__ __forceinline__ float scale_by_tanh(float x, float t) {
    const float half = 0.5f * x;
    return fmaf(half, tanh_approximate(t), half);
}

// An activation to the accuracy of 16-bit outputs: within 3 * 2^-13 |x| of the exact one. NaN and infinities as above.
template <int kAct>
__device__ __forceinline__ float apply_rough_activation(float x) {
    if constexpr (kAct == AICF_ACT_RELU) return relu(x);
    if constexpr (kAct == AICF_ACT_GELU_TANH) return scale_by_tanh(x, x * fmaf(0.035677408136300125f * x, x, 0.7978845608028654f));
    if constexpr (kAct == AICF_ACT_GELU_ERF) {
        // erf(x / sqrt 2) = tanh(x P(x^2)): P fitted to atanh(erf) so that x / 2 tanh errs by at most 2.6e-5, and 3.1e-5 |x|. Past x^2 = 21
        // the tanh is 1 to within 1e-5, and P is kept from falling.
        const float square = fminf(x * x, 21.0f);
        return scale_by_tanh(x, x * fmaf(square, fmaf(square, -0.00035151702f, 0.037005648f), 0.79750788f));
    }
    if constexpr (kAct == AICF_ACT_SILU) return scale_by_tanh(x, 0.5f * x);
    return x;
}

// The same, chosen at run time; `act` is the same for all threads.
__device__ __forceinline__ float apply_rough_activation(int act, float x) {
    switch (act) {
        case AICF_ACT_RELU: return apply_rough_activation<AICF_ACT_RELU>(x);
        case AICF_ACT_GELU_TANH: return apply_rough_activation<AICF_ACT_GELU_TANH>(x);
        case AICF_ACT_GELU_ERF: return apply_rough_activation<AICF_ACT_GELU_ERF>(x);
        case AICF_ACT_SILU: return apply_rough_activation<AICF_ACT_SILU>(x);
        default: return x;
    }
}

}  // namespace aicf

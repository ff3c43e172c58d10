// sqrtf(x) and a / b to the same bits, for plain operands and without a branch: those that the compiler puts around each root and each
// quotient, for the others, keep those of several elements from overlapping. A caller asks for all of its elements whether they are
// plain, and does all of them again by sqrtf and / where one is not.
#pragma once

#include "common/special_functions.cuh"

namespace aicf {

// Whether find_plain_root() is right: x is 0, or so large that no part of it is subnormal.
__device__ __forceinline__ bool has_plain_root(float x) { return (x == 0.0f) | ((x >= 0x1p-100f) & (x <= 0x1.fffffep127f)); }

__device__ __forceinline__ float find_plain_root(float x) {
    float inverse;
    asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(x));
    const float root = x * inverse;
    const float refined = fmaf(fmaf(-root, root, x), 0.5f * inverse, root);
    return x == 0.0f ? x : refined;
}

// Whether find_plain_quotient() is right: a may be 0, and neither is near the ends of the exponents. b is positive.
__device__ __forceinline__ bool has_plain_quotient(float a, float b) {
    const float magnitude = fabsf(a);
    return ((a == 0.0f) | ((magnitude >= 0x1p-60f) & (magnitude <= 0x1p60f))) & (b >= 0x1p-60f) & (b <= 0x1p60f);
}

__device__ __forceinline__ float find_plain_quotient(float a, float b) {
    const float rough = invert(b);
    const float inverse = fmaf(rough, fmaf(-b, rough, 1.0f), rough);
    const float quotient = a * inverse;
    const float refined = fmaf(inverse, fmaf(-b, quotient, a), quotient);
    return a == 0.0f ? a : refined;
}

}  // namespace aicf

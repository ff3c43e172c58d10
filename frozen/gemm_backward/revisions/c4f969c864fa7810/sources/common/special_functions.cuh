// Powers of two and reciprocals by the special-function unit.
#pragma once

namespace aicf {

// 2^x within 2 ulp, but 0 for results below 2^-126 (CUDA C++ Programming Guide, mathematical functions, exp2f; PTX ISA, ex2).
__device__ __forceinline__ float raise_two(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

// 1 / x within an ulp, but 0 for results below 2^-126 (PTX ISA, rcp).
__device__ __forceinline__ float invert(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

}  // namespace aicf

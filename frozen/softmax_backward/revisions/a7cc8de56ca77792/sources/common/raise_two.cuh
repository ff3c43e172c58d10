// Powers of two by the special-function unit.
#pragma once

namespace aicf {

// 2^x within 2 ulp, but 0 for results below 2^-126 (CUDA C++ Programming Guide, mathematical functions, exp2f; PTX ISA, ex2).
__device__ __forceinline__ float raise_two(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

}  // namespace aicf

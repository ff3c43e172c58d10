// Keeps the compiler from computing ahead of a loop, into registers that are occupied all the while, what is cheap to compute in it.
#pragma once

namespace aicf {

// Hides where a value comes from: what is computed from it is computed here.
__device__ __forceinline__ int compute_here(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

template <class Element>
__device__ __forceinline__ const Element* compute_here(const Element* address) {
    asm volatile("" : "+l"(address));
    return address;
}

}  // namespace aicf

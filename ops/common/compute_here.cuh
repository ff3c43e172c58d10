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

// This thread's number in its block and this block's in a one-dimensional grid, read here and not kept since an earlier use.
__device__ __forceinline__ int find_thread_here() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread;
}

__device__ __forceinline__ int find_block_here() {
    int block;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(block));
    return block;
}

}  // namespace aicf

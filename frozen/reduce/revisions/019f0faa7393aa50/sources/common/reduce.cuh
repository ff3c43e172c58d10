// Reductions over a warp (shuffles) and over a block (shuffles, then one value per warp through shared memory).
#pragma once

namespace aicf {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullMask = 0xffffffffu;

// The value of the lane whose number differs in the bits of `offset`. Overload it for a type of your own, in that type's namespace.
__device__ __forceinline__ float shuffle_xor(float value, int offset) { return __shfl_xor_sync(kFullMask, value, offset); }

// Every lane of a converged warp gets the result; `combine(a, b)` must be associative and commutative, or lanes may differ in rounding.
template <class T, class Combine>
__device__ __forceinline__ T reduce_warp(T value, Combine combine) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) value = combine(value, shuffle_xor(value, offset));
    return value;
}

// Every thread of a block of kThreads gets the result. `partials` is shared memory for one T a warp; it may be reused once the call
// returns in all threads and they passed another barrier.
template <int kThreads, class T, class Combine>
__device__ __forceinline__ T reduce_block(T value, T* partials, Combine combine) {
    static_assert(kThreads % kWarpSize == 0 && kThreads <= kWarpSize * kWarpSize, "whole warps, at most one value a lane at the end");
    constexpr int kWarps = kThreads / kWarpSize;
    value = reduce_warp(value, combine);
    if constexpr (kWarps == 1) return value;
    const int warp = threadIdx.x / kWarpSize;
    if (threadIdx.x % kWarpSize == 0) partials[warp] = value;
    __syncthreads();
    value = partials[0];
#pragma unroll
    for (int i = 1; i < kWarps; ++i) value = combine(value, partials[i]);
    return value;
}

}  // namespace aicf

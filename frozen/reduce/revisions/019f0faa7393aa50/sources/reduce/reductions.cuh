// What each reduction keeps of the elements that it has seen (State), how it takes one more, and how two parts are put together.
//
// NaN in, NaN out: a maximum or minimum over a NaN is NaN, and argmax is the place of the first one. Among equal elements argmax is the
// first.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "common/reduce.cuh"
#include "reduce/params.h"

namespace aicf::reduce {

__device__ __forceinline__ float infinity() { return __int_as_float(0x7f800000); }

// Of sum and mean.
struct Sum {
    using State = float;
    static __device__ __forceinline__ State start() { return 0.0f; }
    static __device__ __forceinline__ State take(State state, float x, std::int64_t) { return state + x; }
    static __device__ __forceinline__ State combine(State a, State b) { return a + b; }
};

// Of the sum of squares and the L2 norm.
struct Squares {
    using State = float;
    static __device__ __forceinline__ State start() { return 0.0f; }
    static __device__ __forceinline__ State take(State state, float x, std::int64_t) { return fmaf(x, x, state); }
    static __device__ __forceinline__ State combine(State a, State b) { return a + b; }
};

// NaN where either is one, as fmaxf does not give it.
struct Max {
    using State = float;
    static __device__ __forceinline__ State start() { return -infinity(); }
    static __device__ __forceinline__ State take(State state, float x, std::int64_t) { return combine(state, x); }
    static __device__ __forceinline__ State combine(State a, State b) {
        float larger;
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
        return larger;
    }
};

struct Min {
    using State = float;
    static __device__ __forceinline__ State start() { return infinity(); }
    static __device__ __forceinline__ State take(State state, float x, std::int64_t) { return combine(state, x); }
    static __device__ __forceinline__ State combine(State a, State b) {
        float smaller;
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
        return smaller;
    }
};

// The largest element and its place: that of the row, the column, or the whole matrix in row-major order.
struct Found {
    std::uint32_t key;
    std::int64_t place;
};

__device__ __forceinline__ Found shuffle_xor(Found found, int offset) {
    return {__shfl_xor_sync(kFullMask, found.key, offset), __shfl_xor_sync(kFullMask, static_cast<long long>(found.place), offset)};
}

struct Argmax {
    using State = Found;

    // Keys order as floats do, with both zeros alike, NaN above all and nothing as low as 0.
    static __device__ __forceinline__ std::uint32_t make_key(float x) {
        const std::uint32_t bits = __float_as_uint(x + 0.0f);
        const std::uint32_t flip = static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000u;
        return x != x ? 0xffffffffu : bits ^ flip;
    }

    static __device__ __forceinline__ State start() { return {0, INT64_MAX}; }

    // The places that a state takes ascend.
    static __device__ __forceinline__ State take(State state, float x, std::int64_t place) {
        const std::uint32_t key = make_key(x);
        return key > state.key ? State{key, place} : state;
    }

    static __device__ __forceinline__ State combine(State a, State b) {
        return b.key > a.key || (b.key == a.key && b.place < a.place) ? b : a;
    }
};

// A state as 16 bytes, for another block to read, and back.
__device__ __forceinline__ float4 lay_state(float state) { return {state, 0.0f, 0.0f, 0.0f}; }

__device__ __forceinline__ float4 lay_state(Found found) {
    const auto place = static_cast<std::uint64_t>(found.place);
    return {__uint_as_float(found.key), 0.0f, __uint_as_float(static_cast<std::uint32_t>(place)),
            __uint_as_float(static_cast<std::uint32_t>(place >> 32))};
}

template <class State>
__device__ __forceinline__ State lift_state(float4 words) {
    if constexpr (sizeof(State) == sizeof(float)) {
        return words.x;
    } else {
        const std::uint64_t low = __float_as_uint(words.z), high = __float_as_uint(words.w);
        return {__float_as_uint(words.x), static_cast<std::int64_t>(high << 32 | low)};
    }
}

// Stores result `i`, which is of `count` elements.
__device__ __forceinline__ void write_result(const ReduceParams& p, std::int64_t i, float value, std::int64_t count) {
    if (p.reduction == AICF_REDUCE_REDUCTION_MEAN) value /= static_cast<float>(count);
    if (p.reduction == AICF_REDUCE_REDUCTION_L2_NORM) value = sqrtf(value);
    if (p.result_dtype == AICF_DTYPE_FLOAT32) static_cast<float*>(p.y)[i] = value;
    if (p.result_dtype == AICF_DTYPE_BFLOAT16) static_cast<Bf16*>(p.y)[i] = from_float<Bf16>(value);
    if (p.result_dtype == AICF_DTYPE_FLOAT16) static_cast<Fp16*>(p.y)[i] = from_float<Fp16>(value);
}

__device__ __forceinline__ void write_result(const ReduceParams& p, std::int64_t i, Found found, std::int64_t) {
    static_cast<std::int64_t*>(p.y)[i] = found.place;
}

}  // namespace aicf::reduce

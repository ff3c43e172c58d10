// 16-byte accesses: of float arrays, whole or cut short at a ragged edge, and of narrower words that were read one by one.
#pragma once

#include <cstdint>

namespace aicf {

inline constexpr int kVectorElems = 4;   // floats in one access
inline constexpr int kVectorBytes = 16;  // alignment that it needs

inline bool is_vector_aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0; }

// True when every row of a matrix with this base and row stride (elements) starts on a vector boundary.
inline bool has_vector_rows(const void* pointer, std::int64_t row_stride) {
    return is_vector_aligned(pointer) && row_stride % kVectorElems == 0;
}

__device__ __forceinline__ float4 load_vector(const float* source) { return *reinterpret_cast<const float4*>(source); }

__device__ __forceinline__ void store_vector(float* target, float4 value) { *reinterpret_cast<float4*>(target) = value; }

// The first `num_valid` elements at an aligned address, zeros behind them. Nothing is read past them; num_valid may be negative.
__device__ __forceinline__ float4 load_vector_or_zero(const float* source, int num_valid) {
    if (num_valid >= kVectorElems) return load_vector(source);
    float4 value = {0.0f, 0.0f, 0.0f, 0.0f};
    if (num_valid > 0) value.x = source[0];
    if (num_valid > 1) value.y = source[1];
    if (num_valid > 2) value.z = source[2];
    return value;
}

// 16 bytes from words of 1, 2 or 4.
template <class Word>
__device__ __forceinline__ uint4 lay_words(const Word (&words)[16 / sizeof(Word)]) {
    constexpr int kBytes = static_cast<int>(sizeof(Word)), kPerWord = 4 / kBytes;
    const auto join = [&](int k) {
        std::uint32_t joined = words[k * kPerWord];
#pragma unroll
        for (int e = 1; e < kPerWord; ++e) joined |= std::uint32_t{words[k * kPerWord + e]} << (8 * kBytes * e);
        return joined;
    };
    return {join(0), join(1), join(2), join(3)};
}

}  // namespace aicf

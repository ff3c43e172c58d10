// Aligned words of x that hold bytes which begin anywhere.
#pragma once

#include <cstdint>

#include "strided_copy/pieces.cuh"

namespace aicf::strided_copy {

// The aligned words from the one on that holds a first byte, which is `bits` into it. What lies from `begin` to `end` may be read.
template <class Element>
struct Words {
    const char* first;
    const char *begin, *end;
    int bits;

    // Words 0 to kCount - 1; of those that are partly outside, the elements that may be read, and zeros.
    template <int kCount>
    __device__ __forceinline__ void load(std::uint32_t (&words)[kCount]) const {
        if (first >= begin && first + 4 * kCount <= end) {
#pragma unroll
            for (int k = 0; k < kCount; ++k) words[k] = reinterpret_cast<const std::uint32_t*>(first)[k];
            return;
        }
        constexpr std::int64_t kBytes = 4 * kCount;
        const auto before = static_cast<int>(begin - first > kBytes ? kBytes : begin - first);
        const auto after = static_cast<int>(end - first > kBytes ? kBytes : end - first);
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
            words[k] = 0;
            if (4 * k >= before && 4 * k + 4 <= after) {
                words[k] = reinterpret_cast<const std::uint32_t*>(first)[k];
            } else if constexpr (sizeof(Element) < 4) {
#pragma unroll
                for (int at = 4 * k; at < 4 * k + 4; at += static_cast<int>(sizeof(Element))) {
                    if (at < before || at >= after) continue;
                    words[k] |= std::uint32_t{*reinterpret_cast<const Element*>(first + at)} << (8 * (at - 4 * k));
                }
            }
        }
    }
};

// The words from `x` on, in a row from `begin` to `end`. Where a piece has no gaps in x, all of it may be read: only the words at its two
// ends can be partly outside.
template <class Element>
__device__ __forceinline__ Words<Element> find_words(const Piece& p, const char* begin, const char* end, const char* x) {
    const auto misfit = static_cast<int>(reinterpret_cast<std::uintptr_t>(x) & 3);
    const bool is_dense = p.x_end != nullptr;
    return {x - misfit, is_dense ? p.x : begin, is_dense ? p.x_end : end, 8 * misfit};
}

}  // namespace aicf::strided_copy

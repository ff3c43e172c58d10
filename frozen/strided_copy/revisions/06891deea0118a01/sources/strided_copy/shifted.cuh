// Rows that begin anywhere on either side: y by 16 bytes at multiples of 16, from aligned words of x and a shift.
#pragma once

#include <cstdint>

#include "strided_copy/pieces.cuh"
#include "strided_copy/words.cuh"

namespace aicf::strided_copy {

inline constexpr int kPackBytes = 16;
inline constexpr int kPackWords = kPackBytes / 4;

// One pack of y: 16 bytes from a multiple of 16 on, and which of them are in its row.
template <class Element>
struct Pack {
    std::uint32_t loaded[kPackWords + 1];
    char* y;
    int bits;
    int first, end;  // of its bytes, those that are in the row; none where end is not positive

    __device__ __forceinline__ std::uint32_t find_word(int k) const { return __funnelshift_r(loaded[k], loaded[k + 1], bits); }

    __device__ __forceinline__ void store() const {
        if (first <= 0 && end >= kPackBytes) {
            *reinterpret_cast<uint4*>(y) = {find_word(0), find_word(1), find_word(2), find_word(3)};
            return;
        }
#pragma unroll
        for (int k = 0; k < kPackWords; ++k) {
            const std::uint32_t word = find_word(k);
            if (4 * k >= first && 4 * k + 4 <= end) {
                *reinterpret_cast<std::uint32_t*>(y + 4 * k) = word;
            } else if constexpr (sizeof(Element) < 4) {
#pragma unroll
                for (int e = 0; e < 4; e += static_cast<int>(sizeof(Element))) {
                    const int at = 4 * k + e;
                    if (at >= first && at < end) *reinterpret_cast<Element*>(y + at) = static_cast<Element>(word >> (8 * e));
                }
            }
        }
    }
};

// Pack `number` of the row at these addresses; its loads are under way when this returns.
template <class Element>
__device__ __forceinline__ Pack<Element> load_pack(const Piece& p, const char* x, char* y, int number) {
    const int begin = number * kPackBytes - static_cast<int>(reinterpret_cast<std::uintptr_t>(y) & (kPackBytes - 1));
    Pack<Element> pack;
    pack.y = y + begin;
    pack.first = -begin;
    pack.end = p.row_bytes - begin;
    if (pack.end <= 0) return pack;
    const Words<Element> words = find_words<Element>(p, x, x + p.row_bytes, x + begin);
    pack.bits = words.bits;
    words.load(pack.loaded);
    return pack;
}

}  // namespace aicf::strided_copy

// Tiles of a piece whose lines begin anywhere, cut at sectors of y: a sector that two blocks write in part costs memory as much as several
// whole ones. Column c of a tile gets elements from first - s_c on, where s_c makes that a multiple of a sector (or, in small tiles, of a
// word), so that all stores are of whole words. A block reads that many lines more, which the block above reads as well.
#pragma once

#include <cstdint>
#include <type_traits>

#include "strided_copy/pieces.cuh"

namespace aicf::strided_copy {

// Two or three axes: down is innermost in y and across in x, as in a piece that is packed; steps are in bytes.
struct CutTiles {
    const char* x;
    char* y;
    std::int64_t x_next, y_next;  // from one place of the third axis to the next
    int num_down, num_across, num_outer;
    int x_step, y_step;  // from line to line in x, from column to column in y
    bool is_dense;       // x has no gaps
};

// Lines are words of 4 bytes, or elements that are longer. A warp reads 32 words of a line from the aligned word on that holds its first
// element: 31 words are sure to be of the tile.
template <class Element, int kTileLines, int kWarps, bool kAtSectors>
struct CutTile {
    static constexpr int kBytes = static_cast<int>(sizeof(Element));
    static constexpr bool kIsShort = kBytes < 4;
    static constexpr int kPerWord = kIsShort ? 4 / kBytes : 1;
    using Word = std::conditional_t<kIsShort, std::uint32_t, Element>;
    static constexpr int kAcross = kIsShort ? 31 * kPerWord : 32;
    static constexpr int kCut = kAtSectors ? 32 / kBytes : kPerWord;
    static constexpr int kMargin = kCut == 1 ? 0 : (kCut + kWarps - 1) / kWarps * kWarps;
    static constexpr int kLoads = (kTileLines + kMargin) / kWarps;
    static constexpr int kPitch = 33;  // words
    static constexpr int kLineBytes = kPitch * static_cast<int>(sizeof(Word));
    static constexpr int kSharedBytes = (kTileLines + kMargin) * kLineBytes;
    static constexpr int kColumnWords = kTileLines / kPerWord;
    static constexpr int kLanes = kColumnWords < 32 ? kColumnWords : 32;  // of a warp, for one column at a time
    static constexpr int kColumns = 32 / kLanes, kParts = kColumnWords / kLanes;
    static_assert(kLoads * kWarps == kTileLines + kMargin && kLanes * kParts * kPerWord == kTileLines, "warps have equal shares");

    // Of the block, counted from the piece's begin; lines may begin before it.
    const char* x;
    char* y;
    int first_line, num_across;
    int first_byte;

    __device__ __forceinline__ explicit CutTile(const CutTiles& p) {
        const int first_across = static_cast<int>(blockIdx.x) * kAcross, first_down = static_cast<int>(blockIdx.y) * kTileLines;
        const auto place = static_cast<std::int64_t>(blockIdx.z);
        first_line = first_down - kMargin;
        first_byte = first_across * kBytes;
        num_across = min(p.num_across - first_across, kAcross);
        x = p.x + place * p.x_next + std::int64_t{first_line} * p.x_step + first_byte;
        y = p.y + place * p.y_next + std::int64_t{first_across} * p.y_step + std::int64_t{first_down} * kBytes;
    }

    __device__ __forceinline__ bool has_line(const CutTiles& p, int line) const {
        return static_cast<unsigned>(first_line + line) < static_cast<unsigned>(p.num_down);
    }

    // Whether words of a line may be partly outside of what may be read: the piece where that has no gaps, else the line.
    __device__ __forceinline__ bool is_edge(const CutTiles& p) const {
        const bool begins = first_byte == 0, ends = first_byte + (kAcross + kPerWord) * kBytes >= p.num_across * kBytes;
        if (!p.is_dense) return begins || ends;
        const bool has_first = begins && blockIdx.z == 0 && first_line <= 0;
        return has_first || (ends && static_cast<int>(blockIdx.z) == p.num_outer - 1 && first_line + kTileLines + kMargin >= p.num_down);
    }

    // By aligned words, shifted where elements are shorter: all of a thread's loads are under way at once. Of a line's last words one may
    // begin behind it.
    __device__ __forceinline__ void read(const CutTiles& p, char* shared) const {
        constexpr int kWordBytes = static_cast<int>(sizeof(Word));
        const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
        const bool has_word = lane < (kIsShort ? (num_across * kBytes + 6) / 4 : num_across);
        const auto from = reinterpret_cast<std::uintptr_t>(x) + std::int64_t{warp} * p.x_step + lane * kWordBytes;
        const auto step = static_cast<std::int64_t>(kWarps * p.x_step);
        Word words[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
            words[k] = 0;
            if (!has_word || !has_line(p, warp + k * kWarps)) continue;
            words[k] = *reinterpret_cast<const Word*>((from + step * k) & ~std::uintptr_t{kIsShort ? 3 : 0});
        }
        auto* const to = reinterpret_cast<Word*>(shared) + warp * kPitch + lane;
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
            if constexpr (kIsShort) {
                // Shifts by the low five bits.
                const unsigned bits = 8 * (static_cast<unsigned>(from) + static_cast<unsigned>(step) * k);
                words[k] = __funnelshift_r(words[k], __shfl_down_sync(~0u, words[k], 1), bits);
            }
            to[k * kWarps * kPitch] = words[k];
        }
    }

    // By elements.
    __device__ __forceinline__ void read_edge(const CutTiles& p, char* shared) const {
        constexpr int kAtOnce = kLoads % 5 == 0 ? 5 : 3;
        static_assert(kLoads % kAtOnce == 0, "whole turns");
        const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
        for (int base = 0; base < kLoads; base += kAtOnce) {
            Word words[kAtOnce];
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const int line = warp + (base + u) * kWarps;
                const auto* const from = reinterpret_cast<const Element*>(x + std::int64_t{line} * p.x_step) + lane * kPerWord;
                words[u] = 0;
#pragma unroll
                for (int e = 0; e < kPerWord; ++e) {
                    if (!has_line(p, line) || lane * kPerWord + e >= num_across) continue;
                    words[u] |= static_cast<Word>(from[e]) << (8 * kBytes * e);
                }
            }
            auto* const to = reinterpret_cast<Word*>(shared) + (warp + base * kWarps) * kPitch + lane;
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) to[u * kWarps * kPitch] = words[u];
        }
    }

    // Elements of a word, the first in its low bytes.
    static __device__ __forceinline__ Word lay(const Element (&elements)[kPerWord]) {
        if constexpr (kPerWord == 1) {
            return elements[0];
        } else if constexpr (kPerWord == 2) {
            return __byte_perm(elements[0], elements[1], 0x5410);
        } else {
            return __byte_perm(__byte_perm(elements[0], elements[1], 0x0040), __byte_perm(elements[2], elements[3], 0x0040), 0x5410);
        }
    }

    // A warp writes 32 words of a column at a time, or whole columns whose elements share words. Lanes whose lines share banks take a
    // word's elements from another one on, and turn the word back.
    __device__ __forceinline__ void write(const CutTiles& p, const char* shared) const {
        constexpr int kPartBytes = kLanes * static_cast<int>(sizeof(Word));
        const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
        const int lane_line = lane % kLanes * kPerWord, turn = lane_line / 32;
        const int before = -first_line, end = p.num_down - first_line;
        const char* from[kPerWord];
#pragma unroll
        for (int e = 0; e < kPerWord; ++e) from[e] = shared + (lane_line + kMargin + (e + turn) % kPerWord) * kLineBytes;
#pragma unroll(kParts == 1 ? 2 : 1)
        for (int column = warp * kColumns + lane / kLanes; column < num_across; column += kWarps * kColumns) {
            char* const target = y + std::int64_t{column} * p.y_step + lane_line * kBytes;
            const int shift =
                static_cast<int>((reinterpret_cast<std::uintptr_t>(y) + static_cast<unsigned>(column) * p.y_step) / kBytes) & (kCut - 1);
            const int source = column * kBytes - shift * kLineBytes, line = lane_line + kMargin - shift;
            char* const to = target - shift * kBytes;
#pragma unroll
            for (int part = 0; part < kParts; ++part) {
                constexpr int kPartLines = kLanes * kPerWord;
                const int first = line + part * kPartLines;
                Element elements[kPerWord];
#pragma unroll
                for (int e = 0; e < kPerWord; ++e) {
                    elements[e] = *reinterpret_cast<const Element*>(from[e] + source + part * kPartLines * kLineBytes);
                }
                Word word = lay(elements);
                if constexpr (kIsShort) word = __funnelshift_l(word, word, 8 * kBytes * turn);
                if (first >= before && first + kPerWord <= end) {
                    *reinterpret_cast<Word*>(to + part * kPartBytes) = word;
                } else if constexpr (kIsShort) {
#pragma unroll 1
                    for (int e = 0; e < kPerWord; ++e, word >>= 8 * kBytes) {
                        if (first + e < before || first + e >= end) continue;
                        reinterpret_cast<Element*>(to + part * kPartBytes)[e] = static_cast<Element>(word);
                    }
                }
            }
        }
    }
};

}  // namespace aicf::strided_copy

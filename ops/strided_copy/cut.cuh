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

    // By aligned words, shifted where elements are shorter: all of a thread's loads are under way at once.
    __device__ __forceinline__ void read(const CutTiles& p, char* shared) const {
        const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
        const char* const from = x + std::int64_t{warp} * p.x_step;
        const int step = kWarps * p.x_step;
        Word words[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
            const char* line = from + std::int64_t{step} * k;
            const int misfit = kIsShort ? static_cast<int>(reinterpret_cast<std::uintptr_t>(line) & 3) : 0;
            words[k] = 0;
            if (!has_line(p, warp + k * kWarps) || lane * kPerWord * kBytes >= num_across * kBytes + misfit) continue;
            words[k] = reinterpret_cast<const Word*>(line - misfit)[lane];
        }
        auto* const to = reinterpret_cast<Word*>(shared) + warp * kPitch + lane;
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
            if constexpr (kIsShort) {
                const auto misfit = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) + static_cast<unsigned>(step) * k) & 3;
                words[k] = __funnelshift_r(words[k], __shfl_down_sync(~0u, words[k], 1), 8 * misfit);
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

    // A warp writes 32 words of a column at a time, or whole columns whose elements share words. Lanes whose lines share banks take a
    // word's elements in another order.
    __device__ __forceinline__ void write(const CutTiles& p, const char* shared) const {
        const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
        const int turn = lane % kLanes * kPerWord / 32;
#pragma unroll 2
        for (int unit = warp; unit < (num_across + kColumns - 1) / kColumns * kParts; unit += kWarps) {
            const int column = unit / kParts * kColumns + lane / kLanes, part = unit % kParts;
            if (kColumns > 1 && column >= num_across) continue;
            char* const target = y + std::int64_t{column} * p.y_step;
            const int shift = static_cast<int>(reinterpret_cast<std::uintptr_t>(target) / kBytes) & (kCut - 1);
            const int place = (part * kLanes + lane % kLanes) * kPerWord - shift;
            const int line = place + kMargin;
            const char* const from = shared + line * kLineBytes + column * kBytes;
            Word word = 0;
#pragma unroll
            for (int e = 0; e < kPerWord; ++e) {
                const int at = (e + turn) % kPerWord;
                word |= static_cast<Word>(*reinterpret_cast<const Element*>(from + at * kLineBytes)) << (8 * kBytes * at);
            }
            char* const to = target + place * kBytes;
            if (has_line(p, line) && has_line(p, line + kPerWord - 1)) {
                *reinterpret_cast<Word*>(to) = word;
            } else if constexpr (kIsShort) {
#pragma unroll
                for (int e = 0; e < kPerWord; ++e) {
                    if (has_line(p, line + e)) reinterpret_cast<Element*>(to)[e] = static_cast<Element>(word >> (8 * kBytes * e));
                }
            }
        }
    }
};

}  // namespace aicf::strided_copy

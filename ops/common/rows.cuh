// Rows of a matrix, each taken by a group of threads: the lanes of a warp or a part of them, or a block.
//
// A kernel of one row reduction is: where the group stands (RowGroup), a visit of the row's packs (visit_row), a reduction over the group.
// Short rows may stay in registers between two visits (RowSpan).
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/elements.cuh"
#include "common/reduce.cuh"

namespace aicf {

// The result for every thread of a group of kThreads: lanes of a warp, or a whole block (then kThreads is the block). `partials` as for
// reduce_block, unused within a warp.
template <int kThreads, class T, class Combine>
__device__ __forceinline__ T reduce_group(T value, T* partials, Combine combine) {
    if constexpr (kThreads > kWarpSize) return reduce_block<kThreads>(value, partials, combine);
#pragma unroll
    for (int offset = (kThreads < kWarpSize ? kThreads : kWarpSize) / 2; offset > 0; offset /= 2) {
        value = combine(value, shuffle_xor(value, offset));
    }
    return value;
}

// Of kCount values of each lane, over the lanes of a warp that are a multiple of kStride apart, the result of value number lane / (32 /
// kCount): from step to step half of the lanes carry on with half of the values.
template <int kStride, int kCount, class Combine>
__device__ __forceinline__ float reduce_apart(float (&values)[kCount], const Combine& combine) {
    static_assert((kCount & (kCount - 1)) == 0 && kCount * kStride <= kWarpSize, "a lane is left with one");
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    int offset = kWarpSize / 2;
#pragma unroll
    for (int half = kCount / 2; half > 0; half /= 2, offset /= 2) {
        const bool is_upper = (lane & offset) != 0;
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const float mine = is_upper ? values[half + i] : values[i], theirs = is_upper ? values[i] : values[half + i];
            values[i] = combine(mine, shuffle_xor(theirs, offset));
        }
    }
#pragma unroll
    for (; offset >= kStride; offset /= 2) values[0] = combine(values[0], shuffle_xor(values[0], offset));
    return values[0];
}

// The results of kRows values of a warp's lanes each, for all lanes.
template <int kRows, class Combine>
__device__ __forceinline__ void reduce_rows(float (&values)[kRows], const Combine& combine) {
    if constexpr (kRows == 1) {
        values[0] = reduce_warp(values[0], combine);
    } else {
        const float result = reduce_apart<1>(values, combine);
#pragma unroll
        for (int row = 0; row < kRows; ++row) values[row] = __shfl_sync(kFullMask, result, row * (kWarpSize / kRows));
    }
}

// kThreads threads take a row, kRows such groups a block (kRows is 1 beyond a warp).
template <int kThreads, int kRows = 1>
struct RowGroup {
    static_assert(kThreads <= kWarpSize || kRows == 1, "a group is lanes of a warp, or the block");
    static_assert(kThreads * kRows % kWarpSize == 0, "whole warps take part in shuffles");
    static constexpr int kBlocks = 1, kBlockThreads = kThreads * kRows;
    static constexpr int kTotalThreads = kThreads;  // of a row
    // Partial results of a block-wide reduction; two reductions in a row need an array each.
    static constexpr int kPartials = kThreads > kWarpSize ? kThreads / kWarpSize : 1;

    int rank;          // of the thread in its group
    std::int64_t row;  // may lie past the last one: go along for the shuffles, on find_source(), and store nothing
    __device__ RowGroup()
        : rank(static_cast<int>(kRows == 1 ? threadIdx.x : threadIdx.x % kThreads)),
          row(static_cast<std::int64_t>(blockIdx.x) * kRows + (kRows == 1 ? 0U : threadIdx.x / kThreads)) {}

    // Not past the last row, as a block with one row never is.
    __device__ bool is_real(std::int64_t rows) const { return kRows == 1 || row < rows; }

    // The row to read: the last one for groups past it.
    __device__ std::int64_t find_source(std::int64_t rows) const { return is_real(rows) ? row : rows - 1; }

    template <class T, class Combine>
    __device__ T reduce(T value, T* partials, Combine combine) const {
        return reduce_group<kThreads>(value, partials, combine);
    }

    __device__ float reduce_sum(float value, float* partials) const {
        return reduce(value, partials, [](float a, float b) { return a + b; });
    }

    __device__ float reduce_max(float value, float* partials) const {
        return reduce(value, partials, [](float a, float b) { return fmaxf(a, b); });
    }
};

// Calls visit(column, num_valid) for each pack of a row that falls to the thread of this rank; num_valid is the pack's size but at the end.
template <class Element, int kThreads, class Visit>
__device__ __forceinline__ void visit_row(std::int64_t columns, int rank, const Visit& visit) {
    constexpr int kElems = kPackElems<Element>;
    for (std::int64_t column = static_cast<std::int64_t>(rank) * kElems; column < columns; column += kThreads * kElems) {
        const std::int64_t left = columns - column;
        visit(column, left < kElems ? static_cast<int>(left) : kElems);
    }
}

// A row of at most kThreads * kElems elements, by chunks that the thread of this rank keeps in registers, kChunkElems in each. Where rows
// are packed (`is_packed`) a chunk is one access: the row begins `shift` elements behind a 16-byte boundary, and the pack there, like the
// one that the row's end cuts, is read and written element by element. Rows of other matrices that lie otherwise on boundaries have a skew
// (find_skew): a pack of theirs is put together from two. Else a chunk's elements lie kThreads apart: either way neighbouring threads
// access neighbouring memory. kIsWhole: rows are whole packs on such boundaries, known to the compiler: it then has all accesses of
// load_all() under way together, those of several matrices too.
template <class Element, int kThreads, int kElems, bool kIsWhole = false>
struct RowSpan {
    static constexpr int kChunkElems = kPackElems<Element>;
    static constexpr int kChunks = kElems / kChunkElems;
    static_assert(kChunks > 0 && kElems % kChunkElems == 0, "a thread keeps whole chunks");

    int columns, rank;
    bool is_packed;
    int shift = 0;  // with it a row takes up as many elements more of what the threads keep

    // Of element `i` of a chunk; may lie past the row, or, with a shift, in front of it.
    __device__ __forceinline__ int find_column(int chunk, int i) const {
        if (kIsWhole || is_packed) return (chunk * kThreads + rank) * kChunkElems - shift + i;
        return (chunk * kChunkElems + i) * kThreads + rank;
    }

    __device__ __forceinline__ bool holds(int chunk, int i) const {
        const int column = find_column(chunk, kIsWhole ? 0 : i);
        return column < columns && (shift == 0 || column >= 0);
    }

    // Elements of the row that the lanes of a warp, of all those of kThreads threads, have together.
    __device__ __forceinline__ int count_of_warp(int warp) const {
        const int unit = kIsWhole || is_packed ? kChunkElems : 1, all = columns + shift, step = kThreads * unit, of_warp = kWarpSize * unit;
        const int count = all / step * of_warp + min(max(all % step - warp * of_warp, 0), of_warp);
        return warp == 0 ? count - shift : count;
    }

    // Elements by which packs of a row begin behind 16-byte boundaries: 0 for one that lies as the span does, and for fp32, whose elements
    // are words: rows that lie otherwise are not packed.
    __device__ __forceinline__ int find_skew(const Element* row) const {
        if constexpr (kIsWhole || sizeof(Element) == 4) return 0;
        return is_packed ? static_cast<int>((reinterpret_cast<std::uintptr_t>(row - shift) & 15) / sizeof(Element)) : 0;
    }

    // A chunk from column `first` on that is one access, or two which reach no further than the row.
    __device__ __forceinline__ bool is_whole(int first, int skew = 0) const {
        const int begin = first - skew;
        return begin + (skew == 0 ? kChunkElems : 2 * kChunkElems) <= columns && ((shift == 0 && skew == 0) || begin >= 0);
    }

    // `fill` stands for what lies past the row.
    __device__ __forceinline__ Pack<Element> load(const Element* row, int chunk, float fill, int skew = 0) const {
        const int first = find_column(chunk, 0);
        if constexpr (kIsWhole) return first < columns ? load_pack(row + first) : fill_pack<Element>(fill);
        const Element* const at = row + first;  // one address, from which elements are so many bytes off
        Pack<Element> pack;
        if (!is_packed) {
#pragma unroll
            for (int i = 0; i < kChunkElems; ++i) pack.values[i] = first + i * kThreads < columns ? to_float(at[i * kThreads]) : fill;
            return pack;
        }
        if (is_whole(first, skew)) return load_pack_skewed(at, skew);
#pragma unroll
        for (int i = 0; i < kChunkElems; ++i) pack.values[i] = holds(chunk, i) ? to_float(at[i]) : fill;
        return pack;
    }

    // Calls visit(chunk) for all chunks of a row of any length, of which a thread keeps none: kElems is one pack.
    template <class Visit>
    __device__ __forceinline__ void visit(const Visit& visit) const {
        static_assert(kChunks == 1, "one pack at a time");
        const int chunks = (columns + shift - 1) / (kThreads * kChunkElems) + 1;
#pragma unroll 4
        for (int chunk = 0; chunk < chunks; ++chunk) visit(chunk);
    }

    // Calls visit(chunk, is_whole) likewise, where is_whole is std::true_type for the chunks of which every thread has a whole pack, of
    // rows with a skew too where there are any: accesses of several of them are under way together.
    template <int kTogether, class Visit>
    __device__ __forceinline__ void visit_split(bool has_skews, const Visit& visit) const {
        static_assert(kChunks == 1, "one pack at a time");
        constexpr int kStep = kThreads * kChunkElems;
        const int chunks = (columns + shift - 1) / kStep + 1;
        // Two accesses of 16 bytes, the first of which begins in front of the pack, end less than a pack behind it.
        const int last = columns + shift - (has_skews ? kChunkElems - 1 : 0);
        const int begin = shift > 0 || has_skews ? 1 : 0, end = (kIsWhole || is_packed) && last > 0 ? last / kStep : 0;
        if (begin > 0) visit(0, std::false_type{});
#pragma unroll kTogether
        for (int chunk = begin; chunk < end; ++chunk) visit(chunk, std::true_type{});
#pragma unroll 1
        for (int chunk = begin < end ? end : begin; chunk < chunks; ++chunk) visit(chunk, std::false_type{});
    }

    template <bool kIsWholePack>
    __device__ __forceinline__ Pack<Element> load(const Element* row, int chunk, float fill, std::bool_constant<kIsWholePack> /*is_whole*/,
                                                  int skew = 0) const {
        if constexpr (kIsWholePack) return load_pack_skewed(row + ((chunk * kThreads + rank) * kChunkElems - shift), skew);
        return load(row, chunk, fill, skew);
    }

    template <bool kIsWholePack>
    __device__ __forceinline__ void store(Element* row, int chunk, const Pack<Element>& pack,
                                          std::bool_constant<kIsWholePack> /*is_whole*/) const {
        if constexpr (kIsWholePack) {
            store_pack_at_once(row + ((chunk * kThreads + rank) * kChunkElems - shift), pack);
        } else {
            store(row, chunk, pack);
        }
    }

    // Chunks may begin past the row.
    __device__ __forceinline__ bool is_there(int chunk) const { return chunk * (kThreads * kChunkElems) < columns + shift; }

    // All chunks, with the elements of the word `fill` for what lies past the row. Where rows are packed, all accesses are under way before
    // the first is looked at.
    __device__ __forceinline__ void load_all(const Element* row, Pack<Element> (&chunks)[kChunks], std::uint32_t fill = 0,
                                             int skew = 0) const {
        uint4 words[kChunks];
        load_all_words(row, words, fill, skew);
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) chunks[chunk] = unpack<Element>(words[chunk]);
    }

    // The same as they lie in memory: of 16 bits in half as many registers.
    __device__ __forceinline__ void load_all_words(const Element* row, uint4 (&words)[kChunks], std::uint32_t fill = 0,
                                                   int skew = 0) const {
        const uint4 nothing = {fill, fill, fill, fill};
        if (!kIsWhole && !is_packed) {
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                words[chunk] = nothing;
                if (is_there(chunk)) words[chunk] = pack_words(load(row, chunk, unpack<Element>(nothing).values[0]));
            }
            return;
        }
        if (skew == 0) {
            load_words(row, words, nothing);
        } else {
            load_skewed_words(row, words, nothing, skew);
        }
        if constexpr (!kIsWhole) {
            const auto fill_in = [&](int number) {
                const uint4 part = load_part(row, number * kChunkElems - shift, nothing);
#pragma unroll
                for (int chunk = 0; chunk < kChunks; ++chunk) words[chunk] = choose(chunk == number / kThreads, part, words[chunk]);
            };
            visit_cut(fill_in, skew);
        }
    }

    // Packed rows of several matrices, each with a skew of its own, as they lie in memory, from a chunk on: all accesses are under way
    // before the first is looked at. Zeros stand for what lies past the row, and for a row that is null. `is_whole` is std::true_type where
    // every thread has a whole pack of each: see visit_split().
    template <int kMatrices, bool kIsWholePack = false>
    __device__ __forceinline__ void load_rows(const Element* const (&rows)[kMatrices], const int (&skews)[kMatrices],
                                              uint4 (&words)[kMatrices][kChunks], int from = 0,
                                              std::bool_constant<kIsWholePack> is_whole = {}) const {
        int any_skew = 0;
#pragma unroll
        for (const int skew : skews) any_skew |= skew;
        const int begin = find_column(from, 0);
        if (kIsWhole || any_skew == 0) {
            visit_chunks<kMatrices>(
                [&](int m, int chunk) { words[m][chunk] = load_aligned(rows[m], begin + chunk * (kThreads * kChunkElems), is_whole); });
            if constexpr (!kIsWhole && !kIsWholePack) {
                if (begin >= 0) return;
#pragma unroll
                for (int m = 0; m < kMatrices; ++m) words[m][0] = place_head(words[m][0], begin);
            }
            return;
        }
        // Chunk by chunk: there are no registers for two packs of everything.
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            uint4 next[kMatrices];
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) {
                const int first = begin - skews[m] + chunk * (kThreads * kChunkElems);
                words[m][chunk] = load_aligned(rows[m], first, is_whole);
                next[m] = load_aligned(skews[m] == 0 ? nullptr : rows[m], first + kChunkElems, is_whole);
            }
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) {
                const int first = begin - skews[m];
                if (!kIsWholePack && chunk == 0 && first < 0) {
                    words[m][0] = place_head(words[m][0], first);
                    next[m] = place_head(next[m], first + kChunkElems);
                }
                words[m][chunk] = join_words(words[m][chunk], next[m], skews[m]);
            }
        }
    }

    __device__ __forceinline__ void store(Element* row, int chunk, const Pack<Element>& pack, int skew = 0) const {
        const int first = find_column(chunk, 0);
        if constexpr (kIsWhole) {
            if (first < columns) store_pack(row + first, pack);
            return;
        }
        Element* const at = row + first;
        if (!is_packed) {
#pragma unroll
            for (int i = 0; i < kChunkElems; ++i) {
                if (first + i * kThreads < columns) at[i * kThreads] = from_float<Element>(pack.values[i]);
            }
            return;
        }
        if (skew == 0 && is_whole(first)) return store_pack_at_once(at, pack);
#pragma unroll
        for (int i = 0; i < kChunkElems; ++i) {
            if (holds(chunk, i)) at[i] = from_float<Element>(pack.values[i]);
        }
    }

    // All chunks.
    __device__ __forceinline__ void store_all(Element* row, const Pack<Element> (&chunks)[kChunks]) const {
        if (kIsWhole || !is_packed) {
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                if (is_there(chunk)) store(row, chunk, chunks[chunk]);
            }
            return;
        }
        Element* const at = row + find_column(0, 0);
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            if (is_whole(find_column(chunk, 0))) store_pack_at_once(at + chunk * (kThreads * kChunkElems), chunks[chunk]);
        }
        visit_cut([&](int number) {
            uint4 part = pack_words(chunks[0]);
#pragma unroll
            for (int chunk = 1; chunk < kChunks; ++chunk) part = choose(chunk == number / kThreads, pack_words(chunks[chunk]), part);
            store_part(row, number * kChunkElems - shift, part);
        });
    }

private:
    // Word by word: an index that is known only then would send the chunks to local memory.
    __device__ static __forceinline__ uint4 choose(bool takes_a, const uint4& a, const uint4& b) {
        return {takes_a ? a.x : b.x, takes_a ? a.y : b.y, takes_a ? a.z : b.z, takes_a ? a.w : b.w};
    }

    __device__ __forceinline__ void load_words(const Element* row, uint4 (&words)[kChunks], const uint4& nothing) const {
        const Element* const at = row + find_column(0, 0);
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int first = find_column(chunk, 0);
            words[chunk] = nothing;
            if (kIsWhole ? first < columns : is_whole(first)) {
                words[chunk] = *reinterpret_cast<const uint4*>(at + chunk * (kThreads * kChunkElems));
            }
        }
    }

    __device__ __forceinline__ void load_skewed_words(const Element* row, uint4 (&words)[kChunks], const uint4& nothing, int skew) const {
        const Element* const at = row + find_column(0, 0) - skew;
        uint4 next[kChunks];
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            words[chunk] = next[chunk] = nothing;
            if (is_whole(find_column(chunk, 0), skew)) {
                words[chunk] = *reinterpret_cast<const uint4*>(at + chunk * (kThreads * kChunkElems));
                next[chunk] = *reinterpret_cast<const uint4*>(at + chunk * (kThreads * kChunkElems) + kChunkElems);
            }
        }
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) words[chunk] = join_words(words[chunk], next[chunk], skew);
    }

    // Calls visit(number) for the packs of this thread that the row fills in part, or that two accesses would be needed for of which one
    // reaches beyond the row, numbered from the one that its first element is in. The threads of the first and of the last are mostly in
    // the same warp: they go through the one body together.
    template <class Visit>
    __device__ __forceinline__ void visit_cut(const Visit& visit, int skew = 0) const {
        const int all = (columns + shift + kChunkElems - 1) / kChunkElems, first = (shift + skew + kChunkElems - 1) / kChunkElems;
        const int end = max((columns + shift + skew) / kChunkElems - (skew == 0 ? 0 : 1), first);
        const auto skip = [&](int number) { return number < first || number >= end ? number : end + ((rank - end) & (kThreads - 1)); };
        int number = skip(rank + shift / kChunkElems / kThreads * kThreads);
        if (number < shift / kChunkElems) number = skip(number + kThreads);
#pragma unroll 1
        while (number < all) {
            visit(number);
            number = skip(number + kThreads);
        }
    }

    template <int kMatrices, class Visit>
    __device__ static __forceinline__ void visit_chunks(const Visit& visit) {
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk) visit(m, chunk);
        }
    }

    // The 16 bytes on a boundary from column `first` on. Of those that a row's end cuts its own words are read, and an element that shares
    // its word with what is not the row's, which place_head() moves to its place where it is the second in the word.
    template <bool kIsWholePack>
    __device__ __forceinline__ uint4 load_aligned(const Element* row, int first, std::bool_constant<kIsWholePack> /*is_whole*/) const {
        uint4 pack = {0, 0, 0, 0};
        if (row == nullptr || (kIsWhole && first >= columns)) return pack;
        const Element* const at = row + first;
        if (kIsWhole || kIsWholePack || (first >= 0 && first + kChunkElems <= columns)) return *reinterpret_cast<const uint4*>(at);
        if (first >= columns || first <= -kChunkElems) return pack;
        std::uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            constexpr int kWordElems = kChunkElems / 4;
            const int low = first + i * kWordElems, high = low + kWordElems - 1;
            words[i] = 0;
            if (low >= 0 && high < columns) {
                words[i] = *reinterpret_cast<const std::uint32_t*>(at + i * kWordElems);
            } else if (kWordElems == 2 && high >= 0 && low < columns) {
                words[i] = *reinterpret_cast<const std::uint16_t*>(at + (i * kWordElems + (low < 0 ? 1 : 0)));
            }
        }
        return {words[0], words[1], words[2], words[3]};
    }

    __device__ static __forceinline__ uint4 place_head(const uint4& pack, int first) {
        if constexpr (sizeof(Element) == 4) return pack;
        const auto place = [&](std::uint32_t word, int low) { return low == -1 ? word << 16 : word; };
        return {place(pack.x, first), place(pack.y, first + 2), place(pack.z, first + 4), place(pack.w, first + 6)};
    }

    // The elements of a pack, which begins at column `first`, that are the row's; the others are those of `words`.
    __device__ __forceinline__ uint4 load_part(const Element* row, int first, uint4 words) const {
        std::uint32_t parts[4] = {words.x, words.y, words.z, words.w};
        const Element* const at = row + first;
        const int begin = first < 0 ? -first : 0, end = columns - first;
#pragma unroll
        for (int i = 0; i < kChunkElems; ++i) {
            if (i < begin || i >= end) continue;
            if constexpr (sizeof(Element) == 4) {
                parts[i] = __float_as_uint(at[i]);
            } else {
                const std::uint32_t bits = *reinterpret_cast<const std::uint16_t*>(at + i);
                parts[i / 2] = __byte_perm(parts[i / 2], bits, i % 2 == 0 ? 0x3254 : 0x5410);
            }
        }
        return {parts[0], parts[1], parts[2], parts[3]};
    }

    __device__ __forceinline__ void store_part(Element* row, int first, const uint4& words) const {
        const std::uint32_t parts[4] = {words.x, words.y, words.z, words.w};
        Element* const at = row + first;
        const int begin = first < 0 ? -first : 0, end = columns - first;
#pragma unroll
        for (int i = 0; i < kChunkElems; ++i) {
            if (i < begin || i >= end) continue;
            if constexpr (sizeof(Element) == 4) {
                at[i] = __uint_as_float(parts[i]);
            } else {
                *reinterpret_cast<std::uint16_t*>(at + i) = static_cast<std::uint16_t>(parts[i / 2] >> (i % 2 * 16));
            }
        }
    }
};

// The largest boundary in bytes, a power of two from 16 to `most`, behind which rows of both matrices begin alike, so that they can be
// accessed in packs from there on; 0 where there is none, or where a row with the shift is more than the `capacity` elements that a group
// keeps.
template <class Element>
int find_common_boundary(const void* x, std::int64_t ldx, const void* y, std::int64_t ldy, std::int64_t columns, std::int64_t capacity,
                         int most) {
    constexpr auto kElemBytes = static_cast<std::int64_t>(sizeof(Element));
    const auto base = reinterpret_cast<std::intptr_t>(x), apart = base - reinterpret_cast<std::intptr_t>(y);
    for (int boundary = most; boundary >= 16; boundary /= 2) {
        if (apart % boundary != 0 || (ldx - ldy) * kElemBytes % boundary != 0) continue;
        // Rows begin at multiples of the lowest bit that is set anywhere.
        const std::int64_t places = base | ldx * kElemBytes | boundary, step = places & -places;
        if (columns + (boundary - step) / kElemBytes <= capacity) return boundary;
    }
    return 0;
}

// Elements that a row lies behind a boundary; 0 without one.
template <class Element>
__device__ __forceinline__ int find_shift(const Element* row, int boundary) {
    const auto mask = static_cast<std::uintptr_t>(boundary == 0 ? 0 : boundary - 1);
    return static_cast<int>((reinterpret_cast<std::uintptr_t>(row) & mask) / sizeof(Element));
}

// The part of rows of 16 bits that begin anywhere which is whole packs in every matrix, on 16-byte boundaries of the one that is written.
// What lies in front of the first pack and behind the last, less than two packs each, are its edges: a lane of the group's last warp takes
// an element of them, so that no warp has whole packs to access and parts of them too; each of fewer threads takes several
// (find_edge()). Other matrices may have a skew, as in RowSpan.
template <class Element, int kThreads, int kElems>
struct InnerSpan {
    static constexpr int kChunkElems = kPackElems<Element>, kChunks = kElems / kChunkElems, kMostEdge = kWarpSize / 2;
    static constexpr int kEdges = kThreads < kWarpSize ? kWarpSize / kThreads : 1;

    int rank, first, columns;  // of the first pack, and behind the last
    int edge;                  // the column that the thread has beside its packs; below 0: none

    template <int kMatrices>
    __device__ __forceinline__ InnerSpan(int row_columns, int r, const Element* written, const Element* const (&rows)[kMatrices])
        : rank(r), first((kChunkElems - find_shift(written, 16)) % kChunkElems) {
        int most = row_columns - kChunkElems;  // where a whole pack begins at the latest
        int skews = 0;
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
            const int skew = rows[m] == nullptr ? 0 : find_skew(rows[m]);
            if (skew != 0) most = min(most, row_columns - 2 * kChunkElems + skew);
            skews = max(skews, skew);
        }
        if (first < skews) first += kChunkElems;
        columns = first + (most - first + kChunkElems) / kChunkElems * kChunkElems;
        const int lane = rank - (kThreads - kWarpSize);
        const int column = lane < kMostEdge ? lane : columns + lane - kMostEdge;
        edge = lane < 0 || column >= (lane < kMostEdge ? first : row_columns) ? -1 : column;
    }

    // Edge 0 is `edge`, of a row of so many columns; below 0: none.
    __device__ __forceinline__ int find_edge(int number, int row_columns) const {
        if (number == 0) return edge;
        const int lane = rank + kWarpSize - (number + 1) * kThreads;
        const int column = lane < kMostEdge ? lane : columns + lane - kMostEdge;
        return column >= (lane < kMostEdge ? first : row_columns) ? -1 : column;
    }

    __device__ __forceinline__ int find_column(int chunk, int i) const { return first + (chunk * kThreads + rank) * kChunkElems + i; }

    // Packs may lie past the last.
    __device__ __forceinline__ bool is_there(int chunk) const { return find_column(chunk, 0) < columns; }

    __device__ __forceinline__ int find_skew(const Element* row) const { return find_shift(row + first, 16); }

    // The thread's packs of a row as they lie in memory, with a skew in two halves, of which join() makes one: nothing is looked at before.
    // Zeros past the last one, and of a row that is null.
    __device__ __forceinline__ void load(const Element* row, int skew, uint4 (&words)[kChunks], uint4 (&next)[kChunks]) const {
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const bool has_pack = row != nullptr && is_there(chunk);
            const auto* const pack = reinterpret_cast<const uint4*>(row + (find_column(chunk, 0) - skew));
            words[chunk] = next[chunk] = {0, 0, 0, 0};
            if (has_pack) words[chunk] = pack[0];
            if (has_pack && skew != 0) next[chunk] = pack[1];
        }
    }

    __device__ __forceinline__ void join(int skew, uint4 (&words)[kChunks], const uint4 (&next)[kChunks]) const {
        if (skew == 0) return;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) words[chunk] = join_words(words[chunk], next[chunk], skew);
    }

    __device__ __forceinline__ void store(Element* row, int chunk, const Pack<Element>& pack) const {
        store_pack_at_once(row + find_column(chunk, 0), pack);
    }
};

// How rows are accessed: as whole packs on 16-byte boundaries, as packs from the boundary in front of a row on, or by elements.
enum class Access { kWhole, kPacked, kByElement };

// `written` is the row whose packs are stored in whole; others may have a skew.
template <class Span, Access kAccess, class Element>
__device__ __forceinline__ Span make_span(int columns, int rank, const Element* written) {
    return {columns, rank, kAccess != Access::kByElement, kAccess == Access::kPacked ? find_shift(written, 16) : 0};
}

// So many columns pay for the packs that a row's ends cut, where all rows lie alike and where they do not: shorter rows are read by
// elements.
inline constexpr int kLeastAlike = 48, kLeastSkewed = 192;

// Of rows that are kept in registers, and lie alike: words of 32 bits that are read one by one leave no ends.
template <class Element>
inline constexpr int kLeastAlikeKept = sizeof(Element) == 4 ? kLeastSkewed : kLeastAlike;

// Calls launch(access), a constant, with how rows can be accessed whose threads keep kCapacity elements, or more than a row has. What
// begins anywhere is accessed in packs where it has 16 bits or all matrices lie alike (std::false_type: they never do), and then
// kAlike columns: words of 32 are as well read one by one.
template <class Element, std::int64_t kCapacity, int kAlike = kLeastAlike, class Alike, class Launch>
AicfStatus choose_access(std::int64_t columns, bool has_whole_packs, Alike lie_alike, const Launch& launch) {
    constexpr bool kMayLieAlike = !std::is_same_v<Alike, std::false_type>;
    if (has_whole_packs) return launch(std::integral_constant<Access, Access::kWhole>{});
    if constexpr ((kMayLieAlike && kCapacity > kAlike) || (sizeof(Element) == 2 && kCapacity > kLeastSkewed)) {
        const bool is_long = columns >= (lie_alike ? kAlike : kLeastSkewed) && columns + kPackElems<Element> - 1 <= kCapacity;
        if (is_long && (lie_alike || sizeof(Element) == 2)) return launch(std::integral_constant<Access, Access::kPacked>{});
    }
    return launch(std::integral_constant<Access, Access::kByElement>{});
}

}  // namespace aicf

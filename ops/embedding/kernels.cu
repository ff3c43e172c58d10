// Rows of a table [vocabulary, width] by index: y[i] = table[indices[i]]. Bits are copied, whatever they mean.
//
// | kernel     | idea                                                                                         |
// |------------|----------------------------------------------------------------------------------------------|
// | naive      | a thread per element                                                                         |
// | row_groups | a group of threads per row, which reads its index once; 16 bytes an access, 4 in flight,     |
// |            | or 8 words where rows begin anywhere                                                         |
// | flat       | accesses are numbered across rows, as wide as rows allow; a thread has several under way.    |
// |            | Many narrow ones that fill a y without gaps are stored by 16 bytes, across the ends of rows  |
#include <cstdint>

#include "common/division.hpp"
#include "common/indices.cuh"
#include "common/rows.cuh"
#include "common/vector_access.cuh"
#include "embedding/params.h"

namespace aicf::embedding {

// NaN in fp32, bf16 and fp16 alike.
inline constexpr std::uint32_t kNanWord = 0x7fff7fffu;

template <class Word, class Index, int kThreads>
__global__ void __launch_bounds__(kThreads) embedding_naive(const EmbeddingParams p) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t i = at / p.width, j = at % p.width;
    if (i >= p.count) return;
    const std::int64_t row = read_index<Index>(p.indices, i, p.vocabulary, j == 0, p.status);
    static_cast<Word*>(p.y)[i * p.ldy + j] = row < 0 ? static_cast<Word>(kNanWord) : static_cast<const Word*>(p.table)[row * p.ldtable + j];
}

// Copies `count` words, or fills with NaN where there is no source, by the thread of this rank among kThreads. What is left behind whole
// parts is under way together as well: one by one, each would wait for the store of the one before.
template <int kThreads, class Word>
__device__ __forceinline__ void copy_row(Word* target, const Word* source, std::int64_t count, int rank, Word fill) {
    constexpr int kInFlight = sizeof(Word) < 16 ? 8 : 4, kPart = kInFlight * kThreads;
    target += rank;
    std::int64_t left = count - rank;
    if (source == nullptr) {
#pragma unroll 1
        for (; left > 0; left -= kThreads, target += kThreads) *target = fill;
        return;
    }
    source += rank;
    Word loaded[kInFlight];
#pragma unroll 1
    for (; left > kPart - kThreads; left -= kPart, source += kPart, target += kPart) {
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) loaded[u] = source[u * kThreads];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) target[u * kThreads] = loaded[u];
    }
    const auto few = static_cast<int>(left);
#pragma unroll
    for (int u = 0; u < kInFlight - 1; ++u) {
        if (u * kThreads < few) loaded[u] = source[u * kThreads];
    }
#pragma unroll
    for (int u = 0; u < kInFlight - 1; ++u) {
        if (u * kThreads < few) target[u * kThreads] = loaded[u];
    }
}

// kThreads threads per row, kRows rows per block. Whole packs are copied where the rows of both start on 16-byte boundaries, and what is
// left of a row word by word.
template <class Word, class Index, int kThreads, int kRows>
__global__ void __launch_bounds__(kThreads* kRows) embedding_row_groups(const EmbeddingParams p, bool is_packed) {
    constexpr int kWords = 16 / static_cast<int>(sizeof(Word));
    const RowGroup<kThreads, kRows> group;
    if (group.row >= p.count) return;
    const std::int64_t row = read_index<Index>(p.indices, group.row, p.vocabulary, group.rank == 0, p.status);
    auto* target = static_cast<Word*>(p.y) + group.row * p.ldy;
    const auto* source = row < 0 ? nullptr : static_cast<const Word*>(p.table) + row * p.ldtable;
    const std::int64_t packs = is_packed ? p.width / kWords : 0, done = packs * kWords;
    copy_row<kThreads>(reinterpret_cast<uint4*>(target), reinterpret_cast<const uint4*>(source), packs, group.rank,
                       uint4{kNanWord, kNanWord, kNanWord, kNanWord});
    copy_row<kThreads>(target + done, source == nullptr ? nullptr : source + done, p.width - done, group.rank, static_cast<Word>(kNanWord));
}

// y and table in accesses of one width, which may be that of several elements. All that a kernel needs is here, in the order of its use: a
// short launch waits for its parameters. Number is uint32 where 32 bits hold all of these numbers; rows are told apart by a multiplication
// then.
template <class Number>
struct FlatRows {
    Number total, accesses;  // of y, of a row
    WideDivisor divisor;     // accesses
    const void* indices;
    std::uint64_t vocabulary;
    const void* table;
    Number ldtable;
    Number gap;  // between rows of y
    void* y;
    std::int32_t* status;

    __device__ __forceinline__ Number find_row(Number number) const {
        if constexpr (sizeof(Number) == 4) {
            return divisor.divide(number);
        } else {
            return number / accesses;
        }
    }

    // Negative ones are large here. To be reported where it is false.
    template <class Index>
    __device__ __forceinline__ bool has(Index index) const {
        return static_cast<std::uint64_t>(static_cast<std::int64_t>(index)) < vocabulary;
    }

    // Of an index that the table has.
    template <class Access, class Index>
    __device__ __forceinline__ const Access* find_source(Index index) const {
        return static_cast<const Access*>(table) + static_cast<std::uint64_t>(static_cast<Number>(index)) * ldtable;
    }
};

template <class Access>
__device__ __forceinline__ Access fill_nan();
template <>
__device__ __forceinline__ std::uint16_t fill_nan() {
    return static_cast<std::uint16_t>(kNanWord);
}
template <>
__device__ __forceinline__ std::uint32_t fill_nan() {
    return kNanWord;
}
template <>
__device__ __forceinline__ uint2 fill_nan() {
    return {kNanWord, kNanWord};
}
template <>
__device__ __forceinline__ uint4 fill_nan() {
    return {kNanWord, kNanWord, kNanWord, kNanWord};
}

// kItems accesses a thread, a block's width apart: all of its indices are under way together, then all of its loads. Wrong indices are
// reported last, out of the way of those that are right.
template <class Access, class Index, class Number, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) embedding_flat(const FlatRows<Number> p) {
    const Number first = static_cast<Number>(blockIdx.x) * (kThreads * kItems) + threadIdx.x;
    if (first >= p.total) return;
    Number rows[kItems];
    Index found[kItems];
    Access loaded[kItems];
    bool is_right[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        rows[u] = p.find_row(first + u * kThreads);
        found[u] = first + u * kThreads < p.total ? static_cast<const Index*>(p.indices)[rows[u]] : Index{0};
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const Number number = first + u * kThreads;
        is_right[u] = p.has(found[u]);
        loaded[u] = fill_nan<Access>();
        if (is_right[u] && number < p.total) loaded[u] = p.template find_source<Access>(found[u])[number - rows[u] * p.accesses];
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const Number number = first + u * kThreads;
        if (number < p.total) static_cast<Access*>(p.y)[number + static_cast<std::uint64_t>(rows[u]) * p.gap] = loaded[u];
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        if (!is_right[u]) check_index(found[u], p.vocabulary, first + u * kThreads == rows[u] * p.accesses, p.status);
    }
}

// A pack of 16 bytes of a y without gaps a thread, from the row that it begins in and the next one: rows have a pack's words at least. The
// table's rows begin anywhere: each word is a load, and all of them are under way together.
template <class Word, class Index, int kThreads>
__global__ void __launch_bounds__(kThreads) embedding_dense_packs(const FlatRows<std::uint32_t> p) {
    constexpr std::uint32_t kWords = 16 / sizeof(Word);
    const std::uint32_t number = (blockIdx.x * kThreads + threadIdx.x) * kWords;
    if (number >= p.total) return;
    const std::uint32_t row = p.find_row(number), column = number - row * p.accesses;
    const std::uint32_t left = p.accesses - column, valid = p.total - number;  // words to the ends of row and y
    const auto* const indices = static_cast<const Index*>(p.indices) + row;
    const bool has_next = left < kWords && left < valid;
    const Index index = indices[0], next = has_next ? indices[1] : Index{0};
    const bool is_right = p.has(index), is_next_right = p.has(next);
    const Word* const source = p.template find_source<Word>(index) + column;
    const Word* const next_source = p.template find_source<Word>(next) - left;
    Word* const target = static_cast<Word*>(p.y) + number;
    if (is_right && is_next_right && valid >= kWords) {
        Word words[kWords];
#pragma unroll
        for (std::uint32_t i = 0; i < kWords; ++i) words[i] = (i < left ? source : next_source)[i];
        *reinterpret_cast<uint4*>(target) = lay_words(words);
        return;
    }
#pragma unroll 1
    for (std::uint32_t i = 0; i < kWords && i < valid; ++i) {
        const bool is_first = i < left;
        target[i] = fill_nan<Word>();
        if (is_first ? is_right : is_next_right) target[i] = (is_first ? source : next_source)[i];
    }
    if (!is_right) check_index(index, p.vocabulary, column == 0, p.status);
    if (!is_next_right) check_index(next, p.vocabulary, true, p.status);
}

}  // namespace aicf::embedding

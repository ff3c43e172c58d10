// Rows of a table [vocabulary, width] by index: y[i] = table[indices[i]]. Bits are copied, whatever they mean.
//
// | kernel     | idea                                                                                         |
// |------------|----------------------------------------------------------------------------------------------|
// | naive      | a thread per element                                                                         |
// | row_groups | a group of threads per row, which reads its index once; 16 bytes an access, 4 in flight      |
// | flat       | accesses are numbered across rows, as wide as rows allow; a thread has several under way     |
#include <cstdint>

#include "common/division.hpp"
#include "common/indices.cuh"
#include "common/rows.cuh"
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

// Copies `count` words, or fills with NaN where there is no source, by the thread of this rank among kThreads.
template <int kThreads, class Word>
__device__ __forceinline__ void copy_row(Word* target, const Word* source, std::int64_t count, int rank, Word fill) {
    constexpr int kInFlight = 4;
    std::int64_t k = rank;
    for (; source != nullptr && k + (kInFlight - 1) * kThreads < count; k += kInFlight * kThreads) {
        Word loaded[kInFlight];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) loaded[u] = source[k + u * kThreads];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) target[k + u * kThreads] = loaded[u];
    }
    for (; k < count; k += kThreads) target[k] = source == nullptr ? fill : source[k];
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

// y and table in accesses of one width, which may be that of several elements. Rows are told apart by a multiplication where all accesses
// are fewer than 2^31.
struct FlatRows {
    std::int64_t accesses, total;  // of a row, of y
    std::int64_t ldtable, ldy;
    Divisor divisor;
    bool is_small;

    __device__ __forceinline__ std::int64_t find_row(std::int64_t number) const {
        return is_small ? divisor.divide(static_cast<int>(number)) : number / accesses;
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

// kItems accesses a thread, a block's width apart: all of its indices are under way together, then all of its loads.
template <class Access, class Index, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) embedding_flat(const EmbeddingParams p, const FlatRows rows) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kItems) + threadIdx.x;
    const auto* const table = static_cast<const Access*>(p.table);
    std::int64_t found[kItems], places[kItems], sources[kItems];
    Access loaded[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const std::int64_t number = first + u * kThreads;
        found[u] = number < rows.total ? static_cast<std::int64_t>(static_cast<const Index*>(p.indices)[rows.find_row(number)]) : 0;
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const std::int64_t number = first + u * kThreads;
        places[u] = sources[u] = -1;
        if (number >= rows.total) continue;
        const std::int64_t row = rows.find_row(number), column = number - row * rows.accesses;
        const std::int64_t source = check_index(found[u], p.vocabulary, column == 0, p.status);
        places[u] = row * rows.ldy + column;
        if (source >= 0) sources[u] = source * rows.ldtable + column;
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) loaded[u] = sources[u] < 0 ? fill_nan<Access>() : table[sources[u]];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        if (places[u] >= 0) static_cast<Access*>(p.y)[places[u]] = loaded[u];
    }
}

}  // namespace aicf::embedding

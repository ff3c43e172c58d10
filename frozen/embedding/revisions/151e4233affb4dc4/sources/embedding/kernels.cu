// Rows of a table [vocabulary, width] by index: y[i] = table[indices[i]]. Bits are copied, whatever they mean.
//
// | kernel     | idea                                                                                         |
// |------------|----------------------------------------------------------------------------------------------|
// | naive      | a thread per element                                                                         |
// | row_groups | a group of threads per row, which reads its index once; 16 bytes an access, 4 in flight      |
#include <cstdint>

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

}  // namespace aicf::embedding

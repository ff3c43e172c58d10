// The gradient of an embedding by its table: dtable[v] is the sum of dy[i] over all i with indices[i] = v, in fp32 in an order that
// depends on the indices alone.
//
// | kernel        | idea                                                                                              |
// |---------------|---------------------------------------------------------------------------------------------------|
// | naive         | a thread per element of the table looks at every index                                            |
// | segments      | indices are sorted with their places; a group of threads per row of the table adds up its segment |
// | tables        | tables of few rows are added up in shared memory, by slabs of indices (tables.cuh)                |
// | direct        | few indices: a block picks out those that point to its rows of the table (direct.cuh)             |
// | tiles         | a block per tile of the table looks through all indices and sorts its own (tiles.cuh)             |
// | buckets       | the same by keys that a launch ahead has put in order of tiles (buckets.cuh)                      |
// | integers      | narrow rows: keys as in buckets, and sums as integers, which need no order (integers.cuh)         |
//
// A row that many indices point to would keep one group busy while all others are done. So the sorted places are cut into chunks at fixed
// borders, and a chunk that lies within one segment is added up ahead, by a group of its own; the row's group then takes the chunk's sum.
// No atomics but for counting: the same bits on every run.
#include <cstdint>

#include "common/indices.cuh"
#include "common/rows.cuh"
#include "embedding_backward/direct.cuh"
#include "embedding_backward/integers.cuh"
#include "embedding_backward/params.h"
#include "embedding_backward/sort.cuh"
#include "embedding_backward/tables.cuh"
#include "embedding_backward/tiles.cuh"

namespace aicf::embedding_backward {

template <class Element, class Index, int kThreads>
__global__ void __launch_bounds__(kThreads) backward_naive(const EmbeddingBackwardParams p) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    const std::int64_t row = at / p.width, j = at % p.width;
    if (row >= p.vocabulary) return;
    float sum = 0.0f;
    for (std::int64_t i = 0; i < p.count; ++i) {
        if (read_index<Index>(p.indices, i, p.vocabulary, at == 0, p.status) != row) continue;
        sum += to_float(static_cast<const Element*>(p.dy)[i * p.lddy + j]);
    }
    static_cast<Element*>(p.dtable)[row * p.lddtable + j] = from_float<Element>(sum);
}

// Keys of the sort: indices, and `vocabulary`, which comes last, for a wrong one.
template <class Index>
__global__ void __launch_bounds__(kSortThreads) make_keys(const EmbeddingBackwardParams p, std::uint32_t* keys) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
    if (i >= p.count) return;
    const std::int64_t index = read_index<Index>(p.indices, i, p.vocabulary, true, p.status);
    keys[i] = static_cast<std::uint32_t>(index < 0 ? p.vocabulary : index);
}

// begins[v] is the first sorted place whose key is not below v, for v from 0 to vocabulary.
__global__ void __launch_bounds__(kSortThreads)
    find_segments(const std::uint32_t* keys, std::int64_t count, std::int64_t vocabulary, std::int32_t* begins) {
    const std::int64_t v = static_cast<std::int64_t>(blockIdx.x) * kSortThreads + threadIdx.x;
    if (v > vocabulary) return;
    std::int64_t low = 0, high = count;
    while (low < high) {
        const std::int64_t middle = (low + high) / 2;
        if (keys[middle] < v) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    begins[v] = static_cast<std::int32_t>(low);
}

// What both kernels of sums are given beside the problem.
struct Sorted {
    const std::uint32_t* keys;
    const std::int32_t *places, *begins;
    float* sums;  // [chunks, width]: of a chunk that lies within one segment
};

// Adds to `sum` the packs of rows of dy at `column`, of the sorted places from `begin` to `end`, in their order.
template <class Element>
__device__ __forceinline__ void add_rows(Pack<Element>& sum, const EmbeddingBackwardParams& p, const std::int32_t* places,
                                         std::int64_t begin, std::int64_t end, std::int64_t column, bool is_packed) {
    constexpr int kInFlight = 4;
    const auto* dy = static_cast<const Element*>(p.dy) + column;
    const std::int64_t num_valid = p.width - column;
    std::int64_t i = begin;
    for (; i + kInFlight <= end; i += kInFlight) {
        Pack<Element> loaded[kInFlight];
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) loaded[u] = load_pack_or(dy + places[i + u] * p.lddy, num_valid, is_packed, 0.0f);
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
#pragma unroll
            for (int e = 0; e < kPackElems<Element>; ++e) sum.values[e] += loaded[u].values[e];
        }
    }
    for (; i < end; ++i) {
        const auto loaded = load_pack_or(dy + places[i] * p.lddy, num_valid, is_packed, 0.0f);
#pragma unroll
        for (int e = 0; e < kPackElems<Element>; ++e) sum.values[e] += loaded.values[e];
    }
}

// A group of kThreads per whole chunk: its sum, where all of its keys are one.
template <class Element, int kThreads, int kRows, int kChunk>
__global__ void __launch_bounds__(kThreads* kRows) backward_chunks(const EmbeddingBackwardParams p, const Sorted sorted, bool is_packed) {
    const RowGroup<kThreads, kRows> group;
    const std::int64_t begin = group.row * kChunk, end = begin + kChunk;
    if (end > p.count || sorted.keys[begin] != sorted.keys[end - 1] || sorted.keys[begin] == p.vocabulary) return;
    visit_row<Element, kThreads>(p.width, group.rank, [&](std::int64_t column, int num_valid) {
        Pack<Element> sum = {};
        add_rows(sum, p, sorted.places, begin, end, column, is_packed);
        float* target = sorted.sums + group.row * p.width + column;
        for (int e = 0; e < num_valid; ++e) target[e] = sum.values[e];
    });
}

// A group of kThreads per row of the table.
template <class Element, int kThreads, int kRows, int kChunk>
__global__ void __launch_bounds__(kThreads* kRows)
    backward_segments(const EmbeddingBackwardParams p, const Sorted sorted, bool is_packed, bool has_packed_result) {
    const RowGroup<kThreads, kRows> group;
    if (group.row >= p.vocabulary) return;
    const std::int64_t begin = sorted.begins[group.row], end = sorted.begins[group.row + 1];
    // The chunks within the segment, and what is left in front of them and behind.
    const std::int64_t first = (begin + kChunk - 1) / kChunk, last = end / kChunk;
    const bool has_chunks = first < last;
    auto* target = static_cast<Element*>(p.dtable) + group.row * p.lddtable;
    visit_row<Element, kThreads>(p.width, group.rank, [&](std::int64_t column, int num_valid) {
        Pack<Element> sum = {};
        add_rows(sum, p, sorted.places, begin, has_chunks ? first * kChunk : end, column, is_packed);
        for (std::int64_t chunk = first; chunk < last; ++chunk) {
            const float* source = sorted.sums + chunk * p.width + column;
#pragma unroll
            for (int e = 0; e < kPackElems<Element>; ++e) sum.values[e] += e < num_valid ? source[e] : 0.0f;
        }
        if (has_chunks) add_rows(sum, p, sorted.places, last * kChunk, end, column, is_packed);
        store_pack_part(target + column, sum, num_valid, has_packed_result);
    });
}

}  // namespace aicf::embedding_backward

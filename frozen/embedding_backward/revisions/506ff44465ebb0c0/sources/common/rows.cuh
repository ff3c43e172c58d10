// Rows of a matrix, each taken by a group of threads: the lanes of a warp or a part of them, or a block.
//
// A kernel of one row reduction is: where the group stands (RowGroup), a visit of the row's packs (visit_row), a reduction over the group.
// Short rows may stay in registers between two visits (RowSpan).
#pragma once

#include <cstdint>

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

// kThreads threads take a row, kRows such groups a block (kRows is 1 beyond a warp).
template <int kThreads, int kRows = 1>
struct RowGroup {
    static_assert(kThreads <= kWarpSize || kRows == 1, "a group is lanes of a warp, or the block");
    static_assert(kThreads * kRows % kWarpSize == 0, "whole warps take part in shuffles");
    static constexpr int kBlockThreads = kThreads * kRows;
    static constexpr int kTotalThreads = kThreads;  // of a row
    // Partial results of a block-wide reduction; two reductions in a row need an array each.
    static constexpr int kPartials = kThreads > kWarpSize ? kThreads / kWarpSize : 1;

    int rank;          // of the thread in its group
    std::int64_t row;  // may lie past the last one: go along for the shuffles, on find_source(), and store nothing
    __device__ RowGroup()
        : rank(static_cast<int>(threadIdx.x) % kThreads),
          row(static_cast<std::int64_t>(blockIdx.x) * kRows + static_cast<int>(threadIdx.x) / kThreads) {}

    // The row to read: the last one for groups past it.
    __device__ std::int64_t find_source(std::int64_t rows) const { return row < rows ? row : rows - 1; }

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

// A row of at most kThreads * kElems elements, by chunks that the thread of this rank keeps in registers, kChunkElems in each. Where the
// rows of all matrices start on 16-byte boundaries (`is_packed`) a chunk is one access, else its elements lie kThreads apart: either way
// neighbouring threads access neighbouring memory. kIsWhole: rows are whole packs on such boundaries, known to the compiler: it then has
// all accesses of load_all() under way together, those of several matrices too.
template <class Element, int kThreads, int kElems, bool kIsWhole = false>
struct RowSpan {
    static constexpr int kChunkElems = kPackElems<Element>;
    static constexpr int kChunks = kElems / kChunkElems;
    static_assert(kChunks > 0 && kElems % kChunkElems == 0, "a thread keeps whole chunks");

    int columns, rank;
    bool is_packed;

    // Of element `i` of a chunk; may lie past the row.
    __device__ __forceinline__ int find_column(int chunk, int i) const {
        if (kIsWhole || is_packed) return (chunk * kThreads + rank) * kChunkElems + i;
        return (chunk * kChunkElems + i) * kThreads + rank;
    }

    __device__ __forceinline__ bool holds(int chunk, int i) const { return find_column(chunk, kIsWhole ? 0 : i) < columns; }

    // `fill` stands for what lies past the row.
    __device__ __forceinline__ Pack<Element> load(const Element* row, int chunk, float fill) const {
        const int first = find_column(chunk, 0);
        if constexpr (kIsWhole) return first < columns ? load_pack(row + first) : fill_pack<Element>(fill);
        if (is_packed) return load_pack_or(row + first, columns - first, true, fill);
        Pack<Element> pack;
#pragma unroll
        for (int i = 0; i < kChunkElems; ++i) pack.values[i] = first + i * kThreads < columns ? to_float(row[first + i * kThreads]) : fill;
        return pack;
    }

    // Calls visit(chunk) for all chunks of a row of any length, of which a thread keeps none: kElems is one pack.
    template <class Visit>
    __device__ __forceinline__ void visit(const Visit& visit) const {
        static_assert(kChunks == 1, "one pack at a time");
        const int chunks = (columns - 1) / (kThreads * kChunkElems) + 1;
#pragma unroll 4
        for (int chunk = 0; chunk < chunks; ++chunk) visit(chunk);
    }

    // Chunks may begin past the row.
    __device__ __forceinline__ bool is_there(int chunk) const { return chunk * (kThreads * kChunkElems) < columns; }

    // All chunks, with 0 for what lies past the row. Where rows are whole packs, all accesses are under way before the first is looked at.
    __device__ __forceinline__ void load_all(const Element* row, Pack<Element> (&chunks)[kChunks]) const {
        if (kIsWhole || (is_packed && columns % kChunkElems == 0)) {
            uint4 words[kChunks];
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                const int first = find_column(chunk, 0);
                words[chunk] = {0, 0, 0, 0};
                if (first < columns) words[chunk] = *reinterpret_cast<const uint4*>(row + first);
            }
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk) chunks[chunk] = unpack<Element>(words[chunk]);
        } else {
#pragma unroll
            for (int chunk = 0; chunk < kChunks; ++chunk) {
                chunks[chunk] = {};
                if (is_there(chunk)) chunks[chunk] = load(row, chunk, 0.0f);
            }
        }
    }

    __device__ __forceinline__ void store(Element* row, int chunk, const Pack<Element>& pack) const {
        const int first = find_column(chunk, 0);
        if constexpr (kIsWhole) {
            if (first < columns) store_pack(row + first, pack);
            return;
        }
        if (is_packed) return store_pack_part(row + first, pack, columns - first, true);
#pragma unroll
        for (int i = 0; i < kChunkElems; ++i) {
            if (first + i * kThreads < columns) row[first + i * kThreads] = from_float<Element>(pack.values[i]);
        }
    }
};

}  // namespace aicf

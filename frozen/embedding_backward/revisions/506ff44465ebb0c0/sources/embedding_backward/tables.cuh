// Tables of few rows: every block adds up a slab of indices into tables in shared memory, and the blocks' tables are added in their order.
//
// A block takes a slice of columns. Its threads are groups that have a thread per column of the slice, and each group has a table and rows
// of its own: no thread ever adds to what another one does.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "common/indices.cuh"
#include "embedding_backward/params.h"

namespace aicf::embedding_backward {

// How the work is shared out: `width` columns a slice, `groups` groups a block, slabs of `slab_rows` rows a group.
struct Slices {
    int width, groups;
    std::int64_t slab_rows, num_slabs;
    float* sums;  // [num_slabs, vocabulary, width of the table], unless there is one slab
};

template <class Element>
__device__ __forceinline__ void write_sum(const EmbeddingBackwardParams& p, std::int64_t row, std::int64_t column, float sum) {
    static_cast<Element*>(p.dtable)[row * p.lddtable + column] = from_float<Element>(sum);
}

template <class Element, class Index, int kThreads>
__global__ void __launch_bounds__(kThreads) backward_tables(const EmbeddingBackwardParams p, const Slices slices) {
    constexpr int kAhead = 8;
    extern __shared__ __align__(16) float tables[];  // [vocabulary][kThreads]
    const int rank = static_cast<int>(threadIdx.x), rows = static_cast<int>(p.vocabulary);
    for (int v = 0; v < rows; ++v) tables[v * kThreads + rank] = 0.0f;

    const int group = rank / slices.width, place = rank % slices.width;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.y) * slices.width, column = first + place;
    const std::int64_t begin = (static_cast<std::int64_t>(blockIdx.x) * slices.groups + group) * slices.slab_rows;
    const std::int64_t end = begin + slices.slab_rows < p.count ? begin + slices.slab_rows : p.count;
    if (group < slices.groups && column < p.width) {
        const Element* const dy = static_cast<const Element*>(p.dy) + column;
        float values[kAhead], next_values[kAhead];
        int places[kAhead], next_places[kAhead];  // -1: a wrong index
        // Rows from `at` on, as far as the slab goes.
        const auto load = [&](std::int64_t at, float (&found)[kAhead], int (&rows_of)[kAhead]) {
#pragma unroll
            for (int u = 0; u < kAhead; ++u) {
                const bool is_there = at + u < end;
                found[u] = is_there ? to_float(dy[(at + u) * p.lddy]) : 0.0f;
                const std::int64_t index = is_there ? static_cast<std::int64_t>(static_cast<const Index*>(p.indices)[at + u]) : 0;
                rows_of[u] = index >= 0 && index < rows ? static_cast<int>(index) : -1;
            }
        };
        load(begin, next_values, next_places);
        for (std::int64_t at = begin; at < end; at += kAhead) {
#pragma unroll
            for (int u = 0; u < kAhead; ++u) {
                values[u] = next_values[u];
                places[u] = next_places[u];
            }
            load(at + kAhead, next_values, next_places);
#pragma unroll
            for (int u = 0; u < kAhead; ++u) {
                if (at + u >= end) break;
                const std::int64_t row = check_index(places[u], rows, column == 0, p.status);
                if (row >= 0) tables[static_cast<int>(row) * kThreads + rank] += values[u];
            }
        }
    }
    __syncthreads();

    for (int i = rank; i < rows * slices.width; i += kThreads) {
        const int row = i / slices.width, at = i % slices.width;
        if (first + at >= p.width) continue;
        float sum = 0.0f;
        for (int other = 0; other < slices.groups; ++other) sum += tables[row * kThreads + other * slices.width + at];
        if (slices.num_slabs > 1) {
            slices.sums[(blockIdx.x * p.vocabulary + row) * p.width + first + at] = sum;
        } else {
            write_sum<Element>(p, row, first + at, sum);
        }
    }
}

inline constexpr int kFinishWidth = 32;

// The sums of the slabs; a block takes kFinishWidth elements of the table.
template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) finish_tables(const EmbeddingBackwardParams p, const Slices slices) {
    constexpr int kLanes = kThreads / kFinishWidth;
    __shared__ float shared[kLanes][kFinishWidth];
    const int place = static_cast<int>(threadIdx.x) % kFinishWidth, lane = static_cast<int>(threadIdx.x) / kFinishWidth;
    const std::int64_t size = p.vocabulary * p.width, at = static_cast<std::int64_t>(blockIdx.x) * kFinishWidth + place;
    float sum = 0.0f;
    if (at < size) {
#pragma unroll 4
        for (std::int64_t slab = lane; slab < slices.num_slabs; slab += kLanes) sum += slices.sums[slab * size + at];
    }
    shared[lane][place] = sum;
    __syncthreads();
    if (lane > 0 || at >= size) return;
    for (int other = 1; other < kLanes; ++other) sum += shared[other][place];
    write_sum<Element>(p, at / p.width, at % p.width, sum);
}

}  // namespace aicf::embedding_backward

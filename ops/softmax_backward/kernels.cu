// The gradient of softmax by the rows that went in, from its result y and the result's gradient dy; of its logarithm likewise.
//
//   dx = s y (dy - sum_j dy y)           s is the scale
//   dx = s (dy - exp(y) sum_j dy)        of the logarithm
//
// | kernel           | idea                                                                             | reads of y and dy |
// |------------------|----------------------------------------------------------------------------------|-------------------|
// | naive            | a thread per row: the sum, then the result                                       | 2                 |
// | block_passes     | a block per row, 16 bytes an access                                              | 2                 |
// | cluster_passes   | a cluster of 8 blocks per row, for rows that are long and few                    | 2                 |
// | row_in_registers | a group of threads keeps its rows in registers; many short rows per block        | 1                 |
//
// What was hidden needs no mask here: its y is 0, and so is its gradient. A logarithm of -inf has no gradient, and takes none.
#include <cstdint>

#include "common/online.cuh"
#include "common/rows.cuh"
#include "softmax_backward/params.h"

namespace aicf::softmax_backward {

template <class Element>
struct Row {
    const Element* dy;
    const Element* y;
    Element* dx;
    float scale;
    bool is_log;
    int columns;

    __device__ Row(const SoftmaxBackwardParams& p, std::int64_t row)
        : dy(static_cast<const Element*>(p.dy) + row * p.lddy),
          y(static_cast<const Element*>(p.y) + row * p.ldy),
          dx(static_cast<Element*>(p.dx) + row * p.lddx),
          scale(p.scale == nullptr ? 1.0f : *p.scale),
          is_log(p.log != 0),
          columns(static_cast<int>(p.columns)) {}

    // What an element adds to the row's sum.
    __device__ __forceinline__ float find_term(float gradient, float result) const {
        return is_log ? (result == minus_infinity() ? 0.0f : gradient) : gradient * result;
    }

    __device__ __forceinline__ float find_result(float gradient, float result, float sum) const {
        if (!is_log) return scale * (result * (gradient - sum));
        return result == minus_infinity() ? 0.0f : scale * (gradient - expf(result) * sum);
    }
};

// kThreads threads a block, each takes one row.
template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) softmax_backward_naive(const SoftmaxBackwardParams params) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (index >= params.rows) return;
    const Row<Element> row(params, index);
    float sum = 0.0f;
    for (int j = 0; j < row.columns; ++j) sum += row.find_term(to_float(row.dy[j]), to_float(row.y[j]));
    for (int j = 0; j < row.columns; ++j) {
        row.dx[j] = from_float<Element>(row.find_result(to_float(row.dy[j]), to_float(row.y[j]), sum));
    }
}

// A block takes one row, which it reads twice, or a cluster of blocks does: Group is RowGroup or RowCluster. `has_packs`: rows of dy, y and
// dx start on 16-byte boundaries.
template <class Element, int kThreads, class Group>
__global__ void __launch_bounds__(kThreads) softmax_backward_block(const SoftmaxBackwardParams params, bool has_packs) {
    using Span = RowSpan<Element, Group::kTotalThreads, kPackElems<Element>>;
    __shared__ float partials[Group::kPartials];
    const Group group;
    const Row<Element> row(params, group.row);
    const Span span = {row.columns, group.rank, has_packs};
    const auto visit = [&](const auto& call) {
        for (int chunk = 0; chunk * (Group::kTotalThreads * Span::kChunkElems) < row.columns; ++chunk) {
            call(chunk, span.load(row.dy, chunk, 0.0f), span.load(row.y, chunk, 0.0f));
        }
    };
    float sum = 0.0f;
    visit([&](int, const Pack<Element>& dy, const Pack<Element>& y) {
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) sum += row.find_term(dy.values[i], y.values[i]);
    });
    sum = group.reduce_sum(sum, partials);
    visit([&](int chunk, Pack<Element> dy, const Pack<Element>& y) {
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) dy.values[i] = row.find_result(dy.values[i], y.values[i], sum);
        span.store(row.dx, chunk, dy);
    });
}

// kThreads threads take a row of at most kThreads * kElems elements, kRows such groups a block (kRows is 1 beyond a warp).
template <class Element, int kThreads, int kRows, int kElems>
__global__ void __launch_bounds__(kThreads* kRows) softmax_backward_registers(const SoftmaxBackwardParams params, bool has_packs) {
    using Group = RowGroup<kThreads, kRows>;
    using Span = RowSpan<Element, kThreads, kElems>;
    __shared__ float partials[Group::kPartials];
    const Group group;
    const Row<Element> row(params, group.find_source(params.rows));
    const Span span = {row.columns, group.rank, has_packs};
    Pack<Element> dy[Span::kChunks], y[Span::kChunks];
    span.load_all(row.dy, dy);
    span.load_all(row.y, y);
    float sum = 0.0f;
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) sum += row.find_term(dy[chunk].values[i], y[chunk].values[i]);
    }
    sum = group.reduce_sum(sum, partials);
    if (group.row >= params.rows) return;
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            dy[chunk].values[i] = row.find_result(dy[chunk].values[i], y[chunk].values[i], sum);
        }
        span.store(row.dx, chunk, dy[chunk]);
    }
}

}  // namespace aicf::softmax_backward

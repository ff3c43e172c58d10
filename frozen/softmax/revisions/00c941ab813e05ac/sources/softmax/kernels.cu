// Softmax over the rows of x[rows, columns], or its logarithm: y[i, j] = exp(s x[i, j] - max_i) / sum_j exp(s x[i, j] - max_i), where s is
// the scale and only the columns that the mask shows count.
//
//   rung | kernel             | one idea more than the rung before
//   -----+--------------------+----------------------------------------------------------------------------------------------
//    1   | softmax_naive      | a thread per row, three passes: maximum, sum, result
//    2   | softmax_warp       | a warp per row: its lanes read neighbouring words and reduce by shuffles
//    3   | softmax_block      | a block per row, maximum and sum in one pass (online), 16 bytes an access where rows are aligned
//        | ... of a cluster   | eight blocks per row share what each found: rows that are long and few
//    4   | softmax_registers  | the row stays in registers between the passes: x is read once; many short rows per block
//    5   | softmax_shared     | ... or in shared memory, which holds rows that registers do not
//
// Special values: a NaN in a row reaches the sum through exp, an all -inf row through -inf - (-inf); +inf is caught by Finish. A hidden
// element is read as -inf, and a masked row whose maximum is -inf gets 0 for it: its weights, and so its sum, are 0.
#include <cstdint>

#include "common/online.cuh"
#include "common/rows.cuh"
#include "softmax/params.h"

namespace aicf::softmax {

__device__ __forceinline__ bool is_infinite(float value) { return value == __int_as_float(0x7f800000); }

// A row as a kernel sees it. kIsMasked is false where every column counts.
template <class Element, bool kIsMasked>
struct Row {
    const Element* x;
    Element* y;
    const std::uint8_t* keep;  // of boolean masks, else null
    float scale;
    int columns;  // of x and y
    int visible;  // the first so many may count

    __device__ Row(const SoftmaxParams& p, std::int64_t row)
        : x(static_cast<const Element*>(p.x) + row * p.ldx),
          y(static_cast<Element*>(p.y) + row * p.ldy),
          keep(nullptr),
          scale(p.scale == nullptr ? 1.0f : *p.scale),
          columns(static_cast<int>(p.columns)),
          visible(columns) {
        if constexpr (kIsMasked) {
            if (p.mask == AICF_SOFTMAX_MASK_BOOLEAN) {
                keep = reinterpret_cast<const std::uint8_t*>(p.keep) + row * p.ldkeep;
            } else {
                const std::int64_t last = row % *p.queries;
                if (last < columns) visible = static_cast<int>(last) + 1;
            }
        }
    }

    __device__ __forceinline__ bool shows(int column) const {
        if constexpr (!kIsMasked) return column < columns;
        return column < visible && (keep == nullptr || keep[column] != 0);
    }

    // An element of x, scaled; -inf where it does not count, also past the row.
    __device__ __forceinline__ float weigh_in(float value, int column) const { return shows(column) ? value * scale : minus_infinity(); }

    __device__ __forceinline__ float read(int column) const { return shows(column) ? to_float(x[column]) * scale : minus_infinity(); }

    // What exponents are relative to: the maximum, but 0 where a mask leaves nothing finite.
    __device__ __forceinline__ float find_base(float maximum) const {
        if constexpr (!kIsMasked) return maximum;
        return maximum == minus_infinity() ? 0.0f : maximum;
    }
};

// Makes results of elements. NaN where the maximum is +inf: weights relative to it are 0 or undefined.
struct Finish {
    float base;
    float factor;  // 1 / sum, or for the logarithm log(sum)
    bool is_log;

    __device__ Finish(float base_, float sum, bool is_log_) : base(base_), is_log(is_log_) {
        if (is_infinite(base)) sum = __int_as_float(0x7fffffff);
        factor = is_log ? logf(sum) : __frcp_rn(sum);
        if (sum == 0.0f) factor = 0.0f;
    }

    // `value` as Row::read has it.
    __device__ __forceinline__ float operator()(float value) const {
        return is_log ? (value - base) - factor : expf(value - base) * factor;
    }
};

// kThreads threads a block, each takes one row.
template <class Element, bool kIsMasked, int kThreads>
__global__ void __launch_bounds__(kThreads) softmax_naive(const SoftmaxParams params) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (index >= params.rows) return;
    const Row<Element, kIsMasked> row(params, index);
    float maximum = minus_infinity();
    for (int j = 0; j < row.columns; ++j) maximum = fmaxf(maximum, row.read(j));
    const float base = row.find_base(maximum);
    float sum = 0.0f;
    for (int j = 0; j < row.columns; ++j) sum += expf(row.read(j) - base);
    const Finish finish(base, sum, params.log != 0);
    for (int j = 0; j < row.columns; ++j) row.y[j] = from_float<Element>(finish(row.read(j)));
}

// kRows warps a block, each takes one row.
template <class Element, bool kIsMasked, int kRows>
__global__ void __launch_bounds__(kRows* kWarpSize) softmax_warp(const SoftmaxParams params) {
    const RowGroup<kWarpSize, kRows> group;
    if (group.row >= params.rows) return;
    const Row<Element, kIsMasked> row(params, group.row);
    float maximum = minus_infinity();
    for (int j = group.rank; j < row.columns; j += kWarpSize) maximum = fmaxf(maximum, row.read(j));
    const float base = row.find_base(group.reduce_max(maximum, nullptr));
    float sum = 0.0f;
    for (int j = group.rank; j < row.columns; j += kWarpSize) sum += expf(row.read(j) - base);
    const Finish finish(base, group.reduce_sum(sum, nullptr), params.log != 0);
    for (int j = group.rank; j < row.columns; j += kWarpSize) row.y[j] = from_float<Element>(finish(row.read(j)));
}

// Scales the elements of a chunk, and makes -inf of what does not count and what lies past the row.
template <class Element, bool kIsMasked, class Span>
__device__ __forceinline__ void count_in(const Row<Element, kIsMasked>& row, const Span& span, int chunk, Pack<Element>& pack) {
#pragma unroll
    for (int i = 0; i < Span::kChunkElems; ++i) pack.values[i] = row.weigh_in(pack.values[i], span.find_column(chunk, i));
}

template <class Element, bool kIsMasked, class Span>
__device__ __forceinline__ Pack<Element> read_chunk(const Row<Element, kIsMasked>& row, const Span& span, int chunk) {
    Pack<Element> pack = span.load(row.x, chunk, 0.0f);
    count_in(row, span, chunk, pack);
    return pack;
}

// A block takes one row, which it reads twice, or a cluster of blocks does: Group is RowGroup or RowCluster. `has_packs`: rows of x and y
// start on 16-byte boundaries.
template <class Element, bool kIsMasked, int kThreads, class Group>
__global__ void __launch_bounds__(kThreads) softmax_block(const SoftmaxParams params, bool has_packs) {
    using Span = RowSpan<Element, Group::kTotalThreads, kPackElems<Element>>;
    __shared__ Online partials[Group::kPartials];
    const Group group;
    const Row<Element, kIsMasked> row(params, group.row);
    const Span span = {row.columns, group.rank, has_packs};

    Online online;
    for (int chunk = 0; chunk * (Group::kTotalThreads * Span::kChunkElems) < row.columns; ++chunk) {
        const Pack<Element> x = read_chunk(row, span, chunk);
        Online part;
#pragma unroll
        for (const float value : x.values) part.maximum = fmaxf(part.maximum, value);
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            if (kIsMasked ? row.shows(span.find_column(chunk, i)) : span.holds(chunk, i)) part.sum += weigh(x.values[i], part.maximum);
        }
        online = combine(online, part);
    }
    online = group.reduce(online, partials, [](Online a, Online b) { return combine(a, b); });

    // A masked row of nothing but -inf: weigh() counted its elements as 1.
    const bool is_empty = kIsMasked && online.maximum == minus_infinity() && online.sum == online.sum;
    const Finish finish(row.find_base(online.maximum), is_empty ? 0.0f : online.sum, params.log != 0);
    for (int chunk = 0; chunk * (Group::kTotalThreads * Span::kChunkElems) < row.columns; ++chunk) {
        Pack<Element> x = read_chunk(row, span, chunk);
#pragma unroll
        for (float& value : x.values) value = finish(value);
        span.store(row.y, chunk, x);
    }
}

// kThreads threads take a row of at most kThreads * kElems elements, kRows such groups a block (kRows is 1 beyond a warp).
template <class Element, bool kIsMasked, int kThreads, int kRows, int kElems>
__global__ void __launch_bounds__(kThreads* kRows) softmax_registers(const SoftmaxParams params, bool has_packs) {
    using Group = RowGroup<kThreads, kRows>;
    using Span = RowSpan<Element, kThreads, kElems>;
    __shared__ float partials[2][Group::kPartials];
    const Group group;
    const Row<Element, kIsMasked> row(params, group.find_source(params.rows));
    const Span span = {row.columns, group.rank, has_packs};

    Pack<Element> kept[Span::kChunks];
    span.load_all(row.x, kept);
    float maximum = minus_infinity();
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
        count_in(row, span, chunk, kept[chunk]);
#pragma unroll
        for (const float value : kept[chunk].values) maximum = fmaxf(maximum, value);
    }
    const float base = row.find_base(group.reduce_max(maximum, partials[0]));
    const bool is_log = params.log != 0;
    float sum = 0.0f;
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            const float weight = expf(kept[chunk].values[i] - base);
            // What lies past the row counts nothing, also where the row's maximum is -inf and its weight would be NaN: the row's own are.
            if (span.holds(chunk, i)) sum += weight;
            if (!is_log) kept[chunk].values[i] = weight;
        }
    }
    const Finish finish(base, group.reduce_sum(sum, partials[1]), is_log);
    if (group.row >= params.rows) return;
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
#pragma unroll
        for (float& value : kept[chunk].values) value = is_log ? finish(value) : value * finish.factor;
        span.store(row.y, chunk, kept[chunk]);
    }
}

// A chunk of a row in fp32 in shared memory, of which each thread reads back what it wrote. Whole packs are moved by accesses of 16 bytes:
// one float after the other, those of a warp would meet in a few banks.
template <class Span>
struct KeptChunk {
    static constexpr int kElems = Span::kChunkElems;
    const Span& span;
    int chunk;
    float* place;  // of the pack's first element, where it is one
    bool is_whole;

    __device__ KeptChunk(float* kept, const Span& span_, int chunk_)
        : span(span_),
          chunk(chunk_),
          place(kept + span_.find_column(chunk_, 0)),
          is_whole(span_.is_packed && span_.holds(chunk_, kElems - 1)) {}

    // Of the element `i`.
    __device__ __forceinline__ float* find(int i) const { return place + (span.find_column(chunk, i) - span.find_column(chunk, 0)); }

    __device__ __forceinline__ void write(const float (&values)[kElems]) const {
        if (is_whole) {
#pragma unroll
            for (int i = 0; i < kElems; i += 4) {
                *reinterpret_cast<float4*>(place + i) = {values[i], values[i + 1], values[i + 2], values[i + 3]};
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            if (span.holds(chunk, i)) *find(i) = values[i];
        }
    }

    // With 0 for what lies past the row.
    __device__ __forceinline__ void read(float (&values)[kElems]) const {
        if (is_whole) {
#pragma unroll
            for (int i = 0; i < kElems; i += 4) {
                const float4 four = *reinterpret_cast<const float4*>(place + i);
                values[i] = four.x, values[i + 1] = four.y, values[i + 2] = four.z, values[i + 3] = four.w;
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < kElems; ++i) values[i] = span.holds(chunk, i) ? *find(i) : 0.0f;
    }
};

// A block takes one row, which it keeps in fp32 in shared memory: the two reductions are the only barriers.
template <class Element, bool kIsMasked, int kThreads>
__global__ void __launch_bounds__(kThreads) softmax_shared(const SoftmaxParams params, bool has_packs) {
    using Group = RowGroup<kThreads>;
    using Span = RowSpan<Element, kThreads, kPackElems<Element>>;
    extern __shared__ __align__(16) float kept[];
    __shared__ float partials[2][Group::kPartials];
    const Group group;
    const Row<Element, kIsMasked> row(params, group.row);
    const Span span = {row.columns, group.rank, has_packs};
    const auto visit = [&](const auto& call) {
        for (int chunk = 0; chunk * (kThreads * Span::kChunkElems) < row.columns; ++chunk) call(chunk, KeptChunk<Span>(kept, span, chunk));
    };

    float maximum = minus_infinity();
    visit([&](int chunk, const KeptChunk<Span>& there) {
        const Pack<Element> x = read_chunk(row, span, chunk);
#pragma unroll
        for (const float value : x.values) maximum = fmaxf(maximum, value);
        there.write(x.values);
    });
    const float base = row.find_base(group.reduce_max(maximum, partials[0]));
    const bool is_log = params.log != 0;
    float sum = 0.0f;
    visit([&](int chunk, const KeptChunk<Span>& there) {
        Pack<Element> weights;
        there.read(weights.values);
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            weights.values[i] = expf(weights.values[i] - base);
            if (span.holds(chunk, i)) sum += weights.values[i];
        }
        if (!is_log) there.write(weights.values);
    });
    const Finish finish(base, group.reduce_sum(sum, partials[1]), is_log);
    visit([&](int chunk, const KeptChunk<Span>& there) {
        Pack<Element> y;
        there.read(y.values);
#pragma unroll
        for (float& value : y.values) value = is_log ? finish(value) : value * finish.factor;
        span.store(row.y, chunk, y);
    });
}

}  // namespace aicf::softmax

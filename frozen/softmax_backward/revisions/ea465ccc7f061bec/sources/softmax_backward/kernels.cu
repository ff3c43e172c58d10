// The gradient of softmax by the rows that went in, from its result y and the result's gradient dy; of its logarithm likewise.
//
//   dx = s y (dy - sum_j dy y)           s is the scale
//   dx = s (dy - exp(y) sum_j dy)        of the logarithm
//
// | kernel           | idea                                                                             | reads of y and dy |
// |------------------|----------------------------------------------------------------------------------|-------------------|
// | naive            | a thread per row: the sum, then the result                                       | 2                 |
// | few_columns      | a thread keeps rows of at most 4 columns, by pairs where rows begin on them      | 1                 |
// | block_passes     | a block per row, 16 bytes an access                                              | 2                 |
// | cluster_passes   | a cluster of 8 blocks per row, for rows that are long and few                    | 2                 |
// | split_passes     | blocks of the whole chip per row, which meet in memory, for rows that are fewer  | 2                 |
// | row_in_registers | a group of threads keeps its rows in registers; many short rows per block        | 1                 |
// | row_in_team      | ... a cluster of blocks does, for rows that are longer                           | 1                 |
//
// What was hidden needs no mask here: its y is 0, and so is its gradient. A logarithm of -inf has no gradient, and takes none.
#include <cstdint>

#include "common/online.cuh"
#include "common/programmatic.cuh"
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

    // Becomes the part of it from column `first` on.
    __device__ __forceinline__ void cut(int first, int count) {
        dy += first;
        y += first;
        dx += first;
        columns = min(count, columns - first);
    }

    // Calls call(is_log), a constant: elements do not ask.
    template <class Call>
    __device__ __forceinline__ void visit_kind(const Call& call) const {
        if (is_log) {
            call(std::true_type{});
        } else {
            call(std::false_type{});
        }
    }

    // What an element adds to the row's sum.
    template <bool kIsLog>
    __device__ __forceinline__ float find_term(float gradient, float result, std::bool_constant<kIsLog> /*is_log*/) const {
        return kIsLog ? (result == minus_infinity() ? 0.0f : gradient) : gradient * result;
    }

    template <bool kIsLog>
    __device__ __forceinline__ float find_result(float gradient, float result, float sum, std::bool_constant<kIsLog> /*is_log*/) const {
        if constexpr (!kIsLog) return scale * (result * (gradient - sum));
        return result == minus_infinity() ? 0.0f : scale * (gradient - find_weight<Element>(result) * sum);
    }
};

// kThreads threads a block, each takes one row.
template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) softmax_backward_naive(const SoftmaxBackwardParams params) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (index >= params.rows) return;
    const Row<Element> row(params, index);
    row.visit_kind([&](auto is_log) {
        float sum = 0.0f;
        for (int j = 0; j < row.columns; ++j) sum += row.find_term(to_float(row.dy[j]), to_float(row.y[j]), is_log);
        for (int j = 0; j < row.columns; ++j) {
            row.dx[j] = from_float<Element>(row.find_result(to_float(row.dy[j]), to_float(row.y[j]), sum, is_log));
        }
    });
}

// Columns that rows of few_columns have at most.
inline constexpr int kFewColumns = 4;

// The elements of such a row as they lie in memory, by pairs where it begins on the boundary of one, and zeros behind them.
template <class Element, bool kIsPaired>
struct FewElems {
    using Pair = std::conditional_t<sizeof(Element) == sizeof(float), float2, std::uint32_t>;
    using Word = std::conditional_t<kIsPaired, Pair, Element>;
    static constexpr int kPerWord = kIsPaired ? 2 : 1;

    Word words[kFewColumns / kPerWord];

    __device__ __forceinline__ void load(const Element* row, int columns) {
#pragma unroll
        for (int i = 0; i < kFewColumns / kPerWord; ++i) {
            words[i] = {};
            if ((i + 1) * kPerWord <= columns) {
                words[i] = *reinterpret_cast<const Word*>(row + i * kPerWord);
            } else if (i * kPerWord < columns) {
                words[i] = widen(row[i * kPerWord]);
            }
        }
    }

    __device__ __forceinline__ float get(int i) const {
        const Word word = words[i / kPerWord];
        if constexpr (!kIsPaired) {
            return to_float(word);
        } else if constexpr (sizeof(Element) == sizeof(float)) {
            return i % 2 == 0 ? word.x : word.y;
        } else {
            const float2 pair = unpack_pair<Element>(word);
            return i % 2 == 0 ? pair.x : pair.y;
        }
    }

    __device__ __forceinline__ static void store(Element* row, int columns, const float (&values)[kFewColumns]) {
#pragma unroll
        for (int i = 0; i < kFewColumns; i += kPerWord) {
            if (kIsPaired && i + 2 <= columns) {
                if constexpr (sizeof(Element) == sizeof(float)) {
                    *reinterpret_cast<float2*>(row + i) = {values[i], values[i + 1]};
                } else {
                    *reinterpret_cast<std::uint32_t*>(row + i) = pack_pair<Element>(values[i], values[i + 1]);
                }
            } else if (i < columns) {
                row[i] = from_float<Element>(values[i]);
            }
        }
    }

private:
    __device__ __forceinline__ static Word widen(Element element) {
        if constexpr (!kIsPaired) {
            return element;
        } else if constexpr (sizeof(Element) == sizeof(float)) {
            return {element, 0.0f};
        } else {
            return element.bits;
        }
    }
};

// A thread takes kTogether rows, kThreads rows apart: all of them are on their way before the first is looked at.
template <class Element, int kThreads, int kTogether, bool kPairsDy, bool kPairsY, bool kPairsDx>
__global__ void __launch_bounds__(kThreads) softmax_backward_few_columns(const SoftmaxBackwardParams params) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (kThreads * kTogether) + threadIdx.x;
    if (first >= params.rows) return;
    const auto find = [&](int u) { return min(first + u * kThreads, params.rows - 1); };
    FewElems<Element, kPairsDy> dy[kTogether];
    FewElems<Element, kPairsY> y[kTogether];
    const auto columns = static_cast<int>(params.columns);
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
        dy[u].load(static_cast<const Element*>(params.dy) + find(u) * params.lddy, columns);
        y[u].load(static_cast<const Element*>(params.y) + find(u) * params.ldy, columns);
    }
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
        const Row<Element> row(params, find(u));
        const int written = first + u * kThreads < params.rows ? columns : 0;
        row.visit_kind([&](auto is_log) {
            float values[kFewColumns], sum = 0.0f;
#pragma unroll
            for (int j = 0; j < kFewColumns; ++j) sum += row.find_term(dy[u].get(j), y[u].get(j), is_log);
#pragma unroll
            for (int j = 0; j < kFewColumns; ++j) values[j] = row.find_result(dy[u].get(j), y[u].get(j), sum, is_log);
            FewElems<Element, kPairsDx>::store(row.dx, written, values);
        });
    }
}

// Passes over a row, or a part of one, by kThreads threads.
template <class Element, int kThreads, Access kAccess>
struct RowPasses {
    using Span = RowSpan<Element, kThreads, kPackElems<Element>, kAccess == Access::kWhole>;

    const Row<Element>& row;
    Span span;
    int dy_skew, y_skew;

    __device__ __forceinline__ RowPasses(const Row<Element>& of, int rank)
        : row(of), span(make_span<Span, kAccess>(of.columns, rank, of.dx)), dy_skew(span.find_skew(of.dy)), y_skew(span.find_skew(of.y)) {}

    // Calls call(chunk, dy, y, is_whole) for the thread's packs.
    template <class Call>
    __device__ __forceinline__ void visit(const Call& call) const {
        span.template visit_split<2>((dy_skew | y_skew) != 0, [&](int chunk, auto is_whole) {
            const Pack<Element> dy = span.load(row.dy, chunk, 0.0f, is_whole, dy_skew);
            call(chunk, dy, span.load(row.y, chunk, 0.0f, is_whole, y_skew), is_whole);
        });
    }

    // What the thread's elements add to the row's sum.
    template <class IsLog>
    __device__ __forceinline__ float sum(IsLog is_log) const {
        float sum = 0.0f;
        visit([&](int, const Pack<Element>& dy, const Pack<Element>& y, auto) {
#pragma unroll
            for (int i = 0; i < Span::kChunkElems; ++i) sum += row.find_term(dy.values[i], y.values[i], is_log);
        });
        return sum;
    }

    template <class IsLog>
    __device__ __forceinline__ void write(float sum, IsLog is_log) const {
        visit([&](int chunk, Pack<Element> dy, const Pack<Element>& y, auto is_whole) {
#pragma unroll
            for (int i = 0; i < Span::kChunkElems; ++i) dy.values[i] = row.find_result(dy.values[i], y.values[i], sum, is_log);
            span.store(row.dx, chunk, dy, is_whole);
        });
    }
};

// A block takes one row, which it reads twice, or a cluster of blocks does: Group is RowGroup or RowCluster.
template <class Element, int kThreads, class Group, Access kAccess>
__global__ void __launch_bounds__(kThreads) softmax_backward_block(const SoftmaxBackwardParams params) {
    __shared__ float partials[Group::kPartials];
    const Group group;
    const Row<Element> row(params, group.row);
    const RowPasses<Element, Group::kTotalThreads, kAccess> passes(row, group.rank);
    row.visit_kind([&](auto is_log) { passes.write(group.reduce_sum(passes.sum(is_log), partials), is_log); });
}

// Rows are cut into parts of so many columns, the last one of fewer; each has a place for its sum.
struct RowParts {
    int count, columns;  // of a row, of a part
    float* sums;         // [rows, count]
};

template <class Element>
__device__ __forceinline__ Row<Element> find_part(const SoftmaxBackwardParams& params, const RowParts& parts, std::int64_t number) {
    Row<Element> row(params, number / parts.count);
    row.cut(static_cast<int>(number % parts.count) * parts.columns, parts.columns);
    return row;
}

// A block takes a part of a row, and leaves its sum. grid: parts of all rows.
template <class Element, int kThreads, Access kAccess>
__global__ void __launch_bounds__(kThreads) softmax_backward_sum_parts(const SoftmaxBackwardParams params, const RowParts parts) {
    __shared__ float partials[RowGroup<kThreads>::kPartials];
    const RowGroup<kThreads> group;
    const Row<Element> part = find_part<Element>(params, parts, group.row);
    const RowPasses<Element, kThreads, kAccess> passes(part, group.rank);
    allow_successor();
    part.visit_kind([&](auto is_log) {
        const float sum = group.reduce_sum(passes.sum(is_log), partials);
        if (group.rank == 0) parts.sums[group.row] = sum;
    });
}

// ... and the part's result, from the sums of all parts of its row. Launch it with launch_early().
template <class Element, int kThreads, Access kAccess>
__global__ void __launch_bounds__(kThreads) softmax_backward_write_parts(const SoftmaxBackwardParams params, const RowParts parts) {
    __shared__ float partials[RowGroup<kThreads>::kPartials];
    const RowGroup<kThreads> group;
    wait_for_predecessor();
    const Row<Element> part = find_part<Element>(params, parts, group.row);
    const RowPasses<Element, kThreads, kAccess> passes(part, group.rank);
    const float* const sums = parts.sums + group.row / parts.count * parts.count;
    float sum = 0.0f;
    for (int i = group.rank; i < parts.count; i += kThreads) sum += sums[i];
    sum = group.reduce_sum(sum, partials);
    part.visit_kind([&](auto is_log) { passes.write(sum, is_log); });
}

// Calls visit(chunk, dy, y) for the packs of a row that the thread has. They are unpacked anew where kForgets: values from the pass before
// would take twice the registers.
template <class Element, bool kForgets, class Span, int kChunks, class Visit>
__device__ __forceinline__ void visit_packs(const Span& span, uint4 (&dy)[kChunks], uint4 (&y)[kChunks], const Visit& visit) {
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
        if constexpr (kForgets) {
            forget(dy[chunk]);
            forget(y[chunk]);
        }
        visit(chunk, unpack<Element>(dy[chunk]), unpack<Element>(y[chunk]));
    }
}

// What the packs add to the row's sum.
template <class Element, bool kForgets, class Span, int kChunks, class IsLog>
__device__ __forceinline__ float add_packs(const Row<Element>& row, const Span& span, uint4 (&dy)[kChunks], uint4 (&y)[kChunks], float sum,
                                           IsLog is_log) {
    visit_packs<Element, kForgets>(span, dy, y, [&](int, const Pack<Element>& gradients, const Pack<Element>& results) {
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) sum += row.find_term(gradients.values[i], results.values[i], is_log);
    });
    return sum;
}

template <class Element, class Span, int kChunks, class IsLog>
__device__ __forceinline__ void write_packs(const Row<Element>& row, const Span& span, uint4 (&dy)[kChunks], uint4 (&y)[kChunks], float sum,
                                            IsLog is_log) {
    visit_packs<Element, true>(span, dy, y, [&](int chunk, Pack<Element> gradients, const Pack<Element>& results) {
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            gradients.values[i] = row.find_result(gradients.values[i], results.values[i], sum, is_log);
        }
        span.store(row.dx, chunk, gradients);
    });
}

// A group takes a row of at most as many elements as its threads keep in registers, kElems each.
template <class Element, class Group, int kElems, Access kAccess>
__device__ __forceinline__ void compute_kept(const SoftmaxBackwardParams& params) {
    using Span = RowSpan<Element, Group::kTotalThreads, kElems, kAccess == Access::kWhole>;
    __shared__ float partials[Group::kPartials];
    Group group;
    const Row<Element> row(params, group.find_source(params.rows));
    const Span span = make_span<Span, kAccess>(row.columns, group.rank, row.dx);
    uint4 dy[Span::kChunks], y[Span::kChunks];
    span.load_all_words(row.dy, dy, 0, span.find_skew(row.dy));
    span.load_all_words(row.y, y, 0, span.find_skew(row.y));
    row.visit_kind([&](auto is_log) {
        const float sum = group.reduce_sum(add_packs<Element, false>(row, span, dy, y, 0.0f, is_log), partials);
        if (group.row >= params.rows) return;
        write_packs(row, span, dy, y, sum, is_log);
    });
    if constexpr (Group::kBlocks > 1) group.leave();
}

// The same of rows of 16 bits that begin anywhere: nothing is looked at before all of a row's packs, and the elements in front of and
// behind them, are on their way.
template <class Element, class Group, int kElems>
__device__ __forceinline__ void compute_edged(const SoftmaxBackwardParams& params) {
    using Span = InnerSpan<Element, Group::kTotalThreads, kElems>;
    __shared__ float partials[Group::kPartials];
    Group group;
    const Row<Element> row(params, group.find_source(params.rows));
    const Element* const rows[2] = {row.dy, row.y};
    const Span span(row.columns, group.rank, row.dx, rows);
    const int dy_skew = span.find_skew(row.dy), y_skew = span.find_skew(row.y);
    uint4 dy[Span::kChunks], y[Span::kChunks], next_dy[Span::kChunks], next_y[Span::kChunks];
    span.load(row.dy, dy_skew, dy, next_dy);
    span.load(row.y, y_skew, y, next_y);
    int edges[Span::kEdges];
    float edge_dy[Span::kEdges], edge_y[Span::kEdges];
#pragma unroll
    for (int e = 0; e < Span::kEdges; ++e) {
        edges[e] = span.find_edge(e, row.columns);
        edge_dy[e] = edges[e] < 0 ? 0.0f : to_float(row.dy[edges[e]]);
        edge_y[e] = edges[e] < 0 ? 0.0f : to_float(row.y[edges[e]]);
    }
    span.join(dy_skew, dy, next_dy);
    span.join(y_skew, y, next_y);
    row.visit_kind([&](auto is_log) {
        float sum = 0.0f;
#pragma unroll
        for (int e = 0; e < Span::kEdges; ++e) sum += row.find_term(edge_dy[e], edge_y[e], is_log);
        sum = group.reduce_sum(add_packs<Element, true>(row, span, dy, y, sum, is_log), partials);
        if (group.row >= params.rows) return;
        write_packs(row, span, dy, y, sum, is_log);
#pragma unroll
        for (int e = 0; e < Span::kEdges; ++e) {
            if (edges[e] >= 0) row.dx[edges[e]] = from_float<Element>(row.find_result(edge_dy[e], edge_y[e], sum, is_log));
        }
    });
    if constexpr (Group::kBlocks > 1) group.leave();
}

// Blocks of a multiprocessor whose threads have registers for so many elements each, which 16-bit ones take half of: a branch for each
// kind of result would take more. Where there are two or more, one's row is on its way in while another's is on its way out.
template <class Element, int kElems>
constexpr int count_resident(int threads) {
    const int resident = kElems <= 8 ? 2048 : kElems <= 16 || sizeof(Element) == 2 ? 1024 : 512;
    return resident < threads ? 1 : resident / threads;
}

// The same where two halves of every pack are kept until they are joined.
template <int kElems>
constexpr int count_edged(int threads) {
    const int resident = kElems <= 8 ? 1536 : kElems <= 16 ? 1024 : 512;
    return resident < threads ? 1 : resident / threads;
}

// kThreads threads per row, kRows rows per block (one beyond a warp).
template <class Element, int kThreads, int kRows, int kElems, Access kAccess>
__global__ void __launch_bounds__(kThreads* kRows, count_resident<Element, kElems>(kThreads* kRows))
    softmax_backward_registers(const SoftmaxBackwardParams params) {
    compute_kept<Element, RowGroup<kThreads, kRows>, kElems, kAccess>(params);
}

template <class Element, int kThreads, int kRows, int kElems>
__global__ void __launch_bounds__(kThreads* kRows, count_edged<kElems>(kThreads* kRows))
    softmax_backward_edged(const SoftmaxBackwardParams params) {
    compute_edged<Element, RowGroup<kThreads, kRows>, kElems>(params);
}

// A cluster of blocks per row: Team is RowTeam.
template <class Element, class Team, int kElems, Access kAccess>
__global__ void __launch_bounds__(Team::kBlockThreads, kElems > 16 ? 1 : Team::kResident)
    softmax_backward_team(const SoftmaxBackwardParams params) {
    compute_kept<Element, Team, kElems, kAccess>(params);
}

template <class Element, class Team, int kElems>
__global__ void __launch_bounds__(Team::kBlockThreads, count_edged<kElems>(Team::kBlockThreads))
    softmax_backward_team_edged(const SoftmaxBackwardParams params) {
    compute_edged<Element, Team, kElems>(params);
}

}  // namespace aicf::softmax_backward

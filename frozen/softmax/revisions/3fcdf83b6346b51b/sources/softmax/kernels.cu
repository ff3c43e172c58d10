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
//        | softmax_run        | ... of rows that follow one another, brought and taken as one run of memory
//        | softmax_warp_rows  | ... several by a warp, whose lanes keep every 32nd element; also brought and taken as runs
//        | softmax_team       | ... of a cluster of blocks: rows that are longer
//    5   | softmax_shared     | ... or in shared memory, which holds rows that registers do not
//
// Special values: a NaN in a row reaches the sum through exp, an all -inf row through -inf - (-inf); +inf is caught by Finish. A hidden
// element is read as -inf, and a masked row whose maximum is -inf gets 0 for it: its weights, and so its sum, are 0.
#include <cstdint>

#include "common/online.cuh"
#include "common/row_run.cuh"
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
    bool is_scaled;            // else x is taken as it is
    float scale;
    int columns;  // of x and y
    int visible;  // the first so many may count

    __device__ Row(const SoftmaxParams& p, std::int64_t row)
        : x(static_cast<const Element*>(p.x) + row * p.ldx),
          y(static_cast<Element*>(p.y) + row * p.ldy),
          keep(nullptr),
          is_scaled(p.scale != nullptr),
          scale(is_scaled ? *p.scale : 1.0f),
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

    __device__ __forceinline__ float read(int column) const { return shows(column) ? to_float(x[column]) * scale : minus_infinity(); }

    // A byte for each element of a chunk, 0 where a boolean mask hides it; what lies beside the row is as it comes.
    template <class Span>
    __device__ __forceinline__ uint2 read_mask(const Span& span, int chunk) const {
        if (!kIsMasked || keep == nullptr) return {~0U, ~0U};
        const int first = span.find_column(chunk, 0);
        const std::uint8_t* const at = keep + first;
        if (span.is_packed && span.is_whole(first) && reinterpret_cast<std::uintptr_t>(at) % Span::kChunkElems == 0) {
            if constexpr (Span::kChunkElems == 8) return *reinterpret_cast<const uint2*>(at);
            return {*reinterpret_cast<const std::uint32_t*>(at), 0};
        }
        std::uint32_t words[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            if (span.holds(chunk, i)) words[i / 4] |= static_cast<std::uint32_t>(keep[span.find_column(chunk, i)]) << i % 4 * 8;
        }
        return {words[0], words[1]};
    }

    // Scales a chunk, and makes -inf of what does not count; past the row, and in front of it, that is there already. `mask` is of
    // read_mask().
    template <class Span>
    __device__ __forceinline__ void count_in(const Span& span, int chunk, Pack<Element>& pack, const uint2& mask) const {
        if (!kIsMasked && !is_scaled) return;
        const std::uint32_t words[2] = {mask.x, mask.y};
        const int end = kIsMasked ? visible : columns, first = span.find_column(chunk, 0);
        const auto count = [&](int i, bool may_count) {
            const bool is_shown = !kIsMasked || (words[i / 4] & 0xffU << i % 4 * 8) != 0;
            pack.values[i] = may_count && is_shown ? pack.values[i] * scale : minus_infinity();
        };
        if (span.is_packed && first >= 0 && first + Span::kChunkElems <= end) {
#pragma unroll
            for (int i = 0; i < Span::kChunkElems; ++i) count(i, true);
            return;
        }
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            const int column = span.find_column(chunk, i);
            count(i, column >= 0 && column < end);
        }
    }

    // What exponents are relative to: the maximum, but 0 where a mask leaves nothing finite.
    __device__ __forceinline__ float find_base(float maximum) const {
        if constexpr (!kIsMasked) return maximum;
        return maximum == minus_infinity() ? 0.0f : maximum;
    }
};

// Makes results of elements. NaN where the maximum is +inf: weights relative to it are 0 or undefined.
template <class Element>
struct Finish {
    float base;
    float factor;  // 1 / sum, or for the logarithm log(sum)
    bool is_log;

    __device__ Finish(float base_, float sum, bool is_log_) : base(base_), is_log(is_log_) {
        if (is_infinite(base)) sum = __int_as_float(0x7fffffff);
        factor = is_log ? logf(sum) : __frcp_rn(sum);
        if (sum == 0.0f) factor = 0.0f;
    }

    // `value` is an element, scaled, -inf where it does not count.
    __device__ __forceinline__ float operator()(float value) const {
        return is_log ? (value - base) - factor : find_weight<Element>(value - base) * factor;
    }

    __device__ __forceinline__ void operator()(Pack<Element>& pack) const {
        if (is_log) {
#pragma unroll
            for (float& value : pack.values) value = (value - base) - factor;
        } else {
#pragma unroll
            for (float& value : pack.values) value = find_weight<Element>(value - base) * factor;
        }
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
    for (int j = 0; j < row.columns; ++j) sum += find_weight<Element>(row.read(j) - base);
    const Finish<Element> finish(base, sum, params.log != 0);
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
    for (int j = group.rank; j < row.columns; j += kWarpSize) sum += find_weight<Element>(row.read(j) - base);
    const Finish<Element> finish(base, group.reduce_sum(sum, nullptr), params.log != 0);
    for (int j = group.rank; j < row.columns; j += kWarpSize) row.y[j] = from_float<Element>(finish(row.read(j)));
}

// `boundary`: of find_common_boundary(), for x and y or for y alone.
template <class Element, bool kIsMasked, class Span>
__device__ __forceinline__ Span make_span(const Row<Element, kIsMasked>& row, int rank, int boundary) {
    return {row.columns, rank, boundary != 0, find_shift(row.y, boundary)};
}

// Accesses of a long row that a thread has under way; a mask's own come in between.
template <bool kIsMasked>
inline constexpr int kTogether = kIsMasked ? 1 : 4;

// A block takes one row, which it reads twice, or a cluster of blocks does: Group is RowGroup or RowCluster.
template <class Element, bool kIsMasked, int kThreads, class Group>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) softmax_block(const SoftmaxParams params, int boundary) {
    using Span = RowSpan<Element, Group::kTotalThreads, kPackElems<Element>>;
    __shared__ Online partials[Group::kPartials];
    const Group group;
    const Row<Element, kIsMasked> row(params, group.row);
    const Span span = make_span<Element, kIsMasked, Span>(row, group.rank, boundary);
    const int skew = span.find_skew(row.x);

    const auto read = [&](int chunk, auto is_whole) {
        const uint2 mask = row.read_mask(span, chunk);
        Pack<Element> x = span.load(row.x, chunk, minus_infinity(), is_whole, skew);
        row.count_in(span, chunk, x, mask);
        return x;
    };

    Online online;
    span.template visit_split<kTogether<kIsMasked>>(skew != 0, [&](int chunk, auto is_whole) {
        const Pack<Element> x = read(chunk, is_whole);
        float maximum = online.maximum;
#pragma unroll
        for (const float value : x.values) maximum = fmaxf(maximum, value);
        // What saw nothing, or nothing but -inf, has a sum of 0.
        const float base = maximum == minus_infinity() ? 0.0f : maximum;
        online.sum *= find_weight<Element>(online.maximum - base);
#pragma unroll
        for (const float value : x.values) online.sum += find_weight<Element>(value - base);
        online.maximum = maximum;
    });
    online = group.reduce(online, partials, [](Online a, Online b) { return combine(a, b); });

    const Finish<Element> finish(row.find_base(online.maximum), online.sum, params.log != 0);
    span.template visit_split<kTogether<kIsMasked>>(skew != 0, [&](int chunk, auto is_whole) {
        Pack<Element> x = read(chunk, is_whole);
        finish(x);
        span.store(row.y, chunk, x, is_whole);
    });
}

// A group takes a row of at most as many elements as its threads keep in registers. `partials`, shared, are of groups beyond a warp.
template <class Element, bool kIsMasked, class Group, class Span>
__device__ __forceinline__ void compute_kept(const SoftmaxParams& params, Group& group, const Row<Element, kIsMasked>& row,
                                             const Span& span, float (&partials)[2][Group::kPartials]) {
    Pack<Element> kept[Span::kChunks];
    uint2 masks[Span::kChunks];
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) masks[chunk] = row.read_mask(span, chunk);
    span.load_all(row.x, kept, kMinusInfinityWord<Element>, span.find_skew(row.x));
    float maximum = minus_infinity();
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
        row.count_in(span, chunk, kept[chunk], masks[chunk]);
#pragma unroll
        for (const float value : kept[chunk].values) maximum = fmaxf(maximum, value);
    }
    const float base = row.find_base(group.reduce_max(maximum, partials[0]));
    // Beside the row lies -inf, whose weight is 0, or NaN where the row's own weights are.
    const bool is_log = params.log != 0;
    float sum = 0.0f;
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
#pragma unroll
        for (float& value : kept[chunk].values) {
            const float weight = find_weight<Element>(value - base);
            sum += weight;
            if (!is_log) value = weight;
        }
    }
    const Finish<Element> finish(base, group.reduce_sum(sum, partials[1]), is_log);
    if (!group.is_real(params.rows)) return;
#pragma unroll
    for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
        if (!span.is_there(chunk)) continue;
        if (is_log) {
            finish(kept[chunk]);
        } else {
#pragma unroll
            for (float& value : kept[chunk].values) value *= finish.factor;
        }
    }
    span.store_all(row.y, kept);
}

// kElems elements a thread; kIsWhole as for RowSpan.
template <class Element, bool kIsMasked, class Group, int kElems, bool kIsWhole>
__device__ __forceinline__ void compute_kept(const SoftmaxParams& params, int boundary) {
    using Span = RowSpan<Element, Group::kTotalThreads, kElems, kIsWhole>;
    __shared__ float partials[2][Group::kPartials];
    Group group;
    const Row<Element, kIsMasked> row(params, group.find_source(params.rows));
    compute_kept(params, group, row, make_span<Element, kIsMasked, Span>(row, group.rank, kIsWhole ? 0 : boundary), partials);
    if constexpr (Group::kBlocks > 1) group.leave();
}

// kThreads threads per row, kRows rows per block (one beyond a warp).
template <class Element, bool kIsMasked, int kThreads, int kRows, int kElems, bool kIsWhole>
__global__ void __launch_bounds__(kThreads* kRows) softmax_registers(const SoftmaxParams params, int boundary) {
    compute_kept<Element, kIsMasked, RowGroup<kThreads, kRows>, kElems, kIsWhole>(params, boundary);
}

// The same for rows that follow one another: a block's are one run of memory, which goes through shared memory by 16 bytes. Threads write
// results where they read elements.
template <class Element, bool kIsMasked, int kThreads, int kRows, int kElems>
__global__ void __launch_bounds__(kThreads* kRows) softmax_run(const SoftmaxParams params) {
    static_assert(kRows * sizeof(Element) % 16 == 0, "a block's rows begin on 16 bytes");
    extern __shared__ __align__(16) unsigned char shared[];
    auto* const run = reinterpret_cast<Element*>(shared);
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
    RowGroup<kThreads, kRows> group;
    group.row = first + find_spread_row<kThreads, kRows>(static_cast<int>(params.columns));
    const std::int64_t source = group.find_source(params.rows);
    const std::int64_t left = params.rows - first;
    const int columns = static_cast<int>(params.columns), count = (left < kRows ? static_cast<int>(left) : kRows) * columns;
    begin_run<kThreads * kRows>(static_cast<const Element*>(params.x) + first * columns, count, run);
    await_runs();
    Row<Element, kIsMasked> row(params, source);
    row.x = row.y = run + static_cast<int>(source - first) * columns;
    // A group past the last row reads nothing: that row's own group writes over it.
    const RowSpan<Element, kThreads, kElems> span = {group.is_real(params.rows) ? columns : 0, group.rank, false};
    float unused[2][1];  // a group is lanes of a warp
    compute_kept(params, group, row, span, unused);
    write_run<kThreads * kRows>(run, count, static_cast<Element*>(params.y) + first * columns);
}

// kWarps warps a block, each takes kTogether rows at a time, of at most kElems floats a lane, which stay in registers. Whatever a row
// begins at, an access is of neighbours alone: five sectors where four are the least. kIsStaged: rows follow one another, and a warp's are
// one run of memory, which goes through shared memory of its own by 16 bytes, so that no sector is named twice; no warp waits for another.
template <int kWarps, int kElems, int kTogether, bool kIsStaged>
__global__ void __launch_bounds__(kWarps* kWarpSize) softmax_warp_rows(const SoftmaxParams params) {
    static_assert(!kIsStaged || kTogether * sizeof(float) % 16 == 0, "a warp's rows begin on 16 bytes");
    extern __shared__ __align__(16) unsigned char shared[];
    const RowGroup<kWarpSize, kWarps> group;
    const std::int64_t first = group.row * kTogether;
    if (first >= params.rows) return;
    const int lane = group.rank, rows = static_cast<int>(min(params.rows - first, std::int64_t{kTogether}));
    const int columns = static_cast<int>(params.columns);
    float* const run = reinterpret_cast<float*>(shared) + static_cast<int>(threadIdx.x) / kWarpSize * kTogether * columns;
    if constexpr (kIsStaged) {
        begin_run<kWarpSize>(static_cast<const float*>(params.x) + first * columns, rows * columns, run, lane);
        await_warp_runs();
    }
    // Of a row past the last the last itself.
    const auto find_row = [&](int u) {
        const int nearest = min(u, rows - 1);
        Row<float, false> row(params, first + nearest);
        if constexpr (kIsStaged) row.x = row.y = run + nearest * columns;
        return row;
    };
    const auto holds = [&](int e) { return lane + e * kWarpSize < columns; };
    const auto visit = [&](const auto& visit_element) {
#pragma unroll
        for (int e = 0; e < kElems; ++e) {
            if (e * kWarpSize >= columns) continue;
#pragma unroll
            for (int u = 0; u < kTogether; ++u) visit_element(u, e);
        }
    };

    const float* x[kTogether];
    float values[kTogether][kElems];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) x[u] = find_row(u).x + lane;
    visit([&](int u, int e) {
        values[u][e] = minus_infinity();
        if (holds(e)) values[u][e] = x[u][e * kWarpSize];
    });
    if (params.scale != nullptr) {
        const float scale = *params.scale;
        visit([&](int u, int e) { values[u][e] = holds(e) ? values[u][e] * scale : minus_infinity(); });
    }
    float maxima[kTogether], sums[kTogether] = {};
#pragma unroll
    for (float& maximum : maxima) maximum = minus_infinity();
    visit([&](int u, int e) { maxima[u] = fmaxf(maxima[u], values[u][e]); });
    reduce_rows(maxima, [](float a, float b) { return fmaxf(a, b); });
    // Of a row past the last the same is stored once more.
    const auto finish = [&](auto is_log) {
        visit([&](int u, int e) {
            const float weight = find_weight<float>(values[u][e] - maxima[u]);
            sums[u] += weight;
            if (!is_log.value) values[u][e] = weight;
        });
        reduce_rows(sums, [](float a, float b) { return a + b; });
        float* y[kTogether];
        float factors[kTogether];
#pragma unroll
        for (int u = 0; u < kTogether; ++u) {
            y[u] = find_row(u).y + lane;
            factors[u] = Finish<float>(maxima[u], sums[u], is_log.value).factor;
        }
        visit([&](int u, int e) {
            const float value = is_log.value ? (values[u][e] - maxima[u]) - factors[u] : values[u][e] * factors[u];
            if (holds(e)) y[u][e * kWarpSize] = value;
        });
    };
    if (params.log != 0) {
        finish(std::true_type{});
    } else {
        finish(std::false_type{});
    }
    if constexpr (kIsStaged) {
        __syncwarp();
        copy_run<kWarpSize>(run, rows * columns, static_cast<float*>(params.y) + first * columns, lane);
    }
}

// A cluster of blocks per row: Team is RowTeam.
template <class Element, bool kIsMasked, class Team, int kElems, bool kIsWhole>
__global__ void __launch_bounds__(Team::kBlockThreads, Team::kResident) softmax_team(const SoftmaxParams params, int boundary) {
    compute_kept<Element, kIsMasked, Team, kElems, kIsWhole>(params, boundary);
}

// Most of a boundary for long rows: a line of the cache, so that no warp's access is cut by one more.
inline constexpr int kLongBoundary = 128;

// Shared memory in bytes that softmax_shared takes: the row, from the boundary in front of it on.
template <class Element>
constexpr std::int64_t find_row_bytes(std::int64_t columns) {
    return columns * static_cast<std::int64_t>(sizeof(Element)) + kLongBoundary;
}

// A block takes one row, which it keeps in shared memory as it was read: a thread reads back what it wrote, so that the two reductions are
// the only barriers.
template <class Element, bool kIsMasked, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) softmax_shared(const SoftmaxParams params, int boundary) {
    using Group = RowGroup<kThreads>;
    using Span = RowSpan<Element, kThreads, kPackElems<Element>>;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float partials[2][Group::kPartials];
    const Group group;
    const Row<Element, kIsMasked> row(params, group.row);
    const Span span = make_span<Element, kIsMasked, Span>(row, group.rank, boundary);
    Element* const kept = reinterpret_cast<Element*>(shared) + span.shift;
    const auto read = [&](int chunk, auto is_whole) {
        const uint2 mask = row.read_mask(span, chunk);
        Pack<Element> x = span.load(kept, chunk, minus_infinity(), is_whole);
        row.count_in(span, chunk, x, mask);
        return x;
    };

    const int skew = span.find_skew(row.x);
    float maximum = minus_infinity();
    span.template visit_split<kTogether<kIsMasked>>(skew != 0, [&](int chunk, auto is_whole) {
        const uint2 mask = row.read_mask(span, chunk);
        Pack<Element> x = span.load(row.x, chunk, minus_infinity(), is_whole, skew);
        span.store(kept, chunk, x, is_whole);
        row.count_in(span, chunk, x, mask);
#pragma unroll
        for (const float value : x.values) maximum = fmaxf(maximum, value);
    });
    const float base = row.find_base(group.reduce_max(maximum, partials[0]));
    float sum = 0.0f;
    span.template visit_split<1>(false, [&](int chunk, auto is_whole) {
        const Pack<Element> x = read(chunk, is_whole);
#pragma unroll
        for (const float value : x.values) sum += find_weight<Element>(value - base);
    });
    const Finish<Element> finish(base, group.reduce_sum(sum, partials[1]), params.log != 0);
    span.template visit_split<1>(false, [&](int chunk, auto is_whole) {
        Pack<Element> y = read(chunk, is_whole);
        finish(y);
        span.store(row.y, chunk, y, is_whole);
    });
}

}  // namespace aicf::softmax

// Layer normalisation and RMS normalisation of rows, with an addition in front: the kernels that both ops share.
//
//     s = x + residual     rounded to Element and written out; x itself without a residual
//     y = (s - mean) * rstd * weight + bias,   rstd = 1 / sqrt(mean((s - mean)^2) + eps),   mean = 0 for RMS normalisation
//
// The variance is that of the differences from the mean, which keeps its digits where the mean is far from zero.
#pragma once

#include <cstdint>

#include "common/row_run.cuh"
#include "common/rows.cuh"
#include "common/vector_access.cuh"

namespace aicf {

// Row-major [rows, columns] with row strides; null where a tensor is absent.
template <class Element>
struct Norm {
    const Element *x, *residual, *weight, *bias;
    Element *y, *sum;
    float *mean, *rstd;  // [rows]
    std::int64_t rows, columns, ldx, ldresidual, ldy, ldsum;
    float eps;
};

// One row of each matrix.
template <class Element>
struct NormRow {
    const Element *x, *residual;
    Element *y, *sum;

    __device__ __forceinline__ NormRow(const Norm<Element>& p, std::int64_t row)
        : x(p.x + row * p.ldx),
          residual(p.residual == nullptr ? nullptr : p.residual + row * p.ldresidual),
          y(p.y + row * p.ldy),
          sum(p.sum == nullptr ? nullptr : p.sum + row * p.ldsum) {}
};

// sum / columns; rows have fewer than 2^31, and a number of 64 bits takes longer to convert.
__device__ __forceinline__ float find_mean(float sum, std::int64_t columns) { return sum / static_cast<float>(static_cast<int>(columns)); }

// 1 / sqrt(squares / columns + eps)
__device__ __forceinline__ float find_rstd(float squares, std::int64_t columns, float eps) {
    return rsqrtf(find_mean(squares, columns) + eps);
}

template <class Element>
__device__ __forceinline__ float round_to(float value) {
    return to_float(from_float<Element>(value));
}

// s of a pack, which is rounded where it is stored.
template <class Element>
__device__ __forceinline__ Pack<Element> add_packs(Pack<Element> x, const Pack<Element>& residual) {
#pragma unroll
    for (int i = 0; i < kPackElems<Element>; ++i) x.values[i] += residual.values[i];
    return x;
}

// y of a pack of s.
template <class Element>
__device__ __forceinline__ void normalise_pack(Pack<Element>& pack, float mean, float rstd, const Pack<Element>& factors,
                                               const Pack<Element>& bias) {
#pragma unroll
    for (int i = 0; i < kPackElems<Element>; ++i) pack.values[i] = fmaf((pack.values[i] - mean) * rstd, factors.values[i], bias.values[i]);
}

template <class Element>
__device__ __forceinline__ void write_statistics(const Norm<Element>& p, std::int64_t row, float mean, float rstd) {
    if (p.mean != nullptr) p.mean[row] = mean;
    if (p.rstd != nullptr) p.rstd[row] = rstd;
}

// A thread per row, a pass for each of mean, variance and result.
template <bool kIsCentred, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_naive(const Norm<Element> p) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= p.rows) return;
    const NormRow<Element> at(p, row);
    float mean = 0.0f, squares = 0.0f;
    const auto read = [&](std::int64_t j) {
        return at.residual == nullptr ? to_float(at.x[j]) : round_to<Element>(to_float(at.x[j]) + to_float(at.residual[j]));
    };
    if constexpr (kIsCentred) {
        for (std::int64_t j = 0; j < p.columns; ++j) mean += read(j);
        mean = find_mean(mean, p.columns);
    }
    for (std::int64_t j = 0; j < p.columns; ++j) squares += (read(j) - mean) * (read(j) - mean);
    const float rstd = find_rstd(squares, p.columns, p.eps);
    for (std::int64_t j = 0; j < p.columns; ++j) {
        const float bias = p.bias == nullptr ? 0.0f : to_float(p.bias[j]);
        at.y[j] = from_float<Element>((read(j) - mean) * rstd * to_float(p.weight[j]) + bias);
        if (at.sum != nullptr) at.sum[j] = from_float<Element>(read(j));
    }
    write_statistics(p, row, mean, rstd);
}

// Where packs of a row begin behind boundaries, of every matrix: see RowSpan::find_skew().
template <class Element>
struct Skews {
    int x, residual, y, sum;

    template <class Span>
    __device__ __forceinline__ Skews(const Span& span, const NormRow<Element>& at)
        : x(span.find_skew(at.x)), residual(span.find_skew(at.residual)), y(span.find_skew(at.y)), sum(span.find_skew(at.sum)) {}
};

// Packs are counted from rows that are written: from `sum` where there is one, since it is read back.
template <class Span, Access kAccess, class Element>
__device__ __forceinline__ Span make_span(const Norm<Element>& p, const NormRow<Element>& at, int rank) {
    return make_span<Span, kAccess>(static_cast<int>(p.columns), rank, at.sum == nullptr ? at.y : at.sum);
}

// Calls call(chunk, packs) for all chunks of rows that have no skew, with zeros of those that are null: the accesses of kTogether chunks
// are under way together.
template <int kTogether, int kRows, class Span, class Element, class Call>
__device__ __forceinline__ void visit_together(const Span& span, const Element* const (&rows)[kRows], const Call& call) {
#pragma unroll
    for (int first = 0; first < Span::kChunks; first += kTogether) {
        Pack<Element> packs[kTogether][kRows] = {};
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                if (rows[r] != nullptr && span.is_there(first + i)) packs[i][r] = span.load(rows[r], first + i, 0.0f);
            }
        }
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
            if (span.is_there(first + i)) call(first + i, packs[i]);
        }
    }
}

// Has a vector of a row's columns on its way to L2, a line of it for each thread of a group's blocks: it is wanted behind the statistics of
// the row, and the first rows would wait for memory once more. Only the first blocks do: each prefetch is a request of L2, where those of
// all rows for the same few lines wait for one another, and take several times as long as the rows.
template <class Group, class Element>
__device__ __forceinline__ void prefetch_vector(const Element* vector, int columns, const Group& group) {
    constexpr int kLineElems = 128 / static_cast<int>(sizeof(Element)), kThreads = Group::kBlocks * Group::kBlockThreads;
    constexpr unsigned kPrefetchingBlocks = 8;
    if (vector == nullptr || blockIdx.x >= kPrefetchingBlocks) return;
    const int first = Group::kBlocks == 1 ? static_cast<int>(threadIdx.x) : group.rank;
    for (int column = first * kLineElems; column < columns; column += kThreads * kLineElems) prefetch_line(vector + column);
}

// A group takes a row of at most as many elements as its threads keep in registers, kElems each, through `at`. `partials`, shared, are of
// groups beyond a warp.
template <bool kIsCentred, int kElems, bool kIsWhole, class Element, class Group, class Span>
__device__ __forceinline__ void normalise_kept(const Norm<Element>& p, Group& group, const NormRow<Element>& at, const Span& span,
                                               float (&partials)[2][Group::kPartials]) {
    const bool is_real = group.is_real(p.rows);
    const Skews<Element> skews(span, at);
    const int weight_skew = span.find_skew(p.weight), bias_skew = span.find_skew(p.bias);
    const auto visit = [&](const auto& call) {
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
            if (kIsWhole || span.is_there(c)) call(c);
        }
    };

    // The weights come along with the row where registers allow it: they are there when the sums are. A team's threads have none to spare
    // for all of a second row of 32 bits: they take a few chunks of it at a time.
    constexpr bool kIsEarly = kElems * sizeof(Element) <= 64, kIsSpare = Group::kBlocks == 1 || kIsEarly;
    // With the bias ahead of the residual, whose sums are written before anything else is read.
    constexpr bool kIsFirst = kElems * sizeof(Element) <= 32, kIsBiasFirst = kIsCentred && kIsFirst;
    uint4 values[Span::kChunks], weight[kIsSpare ? Span::kChunks : 1], bias_words[kIsBiasFirst ? Span::kChunks : 1] = {};
    span.load_all_words(at.x, values, 0, skews.x);
    if constexpr (kIsFirst) {
        span.load_all_words(p.weight, weight, 0, weight_skew);
    } else if (!kIsEarly || at.residual != nullptr) {
        prefetch_vector(p.weight, span.columns, group);
    }
    if constexpr (kIsBiasFirst) {
        if (p.bias != nullptr) span.load_all_words(p.bias, bias_words, 0, bias_skew);
    } else if constexpr (kIsCentred) {
        prefetch_vector(p.bias, span.columns, group);
    }
    const auto add = [&](int c, const Pack<Element>& residual) {
        const Pack<Element> sum = add_packs(unpack<Element>(values[c]), residual);
        values[c] = pack_words(sum);
        if (is_real) span.store(at.sum, c, sum, skews.sum);
    };
    if (at.residual != nullptr) {
        if constexpr (kIsSpare) {
            uint4 residual[Span::kChunks];
            span.load_all_words(at.residual, residual, 0, skews.residual);
            visit([&](int c) { add(c, unpack<Element>(residual[c])); });
        } else {
            visit_together<4, 1>(span, {at.residual}, [&](int c, const auto& packs) { add(c, packs[0]); });
        }
    }
    if constexpr (kIsEarly && !kIsFirst) span.load_all_words(p.weight, weight, 0, weight_skew);

    const auto add_up = [&] {
        float sum = 0.0f;
        visit([&](int c) {
            const Pack<Element> pack = unpack<Element>(values[c]);
#pragma unroll
            for (const float value : pack.values) sum += value;
        });
        return sum;
    };
    const auto add_squares = [&](float mean) {
        float squares = 0.0f;
        visit([&](int c) {
            forget(values[c]);
            const Pack<Element> pack = unpack<Element>(values[c]);
            // Beside the row there are zeros, of which those of RMS normalisation count nothing.
            const bool is_whole = !kIsCentred || (span.is_packed && span.is_whole(span.find_column(c, 0)));
#pragma unroll
            for (int i = 0; i < Span::kChunkElems; ++i) {
                const float centred = is_whole || span.holds(c, i) ? pack.values[i] - mean : 0.0f;
                squares = fmaf(centred, centred, squares);
            }
        });
        return squares;
    };
    float mean = 0.0f, squares = 0.0f;
    if constexpr (kIsCentred && Group::kBlocks > 1) {
        // Blocks meet once, for what a warp finds alone: the squares of differences from another mean grow by those of the means.
        const auto add = [](float a, float b) { return a + b; };
        const int warp = group.rank / kWarpSize, lane = group.rank % kWarpSize, count = span.count_of_warp(warp);
        const float sum = reduce_warp(add_up(), add);
        const float own_mean = count > 0 ? find_mean(sum, count) : 0.0f;
        const auto use = [&](const float2* parts) {
            const auto visit_parts = [&](const auto& call) {
#pragma unroll
                for (int part = 0; part < Group::kPartials; part += kWarpSize) {
                    call(static_cast<float>(span.count_of_warp(part + lane)), parts[part + lane]);
                }
            };
            visit_parts([&](float elems, const float2& part) { mean = fmaf(elems, part.x, mean); });
            mean = find_mean(reduce_warp(mean, add), p.columns);
            visit_parts([&](float elems, const float2& part) { squares += fmaf(elems * (part.x - mean), part.x - mean, part.y); });
        };
        group.exchange(float2{own_mean, reduce_warp(add_squares(own_mean), add)}, reinterpret_cast<float2*>(partials), use);
        squares = reduce_warp(squares, add);
    } else {
        if constexpr (kIsCentred) mean = find_mean(group.reduce_sum(add_up(), partials[0]), p.columns);
        squares = group.reduce_sum(add_squares(mean), partials[1]);
    }
    const float rstd = find_rstd(squares, p.columns, p.eps);
    if (!is_real) return;

    const auto finish = [&](int c, const Pack<Element>& factors, const Pack<Element>& bias) {
        forget(values[c]);
        Pack<Element> pack = unpack<Element>(values[c]);
        normalise_pack(pack, mean, rstd, factors, bias);
        span.store(at.y, c, pack, skews.y);
    };
    if constexpr (kIsSpare) {
        if constexpr (!kIsEarly) span.load_all_words(p.weight, weight, 0, weight_skew);
        visit([&](int c) {
            Pack<Element> bias = {};
            if constexpr (kIsBiasFirst) {
                bias = unpack<Element>(bias_words[c]);
            } else {
                if (p.bias != nullptr && span.is_there(c)) bias = span.load(p.bias, c, 0.0f, bias_skew);
            }
            finish(c, unpack<Element>(weight[c]), bias);
        });
    } else {
        visit_together<2, 2>(span, {p.weight, p.bias}, [&](int c, const auto& packs) { finish(c, packs[0], packs[1]); });
    }
    if (group.rank == 0) write_statistics(p, group.row, mean, rstd);
}

template <bool kIsCentred, class Element, class Group, int kElems, Access kAccess>
__device__ __forceinline__ void normalise_kept(const Norm<Element>& p) {
    constexpr bool kIsWhole = kAccess == Access::kWhole;
    using Span = RowSpan<Element, Group::kTotalThreads, kElems, kIsWhole>;
    __shared__ alignas(float2) float partials[2][Group::kPartials];
    Group group;
    const NormRow<Element> at(p, group.find_source(p.rows));
    normalise_kept<kIsCentred, kElems, kIsWhole>(p, group, at, make_span<Span, kAccess>(p, at, group.rank), partials);
    if constexpr (Group::kBlocks > 1) group.leave();
}

// kThreads threads per row, kRows rows per block.
template <bool kIsCentred, class Element, int kThreads, int kRows, int kElems, Access kAccess>
__global__ void __launch_bounds__(kThreads* kRows) norm_registers(const Norm<Element> p) {
    normalise_kept<kIsCentred, Element, RowGroup<kThreads, kRows>, kElems, kAccess>(p);
}

// The same for rows of whole packs, kTogether for each group: what all of them read is under way before the first is looked at.
template <bool kIsCentred, class Element, int kThreads, int kRows, int kElems, int kTogether>
__global__ void __launch_bounds__(kThreads* kRows) norm_together(const Norm<Element> p) {
    using Span = RowSpan<Element, kThreads, kElems, true>;
    constexpr int kBlockRows = kRows * kTogether;
    const RowGroup<kThreads, kRows> group;
    const Span span = {static_cast<int>(p.columns), group.rank, true};
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kBlockRows + threadIdx.x / kThreads;
    const auto find_row = [&](int t) { return first + t * kRows; };
    const auto is_real = [&](int t) { return find_row(t) < p.rows; };
    const auto find_source = [&](int t) { return is_real(t) ? find_row(t) : p.rows - 1; };
    uint4 values[kTogether][Span::kChunks], residual[kTogether][Span::kChunks], weight[Span::kChunks], bias[Span::kChunks] = {};
    const auto visit = [&](const auto& call) {
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
#pragma unroll
            for (int c = 0; c < Span::kChunks; ++c) call(t, c);
        }
    };
#pragma unroll
    for (int t = 0; t < kTogether; ++t) span.load_all_words(p.x + find_source(t) * p.ldx, values[t]);
    if (p.residual != nullptr) {
#pragma unroll
        for (int t = 0; t < kTogether; ++t) span.load_all_words(p.residual + find_source(t) * p.ldresidual, residual[t]);
    }
    span.load_all_words(p.weight, weight);
    if (kIsCentred && p.bias != nullptr) span.load_all_words(p.bias, bias);

    if (p.residual != nullptr) {
        visit([&](int t, int c) {
            const Pack<Element> sum = add_packs(unpack<Element>(values[t][c]), unpack<Element>(residual[t][c]));
            values[t][c] = pack_words(sum);
            if (is_real(t)) span.store(p.sum + find_row(t) * p.ldsum, c, sum);
        });
    }
    const auto reduce = [&](float (&sums)[kTogether]) {
#pragma unroll
        for (int offset = kThreads / 2; offset > 0; offset /= 2) {
#pragma unroll
            for (float& sum : sums) sum += shuffle_xor(sum, offset);
        }
    };
    float mean[kTogether] = {}, squares[kTogether] = {};
    if constexpr (kIsCentred) {
        visit([&](int t, int c) {
            const Pack<Element> pack = unpack<Element>(values[t][c]);
#pragma unroll
            for (const float value : pack.values) mean[t] += value;
        });
        reduce(mean);
#pragma unroll
        for (float& each : mean) each = find_mean(each, p.columns);
    }
    visit([&](int t, int c) {
        forget(values[t][c]);
        const Pack<Element> pack = unpack<Element>(values[t][c]);
        if (kIsCentred && span.find_column(c, 0) >= span.columns) return;
#pragma unroll
        for (const float value : pack.values) squares[t] = fmaf(value - mean[t], value - mean[t], squares[t]);
    });
    reduce(squares);
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
        if (!is_real(t)) return;
        const float rstd = find_rstd(squares[t], p.columns, p.eps);
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
            forget(values[t][c]);
            Pack<Element> pack = unpack<Element>(values[t][c]);
            normalise_pack(pack, mean[t], rstd, unpack<Element>(weight[c]), unpack<Element>(bias[c]));
            span.store(p.y + find_row(t) * p.ldy, c, pack);
        }
        if (group.rank == 0) write_statistics(p, find_row(t), mean[t], rstd);
    }
}

// A cluster of blocks per row: Team is RowTeam.
template <bool kIsCentred, class Element, class Team, int kElems, Access kAccess>
__global__ void __launch_bounds__(Team::kBlockThreads, Team::kResident) norm_team(const Norm<Element> p) {
    normalise_kept<kIsCentred, Element, Team, kElems, kAccess>(p);
}

// Statistics and results of a row that is read once for each of mean, variance and result, `s` with so many elements of skew.
template <bool kIsCentred, int kTogether, class Element, class Group, class Span>
__device__ __forceinline__ void normalise_again(const Norm<Element>& p, const Group& group, const NormRow<Element>& at, const Span& span,
                                                const Skews<Element>& skews, const Element* s, int skew,
                                                float (&partials)[2][Group::kPartials]) {
    float mean = 0.0f, squares = 0.0f;
    if constexpr (kIsCentred) {
        span.template visit_split<4>(skew != 0, [&](int c, auto is_whole) {
            const Pack<Element> pack = span.load(s, c, 0.0f, is_whole, skew);
#pragma unroll
            for (const float value : pack.values) mean += value;
        });
        mean = find_mean(group.reduce_sum(mean, partials[0]), p.columns);
    }
    span.template visit_split<4>(skew != 0, [&](int c, auto is_whole) {
        const Pack<Element> pack = span.load(s, c, mean, is_whole, skew);
#pragma unroll
        for (const float value : pack.values) squares = fmaf(value - mean, value - mean, squares);
    });
    const float rstd = find_rstd(group.reduce_sum(squares, partials[1]), p.columns, p.eps);
    const int weight_skew = span.find_skew(p.weight), bias_skew = span.find_skew(p.bias);
    span.template visit_split<kTogether>((skew | weight_skew | bias_skew) != 0, [&](int c, auto is_whole) {
        Pack<Element> pack = span.load(s, c, 0.0f, is_whole, skew);
        const Pack<Element> weight = span.load(p.weight, c, 0.0f, is_whole, weight_skew);
        Pack<Element> bias = {};
        if (p.bias != nullptr) bias = span.load(p.bias, c, 0.0f, is_whole, bias_skew);
        normalise_pack(pack, mean, rstd, weight, bias);
        if (skews.y == 0) {
            span.store(at.y, c, pack, is_whole);
        } else {
            span.store(at.y, c, pack, skews.y);
        }
    });
    if (group.rank == 0) write_statistics(p, group.row, mean, rstd);
}

// A block per row of any length, which is read once for each of mean, variance and result: mostly from L2 after the first time. A thread
// reads back what it has itself written to `sum`. Group is RowGroup or, of a cluster of blocks per row, RowCluster.
template <bool kIsCentred, class Element, int kThreads, class Group, Access kAccess>
__global__ void __launch_bounds__(kThreads) norm_passes(const Norm<Element> p) {
    using Span = RowSpan<Element, Group::kTotalThreads, kPackElems<Element>, kAccess == Access::kWhole>;
    __shared__ float partials[2][Group::kPartials];
    const Group group;
    const NormRow<Element> at(p, group.row);
    const Span span = make_span<Span, kAccess>(p, at, group.rank);
    const Skews<Element> skews(span, at);
    const bool has_sum = at.residual != nullptr;
    const Element* const s = has_sum ? at.sum : at.x;
    const int skew = has_sum ? 0 : skews.x;

    if (has_sum) {
        span.template visit_split<4>((skews.x | skews.residual) != 0, [&](int c, auto is_whole) {
            const Pack<Element> x = span.load(at.x, c, 0.0f, is_whole, skews.x);
            span.store(at.sum, c, add_packs(x, span.load(at.residual, c, 0.0f, is_whole, skews.residual)), is_whole);
        });
    }
    normalise_again<kIsCentred, 2>(p, group, at, span, skews, s, skew, partials);
}

// Bytes of shared memory that a row takes: as far behind a boundary as it lies in memory.
template <class Element>
__host__ __device__ constexpr std::int64_t find_row_bytes(std::int64_t columns) {
    return (columns * static_cast<std::int64_t>(sizeof(Element)) + 31) / 16 * 16;
}

// The same of a row of 16 bits that begins anywhere, `kept` with the residual's in shared memory: packs that are whole in every matrix, and
// an element of its edges for each lane of the last warp.
template <bool kIsCentred, class Element, class Group>
__device__ __forceinline__ void normalise_inner(const Norm<Element>& p, const Group& group, const NormRow<Element>& at, Element* kept,
                                                const Element* residual, float (&partials)[2][Group::kPartials]) {
    constexpr int kElems = kPackElems<Element>, kThreads = Group::kTotalThreads;
    using Span = InnerSpan<Element, kThreads, kElems>;
    const bool has_sum = at.sum != nullptr;
    const Element* const others[] = {kept, has_sum ? residual : nullptr, at.y, p.weight, p.bias};
    const Span span(static_cast<int>(p.columns), group.rank, has_sum ? at.sum : at.y, others);
    const int edge = span.edge, kept_skew = span.find_skew(kept);
    const auto visit = [&](const auto& call) {
#pragma unroll 2
        for (int column = span.find_column(0, 0); column < span.columns; column += kThreads * kElems) call(column);
    };
    float last = edge >= 0 ? to_float(kept[edge]) : 0.0f;
    if (has_sum) {
        const int residual_skew = span.find_skew(residual);
        visit([&](int column) {
            const Pack<Element> x = load_pack_skewed(kept + column, kept_skew);
            const Pack<Element> sum = add_packs(x, load_pack_skewed(residual + column, residual_skew));
            store_pack_to_global(at.sum + column, sum);
            if (kept_skew == 0) store_pack(kept + column, sum);
        });
        if (edge >= 0) {
            last = round_to<Element>(last + to_float(residual[edge]));
            at.sum[edge] = from_float<Element>(last);
        }
    }
    // A thread reads back what it has itself written.
    const Element* const s = has_sum && kept_skew != 0 ? at.sum : kept;
    const int skew = has_sum ? 0 : kept_skew;
    float mean = 0.0f, squares = 0.0f;
    if constexpr (kIsCentred) {
        visit([&](int column) {
            const Pack<Element> pack = load_pack_skewed(s + column, skew);
#pragma unroll
            for (const float value : pack.values) mean += value;
        });
        mean = find_mean(group.reduce_sum(mean + last, partials[0]), p.columns);
    }
    visit([&](int column) {
        const Pack<Element> pack = load_pack_skewed(s + column, skew);
#pragma unroll
        for (const float value : pack.values) squares = fmaf(value - mean, value - mean, squares);
    });
    if (edge >= 0) squares = fmaf(last - mean, last - mean, squares);
    const float rstd = find_rstd(group.reduce_sum(squares, partials[1]), p.columns, p.eps);
    const int weight_skew = span.find_skew(p.weight), bias_skew = span.find_skew(p.bias), y_skew = span.find_skew(at.y);
    visit([&](int column) {
        Pack<Element> pack = load_pack_skewed(s + column, skew);
        const Pack<Element> weight = load_pack_skewed(p.weight + column, weight_skew);
        Pack<Element> bias = {};
        if (kIsCentred && p.bias != nullptr) bias = load_pack_skewed(p.bias + column, bias_skew);
        normalise_pack(pack, mean, rstd, weight, bias);
        if (y_skew == 0) return store_pack_to_global(at.y + column, pack);
#pragma unroll
        for (int i = 0; i < kElems; ++i) at.y[column + i] = from_float<Element>(pack.values[i]);
    });
    if (edge >= 0) {
        const float bias = p.bias == nullptr ? 0.0f : to_float(p.bias[edge]);
        at.y[edge] = from_float<Element>(fmaf((last - mean) * rstd, to_float(p.weight[edge]), bias));
    }
    if (group.rank == 0) write_statistics(p, group.row, mean, rstd);
}

// A block takes a row of which a multiprocessor's shared memory holds several, so that those of other blocks are under way while it works:
// all of x, and of the residual, is on its way at once, whatever registers there are.
template <bool kIsCentred, class Element, int kThreads, Access kAccess>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) norm_shared(const Norm<Element> p) {
    using Group = RowGroup<kThreads>;
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float partials[2][Group::kPartials];
    const Group group;
    const NormRow<Element> at(p, group.row);
    const int columns = static_cast<int>(p.columns);
    const bool has_sum = at.residual != nullptr;
    Element* const kept = reinterpret_cast<Element*>(shared) + find_shift(at.x, 16);
    begin_row<kThreads>(at.x, columns, kept);
    Element* const residual = reinterpret_cast<Element*>(shared + find_row_bytes<Element>(columns)) + find_shift(at.residual, 16);
    if (has_sum) begin_row<kThreads>(at.residual, columns, residual);
    prefetch_vector(p.weight, columns, group);
    if constexpr (kIsCentred) prefetch_vector(p.bias, columns, group);
    await_runs();

    if constexpr (kAccess == Access::kPacked) {
        normalise_inner<kIsCentred>(p, group, at, kept, residual, partials);
    } else {
        using Span = RowSpan<Element, kThreads, kPackElems<Element>, kAccess == Access::kWhole>;
        const Span span = make_span<Span, kAccess>(p, at, group.rank);
        if (has_sum) {
            span.template visit_split<2>(false, [&](int c, auto is_whole) {
                const Pack<Element> sum = add_packs(span.load(kept, c, 0.0f, is_whole), span.load(residual, c, 0.0f, is_whole));
                span.store(at.sum, c, sum, is_whole);
                span.store(kept, c, sum, is_whole);
            });
        }
        normalise_again<kIsCentred, kIsCentred ? 2 : 4>(p, group, at, span, Skews<Element>(span, at), kept, 0, partials);
    }
}

// All matrices have rows, and the vectors begin, on 16-byte boundaries.
template <class Element>
bool has_packs(const Norm<Element>& p) {
    return has_pack_rows<Element>(p.x, p.ldx) && has_pack_rows<Element>(p.residual, p.ldresidual) && has_pack_rows<Element>(p.y, p.ldy) &&
           has_pack_rows<Element>(p.sum, p.ldsum) && has_pack_rows<Element>(p.weight, 0) && has_pack_rows<Element>(p.bias, 0);
}

template <class Element>
bool has_whole_packs(const Norm<Element>& p) {
    return has_packs(p) && p.columns % kPackElems<Element> == 0;
}

template <std::int64_t kCapacity, class Element, class Launch>
AicfStatus choose_access(const Norm<Element>& p, const Launch& launch) {
    return choose_access<Element, kCapacity>(p.columns, has_whole_packs(p), std::false_type{}, launch);
}

}  // namespace aicf

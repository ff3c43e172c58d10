// Layer normalisation and RMS normalisation of short rows that begin anywhere: a group of lanes keeps its row in registers as words of 4
// bytes, which lie side by side across the lanes.
//
// Packs of 16 bytes of rows of 16 bits are put together from two accesses by selections and shifts, and the packs that a row's ends cut are
// accessed element by element: some 550 instructions per KiB that moves, of which a multiprocessor of an H200 issues 193 in the time of its
// memory. Of words there are four times as many, but a pair is one shift, what a row's ends leave is an element each for four lanes, and
// lanes beyond the row idle in fewer of them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/norm.cuh"

namespace aicf {

// The words of a row, on the boundaries of the row that is written. Other rows may have a skew, an element by which they lie otherwise:
// a word of theirs is put together from two, both of which lie within the row. What is in front of the first word and behind the last are
// at most two elements each: the group's first four lanes take one.
template <class Element, int kThreads, int kElems>
struct WordSpan {
    static constexpr int kWords = kElems / 2, kMostEdge = 2;
    static_assert(sizeof(Element) == 2 && kThreads >= 2 * kMostEdge);

    int first, words;  // column of the first word; how many
    int begin, left;  // column of the lane's first word; words from there on
    int edge;  // the column that the lane has beside its words; below 0: none

    template <int kMatrices>
    __device__ __forceinline__ WordSpan(int columns, int rank, const Element* written, const Element* const (&rows)[kMatrices])
        : first(find_shift(written, 4)) {
        int skews = 0;
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) skews |= rows[m] == nullptr ? 0 : find_skew(rows[m]);
        if (first < skews) first += 2;
        words = max((columns - skews - first) / 2, 0);
        begin = first + 2 * rank;
        left = words - rank;
        const int column = rank < kMostEdge ? rank : first + 2 * words + rank - kMostEdge;
        edge = rank >= 2 * kMostEdge || column >= (rank < kMostEdge ? min(first, columns) : columns) ? -1 : column;
    }

    __device__ __forceinline__ int find_column(int word) const { return begin + word * (2 * kThreads); }

    __device__ __forceinline__ bool is_there(int word) const { return word * kThreads < left; }

    __device__ __forceinline__ int find_skew(const Element* row) const { return find_shift(row + first, 4); }

    // Which words there are is compared anew from here on: there are not as many predicates.
    __device__ __forceinline__ void forget_places() { asm volatile("" : "+r"(left)); }

    // So many of the lane's words of a row as they lie in memory, with a skew in two halves, of which join() makes one: nothing is looked
    // at before. Zeros past the last one.
    template <int kCount>
    __device__ __forceinline__ void load(const Element* row, int skew, std::uint32_t (&low)[kCount], std::uint32_t (&high)[kCount],
                                         int from = 0) const {
        const auto* const at = reinterpret_cast<const std::uint32_t*>(row + (begin - skew));
#pragma unroll
        for (int w = 0; w < kCount; ++w) {
            low[w] = high[w] = 0;
            if (is_there(from + w)) low[w] = at[(from + w) * kThreads];
        }
        if (skew == 0) return;
#pragma unroll
        for (int w = 0; w < kCount; ++w) {
            if (is_there(from + w)) high[w] = at[(from + w) * kThreads + 1];
        }
    }

    __device__ static __forceinline__ std::uint32_t join(int skew, std::uint32_t low, std::uint32_t high) {
        return __funnelshift_r(low, high, skew * 16);
    }

    // With a skew, by elements.
    __device__ __forceinline__ void store(Element* row, int skew, int word, std::uint32_t pair) const {
        Element* const at = row + begin + word * (2 * kThreads);
        if (!is_there(word)) return;
        if (skew == 0) {
            *reinterpret_cast<std::uint32_t*>(at) = pair;
        } else {
            at[0].bits = static_cast<std::uint16_t>(pair);
            at[1].bits = static_cast<std::uint16_t>(pair >> 16);
        }
    }
};

// Threads of a multiprocessor, of as many registers that nothing is kept in local memory.
template <bool kIsCentred, int kElems, bool kIsAlike>
constexpr int count_resident_threads() {
    constexpr bool kIsLong = kElems > 16;
    if (kIsAlike && kIsLong) return 768;
    const int most = kIsAlike ? 1152 : kIsLong ? 640 : 896;
    return kIsCentred ? most - 128 : most;
}

// kThreads lanes per row, kRows rows per block. kIsAlike: rows of all matrices, but not the vectors, begin alike behind boundaries of a
// word.
template <bool kIsCentred, class Element, int kThreads, int kRows, int kElems, bool kIsAlike>
__global__ void __launch_bounds__(kThreads* kRows, count_resident_threads<kIsCentred, kElems, kIsAlike>() / (kThreads * kRows))
    norm_words(const Norm<Element> p) {
    using Span = WordSpan<Element, kThreads, kElems>;
    constexpr int kWords = Span::kWords;
    const RowGroup<kThreads, kRows> group;
    const NormRow<Element> at(p, group.find_source(p.rows));
    const bool is_real = group.is_real(p.rows), has_sum = at.residual != nullptr;
    const Element* const others[] = {p.weight, kIsCentred ? p.bias : nullptr, kIsAlike ? nullptr : at.x, kIsAlike ? nullptr : at.residual};
    Span span(static_cast<int>(p.columns), group.rank, has_sum ? at.sum : at.y, others);
    const auto find_skew = [&](const Element* row) { return kIsAlike ? 0 : span.find_skew(row); };
    const int x_skew = find_skew(at.x), residual_skew = find_skew(at.residual), y_skew = find_skew(at.y);
    const int weight_skew = span.find_skew(p.weight), edge = span.edge;
    const bool has_edge = edge >= 0;

    // Of the first kBatch words all that is read is under way before the first is looked at; there are no registers for more than x of all.
    constexpr int kBatch = kWords < 8 ? kWords : 8;
    using Batch = std::uint32_t[kBatch];
    std::uint32_t values[kWords], values_high[kWords];
    Batch residual, residual_high, weight, weight_high, bias = {}, bias_high = {};
    Element edge_x = {}, edge_residual = {}, edge_weight = {}, edge_bias = {};
    span.load(at.x, x_skew, values, values_high);
    if (has_edge) edge_x = at.x[edge];
    span.forget_places();
    if (has_sum) {
        span.load(at.residual, residual_skew, residual, residual_high);
        if (has_edge) edge_residual = at.residual[edge];
        span.forget_places();
    }
    span.load(p.weight, weight_skew, weight, weight_high);
    if (has_edge) edge_weight = p.weight[edge];
    if (kWords > kBatch) prefetch_vector(p.weight, static_cast<int>(p.columns), group);
    if (kIsCentred && p.bias != nullptr) {
        prefetch_vector(p.bias, static_cast<int>(p.columns), group);
        if (has_edge) edge_bias = p.bias[edge];
    }
    span.forget_places();

#pragma unroll
    for (int w = 0; w < kWords; ++w) values[w] = Span::join(x_skew, values[w], values_high[w]);
    float last = to_float(edge_x);
    if (has_sum) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
            if (w > 0 && w % kBatch == 0) span.load(at.residual, residual_skew, residual, residual_high, w);
            const float2 x = unpack_pair<Element>(values[w]);
            const float2 added = unpack_pair<Element>(Span::join(residual_skew, residual[w % kBatch], residual_high[w % kBatch]));
            values[w] = pack_pair<Element>(x.x + added.x, x.y + added.y);
            if (is_real) span.store(at.sum, 0, w, values[w]);
        }
        last = round_to<Element>(last + to_float(edge_residual));
        if (is_real && has_edge) at.sum[edge] = from_float<Element>(last);
    }

    span.forget_places();
    float mean = 0.0f, squares = 0.0f;
    if constexpr (kIsCentred) {
        mean = last;
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
            const float2 pair = unpack_pair<Element>(values[w]);
            mean += pair.x + pair.y;
        }
        mean = find_mean(group.reduce_sum(mean, nullptr), p.columns);
    }
    if (has_edge) squares = (last - mean) * (last - mean);
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
        forget(values[w]);
        const float2 pair = unpack_pair<Element>(values[w]);
        const float sum = fmaf(pair.x - mean, pair.x - mean, fmaf(pair.y - mean, pair.y - mean, squares));
        if (!kIsCentred || span.is_there(w)) squares = sum;  // the zeros past a row are no differences
    }
    const float rstd = find_rstd(group.reduce_sum(squares, nullptr), p.columns, p.eps);
    if (!is_real) return;

    const bool has_bias = kIsCentred && p.bias != nullptr;
    const int bias_skew = has_bias ? span.find_skew(p.bias) : 0;
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
        if (w > 0 && w % kBatch == 0) span.load(p.weight, weight_skew, weight, weight_high, w);
        if (w % kBatch == 0 && has_bias) span.load(p.bias, bias_skew, bias, bias_high, w);
        forget(values[w]);
        const float2 pair = unpack_pair<Element>(values[w]);
        const float2 factors = unpack_pair<Element>(Span::join(weight_skew, weight[w % kBatch], weight_high[w % kBatch]));
        float2 added = {0.0f, 0.0f};
        if constexpr (kIsCentred) added = unpack_pair<Element>(Span::join(bias_skew, bias[w % kBatch], bias_high[w % kBatch]));
        const float low = fmaf((pair.x - mean) * rstd, factors.x, added.x), high = fmaf((pair.y - mean) * rstd, factors.y, added.y);
        span.store(at.y, y_skew, w, pack_pair<Element>(low, high));
    }
    if (has_edge) at.y[edge] = from_float<Element>(fmaf((last - mean) * rstd, to_float(edge_weight), to_float(edge_bias)));
    if (group.rank == 0) write_statistics(p, group.row, mean, rstd);
}

// The same of fp32, whose words are elements: a warp keeps kTogether rows, of at most kWords words a lane, which share weights and biases.
// All that is read is under way before the first is looked at, but for the vectors of the longest rows. Every lane has the first kSure
// words.
template <bool kIsCentred, int kWords, int kSure, int kTogether, int kWarps>
__global__ void __launch_bounds__(kWarps* kWarpSize, (kWords >= 16 && kWords * kTogether >= 32 ? 384 : 512) / (kWarps * kWarpSize))
    norm_word_rows(const Norm<float> p) {
    using Words = float[kWords];
    constexpr bool kIsEarly = kWords <= 16;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize, columns = static_cast<int>(p.columns), left = columns - lane;
    const std::int64_t first = (static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarpSize) * kTogether;
    const bool has_residual = p.residual != nullptr, has_bias = kIsCentred && p.bias != nullptr;
    const auto is_real = [&](int t) { return first + t < p.rows; };
    const auto find_row = [&](int t) { return is_real(t) ? first + t : p.rows - 1; };
    const auto is_there = [&](int w) { return w < kSure || w * kWarpSize < left; };
    // Zeros past the row.
    const auto load = [&](const float* row, Words& words) {
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
            if (w >= kSure) words[w] = 0.0f;
            if (is_there(w)) words[w] = row[w * kWarpSize + lane];
        }
    };
    const auto load_rows = [&](const float* matrix, std::int64_t stride, Words(&words)[kTogether]) {
#pragma unroll
        for (int t = 0; t < kTogether; ++t) load(matrix + find_row(t) * stride, words[t]);
    };
    Words s[kTogether], weight, bias = {};
    load_rows(p.x, p.ldx, s);
    const auto load_vectors = [&] {
        if constexpr (kIsEarly) {
            load(p.weight, weight);
            if (has_bias) load(p.bias, bias);
        } else {
            const RowGroup<kWarpSize, kWarps> group;
            prefetch_vector(p.weight, columns, group);
            if constexpr (kIsCentred) prefetch_vector(p.bias, columns, group);
        }
    };
    if (has_residual) {
        Words residual[kTogether];
        load_rows(p.residual, p.ldresidual, residual);
        load_vectors();
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
            float* const sum = p.sum + find_row(t) * p.ldsum;
#pragma unroll
            for (int w = 0; w < kWords; ++w) {
                s[t][w] += residual[t][w];
                if (is_there(w) && is_real(t)) sum[w * kWarpSize + lane] = s[t][w];
            }
        }
    } else {
        load_vectors();
    }

    float mean[kTogether] = {}, rstd[kTogether] = {};
    const auto add = [](float a, float b) { return a + b; };
    if constexpr (kIsCentred) {
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
#pragma unroll
            for (const float value : s[t]) mean[t] += value;
        }
        reduce_rows(mean, add);
#pragma unroll
        for (float& each : mean) each = find_mean(each, p.columns);
    }
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
        const bool counts = !kIsCentred || is_there(w);
#pragma unroll
        for (int t = 0; t < kTogether; ++t) {
            const float centred = counts ? s[t][w] - mean[t] : 0.0f;
            rstd[t] = fmaf(centred, centred, rstd[t]);
        }
    }
    reduce_rows(rstd, add);
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
        if (!is_real(t)) return;
        rstd[t] = find_rstd(rstd[t], p.columns, p.eps);
        float* const y = p.y + (first + t) * p.ldy;
#pragma unroll
        for (int w = 0; w < kWords; ++w) {
            const int column = w * kWarpSize + lane;
            if (!is_there(w)) continue;
            const float factor = kIsEarly ? weight[w] : p.weight[column];
            const float added = kIsEarly || !has_bias ? bias[w] : p.bias[column];
            y[column] = fmaf((s[t][w] - mean[t]) * rstd[t], factor, added);
        }
        if (lane == 0) write_statistics(p, first + t, mean[t], rstd[t]);
    }
}

// Calls launch(words, sure), constants, for rows of so many columns, of at most kWords words a lane: as few words as hold them, in steps of
// kStep, but for those of less than half of what there is at most.
template <int kWords, int kStep, int kLeast = kWords / 2 + kStep, class Launch>
AicfStatus choose_words(std::int64_t columns, const Launch& launch) {
    using Words = std::integral_constant<int, kWords>;
    if constexpr (kWords < kLeast) {
        return launch(Words{}, std::integral_constant<int, 0>{});
    } else {
        if (columns > (kWords - kStep) * kWarpSize) return launch(Words{}, std::integral_constant<int, kWords - kStep>{});
        return choose_words<kWords - kStep, kStep, kLeast>(columns, launch);
    }
}

// Whether rows of all matrices begin alike behind boundaries of 4 bytes.
template <class Element>
bool lie_alike_in_words(const Norm<Element>& p) {
    constexpr std::uintptr_t kBytes = sizeof(Element);
    const auto is_alike = [&](const Element* at, std::int64_t stride) {
        return at == nullptr || ((reinterpret_cast<std::uintptr_t>(at) ^ reinterpret_cast<std::uintptr_t>(p.y)) % 4 == 0 &&
                                 (stride - p.ldy) * kBytes % 4 == 0);
    };
    return is_alike(p.x, p.ldx) && is_alike(p.residual, p.ldresidual) && is_alike(p.sum, p.ldsum);
}

}  // namespace aicf

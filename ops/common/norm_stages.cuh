// Layer normalisation and RMS normalisation of long rows by blocks that stay: each takes rows in turn, of which the next are on their way
// to shared memory while one is worked on. Weight and bias lie there too where there is room.
//
// A row's block elsewhere waits for its row, meets for each of its sums, and finds its vectors, which are as long as the row, in L2, where
// they are a third or half of what is read.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/norm.cuh"

namespace aicf {

// What the shared memory of a block holds: rows of x, and of the residual, that are under way or worked on, beside the vectors and, where
// packs begin anywhere, a row that is written.
struct NormStages {
    static constexpr int kMost = 4;
    int stages, blocks;  // blocks of a multiprocessor
    bool keeps_weight, keeps_bias;
    std::int64_t bytes;  // of a block; 0: there is no room for two rows
};

// For at most so many blocks of a multiprocessor. One of several keeps its vectors, or leaves its room to fewer.
template <bool kIsCentred, Access kAccess, class Element>
NormStages find_stages(const Norm<Element>& p, int most_blocks) {
    constexpr std::int64_t kSharedBytes = 228 * 1024, kReservedBytes = 1024 + 512;  // of a multiprocessor; of a block beside its rows
    const bool has_residual = p.residual != nullptr, has_bias = kIsCentred && p.bias != nullptr;
    const std::int64_t row_bytes = find_row_bytes<Element>(p.columns), stage_bytes = (has_residual ? 2 : 1) * row_bytes;
    const std::int64_t least = 2 * stage_bytes + (kAccess == Access::kPacked && has_residual ? row_bytes : 0);
    for (int blocks = most_blocks; blocks > 0; --blocks) {
        const std::int64_t most = kSharedBytes / blocks - kReservedBytes - least;
        std::int64_t left = most;
        const auto keep = [&](bool is_there) {
            const bool is_kept = is_there && left >= row_bytes;
            left -= is_kept ? row_bytes : 0;
            return is_kept;
        };
        const bool keeps_weight = keep(true), keeps_bias = keep(has_bias);
        if (left < 0 || (blocks > 1 && !(keeps_weight && keeps_bias == has_bias))) continue;
        int stages = 2;
        for (; stages < NormStages::kMost && left >= stage_bytes; ++stages) left -= stage_bytes;
        return {stages, blocks, keeps_weight, keeps_bias, least + most - left};
    }
    return {};
}

// The threads of a block, of which every warp adds the sums of all warps by its lanes: to each thread, a chain through 32 warps would be
// more work than its part of a row.
template <int kThreads>
struct StageGroup : RowGroup<kThreads> {
    __device__ float reduce_sum(float value, float* partials) const {
        constexpr int kWarps = kThreads / kWarpSize;
        const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
        value = reduce_warp(value, [](float a, float b) { return a + b; });
        if (lane == 0) partials[threadIdx.x / kWarpSize] = value;
        __syncthreads();
        value = partials[lane % kWarps];
#pragma unroll
        for (int offset = kWarps / 2; offset > 0; offset /= 2) value += shuffle_xor(value, offset);
        return value;
    }
};

// kCount elements, a pack or one: what an access is. Results go to global memory.
template <int kCount, class Element>
__device__ __forceinline__ void read_unit(const Element* from, float (&values)[kCount]) {
    if constexpr (kCount == 1) {
        values[0] = to_float(*from);
    } else {
        const Pack<Element> pack = load_pack(from);
#pragma unroll
        for (int i = 0; i < kCount; ++i) values[i] = pack.values[i];
    }
}

template <int kCount, class Element>
__device__ __forceinline__ Pack<Element> make_pack(const float (&values)[kCount]) {
    Pack<Element> pack;
#pragma unroll
    for (int i = 0; i < kCount; ++i) pack.values[i] = values[i];
    return pack;
}

template <int kCount, class Element>
__device__ __forceinline__ void write_unit(Element* to, const float (&values)[kCount]) {
    if constexpr (kCount == 1) {
        *to = from_float<Element>(values[0]);
    } else {
        store_pack_to_global(to, make_pack<kCount, Element>(values));
    }
}

// The same to shared memory.
template <int kCount, class Element>
__device__ __forceinline__ void keep_unit(Element* to, const float (&values)[kCount]) {
    if constexpr (kCount == 1) {
        *to = from_float<Element>(values[0]);
    } else {
        store_pack(to, make_pack<kCount, Element>(values));
    }
}

// A row of whole packs, or of words that begin anywhere, which is `kept` in shared memory, as is the residual's.
template <bool kIsCentred, int kUnit, class Element, class Group>
__device__ __forceinline__ void normalise_units(const Norm<Element>& p, const Group& group, const NormRow<Element>& at, Element* kept,
                                                const Element* residual, float (&partials)[2][Group::kPartials]) {
    constexpr int kStep = Group::kTotalThreads * kUnit;
    const int columns = static_cast<int>(p.columns), begin = group.rank * kUnit;
    using Unit = float[kUnit];
    float mean = 0.0f, squares = 0.0f;
    if (at.residual != nullptr) {
#pragma unroll 2
        for (int column = begin; column < columns; column += kStep) {
            Unit s, added;
            read_unit(kept + column, s);
            read_unit(residual + column, added);
#pragma unroll
            for (int i = 0; i < kUnit; ++i) s[i] = round_to<Element>(s[i] + added[i]);
            write_unit(at.sum + column, s);
            keep_unit(kept + column, s);
#pragma unroll
            for (const float value : s) mean += value;
        }
    } else if constexpr (kIsCentred) {
#pragma unroll 4
        for (int column = begin; column < columns; column += kStep) {
            Unit s;
            read_unit(kept + column, s);
#pragma unroll
            for (const float value : s) mean += value;
        }
    }
    mean = kIsCentred ? find_mean(group.reduce_sum(mean, partials[0]), p.columns) : 0.0f;
#pragma unroll 4
    for (int column = begin; column < columns; column += kStep) {
        Unit s;
        read_unit(kept + column, s);
#pragma unroll
        for (const float value : s) squares = fmaf(value - mean, value - mean, squares);
    }
    const float rstd = find_rstd(group.reduce_sum(squares, partials[1]), p.columns, p.eps);
    const bool has_bias = kIsCentred && p.bias != nullptr;
#pragma unroll 2
    for (int column = begin; column < columns; column += kStep) {
        Unit s, weight, bias = {};
        read_unit(kept + column, s);
        read_unit(p.weight + column, weight);
        if (has_bias) read_unit(p.bias + column, bias);
#pragma unroll
        for (int i = 0; i < kUnit; ++i) s[i] = fmaf((s[i] - mean) * rstd, weight[i], bias[i]);
        write_unit(at.y + column, s);
    }
    if (group.rank == 0) write_statistics(p, group.row, mean, rstd);
}

// A row of 16 bits that begins anywhere, of which shared memory has packs that are whole: those that are whole in every matrix, and an
// element of its edges for each lane of the last warp. Sums, and results that lie otherwise than these, go through `scratch`, shared.
template <bool kIsCentred, class Element, class Group>
__device__ __forceinline__ void normalise_packs(const Norm<Element>& p, const Group& group, const NormRow<Element>& at, const Element* kept,
                                                const Element* residual, Element* scratch, float (&partials)[2][Group::kPartials]) {
    constexpr int kElems = kPackElems<Element>, kThreads = Group::kTotalThreads;
    using Span = InnerSpan<Element, kThreads, kElems>;
    const int columns = static_cast<int>(p.columns);
    const bool has_sum = at.sum != nullptr, has_bias = kIsCentred && p.bias != nullptr;
    constexpr std::integral_constant<int, 2> kByTwos;
    constexpr std::integral_constant<int, 1> kOneByOne;
    const auto visit = [&](const Span& span, auto together, const auto& call) {
        constexpr int kTogether = together.value;
#pragma unroll kTogether
        for (int column = span.find_column(0, 0); column < span.columns; column += kThreads * kElems) call(column);
    };
    const Element* const others[] = {kept, has_sum ? residual : nullptr, p.weight, has_bias ? p.bias : nullptr};
    const Span span(columns, group.rank, has_sum ? at.sum : at.y, others);
    const int edge = span.edge, kept_skew = span.find_skew(kept);
    float last = edge >= 0 ? to_float(at.x[edge]) : 0.0f, mean = 0.0f, squares = 0.0f;

    const auto finish_mean = [&](float sum) { return kIsCentred ? find_mean(group.reduce_sum(sum, partials[0]), p.columns) : 0.0f; };
    const auto add_squares = [&](const Element* from) {
        const Pack<Element> pack = load_pack(from);
#pragma unroll
        for (const float value : pack.values) squares = fmaf(value - mean, value - mean, squares);
    };
    const auto add_all = [&](const Pack<Element>& pack) {
#pragma unroll
        for (const float value : pack.values) mean += value;
    };
    if (has_sum) {
        const int residual_skew = span.find_skew(residual);
        visit(span, kByTwos, [&](int column) {
            const Pack<Element> x = load_pack_skewed(kept + column, kept_skew);
            const uint4 words = pack_words(add_packs(x, load_pack_skewed(residual + column, residual_skew)));
            const Pack<Element> sum = unpack<Element>(words);
            store_pack_to_global(at.sum + column, sum);
            *reinterpret_cast<uint4*>(scratch + column) = words;
            add_all(sum);
        });
        if (edge >= 0) {
            last = round_to<Element>(last + to_float(at.residual[edge]));
            at.sum[edge] = from_float<Element>(last);
        }
        mean = finish_mean(mean + last);
        visit(span, kByTwos, [&](int column) { add_squares(scratch + column); });
        if (edge >= 0) squares = fmaf(last - mean, last - mean, squares);
    } else {
        // Statistics take the packs of x as they lie, with edges of their own.
        const Element* const none[] = {nullptr};
        const Span own(columns, group.rank, kept, none);
        const float own_last = own.edge >= 0 ? to_float(at.x[own.edge]) : 0.0f;
        if constexpr (kIsCentred) visit(own, kByTwos, [&](int column) { add_all(load_pack(kept + column)); });
        mean = finish_mean(mean + own_last);
        visit(own, kByTwos, [&](int column) { add_squares(kept + column); });
        if (own.edge >= 0) squares = fmaf(own_last - mean, own_last - mean, squares);
    }
    const float rstd = find_rstd(group.reduce_sum(squares, partials[1]), p.columns, p.eps);

    const Element* const s = has_sum ? scratch : kept;
    const int skew = has_sum ? 0 : kept_skew;
    const int weight_skew = span.find_skew(p.weight), bias_skew = span.find_skew(p.bias), y_skew = span.find_skew(at.y);
    visit(span, kOneByOne, [&](int column) {
        Pack<Element> pack = load_pack_skewed(s + column, skew);
        const Pack<Element> weight = load_pack_skewed(p.weight + column, weight_skew);
        Pack<Element> bias = {};
        if (has_bias) bias = load_pack_skewed(p.bias + column, bias_skew);
        normalise_pack(pack, mean, rstd, weight, bias);
        if (y_skew == 0) {
            store_pack_to_global(at.y + column, pack);
        } else {
            store_pack(scratch + column, pack);
        }
    });
    if (edge >= 0) {
        const float bias = has_bias ? to_float(p.bias[edge]) : 0.0f;
        const Element result = from_float<Element>(fmaf((last - mean) * rstd, to_float(p.weight[edge]), bias));
        if (y_skew == 0) {
            at.y[edge] = result;
        } else {
            scratch[edge] = result;
        }
    }
    if (group.rank == 0) write_statistics(p, group.row, mean, rstd);
    if (y_skew == 0) return;
    __syncthreads();
    const Element* const from[] = {scratch};
    const Span out(columns, group.rank, at.y, from);
    const int out_skew = out.find_skew(scratch);
    visit(out, kByTwos, [&](int column) { store_pack_to_global(at.y + column, load_pack_skewed(scratch + column, out_skew)); });
    if (out.edge >= 0) at.y[out.edge] = scratch[out.edge];
}

// kThreads threads a block.
template <bool kIsCentred, class Element, int kThreads, Access kAccess>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) norm_stages(const Norm<Element> given, const NormStages plan) {
    using Group = StageGroup<kThreads>;
    static_assert(kAccess != Access::kByElement || sizeof(Element) == 4, "edges of 16 bits are read by what knows of them");
    extern __shared__ __align__(16) unsigned char shared[];
    __shared__ float partials[2][Group::kPartials];
    Norm<Element> p = given;
    Group group;
    const int columns = static_cast<int>(p.columns), row_bytes = static_cast<int>(find_row_bytes<Element>(p.columns));
    const bool has_residual = p.residual != nullptr;
    unsigned char* stages = shared;
    const auto place = [&](unsigned char* at, const Element* row) { return reinterpret_cast<Element*>(at) + find_shift(row, 16); };
    const auto keep = [&](const Element*& vector) {
        Element* const kept = place(stages, vector);
        begin_row<kThreads>(vector, columns, kept);
        vector = kept;
        stages += row_bytes;
    };
    if (plan.keeps_weight) keep(p.weight);
    if (plan.keeps_bias) keep(p.bias);
    unsigned char* const scratch = stages;
    if (kAccess == Access::kPacked && has_residual) stages += row_bytes;

    const int stage_bytes = has_residual ? 2 * row_bytes : row_bytes, ahead = plan.stages - 1;
    const auto begin = [&](std::int64_t row, int stage) {
        if (row < p.rows) {
            const NormRow<Element> at(p, row);
            unsigned char* const to = stages + stage * stage_bytes;
            begin_packs<kThreads>(at.x, columns, place(to, at.x));
            if (has_residual) begin_packs<kThreads>(at.residual, columns, place(to + row_bytes, at.residual));
        }
        commit_copies();  // of a row that is not there, too: they are counted
    };
    for (int stage = 0; stage < ahead; ++stage) begin(group.row + static_cast<std::int64_t>(stage) * gridDim.x, stage);
    for (int stage = 0; group.row < p.rows; group.row += gridDim.x) {
        switch (ahead) {
            case 1: wait_copies<0>(); break;
            case 2: wait_copies<1>(); break;
            default: wait_copies<NormStages::kMost - 2>();
        }
        __syncthreads();  // the row is there for all, and the stage of the one before has been read
        begin(group.row + static_cast<std::int64_t>(ahead) * gridDim.x, stage == 0 ? ahead : stage - 1);
        const NormRow<Element> at(p, group.row);
        unsigned char* const from = stages + stage * stage_bytes;
        Element *const kept = place(from, at.x), *const residual = place(from + row_bytes, at.residual);
        if constexpr (kAccess == Access::kPacked) {
            normalise_packs<kIsCentred>(p, group, at, kept, residual, place(scratch, at.sum), partials);
        } else {
            normalise_units<kIsCentred, kAccess == Access::kWhole ? kPackElems<Element> : 1>(p, group, at, kept, residual, partials);
        }
        stage = stage == ahead ? 0 : stage + 1;
    }
}

}  // namespace aicf

// Gradients of layer normalisation and RMS normalisation of few rows, in one launch: some blocks take rows, for dx, and others beside them
// columns of all rows, for dweight and dbias. Nothing waits for a partial sum, at the price of reading x and dy twice.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/norm_backward.cuh"

namespace aicf {

// What a row's thread reads of a matrix, as it lies in memory: nothing is looked at before all is under way. kIsWhole: of rows of whole
// packs.
template <class Element, int kThreads, int kElems, bool kIsWhole>
struct RawRow {
    using Span = RowSpan<Element, kThreads, kElems, kIsWhole>;
    std::conditional_t<kIsWhole, uint4[Span::kChunks], Element[kElems]> raw;

    // Zeros past the row, and of one that is null.
    __device__ __forceinline__ void load(const Span& span, const Element* row) {
        if constexpr (kIsWhole) {
#pragma unroll
            for (uint4& words : raw) words = {0, 0, 0, 0};
            if (row != nullptr) span.load_all_words(row, raw);
        } else {
            const Element* const at = row == nullptr ? nullptr : compute_here(row + span.rank);
#pragma unroll
            for (int i = 0; i < kElems; ++i) {
                raw[i] = {};
                if (row != nullptr && span.rank + i * kThreads < span.columns) raw[i] = at[i * kThreads];
            }
        }
    }

    __device__ __forceinline__ Pack<Element> unpack_chunk(int chunk) const {
        if constexpr (kIsWhole) {
            return unpack<Element>(raw[chunk]);
        } else {
            Pack<Element> pack;
#pragma unroll
            for (int i = 0; i < Span::kChunkElems; ++i) pack.values[i] = to_float(raw[chunk * Span::kChunkElems + i]);
            return pack;
        }
    }
};

// dx of a group's row, where the block is number `block` of those that take rows.
template <bool kIsCentred, class Element, int kThreads, int kRows, int kElems, bool kIsWhole>
__device__ __forceinline__ void find_row_slopes(const NormGradient<Element>& p, int block) {
    using Group = RowGroup<kThreads, kRows>;
    using Row = RawRow<Element, kThreads, kElems, kIsWhole>;
    using Span = typename Row::Span;
    __shared__ NormSums partials[Group::kPartials];
    Group group;
    group.row += (static_cast<std::int64_t>(block) - blockIdx.x) * kRows;
    const NormGradientRow<Element> at(p, group.find_source(p.rows));
    const Span span = {static_cast<int>(p.columns), group.rank, kIsWhole};
    Row dy, x, weight, dsum;
    dy.load(span, at.dy);
    x.load(span, at.x);
    weight.load(span, p.weight);
    dsum.load(span, at.dsum);
    NormSums sums;
    const auto visit = [&](const auto& call) {
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
            if (!span.is_there(c)) continue;
            const Pack<Element> dys = dy.unpack_chunk(c), xs = x.unpack_chunk(c), weights = weight.unpack_chunk(c);
#pragma unroll
            for (int i = 0; i < Span::kChunkElems; ++i) call(c, i, dys.values[i] * weights.values[i], at.normalise(xs.values[i]));
        }
    };
    visit([&](int, int, float g, float n) { sums.add(g, n); });
    sums = reduce_sums<kIsCentred>(group, sums, partials);
    if (!group.is_real(p.rows)) return;
    const NormSums means = find_means<kIsCentred>(sums, p.columns);
    Pack<Element> dx;
    visit([&](int c, int i, float g, float n) {
        if (i == 0) dx = dsum.unpack_chunk(c);
        dx.values[i] += find_slope(g, n, means, at.rstd);
        if (i == Span::kChunkElems - 1) span.store(at.dx, c, dx);
    });
}

// dweight and dbias of the columns that the block of the number `block` takes, of all rows: 32 bytes of a row, or 8 elements where those
// are no packs.
template <bool kIsCentred, class Element, int kBlockThreads, bool kIsWhole>
struct ColumnSums {
    static constexpr int kElems = kIsWhole ? kPackElems<Element> : 1, kAcross = kIsWhole ? 2 : 8;  // of a thread; threads of a row
    static constexpr int kColumns = kElems * kAcross, kLanes = kBlockThreads / kAcross, kTogether = kIsWhole ? 4 : 8;
    static constexpr int kSums = kNumSums<kIsCentred> * kElems;  // of a thread: all of dweight, then all of dbias

    __device__ static __forceinline__ void compute(const NormGradient<Element>& p, int block) {
        const int across = static_cast<int>(threadIdx.x) % kAcross, lane = static_cast<int>(threadIdx.x) / kAcross;
        const int first = block * kColumns, column = first + across * kElems;
        const int rows = static_cast<int>(p.rows), columns = static_cast<int>(p.columns);
        using Word = std::conditional_t<kIsWhole, uint4, Element>;
        float totals[kSums] = {};
        for (int begin = lane; begin < rows && column < columns; begin += kLanes * kTogether) {
            Word dys[kTogether] = {}, xs[kTogether] = {};
            float means[kTogether] = {}, rstds[kTogether] = {};
#pragma unroll
            for (int u = 0; u < kTogether; ++u) {
                const int row = begin + u * kLanes;
                if (row >= rows) continue;
                dys[u] = *reinterpret_cast<const Word*>(p.dy + row * p.lddy + column);
                xs[u] = *reinterpret_cast<const Word*>(p.x + row * p.ldx + column);
                if (p.mean != nullptr) means[u] = p.mean[row];
                rstds[u] = p.rstd[row];
            }
#pragma unroll
            for (int u = 0; u < kTogether; ++u) {
                float dy[kElems], x[kElems];
                if constexpr (kIsWhole) {
                    const Pack<Element> dy_pack = unpack<Element>(dys[u]), x_pack = unpack<Element>(xs[u]);
#pragma unroll
                    for (int i = 0; i < kElems; ++i) dy[i] = dy_pack.values[i], x[i] = x_pack.values[i];
                } else {
                    dy[0] = to_float(dys[u]), x[0] = to_float(xs[u]);
                }
#pragma unroll
                for (int i = 0; i < kElems; ++i) {
                    totals[i] = fmaf(dy[i], (x[i] - means[u]) * rstds[u], totals[i]);
                    if constexpr (kIsCentred) totals[kElems + i] += dy[i];
                }
            }
        }
        add_up(p, totals, first);
    }

private:
    __device__ static __forceinline__ void add_up(const NormGradient<Element>& p, float (&totals)[kSums], int first) {
        constexpr int kWarps = kBlockThreads / kWarpSize, kApart = kWarpSize / kSums;  // lanes with the same sum
        __shared__ float shared[kWarps][kSums * kAcross];
        const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
        const float total = reduce_apart<kAcross>(totals, [](float a, float b) { return a + b; });
        if (lane % kApart < kAcross) shared[warp][lane / kApart * kAcross + lane % kAcross] = total;
        __syncthreads();
        const int place = static_cast<int>(threadIdx.x), which = place / kAcross;
        if (place >= kSums * kAcross) return;
        float sum = shared[0][place];
#pragma unroll
        for (int other = 1; other < kWarps; ++other) sum += shared[other][place];
        const int column = first + place % kAcross * kElems + which % kElems;
        Element* const target = which < kElems ? p.dweight : p.dbias;
        if (column < p.columns && target != nullptr) target[column] = from_float<Element>(sum);
    }
};

// Blocks of 256 threads on a multiprocessor at least, of as many registers that nothing is kept in local memory.
template <class Element, int kElems, bool kIsWhole>
constexpr int find_resident_beside() {
    constexpr int kBytes = kElems * static_cast<int>(sizeof(Element));
    if (!kIsWhole || kBytes > 64) return 1;
    return kBytes > 32 ? 2 : 3;
}

// kThreads threads per row, kRows rows a block; the first column_blocks blocks take columns instead: they are longer on their way.
template <bool kIsCentred, class Element, int kThreads, int kRows, int kElems, bool kIsWhole>
__global__ void __launch_bounds__(kThreads* kRows, find_resident_beside<Element, kElems, kIsWhole>())
    norm_backward_beside(const NormGradient<Element> p, int column_blocks) {
    const int block = static_cast<int>(blockIdx.x);
    if (block < column_blocks) {
        ColumnSums<kIsCentred, Element, kThreads * kRows, kIsWhole>::compute(p, block);
    } else {
        find_row_slopes<kIsCentred, Element, kThreads, kRows, kElems, kIsWhole>(p, block - column_blocks);
    }
}

}  // namespace aicf

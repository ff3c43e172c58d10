// Gradients of layer normalisation and RMS normalisation: the kernels that both ops share.
//
//     n = (x - mean) * rstd,   g = dy * weight,   mean = 0 for RMS normalisation
//     dx      = rstd * (g - mean_j(g) - n * mean_j(g * n)) + dsum      without mean_j(g) for RMS normalisation
//     dweight = sum over rows of dy * n,   dbias = sum over rows of dy
//
// The sums over rows are made in two steps, each in a fixed order: partial sums of some rows into the workspace, then the sums of those.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/compute_here.cuh"
#include "common/programmatic.cuh"
#include "common/rows.cuh"

namespace aicf {

// Row-major [rows, columns] with row strides, where x is what was normalised; null where a tensor is absent.
template <class Element>
struct NormGradient {
    const Element *dy, *x, *weight, *dsum;
    const float *mean, *rstd;  // [rows]
    Element *dx, *dweight, *dbias;
    std::int64_t rows, columns, lddy, ldx, lddsum, lddx;
    float* partials;  // [kNumSums, num_partials, columns]
    int num_partials;
};

template <class Element>
struct NormGradientRow {
    const Element *dy, *x, *dsum;
    Element* dx;
    float mean, rstd;

    __device__ __forceinline__ NormGradientRow(const NormGradient<Element>& p, std::int64_t row)
        : dy(p.dy + row * p.lddy),
          x(p.x + row * p.ldx),
          dsum(p.dsum == nullptr ? nullptr : p.dsum + row * p.lddsum),
          dx(p.dx + row * p.lddx),
          mean(p.mean == nullptr ? 0.0f : p.mean[row]),
          rstd(p.rstd[row]) {}

    __device__ __forceinline__ float normalise(float value) const { return (value - mean) * rstd; }
};

// The sums of g and of g * n over a part of a row.
struct NormSums {
    float g = 0.0f, gn = 0.0f;

    __device__ __forceinline__ void add(float gradient, float n) {
        g += gradient;
        gn = fmaf(gradient, n, gn);
    }
};

__device__ __forceinline__ NormSums combine(NormSums a, NormSums b) { return {a.g + b.g, a.gn + b.gn}; }

__device__ __forceinline__ NormSums shuffle_xor(NormSums value, int offset) {
    return {shuffle_xor(value.g, offset), shuffle_xor(value.gn, offset)};
}

// Those of a group's threads; RMS normalisation has no use for the sum of g.
template <bool kIsCentred, class Group>
__device__ __forceinline__ NormSums reduce_sums(Group& group, NormSums sums, NormSums* partials) {
    if constexpr (kIsCentred) return group.reduce(sums, partials, [](NormSums a, NormSums b) { return combine(a, b); });
    return {0.0f, group.reduce_sum(sums.gn, &partials->g)};
}

// dweight, and dbias where there is one.
template <bool kIsCentred>
inline constexpr int kNumSums = kIsCentred ? 2 : 1;

// Means of g (0 for RMS normalisation) and of g * n.
template <bool kIsCentred>
__device__ __forceinline__ NormSums find_means(NormSums sums, std::int64_t columns) {
    return {kIsCentred ? sums.g / static_cast<float>(columns) : 0.0f, sums.gn / static_cast<float>(columns)};
}

__device__ __forceinline__ float find_slope(float g, float n, NormSums means, float rstd) { return (g - means.g - n * means.gn) * rstd; }

// dx: a thread per row, one pass for the sums and one for the result.
template <bool kIsCentred, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_naive(const NormGradient<Element> p) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= p.rows) return;
    const NormGradientRow<Element> at(p, row);
    NormSums sums;
    for (std::int64_t j = 0; j < p.columns; ++j) sums.add(to_float(at.dy[j]) * to_float(p.weight[j]), at.normalise(to_float(at.x[j])));
    const NormSums means = find_means<kIsCentred>(sums, p.columns);
    for (std::int64_t j = 0; j < p.columns; ++j) {
        const float slope = find_slope(to_float(at.dy[j]) * to_float(p.weight[j]), at.normalise(to_float(at.x[j])), means, at.rstd);
        at.dx[j] = from_float<Element>(slope + (at.dsum == nullptr ? 0.0f : to_float(at.dsum[j])));
    }
}

// dweight and dbias: a thread per column.
template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_columns_naive(const NormGradient<Element> p) {
    const std::int64_t j = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (j >= p.columns) return;
    float dweight = 0.0f, dbias = 0.0f;
    for (std::int64_t row = 0; row < p.rows; ++row) {
        const NormGradientRow<Element> at(p, row);
        dweight += to_float(at.dy[j]) * at.normalise(to_float(at.x[j]));
        dbias += to_float(at.dy[j]);
    }
    p.dweight[j] = from_float<Element>(dweight);
    if (p.dbias != nullptr) p.dbias[j] = from_float<Element>(dbias);
}

// Packs of rows of several matrices, of which some may be null.
template <Access kAccess, class Span, class Element, int kMatrices, bool kIsWholePack>
__device__ __forceinline__ void load_packs(const Span& span, const Element* const (&rows)[kMatrices], const int (&skews)[kMatrices],
                                           int chunk, std::bool_constant<kIsWholePack> is_whole, Pack<Element> (&packs)[kMatrices]) {
    if constexpr (kAccess == Access::kByElement) {
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) packs[m] = rows[m] == nullptr ? Pack<Element>{} : span.load(rows[m], chunk, 0.0f);
    } else {
        uint4 words[kMatrices][1];
        span.load_rows(rows, skews, words, chunk, is_whole);
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) packs[m] = unpack<Element>(words[m][0]);
    }
}

// dx: a block or a cluster (Group: RowGroup or RowCluster) per row of any length, which is read twice, the second time mostly from L2.
template <bool kIsCentred, class Element, int kThreads, class Group, Access kAccess>
__global__ void __launch_bounds__(kThreads) norm_backward_passes(const NormGradient<Element> p) {
    using Span = RowSpan<Element, Group::kTotalThreads, kPackElems<Element>, kAccess == Access::kWhole>;
    __shared__ NormSums partials[Group::kPartials];
    const Group group;
    allow_successor();
    const NormGradientRow<Element> at(p, group.row);
    const Span span = make_span<Span, kAccess>(static_cast<int>(p.columns), group.rank, at.dx);
    const Element* const rows[4] = {at.dy, at.x, p.weight, at.dsum};
    const Element* const summed[3] = {at.dy, at.x, p.weight};
    const int skews[4] = {span.find_skew(at.dy), span.find_skew(at.x), span.find_skew(p.weight),
                          at.dsum == nullptr ? 0 : span.find_skew(at.dsum)};
    const int summed_skews[3] = {skews[0], skews[1], skews[2]};
    const bool has_skews = (skews[0] | skews[1] | skews[2] | skews[3]) != 0;
    NormSums sums;
    span.template visit_split<2>(has_skews, [&](int c, auto is_whole) {
        Pack<Element> packs[3];
        load_packs<kAccess>(span, summed, summed_skews, c, is_whole, packs);
        const Pack<Element>&dy = packs[0], &x = packs[1], &weight = packs[2];
#pragma unroll
        for (int i = 0; i < kPackElems<Element>; ++i) sums.add(dy.values[i] * weight.values[i], at.normalise(x.values[i]));
    });
    sums = reduce_sums<kIsCentred>(group, sums, partials);
    const NormSums means = find_means<kIsCentred>(sums, p.columns);
    span.template visit_split<2>(has_skews, [&](int c, auto is_whole) {
        Pack<Element> packs[4];
        load_packs<kAccess>(span, rows, skews, c, is_whole, packs);
        const Pack<Element>&dy = packs[0], &x = packs[1], &weight = packs[2];
        Pack<Element>& dx = packs[3];
#pragma unroll
        for (int i = 0; i < kPackElems<Element>; ++i) {
            dx.values[i] += find_slope(dy.values[i] * weight.values[i], at.normalise(x.values[i]), means, at.rstd);
        }
        span.store(at.dx, c, dx, is_whole);
    });
}

inline constexpr int kColumnWidth = 32;

// How many partial sums of each column there are: as many slabs of rows as give `blocks` multiprocessors eight blocks each, since every
// slab costs a row of sums, and no more than there are groups of slab_rows rows.
inline std::int64_t count_slabs(std::int64_t rows, std::int64_t columns, std::int64_t slab_rows, std::int64_t blocks) {
    const std::int64_t wanted = 8 * blocks / ((columns + kColumnWidth * 4 - 1) / (kColumnWidth * 4));
    return std::max<std::int64_t>(1, std::min(std::min((rows + slab_rows - 1) / slab_rows, blocks), wanted));
}

// Sums over a slab of rows: a block takes kColumnWidth chunks of columns by 16 bytes, and every num_partials-th group of rows, in order.
// They are the result where there is one slab. A thread has the same columns of all rows, wherever those begin. Launch it with
// launch_early() behind norm_backward_passes: it reads what that reads, beside it.
template <bool kIsCentred, class Element, int kThreads, Access kAccess>
__global__ void __launch_bounds__(kThreads) norm_backward_columns(const NormGradient<Element> p) {
    using Span = RowSpan<Element, kColumnWidth, kPackElems<Element>, kAccess == Access::kWhole>;
    constexpr int kLanes = kThreads / kColumnWidth, kElems = kPackElems<Element>;
    __shared__ float shared[kLanes][kColumnWidth * kElems + 1];
    const int place = static_cast<int>(threadIdx.x) % kColumnWidth, lane = static_cast<int>(threadIdx.x) / kColumnWidth;
    const int chunk = static_cast<int>(blockIdx.x), first = chunk * kColumnWidth * kElems;
    const Span span = {static_cast<int>(p.columns), place, kAccess != Access::kByElement};
    float dweight[kElems] = {}, dbias[kElems] = {};
#pragma unroll 4
    for (std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kLanes + lane; row < p.rows; row += std::int64_t{kLanes} * gridDim.y) {
        const NormGradientRow<Element> at(p, row);
        const Element* const rows[2] = {at.dy, at.x};
        const int skews[2] = {span.find_skew(at.dy), span.find_skew(at.x)};
        Pack<Element> packs[2];
        load_packs<kAccess>(span, rows, skews, chunk, std::false_type{}, packs);
        const Pack<Element>&dy = packs[0], &x = packs[1];
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            dweight[i] = fmaf(dy.values[i], at.normalise(x.values[i]), dweight[i]);
            dbias[i] += dy.values[i];
        }
    }
    wait_for_predecessor();
    allow_successor();
#pragma unroll
    for (int which = 0; which < kNumSums<kIsCentred>; ++which) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kElems; ++i) shared[lane][span.find_column(chunk, i) - first] = which == 0 ? dweight[i] : dbias[i];
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < kColumnWidth * kElems; i += kThreads) {
            const int at = first + i;
            float sum = shared[0][i];
            for (int other = 1; other < kLanes; ++other) sum += shared[other][i];
            if (at >= p.columns) continue;
            if (p.num_partials > 1) {
                p.partials[(static_cast<std::int64_t>(which) * p.num_partials + blockIdx.y) * p.columns + at] = sum;
            } else if (which == 0) {
                p.dweight[at] = from_float<Element>(sum);
            } else if (p.dbias != nullptr) {
                p.dbias[at] = from_float<Element>(sum);
            }
        }
    }
}

// How many rows a group's block works on at a time; a team of blocks has one.
template <class Group>
inline constexpr int kRowsAtOnce = Group::kBlockThreads * Group::kBlocks / Group::kTotalThreads;

// Which of its block's rows a thread works on; 0 where there is one, but the compiler must not know: it would keep the mean of a row, which
// all threads then share, in a uniform register, and wait for it where the row is asked for, a row ahead.
template <class Group>
__device__ __forceinline__ int find_lane() {
    return static_cast<int>(threadIdx.x) / (Group::kBlockThreads / kRowsAtOnce<Group>);
}

// Writes the partial sums of each column of a group that has the only ones of its rows. Chunks of packs are turned in a warp's own shared
// memory, so that its lanes write neighbours: alone, each writes in sectors of its own.
template <int kNumSums, class Group, bool kIsPacked, class Span, int kElems>
__device__ __forceinline__ void store_row_partials(float* target, std::int64_t between, const float (&sums)[2][kElems], const Span& span) {
    constexpr int kChunkElems = Span::kChunkElems, kStride = kWarpSize + kWarpSize / kChunkElems;  // no two lanes meet in a bank
    __shared__ float tiles[kIsPacked ? Group::kBlockThreads / kWarpSize : 1][kIsPacked ? kChunkElems * kStride : 1];
    float* const tile = tiles[kIsPacked ? threadIdx.x / kWarpSize : 0];
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
#pragma unroll
    for (int which = 0; which < kNumSums; ++which) {
        float* const out = target + which * between;
#pragma unroll
        for (int chunk = 0; chunk < Span::kChunks; ++chunk) {
            if (kIsPacked) {
                __syncwarp();
#pragma unroll
                for (int i = 0; i < kChunkElems; ++i) tile[i * kStride + lane] = sums[which][chunk * kChunkElems + i];
                __syncwarp();
            }
#pragma unroll
            for (int i = 0; i < kChunkElems; ++i) {
                const int at = i * kWarpSize + lane;  // in the warp's packs
                const int column = kIsPacked ? span.find_column(chunk, 0) - lane * kChunkElems + at : span.find_column(chunk, i);
                if (column < 0 || column >= span.columns) continue;
                out[column] = kIsPacked ? tile[at % kChunkElems * kStride + at / kChunkElems] : sums[which][chunk * kChunkElems + i];
            }
        }
    }
}

// Writes a block's partial sums of each column, kept as registers of kThreads threads by kRows groups, of which each has columns of its
// own, all that there are: the groups' sums are added by halves, kRows being a power of two.
template <int kNumSums, int kThreads, int kRows, class Span, int kElems>
__device__ __forceinline__ void store_block_partials(float* target, std::int64_t between, const float (&sums)[2][kElems], const Span& span,
                                                     int columns, int edge, const float (&edge_sums)[2]) {
    // Neighbours in one pack lie apart, so that threads which write the same element of their packs use different banks.
    constexpr int kPlaces = kThreads * kElems, kBlockThreads = kThreads * kRows;
    const auto find_place = [](int column) { return column % 8 * (kPlaces / 8) + column / 8; };
    __shared__ float shared[kRows * kPlaces];
    const int group = static_cast<int>(threadIdx.x) / kThreads;
#pragma unroll
    for (int which = 0; which < kNumSums; ++which) {
        __syncthreads();
        // A group has no sums of columns past its row: what stands there for them is added up too.
        for (int i = static_cast<int>(threadIdx.x); i < kRows * kPlaces; i += kBlockThreads) shared[i] = 0.0f;
        __syncthreads();
#pragma unroll
        for (int e = 0; e < kElems; ++e) {
            const int column = span.find_column(e / Span::kChunkElems, e % Span::kChunkElems);
            if (column >= 0 && column < span.columns) shared[group * kPlaces + find_place(column)] = sums[which][e];
        }
        if (edge >= 0) shared[group * kPlaces + find_place(edge)] = edge_sums[which];
        for (int half = kRows / 2; half > 0; half /= 2) {
            __syncthreads();
            for (int i = static_cast<int>(threadIdx.x); i < half * kPlaces; i += kBlockThreads) shared[i] += shared[half * kPlaces + i];
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < columns; i += kBlockThreads) target[which * between + i] = shared[find_place(i)];
    }
}

// `edge` is the column that a thread has beside those of its span, with `edge_sums`; below 0: none.
template <int kNumSums, class Group, bool kIsPacked, class Element, class Span, int kElems>
__device__ __forceinline__ void store_partials(const NormGradient<Element>& p, const float (&sums)[2][kElems], const Span& span,
                                               int edge = -1, const float (&edge_sums)[2] = {0.0f, 0.0f}) {
    float* const target = p.partials + blockIdx.x / Group::kBlocks * p.columns;
    const std::int64_t between = p.num_partials * p.columns;
    if constexpr (kRowsAtOnce<Group> == 1) {
        store_row_partials<kNumSums, Group, kIsPacked>(target, between, sums, span);
        for (int which = 0; which < kNumSums && edge >= 0; ++which) target[which * between + edge] = edge_sums[which];
    } else {
        store_block_partials<kNumSums, Group::kTotalThreads, kRowsAtOnce<Group>>(target, between, sums, span, static_cast<int>(p.columns),
                                                                                 edge, edge_sums);
    }
}

// Blocks of norm_backward_registers on a multiprocessor at least: 768 threads where each keeps 8 elements of a row, which leaves it 80
// registers, and 512 where it keeps more.
template <class Group, int kElems>
inline constexpr int kResidentByElement = std::max(1, (kElems <= 8 ? 768 : 512) / Group::kBlockThreads);

// All in one: num_partials blocks, or teams of them (Group: RowGroup or RowTeam), take rows in turn, each of at most as many elements as a
// group's threads keep, kElems a thread. x and dy are read once, where there are registers for it a row ahead; the partial sums over rows
// stay in registers to the end. Elements of a thread lie as many apart as the group has threads; those past a row are zeros throughout.
template <bool kIsCentred, class Element, class Group, int kElems>
__global__ void __launch_bounds__(Group::kBlockThreads, kResidentByElement<Group, kElems>)
    norm_backward_registers(const NormGradient<Element> p) {
    constexpr int kThreads = Group::kTotalThreads, kRows = kRowsAtOnce<Group>;
    constexpr int kPiece = 4;  // elements of a thread that a row has some of, or none
    constexpr int kRegisters = 65536 / Group::kBlockThreads / kResidentByElement<Group, kElems>;
    constexpr bool kKeepsWeight = kElems <= 8 && kRegisters > 64;
    // There are registers for two rows beside the weight and the sums.
    constexpr bool kIsAhead = kElems <= 8 && (4 + kNumSums<kIsCentred> + 1) * kElems + 24 <= kRegisters;
    __shared__ alignas(Group::kBlocks > 1 ? sizeof(NormSums) : alignof(NormSums)) NormSums partials[2][Group::kPartials];
    Group group;
    allow_successor();
    const int columns = static_cast<int>(p.columns);
    const RowSpan<Element, kThreads, kElems> span = {columns, group.rank, false};
    struct Loaded {
        Element dy[kElems], x[kElems];  // as they lie in memory: nothing is looked at before it is wanted
        float mean, rstd;
    };
    // Calls visit(i) for the elements of a piece that lie in the row.
    const auto visit_piece = [&](int piece, const auto& visit) {
#pragma unroll
        for (int i = piece * kPiece; i < (piece + 1) * kPiece; ++i) {
            if (group.rank + i * kThreads < columns) visit(i);
        }
    };
    const auto is_there = [&](int piece) { return piece * (kPiece * kThreads) < columns; };
    const auto load_row = [&](Loaded& loaded, std::int64_t row) {
        const NormGradientRow<Element> at(p, row < p.rows ? row : p.rows - 1);
        loaded.mean = at.mean;
        loaded.rstd = at.rstd;
        // One address each, from which elements are so many bytes off.
        const Element *const dy = compute_here(at.dy + group.rank), *const x = compute_here(at.x + group.rank);
#pragma unroll
        for (int piece = 0; piece < kElems / kPiece; ++piece) {
            if (!is_there(piece)) continue;
            visit_piece(piece, [&](int i) {
                loaded.dy[i] = dy[i * kThreads];
                loaded.x[i] = x[i * kThreads];
            });
        }
    };
    const auto load_weight = [&](int i) {
        return group.rank + i * kThreads < columns ? to_float(p.weight[group.rank + i * kThreads]) : 0.0f;
    };

    float weight[kKeepsWeight ? kElems : 1];
    if constexpr (kKeepsWeight) {
#pragma unroll
        for (int i = 0; i < kElems; ++i) weight[i] = load_weight(i);
    }
    const auto weigh = [&](float dy, int i) { return dy * (kKeepsWeight ? weight[kKeepsWeight ? i : 0] : load_weight(i)); };
    float totals[2][kElems] = {};  // of dweight and dbias
    int parity = 0;                // two reductions in a row use different memory
    const float share = 1.0f / static_cast<float>(columns);
    const std::int64_t step = std::int64_t{kRows} * (gridDim.x / Group::kBlocks);
    const int lane = find_lane<Group>();
    std::int64_t first = std::int64_t{kRows} * (blockIdx.x / Group::kBlocks);
    Loaded here = {}, next = {};
    if constexpr (kIsAhead) load_row(next, first + lane);

    // Whole blocks go round together; a group past the last row counts nothing.
    for (; first < p.rows; first += step) {
        const std::int64_t row = first + lane;
        const bool is_real = row < p.rows;
        if constexpr (kIsAhead) {
            here = next;
            if (first + step < p.rows) load_row(next, row + step);
        } else {
            load_row(here, row);
        }
        NormSums sums;
#pragma unroll
        for (int piece = 0; piece < kElems / kPiece; ++piece) {
            if (!is_there(piece) || !is_real) continue;
#pragma unroll
            for (int i = piece * kPiece; i < (piece + 1) * kPiece; ++i) {
                const float dy = to_float(here.dy[i]), n = (to_float(here.x[i]) - here.mean) * here.rstd;
                totals[0][i] = fmaf(dy, n, totals[0][i]);
                totals[1][i] += dy;
                sums.add(weigh(dy, i), n);
            }
        }
        sums = reduce_sums<kIsCentred>(group, sums, partials[parity]);
        parity ^= 1;
        if (!is_real) continue;
        const NormSums means = {sums.g * share, sums.gn * share};
        Element* const dx = p.dx + row * p.lddx + group.rank;
        const Element* const dsum = p.dsum == nullptr ? nullptr : compute_here(p.dsum + row * p.lddsum + group.rank);
#pragma unroll
        for (int piece = 0; piece < kElems / kPiece; ++piece) {
            if (!is_there(piece)) continue;
            float added[kElems] = {};
            if (dsum != nullptr) visit_piece(piece, [&](int i) { added[i] = to_float(dsum[i * kThreads]); });
            visit_piece(piece, [&](int i) {
                const float n = (to_float(here.x[i]) - here.mean) * here.rstd;
                dx[i * kThreads] = from_float<Element>(added[i] + find_slope(weigh(to_float(here.dy[i]), i), n, means, here.rstd));
            });
        }
    }
    if constexpr (Group::kBlocks > 1) group.leave();
    store_partials<kNumSums<kIsCentred>, Group, false>(p, totals, span);
}

// Adds a row, as it is stored, to the totals of dweight and dbias, and returns its own sums.
template <class Element, class Span, int kChunks, int kElems>
__device__ __forceinline__ NormSums add_row(const Span& span, const uint4 (&dys)[kChunks], const uint4 (&xs)[kChunks],
                                            const uint4 (&weight)[kChunks], float mean, float rstd, bool is_real,
                                            float (&totals)[2][kElems]) {
    NormSums sums;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        const auto dy = unpack<Element>(dys[c]), x = unpack<Element>(xs[c]), w = unpack<Element>(weight[c]);
        if (span.find_column(c, 0) >= span.columns || !is_real) continue;
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            const float n = (x.values[i] - mean) * rstd;
            float& sum = totals[0][c * Span::kChunkElems + i];
            sum = fmaf(dy.values[i], n, sum);
            totals[1][c * Span::kChunkElems + i] += dy.values[i];
            sums.add(dy.values[i] * w.values[i], n);
        }
    }
    return sums;
}

// Stores dx of a row, of which x and dy are unpacked once more: their values would take twice the registers.
template <class Element, class Span, int kChunks>
__device__ __forceinline__ void store_row(Element* target, const Span& span, uint4 (&dys)[kChunks], uint4 (&xs)[kChunks],
                                          const uint4 (&dsums)[kChunks], const uint4 (&weight)[kChunks], NormSums means, float mean,
                                          float rstd) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
        if (span.find_column(c, 0) >= span.columns) continue;
        forget(dys[c]);
        forget(xs[c]);
        const auto dy = unpack<Element>(dys[c]), x = unpack<Element>(xs[c]), w = unpack<Element>(weight[c]);
        auto dx = unpack<Element>(dsums[c]);
#pragma unroll
        for (int i = 0; i < Span::kChunkElems; ++i) {
            dx.values[i] += find_slope(dy.values[i] * w.values[i], (x.values[i] - mean) * rstd, means, rstd);
        }
        span.store(target, c, dx);
    }
}

// Blocks of norm_backward_packs on a multiprocessor at least: 1024 threads where each keeps one pack of every matrix, which leaves it 64
// registers, and 512 where it keeps more.
template <class Element, class Group, int kElems>
inline constexpr int kResidentBlocks = std::max(1, (kElems == kPackElems<Element> ? 1024 : 512) / Group::kBlockThreads);

// The same in packs, of rows that are whole packs on 16-byte boundaries. Those of the thread's next row are under way while it works on
// this one.
template <bool kIsCentred, class Element, class Group, int kElems>
__global__ void __launch_bounds__(Group::kBlockThreads, kResidentBlocks<Element, Group, kElems>)
    norm_backward_packs(const NormGradient<Element> p) {
    constexpr int kRows = kRowsAtOnce<Group>;
    using Span = RowSpan<Element, Group::kTotalThreads, kElems, true>;
    constexpr int kChunks = Span::kChunks;
    // There are registers for two rows beside the weight and the sums.
    constexpr int kRegisters = 65536 / Group::kBlockThreads / kResidentBlocks<Element, Group, kElems>;
    constexpr bool kIsAhead = 28 * kChunks + kNumSums<kIsCentred> * kElems + 28 <= kRegisters;
    __shared__ alignas(Group::kBlocks > 1 ? sizeof(NormSums) : alignof(NormSums)) NormSums partials[2][Group::kPartials];
    Group group;
    allow_successor();
    const std::int64_t own = group.find_source(p.rows);  // the group's first row, or one that stands for it
    const Span span = {static_cast<int>(p.columns), group.rank, true};
    struct Loaded {
        uint4 words[3][kChunks];  // of dy, x and dsum
        float mean, rstd;
    };
    const auto load_row = [&](Loaded& loaded, std::int64_t row) {
        const NormGradientRow<Element> at(p, row < p.rows ? row : own);
        const Element* const rows[3] = {at.dy, at.x, at.dsum};
        span.load_rows(rows, {0, 0, 0}, loaded.words);
        loaded.mean = at.mean;
        loaded.rstd = at.rstd;
    };

    uint4 weight[kChunks];
    span.load_all_words(p.weight, weight, 0, span.find_skew(p.weight));
    float totals[2][kElems] = {};  // of dweight and dbias
    int parity = 0;                // two reductions in a row use different memory
    const std::int64_t step = std::int64_t{kRows} * (gridDim.x / Group::kBlocks);
    const int lane = find_lane<Group>();
    std::int64_t first = std::int64_t{kRows} * (blockIdx.x / Group::kBlocks);
    Loaded next;
    if constexpr (kIsAhead) load_row(next, first + lane);

    // Whole blocks go round together; a group past the last row counts nothing.
    for (; first < p.rows; first += step) {
        const std::int64_t row = first + lane;
        const bool is_real = row < p.rows;
        Loaded here;
        if constexpr (kIsAhead) {
            here = next;
            if (first + step < p.rows) load_row(next, row + step);
        } else {
            load_row(here, row);
        }
        NormSums sums = add_row<Element>(span, here.words[0], here.words[1], weight, here.mean, here.rstd, is_real, totals);
        sums = reduce_sums<kIsCentred>(group, sums, partials[parity]);
        parity ^= 1;
        const NormSums means = find_means<kIsCentred>(sums, p.columns);
        if (!is_real) continue;
        store_row(p.dx + row * p.lddx, span, here.words[0], here.words[1], here.words[2], weight, means, here.mean, here.rstd);
    }
    if constexpr (Group::kBlocks > 1) group.leave();
    store_partials<kNumSums<kIsCentred>, Group, true>(p, totals, span);
}

// Of norm_backward_edges: fewer, where two sums a column are kept beside an edge's, or a block has several rows or a part of one.
template <bool kIsCentred, class Element, class Group, int kElems>
inline constexpr int kResidentEdges = kIsCentred || kRowsAtOnce<Group> > 1 || Group::kBlocks > 1
                                          ? std::min(std::max(1, 768 / Group::kBlockThreads), kResidentBlocks<Element, Group, kElems>)
                                          : kResidentBlocks<Element, Group, kElems>;

// As norm_backward_packs, of rows of 16 bits that begin anywhere. All rows that a group takes lie alike, so that its threads have the same
// columns of each: see has_steady_rows().
template <bool kIsCentred, class Element, class Group, int kElems>
__global__ void __launch_bounds__(Group::kBlockThreads, kResidentEdges<kIsCentred, Element, Group, kElems>)
    norm_backward_edges(const NormGradient<Element> p) {
    constexpr int kRows = kRowsAtOnce<Group>;
    using Span = InnerSpan<Element, Group::kTotalThreads, kElems>;
    constexpr int kChunks = Span::kChunks;
    static_assert(Span::kEdges == 1, "a warp has the edges");
    __shared__ alignas(Group::kBlocks > 1 ? sizeof(NormSums) : alignof(NormSums)) NormSums partials[2][Group::kPartials];
    Group group;
    allow_successor();
    const std::int64_t own = group.find_source(p.rows);  // the group's first row, or one that stands for it
    const NormGradientRow<Element> at_own(p, own);
    const Element* const all[4] = {at_own.dy, at_own.x, at_own.dsum, p.weight};
    const Span span(static_cast<int>(p.columns), group.rank, at_own.dx, all);
    const int skews[3] = {span.find_skew(at_own.dy), span.find_skew(at_own.x), at_own.dsum == nullptr ? 0 : span.find_skew(at_own.dsum)};
    uint4 weight[kChunks], next[3][kChunks];
    span.load(p.weight, span.find_skew(p.weight), weight, next[0]);
    span.join(span.find_skew(p.weight), weight, next[0]);
    const bool has_edge = span.edge >= 0;
    const float edge_weight = has_edge ? to_float(p.weight[span.edge]) : 0.0f;
    float totals[2][kElems] = {}, edge_totals[2] = {};  // of dweight and dbias
    int parity = 0;                                     // two reductions in a row use different memory
    const std::int64_t step = std::int64_t{kRows} * (gridDim.x / Group::kBlocks);
    const int lane = find_lane<Group>();

    // Whole blocks go round together; a group past the last row counts nothing.
    for (std::int64_t first = std::int64_t{kRows} * (blockIdx.x / Group::kBlocks); first < p.rows; first += step) {
        const std::int64_t row = first + lane;
        const bool is_real = row < p.rows;
        const NormGradientRow<Element> at(p, is_real ? row : own);
        uint4 words[3][kChunks];
        span.load(at.dy, skews[0], words[0], next[0]);
        span.load(at.x, skews[1], words[1], next[1]);
        span.join(skews[0], words[0], next[0]);
        span.join(skews[1], words[1], next[1]);
        span.load(at.dsum, skews[2], words[2], next[2]);  // wanted last
        float edge_dy = 0.0f, edge_n = 0.0f, edge_dx = 0.0f;
        if (has_edge && is_real) {
            edge_dy = to_float(at.dy[span.edge]);
            edge_n = at.normalise(to_float(at.x[span.edge]));
            if (at.dsum != nullptr) edge_dx = to_float(at.dsum[span.edge]);
        }
        NormSums sums = add_row<Element>(span, words[0], words[1], weight, at.mean, at.rstd, is_real, totals);
        edge_totals[0] = fmaf(edge_dy, edge_n, edge_totals[0]);
        edge_totals[1] += edge_dy;
        sums.add(edge_dy * edge_weight, edge_n);
        sums = reduce_sums<kIsCentred>(group, sums, partials[parity]);
        parity ^= 1;
        const NormSums means = find_means<kIsCentred>(sums, p.columns);
        if (!is_real) continue;
        span.join(skews[2], words[2], next[2]);
        store_row(at.dx, span, words[0], words[1], words[2], weight, means, at.mean, at.rstd);
        if (has_edge) at.dx[span.edge] = from_float<Element>(edge_dx + find_slope(edge_dy * edge_weight, edge_n, means, at.rstd));
    }
    if constexpr (Group::kBlocks > 1) group.leave();
    store_partials<kNumSums<kIsCentred>, Group, true>(p, totals, span, span.edge, edge_totals);
}

// The sums of the partial sums, each in the order of the blocks; a block takes kColumnWidth columns. Launch it with launch_early().
template <bool kIsCentred, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) norm_backward_finish(const NormGradient<Element> p) {
    constexpr int kLanes = kThreads / kColumnWidth;
    __shared__ float shared[kNumSums<kIsCentred>][kLanes][kColumnWidth];
    const int place = static_cast<int>(threadIdx.x) % kColumnWidth, lane = static_cast<int>(threadIdx.x) / kColumnWidth;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumnWidth + place;
    wait_for_predecessor();
    // The loads of kTogether partial sums of both are under way together, however few there are: a loop's remainder waits for one by one.
    constexpr int kSums = kNumSums<kIsCentred>, kTogether = 8;
    float sums[kSums] = {};
    if (column < p.columns) {
        for (int i = lane; i < p.num_partials; i += kLanes * kTogether) {
            float loaded[kSums][kTogether] = {};
#pragma unroll
            for (int which = 0; which < kSums; ++which) {
                const float* source = p.partials + (static_cast<std::int64_t>(which) * p.num_partials + i) * p.columns + column;
#pragma unroll
                for (int u = 0; u < kTogether; ++u, source += kLanes * p.columns) {
                    if (i + u * kLanes < p.num_partials) loaded[which][u] = *source;
                }
            }
#pragma unroll
            for (int which = 0; which < kSums; ++which) {
                for (const float each : loaded[which]) sums[which] += each;
            }
        }
    }
#pragma unroll
    for (int which = 0; which < kSums; ++which) shared[which][lane][place] = sums[which];
    __syncthreads();
    if (lane >= kNumSums<kIsCentred> || column >= p.columns || (lane == 1 && p.dbias == nullptr)) return;
    float sum = shared[lane][0][place];
    for (int other = 1; other < kLanes; ++other) sum += shared[lane][other][place];
    (lane == 0 ? p.dweight : p.dbias)[column] = from_float<Element>(sum);
}

// All matrices have rows, and the vectors begin, on 16-byte boundaries.
template <class Element>
bool has_packs(const NormGradient<Element>& p) {
    return has_pack_rows<Element>(p.dy, p.lddy) && has_pack_rows<Element>(p.x, p.ldx) && has_pack_rows<Element>(p.dsum, p.lddsum) &&
           has_pack_rows<Element>(p.dx, p.lddx) && has_pack_rows<Element>(p.weight, 0);
}

template <class Element>
bool has_whole_packs(const NormGradient<Element>& p) {
    return has_packs(p) && p.columns % kPackElems<Element> == 0;
}

template <std::int64_t kCapacity, class Element, class Launch>
AicfStatus choose_access(const NormGradient<Element>& p, const Launch& launch) {
    return choose_access<Element, kCapacity>(p.columns, has_whole_packs(p), std::false_type{}, launch);
}

// Rows `step` apart lie alike on 16-byte boundaries, in every matrix.
template <class Element>
bool has_steady_rows(const NormGradient<Element>& p, std::int64_t step) {
    return step >= p.rows || (p.lddy | p.ldx | p.lddsum | p.lddx) * step % kPackElems<Element> == 0;
}

}  // namespace aicf

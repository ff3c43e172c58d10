// Tiles of the table, rows by columns: a block looks through all indices, keeps those that point to its rows, sorts them by row and place,
// and adds up. One launch, no workspace.
//
// What was kept, sorted, is shared out evenly to groups of threads, so that a row that many indices point to keeps all of them busy. A
// group adds rows up in the order of their places; a row that reaches into other groups' shares is put together from partial sums, in their
// order. Where a tile has few keys and many columns, groups are divided into teams, each of which takes other columns. Where more indices
// point to the rows than the block can keep, it takes half as many rows at a time. A single row needs no sort: its keys are kept in the
// order of the threads that find them, which is always the same, by slabs where they are many.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "common/programmatic.cuh"
#include "embedding_backward/accesses.cuh"
#include "embedding_backward/buckets.cuh"
#include "embedding_backward/keys.cuh"
#include "embedding_backward/params.h"

namespace aicf::embedding_backward {

// How the table is shared out: tiles of `rows` rows by `columns` columns, `column_tiles` next to each other first.
struct TileShare {
    std::int64_t rows;
    std::int32_t columns, column_tiles;
    Accesses accesses;
    bool has_aligned_indices;
};

// Looks through kThreads * kLookAhead indices from `begin` on, not beyond the last; keys lie in no order.
template <class Index, int kThreads>
__device__ __forceinline__ void look_through(const Kept& kept, const EmbeddingBackwardParams& p, std::int32_t begin, bool is_aligned,
                                             bool counts) {
    const Look<Index, kThreads> look(p, begin, is_aligned, counts);
    const unsigned hits = look.find_hits(kept);
    if (!__any_sync(kFullMask, hits != 0)) return;
    const Found found(hits);
    int base = 0;
    if (threadIdx.x % kWarpSize == 0) base = atomicAdd(kept.count, found.total);
    look.keep(kept, hits, __shfl_sync(kFullMask, base, 0) + found.before);
}

// The same as look_through(), with keys in the order of the threads behind the `num_kept` that are there; returns how many there are then.
// `totals` holds a number per warp, and is another one in the next call: a barrier later it is free again.
template <class Index, int kThreads>
__device__ __forceinline__ int look_in_order(const Kept& kept, const EmbeddingBackwardParams& p, std::int32_t begin, bool is_aligned,
                                             bool counts, int num_kept, int* totals) {
    constexpr int kWarps = kThreads / kWarpSize;
    const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const Look<Index, kThreads> look(p, begin, is_aligned, counts);
    const unsigned hits = look.find_hits(kept);
    const Found found(hits);
    if (threadIdx.x % kWarpSize == 0) totals[warp] = found.total;
    __syncthreads();
    int at = num_kept + found.before;
#pragma unroll
    for (int other = 0; other < kWarps; ++other) {
        at += other < warp ? totals[other] : 0;
        num_kept += totals[other];
    }
    look.keep(kept, hits, at);
    return num_kept;
}

// Sorts keys, which are different from each other (Batcher, "Sorting networks and their applications", AFIPS 1968: the bitonic sorter).
template <int kThreads>
__device__ __forceinline__ void sort_keys(std::uint32_t* keys, int count) {
    constexpr std::uint32_t kLast = 0xffffffffu;
    int size = 2;
    while (size < count) size *= 2;
    for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kThreads) keys[i] = kLast;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2) {
        for (int step = run / 2; step > 0; step /= 2) {
            for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kThreads) {
                const int low = 2 * i - (i & (step - 1)), high = low + step;
                const std::uint32_t a = keys[low], b = keys[high];
                if ((a > b) == ((low & run) == 0)) {
                    keys[low] = b;
                    keys[high] = a;
                }
            }
            // Steps of up to a warp stay within the keys of one.
            const int next = step > 1 ? step / 2 : run;
            if (step > kWarpSize || next > kWarpSize) {
                __syncthreads();
            } else {
                __syncwarp();
            }
        }
    }
    __syncthreads();
}

template <class Element, int kThreads>
struct TileSums {
    float first[kThreads][kPackElems<Element>];  // of the row that a group's share begins within
    float last[kThreads][kPackElems<Element>];  // of the row that it begins and does not end
};

template <class Element>
__device__ __forceinline__ void add_pack(Pack<Element>& sum, const Pack<Element>& terms) {
#pragma unroll
    for (int e = 0; e < kPackElems<Element>; ++e) sum.values[e] += terms.values[e];
}

template <class Element>
__device__ __forceinline__ void keep_pack(float (&target)[kPackElems<Element>], const Pack<Element>& pack) {
#pragma unroll
    for (int e = 0; e < kPackElems<Element>; ++e) target[e] = pack.values[e];
}

template <class Element>
__device__ __forceinline__ void add_kept(Pack<Element>& sum, const float (&terms)[kPackElems<Element>]) {
#pragma unroll
    for (int e = 0; e < kPackElems<Element>; ++e) sum.values[e] += terms[e];
}

// A team's columns of a tile; the team shares out the keys among its groups.
template <class Element, class Index, int kGroup, int kGroups>
struct Tile {
    static constexpr int kThreads = kGroup * kGroups, kElems = kPackElems<Element>, kColumns = kGroup * kElems;

    const EmbeddingBackwardParams& p;
    std::int32_t column, width;  // of the table
    int rank, group, groups;  // in the group, and of the group in the team
    Accesses accesses;
    TileSums<Element, kThreads>& sums;

    __device__ Element* find_row(std::int64_t row) const { return static_cast<Element*>(p.dtable) + row * p.lddtable + column; }

    __device__ void store(std::int64_t row, const Pack<Element>& sum) const {
        store_piece<Element, kGroup>(find_row(row), rank, width, sum, accesses);
    }

    __device__ void store_zero(std::int64_t row) const { store_zeros<Element, kGroup>(find_row(row), rank, width, accesses); }

    // Calls end(row, sum) where another row follows within keys `begin` to `end`; returns the sum of the last row.
    template <class End>
    __device__ __forceinline__ Pack<Element> add_up(const std::uint32_t* keys, int begin, int end, const End& end_row) const {
        if (accesses.loads == 16) return add_pieces<16>(keys, begin, end, end_row);
        if (accesses.loads == 8) return add_pieces<8>(keys, begin, end, end_row);
        if constexpr (sizeof(Element) == 2) {
            if (accesses.loads == 4) return add_pieces<4>(keys, begin, end, end_row);
        }
        return add_pieces<0>(keys, begin, end, end_row);
    }

    template <int kAccess, class End>
    __device__ __forceinline__ Pack<Element> add_pieces(const std::uint32_t* keys, int begin, int end, const End& end_row) const {
        using OnePiece = Piece<Element, kGroup, kAccess>;
        constexpr int kInFlight = kAccess != 0 || sizeof(Element) == 4 ? 4 : 2;  // all that 64 registers hold
        const auto* const dy = static_cast<const Element*>(p.dy) + column;
        Pack<Element> sum = {};
        int row = begin < end ? row_of(keys[begin]) : 0;
        for (int i = begin; i < end; i += kInFlight) {
            std::uint32_t some[kInFlight];
            OnePiece pieces[kInFlight];
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) some[u] = keys[min(i + u, end - 1)];  // the last again: so no load waits for a branch
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) pieces[u].load(dy + place_of(some[u]) * p.lddy, rank, width);
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) {
                if (i + u >= end) break;
                if (row_of(some[u]) != row) {
                    end_row(row, sum);
                    sum = {};
                    row = row_of(some[u]);
                }
                add_pack(sum, pieces[u].unpack());
            }
        }
        return sum;
    }

    // Rows from `first` on, by their sorted keys.
    __device__ __forceinline__ void write_rows(const std::uint32_t* keys, int count, std::int64_t first) const {
        const int share = (count + groups - 1) / groups;
        const int begin = min(group * share, count), end = min(begin + share, count);
        const auto continues = [&](int at) { return at > 0 && at < count && row_of(keys[at - 1]) == row_of(keys[at]); };
        bool is_first = begin < end && continues(begin);
        const Pack<Element> sum = add_up(keys, begin, end, [&](int row, const Pack<Element>& found) {
            if (is_first) {
                keep_pack<Element>(sums.first[threadIdx.x], found);
            } else {
                store(first + row, found);
            }
            is_first = false;
        });
        const bool goes_on = begin < end && continues(end);
        if (is_first) {
            keep_pack<Element>(sums.first[threadIdx.x], sum);
        } else if (goes_on) {
            keep_pack<Element>(sums.last[threadIdx.x], sum);
        } else if (begin < end) {
            store(first + row_of(keys[end - 1]), sum);
        }
        __syncthreads();
        if (is_first || !goes_on) return;
        Pack<Element> whole = {};
        add_kept(whole, sums.last[threadIdx.x]);
        for (int other = 1, stop = end; continues(stop); ++other) {
            add_kept(whole, sums.first[threadIdx.x + other * kGroup]);
            const int row = row_of(keys[stop]);
            stop = min(stop + share, count);
            if (row_of(keys[stop - 1]) != row) break;
        }
        store(first + row_of(keys[end - 1]), whole);
    }

    // Adds keys of one row to what the team's first group has of it.
    __device__ __forceinline__ void add_slab(Pack<Element>& whole, const std::uint32_t* keys, int count) const {
        const int share = (count + groups - 1) / groups;
        const int begin = min(group * share, count), end = min(begin + share, count);
        float (&own)[kElems] = sums.first[threadIdx.x];
        keep_pack<Element>(own, add_up(keys, begin, end, [](int, const Pack<Element>&) {}));
        for (int step = groups / 2; step > 0; step /= 2) {
            __syncthreads();
            if (group >= step) continue;
#pragma unroll
            for (int e = 0; e < kElems; ++e) own[e] += sums.first[threadIdx.x + step * kGroup][e];
        }
        if (group == 0) add_kept(whole, own);
    }
};

// With kFromBuckets the keys are picked up, and indices are looked through only where a bucket holds more than the block can keep; launch
// it with launch_early() behind fill_buckets().
template <class Element, class Index, int kGroup, int kGroups, bool kFromBuckets = false>
__global__ void __launch_bounds__(kGroup* kGroups, 1024 / (kGroup * kGroups))
    backward_tiles(const EmbeddingBackwardParams p, const TileShare share, const Buckets buckets) {
    using OneTile = Tile<Element, Index, kGroup, kGroups>;
    constexpr int kThreads = OneTile::kThreads, kLook = kThreads * kLookAhead;
    extern __shared__ __align__(16) std::uint32_t keys[];  // [kMostKept], and behind them the partial sums
    __shared__ unsigned occupied[kMostTileRows / 32];
    __shared__ int count, totals[2][kThreads / kWarpSize];
    const int rank = static_cast<int>(threadIdx.x), group = rank / kGroup;
    const auto column_tiles = static_cast<unsigned>(share.column_tiles);
    const unsigned row_tile = blockIdx.x / column_tiles;
    const std::int32_t first_column = static_cast<std::int32_t>(blockIdx.x % column_tiles) * share.columns;
    const std::int32_t end_column = min(static_cast<std::int32_t>(p.width), first_column + share.columns);
    auto& sums = *reinterpret_cast<TileSums<Element, kThreads>*>(keys + kMostKept);
    // Calls visit(columns of the tile) in all threads until each of its columns was a team's. What is left in `sums` is read before the
    // next.
    const auto visit_columns = [&](int num_keys, const auto& visit) {
        constexpr int kLeastKeys = 4;  // that are worth another group
        const int parts = (end_column - first_column - 1) / OneTile::kColumns + 1;
        int groups = kGroups;
        while (groups > 1 && groups / 2 * kLeastKeys >= num_keys && kGroups / groups < parts) groups /= 2;
        for (int part = group / groups, round = 0; round < parts; part += kGroups / groups, round += kGroups / groups) {
            const std::int32_t column = first_column + part * OneTile::kColumns;
            const int width = part < parts ? min(end_column - column, OneTile::kColumns) : 0;
            visit(OneTile{p, column, width, rank % kGroup, group % groups, groups, share.accesses, sums});
            __syncthreads();
        }
    };
    const std::int64_t begin = row_tile * share.rows, end = begin + share.rows < p.vocabulary ? begin + share.rows : p.vocabulary;
    bool counts = blockIdx.x == 0;  // wrong indices, once
    Kept kept = {begin, static_cast<int>(end - begin), keys, &count};
    const auto count_all = static_cast<std::int32_t>(p.count);
    const std::int32_t looks = (count_all - 1) / kLook + 1;
    const auto clear = [&] {
        __syncthreads();
        for (int i = rank; i < kMostTileRows / 32; i += kThreads) occupied[i] = 0;
        if (rank == 0) count = 0;
        __syncthreads();
    };
    bool has_keys = false;
    if constexpr (kFromBuckets) {
        clear();
        wait_for_predecessor();
        take_bucket<kThreads>(kept, buckets, row_tile, 0, buckets.chunks);
        __syncthreads();
        counts = false;
        has_keys = true;
    }

    const auto add_row = [&] {
        int num_looks = 0;
        std::int32_t at = 0, counted = counts ? 0 : count_all;  // up to where wrong indices were counted
        // Keeps as many keys as there is room for, of the indices from `at` on.
        const auto keep_slab = [&] {
            int num_kept = 0;
            do {
                num_kept = look_in_order<Index, kThreads>(kept, p, at, share.has_aligned_indices, at >= counted, num_kept,
                                                          totals[num_looks++ % 2]);
                at += kLook;
                counted = max(counted, at);
            } while (at < count_all && num_kept <= kMostKept - kLook);
            __syncthreads();
            return num_kept;
        };
        const int num_kept = keep_slab();
        const bool is_one_slab = at >= count_all;
        visit_columns(is_one_slab ? num_kept : kMostKept, [&](const OneTile& tile) {
            Pack<Element> whole = {};
            if (is_one_slab) {
                tile.add_slab(whole, keys, num_kept);
            } else {
                for (at = 0; at < count_all;) {
                    tile.add_slab(whole, keys, keep_slab());
                    __syncthreads();
                }
            }
            if (tile.group == 0) tile.store(kept.first, whole);
        });
    };

    while (kept.first < end) {
        if (kept.num_rows == 1 && (!has_keys || count > kMostKept)) {
            add_row();
        } else {
            if (!has_keys) {
                clear();
                // Each block begins elsewhere: together they bring all indices into the cache, and do not crowd there.
                const auto first_look = static_cast<std::int32_t>(blockIdx.x % looks);
                for (std::int32_t i = 0, look = first_look; i < looks; ++i, look = look + 1 < looks ? look + 1 : 0) {
                    look_through<Index, kThreads>(kept, p, look * kLook, share.has_aligned_indices, counts);
                }
                __syncthreads();
            }
            has_keys = false;
            const int num_kept = count;
            if (num_kept > kMostKept) {
                counts = false;
                kept.num_rows = (kept.num_rows + 1) / 2;
                continue;
            }
            sort_keys<kThreads>(keys, num_kept);
            for (int i = rank; i < num_kept; i += kThreads) atomicOr(&occupied[row_of(keys[i]) / 32], 1u << row_of(keys[i]) % 32);
            __syncthreads();
            visit_columns(num_kept, [&](const OneTile& tile) {
                for (int row = tile.group; row < kept.num_rows; row += tile.groups) {
                    if ((occupied[row / 32] >> row % 32 & 1u) == 0) tile.store_zero(kept.first + row);
                }
                tile.write_rows(keys, num_kept, kept.first);
            });
        }
        counts = false;
        kept.first += kept.num_rows;
        if (end - kept.first < kept.num_rows) kept.num_rows = static_cast<int>(end - kept.first);
    }
}

}  // namespace aicf::embedding_backward

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
#include <type_traits>

#include "common/cluster.cuh"
#include "common/distributed.cuh"
#include "common/elements.cuh"
#include "common/indices.cuh"
#include "common/programmatic.cuh"
#include "common/reduce.cuh"
#include "common/rows.cuh"
#include "embedding_backward/params.h"
#include "embedding_backward/sort.cuh"

namespace aicf::embedding_backward {

// A key holds a row of the tile above a place among the indices, so that keys are sorted by row and then by place.
inline constexpr int kPlaceBits = 20, kMostTilePlaces = 1 << kPlaceBits, kMostTileRows = 1 << (32 - kPlaceBits);
inline constexpr int kMostKept = 8192;  // keys
inline constexpr int kLookAhead = 8;  // indices of a thread under way together

// How the table is shared out: tiles of `rows` rows by `columns` columns, `column_tiles` next to each other first.
struct TileShare {
    std::int64_t rows;
    std::int32_t columns, column_tiles;
    bool is_packed;  // rows of both matrices consist of accesses of 16 bytes
    bool has_aligned_indices;
};

__device__ __forceinline__ int row_of(std::uint32_t key) { return static_cast<int>(key >> kPlaceBits); }
__device__ __forceinline__ std::int32_t place_of(std::uint32_t key) { return static_cast<std::int32_t>(key & (kMostTilePlaces - 1)); }

// The rows of the table that are kept now, and what is kept: in no order, with a count that goes on where the keys are full.
struct Kept {
    std::int64_t first;
    int num_rows;
    std::uint32_t* keys;  // [kMostKept]
    int* count;
};

// A thread's kLookAhead indices of those from `begin` on; -1 stands for one beyond the last.
template <class Index, int kThreads>
struct Look {
    static constexpr int kAccess = 16 / static_cast<int>(sizeof(Index));
    alignas(16) Index found[kLookAhead];
    std::int32_t begin;
    bool is_aligned;

    __device__ __forceinline__ Look(const EmbeddingBackwardParams& p, std::int32_t begin, bool is_aligned, bool counts)
        : begin(begin), is_aligned(is_aligned) {
        const auto* const indices = static_cast<const Index*>(p.indices);
        const auto end = static_cast<std::int32_t>(p.count);
#pragma unroll
        for (int u = 0; u < kLookAhead; u += kAccess) {
            if (is_aligned && find_place(u) + kAccess <= end) {
                *reinterpret_cast<uint4*>(found + u) = *reinterpret_cast<const uint4*>(indices + find_place(u));
            } else {
#pragma unroll
                for (int e = u; e < u + kAccess; ++e) found[e] = find_place(e) < end ? indices[find_place(e)] : Index{-1};
            }
        }
        if (!counts) return;
#pragma unroll
        for (int u = 0; u < kLookAhead; ++u) {
            if (find_place(u) < end) check_index(found[u], p.vocabulary, true, p.status);
        }
    }

    __device__ __forceinline__ std::int32_t find_place(int u) const {
        const int rank = static_cast<int>(threadIdx.x);
        return begin + (is_aligned ? (u / kAccess * kThreads + rank) * kAccess + u % kAccess : u * kThreads + rank);
    }

    // Bit u is set where index u points to one of the rows.
    __device__ __forceinline__ unsigned find_hits(const Kept& kept) const {
        using Unsigned = std::make_unsigned_t<Index>;
        unsigned hits = 0;
#pragma unroll
        for (int u = 0; u < kLookAhead; ++u) {
            const bool is_hit = static_cast<Unsigned>(found[u]) - static_cast<Unsigned>(kept.first) < static_cast<Unsigned>(kept.num_rows);
            hits |= is_hit ? 1u << u : 0u;
        }
        return hits;
    }

    // Keys of the hits, from `at` on.
    __device__ __forceinline__ void keep(const Kept& kept, unsigned hits, int at) const {
#pragma unroll
        for (int u = 0; u < kLookAhead; ++u) {
            if ((hits >> u & 1u) == 0) continue;
            const auto row = static_cast<std::uint32_t>(found[u] - static_cast<Index>(kept.first));
            if (at < kMostKept) kept.keys[at] = row << kPlaceBits | static_cast<std::uint32_t>(find_place(u));
            ++at;
        }
    }
};

// What the warp's lanes found: `own` of the lane, `total` of all, and `before` of the lanes in front of it.
struct Found {
    int own, before, total;

    explicit __device__ __forceinline__ Found(unsigned hits) {
        own = __popc(hits);
        const int last = scan_warp(own);
        before = last - own;
        total = __shfl_sync(kFullMask, last, kWarpSize - 1);
    }
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

// Looks through as many indices for a cluster, whose rows are those of `all`, `rows` a block, and keeps each key where its row is.
template <class Index, int kThreads>
__device__ __forceinline__ void look_for_cluster(const Kept& all, int rows, const EmbeddingBackwardParams& p, std::int32_t begin,
                                                 bool is_aligned, bool counts) {
    const Look<Index, kThreads> look(p, begin, is_aligned, counts);
    const unsigned hits = look.find_hits(all);
#pragma unroll
    for (int u = 0; u < kLookAhead; ++u) {
        if ((hits >> u & 1u) == 0) continue;
        const auto row = static_cast<std::uint32_t>(look.found[u] - static_cast<Index>(all.first));
        const std::uint32_t block = row / static_cast<std::uint32_t>(rows);
        const int at = add_to_block(all.count, block, 1);
        const std::uint32_t key = (row - block * static_cast<std::uint32_t>(rows)) << kPlaceBits;
        if (at < kMostKept) store_to_block(all.keys + at, block, key | static_cast<std::uint32_t>(look.find_place(u)));
    }
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
    static constexpr int kInFlight = sizeof(Element) == 4 ? 4 : 2;  // all that 64 registers hold

    const EmbeddingBackwardParams& p;
    std::int32_t column;
    RowSpan<Element, kGroup, kElems> span;
    int group, groups;  // in the team
    TileSums<Element, kThreads>& sums;

    __device__ Pack<Element> load(std::uint32_t key) const {
        return span.load(static_cast<const Element*>(p.dy) + place_of(key) * p.lddy + column, 0, 0.0f);
    }

    __device__ void store(std::int64_t row, const Pack<Element>& sum) const {
        span.store(static_cast<Element*>(p.dtable) + row * p.lddtable + column, 0, sum);
    }

    // Calls end(row, sum) where another row follows within keys `begin` to `end`; returns the sum of the last row.
    template <class End>
    __device__ __forceinline__ Pack<Element> add_up(const std::uint32_t* keys, int begin, int end, const End& end_row) const {
        Pack<Element> sum = {};
        int row = begin < end ? row_of(keys[begin]) : 0;
        for (int i = begin; i < end; i += kInFlight) {
            Pack<Element> parts[kInFlight];
            int rows[kInFlight];
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) {
                parts[u] = {};
                const std::uint32_t key = keys[i + u < end ? i + u : end - 1];
                rows[u] = row_of(key);
                if (i + u < end) parts[u] = load(key);
            }
#pragma unroll
            for (int u = 0; u < kInFlight; ++u) {
                if (rows[u] != row) {
                    end_row(row, sum);
                    sum = {};
                    row = rows[u];
                }
                add_pack(sum, parts[u]);
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

// Clusters of kCluster blocks take neighbouring tiles of rows. Launch them with launch_early().
template <class Element, class Index, int kGroup, int kGroups, int kCluster = 1>
__global__ void __launch_bounds__(kGroup* kGroups, 1024 / (kGroup * kGroups))
    backward_tiles(const EmbeddingBackwardParams p, const TileShare share) {
    using OneTile = Tile<Element, Index, kGroup, kGroups>;
    constexpr int kThreads = OneTile::kThreads, kLook = kThreads * kLookAhead;
    extern __shared__ __align__(16) std::uint32_t keys[];  // [kMostKept], and behind them the partial sums
    __shared__ unsigned occupied[kMostTileRows / 32];
    __shared__ int count, totals[2][kThreads / kWarpSize];
    const int rank = static_cast<int>(threadIdx.x), group = rank / kGroup;
    const auto column_tiles = static_cast<unsigned>(share.column_tiles);
    const unsigned cluster = blockIdx.x / kCluster, in_cluster = blockIdx.x % kCluster;
    const std::int32_t first_column = static_cast<std::int32_t>(cluster % column_tiles) * share.columns;
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
            const RowSpan<Element, kGroup, OneTile::kElems> span{width, rank % kGroup, share.is_packed};
            visit(OneTile{p, column, span, group % groups, groups, sums});
            __syncthreads();
        }
    };
    const std::int64_t first_of_cluster = cluster / column_tiles * kCluster * share.rows,
                       begin = first_of_cluster + in_cluster * share.rows;
    const std::int64_t end =
        begin + share.rows < p.vocabulary ? begin + share.rows : p.vocabulary;  // of a cluster's last ones before begin
    bool counts = cluster == 0;  // wrong indices, once
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
    if constexpr (kCluster > 1) {
        wait_for_predecessor();
        clear();
        sync_cluster();
        const std::int64_t left = p.vocabulary - first_of_cluster, rows = kCluster * share.rows;
        const Kept all = {first_of_cluster, static_cast<int>(left < rows ? left : rows), keys, &count};
        for (auto look = static_cast<std::int32_t>(in_cluster); look < looks; look += kCluster) {
            look_for_cluster<Index, kThreads>(all, static_cast<int>(share.rows), p, look * kLook, share.has_aligned_indices, counts);
        }
        sync_cluster();
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
                    if ((occupied[row / 32] >> row % 32 & 1u) == 0) tile.store(kept.first + row, {});
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

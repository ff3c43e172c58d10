// Stream-K for the wgmma main loop: where whole tiles would leave the last wave of clusters short, the steps of k of some tiles are dealt
// out evenly, a contiguous range of (tile, step) to each cluster. A cluster works from the end of its range to its front: first the front
// part of a tile, whose sums it hands over through memory, then whole tiles, last the end part of a tile whose front clusters before it
// have long handed over. It waits for clusters of lower number alone, which started no later, so that no order of blocks can lock up. Sums
// are added in one order: results do not depend on timing.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/compute_here.cuh"
#include "common/exchange.cuh"
#include "common/wgmma_pipeline.cuh"

namespace aicf {

// The first num_split tiles are dealt out by steps, `per_cluster` to each cluster and one more to the first `num_longer`; the others are
// whole.
struct SplitGrid : TileGrid {
    int num_split;
    int per_cluster, num_longer;
    int num_clusters;  // that take part: the launch has no others
    Divisor steps;
    float* slots;         // of each cluster: the sums of its blocks, as threads hold them
    std::uint32_t* flags;  // of each warp group that multiplies: 1 when its slot is filled; 0 before the launch
};

// With tiles of as many columns as take the least time on D's size.
struct EvenSplitGrid : SplitGrid {
    int columns;
};

template <class Tunables>
struct EvenTunables : Tunables {
    static constexpr bool is_even = true;
    static constexpr int column_step = 8;
    static constexpr int least_columns = (Tunables::bn / 2 + column_step - 1) / column_step * column_step;

    __host__ __device__ static int count_columns(const TileGrid& grid) { return static_cast<const EvenSplitGrid&>(grid).columns; }
};

// What dealing steps out costs a cluster, in steps of k: to hand over and join sums, and for each hundred steps that are dealt out, whose
// tiles are not read at the same time as their neighbours'.
struct JoinCost {
    int steps;
    int percent = 0;
};

// Of a tile of 128 x 256: 128 KiB a block to memory and back.
inline constexpr int kJoinSteps = 16;

// Clusters that run at a time. A cluster lies in one group of up to 18 multiprocessors: of 132, fours leave 12 and eights 20.
inline int count_resident_clusters(int num_multiprocessors, int size) {
    const int usable = size <= 2 ? 100 : size <= 4 ? 91 : 85;  // of a hundred
    return std::max(num_multiprocessors * usable / (100 * size), 1);
}

// The same where `per_multiprocessor` blocks fit a multiprocessor, for sizes up to 8. As an H200's times tell (132 multiprocessors;
// profiles/gemm_bias_act/NOTES.md), clusters lie in layers of one block to a multiprocessor, and a layer holds whole clusters alone. Where
// there is room for a second layer, the first one is not filled before the second is begun: a sixth is left to be sure. Of another number
// of multiprocessors, groups of 16 are certain.
inline int count_resident_clusters(int num_multiprocessors, int size, int per_multiprocessor) {
    if (size == 1) return num_multiprocessors * per_multiprocessor;
    constexpr int kLayers[] = {66, 38, 30, 22, 18, 16, 15};  // of clusters of 2, 3, ... 8
    const int layer = num_multiprocessors == 132 ? kLayers[size - 2] : std::max(num_multiprocessors / 16 * (16 / size), 1);
    return per_multiprocessor == 1 ? layer - layer / 6 : layer * per_multiprocessor;
}

// Splits the tiles of the last wave and of the one before it, where the last one is so short that this gains more than it costs.
// `num_clusters` run at a time; each of them gets `least_steps` steps or more, or fewer take part.
inline SplitGrid split_tile_grid(const TileGrid& grid, int num_clusters, JoinCost cost = {kJoinSteps}, int least_steps = 1) {
    SplitGrid result = {};
    static_cast<TileGrid&>(result) = grid;
    result.steps = make_divisor(grid.num_steps);
    const std::int64_t all_steps = std::int64_t{grid.num_tiles} * grid.num_steps;
    const std::int64_t useful = std::max<std::int64_t>(all_steps / least_steps, grid.num_tiles);
    result.num_clusters = static_cast<int>(std::min<std::int64_t>(num_clusters, useful));
    num_clusters = result.num_clusters;
    const int whole_waves = grid.num_tiles / num_clusters;
    const int num_missing = (num_clusters - grid.num_tiles % num_clusters) % num_clusters;
    result.num_clusters = std::min(num_clusters, grid.num_tiles);
    const int num_split = grid.num_tiles - std::max(whole_waves - 1, 0) * num_clusters;
    const std::int64_t steps = std::int64_t{num_split} * grid.num_steps;
    const std::int64_t gain = std::int64_t{num_missing} * grid.num_steps;
    if (gain <= std::int64_t{cost.steps} * num_clusters + steps * cost.percent / 100) return result;
    if (steps > INT32_MAX) return result;
    result.num_clusters = num_clusters;
    result.num_split = num_split;
    result.per_cluster = static_cast<int>(steps / num_clusters);
    result.num_longer = static_cast<int>(steps % num_clusters);
    return result;
}

// The time of the busiest cluster of a split grid, in steps of k.
inline std::int64_t count_longest_steps(const SplitGrid& grid, JoinCost cost) {
    constexpr int kTileSteps = 3;  // as long as a tile takes to leave
    const int num_whole = grid.num_tiles - grid.num_split;
    const std::int64_t whole_steps = std::int64_t{(num_whole + grid.num_clusters - 1) / grid.num_clusters} * (grid.num_steps + kTileSteps);
    if (grid.num_split == 0) return whole_steps;
    const std::int64_t dealt = grid.per_cluster + (grid.num_longer > 0);
    return whole_steps + dealt + dealt * cost.percent / 100 + cost.steps + kTileSteps;
}

// The cycles of a step of k of a tile of so many columns: those of its products, or of shared memory, which takes in its rows and columns
// and hands each block of 64 rows, and all columns for it, to the tensor cores.
template <class T>
constexpr std::int64_t count_step_cycles(int columns) {
    constexpr int kBlocks = T::bm / 64;
    return std::max(2 * kBlocks * columns, 128 * kBlocks + (kBlocks + 1) * columns);
}

// The grid whose tiles' columns take the least time: those that divide D's evenly, and leave the last wave of clusters full.
template <class T>
inline EvenSplitGrid split_evenly(std::int64_t m, std::int64_t n, std::int64_t k, int num_clusters, JoinCost cost, int least_steps) {
    EvenSplitGrid best = {};
    std::int64_t least = INT64_MAX;
    for (int columns = T::bn; columns >= T::least_columns; columns -= T::column_step) {
        const SplitGrid grid = split_tile_grid(make_tile_grid<T>(m, n, k, columns), num_clusters, cost, least_steps);
        const std::int64_t time = count_longest_steps(grid, cost) * count_step_cycles<T>(columns);
        if (time >= least) continue;
        least = time;
        static_cast<SplitGrid&>(best) = grid;
        best.columns = columns;
    }
    return best;
}

// What joining parts of tiles of this shape costs, in steps of k: their bytes to memory and back beside those of a step, and latency.
template <class T>
constexpr int count_join_steps() {
    constexpr int kLatencySteps = 4;
    return kLatencySteps + 12 * T::bm * T::bn / ((T::bm + T::bn) * kSwizzleBytes);
}

// Device memory of a split grid: slots, then flags.
struct SplitWorkspace {
    std::int64_t slot_bytes;
    int num_flags;

    std::int64_t count_bytes() const { return slot_bytes + num_flags * static_cast<std::int64_t>(sizeof(std::uint32_t)); }
};

// Of parts that are joined by those who wait for them, or by a second kernel, which wants two slots a block and no flags.
template <class T>
inline SplitWorkspace plan_split_workspace(const SplitGrid& grid, bool has_second_kernel = false) {
    if (grid.num_split == 0) return {0, 0};
    const std::int64_t num_blocks = std::int64_t{grid.num_clusters} * WgmmaLayout<T>::kClusterSize;
    const std::int64_t bytes = num_blocks * T::bm * T::bn * static_cast<std::int64_t>(sizeof(float));
    if (has_second_kernel) return {2 * bytes, 0};
    return {bytes, static_cast<int>(2 * num_blocks)};
}

template <class T>
struct SplitOrder {
    using L = WgmmaLayout<T>;
    const SplitGrid& grid;
    TileOrder<T> whole;
    int begin, end;  // what is left of this cluster's range

    __device__ __forceinline__ explicit SplitOrder(const SplitGrid& of) : grid(of), whole(of) {
        const int cluster = whole.next;
        begin = grid.num_split > 0 ? find_begin(grid, cluster) : 0;
        end = grid.num_split > 0 ? find_begin(grid, cluster + 1) : 0;
        whole.next += grid.num_split;
    }

    // The first step of a cluster's range, counted over all split tiles.
    __device__ static __forceinline__ int find_begin(const SplitGrid& grid, int cluster) {
        return cluster * grid.per_cluster + min(cluster, grid.num_longer);
    }

    __device__ __forceinline__ bool has_next() const { return end > begin || whole.has_next(); }
    __device__ __forceinline__ bool has_second() const {
        return end > begin + grid.num_steps || (end > begin ? whole.has_next() : whole.has_second());
    }

    __device__ __forceinline__ void advance() {
        if (end > begin) {
            end = max(begin, grid.steps.divide(end - 1) * grid.num_steps);
        } else {
            whole.advance();
        }
    }

    __device__ __forceinline__ void forget() {
        end = compute_here(end);
        whole.forget();
    }

    __device__ __forceinline__ TileWork find() const {
        if (end <= begin) return whole.find();
        const int tile = grid.steps.divide(end - 1);
        const int first = max(begin, tile * grid.num_steps);
        return whole.find_tile(tile, first - tile * grid.num_steps, end - first);
    }
};

__device__ __forceinline__ void raise_flag(std::uint32_t* flag) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(1) : "memory");
}

__device__ __forceinline__ void await_flag(const std::uint32_t* flag) {
    std::uint32_t value;
    do {
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    } while (value == 0);
}

// A warp group's sums in memory as threads hold them: four of a thread side by side, then those of the next thread.
template <class T>
struct SumSlot {
    using L = WgmmaLayout<T>;
    static constexpr int kVectors = L::kBlocksM * L::kSums / 4;  // of a thread, each of 8 columns
    static constexpr int kBlockVectors = L::kSums / 4;
    static constexpr int kFloats = kVectors * kWarpGroupThreads * 4;

    template <class Sums>
    __device__ __forceinline__ static auto* find_four(Sums& sums, int vector) {
        return sums[vector / kBlockVectors] + vector % kBlockVectors * 4;
    }

    // `slot` is this thread's. Tiles have `columns` of their bn columns.
    __device__ __forceinline__ static void store(float4* slot, const float (&sums)[L::kBlocksM][L::kSums], int columns) {
#pragma unroll
        for (int i = 0; i < kVectors; ++i) {
            if (T::is_even && i % kBlockVectors * 8 >= columns) continue;
            const float* four = find_four(sums, i);
            slot[i * kWarpGroupThreads] = {four[0], four[1], four[2], four[3]};
        }
    }
};

// What a warp group does with the sums of a part of a tile: hands over those of a front part (then there is nothing to store, and the
// answer is false), or adds to those of an end part what lower clusters handed over. kBarrier and the next are named barriers of a warp
// group.
template <class T, int kBarrier>
__device__ __forceinline__ bool join_parts(float (&sums)[WgmmaLayout<T>::kBlocksM][WgmmaLayout<T>::kSums], const TileWork& tile,
                                           const SplitGrid& grid) {
    using L = WgmmaLayout<T>;
    using Slot = SumSlot<T>;
    const bool is_front = tile.first_step + tile.num_steps < grid.num_steps;
    if (!is_front && tile.first_step == 0) return true;
    const int consumer = find_consumer();
    const int thread = find_group_thread();
    const int cluster = static_cast<int>(blockIdx.x) / L::kClusterSize;
    const int rank = static_cast<int>(blockIdx.x) % L::kClusterSize;
    // With pingpong a cluster's first part, the front of a tile if it has one, is the first warp group's, whichever has the end elsewhere.
    const auto find_group = [&](int of) {
        const int block = of * L::kClusterSize + rank;
        return T::pingpong ? block : 2 * block + consumer;
    };
    const auto find_slot = [&](int of) {
        return reinterpret_cast<float4*>(grid.slots) + std::int64_t{find_group(of)} * Slot::kVectors * kWarpGroupThreads + thread;
    };
    if (is_front) {
        Slot::store(find_slot(cluster), sums, T::bn);
        __threadfence();
        sync_named<kWarpGroupThreads>(kBarrier + consumer);
        if (thread == 0) raise_flag(grid.flags + find_group(cluster));
        return false;
    }
    // This cluster's range begins inside of the tile; those before it hold the rest, down to the one that has its first step.
    const int tile_begin = SplitOrder<T>::find_begin(grid, cluster) - tile.first_step;
    int first = cluster - 1;
    while (SplitOrder<T>::find_begin(grid, first) > tile_begin) --first;
    for (int other = cluster - 1 - thread; other >= first; other -= kWarpGroupThreads) await_flag(grid.flags + find_group(other));
    sync_named<kWarpGroupThreads>(kBarrier + consumer);
    for (int other = cluster - 1; other >= first; --other) {
        const float4* slot = find_slot(other);
#pragma unroll
        for (int i = 0; i < Slot::kVectors; ++i) {
            float* four = Slot::find_four(sums, i);
            const float4 part = __ldcg(slot + i * kWarpGroupThreads);
            four[0] += part.x;
            four[1] += part.y;
            four[2] += part.z;
            four[3] += part.w;
        }
    }
    return true;
}

// An epilogue of whole tiles behind the joining of their parts; kBarrier as above, which the epilogue may use too.
template <class T, int kBarrier, class Epilogue>
struct JoiningEpilogue {
    using L = WgmmaLayout<T>;
    const SplitGrid& grid;
    Epilogue whole;

    __device__ __forceinline__ void begin(const TileWork& tile) { whole.begin(tile); }
    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
        if (join_parts<T, kBarrier>(sums, tile, grid)) whole.finish(sums, tile);
    }
    __device__ __forceinline__ void end() const { whole.end(); }
};

// Clears the flags of a split grid, where no other kernel in front of the launch that uses them does. A template, so that only those who
// use it have it.
template <class Flag>
__global__ void clear_flags(Flag* flags, int num_flags) {
    allow_successor();
    wait_for_predecessor();
    for (int i = static_cast<int>(threadIdx.x); i < num_flags; i += static_cast<int>(blockDim.x)) flags[i] = 0;
}

// The other way to join: all parts of tiles go to memory as they are, and a second kernel adds them up, all of the chip at once. Where
// there are fewer tiles than clusters that takes less time than waiting for each other: every cluster ends with a part.

// Where the part of a tile that a cluster has lies: a range has at most one part that begins inside of a tile, and one that begins with it.
template <class T>
__device__ __forceinline__ float* find_part(const SplitGrid& grid, int cluster, int rank, bool begins_tile) {
    const int slot = (2 * cluster + (begins_tile ? 1 : 0)) * WgmmaLayout<T>::kClusterSize + rank;
    return grid.slots + std::int64_t{slot} * (T::bm * T::bn);
}

// Stores a warp group's sums to its part of a tile: as rows of D, or where kTurned as threads hold them.
template <class T, bool kTurned>
__device__ __forceinline__ void store_part(const float (&sums)[WgmmaLayout<T>::kBlocksM][WgmmaLayout<T>::kSums], const TileWork& tile,
                                           const SplitGrid& grid) {
    using L = WgmmaLayout<T>;
    const int rank = static_cast<int>(blockIdx.x) % L::kClusterSize;
    float* part = find_part<T>(grid, static_cast<int>(blockIdx.x) / L::kClusterSize, rank, tile.first_step == 0);
    const int consumer = T::pingpong ? 0 : find_consumer();
    if constexpr (kTurned) {
        int first = consumer * SumSlot<T>::kFloats + find_group_thread() * 4;
        // Found here, so that it takes no registers beside the products.
        if constexpr (T::pingpong) first = compute_here(first);
        SumSlot<T>::store(reinterpret_cast<float4*>(part + first), sums, T::count_columns(grid));
    } else {
        const int lane = static_cast<int>(threadIdx.x) % 32;
        const int first = consumer * L::kRows + find_group_warp() * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < L::kBlocksM * L::kSums; i += 2) {
            const float* pair = sums[i / L::kSums] + i % L::kSums;
            const int row = first + i / L::kSums * 64 + i % 4 / 2 * 8;
            const int column = i % L::kSums / 4 * 8 + lane % 4 * 2;
            *reinterpret_cast<float2*>(part + row * T::bn + column) = {pair[0], pair[1]};
        }
    }
}

// An epilogue of whole tiles; parts are stored.
template <class T, bool kTurned, class Epilogue>
struct PartsEpilogue {
    using L = WgmmaLayout<T>;
    const SplitGrid& grid;
    Epilogue whole;

    __device__ __forceinline__ void begin(const TileWork& tile) { whole.begin(tile); }
    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
        if (tile.num_steps < grid.num_steps) {
            store_part<T, kTurned>(sums, tile, grid);
        } else {
            whole.finish(sums, tile);
        }
    }
    __device__ __forceinline__ void end() const { whole.end(); }
};

inline constexpr int kAddThreads = 256;

template <class T>
constexpr int count_add_blocks() {  // of a tile: four sums a thread
    return (T::bm * T::bn / 4 + kAddThreads - 1) / kAddThreads;
}

// The clusters that have the parts of a split tile, in order of k.
struct PartOwners {
    int first, last;

    __device__ __forceinline__ bool has_one() const { return first == last; }  // which has stored the tile whole
};

template <class T>
__device__ __forceinline__ PartOwners find_part_owners(const SplitGrid& grid, int tile) {
    const int begin = tile * grid.num_steps;
    const int end = begin + grid.num_steps;
    const int longer = grid.num_longer * (grid.per_cluster + 1);  // steps of the clusters that have one more
    const int first = begin < longer ? begin / (grid.per_cluster + 1) : grid.num_longer + (begin - longer) / max(grid.per_cluster, 1);
    int last = first;
    while (SplitOrder<T>::find_begin(grid, last + 1) < end) ++last;
    return {first, last};
}

// Four sums at one place of all parts of a tile, added in order of k.
template <class T>
__device__ __forceinline__ float4 add_fours(const SplitGrid& grid, const PartOwners& owners, int rank, int place) {
    float4 total = __ldcg(reinterpret_cast<const float4*>(find_part<T>(grid, owners.first, rank, true)) + place);
#pragma unroll 8
    for (int other = owners.first + 1; other <= owners.last; ++other) {
        const float4 part = __ldcg(reinterpret_cast<const float4*>(find_part<T>(grid, other, rank, false)) + place);
        total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
    }
    return total;
}

// Behind add_fours, of parts as threads hold them: a lane has two columns of two rows of D, 8 apart, of 16 rows and 8 columns; four of
// neighbouring rows make four rows of one of them. Returns the place of the first.
struct TurnedFour {
    int row, column;
};

__device__ __forceinline__ TurnedFour turn_fours(float4* total, int lane) {
    const int four = lane / 4 % 4;
    *total = exchange_fours<4>(*total, four);
    return {four / 2 * 8 + lane / 16 * 4, lane % 4 * 2 + four % 2};
}

// Calls `use(row, column, four sums)`, of neighbouring columns of D's tile (rows where kTurned), with the sums of all parts of tile
// blockIdx.x / kClusterSize, in order of k; blockIdx.y counts its blocks. Rows and columns are counted as in D, or turned.
template <class T, bool kTurned, class Use>
__device__ __forceinline__ void add_parts(const SplitGrid& grid, Use use) {
    using L = WgmmaLayout<T>;
    const TileOrder<T> order(grid);
    const int tile = order.next;
    const int rank = order.find_rank();
    const PartOwners owners = find_part_owners<T>(grid, tile);
    if (owners.has_one()) return;
    const int place = static_cast<int>(blockIdx.y) * kAddThreads + static_cast<int>(threadIdx.x);
    if (place >= T::bm * T::bn / 4) return;
    // Of whole warps, where they are kept as threads hold them.
    using Slot = SumSlot<T>;
    const int vector = place / kWarpGroupThreads % Slot::kVectors;
    const int first_column = vector % Slot::kBlockVectors * 8;
    if (kTurned && T::is_even && first_column >= T::count_columns(grid)) return;
    float4 total = add_fours<T>(grid, owners, rank, place);
    const TileWork work = order.find_tile(tile, 0, grid.num_steps);
    if constexpr (kTurned) {
        const int thread = place % kWarpGroupThreads;
        const TurnedFour at = turn_fours(&total, thread % 32);
        const int row = place / (kWarpGroupThreads * Slot::kVectors) * L::kRows + vector / Slot::kBlockVectors * 64 + thread / 32 * 16;
        use(work.column + first_column + at.column, work.row + row + at.row, total);
    } else {
        static_assert(!T::is_even, "a part's columns are a row's, of which the last may be no tile's");
        use(work.row + place * 4 / T::bn, work.column + place * 4 % T::bn, total);
    }
}

}  // namespace aicf

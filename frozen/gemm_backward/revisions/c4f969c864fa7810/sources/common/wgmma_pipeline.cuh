// The Hopper main loop for 16-bit floats and TF32, D = A B with fp32 sums: a warp of producers feeds a ring of tiles by tensor copies, two
// or three warp groups multiply them by wgmma, and hand the sums of each tile to an epilogue of the op's own.
//
//   warp group 0   one thread copies tiles of A and B into the ring; it gives its registers to the others
//   the others     multiply. Cooperative: each takes its share of the rows of a tile of D. Ping-pong: each takes every other tile, so that
//                  one's epilogue runs under the other's products. Tiles of 64 rows are one group's without ping-pong
//
// Blocks are persistent. Those of a cluster work on neighbouring tiles and copy the operand that they share once, by multicast: a column of
// blocks shares tiles of B, a row shares tiles of A.
//
// An operand lies along k ([m, k], [n, k]), which is wgmma's own order, or is transposed: along m or n ([k, m], [k, n]), which
// TF32 cannot be.
//
// An epilogue is made by each warp group that multiplies, in front of its first tile, and has
//   begin(tile)         before the products of a tile: fetches
//   finish(sums, tile)  the sums behind all of them
//   end()               behind the last tile
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/compute_here.cuh"
#include "common/division.hpp"
#include "common/half_types.cuh"
#include "common/mma.cuh"
#include "common/programmatic.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"

namespace aicf {

// Warp groups that multiply: three have 64 rows of a tile of 192 each, and one has all of a tile of 64.
constexpr int count_consumers(int bm, bool is_pingpong) { return is_pingpong ? 2 : bm == 192 ? 3 : bm == 64 ? 1 : 2; }

struct TileGrid;

// Tunables of one instance; kEpilogueBytes of shared memory are the epilogue's, on a 16-byte boundary. Elements have kItemBytes.
template <int kBm, int kBn, int kStages, int kClusterM, int kClusterN, int kPingpong, int kGroup, int kSlabsPerWarp, int kEpilogueBytes,
          int kItemBytes = 2>
struct WgmmaTunables {
    static constexpr int bm = kBm, bn = kBn, stages = kStages, clusterm = kClusterM, clustern = kClusterN, pingpong = kPingpong,
                         group = kGroup, slabs = kSlabsPerWarp, epilogue_bytes = kEpilogueBytes, item_bytes = kItemBytes;
    static constexpr int groups = count_consumers(kBm, kPingpong);
    static constexpr bool is_even = false;  // a tile has bn columns, and not as many of them as the grid says
    static constexpr int least_columns = kBn;

    __host__ __device__ static constexpr int count_columns(const TileGrid& /*grid*/) { return bn; }
};

// Shapes and places in shared memory.
template <class T>
struct WgmmaLayout {
    static constexpr int kTileK = kSwizzleBytes / T::item_bytes;  // a row of the swizzle
    static constexpr int kConsumers = T::groups * kWarpGroupThreads;  // threads that multiply
    static constexpr int kThreads = kWarpGroupThreads + kConsumers;
    // What those who copy leave of a multiprocessor's 65536 to those who multiply, which one group need not ask for.
    static constexpr int kRegisters = T::groups == 2 ? 240 : 160;
    static constexpr int kClusterSize = T::clusterm * T::clustern;
    static constexpr int kRows = T::pingpong ? T::bm : T::bm / T::groups;  // of D's tile, that one warp group computes
    static constexpr int kBlocksM = kRows / 64;  // products of a warp group, one below the other
    static constexpr int kSums = T::bn / 2;  // of each of them, per thread

    static constexpr int kBytesA = T::bm * kSwizzleBytes;
    static constexpr int kBytesB = T::bn * kSwizzleBytes;
    static constexpr int kStageBytes = kBytesA + kBytesB;
    static constexpr int kRingBytes = T::stages * kStageBytes;
    // A warp stores 16 rows of 128 bytes at a time, and fills the next while the last is on its way.
    static constexpr int kSlabColumns = kSwizzleBytes / T::item_bytes;
    static constexpr int kSlabSums = kSlabColumns / 2;  // of them, per thread
    static constexpr int kSlabs = T::bn / kSlabColumns;
    static constexpr int kSlabRows = 16;
    static constexpr int kSlabBytes = kSlabRows * kSwizzleBytes;
    static constexpr int kNumSlabs = T::slabs;
    static constexpr int kStoreBytes = 4 * T::groups * kNumSlabs * kSlabBytes;

    // Of a tile with so many columns. Where they are fewer than bn, more stages fit the ring.
    __host__ __device__ static constexpr int count_stage_bytes(int columns) { return kBytesA + columns * kSwizzleBytes; }
    __host__ __device__ static constexpr int count_stages(int columns) {
        return T::is_even ? kRingBytes / count_stage_bytes(columns) : T::stages;
    }
    static constexpr int kMaxStages = count_stages(T::least_columns);

    static constexpr int kStoreOffset = kRingBytes;
    static constexpr int kEpilogueOffset = kStoreOffset + kStoreBytes;
    static constexpr int kBarrierOffset = kEpilogueOffset + T::epilogue_bytes;
    static constexpr int kSharedBytes = kBarrierOffset + 2 * kMaxStages * static_cast<int>(sizeof(Barrier));

    static_assert(kRows % 64 == 0 && T::bn % 8 == 0, "a warp group multiplies 64 rows and groups of 8 columns");
    static_assert(kClusterSize <= 8 && (kClusterSize & (kClusterSize - 1)) == 0, "a lane for each block of the cluster, which is portable");
    static_assert(T::epilogue_bytes % 16 == 0, "barriers lie behind the epilogue's part");
    static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit shared memory");
};

// What a block does at a time: the products of some steps of k, all or part, of one tile of D.
struct TileWork {
    int row, column;  // of D: the tile's first
    int first_step, num_steps;
};

// The tiles of D of all clusters: their number, their steps of k, and what TileOrder divides by: a whole group's tiles, the rows of the
// last group.
struct TileGrid {
    int num_tiles, num_steps;
    Divisor per_group, last_rows;
};

// Of tiles of `tile_columns` columns. Sizes and the number of tiles fit an int.
template <class T>
inline TileGrid make_tile_grid(std::int64_t m, std::int64_t n, std::int64_t k, int tile_columns = T::bn) {
    const auto divide_up = [](std::int64_t size, int by) { return static_cast<int>(size / by + (size % by != 0)); };
    const int rows = divide_up(m, T::bm * T::clusterm);
    const int columns = divide_up(n, tile_columns * T::clustern);
    return {rows * columns, divide_up(k, WgmmaLayout<T>::kTileK), make_divisor(std::int64_t{T::group} * columns),
            make_divisor((rows - 1) % T::group + 1)};
}

// Which whole tile a block works on, one after the other: the cluster's number walks down `group` rows of cluster tiles before the next
// column.
template <class T>
struct TileOrder {
    using L = WgmmaLayout<T>;
    const TileGrid& grid;
    int next;

    __device__ __forceinline__ explicit TileOrder(const TileGrid& of) : grid(of), next(static_cast<int>(blockIdx.x) / L::kClusterSize) {}

    // Read again wherever they are wanted. Clusters lie along x.
    __device__ static __forceinline__ int count_clusters() { return compute_here(static_cast<int>(gridDim.x)) / L::kClusterSize; }
    __device__ static __forceinline__ int find_rank() { return compute_here(static_cast<int>(blockIdx.x)) % L::kClusterSize; }
    __device__ static __forceinline__ int find_row_in_cluster() { return T::clusterm > 1 ? find_rank() % T::clusterm : 0; }
    __device__ static __forceinline__ int find_column_in_cluster() { return T::clustern > 1 ? find_rank() / T::clusterm : 0; }

    // The blocks of the cluster in this one's row, which share tiles of A, and in its column, which share tiles of B: a bit each.
    __device__ static __forceinline__ std::uint16_t find_row_sharers() {
        unsigned row = 0;
        for (int i = 0; i < T::clustern; ++i) row |= 1u << (i * T::clusterm);
        return static_cast<std::uint16_t>(row << find_row_in_cluster());
    }
    __device__ static __forceinline__ std::uint16_t find_column_sharers() {
        return static_cast<std::uint16_t>(((1u << T::clusterm) - 1) << (find_column_in_cluster() * T::clusterm));
    }

    __device__ __forceinline__ bool has_next() const { return next < grid.num_tiles; }
    __device__ __forceinline__ bool has_second() const { return next + count_clusters() < grid.num_tiles; }
    __device__ __forceinline__ void advance() { next += count_clusters(); }
    __device__ __forceinline__ void forget() { next = compute_here(next); }
    __device__ __forceinline__ TileWork find() const { return find_tile(next, 0, grid.num_steps); }

    __device__ __forceinline__ TileWork find_tile(int tile, int first_step, int num_steps) const {
        const int group = grid.per_group.divide(tile);
        const int within = grid.per_group.find_remainder(tile, group);
        // All groups but the last are whole.
        const bool is_last = (group + 1) * static_cast<int>(grid.per_group.divisor) >= grid.num_tiles;
        const int rows = is_last ? static_cast<int>(grid.last_rows.divisor) : T::group;
        const int cluster_column = is_last ? grid.last_rows.divide(within) : within / T::group;
        const int cluster_row = group * T::group + within - cluster_column * rows;
        return {(cluster_row * T::clusterm + find_row_in_cluster()) * T::bm,
                (cluster_column * T::clustern + find_column_in_cluster()) * T::count_columns(grid), first_step, num_steps};
    }
};

// Copies this block's part of one operand's tile, kCount rows (or columns) of D from `first` on and kTileK steps of k, to all kSharers
// blocks that need it, `sharers` by their bits: those along the other direction of the cluster, of which this is number `place`. `count` of
// the rows are there.
//
// A part need not begin with the swizzle's pattern, which follows addresses. Several small parts a block are no way: copies of 8 rows to
// four blocks take 2 to 8 times as long as the products of a step (H200).
template <bool kTransposed, int kCount, int kSharers>
__device__ __forceinline__ void copy_operand(std::uint8_t* tile, const TensorMap* map, int first, int k, int place, std::uint16_t sharers,
                                             Barrier* ready, int count = kCount) {
    constexpr int kTileK = 64;
    const auto copy = [&](std::uint8_t* target, int x, int y) {
        if constexpr (kSharers > 1) {
            load_box_multicast(target, map, x, y, ready, sharers);
        } else {
            load_box(target, map, x, y, ready);
        }
    };
    if constexpr (kTransposed) {
        constexpr int kColumns = kSwizzleBytes / 2;
        const int row = place * (kTileK / kSharers);
#pragma unroll
        for (int slab = 0; slab < kCount / kColumns; ++slab) {
            copy(tile + (slab * kTileK + row) * kSwizzleBytes, first + slab * kColumns, k + row);
        }
    } else {
        const int row = place * (count / kSharers);
        copy(tile + row * kSwizzleBytes, k, first + row);
    }
}

// The one thread that fills the ring.
template <class T, bool kTransposedA, bool kTransposedB, class Order>
__device__ __forceinline__ void produce_tiles(const TensorMap* map_a, const TensorMap* map_b, Order order, std::uint8_t* ring,
                                              Barrier* full, Barrier* empty) {
    using L = WgmmaLayout<T>;
    RingPosition<L::kMaxStages> position;
    const int num_stages = L::count_stages(T::count_columns(order.grid));
    for (; order.has_next(); order.advance()) {
        const TileWork tile = order.find();
        for (int step = 0; step < tile.num_steps; ++step, position.advance(num_stages)) {
            const int k = (tile.first_step + step) * L::kTileK;
            const int columns = T::count_columns(order.grid);
            const int stage_bytes = L::count_stage_bytes(columns);
            std::uint8_t* tile_a = ring + position.stage * stage_bytes;
            Barrier* ready = full + position.stage;
            wait_phase(empty + position.stage, position.parity ^ 1);
            arrive_expecting(ready, static_cast<std::uint32_t>(stage_bytes));
            copy_operand<kTransposedA, T::bm, T::clustern>(tile_a, map_a, tile.row, k, TileOrder<T>::find_column_in_cluster(),
                                                           TileOrder<T>::find_row_sharers(), ready);
            copy_operand<kTransposedB, T::bn, T::clusterm>(tile_a + L::kBytesA, map_b, tile.column, k, TileOrder<T>::find_row_in_cluster(),
                                                           TileOrder<T>::find_column_sharers(), ready, columns);
        }
    }
}

// Of a thread that multiplies: its warp group, from 0 on, its number in that, and the warp's.
__device__ __forceinline__ int find_consumer() { return static_cast<int>(threadIdx.x) / kWarpGroupThreads - 1; }
__device__ __forceinline__ int find_group_thread() { return static_cast<int>(threadIdx.x) % kWarpGroupThreads; }
__device__ __forceinline__ int find_group_warp() { return find_group_thread() / 32; }

// Steps of k that the other warp groups run behind the first, where they share tiles and have several: the tensor cores then have the
// one's products while the other is at its epilogue.
inline constexpr int kLag = 2;
inline constexpr int kLagBarrier = 5;

// The products of one tile, with the first kUsed sums of each block: all steps of k, one group of them always in flight. A slot of the
// ring is given back one step late.
template <class Element, class T, bool kTransposedA, bool kTransposedB, int kUsed = WgmmaLayout<T>::kSums>
__device__ __forceinline__ void multiply_tile(float (&sums)[WgmmaLayout<T>::kBlocksM][WgmmaLayout<T>::kSums], int num_steps, int first_row,
                                              std::uint8_t* ring, Barrier* full, Barrier* empty,
                                              RingPosition<WgmmaLayout<T>::kMaxStages>& position, bool begins_lag) {
    using L = WgmmaLayout<T>;
    constexpr int kStageBytes = L::count_stage_bytes(2 * kUsed);
    constexpr int kStepsPerTile = kSwizzleBytes / 32;  // a product takes 32 bytes of k
    static_assert(T::item_bytes == 2 || !(kTransposedA || kTransposedB), "only 16-bit floats have transposed operands");
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // Each warp for itself: wgmma.wait_group speaks for the warp that runs it.
    const auto give_back = [&](int stage) {
        if constexpr (L::kClusterSize > 1) {
            if (lane < L::kClusterSize) arrive_at_block(empty + stage, static_cast<std::uint32_t>(lane));
        } else {
            if (lane == 0) arrive(empty + stage);
        }
    };
    if (begins_lag && first_row > 0) sync_named<L::kConsumers>(kLagBarrier);
    int last_stage = 0;
    for (int step = 0; step < num_steps; ++step, position.advance(L::count_stages(2 * kUsed))) {
        // 64 rows of A lie 64 rows of shared memory apart either way: as rows, or as kTileK rows of k (16-bit floats).
        const std::uint8_t* tile_a = ring + position.stage * kStageBytes + first_row * kSwizzleBytes;
        const std::uint8_t* tile_b = ring + position.stage * kStageBytes + L::kBytesA;
        wait_phase(full + position.stage, position.parity);
#pragma unroll
        for (int i = 0; i < L::kBlocksM; ++i) pin_sums(sums[i]);
        fence_products();
        const std::uint64_t a = describe_tile<16, kSwizzleAtomBytes>(tile_a);
        // N-major: slabs of 64 columns lie kTileK rows apart.
        const std::uint64_t b = kTransposedB ? describe_tile<L::kTileK * kSwizzleBytes, kSwizzleAtomBytes>(tile_b)
                                             : describe_tile<16, kSwizzleAtomBytes>(tile_b);
#pragma unroll
        for (int i = 0; i < kStepsPerTile; ++i) {
            constexpr int kStepA = kTransposedA ? 16 * kSwizzleBytes : 32;
            constexpr int kStepB = kTransposedB ? 16 * kSwizzleBytes : 32;
#pragma unroll
            for (int j = 0; j < L::kBlocksM; ++j) {
                multiply_group<Element, kTransposedA, kTransposedB>(reinterpret_cast<float (&)[kUsed]>(sums[j]),
                                                                    a + ((j * 64 * kSwizzleBytes + i * kStepA) >> 4),
                                                                    b + ((i * kStepB) >> 4), step + i > 0);
            }
        }
        commit_products();
#pragma unroll
        for (int i = 0; i < L::kBlocksM; ++i) pin_sums(sums[i]);
        wait_products<1>();
        if (step > 0) give_back(last_stage);
        if (begins_lag && first_row == 0 && step + 1 == kLag) arrive_named<L::kConsumers>(kLagBarrier);
        last_stage = position.stage;
    }
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < L::kBlocksM; ++i) pin_sums(sums[i]);
    give_back(last_stage);
}

// Calls use(number), with one of kFirst, kFirst + kStep, ... in front of kEnd as a constant: found by halving.
template <int kFirst, int kEnd, int kStep = 1, class Use>
__device__ __forceinline__ void visit_number(int number, const Use& use) {
    if constexpr (kEnd - kFirst <= kStep) {
        use(std::integral_constant<int, kFirst>{});
    } else {
        constexpr int kMiddle = kFirst + (kEnd - kFirst) / kStep / 2 * kStep;
        if (number < kMiddle) {
            visit_number<kFirst, kMiddle, kStep>(number, use);
        } else {
            visit_number<kMiddle, kEnd, kStep>(number, use);
        }
    }
}

// A slab of 16-bit floats is 16 rows of 64 columns of D, those of one warp, in shared memory as a tensor copy with the 128-byte swizzle has
// them. A thread's part of it are 16 words: pairs of columns, two rows each, of 8 blocks of 8 columns, in the order of wgmma's sums. Chunk
// i of four are words 4 i to 4 i + 3, as load_matrices and store_matrices take them.
//
// The shared address of this lane's row of chunk 0. Slabs are aligned to the swizzle's period, so that the other chunks differ in two bits.
__device__ __forceinline__ std::uint32_t find_slab_row(const std::uint8_t* slab, int lane) {
    return find_shared_address(slab) + static_cast<std::uint32_t>(lane % 16 * kSwizzleBytes + (lane / 16 ^ lane % 8) * 16);
}

__device__ __forceinline__ std::uint32_t find_slab_chunk(std::uint32_t row_address, int i) {
    return row_address ^ static_cast<std::uint32_t>(i * 32);
}

// Copies a slab that this warp has written to columns [column, column + 64) of 16 rows from `row` on of a matrix.
__device__ __forceinline__ void send_slab(const std::uint8_t* slab, int lane, const TensorMap* map, int column, int row) {
    publish_shared_writes();
    __syncwarp();
    if (lane == 0) {
        store_box(map, column, row, slab);
        commit_stores();
    }
}

// Writes a thread's part of a slab of 16-bit floats, and sends the slab.
__device__ __forceinline__ void store_slab(std::uint8_t* slab, int lane, const TensorMap* map, int column, int row,
                                           const std::uint32_t (&words)[16]) {
    const std::uint32_t row_address = find_slab_row(slab, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const std::uint32_t four[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
        store_matrices(find_slab_chunk(row_address, i), four);
    }
    send_slab(slab, lane, map, column, row);
}

// The same of fp32, 16 rows of 32 columns: a thread's part are 16 values, pairs of columns, two rows each, of 4 blocks of 8 columns.
__device__ __forceinline__ void store_slab(std::uint8_t* slab, int lane, const TensorMap* map, int column, int row, const float* values) {
    const int first = lane / 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int chunk = (2 * i + lane % 4 / 2) ^ first;
        std::uint8_t* place = slab + first * kSwizzleBytes + chunk * 16 + lane % 2 * 8;
        *reinterpret_cast<float2*>(place) = {values[4 * i], values[4 * i + 1]};
        *reinterpret_cast<float2*>(place + 8 * kSwizzleBytes) = {values[4 * i + 2], values[4 * i + 3]};
    }
    send_slab(slab, lane, map, column, row);
}

// A thread's 32 sums of a slab, rounded in pairs.
template <class Element>
__device__ __forceinline__ void pack_slab(std::uint32_t (&words)[16], const float* sums) {
#pragma unroll
    for (int i = 0; i < 16; ++i) words[i] = pack_pair<Element>(sums[2 * i], sums[2 * i + 1]);
}

// The same, clamped to zero from below on the way.
template <class Element>
__device__ __forceinline__ void pack_relu_slab(std::uint32_t (&words)[16], const float* sums) {
#pragma unroll
    for (int i = 0; i < 16; ++i) words[i] = pack_relu_pair<Element>(sums[2 * i], sums[2 * i + 1]);
}

// A warp's way out, T::slabs slabs one after the other.
template <class T>
struct SlabWriter {
    using L = WgmmaLayout<T>;
    static_assert(T::bn % L::kSlabColumns == 0, "a tile is whole slabs");
    std::uint8_t* slabs;  // of this warp
    int lane;
    int next = 0;

    __device__ __forceinline__ explicit SlabWriter(std::uint8_t* shared)
        : slabs(shared + L::kStoreOffset + (find_consumer() * 4 + find_group_warp()) * L::kNumSlabs * L::kSlabBytes),
          lane(static_cast<int>(threadIdx.x) % 32) {}

    // `part` is what a slab holds of this thread: 16 words, or 16 floats.
    template <class Part>
    __device__ __forceinline__ void store(const TensorMap* map, int column, int row, const Part& part) {
        std::uint8_t* slab = slabs + next * L::kSlabBytes;
        next = next + 1 == L::kNumSlabs ? 0 : next + 1;
        if (lane == 0) wait_stores_read<L::kNumSlabs - 1>();
        __syncwarp();
        store_slab(slab, lane, map, column, row, part);
    }

    // Shared memory must outlive what reads it.
    __device__ __forceinline__ void end() const {
        if (lane == 0) wait_stores_read<0>();
    }
};

// One of the warp groups that multiply.
template <class Element, class T, bool kTransposedA, bool kTransposedB, class Order, class Epilogue>
__device__ __forceinline__ void consume_tiles(Order order, std::uint8_t* ring, Barrier* full, Barrier* empty, Epilogue epilogue) {
    using L = WgmmaLayout<T>;
    constexpr int kOrderBarrier = 3;  // and 4: of both
    const int consumer = find_consumer();
    const int first_row = T::pingpong ? 0 : consumer * L::kRows;
    RingPosition<L::kMaxStages> position;
    if constexpr (T::pingpong) {
        if (consumer == 1) {
            arrive_named<2 * kWarpGroupThreads>(kOrderBarrier);
            position.skip(order.find().num_steps);
            order.advance();
        }
    }
    bool begins_lag = !T::pingpong && T::groups > 1 && order.has_second() && order.find().num_steps >= kLag;
    float sums[L::kBlocksM][L::kSums];
    while (order.has_next()) {
        const auto find_part = [&] {
            TileWork tile = order.find();
            tile.row += first_row;
            return tile;
        };
        const TileWork next = find_part();
        epilogue.begin(next);
        if constexpr (T::pingpong) sync_named<2 * kWarpGroupThreads>(kOrderBarrier + consumer);
        const auto multiply = [&](auto columns) {
            multiply_tile<Element, T, kTransposedA, kTransposedB, columns.value / 2>(sums, next.num_steps, first_row, ring, full, empty,
                                                                                     position, begins_lag);
        };
        if constexpr (T::is_even) {
            visit_number<T::least_columns, T::bn + T::column_step, T::column_step>(T::count_columns(order.grid), multiply);
        } else {
            multiply(std::integral_constant<int, T::bn>{});
        }
        begins_lag = false;
        // Found again, so that it takes no registers beside the products.
        order.forget();
        const TileWork tile = find_part();
        order.advance();
        if constexpr (T::pingpong) {
            // The other group's next tile is the one behind this.
            if (order.has_next()) {
                arrive_named<2 * kWarpGroupThreads>(kOrderBarrier + 1 - consumer);
                position.skip(order.find().num_steps);
            }
            order.advance();
        }
        epilogue.finish(sums, tile);
    }
    epilogue.end();
}

// The whole kernel: `make_epilogue()` is called in the threads that multiply, behind wait_for_predecessor().
template <class Element, class T, bool kTransposedA, bool kTransposedB, template <class> class Order, class Grid, class MakeEpilogue>
__device__ __forceinline__ void multiply_tiles(const TensorMap* map_a, const TensorMap* map_b, const Grid& grid, std::uint8_t* shared,
                                               MakeEpilogue make_epilogue) {
    using L = WgmmaLayout<T>;
    Barrier* full = reinterpret_cast<Barrier*>(shared + L::kBarrierOffset);
    Barrier* empty = full + L::kMaxStages;
    const auto init_barriers = [&] {
        constexpr int kReaders = T::pingpong ? 4 : 4 * T::groups;  // warps that read a slot
        for (int i = 0; i < L::kMaxStages; ++i) {
            init_barrier(full + i, 1);
            init_barrier(empty + i, kReaders * L::kClusterSize);
        }
        publish_barriers();
    };
    if constexpr (L::kClusterSize > 1) {
        if (threadIdx.x == 0) {
            prefetch_map(map_a);
            prefetch_map(map_b);
            init_barriers();
        }
        meet_cluster();
    }
    allow_successor();
    // Alone, a block has its first copies on their way before the other warp groups are there: these meet the copying warp, which does not
    // wait for them.
    constexpr int kStartBarrier = 6;
    constexpr int kStartThreads = 32 + L::kConsumers;
    if (threadIdx.x < kWarpGroupThreads) {
        if constexpr (T::groups > 1) release_registers<24>();
        if (threadIdx.x < 32) {
            if constexpr (L::kClusterSize == 1) {
                if (threadIdx.x == 0) init_barriers();
                __syncwarp();
                arrive_named<kStartThreads>(kStartBarrier);
            }
            wait_for_predecessor();
            if (threadIdx.x == 0) produce_tiles<T, kTransposedA, kTransposedB>(map_a, map_b, Order<T>(grid), shared, full, empty);
        }
    } else {
        if constexpr (T::groups > 1) claim_registers<L::kRegisters>();
        if constexpr (L::kClusterSize == 1) sync_named<kStartThreads>(kStartBarrier);
        wait_for_predecessor();
        consume_tiles<Element, T, kTransposedA, kTransposedB>(Order<T>(grid), shared, full, empty, make_epilogue());
    }
    // No block may leave while another copies into its shared memory or arrives at its barriers.
    if constexpr (L::kClusterSize > 1) {
        __syncwarp();
        meet_cluster();
    }
}

}  // namespace aicf

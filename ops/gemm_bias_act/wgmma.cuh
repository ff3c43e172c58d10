// The Hopper kernel for 16-bit floats: a warp of producers feeds a ring of tiles by tensor copies, two warp groups multiply them by wgmma.
//
//   warp group 0   one thread copies tiles of A and B into the ring; it gives its registers to the others
//   warp group 1,2 multiply. Cooperative: each takes half of the rows of a tile of Y. Ping-pong: each takes every other tile, so that one's
//                  epilogue runs under the other's products
//
// Blocks are persistent. Those of a cluster work on neighbouring tiles and copy the operand that they share once, by multicast: a column of
// blocks shares tiles of B, a row shares tiles of A.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/activations.cuh"
#include "common/cluster.cuh"
#include "common/division.hpp"
#include "common/half_types.cuh"
#include "common/mma.cuh"
#include "common/programmatic.cuh"
#include "common/tensor_copy.cuh"
#include "common/wgmma.cuh"

namespace aicf::gemm_bias_act {

// Tunables of one instance; meanings in op.py.
template <int kBm, int kBn, int kStages, int kClusterM, int kClusterN, int kPingpong, int kGroup>
struct WgmmaTunables {
    static constexpr int bm = kBm, bn = kBn, stages = kStages, clusterm = kClusterM, clustern = kClusterN, pingpong = kPingpong,
                         group = kGroup;
};

// Shapes and places in shared memory.
template <class T>
struct WgmmaLayout {
    static constexpr int kTileK = 64;  // 128 bytes of 16-bit floats: a row of the swizzle
    static constexpr int kThreads = 3 * kWarpGroupThreads;
    static constexpr int kClusterSize = T::clusterm * T::clustern;
    static constexpr int kRows = T::pingpong ? T::bm : T::bm / 2;  // of Y's tile, that one warp group computes
    static constexpr int kBlocksM = kRows / 64;  // products of a warp group, one below the other
    static constexpr int kSums = T::bn / 2;  // of each of them, per thread

    static constexpr int kBytesA = T::bm * kSwizzleBytes;
    static constexpr int kBytesB = T::bn * kSwizzleBytes;
    static constexpr int kStageBytes = kBytesA + kBytesB;
    // A warp stores 16 rows of 64 columns at a time, and fills the next while the last is on its way.
    static constexpr int kSlabColumns = 64;
    static constexpr int kSlabs = T::bn / kSlabColumns;
    static constexpr int kSlabRows = 16;
    static constexpr int kSlabBytes = kSlabRows * kSwizzleBytes;
    static constexpr int kNumSlabs = 2;
    static constexpr int kStoreBytes = 8 * kNumSlabs * kSlabBytes;
    static constexpr int kBiasBytes = T::bn * 2;
    static constexpr int kNumBias = 2;  // per warp group

    static constexpr int kStoreOffset = T::stages * kStageBytes;
    static constexpr int kBiasOffset = kStoreOffset + kStoreBytes;
    static constexpr int kBarrierOffset = kBiasOffset + 2 * kNumBias * kBiasBytes;
    static constexpr int kSharedBytes = kBarrierOffset + 2 * T::stages * static_cast<int>(sizeof(Barrier));

    static_assert(kRows % 64 == 0 && T::bn % kSlabColumns == 0, "a warp group multiplies 64 rows, and stores 64 columns");
    static_assert(kClusterSize == 1 || kClusterSize == 2, "a consumer tells each block of its cluster, all of which share an operand");
    static_assert(kSharedBytes <= 227 * 1024, "the ring does not fit shared memory");
};

// One problem, beside its tensor maps.
struct WgmmaProblem {
    const void* bias;  // [n] or null
    int m, n, k;
    int act;
    bool has_z;
    // Tiles of clusters: their number, and what TileOrder divides by: a whole group's tiles, the rows of the last group.
    int num_tiles;
    Divisor per_group, last_rows;
};

// Which tile a block works on, one after the other: the cluster's number walks down `group` rows of cluster tiles before the next column.
template <class T>
struct TileOrder {
    using L = WgmmaLayout<T>;
    const WgmmaProblem& problem;
    int next, step;
    int row_in_cluster, column_in_cluster;

    __device__ __forceinline__ TileOrder(const WgmmaProblem& of, std::uint32_t rank) : problem(of) {
        next = static_cast<int>(blockIdx.x) / L::kClusterSize;
        step = static_cast<int>(gridDim.x) / L::kClusterSize;
        row_in_cluster = static_cast<int>(rank) % T::clusterm;
        column_in_cluster = static_cast<int>(rank) / T::clusterm;
    }

    __device__ __forceinline__ bool has_next() const { return next < problem.num_tiles; }
    __device__ __forceinline__ void advance() { next += step; }

    // First row and column of the next tile.
    __device__ __forceinline__ int2 find() const {
        const int group = problem.per_group.divide(next);
        const int within = problem.per_group.find_remainder(next, group);
        // All groups but the last are whole.
        const bool is_last = (group + 1) * static_cast<int>(problem.per_group.divisor) >= problem.num_tiles;
        const int rows = is_last ? static_cast<int>(problem.last_rows.divisor) : T::group;
        const int cluster_column = is_last ? problem.last_rows.divide(within) : within / T::group;
        const int cluster_row = group * T::group + within - cluster_column * rows;
        return {(cluster_row * T::clusterm + row_in_cluster) * T::bm, (cluster_column * T::clustern + column_in_cluster) * T::bn};
    }
};

// Fills in what a problem says of its tiles; sizes and the number of tiles fit an int.
template <class T>
inline void count_tiles(WgmmaProblem& problem) {
    const auto divide_up = [](int size, int by) { return size / by + (size % by != 0); };
    const int rows = divide_up(problem.m, T::bm * T::clusterm);
    const int columns = divide_up(problem.n, T::bn * T::clustern);
    problem.num_tiles = rows * columns;
    problem.per_group = make_divisor(std::int64_t{T::group} * columns);
    problem.last_rows = make_divisor((rows - 1) % T::group + 1);
}

// The one thread that fills the ring.
template <class T, bool kTransposedB>
__device__ __forceinline__ void produce_tiles(const TensorMap* map_a, const TensorMap* map_b, const WgmmaProblem& problem,
                                              std::uint32_t rank, std::uint8_t* ring, Barrier* full, Barrier* empty) {
    using L = WgmmaLayout<T>;
    constexpr std::uint16_t kAllBlocks = (1u << L::kClusterSize) - 1;
    // Of an operand that the cluster shares each block copies its part, to all.
    constexpr int kPartA = T::bm / T::clustern;
    constexpr int kPartB = T::bn / T::clusterm;
    constexpr int kPartK = L::kTileK / T::clusterm;
    const int num_steps = (problem.k + L::kTileK - 1) / L::kTileK;
    RingPosition<T::stages> position;
    for (TileOrder<T> order(problem, rank); order.has_next(); order.advance()) {
        const int2 origin = order.find();
        for (int step = 0; step < num_steps; ++step, position.advance()) {
            const int k = step * L::kTileK;
            std::uint8_t* tile_a = ring + position.stage * L::kStageBytes;
            std::uint8_t* tile_b = tile_a + L::kBytesA;
            Barrier* ready = full + position.stage;
            wait_phase(empty + position.stage, position.parity ^ 1);
            arrive_expecting(ready, L::kStageBytes);
            if constexpr (T::clustern > 1) {
                const int row = order.column_in_cluster * kPartA;
                load_box_multicast(tile_a + row * kSwizzleBytes, map_a, k, origin.x + row, ready, kAllBlocks);
            } else {
                load_box(tile_a, map_a, k, origin.x, ready);
            }
            if constexpr (kTransposedB) {
                const int row = order.row_in_cluster * kPartK;
#pragma unroll
                for (int slab = 0; slab < L::kSlabs; ++slab) {
                    std::uint8_t* target = tile_b + (slab * L::kTileK + row) * kSwizzleBytes;
                    const int column = origin.y + slab * L::kSlabColumns;
                    if constexpr (T::clusterm > 1) {
                        load_box_multicast(target, map_b, column, k + row, ready, kAllBlocks);
                    } else {
                        load_box(target, map_b, column, k, ready);
                    }
                }
            } else if constexpr (T::clusterm > 1) {
                const int row = order.row_in_cluster * kPartB;
                load_box_multicast(tile_b + row * kSwizzleBytes, map_b, k, origin.y + row, ready, kAllBlocks);
            } else {
                load_box(tile_b, map_b, k, origin.y, ready);
            }
        }
    }
}

// Steps of k that the second warp group runs behind the first, where they share tiles and have several: the tensor cores then have the
// one's products while the other is at its epilogue.
inline constexpr int kLag = 2;
inline constexpr int kLagBarrier = 5;

// The products of one tile: all steps of k, one group of them always in flight. A slot of the ring is given back one step late.
template <class Element, class T, bool kTransposedB>
__device__ __forceinline__ void multiply_tile(float (&sums)[WgmmaLayout<T>::kBlocksM][WgmmaLayout<T>::kSums], int num_steps, int first_row,
                                              std::uint8_t* ring, Barrier* full, Barrier* empty, RingPosition<T::stages>& position,
                                              bool begins_lag) {
    using L = WgmmaLayout<T>;
    constexpr int kStepsPerTile = L::kTileK / 16;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // Each warp for itself: wgmma.wait_group speaks for the warp that runs it.
    const auto give_back = [&](int stage) {
        if constexpr (L::kClusterSize > 1) {
            if (lane < L::kClusterSize) arrive_at_block(empty + stage, static_cast<std::uint32_t>(lane));
        } else {
            if (lane == 0) arrive(empty + stage);
        }
    };
    if (begins_lag && first_row > 0) sync_named<2 * kWarpGroupThreads>(kLagBarrier);
    int last_stage = 0;
    for (int step = 0; step < num_steps; ++step, position.advance()) {
        const std::uint8_t* tile_a = ring + position.stage * L::kStageBytes + first_row * kSwizzleBytes;
        const std::uint8_t* tile_b = ring + position.stage * L::kStageBytes + L::kBytesA;
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
            constexpr int kStepB = kTransposedB ? 16 * kSwizzleBytes : 32;
#pragma unroll
            for (int j = 0; j < L::kBlocksM; ++j) {
                multiply_group<Element, false, kTransposedB>(sums[j], a + ((j * 64 * kSwizzleBytes + i * 32) >> 4), b + ((i * kStepB) >> 4),
                                                             step + i > 0);
            }
        }
        commit_products();
#pragma unroll
        for (int i = 0; i < L::kBlocksM; ++i) pin_sums(sums[i]);
        wait_products<1>();
        if (step > 0) give_back(last_stage);
        if (begins_lag && first_row == 0 && step + 1 == kLag) arrive_named<2 * kWarpGroupThreads>(kLagBarrier);
        last_stage = position.stage;
    }
    wait_products<0>();
#pragma unroll
    for (int i = 0; i < L::kBlocksM; ++i) pin_sums(sums[i]);
    give_back(last_stage);
}

// A warp's way out for 16 x 64 elements at a time: through swizzled slabs of shared memory, by tensor copies.
struct SlabWriter {
    std::uint8_t* slabs;  // kNumSlabs of this warp
    int lane;
    int next = 0;

    // Rounds and stores columns [column, column + 64) of 16 rows; `words` are pairs, two rows each, of 8 blocks of 8 columns.
    template <int kNumSlabs, int kSlabBytes>
    __device__ __forceinline__ void store(const TensorMap* map, int column, int row, const std::uint32_t (&words)[16]) {
        std::uint8_t* slab = slabs + next * kSlabBytes;
        next = next + 1 == kNumSlabs ? 0 : next + 1;
        if (lane == 0) wait_stores_read<kNumSlabs - 1>();
        __syncwarp();
        const std::uint32_t base = find_shared_address(slab) + static_cast<std::uint32_t>(lane % 16) * kSwizzleBytes;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const std::uint32_t chunk = static_cast<std::uint32_t>((2 * i + lane / 16) ^ (lane % 8));
            const std::uint32_t four[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
            store_matrices(base + chunk * 16, four);
        }
        publish_shared_writes();
        __syncwarp();
        if (lane == 0) {
            store_box(map, column, row, slab);
            commit_stores();
        }
    }
};

// Applies an activation, which is the same for all threads, to what one slab holds of a thread.
template <int kAct>
__device__ __forceinline__ void activate_slab(float* z) {
#pragma unroll
    for (int i = 0; i < 32; ++i) z[i] = apply_rough_activation<kAct>(z[i]);
}

// Bias, Z, activation and Y of 16 rows of each block of 64, whose sums are this warp's.
template <class Element, class T>
__device__ __forceinline__ void finish_tile(float (&sums)[WgmmaLayout<T>::kBlocksM][WgmmaLayout<T>::kSums], const WgmmaProblem& problem,
                                            const TensorMap* map_y, const TensorMap* map_z, const std::uint32_t* bias, int row, int column,
                                            SlabWriter& writer) {
    using L = WgmmaLayout<T>;
#pragma unroll
    for (int block = 0; block < L::kBlocksM; ++block) {
#pragma unroll
        for (int slab = 0; slab < L::kSlabs; ++slab) {
            float* z = sums[block] + slab * 32;
            std::uint32_t words[16];
            if (bias != nullptr) {
#pragma unroll
                for (int i = 0; i < 8; ++i) {
                    const float2 addend = unpack_pair<Element>(bias[slab * 32 + i * 4 + writer.lane % 4]);
                    z[4 * i + 0] += addend.x;
                    z[4 * i + 1] += addend.y;
                    z[4 * i + 2] += addend.x;
                    z[4 * i + 3] += addend.y;
                }
            }
            const int first_column = column + slab * L::kSlabColumns;
            if (problem.has_z) {
#pragma unroll
                for (int i = 0; i < 16; ++i) words[i] = pack_pair<Element>(z[2 * i], z[2 * i + 1]);
                writer.store<L::kNumSlabs, L::kSlabBytes>(map_z, first_column, row + block * 64, words);
            }
            switch (problem.act) {
                case AICF_ACT_RELU: activate_slab<AICF_ACT_RELU>(z); break;
                case AICF_ACT_GELU_TANH: activate_slab<AICF_ACT_GELU_TANH>(z); break;
                case AICF_ACT_GELU_ERF: activate_slab<AICF_ACT_GELU_ERF>(z); break;
                case AICF_ACT_SILU: activate_slab<AICF_ACT_SILU>(z); break;
                default: break;
            }
#pragma unroll
            for (int i = 0; i < 16; ++i) words[i] = pack_pair<Element>(z[2 * i], z[2 * i + 1]);
            writer.store<L::kNumSlabs, L::kSlabBytes>(map_y, first_column, row + block * 64, words);
        }
    }
}

// This thread's elements of a tile's bias, kWarpGroupThreads apart; zero past its end.
template <class T>
__device__ __forceinline__ void fetch_bias(std::uint16_t (&fetched)[(T::bn + kWarpGroupThreads - 1) / kWarpGroupThreads],
                                           const std::uint16_t* bias, int thread, int first_column, int num_columns) {
#pragma unroll
    for (int i = 0; i * kWarpGroupThreads < T::bn; ++i) {
        const int column = i * kWarpGroupThreads + thread;
        fetched[i] = column < T::bn && first_column + column < num_columns ? bias[first_column + column] : std::uint16_t{0};
    }
}

// One of the two warp groups that multiply.
template <class Element, class T, bool kTransposedB>
__device__ __forceinline__ void consume_tiles(const TensorMap* map_y, const TensorMap* map_z, const WgmmaProblem& problem,
                                              std::uint32_t rank, std::uint8_t* shared, Barrier* full, Barrier* empty) {
    using L = WgmmaLayout<T>;
    constexpr int kBiasBarrier = 1;  // and 2: of one warp group
    constexpr int kOrderBarrier = 3;  // and 4: of both
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    const int consumer = static_cast<int>(threadIdx.x) / kWarpGroupThreads - 1;
    const int warp = thread / 32;
    const int num_steps = (problem.k + L::kTileK - 1) / L::kTileK;
    const int first_row = T::pingpong ? 0 : consumer * L::kRows;
    const auto* bias = static_cast<const std::uint16_t*>(problem.bias);
    auto* bias_tiles = reinterpret_cast<std::uint16_t*>(shared + L::kBiasOffset) + consumer * L::kNumBias * T::bn;
    SlabWriter writer = {shared + L::kStoreOffset + (consumer * 4 + warp) * L::kNumSlabs * L::kSlabBytes, thread % 32};
    RingPosition<T::stages> position;
    TileOrder<T> order(problem, rank);
    if constexpr (T::pingpong) {
        if (consumer == 1) {
            arrive_named<2 * kWarpGroupThreads>(kOrderBarrier);
            order.advance();
            position.advance(num_steps);
        }
    }
    bool begins_lag = !T::pingpong && num_steps >= kLag && order.next + order.step < problem.num_tiles;
    int bias_tile = 0;
    float sums[L::kBlocksM][L::kSums];
    while (order.has_next()) {
        const int2 origin = order.find();
        // This tile's bias is fetched under the products; the other group's products hide it too, and then registers are worth more.
        std::uint16_t fetched[(T::bn + kWarpGroupThreads - 1) / kWarpGroupThreads];
        if (!T::pingpong && bias != nullptr) fetch_bias<T>(fetched, bias, thread, origin.y, problem.n);
        if constexpr (T::pingpong) sync_named<2 * kWarpGroupThreads>(kOrderBarrier + consumer);
        multiply_tile<Element, T, kTransposedB>(sums, num_steps, first_row, shared, full, empty, position, begins_lag);
        begins_lag = false;
        order.advance();
        if constexpr (T::pingpong) {
            // The other group's next tile is the one behind this.
            if (order.has_next()) arrive_named<2 * kWarpGroupThreads>(kOrderBarrier + 1 - consumer);
            order.advance();
            position.advance(num_steps);
        }
        const std::uint32_t* pairs = nullptr;
        if (bias != nullptr) {
            if (T::pingpong) fetch_bias<T>(fetched, bias, thread, origin.y, problem.n);
            std::uint16_t* target = bias_tiles + bias_tile * T::bn;
            bias_tile ^= 1;
#pragma unroll
            for (int i = 0; i * kWarpGroupThreads < T::bn; ++i) {
                const int column = i * kWarpGroupThreads + thread;
                if (column < T::bn) target[column] = fetched[i];
            }
            // The other of the two buffers may still be read by a slower warp.
            sync_named<kWarpGroupThreads>(kBiasBarrier + consumer);
            pairs = reinterpret_cast<const std::uint32_t*>(target);
        }
        const int row = origin.x + first_row + warp * 16;
        finish_tile<Element, T>(sums, problem, map_y, map_z, pairs, row, origin.y, writer);
    }
    if (writer.lane == 0) wait_stores_read<0>();
}

// Y[m, n] = act(A[m, k] B + bias[n]), Z the same before act. B is [k, n] where kTransposedB, else [n, k], which is wgmma's own order.
template <class Element, class T, bool kTransposedB>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_wgmma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                   const __grid_constant__ CUtensorMap map_y, const __grid_constant__ CUtensorMap map_z, const WgmmaProblem problem) {
    using L = WgmmaLayout<T>;
    extern __shared__ __align__(1024) std::uint8_t wgmma_shared[];
    std::uint8_t* const shared = wgmma_shared;
    Barrier* full = reinterpret_cast<Barrier*>(shared + L::kBarrierOffset);
    Barrier* empty = full + T::stages;
    const std::uint32_t rank = L::kClusterSize > 1 ? find_cluster_rank() : 0;
    if (threadIdx.x == 0) {
        constexpr int kConsumers = T::pingpong ? 4 : 8;  // warps that read a slot
        for (int i = 0; i < T::stages; ++i) {
            init_barrier(full + i, 1);
            init_barrier(empty + i, kConsumers * L::kClusterSize);
        }
        publish_barriers();
        prefetch_map(&map_a);
        prefetch_map(&map_b);
        prefetch_map(&map_y);
    }
    allow_successor();
    if constexpr (L::kClusterSize > 1) {
        meet_cluster();
    } else {
        __syncthreads();
    }
    if (threadIdx.x < kWarpGroupThreads) {
        release_registers<24>();
        wait_for_predecessor();
        if (threadIdx.x == 0) produce_tiles<T, kTransposedB>(&map_a, &map_b, problem, rank, shared, full, empty);
    } else {
        claim_registers<240>();
        wait_for_predecessor();
        consume_tiles<Element, T, kTransposedB>(&map_y, &map_z, problem, rank, shared, full, empty);
    }
    // No block may leave while another copies into its shared memory or arrives at its barriers.
    if constexpr (L::kClusterSize > 1) {
        __syncwarp();
        meet_cluster();
    }
}

}  // namespace aicf::gemm_bias_act

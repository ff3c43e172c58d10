// The building blocks of ops/common, each in the smallest kernel that uses it.
#include <cuda.h>

#include "common/activation_slopes.cuh"
#include "common/activations.cuh"
#include "common/cluster.cuh"
#include "common/division.hpp"
#include "common/half_types.cuh"
#include "common/mma.cuh"
#include "common/split_order.cuh"
#include "common/tensor_copy.cuh"
#include "common/tensor_map.hpp"
#include "common/wgmma.cuh"

using namespace aicf;

namespace {

__global__ void divide(const int* values, int count, Divisor divisor, int* quotients) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) quotients[i] = divisor.divide(values[i]);
}

// floats [count] are rounded to 16 bits in pairs, and each pattern of 16 bits is widened.
template <class Element>
__global__ void convert(const float* floats, std::uint32_t* pairs, float2* widened) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    pairs[i] = pack_pair<Element>(floats[2 * i], floats[2 * i + 1]);
    widened[i] = unpack_pair<Element>(2u * i | (2u * i + 1u) << 16);
}

__global__ void activate(const float* x, float* y, int count, int act) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) y[i] = apply_rough_activation(act, x[i]);
}

template <int kAct>
__global__ void pass_gradients(const float* gradients, const float* x, float* passed, int count) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < count) passed[i] = pass_gradient<kAct>(gradients[i], x[i]);
}

// What each block (a cluster of one) works on, in order: row, column, first step and number of steps; zeros behind the last.
using SplitTunables = WgmmaTunables<128, 64, 2, 1, 1, 0, 4, 2, 0>;
inline constexpr int kMaxWorks = 64;

// Tiles of 128 rows and up to 112 columns, or up to 208.
template <int kColumns>
using EvenTiles = EvenTunables<WgmmaTunables<128, kColumns, 2, 1, 1, 0, 4, 2, 0>>;

__global__ void tell_grid(const EvenSplitGrid grid, int* told) {
    told[0] = grid.columns;
    told[1] = grid.num_tiles;
    told[2] = grid.num_split;
}

__global__ void list_works(const SplitGrid grid, int4* works) {
    if (threadIdx.x > 0) return;
    int4* next = works + blockIdx.x * kMaxWorks;
    for (SplitOrder<SplitTunables> order(grid); order.has_next(); order.advance()) {
        const TileWork work = order.find();
        *next++ = {work.row, work.column, work.first_step, work.num_steps};
    }
}

// One warp: D[16, 16] = A[16, 16] B, B [n, k] or, transposed, [k, n]; then D, rounded, by stmatrix.
__global__ void multiply_tiles(const Bf16* a, const Bf16* b, float* d, std::uint16_t* stored, int is_transposed) {
    __shared__ __align__(16) std::uint16_t tiles[3][16 * 16];
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < 256; i += 32) tiles[0][i] = a[i].bits, tiles[1][i] = b[i].bits;
    __syncwarp();
    std::uint32_t fa[4], fb[4];
    load_matrices(fa, find_shared_address(tiles[0] + lane % 16 * 16 + lane / 16 * 8));
    if (is_transposed) {
        load_matrices_transposed(fb, find_shared_address(tiles[1] + (lane / 8 % 2 * 8 + lane % 8) * 16 + lane / 16 * 8));
    } else {
        load_matrices(fb, find_shared_address(tiles[1] + (lane / 16 * 8 + lane % 8) * 16 + lane / 8 % 2 * 8));
    }
    float sums[2][4] = {};
    for (int j = 0; j < 2; ++j) multiply_warp<Bf16>(sums[j], fa, fb[2 * j], fb[2 * j + 1]);
    for (int j = 0; j < 2; ++j) {
        for (int i = 0; i < 4; ++i) d[(lane / 4 + i / 2 * 8) * 16 + j * 8 + lane % 4 * 2 + i % 2] = sums[j][i];
    }
    const std::uint32_t words[4] = {pack_pair<Bf16>(sums[0][0], sums[0][1]), pack_pair<Bf16>(sums[0][2], sums[0][3]),
                                    pack_pair<Bf16>(sums[1][0], sums[1][1]), pack_pair<Bf16>(sums[1][2], sums[1][3])};
    store_matrices(find_shared_address(tiles[2] + lane % 16 * 16 + lane / 16 * 8), words);
    __syncwarp();
    for (int i = lane; i < 256; i += 32) stored[i] = tiles[2][i];
}

enum Fault { kNone, kNoWait, kNoPublish, kNoArrival };

// A warp group: D[64, 64] = A B over 64 k, either operand along k or transposed, tiles by tensor copies; D leaves rounded by a tensor copy
// that clips it to the map's extents.
template <bool kTransposedA, bool kTransposedB>
__global__ void multiply_boxes(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                               const __grid_constant__ CUtensorMap map_d, int fault) {
    __shared__ __align__(1024) std::uint8_t tiles[3][64 * kSwizzleBytes];
    __shared__ Barrier ready;
    const int thread = static_cast<int>(threadIdx.x);
    if (thread == 0) {
        init_barrier(&ready, 1);
        publish_barriers();
        prefetch_map(&map_a);
    }
    __syncthreads();
    if (thread == 0) {
        arrive_expecting(&ready, 2 * 64 * kSwizzleBytes);
        load_box(tiles[0], &map_a, 0, 0, &ready);
        load_box(tiles[1], &map_b, 0, 0, &ready);
    }
    if (fault != kNoWait) wait_phase(&ready, 0);
    float sums[32];
    const std::uint64_t a = describe_tile<16, kSwizzleAtomBytes>(tiles[0]);
    const std::uint64_t b = describe_tile<16, kSwizzleAtomBytes>(tiles[1]);
    pin_sums(sums);
    fence_products();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        multiply_group<Bf16, kTransposedA, kTransposedB>(sums, a + (i * (kTransposedA ? 2048 : 32) >> 4),
                                                         b + (i * (kTransposedB ? 2048 : 32) >> 4), i > 0);
    }
    commit_products();
    pin_sums(sums);
    wait_products<0>();
    pin_sums(sums);
    const int lane = thread % 32;
    const int row = thread / 32 * 16 + lane % 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        const std::uint32_t words[4] = {pack_pair<Bf16>(sums[8 * j], sums[8 * j + 1]), pack_pair<Bf16>(sums[8 * j + 2], sums[8 * j + 3]),
                                        pack_pair<Bf16>(sums[8 * j + 4], sums[8 * j + 5]),
                                        pack_pair<Bf16>(sums[8 * j + 6], sums[8 * j + 7])};
        store_matrices(find_shared_address(tiles[2]) + row * kSwizzleBytes + ((2 * j + lane / 16) ^ row % 8) * 16, words);
    }
    if (fault != kNoPublish) publish_shared_writes();
    sync_named<kWarpGroupThreads>(1);
    if (thread == 0) {
        store_box(&map_d, 0, 0, tiles[2]);
        commit_stores();
        wait_stores_read<0>();
    }
}

// A cluster of two: each block copies one half of a [2, 64] box to both, `rounds` times through one slot, and adds what arrives.
__global__ void __cluster_dims__(2) share_boxes(const __grid_constant__ CUtensorMap map, float* sums, int rounds, int fault) {
    __shared__ __align__(128) float slot[2][64];
    __shared__ Barrier full, empty;
    const int thread = static_cast<int>(threadIdx.x);
    const std::uint32_t rank = find_cluster_rank();
    if (thread == 0) {
        init_barrier(&full, 1);
        init_barrier(&empty, 2);
        publish_barriers();
    }
    meet_cluster();
    if (thread == 32) {
        RingPosition<1> position;
        for (int round = 0; round < rounds; ++round, position.advance()) {
            if (fault != kNoArrival) wait_phase(&empty, position.parity ^ 1);
            arrive_expecting(&full, sizeof slot);
            load_box_multicast(slot[rank], &map, 0, 2 * round + static_cast<int>(rank), &full, 3);
        }
    } else if (thread < 32) {
        float sum = 0.0f;
        RingPosition<1> position;
        for (int round = 0; round < rounds; ++round, position.advance()) {
            wait_phase(&full, position.parity);
            for (int i = 0; i < 2; ++i) sum += slot[i][thread] + slot[i][thread + 32];
            __syncwarp();
            if (thread < 2) arrive_at_block(&empty, static_cast<std::uint32_t>(thread));
        }
        sums[rank * 32 + thread] = sum;
    }
    __syncwarp();
    meet_cluster();
}

bool encode(CUtensorMap* map, const void* base, int rows, int columns, CUtensorMapDataType type, int bytes, int box_rows, int swizzle) {
    return is_ok(encode_tensor_map(map, {base, rows, columns, columns, type, bytes, box_rows, 64, swizzle}));
}

}  // namespace

extern "C" {

int run_divide(const int* values, int count, int divisor, int* quotients) {
    divide<<<(count + 127) / 128, 128>>>(values, count, make_divisor(divisor), quotients);
    return 0;
}

int run_convert(const float* floats, std::uint32_t* pairs, float* widened, int is_bf16) {
    (is_bf16 ? convert<Bf16> : convert<Fp16>)<<<256, 128>>>(floats, pairs, reinterpret_cast<float2*>(widened));
    return 0;
}

int run_activate(const float* x, float* y, int count, int act) {
    activate<<<(count + 127) / 128, 128>>>(x, y, count, act);
    return 0;
}

int run_pass(const float* gradients, const float* x, float* passed, int count, int act) {
    constexpr decltype(&pass_gradients<0>) kKernels[AICF_ACT_COUNT] = {pass_gradients<AICF_ACT_NONE>, pass_gradients<AICF_ACT_RELU>,
                                                                       pass_gradients<AICF_ACT_GELU_TANH>,
                                                                       pass_gradients<AICF_ACT_GELU_ERF>, pass_gradients<AICF_ACT_SILU>};
    kKernels[act]<<<(count + 127) / 128, 128>>>(gradients, x, passed, count);
    return 0;
}

int run_works(int m, int n, int k, int num_clusters, int* works) {
    const SplitGrid grid = split_tile_grid(make_tile_grid<SplitTunables>(m, n, k), num_clusters);
    const int num_blocks = grid.num_split > 0 ? num_clusters : std::min(grid.num_tiles, num_clusters);
    list_works<<<num_blocks, 32>>>(grid, reinterpret_cast<int4*>(works));
    return 0;
}

int run_evenly(int m, int n, int k, int num_clusters, int is_wide, int* told) {
    constexpr JoinCost kCost = {16, 30};
    const auto split = is_wide ? split_evenly<EvenTiles<208>> : split_evenly<EvenTiles<112>>;
    tell_grid<<<1, 1>>>(split(m, n, k, num_clusters, kCost, 1), told);
    return 0;
}

int run_mma(const void* a, const void* b, float* d, std::uint16_t* stored, int is_transposed) {
    multiply_tiles<<<1, 32>>>(static_cast<const Bf16*>(a), static_cast<const Bf16*>(b), d, stored, is_transposed);
    return 0;
}

int run_wgmma(const void* a, const void* b, void* d, int rows, int columns, int is_transposed_a, int is_transposed_b, int fault) {
    CUtensorMap map_a, map_b, map_d;
    constexpr auto kType = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    if (!encode(&map_a, a, 64, 64, kType, 2, 64, 128) || !encode(&map_b, b, 64, 64, kType, 2, 64, 128) ||
        !encode(&map_d, d, rows, columns, kType, 2, 64, 128)) {
        return 1;
    }
    const auto kernel = is_transposed_a ? (is_transposed_b ? multiply_boxes<true, true> : multiply_boxes<true, false>)
                                        : (is_transposed_b ? multiply_boxes<false, true> : multiply_boxes<false, false>);
    kernel<<<1, kWarpGroupThreads>>>(map_a, map_b, map_d, fault);
    return 0;
}

int run_multicast(const void* rows, float* sums, int rounds, int fault) {
    CUtensorMap map;
    if (!encode(&map, rows, 2 * rounds, 64, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, 1, 0)) return 1;
    share_boxes<<<2, 64>>>(map, sums, rounds, fault);
    return 0;
}
}

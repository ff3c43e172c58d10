// The Hopper kernels: the main loop of common/wgmma_pipeline.cuh, once for dZ with act' and the sums of columns in its epilogue, once for
// dW with both operands transposed and the steps of k split where waves are short.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/activation_slopes.cuh"
#include "common/split_order.cuh"
#include "common/store_rounded.cuh"
#include "common/wgmma_pipeline.cuh"
#include "gemm_backward/column_sums.cuh"

namespace aicf::gemm_backward {

inline constexpr int kGroupBarrier = 1;  // and 2: of one warp group that multiplies

// Shared memory of ActGradEpilogue: sums of columns of 8 warps, and the barriers of 8 warps' slabs.
constexpr int count_act_grad_bytes(int bn, int slabs) { return 8 * bn * 4 + 8 * slabs * 8; }

// dZ[m, n] of one product D, beside its tensor maps.
struct ActGradProblem {
    float* partial_sums;  // [tiles of rows that a warp group computes, n]
    int m, n;
    int act;
    bool has_z;
    bool has_sums;
    std::uint32_t* flags;  // num_flags words to clear for the next kernel of this launch
    int num_flags;
    TileGrid grid;
};

// dZ = D * act'(Z), and sums of its columns. Z comes by tensor copies into the slabs through which dZ leaves, each warp for itself.
template <class Element, class T>
struct ActGradEpilogue {
    using L = WgmmaLayout<T>;
    static constexpr int kNumParts = L::kSlabs * L::kBlocksM;  // slabs of a warp in a tile, column by column
    static_assert(L::kNumSlabs >= 2 && kNumParts % L::kNumSlabs == 0, "part i of every tile goes through slab i % kNumSlabs");

    const ActGradProblem& problem;
    const TensorMap* map_z;
    const TensorMap* map_dz;
    std::uint8_t* shared;
    std::uint32_t parity = 0;  // of the slabs' next phase, at the beginning of a tile

    __device__ __forceinline__ ActGradEpilogue(const ActGradProblem& of, const TensorMap* z, const TensorMap* dz, std::uint8_t* of_block)
        : problem(of), map_z(z), map_dz(dz), shared(of_block) {
        if (find_lane() == 0) {
            for (int i = 0; i < L::kNumSlabs; ++i) init_barrier(find_arrived() + i, 1);
            publish_barriers();
        }
        __syncwarp();
    }

    // Read again wherever it is wanted: kept, it and what follows from it would take registers that the sums need.
    __device__ static __forceinline__ int find_lane() { return compute_here(static_cast<int>(threadIdx.x)) & 31; }

    // Of this warp, of 8 that multiply: its number, its slabs, its sums of columns [bn], and the barriers that say that Z is in a slab.
    __device__ static __forceinline__ int find_warp() { return compute_here(static_cast<int>(threadIdx.x)) / 32 - 4; }
    __device__ __forceinline__ std::uint8_t* find_slabs(int warp) const {
        return shared + L::kStoreOffset + warp * L::kNumSlabs * L::kSlabBytes;
    }
    __device__ __forceinline__ float* find_sums(int warp) const {
        return reinterpret_cast<float*>(shared + L::kEpilogueOffset) + warp * T::bn;
    }
    __device__ __forceinline__ Barrier* find_arrived() const {
        return reinterpret_cast<Barrier*>(shared + L::kEpilogueOffset + 8 * T::bn * 4) + find_warp() * L::kNumSlabs;
    }

    __device__ __forceinline__ void load_part(const TileWork& tile, int part) {
        Barrier* ready = find_arrived() + part % L::kNumSlabs;
        arrive_expecting(ready, L::kSlabBytes);
        load_box(find_slabs(find_warp()) + part % L::kNumSlabs * L::kSlabBytes, map_z, tile.column + part / L::kBlocksM * L::kSlabColumns,
                 tile.row + part % L::kBlocksM * 64 + find_warp() % 4 * 16, ready);
    }

    __device__ __forceinline__ void begin(const TileWork& tile) {
        if (find_lane() != 0) return;
        wait_stores_read<0>();
        if (!problem.has_z) return;
#pragma unroll
        for (int i = 0; i < L::kNumSlabs; ++i) load_part(tile, i);
    }

    // A part's gradients times act' of its Z. All chunks are read before any is written, so that their latencies overlap.
    template <int kAct>
    __device__ __forceinline__ void pass_part(float (&gradients)[L::kSums], std::uint32_t row_address) {
        std::uint32_t words[4][4];
#pragma unroll
        for (int i = 0; i < 4; ++i) load_matrices(words[i], find_slab_chunk(row_address, i));
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const float2 pair = unpack_pair<Element>(words[i / 4][i % 4]);
            gradients[2 * i] = pass_gradient<kAct>(gradients[2 * i], pair.x);
            gradients[2 * i + 1] = pass_gradient<kAct>(gradients[2 * i + 1], pair.y);
        }
    }

    // One part of the tile, whose sums are the first: act', its columns' sums to those of the parts above, and the way out.
    __device__ __forceinline__ void finish_part(float (&gradients)[L::kSums], const TileWork& tile, int part) {
        const int slab = part % L::kNumSlabs;
        const int block = part % L::kBlocksM;
        const int column = part / L::kBlocksM;
        const int row = tile.row + find_warp() % 4 * 16 + block * 64;
        if (problem.has_z) {
            wait_phase(find_arrived() + slab, parity ^ (part / L::kNumSlabs & 1));
        } else if (part >= L::kNumSlabs && find_lane() == 0) {
            wait_stores_read<L::kNumSlabs - 1>();
        }
        __syncwarp();
        const int warp = find_warp();
        const std::uint32_t row_address = find_slab_row(find_slabs(warp) + slab * L::kSlabBytes, find_lane());
        if (problem.has_z) {
            switch (problem.act) {
                case AICF_ACT_RELU: pass_part<AICF_ACT_RELU>(gradients, row_address); break;
                case AICF_ACT_GELU_TANH: pass_part<AICF_ACT_GELU_TANH>(gradients, row_address); break;
                case AICF_ACT_GELU_ERF: pass_part<AICF_ACT_GELU_ERF>(gradients, row_address); break;
                case AICF_ACT_SILU: pass_part<AICF_ACT_SILU>(gradients, row_address); break;
                default: break;
            }
            __syncwarp();
        }
        if (problem.has_sums && row + 16 > problem.m) drop_rows_outside(gradients, row);
        float columns[16];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float* d = gradients + 8 * i;
            if (problem.has_sums) {
#pragma unroll
                for (int j = 0; j < 4; ++j) columns[4 * i + j] = d[j / 2 * 4 + j % 2] + d[j / 2 * 4 + j % 2 + 2];
            }
            std::uint32_t four[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) four[j] = pack_pair<Element>(d[2 * j], d[2 * j + 1]);
            store_matrices(find_slab_chunk(row_address, i), four);
        }
        send_slab(find_slabs(warp) + slab * L::kSlabBytes, find_lane(), map_dz, tile.column + column * L::kSlabColumns, row);
        // Into the slab before this one, whose store has had a part's time.
        const int next = part + L::kNumSlabs - 1;
        if (part > 0 && next < kNumParts && problem.has_z && find_lane() == 0) {
            wait_stores_read<1>();
            load_part(tile, next);
        }
        if (problem.has_sums) {
            const int here = find_lane();
            auto* target = reinterpret_cast<float2*>(find_sums(warp) + column * L::kSlabColumns + here / 4 * 8 + here % 4 * 2);
            const float2 pair = add_over_rows(columns, here);
            const float2 above = block > 0 ? *target : float2{};
            *target = {above.x + pair.x, above.y + pair.y};
        }
    }

    // Rows past the end are products of zeros with what may be infinite.
    __device__ __forceinline__ void drop_rows_outside(float (&gradients)[L::kSums], int row) {
        const bool has_first = row + find_lane() / 4 < problem.m;
        const bool has_second = row + find_lane() / 4 + 8 < problem.m;
#pragma unroll
        for (int i = 0; i < 32; ++i) gradients[i] = (i % 4 < 2 ? has_first : has_second) ? gradients[i] : 0.0f;
    }

    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
        // One code for all parts: of each its own, with all activations', an SM would fetch the whole from L2 where it has one tile. Of
        // more than 128 sums a loop would spill some.
#pragma unroll(L::kBlocksM* L::kSums > 128 ? kNumParts : 1)
        for (int part = 0; part < kNumParts; ++part) {
            finish_part(sums[0], tile, part);
            move_up(sums);
        }
        parity ^= kNumParts / L::kNumSlabs & 1;
        if (problem.has_sums) store_sums(tile);
    }

    // Registers have no index: the sums of each part, the blocks of a slab's columns one after the other, take the place of those before.
    __device__ static __forceinline__ void move_up(float (&sums)[L::kBlocksM][L::kSums]) {
#pragma unroll
        for (int part = 1; part < kNumParts; ++part) {
            const float* from = sums[part % L::kBlocksM] + part / L::kBlocksM * 32;
            float* to = sums[(part - 1) % L::kBlocksM] + (part - 1) / L::kBlocksM * 32;
#pragma unroll
            for (int i = 0; i < 32; ++i) to[i] = from[i];
        }
    }

    // Adds the four warps' sums, and stores them as a row of partial sums.
    __device__ __forceinline__ void store_sums(const TileWork& tile) {
        sync_named<kWarpGroupThreads>(kGroupBarrier + find_consumer());
        float* target = problem.partial_sums + static_cast<std::int64_t>(tile.row / L::kRows) * problem.n;
        for (int i = find_group_thread(); i < T::bn; i += kWarpGroupThreads) {
            const float* sum = find_sums(find_consumer() * 4) + i;
            if (tile.column + i < problem.n) target[tile.column + i] = (sum[0] + sum[T::bn]) + (sum[2 * T::bn] + sum[3 * T::bn]);
        }
        // They are overwritten by the next tile's.
        sync_named<kWarpGroupThreads>(kGroupBarrier + find_consumer());
    }

    __device__ __forceinline__ void end() const {
        if (find_lane() == 0) wait_stores_read<0>();
    }
};

// dZ[m, n] = (dY[m, k] W') * act'(Z), in the sizes of the product: W' is [k, n] where kTransposedB, else [n, k].
template <class Element, class T, bool kTransposedB>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_act_grad(const __grid_constant__ CUtensorMap map_dy, const __grid_constant__ CUtensorMap map_w,
                      const __grid_constant__ CUtensorMap map_z, const __grid_constant__ CUtensorMap map_dz, const ActGradProblem problem) {
    extern __shared__ __align__(1024) std::uint8_t wgmma_shared[];
    std::uint8_t* const shared = wgmma_shared;
    if (threadIdx.x == 0) {
        prefetch_map(&map_z);
        prefetch_map(&map_dz);
    }
    if (blockIdx.x == 0 && problem.num_flags > 0 && threadIdx.x < 32) {
        wait_for_predecessor();
        for (int i = static_cast<int>(threadIdx.x); i < problem.num_flags; i += 32) problem.flags[i] = 0;
    }
    multiply_tiles<Element, T, false, kTransposedB, TileOrder>(
        &map_dy, &map_w, problem.grid, shared, [&] { return ActGradEpilogue<Element, T>(problem, &map_z, &map_dz, shared); });
}

// Stores whole sums.
template <class Element, class T>
struct StoreEpilogue {
    using L = WgmmaLayout<T>;
    const TensorMap* map;
    SlabWriter<T> writer;

    __device__ __forceinline__ StoreEpilogue(const TensorMap* target, std::uint8_t* shared) : map(target), writer(shared) {}

    __device__ __forceinline__ void begin(const TileWork&) {}

    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
        const int row = tile.row + find_group_warp() * 16;
#pragma unroll
        for (int block = 0; block < L::kBlocksM; ++block) {
#pragma unroll
            for (int slab = 0; slab < L::kSlabs; ++slab) {
                std::uint32_t words[16];
                pack_slab<Element>(words, sums[block] + slab * 32);
                writer.store(map, tile.column + slab * L::kSlabColumns, row + block * 64, words);
            }
        }
    }

    __device__ __forceinline__ void end() const { writer.end(); }
};

// Whether a second kernel joins the parts of dW's tiles: those of large tiles cost most by their bytes, of which it moves more.
template <class T>
inline constexpr bool kHasSecondKernel = T::bm * T::bn <= 128 * 128;

// dW = A' B: X' dY [k, n] or dY' X [n, k], from operands that both lie along the rows of dY.
template <class Element, class T>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_weight_grad(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                         const __grid_constant__ CUtensorMap map_dw, const SplitGrid grid) {
    extern __shared__ __align__(1024) std::uint8_t wgmma_shared[];
    std::uint8_t* const shared = wgmma_shared;
    using Whole = StoreEpilogue<Element, T>;
    using Epilogue = std::conditional_t<kHasSecondKernel<T>, PartsEpilogue<T, false, Whole>, JoiningEpilogue<T, kGroupBarrier, Whole>>;
    if (threadIdx.x == 0) prefetch_map(&map_dw);
    multiply_tiles<Element, T, true, true, SplitOrder>(&map_a, &map_b, grid, shared,
                                                       [&] { return Epilogue{grid, Whole(&map_dw, shared)}; });
}

// Adds up the parts of split tiles of dW[rows, columns]. Grid: (blocks of split tiles, count_add_blocks).
template <class Element, class T>
__global__ void __launch_bounds__(kAddThreads)
    add_weight_parts(Element* dw, std::int64_t stride, int rows, int columns, const SplitGrid grid) {
    allow_successor();
    wait_for_predecessor();
    add_parts<T, false>(grid, [&](int row, int column, const float4& sums) {
        if (row >= rows || column >= columns) return;
        const float four[4] = {sums.x, sums.y, sums.z, sums.w};
        store_four_rounded<Element>(dw, stride, columns, true, row, column, four);
    });
}

}  // namespace aicf::gemm_backward

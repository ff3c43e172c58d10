// The Hopper kernel for 16-bit floats and TF32: the main loop of common/wgmma_pipeline.cuh, with bias, residual, Z and activation in its
// epilogue.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/split_order.cuh"
#include "common/wgmma_pipeline.cuh"
#include "gemm_bias_act/outputs.cuh"

namespace aicf::gemm_bias_act {

// Two buffers of a tile's bias for each of two warp groups.
inline constexpr int kNumBias = 2;
constexpr int count_bias_bytes(int bn, int item_bytes) { return 2 * kNumBias * bn * item_bytes; }

// One problem, beside its tensor maps.
struct WgmmaProblem {
    const void* bias;  // [n] or null
    int n;
    int act;
    bool has_z;
    TileGrid grid;
    const void* residual;  // [m, n], row stride ldresidual, rows on 16-byte boundaries, or null
    std::int64_t ldresidual;
    int m;
};

// Y = act(D + bias + residual), and Z the same before act.
template <class Element, class T>
struct BiasActEpilogue {
    using L = WgmmaLayout<T>;
    static constexpr int kBiasBarrier = 1;  // and 2: of one warp group
    static constexpr bool kRounds = T::item_bytes == 2;
    using Bits = std::conditional_t<kRounds, std::uint16_t, std::uint32_t>;  // of an element
    static constexpr int kBiasPerThread = (T::bn + kWarpGroupThreads - 1) / kWarpGroupThreads;

    const WgmmaProblem& problem;
    const TensorMap* map_y;
    const TensorMap* map_z;
    Bits* bias_tiles;
    SlabWriter<T> writer;
    int bias_tile = 0;
    Bits fetched[kBiasPerThread];

    __device__ __forceinline__ BiasActEpilogue(const WgmmaProblem& of, const TensorMap* y, const TensorMap* z, std::uint8_t* shared)
        : problem(of),
          map_y(y),
          map_z(z),
          bias_tiles(reinterpret_cast<Bits*>(shared + L::kEpilogueOffset) + find_consumer() * kNumBias * T::bn),
          writer(shared) {}

    // This thread's elements of a tile's bias, kWarpGroupThreads apart; zero past its end.
    __device__ __forceinline__ void fetch_bias(int first_column) {
        const auto* bias = static_cast<const Bits*>(problem.bias);
#pragma unroll
        for (int i = 0; i < kBiasPerThread; ++i) {
            const int column = i * kWarpGroupThreads + find_group_thread();
            fetched[i] = column < T::bn && first_column + column < problem.n ? bias[first_column + column] : Bits{0};
        }
    }

    // The bias is fetched under the products; with pingpong the other group's products hide it too, and then registers are worth more.
    __device__ __forceinline__ void begin(const TileWork& tile) {
        if (!T::pingpong && problem.bias != nullptr) fetch_bias(tile.column);
    }

    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
        const Bits* bias = nullptr;
        if (problem.bias != nullptr) {
            if (T::pingpong) fetch_bias(tile.column);
            Bits* target = bias_tiles + bias_tile * T::bn;
            bias_tile ^= 1;
#pragma unroll
            for (int i = 0; i < kBiasPerThread; ++i) {
                const int column = i * kWarpGroupThreads + find_group_thread();
                if (column < T::bn) target[column] = fetched[i];
            }
            // The other of the two buffers may still be read by a slower warp.
            sync_named<kWarpGroupThreads>(kBiasBarrier + find_consumer());
            bias = target;
        }
        const int row = tile.row + find_group_warp() * 16;
#pragma unroll
        for (int block = 0; block < L::kBlocksM; ++block) {
#pragma unroll
            for (int slab = 0; slab < L::kSlabs; ++slab) {
                float* z = sums[block] + slab * L::kSlabSums;
                if (bias != nullptr) {
#pragma unroll
                    for (int i = 0; i < L::kSlabColumns / 8; ++i) {
                        const float2 addend = load_pair(bias, slab * L::kSlabColumns / 2 + i * 4 + writer.lane % 4);
                        z[4 * i + 0] += addend.x;
                        z[4 * i + 1] += addend.y;
                        z[4 * i + 2] += addend.x;
                        z[4 * i + 3] += addend.y;
                    }
                }
                const int column = tile.column + slab * L::kSlabColumns;
                if (problem.residual != nullptr) add_residual(z, row + block * 64, column);
                if (problem.has_z) store_part(map_z, column, row + block * 64, z, false);
                // relu comes with the rounding.
                const bool clamps = kRounds && problem.act == AICF_ACT_RELU;
                if (!clamps) activate_slab<L::kSlabSums>(problem.act, z);
                store_part(map_y, column, row + block * 64, z, clamps);
            }
        }
    }

    // To this thread's sums of one slab. Rows of Y are whole units of 16 bytes: both columns of a pair are inside, or none.
    __device__ __forceinline__ void add_residual(float* z, int first_row, int first_column) const {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int row = first_row + half * 8 + writer.lane / 4;
            if (row >= problem.m) continue;
            const Bits* source = static_cast<const Bits*>(problem.residual) + row * problem.ldresidual;
#pragma unroll
            for (int i = 0; i < L::kSlabColumns / 8; ++i) {
                const int column = first_column + i * 8 + writer.lane % 4 * 2;
                if (column >= problem.n) continue;
                const float2 addend = load_pair(source, column / 2);
                z[4 * i + 2 * half] += addend.x;
                z[4 * i + 2 * half + 1] += addend.y;
            }
        }
    }

    // Two neighbouring columns of a row of elements; `pair` counts them.
    __device__ __forceinline__ static float2 load_pair(const Bits* row, int pair) {
        if constexpr (kRounds) {
            return unpack_pair<Element>(reinterpret_cast<const std::uint32_t*>(row)[pair]);
        } else {
            return reinterpret_cast<const float2*>(row)[pair];
        }
    }

    __device__ __forceinline__ void store_part(const TensorMap* map, int column, int row, const float* z, bool clamps) {
        if constexpr (kRounds) {
            std::uint32_t words[16];
            if (clamps) {
                pack_relu_slab<Element>(words, z);
            } else {
                pack_slab<Element>(words, z);
            }
            writer.store(map, column, row, words);
        } else {
            writer.store(map, column, row, z);
        }
    }

    __device__ __forceinline__ void end() const { writer.end(); }
};

// Y[m, n] = act(A[m, k] B + bias[n] + residual[m, n]), Z the same before act. B is [k, n] where kTransposedB, else [n, k], which is wgmma's
// own order.
template <class Element, class T, bool kTransposedB>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_wgmma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                   const __grid_constant__ CUtensorMap map_y, const __grid_constant__ CUtensorMap map_z, const WgmmaProblem problem) {
    extern __shared__ __align__(1024) std::uint8_t wgmma_shared[];
    std::uint8_t* const shared = wgmma_shared;
    if (threadIdx.x == kWarpGroupThreads) prefetch_map(&map_y);
    multiply_tiles<Element, T, false, kTransposedB, TileOrder>(
        &map_a, &map_b, problem.grid, shared, [&] { return BiasActEpilogue<Element, T>(problem, &map_y, &map_z, shared); });
}

// The same with the steps of k of some tiles dealt out among the clusters (stream-K). Their sums are joined in front of the epilogue, or
// where kHasSecondKernel by a kernel behind this one.
template <class Element, class T, bool kTransposedB, bool kHasSecondKernel>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_streamk(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                     const __grid_constant__ CUtensorMap map_y, const __grid_constant__ CUtensorMap map_z, const WgmmaProblem problem,
                     const SplitGrid grid) {
    extern __shared__ __align__(1024) std::uint8_t wgmma_shared[];
    std::uint8_t* const shared = wgmma_shared;
    using Whole = BiasActEpilogue<Element, T>;
    using Epilogue = std::conditional_t<kHasSecondKernel, PartsEpilogue<T, false, Whole>, JoiningEpilogue<T, Whole::kBiasBarrier, Whole>>;
    if (threadIdx.x == kWarpGroupThreads) prefetch_map(&map_y);
    multiply_tiles<Element, T, false, kTransposedB, SplitOrder>(&map_a, &map_b, grid, shared,
                                                                [&] { return Epilogue{grid, Whole(problem, &map_y, &map_z, shared)}; });
}

}  // namespace aicf::gemm_bias_act

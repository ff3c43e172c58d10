// fp32 on the main loop of common/boxed_evenly.cuh, dZ and dW each in tiles of its own. The two launches follow each other without waiting:
// neither needs the other, and the second one's blocks begin as soon as the last of the first have.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "common/boxed_evenly.cuh"
#include "common/compute_here.cuh"
#include "common/programmatic.cuh"
#include "gemm_backward/ffma.cuh"

namespace aicf::gemm_backward {

// What a launch may leave to the other of a pair.
struct PairedLaunch {
    bool has_second;  // behind it: let it begin as soon as this one's inputs are there
    bool is_second;  // all that is waited for has been by the first; this one ends when the first has, too
};

// One product D[rows, columns] = A B over k, in clusters of `splits` blocks for each tile; without a cluster there is one.
struct EvenOutput {
    float* d;
    std::int64_t ldd;
    int rows, columns, k;
    int splits;
    bool has_vectors;  // rows of d, and of z, start on 16-byte boundaries
    PairedLaunch launch;
};

struct EvenActGrad {
    EvenOutput dz;
    const float* z;  // [rows, columns], row stride ldz, or null
    std::int64_t ldz;
    int act;
    float* column_sums;  // a row of sums over its own rows of D for each slice of each block of a tile, of all tiles; or null
};

struct EvenWeightGrad {
    EvenOutput dw;
    bool is_added;  // to what d has
};

// A block's tile of D, its part of the tile's k, and a thread's places. Behind the products they are found anew: sums need the registers.
template <class L, int kGroup>
struct EvenWork {
    TileOrigin origin;
    EvenPart<L> part;
    EvenPlace<L> at;

    __device__ __forceinline__ explicit EvenWork(const EvenOutput& output, int block, int thread)
        : origin(find_tile<L::kTileM, L::kTileN, kGroup>(compute_here(output.rows), compute_here(output.columns), block / output.splits)),
          part(block, output.splits, output.k),
          at(thread) {}
};

// A tile of D: `visit(work)` with the sums of all slices and blocks in shared memory.
template <class L, int kGroup, class Visit>
__device__ __forceinline__ void make_tile(const EvenOutput& output, const CUtensorMap& map_a, const CUtensorMap& map_b,
                                          std::uint8_t* shared, Visit visit) {
    using Work = EvenWork<L, kGroup>;
    float sums[L::kThreadM][L::kThreadN] = {};
    {
        const Work work(output, static_cast<int>(blockIdx.x), static_cast<int>(threadIdx.x));
        multiply_evenly<L>(sums, shared, &map_a, &map_b, work.origin, work.part, work.at, output.k, [&] {
            if (!output.launch.is_second) wait_for_predecessor();
            if (output.launch.has_second) allow_successor();
        });
    }
    allow_successor();
    const Work work(output, find_block_here(), find_thread_here());
    hand_over_evenly<L>(sums, shared, work.part, work.at);
    visit(work);
    if (output.launch.is_second) wait_for_predecessor();
}

// Adds over the lanes of a warp that have the same columns, and stores the sums of four neighbouring ones.
template <class Lanes>
__device__ __forceinline__ void store_lane_sums(float* target, float4 sums, int num_valid) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        if (Lanes::find_column(step) != 0) continue;
        sums.x += __shfl_xor_sync(0xffffffffu, sums.x, step);
        sums.y += __shfl_xor_sync(0xffffffffu, sums.y, step);
        sums.z += __shfl_xor_sync(0xffffffffu, sums.z, step);
        sums.w += __shfl_xor_sync(0xffffffffu, sums.w, step);
    }
    if (Lanes::find_row(lane) == 0) store_four(target, sums, num_valid, false);
}

// dZ[m, k] = (dY[m, n] W') * act'(Z), and sums of its columns. W is [k, n] where L::kTurnsB, else [n, k].
template <class L, int kGroup, int kMinBlocks>
__global__ void __launch_bounds__(L::kThreads, kMinBlocks)
    multiply_act_grad_evenly(const __grid_constant__ CUtensorMap map_dy, const __grid_constant__ CUtensorMap map_w,
                             const EvenActGrad problem) {
    extern __shared__ __align__(1024) std::uint8_t even_shared[];
    const EvenOutput& dz = problem.dz;
    make_tile<L, kGroup>(dz, map_dy, map_w, even_shared, [&](const EvenWork<L, kGroup>& work) {
        const auto& [origin, part, at] = work;
        constexpr int kAhead = 4;  // groups whose Z are on their way
        const auto find_place = [&](int own) {
            const int group = own * part.splits + part.rank;
            return TileOrigin{origin.row + at.find_row(group), origin.column + at.find_column(group)};
        };
        const auto is_inside = [&](TileOrigin place) { return place.row < dz.rows && place.column < dz.columns; };
        const auto load_z = [&](int own) {
            Pack<float> z = {};
            const TileOrigin place = find_place(own);
            if (problem.z != nullptr && own < part.num_own && is_inside(place)) {
                z = load_pack_or(problem.z + place.row * problem.ldz + place.column, dz.columns - place.column, dz.has_vectors, 0.0f);
            }
            return z;
        };
        Pack<float> z[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) z[i] = load_z(at.slice + i * L::kSlices);
        // Of the two fours of columns that groups take in turns.
        float4 first_columns = {0.0f, 0.0f, 0.0f, 0.0f}, second_columns = first_columns;
#pragma unroll 1
        for (int own = at.slice; own < part.num_own; own += L::kSlices) {
            const TileOrigin place = find_place(own);
            float4 sums = add_even_parts<L>(even_shared, part, own);
            if (problem.z != nullptr) sums = pass_by_code(problem.act, sums, z[0]);
#pragma unroll
            for (int i = 1; i < kAhead; ++i) z[i - 1] = z[i];
            z[kAhead - 1] = load_z(own + kAhead * L::kSlices);
            if (!is_inside(place)) continue;
            store_four(dz.d + place.row * dz.ldd + place.column, sums, dz.columns - place.column, dz.has_vectors);
            if ((own * part.splits + part.rank) % 2 == 0) {
                first_columns = add_quads(first_columns, sums);
            } else {
                second_columns = add_quads(second_columns, sums);
            }
        }
        if (problem.column_sums == nullptr) return;
        const int row = (origin.row / L::kTileM * part.splits + part.rank) * L::kSlices + at.slice;
        float* const target = problem.column_sums + static_cast<std::int64_t>(row) * dz.columns;
        const int first = origin.column + at.find_column(0), second = origin.column + at.find_column(1);
        store_lane_sums<typename L::Warp::Lanes>(target + first, first_columns, dz.columns - first);
        store_lane_sums<typename L::Warp::Lanes>(target + second, second_columns, dz.columns - second);
    });
}

// dW[rows, columns] = A B of operands that both lie along the rows of dY: no tile is transposed.
template <class L, int kGroup, int kMinBlocks>
__global__ void __launch_bounds__(L::kThreads, kMinBlocks)
    multiply_weight_grad_evenly(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                                const EvenWeightGrad problem) {
    extern __shared__ __align__(1024) std::uint8_t even_shared[];
    const EvenOutput& dw = problem.dw;
    make_tile<L, kGroup>(dw, map_a, map_b, even_shared, [&](const EvenWork<L, kGroup>& work) {
        const auto& [origin, part, at] = work;
#pragma unroll 1
        for (int own = at.slice; own < part.num_own; own += L::kSlices) {
            const int group = own * part.splits + part.rank;
            const int row = origin.row + at.find_row(group), column = origin.column + at.find_column(group);
            const float4 sums = add_even_parts<L>(even_shared, part, own);
            if (row >= dw.rows || column >= dw.columns) continue;
            store_weight_grad(dw.d + row * dw.ldd + column, sums, dw.columns - column, dw.has_vectors, problem.is_added);
        }
    });
}

}  // namespace aicf::gemm_backward

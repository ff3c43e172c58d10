// Tiles by short, straight code: a cold launch waits for its code, too. The grid has two axes, so that a block knows its tile without a
// division; a thread's rows are a constant step apart, and all of its loads are under way before the first is put.
//
// Where rows of Y begin between sectors of 32 bytes (8 elements) or lines of 128, a block's part of each can be cut at those: a sector that
// two blocks write in part costs memory as much as several whole ones. Row j of Y then gets the rows of X from first - s to
// first - s + kTileRows - 1, with s < kCut so that it begins at a multiple of kCut elements, and a block reads kCut rows above its tile,
// which the block above reads as well.
#pragma once

#include <cstdint>

#include "transpose/tiles.cuh"

namespace aicf::transpose {

// Blocks that a multiprocessor should run at once, by the loads that a thread has under way: their registers follow.
__host__ __device__ constexpr int count_lean_blocks(int threads, int loads) { return (loads <= 10 ? 1536 : 1024) / threads; }

// grid: tiles along a row of X, and down X. kIsStreamed: what one block reads need not stay in L2, where its line would take the place of
// one that must be written back first.
template <int kTileRows, int kTileColumns, int kThreads, int kCut, bool kIsStreamed>
struct LeanTile {
    static constexpr int kPitch = kTileColumns + 1;  // odd: neither rows nor columns of 32 share a bank
    static constexpr int kRowStep = kThreads / kTileColumns, kColumnStep = kThreads / kTileRows;
    static constexpr int kNumLoads = (kTileRows + kCut) / kRowStep, kNumStores = kTileColumns / kColumnStep;
    static_assert(kNumLoads * kRowStep == kTileRows + kCut && kNumStores * kColumnStep == kTileColumns, "threads have equal shares");
    static_assert(kTileRows % 32 == 0 && kTileColumns % 32 == 0, "a warp stays in a row of X, and in one of Y");

    // Rows that are no other block's.
    static __host__ __device__ constexpr bool is_read_once(int load) {
        return kIsStreamed && load * kRowStep >= kCut && (load + 1) * kRowStep <= kTileRows;
    }

    static __device__ __forceinline__ void read(const Matrices& m, float* tile) {
        const int lane = static_cast<int>(threadIdx.x) % kTileColumns, row = static_cast<int>(threadIdx.x) / kTileColumns;
        const int first = static_cast<int>(blockIdx.y) * kTileRows - kCut + row;
        const int column = static_cast<int>(blockIdx.x) * kTileColumns + lane;
        const int left = column < m.columns ? m.rows - first : 0;
        const float* source = m.x + first * m.ldx + column;
        const std::uint32_t step = kRowStep * static_cast<std::uint32_t>(m.ldx);
        float values[kNumLoads];
#pragma unroll
        for (int k = 0; k < kNumLoads; ++k) {
            const bool is_inside = k * kRowStep < left && (k * kRowStep >= kCut || first + k * kRowStep >= 0);
            values[k] = 0.0f;
            if (is_inside) {
                values[k] = is_read_once(k) ? __ldcs(source + std::uint64_t{step} * k) : source[std::uint64_t{step} * k];
            }
        }
        float* const to = tile + row * kPitch + lane;
#pragma unroll
        for (int k = 0; k < kNumLoads; ++k) to[k * kRowStep * kPitch] = values[k];
    }

    static __device__ __forceinline__ void write(const Matrices& m, const float* tile) {
        const int lane = static_cast<int>(threadIdx.x) % kTileRows, first = static_cast<int>(threadIdx.x) / kTileRows;
        const int column = static_cast<int>(blockIdx.x) * kTileColumns + first;
        const int row = static_cast<int>(blockIdx.y) * kTileRows;
        float* const target = m.y + column * m.ldy + row;
        const std::uint32_t step = kColumnStep * static_cast<std::uint32_t>(m.ldy);
        const int left = m.columns - column, rows_left = m.rows - row;
        const float* const from = tile + (lane + kCut) * kPitch + first;
        const auto skew = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(target) / sizeof(float));
#pragma unroll(kNumStores <= 8 ? kNumStores : 8)
        for (int k = 0; k < kNumStores; ++k) {
            const int shift = kCut > 0 ? static_cast<int>((skew + step * k) & (kCut - 1)) : 0;
            const int place = lane - shift;
            if (k * kColumnStep < left && place < rows_left && (kCut == 0 || row + place >= 0)) {
                (target + std::uint64_t{step} * k)[place] = from[k * kColumnStep - shift * kPitch];
            }
        }
    }
};

template <int kTileRows, int kTileColumns, int kThreads, int kCut, bool kIsStreamed>
__global__ void __launch_bounds__(kThreads,
                                  count_lean_blocks(kThreads, LeanTile<kTileRows, kTileColumns, kThreads, kCut, kIsStreamed>::kNumLoads))
    transpose_lean(const Matrices m) {
    using Tile = LeanTile<kTileRows, kTileColumns, kThreads, kCut, kIsStreamed>;
    __shared__ float tile[(kTileRows + kCut) * Tile::kPitch];
    Tile::read(m, tile);
    __syncthreads();
    Tile::write(m, tile);
}

// X has few columns: a thread takes rows whole, kItems of them a block's width apart, and writes a place of each row of Y. No shared
// memory, no barrier: lanes that read with gaps find the rest of their lines in L1. kVector elements of a row are one access.
template <int kThreads, int kItems, int kWidth, int kVector>
__global__ void __launch_bounds__(kThreads, count_lean_blocks(kThreads, kItems* kWidth)) transpose_tall_rows(const Matrices m) {
    struct alignas(sizeof(float) * kVector) Vector {
        float elems[kVector];
    };
    const int first = static_cast<int>(blockIdx.x) * (kThreads * kItems) + static_cast<int>(threadIdx.x);
    const float* source = m.x + first * m.ldx;
    const std::uint32_t step = kThreads * static_cast<std::uint32_t>(m.ldx);
    const int left = m.rows - first;
    Vector values[kItems][kWidth / kVector];
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
#pragma unroll
        for (int n = 0; n < kWidth / kVector; ++n) {
            values[k][n] = {};
            if (k * kThreads < left) values[k][n] = reinterpret_cast<const Vector*>(source + std::uint64_t{step} * k)[n];
        }
    }
    float* target = m.y + first;
#pragma unroll
    for (int n = 0; n < kWidth; ++n) {
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
            if (k * kThreads < left) target[n * m.ldy + k * kThreads] = values[k][n / kVector].elems[n % kVector];
        }
    }
}

}  // namespace aicf::transpose

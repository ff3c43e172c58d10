// fp32 transpose: Y[j, i] = X[i, j]. Any size, any row strides.
//
//   rung | kernel               | one idea more than the rung before
//   -----+----------------------+---------------------------------------------------------------------------------------------
//    1   | transpose_naive      | a thread per element: lanes read along a row of X and write down a column of Y
//    2   | transpose_tiled      | a block turns a tile in shared memory, so that reads and writes are whole sectors
//    3   | transpose_swizzled   | the tile's columns are permuted by row: no bank conflicts, and no padding
//    4   | transpose_patches    | a thread turns 4 x 4 patches in registers: float4 on both sides, no shared memory, no barrier
//    5   | transpose_vectorised | 4 x 4 patches through a swizzled tile: float4 everywhere, whole lines on both sides
//    6   | transpose_strips     | a block turns tile below tile: the next is on its way while one is stored (strips.cuh)
//    7   | transpose_elements   | the same strips by single elements, for rows that begin anywhere (strips.cuh)
//    8   | transpose_tall, wide | few columns, or few rows: a block takes the short side whole (narrow.cuh)
//    9   | the same, by packs   | the run of memory on one side is accessed by 16 bytes (packs.cuh)
//   10   | transpose_lean       | short straight code; rows of Y are cut at sectors (lean.cuh)
//   11   | transpose_tall_rows  | up to 8 columns: a thread takes rows whole, no shared memory (lean.cuh)
//   12   | transpose_lean_wide | rung 9 by loops of copies to shared memory, all of a small slab under way at once (lean_slabs.cuh)
//
// Rungs 1-3 and 7-12 take any alignment; the others move float4 and ask for aligned rows of X and Y.
#include "common/vector_access.cuh"
#include "transpose/lean.cuh"
#include "transpose/lean_slabs.cuh"
#include "transpose/narrow.cuh"
#include "transpose/packs.cuh"
#include "transpose/strips.cuh"
#include "transpose/tiles.cuh"

namespace aicf::transpose {

// A block of kTileRows x kTileColumns threads, one element each.
template <int kTileRows, int kTileColumns>
__global__ void __launch_bounds__(kTileRows* kTileColumns) transpose_naive(const Matrices m) {
    const TileOrigin origin = find_tile<kTileRows, kTileColumns>(m.columns);
    const int row = origin.row + static_cast<int>(threadIdx.x) / kTileColumns;
    const int column = origin.column + static_cast<int>(threadIdx.x) % kTileColumns;
    if (row >= m.rows || column >= m.columns) return;
    m.y[column * m.ldy + row] = m.x[row * m.ldx + column];
}

// Takes a tile of X to shared memory row by row, and from there to Y column by column. kPitch is kTileColumns, or more to keep a column
// out of one bank.
template <int kTileRows, int kTileColumns, int kThreads, int kPitch, bool kSwizzled>
__device__ __forceinline__ void turn_tile(const Matrices& m, float* tile) {
    constexpr int kElems = kTileRows * kTileColumns;
    static_assert(kElems % kThreads == 0, "every thread moves as many elements as any other");
    const TileOrigin origin = find_tile<kTileRows, kTileColumns>(m.columns);
#pragma unroll
    for (int base = 0; base < kElems; base += kThreads) {
        const int i = base + static_cast<int>(threadIdx.x);
        const int row = i / kTileColumns;
        const int column = i % kTileColumns;
        if (origin.row + row < m.rows && origin.column + column < m.columns) {
            tile[find_place<kPitch, kSwizzled>(row, column)] = m.x[(origin.row + row) * m.ldx + origin.column + column];
        }
    }
    __syncthreads();
#pragma unroll
    for (int base = 0; base < kElems; base += kThreads) {
        const int i = base + static_cast<int>(threadIdx.x);
        const int row = i % kTileRows;
        const int column = i / kTileRows;
        if (origin.row + row < m.rows && origin.column + column < m.columns) {
            m.y[(origin.column + column) * m.ldy + origin.row + row] = tile[find_place<kPitch, kSwizzled>(row, column)];
        }
    }
}

template <int kTileRows, int kTileColumns, int kThreads, int kPadding>
__global__ void __launch_bounds__(kThreads) transpose_tiled(const Matrices m) {
    __shared__ float tile[kTileRows * (kTileColumns + kPadding)];
    turn_tile<kTileRows, kTileColumns, kThreads, kTileColumns + kPadding, false>(m, tile);
}

template <int kTileRows, int kTileColumns, int kThreads>
__global__ void __launch_bounds__(kThreads) transpose_swizzled(const Matrices m) {
    __shared__ float tile[kTileRows * kTileColumns];
    turn_tile<kTileRows, kTileColumns, kThreads, kTileColumns, true>(m, tile);
}

// The lanes of a warp are kLanesM patches down X and 32 / kLanesM along it; the warps of a block lie along X, and each turns kItems such
// groups, one below the other. Wide groups read whole lines, tall ones write them.
template <int kLanesM, int kThreads, int kItems>
__global__ void __launch_bounds__(kThreads) transpose_patches(const Matrices m) {
    constexpr int kLanesN = 32 / kLanesM;
    constexpr int kWarps = kThreads / 32;
    const TileOrigin origin = find_tile<4 * kLanesM * kItems, 4 * kLanesN * kWarps>(m.columns);
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int row = origin.row + lane / kLanesN * 4;
    const int column = origin.column + (warp * kLanesN + lane % kLanesN) * 4;
    Patch patches[kItems];
#pragma unroll
    for (int i = 0; i < kItems; ++i) patches[i] = load_patch(m, row + i * 4 * kLanesM, column);
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
        const Patch turned = turn(patches[i]);
#pragma unroll
        for (int j = 0; j < 4; ++j) store_row(m, row + i * 4 * kLanesM, column + j, turned.rows[j]);
    }
}

// The tile is kept turned, kTileColumns rows of kTileRows / 4 float4. Their order within a row is exchanged by the patch's column, so that
// 8 neighbouring lanes, which take 8 patches along X, write to 8 different groups of four banks.
template <int kTileRows, int kTileColumns, int kThreads>
__global__ void __launch_bounds__(kThreads) transpose_vectorised(const Matrices m) {
    constexpr int kVectorsM = kTileRows / 4;
    constexpr int kVectorsN = kTileColumns / 4;
    constexpr int kPatches = kVectorsM * kVectorsN;
    static_assert(kPatches % kThreads == 0 && kVectorsM % 8 == 0, "every thread turns as many patches as any other");
    extern __shared__ __align__(16) float shared[];
    const TileOrigin origin = find_tile<kTileRows, kTileColumns>(m.columns);
    const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPatches / kThreads; ++i) {
        const int patch_m = (i * kThreads + thread) / kVectorsN;
        const int patch_n = (i * kThreads + thread) % kVectorsN;
        const Patch turned = turn(load_patch(m, origin.row + patch_m * 4, origin.column + patch_n * 4));
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            store_vector(shared + ((patch_n * 4 + j) * kVectorsM + (patch_m ^ (patch_n % 8))) * 4, turned.rows[j]);
        }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 4 * kPatches / kThreads; ++i) {
        const int vector_m = (i * kThreads + thread) % kVectorsM;
        const int column = (i * kThreads + thread) / kVectorsM;
        const float4 value = load_vector(shared + (column * kVectorsM + (vector_m ^ (column / 4 % 8))) * 4);
        store_row(m, origin.row + vector_m * 4, origin.column + column, value);
    }
}

}  // namespace aicf::transpose

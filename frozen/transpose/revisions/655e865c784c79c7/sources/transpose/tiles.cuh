// Tiles of a matrix and their elements in shared memory; patches of 4 x 4 elements in registers.
#pragma once

#include <cstdint>

#include "common/vector_access.cuh"

namespace aicf::transpose {

struct Matrices {
    const float* x;  // [rows, columns], row stride ldx
    float* y;        // [columns, rows], row stride ldy
    std::int64_t ldx, ldy;
    int rows, columns;
};

// Blocks that a multiprocessor should run at once: as many as bring 48 KiB on their way, at `elems` floats per thread, up to 1024 threads.
// It bounds a kernel's registers: to 64 at 8 elements, 80 at 16.
__host__ __device__ constexpr int count_blocks(int threads, int elems) {
    const int wanted = elems > 12 ? 12288 / elems : 1024;
    return wanted / threads > 0 ? wanted / threads : 1;
}

// First row and column of X of a tile.
struct TileOrigin {
    int row;
    int column;
};

__host__ __device__ constexpr int divide_up(int count, int size) { return count / size + (count % size != 0); }

// The tile of this block in a one-dimensional grid: tiles of a row of X follow each other.
template <int kTileRows, int kTileColumns>
__device__ __forceinline__ TileOrigin find_tile(int columns) {
    const int tiles_per_row = divide_up(columns, kTileColumns);
    const int block = static_cast<int>(blockIdx.x);
    return {block / tiles_per_row * kTileRows, block % tiles_per_row * kTileColumns};
}

// Element (row, column) of the tile lies at row * kPitch + column, with the column's low bits exchanged where kSwizzled: 32 elements of a
// column of the tile are then in 32 banks, as those of a row are.
template <int kPitch, bool kSwizzled>
__device__ __forceinline__ int find_place(int row, int column) {
    return row * kPitch + (kSwizzled ? column ^ (row % 32) : column);
}

// Four rows of four elements.
struct Patch {
    float4 rows[4];
};

// The patch at (row, column) of X; zeros outside. Rows of X start on 16-byte boundaries.
__device__ __forceinline__ Patch load_patch(const Matrices& m, int row, int column) {
    Patch patch;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int num_valid = row + i < m.rows ? m.columns - column : 0;
        patch.rows[i] = load_vector_or_zero(m.x + (row + i) * m.ldx + column, num_valid);
    }
    return patch;
}

__device__ __forceinline__ Patch turn(const Patch& p) {
    return {{{p.rows[0].x, p.rows[1].x, p.rows[2].x, p.rows[3].x},
             {p.rows[0].y, p.rows[1].y, p.rows[2].y, p.rows[3].y},
             {p.rows[0].z, p.rows[1].z, p.rows[2].z, p.rows[3].z},
             {p.rows[0].w, p.rows[1].w, p.rows[2].w, p.rows[3].w}}};
}

// Stores four elements of row `column` of Y, as far as they are in it. Rows of Y start on 16-byte boundaries.
__device__ __forceinline__ void store_row(const Matrices& m, int row, int column, float4 value) {
    if (column >= m.columns || row >= m.rows) return;
    float* target = m.y + column * m.ldy + row;
    if (row + kVectorElems <= m.rows) {
        store_vector(target, value);
        return;
    }
    target[0] = value.x;
    if (row + 1 < m.rows) target[1] = value.y;
    if (row + 2 < m.rows) target[2] = value.z;
}

}  // namespace aicf::transpose

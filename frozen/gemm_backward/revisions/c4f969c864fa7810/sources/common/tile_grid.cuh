// Tiles of a matrix that the blocks of a grid compute, one each.
#pragma once

namespace aicf {

// A rectangle of a matrix: its first row and column.
struct TileOrigin {
    int row;
    int column;
};

__host__ __device__ constexpr int divide_up(int count, int size) { return count / size + (count % size != 0); }

// The tile of block `block` in a one-dimensional grid (whose limit is 2^31 - 1, where y and z end at 65535). Blocks with consecutive
// numbers, which run together, walk down kGroup rows of tiles before the next column: they share columns of B and rows of A in L2.
template <int kTileRows, int kTileColumns, int kGroup = 1>
__device__ __forceinline__ TileOrigin find_tile(int m, int n, int block = static_cast<int>(blockIdx.x)) {
    const int tiles_m = divide_up(m, kTileRows);
    const int tiles_n = divide_up(n, kTileColumns);
    if constexpr (kGroup == 1) return {block / tiles_n * kTileRows, block % tiles_n * kTileColumns};
    const int blocks_per_group = kGroup * tiles_n;  // at most kGroup times the grid
    const int first = block / blocks_per_group * kGroup;
    const int rows = min(kGroup, tiles_m - first);
    const int within = block % blocks_per_group;
    return {(first + within % rows) * kTileRows, within / rows * kTileColumns};
}

}  // namespace aicf

// How the tiles of dZ and of dW are dealt out to the blocks of one grid, for kernels that make both at once; which depends on sizes and the
// number of multiprocessors alone.
#pragma once

#include "gemm_backward/launch_parts.cuh"

namespace aicf::gemm_backward {
namespace {

constexpr int kMostPairedBlocks = 8;  // of a cluster that every GPU with clusters can run

struct PairedGrid {
    struct Product {
        int splits;  // blocks that share the k of a tile: neighbours in a cluster
        int strips;  // clusters that lie one below the other
        std::int64_t num_blocks;  // 0: the product is not wanted
    };

    Product dz, dw;
    int cluster;  // blocks

    dim3 find_size() const { return dim3(static_cast<unsigned>(dz.num_blocks + dw.num_blocks)); }

    bool needs_second_launch(const GemmBackwardParams& params) const { return params.dbias != nullptr && dz.strips > 1; }

    std::int64_t count_sum_bytes(const GemmBackwardParams& params) const {
        return needs_second_launch(params) ? gemm_backward::count_sum_bytes(dz.strips, params) : 0;
    }
};

// `count_splits(tiles, k)` says how many blocks share the k of each of a product's tiles: a power of two, at most kMostPairedBlocks.
template <class CountSplits>
[[maybe_unused]] PairedGrid make_paired_grid(const GemmBackwardParams& params, int tile_rows, int tile_columns, CountSplits count_splits) {
    PairedGrid grid = {{1, 0, 0}, {1, 0, 0}, 1};
    const WeightGrad grad = find_weight_grad(params);
    if (params.dz != nullptr) {
        const std::int64_t tiles_down = divide_up_64(params.m, tile_rows);
        grid.dz.splits = count_splits(tiles_down * divide_up_64(params.k, tile_columns), params.n);
        // All rows of tiles in one cluster where it holds them: then its sums of columns are dbias.
        int below = 1;
        if (params.dbias != nullptr && tiles_down * grid.dz.splits <= kMostPairedBlocks) {
            while (below < tiles_down) below *= 2;
        }
        grid.cluster = std::max(grid.cluster, grid.dz.splits * below);
    }
    if (grad.d != nullptr) {
        grid.dw.splits = count_splits(divide_up_64(grad.rows, tile_rows) * divide_up_64(grad.columns, tile_columns), params.m);
        grid.cluster = std::max(grid.cluster, grid.dw.splits);
    }
    const auto deal = [&](PairedGrid::Product* product, std::int64_t rows, std::int64_t columns) {
        product->strips = static_cast<int>(divide_up_64(divide_up_64(rows, tile_rows), grid.cluster / product->splits));
        product->num_blocks = product->strips * divide_up_64(columns, tile_columns) * grid.cluster;
    };
    if (params.dz != nullptr) deal(&grid.dz, params.m, params.k);
    if (grad.d != nullptr) deal(&grid.dw, grad.rows, grad.columns);
    return grid;
}

}  // namespace
}  // namespace aicf::gemm_backward

// fp32 as its definition has it: a thread an element, operands through square tiles of shared memory, no vectors and no splits.
#pragma once

#include <cstdint>

#include "common/activation_slopes.cuh"
#include "common/tile_grid.cuh"

namespace aicf::gemm_backward {

// A matrix as a product takes it: element (i, j) at base[i * row_stride + j * column_stride].
struct PlainMatrix {
    const float* base;
    std::int64_t row_stride, column_stride;
};

// D[rows, columns] = A[rows, k] B[k, columns].
struct PlainProduct {
    PlainMatrix a, b;
    float* d;
    std::int64_t ldd;
    bool is_added;  // to what d has
    int rows, columns, k;
    // Of dZ alone:
    const float* z;  // [rows, columns], row stride ldz, or null
    std::int64_t ldz;
    int act;
    float* partial_sums;  // [tiles of rows, columns], or null
};

__device__ __forceinline__ float pass_one(int act, float gradient, float z) {
    switch (act) {
        case AICF_ACT_RELU: return pass_gradient<AICF_ACT_RELU>(gradient, z);
        case AICF_ACT_GELU_TANH: return pass_gradient<AICF_ACT_GELU_TANH>(gradient, z);
        case AICF_ACT_GELU_ERF: return pass_gradient<AICF_ACT_GELU_ERF>(gradient, z);
        case AICF_ACT_SILU: return pass_gradient<AICF_ACT_SILU>(gradient, z);
        default: return gradient;
    }
}

template <int kTile>
__global__ void __launch_bounds__(kTile* kTile) multiply_plain(const PlainProduct product) {
    __shared__ float tile_a[kTile][kTile + 1];
    __shared__ float tile_b[kTile][kTile + 1];
    const int x = static_cast<int>(threadIdx.x) % kTile;
    const int y = static_cast<int>(threadIdx.x) / kTile;
    const TileOrigin origin = find_tile<kTile, kTile>(product.rows, product.columns);
    const int row = origin.row + y;
    const int column = origin.column + x;
    float sum = 0.0f;
    for (int first = 0; first < product.k; first += kTile) {
        const bool has_a = row < product.rows && first + x < product.k;
        const bool has_b = column < product.columns && first + y < product.k;
        tile_a[y][x] = has_a ? product.a.base[row * product.a.row_stride + (first + x) * product.a.column_stride] : 0.0f;
        tile_b[y][x] = has_b ? product.b.base[(first + y) * product.b.row_stride + column * product.b.column_stride] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kTile; ++k) sum = fmaf(tile_a[y][k], tile_b[k][x], sum);
        __syncthreads();
    }
    const bool is_inside = row < product.rows && column < product.columns;
    if (is_inside && product.z != nullptr) sum = pass_one(product.act, sum, product.z[row * product.ldz + column]);
    float* const place = product.d + row * product.ldd + column;
    if (is_inside) *place = product.is_added ? *place + sum : sum;
    if (product.partial_sums == nullptr) return;
    tile_a[y][x] = is_inside ? sum : 0.0f;
    __syncthreads();
    if (y > 0 || column >= product.columns) return;
    float total = tile_a[0][x];
    for (int i = 1; i < kTile; ++i) total += tile_a[i][x];
    product.partial_sums[static_cast<std::int64_t>(origin.row / kTile) * product.columns + column] = total;
}

}  // namespace aicf::gemm_backward

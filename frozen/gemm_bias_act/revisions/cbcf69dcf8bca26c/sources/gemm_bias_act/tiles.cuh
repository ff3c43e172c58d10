// What the tiled kernels share: which tile of Y a block owns, tiles of A and B in shared memory, and the epilogue.
#pragma once

#include "common/activations.cuh"
#include "common/distributed.cuh"
#include "common/ffma_tiles.cuh"
#include "common/philox.cuh"
#include "common/tile_grid.cuh"
#include "common/vector_access.cuh"
#include "gemm_bias_act/api.hpp"

namespace aicf::gemm_bias_act {

// One problem as the kernels see it; sizes fit an int (checked by the launcher), offsets are taken in 64 bits.
struct Gemm {
    const float* a;     // [m, k], row stride lda
    const float* b;     // [k, n], or [n, k] for kernels that take it so; row stride ldb
    const float* bias;  // [n] or null
    float* y;           // [m, n], row stride ldy
    float* z;           // [m, n], row stride ldz, or null
    std::int64_t lda, ldb, ldy, ldz;
    int m, n, k;
    int act;
    bool has_vector_outputs;  // rows of bias, y, z and residual start on 16-byte boundaries
    const float* residual;    // [m, n], row stride ldresidual, or null
    std::int64_t ldresidual;
    Dropout dropout;  // of kernels that drop
};

template <int kElems>
__device__ __forceinline__ void drop_outputs(const Gemm& gemm, int row, int column, float (&y)[kElems]) {
    drop_elements(gemm.dropout, static_cast<std::uint64_t>(row) * static_cast<std::uint64_t>(gemm.n) + static_cast<std::uint64_t>(column),
                  y);
}

// Stores one element of the product: adds bias and residual, keeps Z where wanted, applies the activation, drops where kDrops.
template <bool kDrops = false>
__device__ __forceinline__ void store_element(const Gemm& gemm, int row, int column, float product) {
    float z = gemm.bias ? product + gemm.bias[column] : product;
    if (gemm.residual) z += gemm.residual[row * gemm.ldresidual + column];
    if (gemm.z) gemm.z[row * gemm.ldz + column] = z;
    float y[] = {apply_activation(gemm.act, z)};
    if constexpr (kDrops) drop_outputs(gemm, row, column, y);
    gemm.y[row * gemm.ldy + column] = y[0];
}

template <bool kDrops>
__device__ __forceinline__ void store_four(const Gemm& gemm, int row, int column, float4 product) {
    if (gemm.bias) {
        const float4 bias = load_vector(gemm.bias + column);
        product = {product.x + bias.x, product.y + bias.y, product.z + bias.z, product.w + bias.w};
    }
    if (gemm.residual) {
        const float4 addend = load_vector(gemm.residual + row * gemm.ldresidual + column);
        product = {product.x + addend.x, product.y + addend.y, product.z + addend.z, product.w + addend.w};
    }
    if (gemm.z) store_vector(gemm.z + row * gemm.ldz + column, product);
    const int act = gemm.act;
    float y[] = {apply_activation(act, product.x), apply_activation(act, product.y), apply_activation(act, product.z),
                 apply_activation(act, product.w)};
    if constexpr (kDrops) drop_outputs(gemm, row, column, y);
    store_vector(gemm.y + row * gemm.ldy + column, make_float4(y[0], y[1], y[2], y[3]));
}

// The same for four neighbouring columns, of which the first is inside Y.
template <bool kDrops = false>
__device__ __forceinline__ void store_vector_or_elements(const Gemm& gemm, int row, int column, float4 product) {
    if (gemm.has_vector_outputs && column + kVectorElems <= gemm.n) {
        store_four<kDrops>(gemm, row, column, product);
        return;
    }
    const float elements[kVectorElems] = {product.x, product.y, product.z, product.w};
#pragma unroll
    for (int j = 0; j < kVectorElems; ++j) {
        if (column + j < gemm.n) store_element<kDrops>(gemm, row, column + j, elements[j]);
    }
}

// The epilogue of a block: takes kTileRows x kTileColumns products from shared memory (row-major, complete behind a barrier) to Y and Z.
//
// Accumulators live in registers that only unrolled code can index; going through shared memory lets one short loop apply the
// activation, and makes every store a full row segment whatever the layout of the accumulators.
template <int kTileRows, int kTileColumns, int kThreads, bool kDrops = false>
__device__ __forceinline__ void store_tile(const Gemm& gemm, const float* products, TileOrigin origin) {
    constexpr int kVectors = kTileRows * kTileColumns / kVectorElems;
    constexpr int kVectorsPerRow = kTileColumns / kVectorElems;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kVectors; i += kThreads) {
        const int row = origin.row + i / kVectorsPerRow;
        const int column = origin.column + i % kVectorsPerRow * kVectorElems;
        if (row >= gemm.m || column >= gemm.n) continue;
        store_vector_or_elements<kDrops>(gemm, row, column, load_vector(products + i * kVectorElems));
    }
}

// The same of kSplits blocks of a cluster, which have products of one tile each: this block adds up its share of them, in order of rank.
template <int kTileRows, int kTileColumns, int kThreads, int kSplits, bool kDrops = false>
__device__ __forceinline__ void store_split_tile(const Gemm& gemm, const float* products, TileOrigin origin, int rank) {
    constexpr int kVectorsPerRow = kTileColumns / kVectorElems;
    constexpr int kVectors = kTileRows * kVectorsPerRow / kSplits;
    // Reads of other blocks take long: several rounds of them at once.
    constexpr int kAtOnce = kSplits >= 16 ? 1 : 16 / kSplits;
#pragma unroll 1
    for (int base = 0; base < kVectors; base += kThreads * kAtOnce) {
        float4 parts[kAtOnce][kSplits];
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            const int i = base + j * kThreads + static_cast<int>(threadIdx.x);
            if (i >= kVectors) continue;
#pragma unroll
            for (int block = 0; block < kSplits; ++block) {
                parts[j][block] = load_from_block(products + (rank * kVectors + i) * kVectorElems, static_cast<std::uint32_t>(block));
            }
        }
#pragma unroll
        for (int j = 0; j < kAtOnce; ++j) {
            const int i = base + j * kThreads + static_cast<int>(threadIdx.x);
            if (i >= kVectors) continue;
            float4 total = parts[j][0];
#pragma unroll
            for (int block = 1; block < kSplits; ++block) {
                const float4 part = parts[j][block];
                total = {total.x + part.x, total.y + part.y, total.z + part.z, total.w + part.w};
            }
            const int row = origin.row + (rank * kVectors + i) / kVectorsPerRow;
            const int column = origin.column + (rank * kVectors + i) % kVectorsPerRow * kVectorElems;
            if (row < gemm.m && column < gemm.n) store_vector_or_elements<kDrops>(gemm, row, column, total);
        }
    }
}

// Copies the kTileK x kTileColumns tile of B at (k0, origin.column) into shared memory, float4 by float4, zeros outside the matrix.
template <int kTileK, int kTileColumns, int kThreads>
__device__ __forceinline__ void load_b_vectors(const Gemm& gemm, int k0, int column0, float* target) {
    constexpr int kVectorsPerRow = kTileColumns / kVectorElems;
    constexpr int kVectors = kTileK * kVectorsPerRow;
#pragma unroll
    for (int base = 0; base < kVectors; base += kThreads) {
        const int i = base + static_cast<int>(threadIdx.x);
        if (kVectors % kThreads != 0 && i >= kVectors) break;
        const int k = i / kVectorsPerRow;
        const int column = i % kVectorsPerRow * kVectorElems;
        const int num_valid = k0 + k < gemm.k ? gemm.n - (column0 + column) : 0;
        store_vector(target + k * kTileColumns + column, load_vector_or_zero(gemm.b + (k0 + k) * gemm.ldb + column0 + column, num_valid));
    }
}

// Copies the kTileRows x kTileK tile of A at (row0, k0) into shared memory as kTileK rows of pitch kPitch: transposed, so that the
// products of one k read consecutive rows as float4.
template <int kTileRows, int kTileK, int kPitch, int kThreads>
__device__ __forceinline__ void load_a_transposed(const Gemm& gemm, int row0, int k0, float* target) {
    constexpr int kVectorsPerRow = kTileK / kVectorElems;
    constexpr int kVectors = kTileRows * kVectorsPerRow;
#pragma unroll
    for (int base = 0; base < kVectors; base += kThreads) {
        const int i = base + static_cast<int>(threadIdx.x);
        if (kVectors % kThreads != 0 && i >= kVectors) break;
        const int row = i / kVectorsPerRow;
        const int k = i % kVectorsPerRow * kVectorElems;
        const int num_valid = row0 + row < gemm.m ? gemm.k - (k0 + k) : 0;
        const float4 value = load_vector_or_zero(gemm.a + (row0 + row) * gemm.lda + k0 + k, num_valid);
        target[(k + 0) * kPitch + row] = value.x;
        target[(k + 1) * kPitch + row] = value.y;
        target[(k + 2) * kPitch + row] = value.z;
        target[(k + 3) * kPitch + row] = value.w;
    }
}

}  // namespace aicf::gemm_bias_act

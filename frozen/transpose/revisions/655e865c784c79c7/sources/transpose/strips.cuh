// Strips: a block turns tiles of X that lie below each other, so that it writes ever longer runs of the same rows of Y. The loads of the
// next tile are issued before this one is stored; tiles inside the matrix are moved without a test per access.
#pragma once

#include <cstdint>

#include "common/vector_access.cuh"
#include "transpose/tiles.cuh"

namespace aicf::transpose {

// One access. The compiler breaks an ordinary store of values that a loop hands on into two of 8 bytes, whose lanes share banks.
__device__ __forceinline__ void store_shared_vector(float* target, float4 value) {
    const auto address = static_cast<unsigned>(__cvta_generic_to_shared(target));
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}

// A thread's share of a tile, as patches: float4 on both sides. In shared memory the tile is turned, as in transpose_vectorised.
template <int kTileRows, int kTileColumns, int kThreads>
struct PatchShare {
    static constexpr int kRows = kTileRows;
    static constexpr int kColumns = kTileColumns;
    static constexpr int kVectorsM = kTileRows / 4;
    static constexpr int kVectorsN = kTileColumns / 4;
    static constexpr int kPatches = kVectorsM * kVectorsN / kThreads;
    static_assert(kPatches * kThreads == kVectorsM * kVectorsN && kVectorsM % 8 == 0, "every thread turns as many patches as any other");

    Patch patches[kPatches];

    template <bool kWhole>
    __device__ __forceinline__ void load(const Matrices& m, TileOrigin origin) {
#pragma unroll
        for (int i = 0; i < kPatches; ++i) {
            const int place = i * kThreads + static_cast<int>(threadIdx.x);
            const int row = origin.row + place / kVectorsN * 4;
            const int column = origin.column + place % kVectorsN * 4;
            if constexpr (kWhole) {
                const float* source = m.x + row * m.ldx + column;
#pragma unroll
                for (int j = 0; j < 4; ++j) patches[i].rows[j] = load_vector(source + j * m.ldx);
            } else {
                patches[i] = load_patch(m, row, column);
            }
        }
    }

    __device__ __forceinline__ void put(float* tile) const {
#pragma unroll
        for (int i = 0; i < kPatches; ++i) {
            const int patch_m = (i * kThreads + static_cast<int>(threadIdx.x)) / kVectorsN;
            const int patch_n = (i * kThreads + static_cast<int>(threadIdx.x)) % kVectorsN;
            const Patch turned = turn(patches[i]);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                store_shared_vector(tile + ((patch_n * 4 + j) * kVectorsM + (patch_m ^ (patch_n % 8))) * 4, turned.rows[j]);
            }
        }
    }

    template <bool kWhole>
    static __device__ __forceinline__ void store(const Matrices& m, TileOrigin origin, const float* tile) {
#pragma unroll
        for (int i = 0; i < 4 * kPatches; ++i) {
            const int vector_m = (i * kThreads + static_cast<int>(threadIdx.x)) % kVectorsM;
            const int column = (i * kThreads + static_cast<int>(threadIdx.x)) / kVectorsM;
            const float4 value = load_vector(tile + (column * kVectorsM + (vector_m ^ (column / 4 % 8))) * 4);
            if constexpr (kWhole) {
                store_vector(m.y + (origin.column + column) * m.ldy + origin.row + vector_m * 4, value);
            } else {
                store_row(m, origin.row + vector_m * 4, origin.column + column, value);
            }
        }
    }
};

// A thread's share of a tile, as elements: every kThreads-th along the rows of X. The tile lies in shared memory as in transpose_swizzled.
template <int kTileRows, int kTileColumns, int kThreads>
struct ElementShare {
    static constexpr int kRows = kTileRows;
    static constexpr int kColumns = kTileColumns;
    static constexpr int kElems = kTileRows * kTileColumns / kThreads;
    static_assert(kThreads % kTileRows == 0 && kThreads % kTileColumns == 0, "a thread stays in its column of X, and in its row");
    static_assert(kElems * kThreads == kTileRows * kTileColumns, "every thread moves as many elements as any other");

    float elems[kElems];

    template <bool kWhole>
    __device__ __forceinline__ void load(const Matrices& m, TileOrigin origin) {
        constexpr int kStep = kThreads / kTileColumns;
        const int column = static_cast<int>(threadIdx.x) % kTileColumns;
        const int row = origin.row + static_cast<int>(threadIdx.x) / kTileColumns;
        const float* source = m.x + row * m.ldx + origin.column;
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            elems[i] = kWhole || (origin.column + column < m.columns && row + i * kStep < m.rows) ? source[column] : 0.0f;
            source += kStep * m.ldx;
        }
    }

    __device__ __forceinline__ void put(float* tile) const {
        const int column = static_cast<int>(threadIdx.x) % kTileColumns;
        const int row = static_cast<int>(threadIdx.x) / kTileColumns;
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            tile[find_place<kTileColumns, true>(row + i * (kThreads / kTileColumns), column)] = elems[i];
        }
    }

    template <bool kWhole>
    static __device__ __forceinline__ void store(const Matrices& m, TileOrigin origin, const float* tile) {
        constexpr int kStep = kThreads / kTileRows;
        const int row = static_cast<int>(threadIdx.x) % kTileRows;
        const int column = static_cast<int>(threadIdx.x) / kTileRows;
        float* target = m.y + (origin.column + column) * m.ldy + origin.row;
#pragma unroll 4
        for (int i = 0; i < kElems; ++i) {
            const float value = tile[find_place<kTileColumns, true>(row, column + i * kStep)];
            if (kWhole || (origin.row + row < m.rows && origin.column + column + i * kStep < m.columns)) target[row] = value;
            target += kStep * m.ldy;
        }
    }
};

// Turns num_tiles tiles, as far as there are so many. Two tiles of shared memory take turns: a thread that writes one again has passed the
// barrier that follows every read of it. One is enough where a strip is a single tile.
template <class Share, int kThreads>
__global__ void __launch_bounds__(kThreads, count_blocks(kThreads, Share::kRows* Share::kColumns / kThreads))
    transpose_strips(const Matrices m, const int num_tiles) {
    extern __shared__ __align__(16) float shared[];
    constexpr int kElems = Share::kRows * Share::kColumns;
    TileOrigin origin = find_tile<Share::kRows, Share::kColumns>(m.columns);
    origin.row *= num_tiles;
    const int end = min(m.rows, origin.row + num_tiles * Share::kRows);
    const bool is_wide = origin.column + Share::kColumns <= m.columns;
    const auto is_whole = [&](int row) { return is_wide && row + Share::kRows <= m.rows; };
    Share share;
    const auto load = [&](TileOrigin at) { is_whole(at.row) ? share.template load<true>(m, at) : share.template load<false>(m, at); };
    load(origin);
    for (int parity = 0; origin.row < end; parity ^= 1) {
        float* tile = shared + parity * kElems;
        share.put(tile);
        const TileOrigin next = {origin.row + Share::kRows, origin.column};
        if (next.row < end) load(next);
        __syncthreads();
        is_whole(origin.row) ? Share::template store<true>(m, origin, tile) : Share::template store<false>(m, origin, tile);
        origin = next;
    }
}

}  // namespace aicf::transpose

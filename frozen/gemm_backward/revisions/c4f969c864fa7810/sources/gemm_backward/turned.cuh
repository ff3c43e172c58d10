// The Hopper kernel for dZ whose tiles divide its rows evenly: columns of dZ are the rows of wgmma's D, 64 to a warp group and block, and
// rows of dZ its columns, in groups of 8 and as many as leave the last wave of multiprocessors full; the steps of tiles that would not are
// dealt out. A column of dZ is a row of registers, whose sum for dbias takes four shuffles a tile.
#pragma once

#include <cstdint>

#include "common/activation_slopes.cuh"
#include "common/async_copy.cuh"
#include "common/split_order.cuh"
#include "common/store_rounded.cuh"
#include "common/turned_tiles.cuh"
#include "common/wgmma_pipeline.cuh"

namespace aicf::gemm_backward {

// Shared memory of all warp groups: parts of Z, and of dZ in their place.
constexpr int count_turned_grad_bytes(int groups) { return groups * TurnedPart<2>::kCopies * TurnedPart<2>::kBytes; }

// dZ[m, n], beside its tensor maps and its tiles.
struct TurnedGradProblem {
    const void* z;  // [m, n], rows on 16-byte boundaries, or null
    void* dz;
    std::int64_t ldz, lddz;
    float* partial_sums;  // [tiles of rows, n], or null
    void* dbias;  // [n] where there is one tile of rows, in place of partial_sums, or null
    int m, n;
    int act;
    bool has_chunks;  // rows of dZ start on 16-byte boundaries
    std::uint32_t* flags;  // num_flags words to clear for the next kernel of this launch
    int num_flags;

    __device__ __forceinline__ bool has_sums() const { return partial_sums != nullptr || dbias != nullptr; }

    // The sum of a column over a tile of rows.
    template <class Element>
    __device__ __forceinline__ void store_sum(int tile_of_rows, int column, float sum) const {
        if (dbias != nullptr) {
            static_cast<Element*>(dbias)[column] = from_float<Element>(sum);
        } else {
            partial_sums[static_cast<std::int64_t>(tile_of_rows) * n + column] = sum;
        }
    }
};

// dZ = D' * act'(Z), and sums of its columns. T's rows are columns of dZ. Z comes by cp.async into the parts through which dZ leaves, the
// first of a tile under its products. What is done to an element stands once in the code, as in gemm_bias_act's turned epilogue.
template <class Element, class T>
struct TurnedGradEpilogue {
    using L = WgmmaLayout<T>;
    using Part = TurnedPart<T::item_bytes>;
    using Sums = TurnedSums<T, T::item_bytes>;
    static constexpr int kCopies = Part::kCopies;
    static constexpr int kSums = Part::kSums;
    static constexpr int kGroupBarrier = 1;  // and the next: of one warp group

    const TurnedGradProblem& problem;
    const TileGrid& tiles;
    std::uint8_t* stage;  // this warp group's
    int next = 0;  // part of it

    __device__ __forceinline__ TurnedGradEpilogue(const TurnedGradProblem& of, const TileGrid& grid, std::uint8_t* shared)
        : problem(of), tiles(grid), stage(shared + L::kEpilogueOffset + find_consumer() * kCopies * Part::kBytes) {}

    // Found where it is wanted, so that it takes no registers beside the products.
    __device__ static __forceinline__ int find_thread() { return compute_here(find_group_thread()); }

    // What of a warp group's tile dZ has: its rows, and parts down and blocks of columns, one after the other.
    struct Extent {
        int rows, num_parts, num_blocks;
    };
    __device__ __forceinline__ Extent find_extent(const TileWork& tile) const {
        const int rows = max(min(problem.m - tile.column, T::count_columns(tiles)), 0);
        const int columns = max(problem.n - tile.row, 0);
        return {rows, (rows + Part::kRows - 1) / Part::kRows, min((columns + Part::kColumns - 1) / Part::kColumns, L::kBlocksM)};
    }

    // Starts the copies of this thread's chunks of Z of a part to `target`: those that it stores as dZ, so that it alone waits for none.
    // They are a group, if there are none too.
    __device__ __forceinline__ void load_part(const TileWork& tile, const Extent& extent, int block, int part, std::uint8_t* target) const {
        if (block < extent.num_blocks) {
            const int thread = find_thread();
            const int chunk = thread % Part::kChunks;
            const int column = tile.row + block * Part::kColumns + chunk * Part::kElems;
            const int valid = max(min(problem.n - column, Part::kElems), 0) * T::item_bytes;
#pragma unroll
            for (int i = 0; i < Part::kRows; i += Part::kRowsAtATime) {
                const int row = i + thread / Part::kChunks;
                const bool is_there = part * Part::kRows + row < extent.rows && valid > 0;
                const std::int64_t place = is_there ? (tile.column + part * Part::kRows + row) * problem.ldz + column : 0;
                copy_async<16>(target + Part::find_chunk(row, chunk), static_cast<const Element*>(problem.z) + place, is_there ? valid : 0);
            }
        }
        commit_copies();
    }

    // The part that is so many behind one, block by block.
    struct Place {
        int block, part;
    };
    __device__ static __forceinline__ Place move_on(Place from, int count, const Extent& extent) {
        from.part += count;
        while (from.part >= extent.num_parts) {
            from.part -= extent.num_parts;
            ++from.block;
        }
        return from;
    }

    __device__ __forceinline__ void begin(const TileWork& tile) {
        // A part of a tile is stored as it is.
        if (problem.z == nullptr || tile.num_steps < tiles.num_steps) return;
        const Extent extent = find_extent(tile);
        if (extent.num_parts == 0 || extent.num_blocks == 0) return;
        next = 0;
#pragma unroll
        for (int i = 0; i < kCopies; ++i) {
            const Place place = move_on({0, 0}, i, extent);
            load_part(tile, extent, place.block, place.part, stage + i * Part::kBytes);
        }
        // The others come to L2: a line of a block's columns each.
        for (int i = find_thread(); i < extent.rows * extent.num_blocks; i += kWarpGroupThreads) {
            const int block = i / extent.rows;
            const Element* line = static_cast<const Element*>(problem.z) + (tile.column + i - block * extent.rows) * problem.ldz +
                                  tile.row + block * Part::kColumns;
            asm volatile("prefetch.global.L2 [%0];" ::"l"(line) : "memory");
        }
    }

    __device__ __forceinline__ void end() const {}

    __device__ __forceinline__ void finish(float (&sums)[L::kBlocksM][L::kSums], const TileWork& tile) {
        const int thread = find_thread();
        const Extent extent = find_extent(tile);
#pragma unroll 1
        for (int block = 0; block < extent.num_blocks; ++block) {
            float totals[2] = {};  // of this thread's two columns
#pragma unroll 1
            for (int part = 0; part < extent.num_parts; ++part) {
                float gradients[kSums];
                visit_number<0, L::kBlocksM * Sums::kParts>(block * Sums::kParts + part,
                                                            [&](auto number) { Sums::template take<number.value>(sums, gradients); });
                finish_part(gradients, totals, tile, extent, {block, part}, thread);
            }
            if (problem.has_sums() && extent.num_parts > 0) store_sums(totals, tile, block, thread);
        }
    }

    __device__ __forceinline__ void finish_part(float (&gradients)[kSums], float (&totals)[2], const TileWork& tile, const Extent& extent,
                                                const Place& place, int thread) {
        std::uint8_t* const own = stage + next * Part::kBytes;
        next = next + 1 == kCopies ? 0 : next + 1;
        const int num_rows = extent.rows - place.part * Part::kRows;
        const bool has_z = problem.z != nullptr;
        if (has_z) {
            wait_copies<kCopies - 1>();
            sync_named<kWarpGroupThreads>(kGroupBarrier + find_consumer());
            pass_part(gradients, Part::find_matrices(own, thread));
            __syncwarp();
        }
        if (problem.has_sums()) {
            // Rows past the end are products of zeros with what may be infinite, or of no products at all.
            if (num_rows < Part::kRows) {
#pragma unroll
                for (int i = 0; i < kSums; ++i) gradients[i] = Part::find_row(thread % 32, i) < num_rows ? gradients[i] : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < kSums; ++i) totals[i % 4 / 2] += gradients[i];
        }
        turn_part<Element, T::item_bytes>(own, thread, gradients);
        sync_named<kWarpGroupThreads>(kGroupBarrier + find_consumer());
        store_part_rows<T::item_bytes>(own, thread, problem.dz, problem.lddz, problem.n, problem.has_chunks,
                                       tile.column + place.part * Part::kRows, num_rows, tile.row + place.block * Part::kColumns);
        if (has_z) {
            const Place later = move_on(place, kCopies, extent);
            load_part(tile, extent, later.block, later.part, own);
        }
    }

    __device__ __forceinline__ void pass_part(float (&gradients)[kSums], std::uint32_t address) const {
        std::uint32_t words[kSums / 2];
#pragma unroll
        for (int i = 0; i < kSums / 8; ++i) {
            load_matrices_transposed(reinterpret_cast<std::uint32_t (&)[4]>(words[4 * i]), address + i * 16 * Part::kRowBytes);
        }
        pass_gradients(problem.act, gradients, [&](int i) {
            const float2 pair = unpack_pair<Element>(words[i / 2]);
            return i % 2 == 0 ? pair.x : pair.y;
        });
    }

    // Adds up four lanes' sums, which have the same columns.
    __device__ __forceinline__ void store_sums(const float (&totals)[2], const TileWork& tile, int block, int thread) const {
        const int tile_of_rows = tile.column / T::count_columns(tiles);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float total = totals[i];
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            const int column = tile.row + block * Part::kColumns + Part::find_column(thread, 2 * i);
            if (thread % 4 == 0 && column < problem.n) problem.store_sum<Element>(tile_of_rows, column, total);
        }
    }
};

// dZ[m, n] = (dY[m, k] W') * act'(Z), in the sizes of the product, as D = W dY' with k split: W is read as [k, n] where kTransposedW, else
// as [n, k].
template <class Element, class T, bool kTransposedW>
__global__ void __launch_bounds__(WgmmaLayout<T>::kThreads, 1)
    multiply_turned_grad(const __grid_constant__ CUtensorMap map_w, const __grid_constant__ CUtensorMap map_dy,
                         const TurnedGradProblem problem, const EvenSplitGrid grid) {
    extern __shared__ __align__(1024) std::uint8_t wgmma_shared[];
    std::uint8_t* const shared = wgmma_shared;
    using Epilogue = TurnedGradEpilogue<Element, T>;
    if (blockIdx.x == 0 && problem.num_flags > 0 && threadIdx.x < 32) {
        wait_for_predecessor();
        for (int i = static_cast<int>(threadIdx.x); i < problem.num_flags; i += 32) problem.flags[i] = 0;
    }
    multiply_tiles<Element, T, kTransposedW, false, SplitOrder>(
        &map_w, &map_dy, grid, shared, [&] { return PartsEpilogue<T, true, Epilogue>{grid, Epilogue(problem, grid, shared)}; });
}

// Warps of add_grad_parts: 8 rows of dZ each at a time.
template <class T>
inline constexpr int kAddGradWarps = T::bn > 128 ? 16 : 8;

// Adds up the parts of split tiles to dZ and the sums of its columns; a block has 16 columns and all rows of a tile. Grid: (blocks of split
// tiles, T::bm / 16).
template <class Element, class T>
__global__ void __launch_bounds__(kAddGradWarps<T> * 32) add_grad_parts(const TurnedGradProblem problem, const EvenSplitGrid grid) {
    using L = WgmmaLayout<T>;
    using Slot = SumSlot<T>;
    constexpr int kStrip = 16;
    __shared__ float sums[kAddGradWarps<T>][kStrip];
    allow_successor();
    wait_for_predecessor();
    const TileOrder<T> order(grid);
    const PartOwners owners = find_part_owners<T>(grid, order.next);
    if (owners.has_one()) return;
    const TileWork tile = order.find_tile(order.next, 0, grid.num_steps);
    const int strip = static_cast<int>(blockIdx.y) * kStrip;
    if (tile.row + strip >= problem.n || tile.column >= problem.m) return;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // Where a strip lies in a part, as the threads of the products hold it.
    const int first_vector = (strip / L::kRows * L::kBlocksM + strip % L::kRows / 64) * Slot::kBlockVectors;
    const int first_place = first_vector * kWarpGroupThreads + strip % 64 / 16 * 32 + lane;
    float4 total = {};
    int column = 0;
    for (int vector = warp; vector * 8 < T::count_columns(grid); vector += kAddGradWarps<T>) {
        float4 sum = add_fours<T>(grid, owners, order.find_rank(), first_place + vector * kWarpGroupThreads);
        const TurnedFour at = turn_fours(&sum, lane);
        const int row = tile.column + vector * 8 + at.column;
        column = tile.row + strip + at.row;
        if (row >= problem.m || column >= problem.n) continue;
        float gradients[4] = {sum.x, sum.y, sum.z, sum.w};
        if (problem.z != nullptr) {
            const Element* z = static_cast<const Element*>(problem.z) + row * problem.ldz + column;
            // Rows are whole units of 16 bytes, but for the last, which may be its owner's.
            float values[4] = {};
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                if (column + i < problem.n) values[i] = to_float(z[i]);
            }
            pass_gradients(problem.act, gradients, [&](int i) { return values[i]; });
        }
        store_four_rounded<Element>(problem.dz, problem.lddz, problem.n, problem.has_chunks, row, column, gradients);
        total = {total.x + gradients[0], total.y + gradients[1], total.z + gradients[2], total.w + gradients[3]};
    }
    if (!problem.has_sums()) return;
    // The lanes of the same lane / 8 have the same columns.
#pragma unroll
    for (int i = 1; i < 8; i *= 2) {
        total.x += __shfl_xor_sync(0xffffffffu, total.x, i);
        total.y += __shfl_xor_sync(0xffffffffu, total.y, i);
        total.z += __shfl_xor_sync(0xffffffffu, total.z, i);
        total.w += __shfl_xor_sync(0xffffffffu, total.w, i);
    }
    if (lane % 8 == 0) *reinterpret_cast<float4*>(sums[warp] + (lane / 8 % 2 * 2 + lane / 16) * 4) = total;
    __syncthreads();
    const int of_strip = static_cast<int>(threadIdx.x);
    if (of_strip >= kStrip || tile.row + strip + of_strip >= problem.n) return;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kAddGradWarps<T>; ++i) sum += sums[i][of_strip];
    problem.store_sum<Element>(tile.column / T::count_columns(grid), tile.row + strip + of_strip, sum);
}

}  // namespace aicf::gemm_backward

// The way out of turned tiles, whose rows are columns of the result: parts of 32 rows by 64 columns of the result leave through shared
// memory, transposed by stmatrix, in stores of 16 bytes to whole lines.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/half_types.cuh"
#include "common/mma.cuh"
#include "common/wgmma.cuh"

namespace aicf {

// A part of the result in shared memory, in elements as they leave. A warp group has kCopies of them, so that the next is written while
// slower warps read the last, where they are small.
template <int kItemBytes>
struct TurnedPart {
    static constexpr int kRows = 32;
    static constexpr int kColumns = 64;
    static constexpr int kRowBytes = kColumns * kItemBytes;
    static constexpr int kBytes = kRows * kRowBytes;
    static constexpr int kCopies = kItemBytes == 2 ? 2 : 1;
    static constexpr int kSums = kRows / 2;  // per thread: pairs of rows, of two columns 8 apart
    static constexpr int kElems = 16 / kItemBytes;  // of a chunk
    static constexpr int kChunks = kColumns / kElems;  // of a row
    static constexpr int kRowsAtATime = kWarpGroupThreads / kChunks;  // that a warp group reads or writes by chunks, one a thread
    using Output = std::conditional_t<kItemBytes == 2, std::uint16_t, float>;  // an element's bits

    // Where 16 bytes lie: of a row's, those that a warp writes or reads at once are in different banks.
    __device__ static __forceinline__ int find_chunk(int row, int chunk) {
        return row * kRowBytes + (chunk ^ (kItemBytes == 2 ? row % 8 : row / 2 % 4 * 2)) * 16;
    }

    // Element i of a thread: its row of the part, and its column.
    __device__ static __forceinline__ int find_row(int lane, int i) { return i / 4 * 8 + lane % 4 * 2 + i % 2; }
    __device__ static __forceinline__ int find_column(int thread, int i) { return thread / 32 * 16 + i % 4 / 2 * 8 + thread % 32 / 4; }

    // 16-bit elements: the address of this lane's row of four 8 x 8 matrices, as load_matrices_transposed and store_matrices_transposed
    // take them, for a thread's first 8 elements. Those of the next lie 16 rows on.
    __device__ static __forceinline__ std::uint32_t find_matrices(const std::uint8_t* part, int thread) {
        const int lane = thread % 32;
        return find_shared_address(part + find_chunk(lane / 16 * 8 + lane % 8, thread / 32 * 2 + lane / 8 % 2));
    }
};

// A thread's sums of one part of a tile, by its number at compile time: parts of a block of 64 rows of T one after the other.
template <class T, int kItemBytes>
struct TurnedSums {
    static constexpr int kPartSums = TurnedPart<kItemBytes>::kSums;
    static constexpr int kTileSums = T::bn / 2;  // of a block
    static constexpr int kParts = (kTileSums + kPartSums - 1) / kPartSums;  // of a block

    template <int kPart, class Sums>
    __device__ __forceinline__ static void take(const Sums& sums, float (&part)[kPartSums]) {
        constexpr int kFrom = kPart % kParts * kPartSums;
        constexpr int kCount = kFrom + kPartSums <= kTileSums ? kPartSums : kTileSums - kFrom;
#pragma unroll
        for (int i = 0; i < kCount; ++i) part[i] = sums[kPart / kParts][kFrom + i];
    }
};

// A thread's elements of a part to shared memory, rounded: rows of D become columns.
template <class Element, int kItemBytes>
__device__ __forceinline__ void turn_part(std::uint8_t* part, int thread, const float (&values)[TurnedPart<kItemBytes>::kSums]) {
    using Part = TurnedPart<kItemBytes>;
    if constexpr (kItemBytes == 2) {
        const std::uint32_t address = Part::find_matrices(part, thread);
#pragma unroll
        for (int i = 0; i < Part::kSums; i += 8) {
            const std::uint32_t words[4] = {pack_pair<Element>(values[i], values[i + 1]), pack_pair<Element>(values[i + 2], values[i + 3]),
                                            pack_pair<Element>(values[i + 4], values[i + 5]),
                                            pack_pair<Element>(values[i + 6], values[i + 7])};
            store_matrices_transposed(address + i / 8 * 16 * Part::kRowBytes, words);
        }
    } else {
#pragma unroll
        for (int i = 0; i < Part::kSums; ++i) {
            const int column = Part::find_column(thread, i);
            reinterpret_cast<float*>(part + Part::find_chunk(Part::find_row(thread % 32, i), column / 4))[column % 4] = values[i];
        }
    }
}

// This thread's chunks of a part from shared memory to a matrix of `num_columns` columns, whose rows start on 16-byte boundaries if
// has_chunks. The part's first row and column are given; num_rows of its rows are there.
template <int kItemBytes>
__device__ __forceinline__ void store_part_rows(const std::uint8_t* part, int thread, void* target, std::int64_t stride, int num_columns,
                                                bool has_chunks, int first_row, int num_rows, int first_column) {
    using Part = TurnedPart<kItemBytes>;
    using Output = typename Part::Output;
    const int chunk = thread % Part::kChunks;
    const int column = first_column + chunk * Part::kElems;
    if (column >= num_columns) return;
#pragma unroll
    for (int i = 0; i < Part::kRows; i += Part::kRowsAtATime) {
        const int row = i + thread / Part::kChunks;
        if (row >= num_rows) return;
        const std::uint8_t* const source = part + Part::find_chunk(row, chunk);
        Output* const place = static_cast<Output*>(target) + (first_row + row) * stride + column;
        if (has_chunks && column + Part::kElems <= num_columns) {
            *reinterpret_cast<uint4*>(place) = *reinterpret_cast<const uint4*>(source);
            continue;
        }
#pragma unroll
        for (int j = 0; j < Part::kElems; ++j) {
            if (column + j < num_columns) place[j] = reinterpret_cast<const Output*>(source)[j];
        }
    }
}

}  // namespace aicf

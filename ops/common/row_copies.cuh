// Packs of a row on their way to shared memory while another row is worked on, wherever rows begin (elements of 16 bits).
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/rows.cuh"

namespace aicf {

// What one thread of a block of kBlockThreads needs of a row of each of kMatrices matrices, in places of its own, where no other thread
// has anything to do: of each pack the 16 bytes on the boundary in front of it, and of rows with a skew the 16 bytes behind those too.
// Rows that follow each other lie alike, so that what a row's ends cut off stays zero. Copies move words of 32 bits: an element that
// shares its word with what is not the row's stays in a register.
template <class Element, class Span, int kMatrices, int kBlockThreads>
class RowCopies {
    static constexpr int kElems = Span::kChunkElems, kChunks = Span::kChunks;

public:
    // Of `num_matrices`, the first ones, which alone are there.
    static constexpr int count_bytes(int num_matrices, bool has_skews) {
        return ((has_skews ? kMatrices : 0) + num_matrices) * kChunks * kBlockThreads * static_cast<int>(sizeof(uint4));
    }

    __device__ __forceinline__ RowCopies(uint4* shared, const Span& span, const int (&skews)[kMatrices])
        : own_(shared + threadIdx.x), span_(span) {
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) skews_[m] = skews[m];
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            bool is_whole = true;
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) is_whole = is_whole && span.is_whole(span.find_column(chunk, 0), skews[m]);
            if (is_whole) whole_ |= 1 << chunk;
        }
    }

    // A row that is null is not there, now or later.
    __device__ __forceinline__ void clear(const Element* const (&rows)[kMatrices]) const {
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            visit(rows, chunk, [](int /*m*/, int /*half*/, uint4* place) { *place = {0, 0, 0, 0}; });
        }
    }

    __device__ __forceinline__ void fetch(const Element* const (&rows)[kMatrices]) {
        static_assert(sizeof(Element) == 2, "words of 32 bits need no copies: they are read one by one");
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int column = span_.find_column(chunk, 0);
            if (is_whole(chunk)) {
                visit(rows, chunk,
                      [&](int m, int half, uint4* place) { copy_async<16>(place, rows[m] + (column - skews_[m] + half * kElems)); });
            } else if (column < span_.columns) {
                visit(rows, chunk, [&](int m, int half, uint4* place) {
                    fetch_part(rows[m], column - skews_[m] + half * kElems, place, edges_[m][chunk]);
                });
            }
        }
        commit_copies();
    }

    // Waits for what fetch() has started, after which it may start the next; zeros stand for what lies past the row, and for one that is
    // not there.
    __device__ __forceinline__ void take(const Element* const (&rows)[kMatrices], uint4 (&words)[kMatrices][kChunks]) const {
        wait_copies<0>();
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int column = span_.find_column(chunk, 0);
            uint4 next[kMatrices];
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) words[m][chunk] = next[m] = {0, 0, 0, 0};
            if (column >= span_.columns) continue;
            visit(rows, chunk, [&](int m, int half, const uint4* place) { (half == 0 ? words[m][chunk] : next[m]) = *place; });
            if (!is_whole(chunk)) {
                visit(rows, chunk, [&](int m, int half, const uint4* /*place*/) {
                    uint4& pack = half == 0 ? words[m][chunk] : next[m];
                    pack = add_edge(pack, column - skews_[m] + half * kElems, edges_[m][chunk]);
                });
            }
#pragma unroll
            for (int m = 0; m < kMatrices; ++m) {
                if (skews_[m] != 0) words[m][chunk] = join_words(words[m][chunk], next[m], skews_[m]);
            }
        }
    }

private:
    __device__ __forceinline__ bool is_whole(int chunk) const { return (whole_ >> chunk & 1) != 0; }

    // Calls visit(m, half, place) for the halves, of which a pack with a skew has two, of a chunk's packs that are there.
    template <class Visit>
    __device__ __forceinline__ void visit(const Element* const (&rows)[kMatrices], int chunk, const Visit& visit) const {
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
            if (rows[m] == nullptr) continue;
            visit(m, 0, own_ + (m * kChunks + chunk) * kBlockThreads);
            if (skews_[m] != 0) visit(m, 1, own_ + ((kMatrices + m) * kChunks + chunk) * kBlockThreads);
        }
    }

    // Of the 16 bytes on a boundary from column `first` on what is the row's: its first or last element may be the edge, and a row is too
    // long for both.
    __device__ __forceinline__ void fetch_part(const Element* row, int first, uint4* place, std::uint32_t& edge) const {
        const Element* const at = row + first;
#pragma unroll
        for (int i = 0; i < kElems; i += 2) {
            const bool has_low = first + i >= 0 && first + i < span_.columns,
                       has_high = first + i + 1 >= 0 && first + i + 1 < span_.columns;
            if (has_low && has_high) copy_async<4>(reinterpret_cast<std::uint32_t*>(place) + i / 2, at + i);
            if (has_low != has_high) edge = *reinterpret_cast<const std::uint16_t*>(at + (has_low ? i : i + 1));
        }
    }

    __device__ __forceinline__ uint4 add_edge(const uint4& pack, int first, std::uint32_t edge) const {
        std::uint32_t words[4] = {pack.x, pack.y, pack.z, pack.w};
#pragma unroll
        for (int i = 0; i < kElems; i += 2) {
            if (first + i == -1) words[i / 2] = edge << 16;
            if (first + i == span_.columns - 1) words[i / 2] = edge;
        }
        return {words[0], words[1], words[2], words[3]};
    }

    uint4* own_;
    Span span_;
    int skews_[kMatrices], whole_ = 0;  // a bit for each chunk of which there is all of every matrix
    std::uint32_t edges_[kMatrices][kChunks] = {};
};

}  // namespace aicf

// Packs of a row on their way to shared memory while another row is worked on, wherever rows begin (elements of 16 bits).
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "common/rows.cuh"

namespace aicf {

// What one thread of a block of kBlockThreads needs of a row of a matrix, in places of its own, where no other thread has anything to do:
// of each pack the 16 bytes on the boundary in front of it, and of rows with a skew the 16 bytes behind those too. Rows that follow each
// other lie alike, so that what a row's ends cut off stays zero. Copies move words of 32 bits: an element that shares its word with what
// is not the row's stays in a register.
template <class Element, class Span, int kBlockThreads>
class RowCopy {
    static constexpr int kElems = Span::kChunkElems, kChunks = Span::kChunks;

public:
    __host__ __device__ static constexpr int count_bytes(bool has_skew) {
        return (has_skew ? 2 : 1) * kChunks * kBlockThreads * static_cast<int>(sizeof(uint4));
    }

    __device__ __forceinline__ RowCopy(uint4* shared, const Span& span, int skew) : own_(shared + threadIdx.x), span_(span), skew_(skew) {
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) *find_place(chunk, 0) = {0, 0, 0, 0};
        if (skew == 0) return;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) *find_place(chunk, 1) = {0, 0, 0, 0};
    }

    // Starts the copies of a row.
    __device__ __forceinline__ void fetch(const Element* row) {
        static_assert(sizeof(Element) == 2, "words of 32 bits need no copies: they are read one by one");
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int column = span_.find_column(chunk, 0);
            const Element* const at = row + (column - skew_);
            if (span_.is_whole(column, skew_)) {
                copy_async<16>(find_place(chunk, 0), at);
                if (skew_ != 0) copy_async<16>(find_place(chunk, 1), at + kElems);
            } else if (column < span_.columns) {
                fetch_part(at, column - skew_, find_place(chunk, 0), edges_[chunk]);
                if (skew_ != 0) fetch_part(at + kElems, column - skew_ + kElems, find_place(chunk, 1), edges_[chunk]);
            }
        }
    }

    // What fetch() has brought, after its group of copies was waited for, and before the next; zeros stand for what lies past the row.
    __device__ __forceinline__ void take(uint4 (&words)[kChunks]) const {
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
            const int column = span_.find_column(chunk, 0);
            uint4 next = {0, 0, 0, 0};
            words[chunk] = {0, 0, 0, 0};
            if (column >= span_.columns) continue;
            words[chunk] = *find_place(chunk, 0);
            if (skew_ != 0) next = *find_place(chunk, 1);
            if (!span_.is_whole(column, skew_)) {
                words[chunk] = add_edge(words[chunk], column - skew_, edges_[chunk]);
                next = add_edge(next, column - skew_ + kElems, edges_[chunk]);
            }
            if (skew_ != 0) words[chunk] = join_words(words[chunk], next, skew_);
        }
    }

private:
    __device__ __forceinline__ uint4* find_place(int chunk, int half) const { return own_ + (half * kChunks + chunk) * kBlockThreads; }

    // Of the 16 bytes from column `first` on what is the row's: its first or last element may be the edge, and a row is too long for both.
    __device__ __forceinline__ void fetch_part(const Element* at, int first, uint4* place, std::uint32_t& edge) const {
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
    int skew_;
    std::uint32_t edges_[kChunks] = {};
};

}  // namespace aicf

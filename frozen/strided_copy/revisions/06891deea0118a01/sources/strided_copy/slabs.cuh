// Slabs: runs of memory that hold the same elements on both sides, in another order. A block takes some to shared memory as they are, and
// writes them in the order of y; how long their axes are, and where rows begin, is nothing to either side.
#pragma once

#include <cstdint>

#include "common/async_copy.cuh"
#include "strided_copy/routed.cuh"

namespace aicf::strided_copy {

inline constexpr int kSlabThreads = 256;

// x in words of 4 bytes. In shared memory a row is as long as a step of y's innermost axis, and has words behind it where lanes that are
// such steps apart would meet in few banks.
template <int kAxes>
struct Slabs {
    Route<kAxes> route;  // of a block's elements: x and y are those of all blocks, x's steps are bytes in shared memory
    std::uint32_t num_words, block_words;
    std::uint32_t row_multiplier, row_shift, pad_words;
};

#ifdef __CUDACC__
template <int kAxes>
__device__ __forceinline__ void read_slabs(const Slabs<kAxes>& s, std::uint32_t first_word, std::uint32_t num_words, char* shared) {
    const auto* const x = reinterpret_cast<const std::uint32_t*>(s.route.x) + first_word;
#pragma unroll 4
    for (std::uint32_t word = threadIdx.x; word < num_words; word += kSlabThreads) {
        const std::uint32_t row = __umulhi(word, s.row_multiplier) >> s.row_shift;
        copy_async<4>(shared + 4 * (word + row * s.pad_words), x + word);
    }
    commit_copies();
    wait_copies<0>();
    __syncthreads();
}

// Words of y, or elements that are longer.
template <class Element, int kAxes>
__device__ __forceinline__ void write_slabs(const Slabs<kAxes>& s, std::uint32_t first_word, std::uint32_t num_words, const char* shared) {
    constexpr int kBytes = static_cast<int>(sizeof(Element)), kElements = kBytes < 4 ? 4 / kBytes : 1, kWords = kBytes < 4 ? 1 : kBytes / 4;
    auto* const y = reinterpret_cast<std::uint32_t*>(s.route.y) + first_word;
#pragma unroll 2
    for (std::uint32_t place = threadIdx.x; place * kWords < num_words; place += kSlabThreads) {
        Element found[kElements];
#pragma unroll
        for (int e = 0; e < kElements; ++e) {
            found[e] = *reinterpret_cast<const Element*>(shared + locate(s.route, place * kElements + e).x);
        }
        if constexpr (kElements == 1) {
            reinterpret_cast<Element*>(y)[place] = found[0];
        } else {
            std::uint32_t word = found[0];
#pragma unroll
            for (int e = 1; e < kElements; ++e) word |= std::uint32_t{found[e]} << (8 * kBytes * e);
            y[place] = word;
        }
    }
}
#endif

}  // namespace aicf::strided_copy

// Philox 4x32-10 (J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): random words of elements by their number.
//
// Element i of draw k has word i % 4 of the block whose counter is {i / 4 (its upper half with k in the top byte), offset}, under the key
// seed. contract/expressions/philox.py gives the same bits.
#pragma once

#include <cstdint>

namespace aicf {

// In device memory: what a step of training changes.
struct Counter {
    std::uint64_t seed;
    std::uint64_t offset;
};

__device__ __forceinline__ uint4 draw_block(const Counter& counter, std::uint64_t block, int draw) {
    constexpr std::uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u, kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
    constexpr int kRounds = 10;
    uint4 c = {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32) | (static_cast<std::uint32_t>(draw) << 24),
               static_cast<std::uint32_t>(counter.offset), static_cast<std::uint32_t>(counter.offset >> 32)};
    auto k0 = static_cast<std::uint32_t>(counter.seed), k1 = static_cast<std::uint32_t>(counter.seed >> 32);
#pragma unroll
    for (int round = 0; round < kRounds; ++round) {
        const std::uint32_t high0 = __umulhi(kMultiplier0, c.x), low0 = kMultiplier0 * c.x;
        const std::uint32_t high1 = __umulhi(kMultiplier1, c.z), low1 = kMultiplier1 * c.z;
        c = {high1 ^ c.y ^ k0, low1, high0 ^ c.w ^ k1, low0};
        k0 += kWeyl0;
        k1 += kWeyl1;
    }
    return c;
}

__device__ __forceinline__ std::uint32_t take_word(const uint4& words, unsigned place) {
    const std::uint32_t low = place % 2 == 0 ? words.x : words.y, high = place % 2 == 0 ? words.z : words.w;
    return place < 2 ? low : high;
}

__device__ __forceinline__ std::uint32_t draw_word(const Counter& counter, std::uint64_t element, int draw) {
    return take_word(draw_block(counter, element / 4, draw), static_cast<unsigned>(element % 4));
}

// The words of kElems elements that follow each other, from as few blocks as they lie in: one more where the first does not begin one.
template <int kElems>
__device__ __forceinline__ void draw_words(const Counter& counter, std::uint64_t first, int draw, std::uint32_t (&words)[kElems]) {
    if constexpr (kElems % 4 != 0) {
#pragma unroll
        for (int i = 0; i < kElems; ++i) words[i] = draw_word(counter, first + i, draw);
    } else {
        const auto place = static_cast<unsigned>(first % 4);
        std::uint32_t drawn[kElems + 4];
#pragma unroll
        for (int i = 0; i < kElems; i += 4) {
            const uint4 block = draw_block(counter, first / 4 + i / 4, draw);
            drawn[i] = block.x, drawn[i + 1] = block.y, drawn[i + 2] = block.z, drawn[i + 3] = block.w;
        }
        const uint4 last = place == 0 ? uint4{} : draw_block(counter, first / 4 + kElems / 4, draw);
        drawn[kElems] = last.x, drawn[kElems + 1] = last.y, drawn[kElems + 2] = last.z, drawn[kElems + 3] = last.w;
        // By two places, then by one: an index that is not known when compiled would put them into local memory.
#pragma unroll
        for (int i = 0; i < kElems + 1; ++i) drawn[i] = place >= 2 ? drawn[i + 2] : drawn[i];
#pragma unroll
        for (int i = 0; i < kElems; ++i) words[i] = place % 2 != 0 ? drawn[i + 1] : drawn[i];
    }
}

// Whether an element with this random word stays when a share p is dropped: words from p 2^32 on, none from a share of 1 on. NaN drops all.
__device__ __forceinline__ bool is_kept(std::uint32_t word, float p) { return p < 1.0f && word >= __float2uint_rz(p * 4294967296.0f); }

// Dropout behind a product: element i of y becomes 0, or y / (1 - p), by the first draw. As elementwise's dropout(y, p).
struct Dropout {
    const float* p;          // in device memory
    const Counter* counter;  // in device memory
};

__device__ __forceinline__ float drop_by_word(float y, std::uint32_t word, float p) {
    return is_kept(word, p) ? y * (1.0f / (1.0f - p)) : 0.0f;
}

// Elements that follow each other, the first of this number.
template <int kElems>
__device__ __forceinline__ void drop_elements(const Dropout& dropout, std::uint64_t first, float (&y)[kElems]) {
    const float p = *dropout.p;
    const auto place = static_cast<unsigned>(first % 4);
    const uint4 block = draw_block(*dropout.counter, first / 4, 0);
    const uint4 next = place + kElems > 4 ? draw_block(*dropout.counter, first / 4 + 1, 0) : block;
    static_assert(kElems <= 4, "in two blocks at most");
#pragma unroll
    for (unsigned i = 0; i < kElems; ++i) {
        // By value: a reference to one or the other would put both into memory.
        const std::uint32_t word = place + i < 4 ? take_word(block, place + i) : take_word(next, place + i - 4);
        y[i] = drop_by_word(y[i], word, p);
    }
}

}  // namespace aicf

// Strips: accesses of one thread that lie equally far apart, each as wide as all of them begin on boundaries. Up to 16 are on their way
// before the first is used, and those past a strip's end are predicates, not branches: a short launch is its longest chain.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "reduce/reductions.cuh"

namespace aicf::reduce {

// What kElems neighbouring elements take up in registers: words, or the lower half of one.
template <class Element, int kElems>
inline constexpr int kNumWords = kElems * static_cast<int>(sizeof(Element)) < 4 ? 1 : kElems * static_cast<int>(sizeof(Element)) / 4;

// Elements that change no state: what a thread takes past the last. A place there comes behind those of all that are real.
template <class Reduction, class Element>
inline constexpr std::uint32_t kNothing = 0;
template <class Element>
inline constexpr std::uint32_t kNothing<Max, Element> = kMinusInfinityWord<Element>;
template <class Element>
inline constexpr std::uint32_t kNothing<Min, Element> = kMinusInfinityWord<Element> & 0x7fff7fffu;
template <class Element>
inline constexpr std::uint32_t kNothing<Argmax, Element> = kMinusInfinityWord<Element>;

// Takes the elements of some words, each to a state of its own; `find_place(i)` is the place of element i.
template <class Reduction, class Element, int kElems, class FindPlace>
__device__ __forceinline__ void take_words(typename Reduction::State (&states)[kElems],
                                           const std::uint32_t (&words)[kNumWords<Element, kElems>], const FindPlace& find_place) {
    const auto take = [&](int i, float value) { states[i] = Reduction::take(states[i], value, find_place(i)); };
    if constexpr (sizeof(Element) == sizeof(float)) {
#pragma unroll
        for (int i = 0; i < kElems; ++i) take(i, __uint_as_float(words[i]));
    } else if constexpr (kElems == 1) {
        take(0, to_float(Element{static_cast<std::uint16_t>(words[0])}));
    } else {
#pragma unroll
        for (int i = 0; i < kElems; i += 2) {
            const float2 pair = unpack_pair<Element>(words[i / 2]);
            take(i, pair.x);
            take(i + 1, pair.y);
        }
    }
}

// Loads kBytes where `is_real`, and leaves the words as they are elsewhere. Volatile, and so in this order ahead of what uses them.
template <int kBytes, int kWords>
__device__ __forceinline__ void load_words_if(std::uint32_t (&words)[kWords], const char* source, bool is_real) {
    const std::size_t at = __cvta_generic_to_global(source);
    const auto real = static_cast<std::uint32_t>(is_real);
    if constexpr (kBytes == 16) {
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %5, 0;\n\t@p ld.global.v4.b32 {%0, %1, %2, %3}, [%4];\n\t}"
                     : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
                     : "l"(at), "r"(real));
    } else if constexpr (kBytes == 8) {
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %3, 0;\n\t@p ld.global.v2.b32 {%0, %1}, [%2];\n\t}"
                     : "+r"(words[0]), "+r"(words[1])
                     : "l"(at), "r"(real));
    } else if constexpr (kBytes == 4) {
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %2, 0;\n\t@p ld.global.b32 %0, [%1];\n\t}"
                     : "+r"(words[0])
                     : "l"(at), "r"(real));
    } else {
        asm volatile("{\n\t.reg .pred p;\n\tsetp.ne.b32 p, %2, 0;\n\t@p ld.global.u16 %0, [%1];\n\t}"
                     : "+r"(words[0])
                     : "l"(at), "r"(real));
    }
}

// A round of kTogether accesses of each of kStrips strips, those from `first` on: of strip s the accesses before counts[s] are real.
template <class Reduction, class Element, int kTogether, int kElems, int kStrips, class FindPlace>
__device__ __forceinline__ void take_round(typename Reduction::State (&states)[kStrips][kElems], const char* const (&at)[kStrips],
                                           std::int64_t step_bytes, const int (&counts)[kStrips], int first, const FindPlace& find_place) {
    constexpr int kBytes = kElems * static_cast<int>(sizeof(Element)), kWords = kNumWords<Element, kElems>;
    // Of few real accesses most takes are left out, so many at a time: all threads of a warp mostly leave out the same.
    constexpr int kTakesTogether = 4;
    std::uint32_t words[kTogether][kStrips][kWords];
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
#pragma unroll
        for (int s = 0; s < kStrips; ++s) {
#pragma unroll
            for (std::uint32_t& word : words[u][s]) word = kNothing<Reduction, Element>;
            load_words_if<kBytes>(words[u][s], at[s] + (first + u) * step_bytes, first + u < counts[s]);
        }
    }
    // Unknown to the compiler, so that each is a branch: it would use the first accesses ahead of making the last.
    int left;
    asm volatile("mov.b32 %0, %1;" : "=r"(left) : "r"(counts[0] - first));
#pragma unroll
    for (int u = 0; u < kTogether; ++u) {
        if (u % kTakesTogether == 0 && u >= left) break;
#pragma unroll
        for (int s = 0; s < kStrips; ++s) {
            take_words<Reduction, Element>(states[s], words[u][s], [&](int i) { return find_place(first + u, i); });
        }
    }
}

// Reduces strips, an element of every access to a state of its own. No strip is longer than the first. `find_place(access, i)` is the place
// of element i of an access.
template <class Reduction, class Element, int kElems, int kStrips, class FindPlace>
__device__ __forceinline__ void take_strips(typename Reduction::State (&states)[kStrips][kElems], const char* const (&at)[kStrips],
                                            std::int64_t step_bytes, const int (&counts)[kStrips], const FindPlace& find_place) {
    constexpr int kBytes = kElems * static_cast<int>(sizeof(Element));
    constexpr int kMost = (kBytes == 16 ? 8 : 16) / kStrips, kFew = 8;
#pragma unroll
    for (auto& strip : states) {
#pragma unroll
        for (auto& state : strip) state = Reduction::start();
    }
    // Of few accesses a shorter body, as a short launch waits for its code, too.
    if (kFew < kMost && counts[0] <= kFew) return take_round<Reduction, Element, kFew>(states, at, step_bytes, counts, 0, find_place);
#pragma unroll 1
    for (int first = 0; first < counts[0]; first += kMost) {
        take_round<Reduction, Element, kMost>(states, at, step_bytes, counts, first, find_place);
    }
}

// Stores words that begin on a boundary of all of them, of 16 bytes at most.
template <int kWords>
__device__ __forceinline__ void store_words(void* target, const std::uint32_t (&words)[kWords]) {
    if constexpr (kWords == 1) {
        *static_cast<std::uint32_t*>(target) = words[0];
    } else if constexpr (kWords == 2) {
        *static_cast<uint2*>(target) = {words[0], words[1]};
    } else {
#pragma unroll
        for (int i = 0; i < kWords; i += 4) {
            static_cast<uint4*>(target)[i / 4] = {words[i], words[i + 1], words[i + 2], words[i + 3]};
        }
    }
}

// What becomes of results. It is read ahead of a thread's accesses: behind them it would be a wait of its own.
struct Finish {
    std::int32_t reduction, result_dtype;
    float scale;

    __device__ __forceinline__ Finish(const ReduceParams& p, float scale_of_sums) {
        asm volatile("mov.b32 %0, %1;" : "=r"(reduction) : "r"(p.reduction));
        asm volatile("mov.b32 %0, %1;" : "=r"(result_dtype) : "r"(p.result_dtype));
        asm volatile("mov.b32 %0, %1;" : "=f"(scale) : "f"(scale_of_sums));
    }
};

// Stores the kElems results from `first` on, by accesses as wide as they are together, of 16 bytes at most.
template <int kElems>
__device__ __forceinline__ void write_results(void* y, const Finish& finish, std::int64_t first, float (&values)[kElems]) {
#pragma unroll
    for (float& value : values) value = finish.reduction == AICF_REDUCE_REDUCTION_L2_NORM ? sqrtf(value) : value * finish.scale;
    if (finish.result_dtype == AICF_DTYPE_FLOAT32) {
        std::uint32_t words[kElems];
#pragma unroll
        for (int i = 0; i < kElems; ++i) words[i] = __float_as_uint(values[i]);
        return store_words(static_cast<float*>(y) + first, words);
    }
    const bool is_bf16 = finish.result_dtype == AICF_DTYPE_BFLOAT16;
    auto* const halves = static_cast<std::uint16_t*>(y) + first;
    if constexpr (kElems == 1) {
        *halves = is_bf16 ? from_float<Bf16>(values[0]).bits : from_float<Fp16>(values[0]).bits;
    } else {
        std::uint32_t words[kElems / 2];
#pragma unroll
        for (int i = 0; i < kElems / 2; ++i) {
            const float low = values[2 * i], high = values[2 * i + 1];
            words[i] = is_bf16 ? pack_pair<Bf16>(low, high) : pack_pair<Fp16>(low, high);
        }
        store_words(halves, words);
    }
}

template <int kElems>
__device__ __forceinline__ void write_results(void* y, const Finish&, std::int64_t first, Found (&found)[kElems]) {
    std::uint32_t words[2 * kElems];
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
        words[2 * i] = static_cast<std::uint32_t>(found[i].place);
        words[2 * i + 1] = static_cast<std::uint32_t>(found[i].place >> 32);
    }
    store_words(static_cast<std::int64_t*>(y) + first, words);
}

}  // namespace aicf::reduce

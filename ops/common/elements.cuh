// Elements of fp32, bf16 and fp16 alike: accesses of 16 bytes, whole or cut short at a ragged edge, with arithmetic in fp32.
#pragma once

#include <cstdint>

#include "common/dtypes.h"
#include "common/half_types.cuh"
#include "common/status.hpp"

namespace aicf {

__device__ __forceinline__ float to_float(float value) { return value; }

template <>
__device__ __forceinline__ float from_float<float>(float value) {
    return value;
}

template <class Element>
inline constexpr int kDtypeOf = -1;
template <>
inline constexpr int kDtypeOf<float> = AICF_DTYPE_FLOAT32;
template <>
inline constexpr int kDtypeOf<Bf16> = AICF_DTYPE_BFLOAT16;
template <>
inline constexpr int kDtypeOf<Fp16> = AICF_DTYPE_FLOAT16;

inline AicfStatus refuse_dtype(std::int32_t dtype) {
    return make_unsupported("dtype = %d: has no instance of this kernel", static_cast<int>(dtype));
}

// Calls `call` with an element of the type that a dtype code names, one of Elements.
template <class First, class... Rest, class Call>
AicfStatus dispatch_dtype(std::int32_t dtype, const Call& call) {
    if (dtype == kDtypeOf<First>) return call(First{});
    if constexpr (sizeof...(Rest) > 0) {
        return dispatch_dtype<Rest...>(dtype, call);
    } else {
        return refuse_dtype(dtype);
    }
}

// All three.
template <class Call>
AicfStatus dispatch_float(std::int32_t dtype, const Call& call) {
    return dispatch_dtype<float, Bf16, Fp16>(dtype, call);
}

// What a 16-byte access holds, in fp32.
template <class Element>
struct Pack {
    static constexpr int kElems = 16 / static_cast<int>(sizeof(Element));
    float values[kElems];
};

// Words of elements that are minus infinity.
template <class Element>
inline constexpr std::uint32_t kMinusInfinityWord = 0xff800000;
template <>
inline constexpr std::uint32_t kMinusInfinityWord<Bf16> = 0xff80ff80;
template <>
inline constexpr std::uint32_t kMinusInfinityWord<Fp16> = 0xfc00fc00;

// Elements of one access.
template <class Element>
inline constexpr int kPackElems = Pack<Element>::kElems;

// A row of a matrix with this base and stride (elements) starts on a 16-byte boundary, whichever it is.
template <class Element>
inline bool has_pack_rows(const void* base, std::int64_t stride) {
    return reinterpret_cast<std::uintptr_t>(base) % 16 == 0 && stride % kPackElems<Element> == 0;
}

template <class Element>
__device__ __forceinline__ Pack<Element> unpack(const uint4& words) {
    if constexpr (sizeof(Element) == 4) {
        return {{__uint_as_float(words.x), __uint_as_float(words.y), __uint_as_float(words.z), __uint_as_float(words.w)}};
    } else {
        const float2 a = unpack_pair<Element>(words.x), b = unpack_pair<Element>(words.y);
        const float2 c = unpack_pair<Element>(words.z), d = unpack_pair<Element>(words.w);
        return {{a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}};
    }
}

template <class Element>
__device__ __forceinline__ Pack<Element> load_pack(const Element* source) {
    // A copy first: taken word by word as they are converted, the compiler would load the words by an access each.
    const uint4 words = *reinterpret_cast<const uint4*>(source);
    return unpack<Element>(words);
}

// Has the line of memory around an address on its way to L2.
__device__ __forceinline__ void prefetch_line(const void* at) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(at)));
}

// Hides from the compiler that the words are those it knows: what it made of them is made anew, and not kept in registers until then.
__device__ __forceinline__ void forget(std::uint32_t& word) { asm volatile("" : "+r"(word)); }
__device__ __forceinline__ void forget(uint4& words) { asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w)); }

// The 16 bytes that begin `skew` elements of 16 bits, up to 7, behind the first of two packs.
__device__ __forceinline__ uint4 join_words(const uint4& pack, const uint4& next, int skew) {
    const bool by_two = (skew & 4) != 0, by_one = (skew & 2) != 0;
    std::uint32_t words[6] = {by_two ? pack.z : pack.x, by_two ? pack.w : pack.y, by_two ? next.x : pack.z,
                              by_two ? next.y : pack.w, by_two ? next.z : next.x, by_two ? next.w : next.y};
#pragma unroll
    for (int i = 0; i < 5; ++i) words[i] = by_one ? words[i + 1] : words[i];
    const int bits = skew % 2 * 16;
    return {__funnelshift_r(words[0], words[1], bits), __funnelshift_r(words[1], words[2], bits), __funnelshift_r(words[2], words[3], bits),
            __funnelshift_r(words[3], words[4], bits)};
}

// A pack that lies `skew` elements behind a 16-byte boundary. Both 16 bytes that it touches are read in whole.
template <class Element>
__device__ __forceinline__ Pack<Element> load_pack_skewed(const Element* source, int skew) {
    if (sizeof(Element) == 4 || skew == 0) return load_pack(source);
    const uint4* const words = reinterpret_cast<const uint4*>(source - skew);
    const uint4 pack = words[0], next = words[1];
    return unpack<Element>(join_words(pack, next, skew));
}

template <class Element>
__device__ __forceinline__ uint4 pack_words(const Pack<Element>& pack) {
    const float* const v = pack.values;
    if constexpr (sizeof(Element) == 4) {
        return {__float_as_uint(v[0]), __float_as_uint(v[1]), __float_as_uint(v[2]), __float_as_uint(v[3])};
    } else {
        return {pack_pair<Element>(v[0], v[1]), pack_pair<Element>(v[2], v[3]), pack_pair<Element>(v[4], v[5]),
                pack_pair<Element>(v[6], v[7])};
    }
}

template <class Element>
__device__ __forceinline__ void store_pack(Element* target, const Pack<Element>& pack) {
    const uint4 words = pack_words(pack);
    *reinterpret_cast<uint4*>(target) = words;
}

// As store_pack, to global memory and by one access whatever the compiler knows of the address: it takes uint4 apart behind one that is
// counted from a boundary, and four requests each fill a quarter of their sectors.
template <class Element>
__device__ __forceinline__ void store_pack_to_global(Element* target, const Pack<Element>& pack) {
    const uint4 words = pack_words(pack);
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(target)), "r"(words.x), "r"(words.y),
                 "r"(words.z), "r"(words.w)
                 : "memory");
}

// The same to memory of either kind, which is a branch. Not where the compiler also sees other accesses of the same row: it has taken
// the branch for a proof, and written an element of a row in global memory to shared memory.
template <class Element>
__device__ __forceinline__ void store_pack_at_once(Element* target, const Pack<Element>& pack) {
    if (__isShared(target)) return store_pack(target, pack);
    store_pack_to_global(target, pack);
}

template <class Element>
__device__ __forceinline__ Pack<Element> fill_pack(float value) {
    Pack<Element> pack;
#pragma unroll
    for (float& each : pack.values) each = value;
    return pack;
}

// The first `num_valid` elements, and `fill` behind them. Nothing is read past them; num_valid may be negative. An access of 16 bytes is
// made where all are valid and `is_aligned`.
template <class Element>
__device__ __forceinline__ Pack<Element> load_pack_or(const Element* source, std::int64_t num_valid, bool is_aligned, float fill) {
    if (is_aligned && num_valid >= kPackElems<Element>) return load_pack(source);
    Pack<Element> pack;
#pragma unroll
    for (int i = 0; i < kPackElems<Element>; ++i) pack.values[i] = i < num_valid ? to_float(source[i]) : fill;
    return pack;
}

template <class Element>
__device__ __forceinline__ void store_pack_part(Element* target, const Pack<Element>& pack, std::int64_t num_valid, bool is_aligned) {
    if (is_aligned && num_valid >= kPackElems<Element>) return store_pack(target, pack);
#pragma unroll
    for (int i = 0; i < kPackElems<Element>; ++i) {
        if (i < num_valid) target[i] = from_float<Element>(pack.values[i]);
    }
}

}  // namespace aicf

// A dense y from one piece of x, one store after the other: places of y are numbered in the order of its memory, and each finds where in x
// its element is, or that it has none. Zeros around a piece are no boxes of their own: every byte of y is written once.
#pragma once

#include <cstdint>

#include "common/division.hpp"
#include "common/vector_access.cuh"
#include "strided_copy/pieces.cuh"

namespace aicf::strided_copy {

inline constexpr int kGatheredBytes = 16;

// An axis of y, from the innermost on: its places from `first` on, `count` of them, are x's, this many bytes apart there.
struct GatheredAxis {
    Divisor extent;  // 2 at least: where it would be 1, all numbers are 0
    int first, count;
    std::int64_t x_step;
};

// All of y, and what of it comes from x. Axes behind the last have one place, 0, which is x's.
struct Gather {
    const char* x;  // of its first place in y
    char* y;        // in packs: the multiple of 16 bytes that is not behind it
    int num_elements;  // of y
    int misfit;        // elements between the first pack's begin and y
    int num_axes;
    GatheredAxis axes[kMaxAxes];
};

// How many bytes from x's first a place lies, if x has it.
struct Origin {
    std::int64_t offset;
    bool is_inside;

    __device__ __forceinline__ void add(const GatheredAxis& axis, int place) {
        const auto from_first = static_cast<unsigned>(place - axis.first);
        is_inside &= from_first < static_cast<unsigned>(axis.count);
        offset += static_cast<std::int64_t>(from_first) * axis.x_step;
    }
};

// Of place `number` of the axes from kFirst to kAxes - 1.
template <int kFirst, int kAxes>
__device__ __forceinline__ Origin find_origin(const Gather& g, int number) {
    Origin found = {0, true};
#pragma unroll
    for (int k = kFirst; k < kAxes - 1; ++k) {
        const int quotient = g.axes[k].extent.divide_by_two_or_more(number);
        found.add(g.axes[k], g.axes[k].extent.find_remainder(number, quotient));
        number = quotient;
    }
    found.add(g.axes[kAxes - 1], number);
    return found;
}

// Bits from `first` to `end` - 1, as far as there are.
__device__ __forceinline__ unsigned make_mask(int first, int end) {
    // Shifts by 32 and more give 0.
    const unsigned from = __funnelshift_lc(0, ~0u, static_cast<unsigned>(max(first, 0)));
    return from & ~__funnelshift_lc(0, ~0u, static_cast<unsigned>(max(end, 0)));
}

// A pack of y: 16 bytes from a multiple of 16 on. They are of one row or of two, as no row is shorter.
template <class Element, int kAxes>
struct GatheredPack {
    static constexpr int kCount = kGatheredBytes / static_cast<int>(sizeof(Element));

    Element values[kCount];

    // Element `at` of y, counted from its first, is the pack's first; loads are under way when this returns.
    __device__ __forceinline__ void load(const Gather& g, int at) {
        constexpr int kBytes = static_cast<int>(sizeof(Element));
        const GatheredAxis& inner = g.axes[0];
        const int row = inner.extent.divide_by_two_or_more(max(at, 0));
        const int place = at - row * static_cast<int>(inner.extent.divisor);
        const int left = static_cast<int>(inner.extent.divisor) - place;
        const Origin here = find_origin<1, kAxes>(g, row);
        const int first = inner.first - place;
        unsigned mask = here.is_inside ? make_mask(first, first + inner.count) : 0;
        const char *from = g.x + here.offset - first * kBytes, *next = from;
        if (left < kCount && at + left < g.num_elements) {
            const Origin there = find_origin<1, kAxes>(g, row + 1);
            const int begin = left + inner.first;
            if (there.is_inside) mask |= make_mask(begin, begin + inner.count);
            next = g.x + there.offset - begin * kBytes;
        }
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            const char* const source = i < left ? from : next;
            values[i] = (mask >> i & 1) != 0 ? reinterpret_cast<const Element*>(source)[i] : Element{};
        }
    }

    // Stores what of the pack is in y.
    __device__ __forceinline__ void store(const Gather& g, int at, char* y) const {
        if (at >= 0 && at + kCount <= g.num_elements) {
            *reinterpret_cast<uint4*>(y) = lay_words(values);
            return;
        }
#pragma unroll
        for (int i = 0; i < kCount; ++i) {
            if (at + i >= 0 && at + i < g.num_elements) reinterpret_cast<Element*>(y)[i] = values[i];
        }
    }
};

}  // namespace aicf::strided_copy

// Accesses numbered in the order of y's memory, and where each lies on either side, from few parameters and quotients that do not wait for
// each other.
//
// The place along axis k is q_k - q_(k+1) * e_k, where q_k is the access's number divided by the extents of all axes before k. A side's
// offset, the sum of places times steps s_k, is then q_0 * s_0 plus the sum over the other axes of q_k * (s_k - s_(k-1) * e_(k-1)): places
// need not be known, and every quotient is one of the number itself. Sums wrap around in 32 bits; what they come to has 31 and a sign.
#pragma once

#include <cstdint>

#include "common/division.hpp"

namespace aicf::strided_copy {

// An axis behind the first: the divisor of the access's number, and how far quotients of it go, in accesses.
struct Turn {
    std::uint32_t multiplier, shift;
    std::uint32_t x_step, y_step;

#ifdef __CUDACC__
    __device__ __forceinline__ std::uint32_t divide(std::uint32_t number) const { return __umulhi(number, multiplier) >> shift; }
#endif
};

// All of a launch of one piece. Axes that it has not go no step.
template <int kAxes>
struct Route {
    const char* x;
    char* y;
    std::uint32_t num_accesses;
    std::uint32_t x_step, y_step;  // of the innermost axis
    Turn turns[kAxes - 1];
};

// A range of y's columns, in accesses: the piece that it is from, as if that had all columns.
struct JoinedPiece {
    const char* x;
    std::uint32_t row_step;
    std::uint32_t first;  // of its columns; no column of y is as far as that of a source that is not there
};

// Pieces side by side in the rows of a y without gaps.
template <int kCapacity>
struct Join {
    char* y;
    std::uint32_t num_accesses;
    std::uint32_t width;  // of y's rows
    std::uint32_t multiplier, shift;
    JoinedPiece sources[kCapacity];
};

#ifdef __CUDACC__
// Where an access lies on either side, in accesses.
struct Located {
    int x, y;
};

template <int kAxes>
__device__ __forceinline__ Located locate(const Route<kAxes>& route, std::uint32_t number) {
    std::uint32_t x = number * route.x_step, y = number * route.y_step;
#pragma unroll
    for (const Turn& turn : route.turns) {
        const std::uint32_t quotient = turn.divide(number);
        x += quotient * turn.x_step;
        y += quotient * turn.y_step;
    }
    return {static_cast<int>(x), static_cast<int>(y)};
}

// Where an access of y is read from.
template <class Access, int kCapacity>
__device__ __forceinline__ const Access* find_source(const Join<kCapacity>& join, std::uint32_t number) {
    const std::uint32_t row = __umulhi(number, join.multiplier) >> join.shift;
    const std::uint32_t column = number - row * join.width;
    const char* x = join.sources[0].x;
    std::uint32_t row_step = join.sources[0].row_step;
#pragma unroll
    for (int i = 1; i < kCapacity; ++i) {
        const JoinedPiece& source = join.sources[i];
        x = column >= source.first ? source.x : x;
        row_step = column >= source.first ? source.row_step : row_step;
    }
    return reinterpret_cast<const Access*>(x) + static_cast<int>(row * row_step + column);
}
#endif

}  // namespace aicf::strided_copy

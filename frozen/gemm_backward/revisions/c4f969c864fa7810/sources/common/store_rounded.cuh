// Stores of four neighbouring elements of a row-major matrix, rounded where its elements are 16-bit floats.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/half_types.cuh"

namespace aicf {

// Of `row` from `column` on, or those of them that the matrix has. `has_chunks`: rows start on 16-byte boundaries; `column` is a multiple
// of four.
template <class Element>
__device__ __forceinline__ void store_four_rounded(void* target, std::int64_t stride, int num_columns, bool has_chunks, int row, int column,
                                                   const float (&values)[4]) {
    constexpr bool kRounds = sizeof(Element) == 2;
    using Output = std::conditional_t<kRounds, Element, float>;
    Output* place = static_cast<Output*>(target) + row * stride + column;
    if (has_chunks && column + 4 <= num_columns) {
        if constexpr (kRounds) {
            *reinterpret_cast<uint2*>(place) = {pack_pair<Element>(values[0], values[1]), pack_pair<Element>(values[2], values[3])};
        } else {
            *reinterpret_cast<float4*>(place) = {values[0], values[1], values[2], values[3]};
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (column + i >= num_columns) return;
        if constexpr (kRounds) {
            place[i] = from_float<Element>(values[i]);
        } else {
            place[i] = values[i];
        }
    }
}

}  // namespace aicf

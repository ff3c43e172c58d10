// What a chain says of itself; Chain<number> of each is generated (elementwise/chains.hpp).
#pragma once

#include <cstdint>

#include "common/dtypes.h"
#include "common/half_types.cuh"

namespace aicf::elementwise {

// kGeneric is the dtype of the first input.
enum class Type { kGeneric, kFloat32, kBfloat16, kFloat16, kBool };

// Which elements of [rows, columns] have a value of their own: all, one per column, one per row, or one in all.
enum class Extent { kFull, kColumns, kRows, kOne };

struct Operand {
    Type type;
    Extent extent;
};

// kName, kCode (the number in Params), kInputs, kOutputs, kNumDraws (random words per element), and compute(in, words, out) of one element.
template <int kNumber>
struct Chain;

template <class Chain>
inline constexpr int kNumInputs = static_cast<int>(sizeof(Chain::kInputs) / sizeof(Operand));
template <class Chain>
inline constexpr int kNumOutputs = static_cast<int>(sizeof(Chain::kOutputs) / sizeof(Operand));

// A byte of 0 or 1.
struct Bool {
    std::uint8_t value;
};

template <Type kType, class Generic>
struct FindElement {
    using type = Generic;
};
template <class Generic>
struct FindElement<Type::kFloat32, Generic> {
    using type = float;
};
template <class Generic>
struct FindElement<Type::kBfloat16, Generic> {
    using type = Bf16;
};
template <class Generic>
struct FindElement<Type::kFloat16, Generic> {
    using type = Fp16;
};
template <class Generic>
struct FindElement<Type::kBool, Generic> {
    using type = Bool;
};

// How an operand of this type lies in memory where the first input has elements of Generic.
template <Type kType, class Generic>
using Element = typename FindElement<kType, Generic>::type;

}  // namespace aicf::elementwise

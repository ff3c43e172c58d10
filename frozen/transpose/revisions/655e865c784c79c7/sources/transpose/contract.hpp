// Generated from transpose/op.py by the build; change it there. The contract of op transpose as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "transpose/params.h"

namespace aicf::transpose {

using Params = TransposeParams;

inline constexpr contract::SizeField kSizes_[] = {
    {"rows", offsetof(Params, rows), -1},
    {"columns", offsetof(Params, columns), -1},
};
inline constexpr contract::Table kSizes = contract::list(kSizes_);

inline constexpr contract::Table<contract::AttributeField> kAttributes = {nullptr, 0};

inline constexpr contract::Table<contract::ScalarField> kScalars = {nullptr, 0};

inline constexpr contract::TensorCase kCasesOf_x_[] = {
    {0, {}, true, "<f4", 4, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_x = contract::list(kCasesOf_x_);

inline constexpr contract::TensorCase kCasesOf_y_[] = {
    {0, {}, true, "<f4", 4, 2, {1, 0}},
};
inline constexpr contract::Table kCasesOf_y = contract::list(kCasesOf_y_);

inline constexpr contract::TensorField kTensors_[] = {
    {"x", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, x), {offsetof(Params, ldx), contract::kNoField}, kCasesOf_x},
    {"y", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, y), {offsetof(Params, ldy), contract::kNoField}, kCasesOf_y},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"transpose", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int bm, bn, threads, pad, lm, items, cut, stream;
};

inline constexpr Tunables kTunables = {AICF_BM, AICF_BN, AICF_THREADS, AICF_PAD, AICF_LM, AICF_ITEMS, AICF_CUT, AICF_STREAM};
#endif

}  // namespace aicf::transpose

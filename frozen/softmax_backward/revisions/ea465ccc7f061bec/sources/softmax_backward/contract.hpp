// Generated from softmax_backward/op.py by the build; change it there. The contract of op softmax_backward as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "softmax_backward/params.h"

namespace aicf::softmax_backward {

using Params = SoftmaxBackwardParams;

inline constexpr contract::SizeField kSizes_[] = {
    {"rows", offsetof(Params, rows), -1},
    {"columns", offsetof(Params, columns), -1},
};
inline constexpr contract::Table kSizes = contract::list(kSizes_);

inline constexpr contract::Choice kChoicesOf_dtype_[] = {
    {"float32", 0},
    {"bfloat16", 1},
    {"float16", 2},
};
inline constexpr contract::Table kChoicesOf_dtype = contract::list(kChoicesOf_dtype_);

inline constexpr contract::Choice kChoicesOf_log_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_log = contract::list(kChoicesOf_log_);

inline constexpr contract::Choice kChoicesOf_with_scale_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_scale = contract::list(kChoicesOf_with_scale_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"log", contract::AttributeField::kSwitch, contract::AttributeField::kPassed, 0, offsetof(Params, log), kChoicesOf_log},
    {"with_scale", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 2, 0, kChoicesOf_with_scale},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<contract::ScalarField> kScalars = {nullptr, 0};

inline constexpr contract::TensorCase kCasesOf_dy_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_dy = contract::list(kCasesOf_dy_);

inline constexpr contract::TensorCase kCasesOf_y_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_y = contract::list(kCasesOf_y_);

inline constexpr contract::TensorCase kCasesOf_scale_[] = {
    {1, {{2, 0}}, false, "<f4", 4, 0, {}},
    {1, {{2, 1}}, true, "<f4", 4, 0, {}},
};
inline constexpr contract::Table kCasesOf_scale = contract::list(kCasesOf_scale_);

inline constexpr contract::TensorCase kCasesOf_dx_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_dx = contract::list(kCasesOf_dx_);

inline constexpr contract::TensorField kTensors_[] = {
    {"dy", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, dy), {offsetof(Params, lddy), contract::kNoField}, kCasesOf_dy},
    {"y", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, y), {offsetof(Params, ldy), contract::kNoField}, kCasesOf_y},
    {"scale", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, scale), {}, kCasesOf_scale},
    {"dx", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, dx), {offsetof(Params, lddx), contract::kNoField}, kCasesOf_dx},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"softmax_backward", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int threads, together, rows, elems, team;
};

inline constexpr Tunables kTunables = {AICF_THREADS, AICF_TOGETHER, AICF_ROWS, AICF_ELEMS, AICF_TEAM};
#endif

}  // namespace aicf::softmax_backward

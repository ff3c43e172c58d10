// Generated from softmax/op.py by the build; change it there. The contract of op softmax as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "softmax/params.h"

namespace aicf::softmax {

using Params = SoftmaxParams;

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

inline constexpr contract::Choice kChoicesOf_mask_[] = {
    {"none", 0},
    {"causal", 1},
    {"boolean", 2},
};
inline constexpr contract::Table kChoicesOf_mask = contract::list(kChoicesOf_mask_);

inline constexpr contract::Choice kChoicesOf_with_scale_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_scale = contract::list(kChoicesOf_with_scale_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"log", contract::AttributeField::kSwitch, contract::AttributeField::kPassed, 0, offsetof(Params, log), kChoicesOf_log},
    {"mask", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, mask), kChoicesOf_mask},
    {"with_scale", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 2, 0, kChoicesOf_with_scale},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<contract::ScalarField> kScalars = {nullptr, 0};

inline constexpr contract::TensorCase kCasesOf_x_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_x = contract::list(kCasesOf_x_);

inline constexpr contract::TensorCase kCasesOf_y_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_y = contract::list(kCasesOf_y_);

inline constexpr contract::TensorCase kCasesOf_scale_[] = {
    {1, {{3, 0}}, false, "<f4", 4, 0, {}},
    {1, {{3, 1}}, true, "<f4", 4, 0, {}},
};
inline constexpr contract::Table kCasesOf_scale = contract::list(kCasesOf_scale_);

inline constexpr contract::TensorCase kCasesOf_keep_[] = {
    {1, {{2, 0}}, false, "|b1", 1, 2, {0, 1}},
    {1, {{2, 1}}, false, "|b1", 1, 2, {0, 1}},
    {1, {{2, 2}}, true, "|b1", 1, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_keep = contract::list(kCasesOf_keep_);

inline constexpr contract::TensorCase kCasesOf_queries_[] = {
    {1, {{2, 0}}, false, "<i8", 8, 0, {}},
    {1, {{2, 1}}, true, "<i8", 8, 0, {}},
    {1, {{2, 2}}, false, "<i8", 8, 0, {}},
};
inline constexpr contract::Table kCasesOf_queries = contract::list(kCasesOf_queries_);

inline constexpr contract::TensorField kTensors_[] = {
    {"x", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, x), {offsetof(Params, ldx), contract::kNoField}, kCasesOf_x},
    {"y", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, y), {offsetof(Params, ldy), contract::kNoField}, kCasesOf_y},
    {"scale", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, scale), {}, kCasesOf_scale},
    {"keep", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, keep), {offsetof(Params, ldkeep), contract::kNoField}, kCasesOf_keep},
    {"queries", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, queries), {}, kCasesOf_queries},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"softmax", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int threads, rows, vectors, elems, together, staged, team;
};

inline constexpr Tunables kTunables = {AICF_THREADS, AICF_ROWS, AICF_VECTORS, AICF_ELEMS, AICF_TOGETHER, AICF_STAGED, AICF_TEAM};
#endif

}  // namespace aicf::softmax

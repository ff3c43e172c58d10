// Generated from reduce/op.py by the build; change it there. The contract of op reduce as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "reduce/params.h"

namespace aicf::reduce {

using Params = ReduceParams;

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

inline constexpr contract::Choice kChoicesOf_result_dtype_[] = {
    {"float32", 0},
    {"bfloat16", 1},
    {"float16", 2},
    {"int64", 8},
};
inline constexpr contract::Table kChoicesOf_result_dtype = contract::list(kChoicesOf_result_dtype_);

inline constexpr contract::Choice kChoicesOf_reduction_[] = {
    {"sum", 0},
    {"mean", 1},
    {"max", 2},
    {"min", 3},
    {"argmax", 4},
    {"l2_norm", 5},
    {"sum_squares", 6},
};
inline constexpr contract::Table kChoicesOf_reduction = contract::list(kChoicesOf_reduction_);

inline constexpr contract::Choice kChoicesOf_over_[] = {
    {"columns", 0},
    {"rows", 1},
    {"all", 2},
};
inline constexpr contract::Table kChoicesOf_over = contract::list(kChoicesOf_over_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"result_dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 1, offsetof(Params, result_dtype), kChoicesOf_result_dtype},
    {"reduction", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, reduction), kChoicesOf_reduction},
    {"over", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, over), kChoicesOf_over},
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
    {2, {{1, 0}, {3, 0}}, true, "<f4", 4, 1, {0}},
    {2, {{1, 0}, {3, 1}}, true, "<f4", 4, 1, {1}},
    {2, {{1, 0}, {3, 2}}, true, "<f4", 4, 0, {}},
    {2, {{1, 1}, {3, 0}}, true, "<V2", 2, 1, {0}},
    {2, {{1, 1}, {3, 1}}, true, "<V2", 2, 1, {1}},
    {2, {{1, 1}, {3, 2}}, true, "<V2", 2, 0, {}},
    {2, {{1, 2}, {3, 0}}, true, "<f2", 2, 1, {0}},
    {2, {{1, 2}, {3, 1}}, true, "<f2", 2, 1, {1}},
    {2, {{1, 2}, {3, 2}}, true, "<f2", 2, 0, {}},
    {2, {{1, 8}, {3, 0}}, true, "<i8", 8, 1, {0}},
    {2, {{1, 8}, {3, 1}}, true, "<i8", 8, 1, {1}},
    {2, {{1, 8}, {3, 2}}, true, "<i8", 8, 0, {}},
};
inline constexpr contract::Table kCasesOf_y = contract::list(kCasesOf_y_);

inline constexpr contract::TensorField kTensors_[] = {
    {"x", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, x), {offsetof(Params, ldx), contract::kNoField}, kCasesOf_x},
    {"y", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, y), {contract::kNoField}, kCasesOf_y},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"reduce", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int threads, rows, blocks, width, cluster, bytes, lanes;
};

inline constexpr Tunables kTunables = {AICF_THREADS, AICF_ROWS, AICF_BLOCKS, AICF_WIDTH, AICF_CLUSTER, AICF_BYTES, AICF_LANES};
#endif

}  // namespace aicf::reduce

// Generated from layernorm/op.py by the build; change it there. The contract of op layernorm as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "layernorm/params.h"

namespace aicf::layernorm {

using Params = LayernormParams;

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

inline constexpr contract::Choice kChoicesOf_with_residual_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_residual = contract::list(kChoicesOf_with_residual_);

inline constexpr contract::Choice kChoicesOf_with_bias_[] = {
    {"True", 1},
    {"False", 0},
};
inline constexpr contract::Table kChoicesOf_with_bias = contract::list(kChoicesOf_with_bias_);

inline constexpr contract::Choice kChoicesOf_with_statistics_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_statistics = contract::list(kChoicesOf_with_statistics_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"with_residual", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 1, 0, kChoicesOf_with_residual},
    {"with_bias", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 3, 0, kChoicesOf_with_bias},
    {"with_statistics", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 6, 0, kChoicesOf_with_statistics},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<double> kChoicesOf_eps = {nullptr, 0};

inline constexpr contract::ScalarField kScalars_[] = {
    {"eps", contract::ScalarField::kFloat, offsetof(Params, eps), 9.99999993922529e-09, 0.009999999776482582, kChoicesOf_eps},
};
inline constexpr contract::Table kScalars = contract::list(kScalars_);

inline constexpr contract::TensorCase kCasesOf_x_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_x = contract::list(kCasesOf_x_);

inline constexpr contract::TensorCase kCasesOf_residual_[] = {
    {2, {{0, 0}, {1, 0}}, false, "<f4", 4, 2, {0, 1}},
    {2, {{0, 0}, {1, 1}}, true, "<f4", 4, 2, {0, 1}},
    {2, {{0, 1}, {1, 0}}, false, "<V2", 2, 2, {0, 1}},
    {2, {{0, 1}, {1, 1}}, true, "<V2", 2, 2, {0, 1}},
    {2, {{0, 2}, {1, 0}}, false, "<f2", 2, 2, {0, 1}},
    {2, {{0, 2}, {1, 1}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_residual = contract::list(kCasesOf_residual_);

inline constexpr contract::TensorCase kCasesOf_weight_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 1, {1}},
    {1, {{0, 1}}, true, "<V2", 2, 1, {1}},
    {1, {{0, 2}}, true, "<f2", 2, 1, {1}},
};
inline constexpr contract::Table kCasesOf_weight = contract::list(kCasesOf_weight_);

inline constexpr contract::TensorCase kCasesOf_bias_[] = {
    {2, {{0, 0}, {2, 1}}, true, "<f4", 4, 1, {1}},
    {2, {{0, 0}, {2, 0}}, false, "<f4", 4, 1, {1}},
    {2, {{0, 1}, {2, 1}}, true, "<V2", 2, 1, {1}},
    {2, {{0, 1}, {2, 0}}, false, "<V2", 2, 1, {1}},
    {2, {{0, 2}, {2, 1}}, true, "<f2", 2, 1, {1}},
    {2, {{0, 2}, {2, 0}}, false, "<f2", 2, 1, {1}},
};
inline constexpr contract::Table kCasesOf_bias = contract::list(kCasesOf_bias_);

inline constexpr contract::TensorCase kCasesOf_y_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_y = contract::list(kCasesOf_y_);

inline constexpr contract::TensorCase kCasesOf_sum_[] = {
    {2, {{0, 0}, {1, 0}}, false, "<f4", 4, 2, {0, 1}},
    {2, {{0, 0}, {1, 1}}, true, "<f4", 4, 2, {0, 1}},
    {2, {{0, 1}, {1, 0}}, false, "<V2", 2, 2, {0, 1}},
    {2, {{0, 1}, {1, 1}}, true, "<V2", 2, 2, {0, 1}},
    {2, {{0, 2}, {1, 0}}, false, "<f2", 2, 2, {0, 1}},
    {2, {{0, 2}, {1, 1}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_sum = contract::list(kCasesOf_sum_);

inline constexpr contract::TensorCase kCasesOf_mean_[] = {
    {1, {{3, 0}}, false, "<f4", 4, 1, {0}},
    {1, {{3, 1}}, true, "<f4", 4, 1, {0}},
};
inline constexpr contract::Table kCasesOf_mean = contract::list(kCasesOf_mean_);

inline constexpr contract::TensorCase kCasesOf_rstd_[] = {
    {1, {{3, 0}}, false, "<f4", 4, 1, {0}},
    {1, {{3, 1}}, true, "<f4", 4, 1, {0}},
};
inline constexpr contract::Table kCasesOf_rstd = contract::list(kCasesOf_rstd_);

inline constexpr contract::TensorField kTensors_[] = {
    {"x", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, x), {offsetof(Params, ldx), contract::kNoField}, kCasesOf_x},
    {"residual", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, residual), {offsetof(Params, ldresidual), contract::kNoField}, kCasesOf_residual},
    {"weight", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, weight), {contract::kNoField}, kCasesOf_weight},
    {"bias", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, bias), {contract::kNoField}, kCasesOf_bias},
    {"y", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, y), {offsetof(Params, ldy), contract::kNoField}, kCasesOf_y},
    {"sum", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, sum), {offsetof(Params, ldsum), contract::kNoField}, kCasesOf_sum},
    {"mean", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, mean), {contract::kNoField}, kCasesOf_mean},
    {"rstd", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, rstd), {contract::kNoField}, kCasesOf_rstd},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"layernorm", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int threads, rows, elems, together, team;
};

inline constexpr Tunables kTunables = {AICF_THREADS, AICF_ROWS, AICF_ELEMS, AICF_TOGETHER, AICF_TEAM};
#endif

}  // namespace aicf::layernorm

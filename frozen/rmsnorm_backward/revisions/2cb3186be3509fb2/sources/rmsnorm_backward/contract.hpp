// Generated from rmsnorm_backward/op.py by the build; change it there. The contract of op rmsnorm_backward as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "rmsnorm_backward/params.h"

namespace aicf::rmsnorm_backward {

using Params = RmsnormBackwardParams;

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

inline constexpr contract::Choice kChoicesOf_with_dsum_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_dsum = contract::list(kChoicesOf_with_dsum_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"with_dsum", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 4, 0, kChoicesOf_with_dsum},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<contract::ScalarField> kScalars = {nullptr, 0};

inline constexpr contract::TensorCase kCasesOf_dy_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_dy = contract::list(kCasesOf_dy_);

inline constexpr contract::TensorCase kCasesOf_x_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_x = contract::list(kCasesOf_x_);

inline constexpr contract::TensorCase kCasesOf_weight_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 1, {1}},
    {1, {{0, 1}}, true, "<V2", 2, 1, {1}},
    {1, {{0, 2}}, true, "<f2", 2, 1, {1}},
};
inline constexpr contract::Table kCasesOf_weight = contract::list(kCasesOf_weight_);

inline constexpr contract::TensorCase kCasesOf_rstd_[] = {
    {0, {}, true, "<f4", 4, 1, {0}},
};
inline constexpr contract::Table kCasesOf_rstd = contract::list(kCasesOf_rstd_);

inline constexpr contract::TensorCase kCasesOf_dsum_[] = {
    {2, {{0, 0}, {1, 0}}, false, "<f4", 4, 2, {0, 1}},
    {2, {{0, 0}, {1, 1}}, true, "<f4", 4, 2, {0, 1}},
    {2, {{0, 1}, {1, 0}}, false, "<V2", 2, 2, {0, 1}},
    {2, {{0, 1}, {1, 1}}, true, "<V2", 2, 2, {0, 1}},
    {2, {{0, 2}, {1, 0}}, false, "<f2", 2, 2, {0, 1}},
    {2, {{0, 2}, {1, 1}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_dsum = contract::list(kCasesOf_dsum_);

inline constexpr contract::TensorCase kCasesOf_dx_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_dx = contract::list(kCasesOf_dx_);

inline constexpr contract::TensorCase kCasesOf_dweight_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 1, {1}},
    {1, {{0, 1}}, true, "<V2", 2, 1, {1}},
    {1, {{0, 2}}, true, "<f2", 2, 1, {1}},
};
inline constexpr contract::Table kCasesOf_dweight = contract::list(kCasesOf_dweight_);

inline constexpr contract::TensorField kTensors_[] = {
    {"dy", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, dy), {offsetof(Params, lddy), contract::kNoField}, kCasesOf_dy},
    {"x", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, x), {offsetof(Params, ldx), contract::kNoField}, kCasesOf_x},
    {"weight", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, weight), {contract::kNoField}, kCasesOf_weight},
    {"rstd", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, rstd), {contract::kNoField}, kCasesOf_rstd},
    {"dsum", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, dsum), {offsetof(Params, lddsum), contract::kNoField}, kCasesOf_dsum},
    {"dx", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, dx), {offsetof(Params, lddx), contract::kNoField}, kCasesOf_dx},
    {"dweight", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, dweight), {contract::kNoField}, kCasesOf_dweight},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"rmsnorm_backward", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int threads, blocks, rows, elems, team;
};

inline constexpr Tunables kTunables = {AICF_THREADS, AICF_BLOCKS, AICF_ROWS, AICF_ELEMS, AICF_TEAM};
#endif

}  // namespace aicf::rmsnorm_backward

// Generated from sdpa/op.py by the build; change it there. The contract of op sdpa as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "sdpa/params.h"

namespace aicf::sdpa {

using Params = SdpaParams;

inline constexpr contract::SizeField kSizes_[] = {
    {"B", offsetof(Params, b)},
    {"H", offsetof(Params, h)},
    {"S", offsetof(Params, s)},
    {"T", offsetof(Params, t)},
    {"D", offsetof(Params, d)},
};
inline constexpr contract::Table kSizes = contract::list(kSizes_);

inline constexpr contract::Choice kChoicesOf_dtype_[] = {
    {"float32", 0},
    {"bfloat16", 1},
    {"float16", 2},
};
inline constexpr contract::Table kChoicesOf_dtype = contract::list(kChoicesOf_dtype_);

inline constexpr contract::Choice kChoicesOf_causal_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_causal = contract::list(kChoicesOf_causal_);

inline constexpr contract::Choice kChoicesOf_with_lse_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_lse = contract::list(kChoicesOf_with_lse_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"causal", contract::AttributeField::kSwitch, contract::AttributeField::kPassed, 0, offsetof(Params, causal), kChoicesOf_causal},
    {"with_lse", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 4, 0, kChoicesOf_with_lse},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<double> kChoicesOf_scale = {nullptr, 0};

inline constexpr contract::ScalarField kScalars_[] = {
    {"scale", contract::ScalarField::kFloat, offsetof(Params, scale), 0.0009765625, 1.0, kChoicesOf_scale},
};
inline constexpr contract::Table kScalars = contract::list(kScalars_);

inline constexpr contract::TensorCase kCasesOf_q_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 4, {0, 1, 2, 4}},
    {1, {{0, 1}}, true, "<V2", 2, 4, {0, 1, 2, 4}},
    {1, {{0, 2}}, true, "<f2", 2, 4, {0, 1, 2, 4}},
};
inline constexpr contract::Table kCasesOf_q = contract::list(kCasesOf_q_);

inline constexpr contract::TensorCase kCasesOf_k_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 4, {0, 1, 3, 4}},
    {1, {{0, 1}}, true, "<V2", 2, 4, {0, 1, 3, 4}},
    {1, {{0, 2}}, true, "<f2", 2, 4, {0, 1, 3, 4}},
};
inline constexpr contract::Table kCasesOf_k = contract::list(kCasesOf_k_);

inline constexpr contract::TensorCase kCasesOf_v_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 4, {0, 1, 3, 4}},
    {1, {{0, 1}}, true, "<V2", 2, 4, {0, 1, 3, 4}},
    {1, {{0, 2}}, true, "<f2", 2, 4, {0, 1, 3, 4}},
};
inline constexpr contract::Table kCasesOf_v = contract::list(kCasesOf_v_);

inline constexpr contract::TensorCase kCasesOf_o_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 4, {0, 1, 2, 4}},
    {1, {{0, 1}}, true, "<V2", 2, 4, {0, 1, 2, 4}},
    {1, {{0, 2}}, true, "<f2", 2, 4, {0, 1, 2, 4}},
};
inline constexpr contract::Table kCasesOf_o = contract::list(kCasesOf_o_);

inline constexpr contract::TensorCase kCasesOf_lse_[] = {
    {1, {{2, 0}}, false, "<f4", 4, 3, {0, 1, 2}},
    {1, {{2, 1}}, true, "<f4", 4, 3, {0, 1, 2}},
};
inline constexpr contract::Table kCasesOf_lse = contract::list(kCasesOf_lse_);

inline constexpr contract::TensorField kTensors_[] = {
    {"q", contract::TensorField::kInput, contract::TensorField::kOuter, offsetof(Params, q), {offsetof(Params, q_stride0), offsetof(Params, q_stride1), offsetof(Params, q_stride2), contract::kNoField}, kCasesOf_q},
    {"k", contract::TensorField::kInput, contract::TensorField::kOuter, offsetof(Params, k), {offsetof(Params, k_stride0), offsetof(Params, k_stride1), offsetof(Params, k_stride2), contract::kNoField}, kCasesOf_k},
    {"v", contract::TensorField::kInput, contract::TensorField::kOuter, offsetof(Params, v), {offsetof(Params, v_stride0), offsetof(Params, v_stride1), offsetof(Params, v_stride2), contract::kNoField}, kCasesOf_v},
    {"o", contract::TensorField::kOutput, contract::TensorField::kOuter, offsetof(Params, o), {offsetof(Params, o_stride0), offsetof(Params, o_stride1), offsetof(Params, o_stride2), contract::kNoField}, kCasesOf_o},
    {"lse", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, lse), {contract::kNoField, contract::kNoField, contract::kNoField}, kCasesOf_lse},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"sdpa", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int warps, rows, keys;
};

inline constexpr Tunables kTunables = {AICF_WARPS, AICF_ROWS, AICF_KEYS};
#endif

}  // namespace aicf::sdpa

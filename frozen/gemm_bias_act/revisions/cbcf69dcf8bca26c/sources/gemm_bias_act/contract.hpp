// Generated from gemm_bias_act/op.py by the build; change it there. The contract of op gemm_bias_act as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "gemm_bias_act/params.h"

namespace aicf::gemm_bias_act {

using Params = GemmBiasActParams;

inline constexpr contract::SizeField kSizes_[] = {
    {"M", offsetof(Params, m), -1},
    {"N", offsetof(Params, n), -1},
    {"K", offsetof(Params, k), -1},
};
inline constexpr contract::Table kSizes = contract::list(kSizes_);

inline constexpr contract::Choice kChoicesOf_act_[] = {
    {"none", 0},
    {"relu", 1},
    {"gelu_tanh", 2},
    {"gelu_erf", 3},
    {"silu", 4},
};
inline constexpr contract::Table kChoicesOf_act = contract::list(kChoicesOf_act_);

inline constexpr contract::Choice kChoicesOf_dtype_[] = {
    {"float32", 0},
    {"bfloat16", 1},
    {"float16", 2},
};
inline constexpr contract::Table kChoicesOf_dtype = contract::list(kChoicesOf_dtype_);

inline constexpr contract::Choice kChoicesOf_b_layout_[] = {
    {"kn", 0},
    {"nk", 1},
};
inline constexpr contract::Table kChoicesOf_b_layout = contract::list(kChoicesOf_b_layout_);

inline constexpr contract::Choice kChoicesOf_precision_[] = {
    {"ieee", 0},
    {"tf32", 1},
};
inline constexpr contract::Table kChoicesOf_precision = contract::list(kChoicesOf_precision_);

inline constexpr contract::Choice kChoicesOf_with_bias_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_bias = contract::list(kChoicesOf_with_bias_);

inline constexpr contract::Choice kChoicesOf_save_z_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_save_z = contract::list(kChoicesOf_save_z_);

inline constexpr contract::Choice kChoicesOf_with_residual_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_residual = contract::list(kChoicesOf_with_residual_);

inline constexpr contract::Choice kChoicesOf_with_dropout_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_dropout = contract::list(kChoicesOf_with_dropout_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"act", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, act), kChoicesOf_act},
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"b_layout", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, b_layout), kChoicesOf_b_layout},
    {"precision", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, precision), kChoicesOf_precision},
    {"with_bias", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 2, 0, kChoicesOf_with_bias},
    {"save_z", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 4, 0, kChoicesOf_save_z},
    {"with_residual", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 5, 0, kChoicesOf_with_residual},
    {"with_dropout", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 6, 0, kChoicesOf_with_dropout},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<contract::ScalarField> kScalars = {nullptr, 0};

inline constexpr contract::TensorCase kCasesOf_a_[] = {
    {1, {{1, 0}}, true, "<f4", 4, 2, {0, 2}},
    {1, {{1, 1}}, true, "<V2", 2, 2, {0, 2}},
    {1, {{1, 2}}, true, "<f2", 2, 2, {0, 2}},
};
inline constexpr contract::Table kCasesOf_a = contract::list(kCasesOf_a_);

inline constexpr contract::TensorCase kCasesOf_b_[] = {
    {2, {{1, 0}, {2, 0}}, true, "<f4", 4, 2, {2, 1}},
    {2, {{1, 0}, {2, 1}}, true, "<f4", 4, 2, {1, 2}},
    {2, {{1, 1}, {2, 0}}, true, "<V2", 2, 2, {2, 1}},
    {2, {{1, 1}, {2, 1}}, true, "<V2", 2, 2, {1, 2}},
    {2, {{1, 2}, {2, 0}}, true, "<f2", 2, 2, {2, 1}},
    {2, {{1, 2}, {2, 1}}, true, "<f2", 2, 2, {1, 2}},
};
inline constexpr contract::Table kCasesOf_b = contract::list(kCasesOf_b_);

inline constexpr contract::TensorCase kCasesOf_bias_[] = {
    {2, {{1, 0}, {4, 0}}, false, "<f4", 4, 1, {1}},
    {2, {{1, 0}, {4, 1}}, true, "<f4", 4, 1, {1}},
    {2, {{1, 1}, {4, 0}}, false, "<V2", 2, 1, {1}},
    {2, {{1, 1}, {4, 1}}, true, "<V2", 2, 1, {1}},
    {2, {{1, 2}, {4, 0}}, false, "<f2", 2, 1, {1}},
    {2, {{1, 2}, {4, 1}}, true, "<f2", 2, 1, {1}},
};
inline constexpr contract::Table kCasesOf_bias = contract::list(kCasesOf_bias_);

inline constexpr contract::TensorCase kCasesOf_y_[] = {
    {1, {{1, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{1, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{1, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_y = contract::list(kCasesOf_y_);

inline constexpr contract::TensorCase kCasesOf_z_[] = {
    {2, {{1, 0}, {5, 0}}, false, "<f4", 4, 2, {0, 1}},
    {2, {{1, 0}, {5, 1}}, true, "<f4", 4, 2, {0, 1}},
    {2, {{1, 1}, {5, 0}}, false, "<V2", 2, 2, {0, 1}},
    {2, {{1, 1}, {5, 1}}, true, "<V2", 2, 2, {0, 1}},
    {2, {{1, 2}, {5, 0}}, false, "<f2", 2, 2, {0, 1}},
    {2, {{1, 2}, {5, 1}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_z = contract::list(kCasesOf_z_);

inline constexpr contract::TensorCase kCasesOf_residual_[] = {
    {2, {{1, 0}, {6, 0}}, false, "<f4", 4, 2, {0, 1}},
    {2, {{1, 0}, {6, 1}}, true, "<f4", 4, 2, {0, 1}},
    {2, {{1, 1}, {6, 0}}, false, "<V2", 2, 2, {0, 1}},
    {2, {{1, 1}, {6, 1}}, true, "<V2", 2, 2, {0, 1}},
    {2, {{1, 2}, {6, 0}}, false, "<f2", 2, 2, {0, 1}},
    {2, {{1, 2}, {6, 1}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_residual = contract::list(kCasesOf_residual_);

inline constexpr contract::TensorCase kCasesOf_p_[] = {
    {1, {{7, 0}}, false, "<f4", 4, 0, {}},
    {1, {{7, 1}}, true, "<f4", 4, 0, {}},
};
inline constexpr contract::Table kCasesOf_p = contract::list(kCasesOf_p_);

inline constexpr contract::TensorCase kCasesOf_counter_[] = {
    {1, {{7, 0}}, false, "<i8", 8, 1, {-2}},
    {1, {{7, 1}}, true, "<i8", 8, 1, {-2}},
};
inline constexpr contract::Table kCasesOf_counter = contract::list(kCasesOf_counter_);

inline constexpr contract::TensorField kTensors_[] = {
    {"a", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, a), {offsetof(Params, lda), contract::kNoField}, kCasesOf_a},
    {"b", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, b), {offsetof(Params, ldb), contract::kNoField}, kCasesOf_b},
    {"bias", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, bias), {contract::kNoField}, kCasesOf_bias},
    {"y", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, y), {offsetof(Params, ldy), contract::kNoField}, kCasesOf_y},
    {"z", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, z), {offsetof(Params, ldz), contract::kNoField}, kCasesOf_z},
    {"residual", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, residual), {offsetof(Params, ldresidual), contract::kNoField}, kCasesOf_residual},
    {"p", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, p), {}, kCasesOf_p},
    {"counter", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, counter), {contract::kNoField}, kCasesOf_counter},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"gemm_bias_act", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int bm, bn, bk, tm, tn, wm, wn, stages, group, minblocks, splits, clusterm, clustern, pingpong;
};

inline constexpr Tunables kTunables = {AICF_BM, AICF_BN, AICF_BK, AICF_TM, AICF_TN, AICF_WM, AICF_WN, AICF_STAGES, AICF_GROUP, AICF_MINBLOCKS, AICF_SPLITS, AICF_CLUSTERM, AICF_CLUSTERN, AICF_PINGPONG};
#endif

}  // namespace aicf::gemm_bias_act

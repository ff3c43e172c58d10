// Generated from gemm_backward/op.py by the build; change it there. The contract of op gemm_backward as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "gemm_backward/params.h"

namespace aicf::gemm_backward {

using Params = GemmBackwardParams;

inline constexpr contract::SizeField kSizes_[] = {
    {"M", offsetof(Params, m), -1},
    {"N", offsetof(Params, n), 2},
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
    {"bfloat16", 1},
    {"float16", 2},
    {"float32", 0},
};
inline constexpr contract::Table kChoicesOf_dtype = contract::list(kChoicesOf_dtype_);

inline constexpr contract::Choice kChoicesOf_w_layout_[] = {
    {"nk", 1},
    {"kn", 0},
};
inline constexpr contract::Table kChoicesOf_w_layout = contract::list(kChoicesOf_w_layout_);

inline constexpr contract::Choice kChoicesOf_with_w_[] = {
    {"True", 1},
    {"False", 0},
};
inline constexpr contract::Table kChoicesOf_with_w = contract::list(kChoicesOf_with_w_);

inline constexpr contract::Choice kChoicesOf_with_dz_[] = {
    {"True", 1},
    {"False", 0},
};
inline constexpr contract::Table kChoicesOf_with_dz = contract::list(kChoicesOf_with_dz_);

inline constexpr contract::Choice kChoicesOf_with_dbias_[] = {
    {"True", 1},
    {"False", 0},
};
inline constexpr contract::Table kChoicesOf_with_dbias = contract::list(kChoicesOf_with_dbias_);

inline constexpr contract::Choice kChoicesOf_with_dw_[] = {
    {"True", 1},
    {"False", 0},
};
inline constexpr contract::Table kChoicesOf_with_dw = contract::list(kChoicesOf_with_dw_);

inline constexpr contract::Choice kChoicesOf_accumulate_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_accumulate = contract::list(kChoicesOf_accumulate_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"act", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, act), kChoicesOf_act},
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"w_layout", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, w_layout), kChoicesOf_w_layout},
    {"with_w", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 1, 0, kChoicesOf_with_w},
    {"with_dz", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 4, 0, kChoicesOf_with_dz},
    {"with_dbias", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 5, 0, kChoicesOf_with_dbias},
    {"with_dw", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 2, 0, kChoicesOf_with_dw},
    {"accumulate", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 7, 0, kChoicesOf_accumulate},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<contract::ScalarField> kScalars = {nullptr, 0};

inline constexpr contract::TensorCase kCasesOf_dy_[] = {
    {2, {{1, 1}, {3, 1}}, true, "<V2", 2, 2, {0, 1}},
    {2, {{1, 1}, {3, 0}}, true, "<V2", 2, 2, {0, 2}},
    {2, {{1, 2}, {3, 1}}, true, "<f2", 2, 2, {0, 1}},
    {2, {{1, 2}, {3, 0}}, true, "<f2", 2, 2, {0, 2}},
    {2, {{1, 0}, {3, 1}}, true, "<f4", 4, 2, {0, 1}},
    {2, {{1, 0}, {3, 0}}, true, "<f4", 4, 2, {0, 2}},
};
inline constexpr contract::Table kCasesOf_dy = contract::list(kCasesOf_dy_);

inline constexpr contract::TensorCase kCasesOf_w_[] = {
    {3, {{1, 1}, {2, 1}, {3, 1}}, true, "<V2", 2, 2, {1, 2}},
    {3, {{1, 1}, {2, 1}, {3, 0}}, false, "<V2", 2, 2, {1, 2}},
    {3, {{1, 1}, {2, 0}, {3, 1}}, true, "<V2", 2, 2, {2, 1}},
    {3, {{1, 1}, {2, 0}, {3, 0}}, false, "<V2", 2, 2, {2, 1}},
    {3, {{1, 2}, {2, 1}, {3, 1}}, true, "<f2", 2, 2, {1, 2}},
    {3, {{1, 2}, {2, 1}, {3, 0}}, false, "<f2", 2, 2, {1, 2}},
    {3, {{1, 2}, {2, 0}, {3, 1}}, true, "<f2", 2, 2, {2, 1}},
    {3, {{1, 2}, {2, 0}, {3, 0}}, false, "<f2", 2, 2, {2, 1}},
    {3, {{1, 0}, {2, 1}, {3, 1}}, true, "<f4", 4, 2, {1, 2}},
    {3, {{1, 0}, {2, 1}, {3, 0}}, false, "<f4", 4, 2, {1, 2}},
    {3, {{1, 0}, {2, 0}, {3, 1}}, true, "<f4", 4, 2, {2, 1}},
    {3, {{1, 0}, {2, 0}, {3, 0}}, false, "<f4", 4, 2, {2, 1}},
};
inline constexpr contract::Table kCasesOf_w = contract::list(kCasesOf_w_);

inline constexpr contract::TensorCase kCasesOf_x_[] = {
    {2, {{1, 1}, {6, 1}}, true, "<V2", 2, 2, {0, 2}},
    {2, {{1, 1}, {6, 0}}, false, "<V2", 2, 2, {0, 2}},
    {2, {{1, 2}, {6, 1}}, true, "<f2", 2, 2, {0, 2}},
    {2, {{1, 2}, {6, 0}}, false, "<f2", 2, 2, {0, 2}},
    {2, {{1, 0}, {6, 1}}, true, "<f4", 4, 2, {0, 2}},
    {2, {{1, 0}, {6, 0}}, false, "<f4", 4, 2, {0, 2}},
};
inline constexpr contract::Table kCasesOf_x = contract::list(kCasesOf_x_);

inline constexpr contract::TensorCase kCasesOf_z_[] = {
    {3, {{0, 0}, {1, 1}, {4, 1}}, false, "<V2", 2, 2, {0, 2}},
    {3, {{0, 0}, {1, 1}, {4, 0}}, false, "<V2", 2, 2, {0, 2}},
    {3, {{0, 0}, {1, 2}, {4, 1}}, false, "<f2", 2, 2, {0, 2}},
    {3, {{0, 0}, {1, 2}, {4, 0}}, false, "<f2", 2, 2, {0, 2}},
    {3, {{0, 0}, {1, 0}, {4, 1}}, false, "<f4", 4, 2, {0, 2}},
    {3, {{0, 0}, {1, 0}, {4, 0}}, false, "<f4", 4, 2, {0, 2}},
    {3, {{0, 1}, {1, 1}, {4, 1}}, true, "<V2", 2, 2, {0, 2}},
    {3, {{0, 1}, {1, 1}, {4, 0}}, false, "<V2", 2, 2, {0, 2}},
    {3, {{0, 1}, {1, 2}, {4, 1}}, true, "<f2", 2, 2, {0, 2}},
    {3, {{0, 1}, {1, 2}, {4, 0}}, false, "<f2", 2, 2, {0, 2}},
    {3, {{0, 1}, {1, 0}, {4, 1}}, true, "<f4", 4, 2, {0, 2}},
    {3, {{0, 1}, {1, 0}, {4, 0}}, false, "<f4", 4, 2, {0, 2}},
    {3, {{0, 2}, {1, 1}, {4, 1}}, true, "<V2", 2, 2, {0, 2}},
    {3, {{0, 2}, {1, 1}, {4, 0}}, false, "<V2", 2, 2, {0, 2}},
    {3, {{0, 2}, {1, 2}, {4, 1}}, true, "<f2", 2, 2, {0, 2}},
    {3, {{0, 2}, {1, 2}, {4, 0}}, false, "<f2", 2, 2, {0, 2}},
    {3, {{0, 2}, {1, 0}, {4, 1}}, true, "<f4", 4, 2, {0, 2}},
    {3, {{0, 2}, {1, 0}, {4, 0}}, false, "<f4", 4, 2, {0, 2}},
    {3, {{0, 3}, {1, 1}, {4, 1}}, true, "<V2", 2, 2, {0, 2}},
    {3, {{0, 3}, {1, 1}, {4, 0}}, false, "<V2", 2, 2, {0, 2}},
    {3, {{0, 3}, {1, 2}, {4, 1}}, true, "<f2", 2, 2, {0, 2}},
    {3, {{0, 3}, {1, 2}, {4, 0}}, false, "<f2", 2, 2, {0, 2}},
    {3, {{0, 3}, {1, 0}, {4, 1}}, true, "<f4", 4, 2, {0, 2}},
    {3, {{0, 3}, {1, 0}, {4, 0}}, false, "<f4", 4, 2, {0, 2}},
    {3, {{0, 4}, {1, 1}, {4, 1}}, true, "<V2", 2, 2, {0, 2}},
    {3, {{0, 4}, {1, 1}, {4, 0}}, false, "<V2", 2, 2, {0, 2}},
    {3, {{0, 4}, {1, 2}, {4, 1}}, true, "<f2", 2, 2, {0, 2}},
    {3, {{0, 4}, {1, 2}, {4, 0}}, false, "<f2", 2, 2, {0, 2}},
    {3, {{0, 4}, {1, 0}, {4, 1}}, true, "<f4", 4, 2, {0, 2}},
    {3, {{0, 4}, {1, 0}, {4, 0}}, false, "<f4", 4, 2, {0, 2}},
};
inline constexpr contract::Table kCasesOf_z = contract::list(kCasesOf_z_);

inline constexpr contract::TensorCase kCasesOf_dz_[] = {
    {2, {{1, 1}, {4, 1}}, true, "<V2", 2, 2, {0, 2}},
    {2, {{1, 1}, {4, 0}}, false, "<V2", 2, 2, {0, 2}},
    {2, {{1, 2}, {4, 1}}, true, "<f2", 2, 2, {0, 2}},
    {2, {{1, 2}, {4, 0}}, false, "<f2", 2, 2, {0, 2}},
    {2, {{1, 0}, {4, 1}}, true, "<f4", 4, 2, {0, 2}},
    {2, {{1, 0}, {4, 0}}, false, "<f4", 4, 2, {0, 2}},
};
inline constexpr contract::Table kCasesOf_dz = contract::list(kCasesOf_dz_);

inline constexpr contract::TensorCase kCasesOf_dbias_[] = {
    {2, {{1, 1}, {5, 1}}, true, "<V2", 2, 1, {2}},
    {2, {{1, 1}, {5, 0}}, false, "<V2", 2, 1, {2}},
    {2, {{1, 2}, {5, 1}}, true, "<f2", 2, 1, {2}},
    {2, {{1, 2}, {5, 0}}, false, "<f2", 2, 1, {2}},
    {2, {{1, 0}, {5, 1}}, true, "<f4", 4, 1, {2}},
    {2, {{1, 0}, {5, 0}}, false, "<f4", 4, 1, {2}},
};
inline constexpr contract::Table kCasesOf_dbias = contract::list(kCasesOf_dbias_);

inline constexpr contract::TensorCase kCasesOf_dw_[] = {
    {4, {{1, 1}, {2, 1}, {6, 1}, {7, 0}}, true, "<V2", 2, 2, {1, 2}},
    {4, {{1, 1}, {2, 1}, {6, 1}, {7, 1}}, false, "<V2", 2, 2, {1, 2}},
    {4, {{1, 1}, {2, 1}, {6, 0}, {7, 0}}, false, "<V2", 2, 2, {1, 2}},
    {4, {{1, 1}, {2, 1}, {6, 0}, {7, 1}}, false, "<V2", 2, 2, {1, 2}},
    {4, {{1, 1}, {2, 0}, {6, 1}, {7, 0}}, true, "<V2", 2, 2, {2, 1}},
    {4, {{1, 1}, {2, 0}, {6, 1}, {7, 1}}, false, "<V2", 2, 2, {2, 1}},
    {4, {{1, 1}, {2, 0}, {6, 0}, {7, 0}}, false, "<V2", 2, 2, {2, 1}},
    {4, {{1, 1}, {2, 0}, {6, 0}, {7, 1}}, false, "<V2", 2, 2, {2, 1}},
    {4, {{1, 2}, {2, 1}, {6, 1}, {7, 0}}, true, "<f2", 2, 2, {1, 2}},
    {4, {{1, 2}, {2, 1}, {6, 1}, {7, 1}}, false, "<f2", 2, 2, {1, 2}},
    {4, {{1, 2}, {2, 1}, {6, 0}, {7, 0}}, false, "<f2", 2, 2, {1, 2}},
    {4, {{1, 2}, {2, 1}, {6, 0}, {7, 1}}, false, "<f2", 2, 2, {1, 2}},
    {4, {{1, 2}, {2, 0}, {6, 1}, {7, 0}}, true, "<f2", 2, 2, {2, 1}},
    {4, {{1, 2}, {2, 0}, {6, 1}, {7, 1}}, false, "<f2", 2, 2, {2, 1}},
    {4, {{1, 2}, {2, 0}, {6, 0}, {7, 0}}, false, "<f2", 2, 2, {2, 1}},
    {4, {{1, 2}, {2, 0}, {6, 0}, {7, 1}}, false, "<f2", 2, 2, {2, 1}},
    {4, {{1, 0}, {2, 1}, {6, 1}, {7, 0}}, true, "<f4", 4, 2, {1, 2}},
    {4, {{1, 0}, {2, 1}, {6, 1}, {7, 1}}, false, "<f4", 4, 2, {1, 2}},
    {4, {{1, 0}, {2, 1}, {6, 0}, {7, 0}}, false, "<f4", 4, 2, {1, 2}},
    {4, {{1, 0}, {2, 1}, {6, 0}, {7, 1}}, false, "<f4", 4, 2, {1, 2}},
    {4, {{1, 0}, {2, 0}, {6, 1}, {7, 0}}, true, "<f4", 4, 2, {2, 1}},
    {4, {{1, 0}, {2, 0}, {6, 1}, {7, 1}}, false, "<f4", 4, 2, {2, 1}},
    {4, {{1, 0}, {2, 0}, {6, 0}, {7, 0}}, false, "<f4", 4, 2, {2, 1}},
    {4, {{1, 0}, {2, 0}, {6, 0}, {7, 1}}, false, "<f4", 4, 2, {2, 1}},
};
inline constexpr contract::Table kCasesOf_dw = contract::list(kCasesOf_dw_);

inline constexpr contract::TensorCase kCasesOf_dw_total_[] = {
    {3, {{1, 1}, {2, 1}, {7, 0}}, false, "<V2", 2, 2, {1, 2}},
    {3, {{1, 1}, {2, 1}, {7, 1}}, true, "<V2", 2, 2, {1, 2}},
    {3, {{1, 1}, {2, 0}, {7, 0}}, false, "<V2", 2, 2, {2, 1}},
    {3, {{1, 1}, {2, 0}, {7, 1}}, true, "<V2", 2, 2, {2, 1}},
    {3, {{1, 2}, {2, 1}, {7, 0}}, false, "<f2", 2, 2, {1, 2}},
    {3, {{1, 2}, {2, 1}, {7, 1}}, true, "<f2", 2, 2, {1, 2}},
    {3, {{1, 2}, {2, 0}, {7, 0}}, false, "<f2", 2, 2, {2, 1}},
    {3, {{1, 2}, {2, 0}, {7, 1}}, true, "<f2", 2, 2, {2, 1}},
    {3, {{1, 0}, {2, 1}, {7, 0}}, false, "<f4", 4, 2, {1, 2}},
    {3, {{1, 0}, {2, 1}, {7, 1}}, true, "<f4", 4, 2, {1, 2}},
    {3, {{1, 0}, {2, 0}, {7, 0}}, false, "<f4", 4, 2, {2, 1}},
    {3, {{1, 0}, {2, 0}, {7, 1}}, true, "<f4", 4, 2, {2, 1}},
};
inline constexpr contract::Table kCasesOf_dw_total = contract::list(kCasesOf_dw_total_);

inline constexpr contract::TensorField kTensors_[] = {
    {"dy", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, dy), {offsetof(Params, lddy), contract::kNoField}, kCasesOf_dy},
    {"w", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, w), {offsetof(Params, ldw), contract::kNoField}, kCasesOf_w},
    {"x", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, x), {offsetof(Params, ldx), contract::kNoField}, kCasesOf_x},
    {"z", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, z), {offsetof(Params, ldz), contract::kNoField}, kCasesOf_z},
    {"dz", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, dz), {offsetof(Params, lddz), contract::kNoField}, kCasesOf_dz},
    {"dbias", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, dbias), {contract::kNoField}, kCasesOf_dbias},
    {"dw", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, dw), {offsetof(Params, lddw), contract::kNoField}, kCasesOf_dw},
    {"dw_total", contract::TensorField::kInout, contract::TensorField::kRows, offsetof(Params, dw_total), {offsetof(Params, lddw_total), contract::kNoField}, kCasesOf_dw_total},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"gemm_backward", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int rows, unroll, tile, bm, bn, bk, wm, wn, tm, tn, stages, slices, group, minblocks, splits, slabs, clusterm, clustern, pingpong, dwbm, dwbn, dwclusterm, dwclustern, dwpingpong;
};

inline constexpr Tunables kTunables = {AICF_ROWS, AICF_UNROLL, AICF_TILE, AICF_BM, AICF_BN, AICF_BK, AICF_WM, AICF_WN, AICF_TM, AICF_TN, AICF_STAGES, AICF_SLICES, AICF_GROUP, AICF_MINBLOCKS, AICF_SPLITS, AICF_SLABS, AICF_CLUSTERM, AICF_CLUSTERN, AICF_PINGPONG, AICF_DWBM, AICF_DWBN, AICF_DWCLUSTERM, AICF_DWCLUSTERN, AICF_DWPINGPONG};
#endif

}  // namespace aicf::gemm_backward

// Generated from optimizer/op.py by the build; change it there. The contract of op optimizer as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "optimizer/params.h"

namespace aicf::optimizer {

using Params = OptimizerParams;

inline constexpr contract::SizeField kSizes_[] = {
    {"N", offsetof(Params, n), -1},
};
inline constexpr contract::Table kSizes = contract::list(kSizes_);

inline constexpr contract::Choice kChoicesOf_dtype_[] = {
    {"float32", 0},
    {"bfloat16", 1},
    {"float16", 2},
};
inline constexpr contract::Table kChoicesOf_dtype = contract::list(kChoicesOf_dtype_);

inline constexpr contract::Choice kChoicesOf_with_copy_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_copy = contract::list(kChoicesOf_with_copy_);

inline constexpr contract::Choice kChoicesOf_decoupled_[] = {
    {"True", 1},
    {"False", 0},
};
inline constexpr contract::Table kChoicesOf_decoupled = contract::list(kChoicesOf_decoupled_);

inline constexpr contract::Choice kChoicesOf_advances_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_advances = contract::list(kChoicesOf_advances_);

inline constexpr contract::Choice kChoicesOf_guarded_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_guarded = contract::list(kChoicesOf_guarded_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 1, offsetof(Params, dtype), kChoicesOf_dtype},
    {"with_copy", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 6, 0, kChoicesOf_with_copy},
    {"decoupled", contract::AttributeField::kSwitch, contract::AttributeField::kPassed, 0, offsetof(Params, decoupled), kChoicesOf_decoupled},
    {"advances", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 7, 0, kChoicesOf_advances},
    {"guarded", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 8, 0, kChoicesOf_guarded},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<double> kChoicesOf_beta1 = {nullptr, 0};

inline constexpr contract::Table<double> kChoicesOf_beta2 = {nullptr, 0};

inline constexpr contract::Table<double> kChoicesOf_eps = {nullptr, 0};

inline constexpr contract::Table<double> kChoicesOf_weight_decay = {nullptr, 0};

inline constexpr contract::ScalarField kScalars_[] = {
    {"beta1", contract::ScalarField::kDouble, offsetof(Params, beta1), 0.0, 0.999, kChoicesOf_beta1},
    {"beta2", contract::ScalarField::kDouble, offsetof(Params, beta2), 0.5, 0.9999, kChoicesOf_beta2},
    {"eps", contract::ScalarField::kDouble, offsetof(Params, eps), 1e-12, 0.01, kChoicesOf_eps},
    {"weight_decay", contract::ScalarField::kDouble, offsetof(Params, weight_decay), 0.0, 1.0, kChoicesOf_weight_decay},
};
inline constexpr contract::Table kScalars = contract::list(kScalars_);

inline constexpr contract::TensorCase kCasesOf_p_[] = {
    {0, {}, true, "<f4", 4, 1, {0}},
};
inline constexpr contract::Table kCasesOf_p = contract::list(kCasesOf_p_);

inline constexpr contract::TensorCase kCasesOf_grad_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 1, {0}},
    {1, {{0, 1}}, true, "<V2", 2, 1, {0}},
    {1, {{0, 2}}, true, "<f2", 2, 1, {0}},
};
inline constexpr contract::Table kCasesOf_grad = contract::list(kCasesOf_grad_);

inline constexpr contract::TensorCase kCasesOf_m_[] = {
    {0, {}, true, "<f4", 4, 1, {0}},
};
inline constexpr contract::Table kCasesOf_m = contract::list(kCasesOf_m_);

inline constexpr contract::TensorCase kCasesOf_v_[] = {
    {0, {}, true, "<f4", 4, 1, {0}},
};
inline constexpr contract::Table kCasesOf_v = contract::list(kCasesOf_v_);

inline constexpr contract::TensorCase kCasesOf_step_[] = {
    {1, {{3, 0}}, true, "<i8", 8, 0, {}},
    {1, {{3, 1}}, false, "<i8", 8, 0, {}},
};
inline constexpr contract::Table kCasesOf_step = contract::list(kCasesOf_step_);

inline constexpr contract::TensorCase kCasesOf_lr_[] = {
    {0, {}, true, "<f4", 4, 0, {}},
};
inline constexpr contract::Table kCasesOf_lr = contract::list(kCasesOf_lr_);

inline constexpr contract::TensorCase kCasesOf_copy_[] = {
    {2, {{0, 0}, {1, 0}}, false, "<f4", 4, 1, {0}},
    {2, {{0, 0}, {1, 1}}, true, "<f4", 4, 1, {0}},
    {2, {{0, 1}, {1, 0}}, false, "<V2", 2, 1, {0}},
    {2, {{0, 1}, {1, 1}}, true, "<V2", 2, 1, {0}},
    {2, {{0, 2}, {1, 0}}, false, "<f2", 2, 1, {0}},
    {2, {{0, 2}, {1, 1}}, true, "<f2", 2, 1, {0}},
};
inline constexpr contract::Table kCasesOf_copy = contract::list(kCasesOf_copy_);

inline constexpr contract::TensorCase kCasesOf_steps_done_[] = {
    {1, {{3, 0}}, false, "<i8", 8, 0, {}},
    {1, {{3, 1}}, true, "<i8", 8, 0, {}},
};
inline constexpr contract::Table kCasesOf_steps_done = contract::list(kCasesOf_steps_done_);

inline constexpr contract::TensorCase kCasesOf_factor_[] = {
    {1, {{4, 0}}, false, "<f4", 4, 0, {}},
    {1, {{4, 1}}, true, "<f4", 4, 0, {}},
};
inline constexpr contract::Table kCasesOf_factor = contract::list(kCasesOf_factor_);

inline constexpr contract::TensorField kTensors_[] = {
    {"p", contract::TensorField::kInout, contract::TensorField::kPacked, offsetof(Params, p), {contract::kNoField}, kCasesOf_p},
    {"grad", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, grad), {contract::kNoField}, kCasesOf_grad},
    {"m", contract::TensorField::kInout, contract::TensorField::kPacked, offsetof(Params, m), {contract::kNoField}, kCasesOf_m},
    {"v", contract::TensorField::kInout, contract::TensorField::kPacked, offsetof(Params, v), {contract::kNoField}, kCasesOf_v},
    {"step", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, step), {}, kCasesOf_step},
    {"lr", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, lr), {}, kCasesOf_lr},
    {"copy", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, copy), {contract::kNoField}, kCasesOf_copy},
    {"steps_done", contract::TensorField::kInout, contract::TensorField::kPacked, offsetof(Params, steps_done), {}, kCasesOf_steps_done},
    {"factor", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, factor), {}, kCasesOf_factor},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"optimizer", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int threads, chunks;
};

inline constexpr Tunables kTunables = {AICF_THREADS, AICF_CHUNKS};
#endif

}  // namespace aicf::optimizer

// Generated from cross_entropy/op.py by the build; change it there. The contract of op cross_entropy as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "cross_entropy/params.h"

namespace aicf::cross_entropy {

using Params = CrossEntropyParams;

inline constexpr contract::SizeField kSizes_[] = {
    {"rows", offsetof(Params, rows), -1},
    {"classes", offsetof(Params, classes), -1},
};
inline constexpr contract::Table kSizes = contract::list(kSizes_);

inline constexpr contract::Choice kChoicesOf_dtype_[] = {
    {"float32", 0},
    {"bfloat16", 1},
    {"float16", 2},
};
inline constexpr contract::Table kChoicesOf_dtype = contract::list(kChoicesOf_dtype_);

inline constexpr contract::Choice kChoicesOf_with_gradient_[] = {
    {"True", 1},
    {"False", 0},
};
inline constexpr contract::Table kChoicesOf_with_gradient = contract::list(kChoicesOf_with_gradient_);

inline constexpr contract::Choice kChoicesOf_reduction_[] = {
    {"mean", 0},
    {"sum", 1},
};
inline constexpr contract::Table kChoicesOf_reduction = contract::list(kChoicesOf_reduction_);

inline constexpr contract::Choice kChoicesOf_with_dbias_[] = {
    {"False", 0},
    {"True", 1},
};
inline constexpr contract::Table kChoicesOf_with_dbias = contract::list(kChoicesOf_with_dbias_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"with_gradient", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 3, 0, kChoicesOf_with_gradient},
    {"reduction", contract::AttributeField::kName, contract::AttributeField::kPassed, 0, offsetof(Params, reduction), kChoicesOf_reduction},
    {"with_dbias", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 4, 0, kChoicesOf_with_dbias},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<double> kChoicesOf_label_smoothing = {nullptr, 0};

inline constexpr double kChoicesOf_ignore_index_[] = {
    -100.0,
    0.0,
    1.0,
};
inline constexpr contract::Table kChoicesOf_ignore_index = contract::list(kChoicesOf_ignore_index_);

inline constexpr contract::ScalarField kScalars_[] = {
    {"label_smoothing", contract::ScalarField::kFloat, offsetof(Params, label_smoothing), 0.0, 0.5, kChoicesOf_label_smoothing},
    {"ignore_index", contract::ScalarField::kInt64, offsetof(Params, ignore_index), -100, 1, kChoicesOf_ignore_index},
};
inline constexpr contract::Table kScalars = contract::list(kScalars_);

inline constexpr contract::TensorCase kCasesOf_logits_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 1}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 1}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_logits = contract::list(kCasesOf_logits_);

inline constexpr contract::TensorCase kCasesOf_labels_[] = {
    {0, {}, true, "<i8", 8, 1, {0}},
};
inline constexpr contract::Table kCasesOf_labels = contract::list(kCasesOf_labels_);

inline constexpr contract::TensorCase kCasesOf_loss_[] = {
    {0, {}, true, "<f4", 4, 0, {}},
};
inline constexpr contract::Table kCasesOf_loss = contract::list(kCasesOf_loss_);

inline constexpr contract::TensorCase kCasesOf_dlogits_[] = {
    {2, {{0, 0}, {1, 1}}, true, "<f4", 4, 2, {0, 1}},
    {2, {{0, 0}, {1, 0}}, false, "<f4", 4, 2, {0, 1}},
    {2, {{0, 1}, {1, 1}}, true, "<V2", 2, 2, {0, 1}},
    {2, {{0, 1}, {1, 0}}, false, "<V2", 2, 2, {0, 1}},
    {2, {{0, 2}, {1, 1}}, true, "<f2", 2, 2, {0, 1}},
    {2, {{0, 2}, {1, 0}}, false, "<f2", 2, 2, {0, 1}},
};
inline constexpr contract::Table kCasesOf_dlogits = contract::list(kCasesOf_dlogits_);

inline constexpr contract::TensorCase kCasesOf_dbias_[] = {
    {2, {{0, 0}, {3, 0}}, false, "<f4", 4, 1, {1}},
    {2, {{0, 0}, {3, 1}}, true, "<f4", 4, 1, {1}},
    {2, {{0, 1}, {3, 0}}, false, "<V2", 2, 1, {1}},
    {2, {{0, 1}, {3, 1}}, true, "<V2", 2, 1, {1}},
    {2, {{0, 2}, {3, 0}}, false, "<f2", 2, 1, {1}},
    {2, {{0, 2}, {3, 1}}, true, "<f2", 2, 1, {1}},
};
inline constexpr contract::Table kCasesOf_dbias = contract::list(kCasesOf_dbias_);

inline constexpr contract::TensorField kTensors_[] = {
    {"logits", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, logits), {offsetof(Params, ldlogits), contract::kNoField}, kCasesOf_logits},
    {"labels", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, labels), {contract::kNoField}, kCasesOf_labels},
    {"loss", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, loss), {}, kCasesOf_loss},
    {"dlogits", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, dlogits), {offsetof(Params, lddlogits), contract::kNoField}, kCasesOf_dlogits},
    {"dbias", contract::TensorField::kOutput, contract::TensorField::kPacked, offsetof(Params, dbias), {contract::kNoField}, kCasesOf_dbias},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"cross_entropy", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int threads, rows, elems;
};

inline constexpr Tunables kTunables = {AICF_THREADS, AICF_ROWS, AICF_ELEMS};
#endif

}  // namespace aicf::cross_entropy

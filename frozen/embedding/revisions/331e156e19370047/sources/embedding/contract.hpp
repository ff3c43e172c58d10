// Generated from embedding/op.py by the build; change it there. The contract of op embedding as data.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/contract.hpp"
#include "embedding/params.h"

namespace aicf::embedding {

using Params = EmbeddingParams;

inline constexpr contract::SizeField kSizes_[] = {
    {"count", offsetof(Params, count), -1},
    {"vocabulary", offsetof(Params, vocabulary), -1},
    {"width", offsetof(Params, width), -1},
};
inline constexpr contract::Table kSizes = contract::list(kSizes_);

inline constexpr contract::Choice kChoicesOf_dtype_[] = {
    {"float32", 0},
    {"bfloat16", 1},
    {"float16", 2},
};
inline constexpr contract::Table kChoicesOf_dtype = contract::list(kChoicesOf_dtype_);

inline constexpr contract::Choice kChoicesOf_index_dtype_[] = {
    {"int64", 8},
    {"int32", 7},
};
inline constexpr contract::Table kChoicesOf_index_dtype = contract::list(kChoicesOf_index_dtype_);

inline constexpr contract::Choice kChoicesOf_with_status_[] = {
    {"True", 1},
    {"False", 0},
};
inline constexpr contract::Table kChoicesOf_with_status = contract::list(kChoicesOf_with_status_);

inline constexpr contract::AttributeField kAttributes_[] = {
    {"dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 0, offsetof(Params, dtype), kChoicesOf_dtype},
    {"index_dtype", contract::AttributeField::kName, contract::AttributeField::kDtypeOf, 1, offsetof(Params, index_dtype), kChoicesOf_index_dtype},
    {"with_status", contract::AttributeField::kSwitch, contract::AttributeField::kPresent, 3, 0, kChoicesOf_with_status},
};
inline constexpr contract::Table kAttributes = contract::list(kAttributes_);

inline constexpr contract::Table<contract::ScalarField> kScalars = {nullptr, 0};

inline constexpr contract::TensorCase kCasesOf_table_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {1, 2}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {1, 2}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {1, 2}},
};
inline constexpr contract::Table kCasesOf_table = contract::list(kCasesOf_table_);

inline constexpr contract::TensorCase kCasesOf_indices_[] = {
    {1, {{1, 8}}, true, "<i8", 8, 1, {0}},
    {1, {{1, 7}}, true, "<i4", 4, 1, {0}},
};
inline constexpr contract::Table kCasesOf_indices = contract::list(kCasesOf_indices_);

inline constexpr contract::TensorCase kCasesOf_y_[] = {
    {1, {{0, 0}}, true, "<f4", 4, 2, {0, 2}},
    {1, {{0, 1}}, true, "<V2", 2, 2, {0, 2}},
    {1, {{0, 2}}, true, "<f2", 2, 2, {0, 2}},
};
inline constexpr contract::Table kCasesOf_y = contract::list(kCasesOf_y_);

inline constexpr contract::TensorCase kCasesOf_status_[] = {
    {1, {{2, 1}}, true, "<i4", 4, 0, {}},
    {1, {{2, 0}}, false, "<i4", 4, 0, {}},
};
inline constexpr contract::Table kCasesOf_status = contract::list(kCasesOf_status_);

inline constexpr contract::TensorField kTensors_[] = {
    {"table", contract::TensorField::kInput, contract::TensorField::kRows, offsetof(Params, table), {offsetof(Params, ldtable), contract::kNoField}, kCasesOf_table},
    {"indices", contract::TensorField::kInput, contract::TensorField::kPacked, offsetof(Params, indices), {contract::kNoField}, kCasesOf_indices},
    {"y", contract::TensorField::kOutput, contract::TensorField::kRows, offsetof(Params, y), {offsetof(Params, ldy), contract::kNoField}, kCasesOf_y},
    {"status", contract::TensorField::kInout, contract::TensorField::kPacked, offsetof(Params, status), {}, kCasesOf_status},
};
inline constexpr contract::Table kTensors = contract::list(kTensors_);

inline constexpr contract::Description kContract = {"embedding", kSizes, kAttributes, kScalars, kTensors, nullptr};

#ifdef AICF_VARIANT
// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.
struct Tunables {
    int threads, rows, items;
};

inline constexpr Tunables kTunables = {AICF_THREADS, AICF_ROWS, AICF_ITEMS};
#endif

}  // namespace aicf::embedding

// What op.py says of a call, as data that the build generates; and the checks of parameters that follow from it.
//
// A Params struct is read through the offsets of its fields, so that one set of checks, and one binding, serve all ops.
#pragma once

#include <cinttypes>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/overlap.hpp"
#include "common/status.hpp"

namespace aicf {

// Quotient and remainder of a division that rounds down, as in Python. A divisor of 0 gives 0, which is no size.
inline constexpr std::int64_t divide_down(std::int64_t a, std::int64_t b) {
    if (b == 0) return 0;
    return a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}
inline constexpr std::int64_t find_modulus(std::int64_t a, std::int64_t b) { return a - divide_down(a, b) * b; }
inline constexpr std::int64_t find_min(std::int64_t a, std::int64_t b) { return a < b ? a : b; }
inline constexpr std::int64_t find_max(std::int64_t a, std::int64_t b) { return a < b ? b : a; }

// What a launcher that needs no workspace leaves unsaid.
template <class Params>
std::size_t count_workspace_bytes(const Params&) {
    return 0;
}

namespace contract {

inline constexpr std::size_t kNoField = SIZE_MAX;
inline constexpr int kMaxConditions = 8;
inline constexpr int kMaxAttributes = 32;
inline constexpr int kMaxTensors = 64;

template <class T>
struct Table {
    const T* rows;
    int count;

    constexpr const T* begin() const { return rows; }
    constexpr const T* end() const { return rows + count; }
    constexpr const T& operator[](int i) const { return rows[i]; }
};

template <class T, std::size_t n>
constexpr Table<T> list(const T (&rows)[n]) {
    return {rows, static_cast<int>(n)};
}

struct SizeField {
    const char* name;
    std::size_t offset;  // int64_t
    int equal;           // the size that it is where no tensor tells it, by the op's ties; -1: none
};

struct Choice {
    const char* name;
    std::int32_t code;
};

struct AttributeField {
    enum Kind { kSwitch, kNumber, kName };
    // Who tells it: the caller, whether a tensor is there, or a tensor's dtype.
    enum Source { kPassed, kPresent, kDtypeOf };

    const char* name;
    Kind kind;
    Source source;
    int tensor;          // of kPresent and kDtypeOf
    std::size_t offset;  // int32_t; none for kPresent
    Table<Choice> choices;
};

struct ScalarField {
    enum Kind { kFloat, kDouble, kInt32, kInt64 };

    const char* name;
    Kind kind;
    std::size_t offset;
    double low, high;
    Table<double> choices;  // none: all from low to high
};

// A tensor for certain values of attributes: dims are numbers of sizes, or -n for n elements.
struct TensorCase {
    struct When {
        int attribute;
        std::int32_t code;
    };

    int num_when;
    When when[kMaxConditions];
    bool is_present;
    const char* typestr;  // as __cuda_array_interface__ has it
    int item_bytes;
    int rank;
    int dims[kMaxRank];
};

struct TensorField {
    enum Role { kInput, kOutput, kInout };
    enum Strides { kPacked, kRows, kOuter, kAny };

    const char* name;
    Role role;
    Strides strides;
    std::size_t offset;                 // of the pointer
    std::size_t stride_fields[kMaxRank];  // int64_t; kNoField where a stride follows from the others
    Table<TensorCase> cases;

    constexpr bool is_written() const { return role != kInput; }
};

struct Description {
    const char* op;
    Table<SizeField> sizes;
    Table<AttributeField> attributes;
    Table<ScalarField> scalars;
    Table<TensorField> tensors;
    AicfStatus (*check_derived)(const void* params);  // null: no size follows from others
};

template <class T>
T read_field(const void* params, std::size_t offset) {
    T value;
    std::memcpy(&value, static_cast<const char*>(params) + offset, sizeof value);
    return value;
}

inline long long as_long(std::int64_t value) { return static_cast<long long>(value); }

inline double read_scalar(const void* params, const ScalarField& field) {
    switch (field.kind) {
        case ScalarField::kFloat: return read_field<float>(params, field.offset);
        case ScalarField::kDouble: return read_field<double>(params, field.offset);
        case ScalarField::kInt32: return read_field<std::int32_t>(params, field.offset);
        default: return static_cast<double>(read_field<std::int64_t>(params, field.offset));
    }
}

inline AicfStatus check_derived_size(const char* name, std::int64_t size, std::int64_t wanted, const char* formula) {
    if (size == wanted) return make_ok();
    return make_invalid("%s = %lld: must be %s = %lld", name, as_long(size), formula, as_long(wanted));
}

inline AicfStatus check_sizes(const Description& op, const void* params) {
    for (const auto& size : op.sizes) {
        const auto value = read_field<std::int64_t>(params, size.offset);
        if (value < 1) return make_invalid("%s = %lld: must be at least 1", size.name, as_long(value));
    }
    return make_ok();
}

// Fills `codes`, one per attribute.
inline AicfStatus read_attributes(const Description& op, const void* params, std::int32_t* codes) {
    for (int i = 0; i < op.attributes.count; ++i) {
        const auto& attribute = op.attributes[i];
        if (attribute.source == AttributeField::kPresent) {
            codes[i] = read_field<const void*>(params, op.tensors[attribute.tensor].offset) != nullptr;
            continue;
        }
        codes[i] = read_field<std::int32_t>(params, attribute.offset);
        bool is_known = false;
        for (const auto& choice : attribute.choices) is_known = is_known || choice.code == codes[i];
        if (!is_known) return make_invalid("%s = %d: is not one of its choices", attribute.name, static_cast<int>(codes[i]));
    }
    return make_ok();
}

inline AicfStatus check_scalars(const Description& op, const void* params) {
    for (const auto& scalar : op.scalars) {
        const double value = read_scalar(params, scalar);
        // A NaN is in no range.
        if (!(value >= scalar.low && value <= scalar.high)) {
            return make_invalid("%s = %g: must be from %g to %g", scalar.name, value, scalar.low, scalar.high);
        }
        bool is_known = scalar.choices.count == 0;
        for (const double choice : scalar.choices) {
            is_known = is_known || value == (scalar.kind == ScalarField::kFloat ? static_cast<double>(static_cast<float>(choice)) : choice);
        }
        if (!is_known) return make_invalid("%s = %g: is not one of its choices", scalar.name, value);
    }
    return make_ok();
}

inline const TensorCase* find_case(const TensorField& tensor, const std::int32_t* codes) {
    for (const auto& each : tensor.cases) {
        bool fits = true;
        for (int i = 0; i < each.num_when; ++i) fits = fits && codes[each.when[i].attribute] == each.when[i].code;
        if (fits) return &each;
    }
    return nullptr;
}

// Strides of a tensor whose shape is known: those that have no field follow from the dimension inside them.
inline void read_strides(const TensorField& tensor, const void* params, StridedView& view) {
    std::int64_t step = 1;
    for (int i = view.rank; i-- > 0;) {
        view.strides[i] = tensor.stride_fields[i] == kNoField ? step : read_field<std::int64_t>(params, tensor.stride_fields[i]);
        step = view.strides[i] * view.shape[i];
    }
}

// -1 where no two elements share a place, else the dimension in which they do.
inline int find_folded_dimension(const StridedView& view) {
    bool is_done[kMaxRank] = {};
    std::int64_t extent = 1;
    for (int turn = 0; turn < view.rank; ++turn) {
        int next = -1;
        for (int i = 0; i < view.rank; ++i) {
            if (!is_done[i] && view.shape[i] > 1 && (next < 0 || view.strides[i] < view.strides[next])) next = i;
        }
        if (next < 0) break;
        if (view.strides[next] < extent) return next;
        is_done[next] = true;
        extent = view.strides[next] * (view.shape[next] - 1) + extent;
    }
    return -1;
}

inline AicfStatus check_strides(const TensorField& tensor, const StridedView& view) {
    if (tensor.strides == TensorField::kRows && view.rank > 1) {
        const int row = view.rank - 2;
        if (view.strides[row] >= view.shape[view.rank - 1]) return make_ok();
        return make_invalid("%s: row stride %lld is smaller than a row of %lld elements", tensor.name, as_long(view.strides[row]),
                            as_long(view.shape[view.rank - 1]));
    }
    const int folded = find_folded_dimension(view);
    if (folded < 0) return make_ok();
    return make_invalid("%s: stride %lld of dimension %d lays elements over each other", tensor.name, as_long(view.strides[folded]),
                        folded);
}

inline AicfStatus read_tensor(const Description& op, const TensorField& tensor, const void* params, const std::int32_t* codes,
                              StridedView& view, bool& is_present) {
    const TensorCase* found = find_case(tensor, codes);
    const auto* address = read_field<const void*>(params, tensor.offset);
    is_present = found != nullptr && found->is_present;
    if (!is_present) {
        return address == nullptr ? make_ok() : make_invalid("%s: must be null, since this problem has no such tensor", tensor.name);
    }
    if (address == nullptr) return make_invalid("%s: null pointer", tensor.name);
    view.address = reinterpret_cast<std::uintptr_t>(address);
    view.item_bytes = found->item_bytes;
    view.rank = found->rank;
    for (int i = 0; i < view.rank; ++i) {
        const int dim = found->dims[i];
        view.shape[i] = dim < 0 ? -dim : read_field<std::int64_t>(params, op.sizes[dim].offset);
    }
    if (view.address % static_cast<std::uint64_t>(view.item_bytes) != 0) {
        return make_invalid("%s: address %p is not a multiple of its %d-byte elements", tensor.name, address, found->item_bytes);
    }
    read_strides(tensor, params, view);
    return check_strides(tensor, view);
}

// What the conditions of a domain ask of. Words are those of common/domain.hpp.
struct Facts {
    const Description& op;
    const void* params;
    const std::int32_t* codes;
    const StridedView* views;
    const bool* is_present;
};

inline AicfStatus check_count(const Facts& facts, const std::int64_t* words) {
    const std::int64_t least = words[0], most = words[1], multiple = words[2];
    const int num_sizes = static_cast<int>(words[3]);
    __int128 count = 1;
    char name[96] = "";
    for (int i = 0; i < num_sizes; ++i) {
        const auto& size = facts.op.sizes[static_cast<int>(words[4 + 2 * i])];
        const std::int64_t step = words[5 + 2 * i], value = read_field<std::int64_t>(facts.params, size.offset);
        count *= value / step + (value % step != 0);
        if (count > INT64_MAX) count = INT64_MAX;
        const std::size_t used = std::strlen(name);
        const char* const times = i > 0 ? " * " : "";
        if (step == 1) std::snprintf(name + used, sizeof name - used, "%s%s", times, size.name);
        if (step != 1) std::snprintf(name + used, sizeof name - used, "%sceil(%s / %lld)", times, size.name, as_long(step));
    }
    const auto found = static_cast<std::int64_t>(count);
    const char* const what = "%s = %lld: must %s %lld for this kernel";
    if (found < least) return make_unsupported(what, name, as_long(found), "be at least", as_long(least));
    if (most > 0 && found > most) return make_unsupported(what, name, as_long(found), "not exceed", as_long(most));
    if (found % multiple != 0) return make_unsupported(what, name, as_long(found), "be a multiple of", as_long(multiple));
    return make_ok();
}

inline AicfStatus check_choice(const Facts& facts, const std::int64_t* words) {
    const auto& attribute = facts.op.attributes[static_cast<int>(words[0])];
    const std::int32_t code = facts.codes[words[0]];
    for (int i = 0; i < words[1]; ++i) {
        if (words[2 + i] == code) return make_ok();
    }
    for (const auto& choice : attribute.choices) {
        if (choice.code == code) return make_unsupported("%s = %s: is not served by this kernel", attribute.name, choice.name);
    }
    return make_unsupported("%s: is not served by this kernel", attribute.name);
}

inline AicfStatus check_rows(const Facts& facts, const std::int64_t* words) {
    const auto& tensor = facts.op.tensors[static_cast<int>(words[0])];
    const auto& view = facts.views[words[0]];
    if (!facts.is_present[words[0]]) return make_ok();
    const std::int64_t address_bytes = words[1], multiple = words[2], most = words[3];
    const bool is_strided = tensor.strides == TensorField::kOuter || tensor.strides == TensorField::kAny;
    const int first = is_strided ? 0 : view.rank - 2;
    bool fits = view.address % static_cast<std::uint64_t>(address_bytes) == 0;
    std::int64_t stride = first >= 0 && view.rank > 1 ? view.strides[first] : 0;
    for (int i = first < 0 ? 0 : first; i < view.rank - 1; ++i) {
        if (view.strides[i] % multiple == 0 && (most == 0 || view.strides[i] <= most)) continue;
        fits = false;
        stride = view.strides[i];
    }
    if (fits) return make_ok();
    char limit[48] = "";
    if (most > 0) std::snprintf(limit, sizeof limit, ", the latter at most %lld", as_long(most));
    return make_unsupported("%s: address 0x%" PRIx64
                            " and row stride %lld must be multiples of %lld bytes and %lld elements%s for this kernel",
                            tensor.name, view.address, as_long(stride), as_long(address_bytes), as_long(multiple), limit);
}

inline AicfStatus check_domain(const Facts& facts, const std::int64_t* words, int count) {
    int i = 0;
    while (i < count) {
        const std::int64_t kind = words[i];
        const std::int64_t* const rest = words + i + 1;
        const AicfStatus status = kind == 'C'   ? check_count(facts, rest)
                                  : kind == 'A' ? check_choice(facts, rest)
                                                : check_rows(facts, rest);
        if (!is_ok(status)) return status;
        i += 1 + static_cast<int>(kind == 'C' ? 4 + 2 * rest[3] : kind == 'A' ? 2 + rest[1] : 4);
    }
    return make_ok();
}

// Kernels read and write in any order: what is written lies apart from all else.
inline AicfStatus check_overlap(const Description& op, const StridedView* views, const bool* is_present) {
    for (int i = 0; i < op.tensors.count; ++i) {
        if (!is_present[i] || !op.tensors[i].is_written()) continue;
        for (int j = 0; j < op.tensors.count; ++j) {
            // Of two written ones the later is named.
            if (j == i || !is_present[j] || (j > i && op.tensors[j].is_written())) continue;
            if (may_share_memory(views[i], views[j])) {
                return make_invalid("%s: expected memory of its own, got an array that overlaps %s", op.tensors[i].name,
                                    op.tensors[j].name);
            }
        }
    }
    return make_ok();
}

// AICF_INVALID for parameters that contradict themselves, AICF_UNSUPPORTED for what the domain does not hold.
inline AicfStatus check_params(const Description& op, const std::int64_t* domain, int num_words, const void* params) {
    std::int32_t codes[kMaxAttributes] = {};
    StridedView views[kMaxTensors];
    bool is_present[kMaxTensors] = {};
    AICF_RETURN_IF_NOT_OK(check_sizes(op, params));
    AICF_RETURN_IF_NOT_OK(read_attributes(op, params, codes));
    if (op.check_derived != nullptr) AICF_RETURN_IF_NOT_OK(op.check_derived(params));
    AICF_RETURN_IF_NOT_OK(check_scalars(op, params));
    for (int i = 0; i < op.tensors.count; ++i) {
        AICF_RETURN_IF_NOT_OK(read_tensor(op, op.tensors[i], params, codes, views[i], is_present[i]));
    }
    AICF_RETURN_IF_NOT_OK(check_overlap(op, views, is_present));
    return check_domain({op, params, codes, views, is_present}, domain, num_words);
}

// What a launch needs beside good parameters: the workspace that it asks for.
inline AicfStatus check_workspace(const void* workspace, std::size_t needed_bytes) {
    if (workspace != nullptr || needed_bytes == 0) return make_ok();
    return make_invalid("workspace: null pointer, where %zu bytes are needed", needed_bytes);
}

}  // namespace contract
}  // namespace aicf

// A plan: the kernel's launch function, its Params with everything filled in but addresses, and how outputs are made.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "arrays.h"

namespace aicf::calls {

// The kernels' ABI, as in common/status.h.
struct AicfStatus {
    std::int32_t code;
    std::int32_t cuda_code;
    char reason[248];
};
using Launch = AicfStatus (*)(const void* params, void* workspace, void* stream);

constexpr std::size_t kMaxInputs = 8;
constexpr std::size_t kMaxAllocations = 8;
constexpr std::size_t kMaxParamsBytes = 512;
constexpr std::size_t kMaxPlans = 4096;

// One array that a call makes: an output, or the workspace (offset -1). `arguments` go to `function`, behind the first input if
// `with_first`. `kind` is there where PyTorch's C interface can make it.
struct Allocation {
    Py_ssize_t offset = -1;
    PyObject* function = nullptr;
    bool with_first = false;
    std::vector<PyObject*> arguments;
    std::optional<Tensors::Kind> kind;
};

class Plan {
public:
    Launch launch = nullptr;  // null: such calls are referred
    std::string params;
    std::vector<Py_ssize_t> offsets;  // of the inputs' addresses in params, -1: absent
    std::vector<Allocation> allocations;
    int num_outputs = 0;
    bool has_kinds = false;  // all allocations have one

    Plan() = default;
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;
    ~Plan() {
        for (Allocation& each : allocations) {
            Py_XDECREF(each.function);
            for (PyObject* argument : each.arguments) Py_XDECREF(argument);
        }
    }
};

// Another thread may drop all plans while one is in use: a launch lets go of the GIL.
using SharedPlan = std::shared_ptr<Plan>;

// Reads (offset, shape, dtype, function, with_first, arguments) for arrays beside one on `device`.
inline bool read_allocation(PyObject* row, const ArrayType& type, DLDevice device, Allocation* made) {
    PyObject* shape = nullptr;
    PyObject* arguments = nullptr;
    const char* dtype = nullptr;
    int with_first = 0;
    PyObject* function = nullptr;
    if (!PyArg_ParseTuple(row, "nO!sOpO!", &made->offset, &PyTuple_Type, &shape, &dtype, &function, &with_first, &PyTuple_Type, &arguments))
        return false;
    made->with_first = with_first != 0;
    made->function = Py_NewRef(function);
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(arguments); ++j) made->arguments.push_back(Py_NewRef(PyTuple_GET_ITEM(arguments, j)));
    std::vector<std::int64_t> sizes;
    for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(shape); ++j) sizes.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(shape, j)));
    if (PyErr_Occurred() != nullptr) return false;
    if (type.tensors) made->kind = type.tensors->describe(std::move(sizes), dtype, device);
    return true;
}

// Reads what resolve returned: None, or (launch, params, offsets, allocations). False with a Python error set.
inline bool read_plan(PyObject* row, const ArrayType& type, DLDevice device, std::size_t num_inputs, Plan* plan) {
    if (row == Py_None) return true;
    PyObject* launch = nullptr;
    PyObject* offsets = nullptr;
    PyObject* allocations = nullptr;
    const char* params = nullptr;
    Py_ssize_t size = 0;
    if (!PyArg_ParseTuple(row, "O!y#O!O!", &PyLong_Type, &launch, &params, &size, &PyTuple_Type, &offsets, &PyTuple_Type, &allocations))
        return false;
    plan->launch = reinterpret_cast<Launch>(PyLong_AsVoidPtr(launch));
    plan->params.assign(params, static_cast<std::size_t>(size));
    const auto fits = [&](Py_ssize_t offset) { return offset >= -1 && offset + 8 <= size; };
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(offsets); ++i) {
        plan->offsets.push_back(PyLong_AsSsize_t(PyTuple_GET_ITEM(offsets, i)));
        if (!fits(plan->offsets.back())) PyErr_SetString(PyExc_ValueError, "a plan's offset lies outside of its params");
    }
    plan->has_kinds = true;
    for (Py_ssize_t i = 0; PyErr_Occurred() == nullptr && i < PyTuple_GET_SIZE(allocations); ++i) {
        Allocation& made = plan->allocations.emplace_back();
        if (!read_allocation(PyTuple_GET_ITEM(allocations, i), type, device, &made)) return false;
        if (!fits(made.offset)) PyErr_SetString(PyExc_ValueError, "a plan's offset lies outside of its params");
        plan->num_outputs += made.offset >= 0;
        plan->has_kinds = plan->has_kinds && made.kind.has_value();
    }
    if (PyErr_Occurred() != nullptr) return false;
    if (plan->params.size() > kMaxParamsBytes || plan->allocations.size() > kMaxAllocations || plan->offsets.size() != num_inputs) {
        PyErr_SetString(PyExc_RuntimeError, "a plan has more in it than a call can hold");
        return false;
    }
    return true;
}

// Two products go on side by side: a key has some thirty words, and one product waits for the one before.
struct KeyHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const {
        constexpr std::uint64_t kFactor = 0x9E3779B97F4A7C15;
        std::array<std::uint64_t, 2> sums{kFactor, key.size()};
        std::array<std::uint64_t, 2> words{};
        std::size_t at = 0;
        for (; at + sizeof words <= key.size(); at += sizeof words) {
            std::memcpy(words.data(), key.data() + at, sizeof words);
            for (std::size_t i = 0; i < 2; ++i) sums[i] = mix((sums[i] ^ words[i]) * kFactor);
        }
        words = {};
        std::memcpy(words.data(), key.data() + at, key.size() - at);
        return mix((sums[0] ^ words[0]) * kFactor) + 3 * mix((sums[1] ^ words[1]) * kFactor);
    }

private:
    static std::uint64_t mix(std::uint64_t word) { return word ^ word >> 32; }
};

using Plans = std::unordered_map<std::string, SharedPlan, KeyHash, std::equal_to<>>;

}  // namespace aicf::calls

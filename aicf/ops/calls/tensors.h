// PyTorch's tensors made without Python: its C interface for compiled programs (torch/csrc/inductor/aoti_torch/c/shim.h), whose functions
// are found in the library that the type's exchange API lives in. Such a tensor is PyTorch's own in all respects, which one that comes in
// through DLPack is not: the caching allocator would not hear of record_stream on it.
//
// A call costs 1.28 us with it and 1.80 us with Tensor.new_empty_strided (profiles/selection/host-costs.json, without the launch); on an
// H200 it costs 2.62 us over the launch with it (h200-overhead.json), of the 3 us that a call may cost. So this is kept, here alone. Where
// a function is missing, or a first tensor is not what was asked for, there is no Tensors, and outputs are made in Python.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dlpack.h"

namespace aicf::calls {

class Tensors {
public:
    // A tensor to be made, in PyTorch's numbers.
    struct Kind {
        std::vector<std::int64_t> shape;
        std::vector<std::int64_t> strides;  // elements
        std::int32_t dtype;
        std::int32_t device_type;
        std::int32_t device_index;
    };

    static std::optional<Tensors> find(const DLPackExchangeAPI& api, PyTypeObject* type) {
        Dl_info info{};
        if (dladdr(reinterpret_cast<void*>(api.dltensor_from_py_object_no_sync), &info) == 0) return std::nullopt;
        Tensors found;
        found.library_ = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (found.library_ == nullptr) return std::nullopt;
        const bool has_all = found.take(found.empty_strided_, "aoti_torch_empty_strided") &&
                             found.take(found.get_data_, "aoti_torch_get_data_ptr") &&
                             found.take(found.drop_, "aoti_torch_delete_tensor_object") &&
                             found.take(found.is_grad_enabled_, "aoti_torch_grad_mode_is_enabled") &&
                             found.take(found.wrap_, "_Z16THPVariable_WrapRKN2at10TensorBaseE");  // THPVariable_Wrap(const at::TensorBase&)
        if (!has_all || !found.holds_what_is_asked_for(api, type)) return std::nullopt;
        return found;
    }

    // The kind of a row-major tensor, where dtype (its name in PyTorch) and device are known.
    std::optional<Kind> describe(std::vector<std::int64_t> shape, const std::string& dtype, DLDevice device) const {
        const char* name = device.device_type == kDLCUDA  ? "aoti_torch_device_type_cuda"
                           : device.device_type == kDLCPU ? "aoti_torch_device_type_cpu"
                                                          : nullptr;
        std::int32_t (*find_dtype)() = nullptr;
        std::int32_t (*find_device)() = nullptr;
        if (name == nullptr || !take(find_device, name) || !take(find_dtype, ("aoti_torch_dtype_" + dtype).c_str())) return std::nullopt;
        std::vector<std::int64_t> strides(shape.size());
        std::int64_t step = 1;
        for (std::size_t i = shape.size(); i-- > 0; step *= shape[i]) strides[i] = step;
        return Kind{std::move(shape), std::move(strides), find_dtype(), find_device(), device.device_id};
    }

    // A handle, and where its elements begin; null where that failed. Needs no GIL.
    void* make(const Kind& kind, void** data) const {
        void* made = nullptr;
        const auto ndim = static_cast<std::int64_t>(kind.shape.size());
        if (empty_strided_(ndim, kind.shape.data(), kind.strides.data(), kind.dtype, kind.device_type, kind.device_index, &made) != 0) {
            return nullptr;
        }
        // None: under a mode that makes tensors which stand for others.
        if (get_data_(made, data) == 0 && *data != nullptr) return made;
        drop(made);
        return nullptr;
    }

    void drop(void* made) const { drop_(made); }

    // A new reference to the Python object; null with an error set.
    PyObject* wrap(void* made) const {
        try {
            PyObject* object = wrap_(made);
            if (object == nullptr && PyErr_Occurred() == nullptr) PyErr_NoMemory();
            return object;
        } catch (...) {
            if (PyErr_Occurred() == nullptr) PyErr_NoMemory();
            return nullptr;
        }
    }

    bool is_grad_enabled() const { return is_grad_enabled_(); }

private:
    template <typename Function>
    bool take(Function& out, const char* name) const {
        out = reinterpret_cast<Function>(dlsym(library_, name));
        return out != nullptr;
    }

    // One small tensor, looked at from Python's side.
    bool holds_what_is_asked_for(const DLPackExchangeAPI& api, PyTypeObject* type) const {
        const auto kind = describe({2, 3}, "float32", {kDLCPU, 0});
        void* data = nullptr;
        void* made = kind ? make(*kind, &data) : nullptr;
        if (made == nullptr) return false;
        PyObject* object = wrap(made);
        drop(made);
        DLTensor seen{};
        const bool is_good = object != nullptr && Py_TYPE(object) == type && api.dltensor_from_py_object_no_sync(object, &seen) == 0 &&
                             seen.ndim == 2 && seen.shape[0] == 2 && seen.shape[1] == 3 && seen.strides != nullptr &&
                             seen.strides[0] == 3 && seen.strides[1] == 1 && seen.dtype.code == 2 && seen.dtype.bits == 32 &&
                             seen.device.device_type == kDLCPU && static_cast<char*>(seen.data) + seen.byte_offset == data;
        Py_XDECREF(object);
        PyErr_Clear();
        return is_good;
    }

    void* library_ = nullptr;
    int (*empty_strided_)(std::int64_t, const std::int64_t*, const std::int64_t*, std::int32_t, std::int32_t, std::int32_t,
                          void**) = nullptr;
    int (*get_data_)(void*, void**) = nullptr;
    int (*drop_)(void*) = nullptr;
    bool (*is_grad_enabled_)() = nullptr;
    PyObject* (*wrap_)(const void*) = nullptr;
};

}  // namespace aicf::calls

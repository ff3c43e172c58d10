// The arrays that a call reads: what they are goes into its key, where they begin into the kernel's Params.
//
// They are read through DLPack's C exchange API where their type has it (PyTorch), else through named attributes. Types are made known by
// `register_type`.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <string_view>

#include "dlpack.h"
#include "tensors.h"

namespace aicf::calls {

// What arguments are, as words. An array has some words for itself and two for each dimension.
class Key {
public:
    static constexpr std::size_t kMaxWords = 160;

    bool push(std::int64_t word) {
        if (size_ == kMaxWords) return false;
        words_[size_++] = word;
        return true;
    }
    bool push(const std::int64_t* words, std::size_t count) {
        if (size_ + count > kMaxWords) return false;
        std::memcpy(words_.data() + size_, words, count * sizeof *words);
        size_ += count;
        return true;
    }
    std::string_view view() const { return {reinterpret_cast<const char*>(words_.data()), size_ * sizeof(std::int64_t)}; }

private:
    std::array<std::int64_t, kMaxWords> words_;
    std::size_t size_ = 0;
};

// How arrays of one type are read: through `api`, or through attributes. Address and device may be those of another object, the holder.
struct ArrayType {
    PyTypeObject* type = nullptr;
    const DLPackExchangeAPI* api = nullptr;
    std::optional<Tensors> tensors;  // makes outputs
    PyObject* holder = nullptr;
    PyObject* address = nullptr;
    PyObject* device = nullptr;
    PyObject* shape = nullptr;
    PyObject* strides = nullptr;
    PyObject* dtype = nullptr;
    PyObject* current_stream = nullptr;  // called without arguments: the stream as a number; null: the default stream
    std::intptr_t (*find_current_stream)() = nullptr;  // the same where C can ask, under the GIL
    PyObject* is_tracked = nullptr;  // attribute that says that calls on this array are recorded, where its type has such a thing
    PyGetSetDef* tracked_getter = nullptr;  // the same where C can ask
    PyObject* is_tracking = nullptr;  // called without arguments: whether calls are recorded at all
};

// Calls in flight hold pointers to elements, which a deque that grows leaves where they are.
inline std::deque<ArrayType>& array_types() {
    static std::deque<ArrayType> types;
    return types;
}

inline const ArrayType* find_array_type(PyTypeObject* type) {
    for (const ArrayType& each : array_types()) {
        if (each.type == type) return &each;
    }
    return nullptr;
}

struct Array {
    std::uint64_t address = 0;
    DLDevice device = {};
};

// Reads an integer attribute; false with a Python error set.
inline bool read_integer(PyObject* object, PyObject* name, std::int64_t* out) {
    PyObject* value = PyObject_GetAttr(object, name);
    if (value == nullptr) return false;
    *out = PyLong_AsLongLong(value);
    Py_DECREF(value);
    return *out != -1 || PyErr_Occurred() == nullptr;
}

// An address may use all 64 bits. The key gets the device's number; none is wanted of an output.
inline bool read_place(const ArrayType& type, PyObject* object, Key* key, std::uint64_t* out) {
    PyObject* holder = type.holder == nullptr ? Py_NewRef(object) : PyObject_GetAttr(object, type.holder);
    if (holder == nullptr) return false;
    PyObject* address = PyObject_GetAttr(holder, type.address);
    bool is_good = address != nullptr;
    if (is_good) {
        *out = PyLong_AsUnsignedLongLong(address);
        Py_DECREF(address);
        is_good = PyErr_Occurred() == nullptr;
    }
    std::int64_t device = 0;
    if (is_good && key != nullptr && type.device != nullptr) is_good = read_integer(holder, type.device, &device) && key->push(device);
    Py_DECREF(holder);
    return is_good;
}

inline bool push_tuple(Key& key, PyObject* object, PyObject* name) {
    PyObject* values = PyObject_GetAttr(object, name);
    if (values == nullptr) return false;
    bool is_good = PyTuple_Check(values) != 0;
    if (!is_good) PyErr_SetString(PyExc_TypeError, "expected a tuple");
    const Py_ssize_t size = is_good ? PyTuple_GET_SIZE(values) : 0;
    is_good = is_good && key.push(size);
    for (Py_ssize_t i = 0; is_good && i < size; ++i) {
        const std::int64_t value = PyLong_AsLongLong(PyTuple_GET_ITEM(values, i));
        is_good = (value != -1 || PyErr_Occurred() == nullptr) && key.push(value);
    }
    Py_DECREF(values);
    return is_good;
}

// Reads an array's address, and pushes what else it is. False: a Python error is set, the key is full, or the API cannot describe the array
// (a meta tensor, say), which others have better words for.
inline bool read_array(const ArrayType& type, PyObject* object, std::uint64_t address_step, Key& key, Array* out) {
    if (type.api != nullptr) {
        DLTensor tensor;
        if (type.api->dltensor_from_py_object_no_sync(object, &tensor) != 0) {
            PyErr_Clear();
            return false;
        }
        out->address = reinterpret_cast<std::uint64_t>(tensor.data) + tensor.byte_offset;
        out->device = tensor.device;
        std::int64_t facts = 0;
        static_assert(sizeof(DLDataType) == 4);
        std::memcpy(&facts, &tensor.dtype, sizeof tensor.dtype);
        facts |= static_cast<std::int64_t>(tensor.ndim) << 32 | static_cast<std::int64_t>(tensor.device.device_type) << 48;
        const auto ndim = static_cast<std::size_t>(tensor.ndim);
        return key.push(facts) && key.push(tensor.device.device_id) && key.push(tensor.shape, ndim) &&
               key.push(tensor.strides != nullptr) && (tensor.strides == nullptr || key.push(tensor.strides, ndim)) &&
               key.push(static_cast<std::int64_t>(out->address % address_step));
    }
    if (!read_place(type, object, &key, &out->address)) return false;
    PyObject* dtype = PyObject_GetAttr(object, type.dtype);
    if (dtype == nullptr) return false;
    // Dtypes of arrays live as long as the process (NumPy's and those of packages that add some): the key needs no reference.
    const bool is_good = key.push(reinterpret_cast<std::int64_t>(dtype));
    Py_DECREF(dtype);
    return is_good && push_tuple(key, object, type.shape) && push_tuple(key, object, type.strides) &&
           key.push(static_cast<std::int64_t>(out->address % address_step));
}

inline bool read_address(const ArrayType& type, PyObject* object, std::uint64_t* out) {
    if (type.api == nullptr) return read_place(type, object, nullptr, out);
    DLTensor tensor;
    if (type.api->dltensor_from_py_object_no_sync(object, &tensor) != 0) return false;
    *out = reinterpret_cast<std::uint64_t>(tensor.data) + tensor.byte_offset;
    return true;
}

// 1: calls on this array are recorded (for a backward pass), 0: not, -1: a Python error is set.
inline int is_recorded(const ArrayType& type, PyObject* object) {
    if (type.is_tracked == nullptr) return 0;
    if (type.tensors && !type.tensors->is_grad_enabled()) return 0;
    PyGetSetDef* const getter = type.tracked_getter;
    PyObject* value = getter != nullptr ? getter->get(object, getter->closure) : PyObject_GetAttr(object, type.is_tracked);
    if (value == nullptr) return -1;
    const bool is_tracked = value == Py_True;
    Py_DECREF(value);
    if (!is_tracked || type.tensors) return is_tracked ? 1 : 0;
    PyObject* on = PyObject_CallNoArgs(type.is_tracking);
    if (on == nullptr) return -1;
    const bool is_on = on == Py_True;
    Py_DECREF(on);
    return is_on ? 1 : 0;
}

// The stream that work on the array's device is queued on now; false with a Python error set.
inline bool find_stream(const ArrayType& type, const Array& array, void** out) {
    *out = nullptr;
    if (type.api != nullptr) {
        if (array.device.device_type == kDLCPU) return true;
        return type.api->current_work_stream(array.device.device_type, array.device.device_id, out) == 0;
    }
    if (type.find_current_stream != nullptr) {
        *out = reinterpret_cast<void*>(type.find_current_stream());
        return PyErr_Occurred() == nullptr;
    }
    if (type.current_stream == nullptr) return true;
    PyObject* value = PyObject_CallNoArgs(type.current_stream);
    if (value == nullptr) return false;
    *out = PyLong_AsVoidPtr(value);
    Py_DECREF(value);
    return PyErr_Occurred() == nullptr;
}

// ---------------------------------------------------------------- register_type

inline const DLPackExchangeAPI* find_api(PyObject* type) {
    PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
    if (capsule == nullptr) {
        PyErr_Clear();
        return nullptr;
    }
    const DLPackExchangeAPI* api = nullptr;
    if (PyCapsule_CheckExact(capsule)) {
        api = static_cast<const DLPackExchangeAPI*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api"));
        if (api == nullptr) PyErr_Clear();
    }
    Py_DECREF(capsule);
    while (api != nullptr && api->major != 1) api = api->prev_api;
    return api != nullptr && api->dltensor_from_py_object_no_sync != nullptr ? api : nullptr;
}

// The C function behind an attribute that is one.
inline PyGetSetDef* find_getter(PyObject* type, PyObject* name) {
    PyObject* found = PyObject_GetAttr(type, name);
    if (found == nullptr) PyErr_Clear();
    PyGetSetDef* getter = nullptr;
    if (found != nullptr && Py_IS_TYPE(found, &PyGetSetDescr_Type)) getter = reinterpret_cast<PyGetSetDescrObject*>(found)->d_getset;
    Py_XDECREF(found);  // its type, which stays, has it
    return getter;
}

// What Cython's packages export for others' C: a capsule that is named after the function's type.
inline bool take_stream_function(PyObject* capsule, ArrayType& made) {
    static constexpr const char* kType = "intptr_t (void)";
    if (!PyCapsule_IsValid(capsule, kType)) return false;
    made.find_current_stream = reinterpret_cast<std::intptr_t (*)()>(PyCapsule_GetPointer(capsule, kType));
    return true;
}

inline PyObject* register_type(PyObject*, PyObject* arguments, PyObject* names) {
    static const char* keywords[] = {"type",  "holder",         "address",         "device",     "shape",       "strides",
                                     "dtype", "current_stream", "stream_function", "is_tracked", "is_tracking", nullptr};
    PyObject* type = nullptr;
    PyObject* stream_function = nullptr;
    ArrayType made;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!|OOOOOOOOOO", const_cast<char**>(keywords), &PyType_Type, &type, &made.holder,
                                     &made.address, &made.device, &made.shape, &made.strides, &made.dtype, &made.current_stream,
                                     &stream_function, &made.is_tracked, &made.is_tracking)) {
        return nullptr;
    }
    made.type = reinterpret_cast<PyTypeObject*>(type);
    if (find_array_type(made.type) != nullptr) Py_RETURN_TRUE;
    made.api = made.address == nullptr ? find_api(type) : nullptr;
    if (made.address == nullptr && made.api == nullptr) Py_RETURN_FALSE;
    for (PyObject** each : {&made.holder, &made.address, &made.device, &made.shape, &made.strides, &made.dtype, &made.current_stream,
                            &made.is_tracked, &made.is_tracking}) {
        if (*each == Py_None) *each = nullptr;
        Py_XINCREF(*each);  // types stay registered until the process ends
    }
    Py_INCREF(type);
    if (made.api != nullptr) {
        // Types of one API are made alike: outputs are of the first of them.
        const ArrayType* other = nullptr;
        for (const ArrayType& each : array_types()) {
            if (other == nullptr && each.api == made.api) other = &each;
        }
        made.tensors = other != nullptr ? other->tensors : Tensors::find(*made.api, made.type);
    }
    if (made.is_tracked != nullptr) made.tracked_getter = find_getter(type, made.is_tracked);
    if (stream_function != nullptr) take_stream_function(stream_function, made);
    array_types().push_back(std::move(made));
    Py_RETURN_TRUE;
}

}  // namespace aicf::calls

// A Launcher: a kernel's launch function and its Params, which addresses are put into, for calls that were made before.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "plans.h"

namespace aicf::calls {

constexpr std::size_t kMaxKernelBytes = 4096;  // CUDA passes no more to a kernel

// Where an address goes: that of array `index`, plus `add`, which must be a multiple of `step`.
struct Pointer {
    Py_ssize_t offset;
    Py_ssize_t index;
    std::uint64_t add;
    std::uint64_t step;
};

struct Launcher {
    PyObject_HEAD vectorcallfunc vectorcall;
    Launch launch;
    std::string* params;
    std::vector<Pointer>* pointers;
};

// Puts the addresses of a list's arrays into params. False where the kernel cannot take one, or with a Python error set.
inline bool place_addresses(const Launcher* self, PyObject* arrays, char* params) {
    static PyObject* const kName = PyUnicode_InternFromString("queued_address");
    for (const Pointer& each : *self->pointers) {
        if (each.index >= PyList_GET_SIZE(arrays)) {
            PyErr_SetString(PyExc_IndexError, "a launcher was given too few arrays");
            return false;
        }
        PyObject* found = PyObject_GetAttr(PyList_GET_ITEM(arrays, each.index), kName);
        if (found == nullptr) return false;
        const std::uint64_t address = PyLong_AsUnsignedLongLong(found) + each.add;
        Py_DECREF(found);
        if (PyErr_Occurred() != nullptr || address % each.step != 0) return false;
        std::memcpy(params + each.offset, &address, sizeof address);
    }
    return true;
}

// launcher(arrays, workspace): True, False where the kernel cannot take an address and nothing was done, or what the kernel refused
// with: (cuda_code, reason).
inline PyObject* launch_again(PyObject* callable, PyObject* const* arguments, std::size_t nargsf, PyObject* kwnames) {
    const auto* self = reinterpret_cast<Launcher*>(callable);
    if (PyVectorcall_NARGS(nargsf) != 2 || kwnames != nullptr || !PyList_CheckExact(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "a launcher takes a list of arrays, and the workspace's address");
        return nullptr;
    }
    void* workspace = PyLong_AsVoidPtr(arguments[1]);
    if (PyErr_Occurred() != nullptr) return nullptr;
    alignas(16) std::array<char, kMaxKernelBytes> params;
    std::memcpy(params.data(), self->params->data(), self->params->size());
    if (!place_addresses(self, arguments[0], params.data())) return PyErr_Occurred() != nullptr ? nullptr : Py_NewRef(Py_False);
    AicfStatus status;
    Py_BEGIN_ALLOW_THREADS;  // a full queue makes a launch wait
    status = self->launch(params.data(), workspace, nullptr);
    Py_END_ALLOW_THREADS;
    return status.code == 0 ? Py_NewRef(Py_True) : Py_BuildValue("(iy)", status.cuda_code, status.reason);
}

// Launcher(launch, params, pointers): an address, bytes, and a tuple of (offset, index, add, step).
inline PyObject* make_launcher(PyTypeObject* type, PyObject* arguments, PyObject*) {
    unsigned long long launch = 0;
    const char* params = nullptr;
    Py_ssize_t size = 0;
    PyObject* rows = nullptr;
    if (!PyArg_ParseTuple(arguments, "Ky#O!", &launch, &params, &size, &PyTuple_Type, &rows)) return nullptr;
    std::vector<Pointer> pointers;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(rows); ++i) {
        Pointer& made = pointers.emplace_back();
        unsigned long long add = 0;
        unsigned long long step = 0;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(rows, i), "nnKK", &made.offset, &made.index, &add, &step)) return nullptr;
        made.add = add;
        made.step = step;
        if (made.offset < 0 || made.offset + 8 > size || made.index < 0 || step < 1) {
            PyErr_SetString(PyExc_ValueError, "a launcher's pointer lies outside of its params, or has no step");
            return nullptr;
        }
    }
    if (static_cast<std::size_t>(size) > kMaxKernelBytes || launch == 0) {
        PyErr_Format(PyExc_ValueError, "a launcher needs a function, and at most %zu bytes of params", kMaxKernelBytes);
        return nullptr;
    }
    auto* self = reinterpret_cast<Launcher*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->vectorcall = launch_again;
    self->launch = reinterpret_cast<Launch>(launch);
    self->params = new std::string(params, static_cast<std::size_t>(size));
    self->pointers = new std::vector<Pointer>(std::move(pointers));
    return reinterpret_cast<PyObject*>(self);
}

inline void free_launcher(PyObject* object) {
    auto* self = reinterpret_cast<Launcher*>(object);
    delete self->params;
    delete self->pointers;
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

inline PyMemberDef launcher_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Launcher, vectorcall), READONLY, nullptr}, {}};
inline PyType_Slot launcher_slots[] = {{Py_tp_new, reinterpret_cast<void*>(make_launcher)},
                                       {Py_tp_dealloc, reinterpret_cast<void*>(free_launcher)},
                                       {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                                       {Py_tp_members, launcher_members},
                                       {Py_tp_doc, const_cast<char*>("A kernel's launch on the default stream; see launcher.h.")},
                                       {0, nullptr}};
inline PyType_Spec launcher_spec = {"_aicf_calls.Launcher", sizeof(Launcher), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL,
                                    launcher_slots};

}  // namespace aicf::calls

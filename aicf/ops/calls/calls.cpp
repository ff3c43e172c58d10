// The lean path of a call from Python: a plan found by what the arguments are, their addresses put into it, a launch.
//
// A Caller is one op's. Its call takes the input arrays and the attributes' values, by position or by name. What the arguments are (types,
// dtypes, devices, shapes, strides, addresses modulo a step, attributes' places among their choices) and the device that is current are the
// key of a plan (plans.h). Nothing is checked here: a plan is made by the Python function `resolve`, which checks all, and is used only for
// arguments that are the same in all that was checked.
//
// Arguments of types that are not known (arrays.h), arguments that no plan can stand for, and calls that are recorded for a backward pass
// go to the Python function `refer`, which returns the result.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "arrays.h"
#include "launcher.h"
#include "plans.h"

namespace aicf::calls {
namespace {

constexpr std::size_t kMaxArguments = 32;

struct Caller {
    PyObject_HEAD vectorcallfunc vectorcall;
    std::size_t num_inputs;
    std::size_t num_arguments;
    std::uint64_t address_step;
    std::vector<PyObject*>* names;  // of the arguments
    std::vector<PyObject*>* defaults;  // null: none
    std::vector<std::vector<PyObject*>>* choices;  // by attribute
    Plans* plans;
    int (*get_device)(int*);  // cudaGetDevice: launches go to the device that is current
    int (*set_device)(int);  // cudaSetDevice
    PyObject* resolve;
    PyObject* refer;
    PyObject* error;
};

// The place of a value among an attribute's choices, -1 where it is none. The same object is found at once.
std::int64_t find_choice(const std::vector<PyObject*>& choices, PyObject* value) {
    for (std::size_t i = 0; i < choices.size(); ++i) {
        if (choices[i] == value) return static_cast<std::int64_t>(i);
    }
    for (std::size_t i = 0; i < choices.size(); ++i) {
        if (Py_TYPE(choices[i]) == Py_TYPE(value) && PyObject_RichCompareBool(choices[i], value, Py_EQ) == 1)
            return static_cast<std::int64_t>(i);
    }
    PyErr_Clear();
    return -1;
}

PyObject* refer(Caller* self, PyObject* const* values) { return PyObject_Vectorcall(self->refer, values, self->num_arguments, nullptr); }

// ---------------------------------------------------------------- running a plan

// One call with a plan: Params are the plan's, with the inputs' addresses in place.
struct Run {
    Caller* self;
    const Plan& plan;
    const ArrayType& type;
    PyObject* const* values;
    const Array* first = nullptr;  // of the inputs that are there
    PyObject* first_object = nullptr;
    alignas(16) char params[kMaxParamsBytes];
    void* workspace = nullptr;
    void* stream = nullptr;
    std::array<PyObject*, kMaxAllocations> made{};

    Run(Caller* caller, const Plan& of, const ArrayType& kind, PyObject* const* given, const Array* inputs)
        : self(caller), plan(of), type(kind), values(given) {
        std::memcpy(params, plan.params.data(), plan.params.size());
        for (std::size_t i = 0; i < plan.offsets.size(); ++i) {
            if (plan.offsets[i] < 0) continue;
            if (first == nullptr) {
                first = inputs + i;
                first_object = values[i];
            }
            std::memcpy(params + plan.offsets[i], &inputs[i].address, sizeof inputs[i].address);
        }
    }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    ~Run() {
        for (PyObject* each : made) Py_XDECREF(each);
    }

    void place(const Allocation& allocation, std::uint64_t address) {
        if (allocation.offset >= 0) {
            std::memcpy(params + allocation.offset, &address, sizeof address);
        } else {
            workspace = reinterpret_cast<void*>(address);
        }
    }

    bool report(const AicfStatus& status) {
        if (status.code != 0) PyErr_SetString(self->error, status.reason);
        return status.code == 0;
    }

    // Makes the outputs and launches, all without the GIL, which goes back and forth once. False where PyTorch could not make one, or
    // makes something that has no memory; then nothing has been launched.
    bool launch_with_tensors(bool* is_good) {
        const Tensors& tensors = *type.tensors;
        std::array<void*, kMaxAllocations> handles;
        std::size_t count = 0;
        AicfStatus status;
        Py_BEGIN_ALLOW_THREADS;  // an allocation may wait for the device, and a launch for room in the queue
        for (; count < plan.allocations.size(); ++count) {
            void* data = nullptr;
            handles[count] = tensors.make(*plan.allocations[count].kind, &data);
            if (handles[count] == nullptr) break;
            place(plan.allocations[count], reinterpret_cast<std::uint64_t>(data));
        }
        if (count == plan.allocations.size()) status = plan.launch(params, workspace, stream);
        Py_END_ALLOW_THREADS;
        const bool is_launched = count == plan.allocations.size();
        *is_good = is_launched && report(status);
        for (std::size_t i = 0; i < count; ++i) {
            if (*is_good && plan.allocations[i].offset >= 0) {
                made[i] = tensors.wrap(handles[i]);
                *is_good = made[i] != nullptr;
            }
            tensors.drop(handles[i]);
        }
        return is_launched;
    }

    // Makes the outputs by Python's functions. False where they are of a type that cannot be read (a mode of PyTorch is on, in which
    // tensors are stand-ins), or with a Python error set.
    bool make_outputs() {
        for (std::size_t i = 0; i < plan.allocations.size(); ++i) {
            const Allocation& each = plan.allocations[i];
            std::array<PyObject*, 8> arguments{};
            std::size_t count = 0;
            if (each.with_first) arguments[count++] = first_object;
            for (PyObject* argument : each.arguments) arguments[count++] = argument;
            made[i] = PyObject_Vectorcall(each.function, arguments.data(), count, nullptr);
            if (made[i] == nullptr) return false;
            if (type.api != nullptr) {
                const ArrayType* found = find_array_type(Py_TYPE(made[i]));
                if (found == nullptr || found->api != type.api) return false;
            }
            std::uint64_t address = 0;
            if (!read_address(type, made[i], &address)) return false;
            place(each, address);
        }
        return true;
    }

    bool launch() {
        AicfStatus status;
        Py_BEGIN_ALLOW_THREADS;  // a full queue makes a launch wait
        status = plan.launch(params, workspace, stream);
        Py_END_ALLOW_THREADS;
        return report(status);
    }

    PyObject* collect() {
        PyObject* outputs = plan.num_outputs == 1 ? nullptr : PyTuple_New(plan.num_outputs);
        Py_ssize_t at = 0;
        for (std::size_t i = 0; i < plan.allocations.size(); ++i) {
            if (plan.allocations[i].offset < 0) continue;
            PyObject* each = std::exchange(made[i], nullptr);
            if (plan.num_outputs == 1) return each;
            if (outputs != nullptr) PyTuple_SET_ITEM(outputs, at++, each);
        }
        return outputs;
    }
};

PyObject* run_plan(Caller* self, const SharedPlan& shared, const ArrayType& type, PyObject* const* values, const Array* inputs) {
    const SharedPlan held = shared;
    if (held->launch == nullptr) return refer(self, values);
    Run run(self, *held, type, values, inputs);
    if (!find_stream(type, *run.first, &run.stream)) return nullptr;
    bool is_good = false;
    if (!held->has_kinds || !run.launch_with_tensors(&is_good)) {
        // Where PyTorch could not make a tensor, its Python function says why.
        if (!run.make_outputs()) return PyErr_Occurred() != nullptr ? nullptr : refer(self, values);
        is_good = run.launch();
    }
    return is_good ? run.collect() : nullptr;
}

// Asks resolve for a plan, which is kept and run.
PyObject* make_plan(Caller* self, PyObject* const* values, const Key& key, const ArrayType& type, const Array* inputs, DLDevice device) {
    PyObject* row = PyObject_Vectorcall(self->resolve, values, self->num_arguments, nullptr);
    if (row == nullptr) return nullptr;
    SharedPlan plan = std::make_shared<Plan>();
    const bool is_good = read_plan(row, type, device, self->num_inputs, plan.get());
    Py_DECREF(row);
    if (!is_good) return nullptr;
    if (self->plans->size() >= kMaxPlans) self->plans->clear();
    // Another thread may have been here meanwhile: its plan is as good.
    self->plans->try_emplace(std::string(key.view()), plan);
    return run_plan(self, plan, type, values, inputs);
}

// Makes the current device's context current on this thread, once: launchers call driver functions (encoders of tensor maps), which fail
// on a thread that has made no runtime call yet, as PyTorch's thread for backward passes has not. False where it cannot be had.
bool bind_thread(const Caller* self, int device) {
    static thread_local int bound = -1;
    if (bound == device || self->set_device == nullptr) return true;
    if (self->set_device(device) != 0) return false;
    bound = device;
    return true;
}

PyObject* call_with(Caller* self, PyObject* const* values) {
    Key key;
    std::array<Array, kMaxInputs> inputs;
    const ArrayType* type = nullptr;
    DLDevice device = {};
    for (std::size_t i = 0; i < self->num_inputs; ++i) {
        PyObject* object = values[i];
        if (object == Py_None) {
            if (!key.push(0)) return refer(self, values);
            continue;
        }
        const ArrayType* found = type != nullptr && type->type == Py_TYPE(object) ? type : find_array_type(Py_TYPE(object));
        if (found == nullptr || (type != nullptr && found != type && (found->api == nullptr || found->api != type->api))) {
            return refer(self, values);
        }
        const int recorded = is_recorded(*found, object);
        if (recorded < 0) return nullptr;
        if (recorded > 0 || !key.push(1)) return refer(self, values);
        if (!read_array(*found, object, self->address_step, key, &inputs[i])) {
            return PyErr_Occurred() != nullptr ? nullptr : refer(self, values);
        }
        if (type == nullptr) {
            type = found;
            device = inputs[i].device;
        }
    }
    if (type == nullptr) return refer(self, values);
    int current = 0;
    if (self->get_device != nullptr && (self->get_device(&current) != 0 || !bind_thread(self, current))) return refer(self, values);
    bool has_key =
        key.push(type->api != nullptr ? reinterpret_cast<std::int64_t>(type->api) : reinterpret_cast<std::int64_t>(type->type)) &&
        key.push(current);
    for (std::size_t i = 0; has_key && i < self->choices->size(); ++i) {
        const std::int64_t place = find_choice((*self->choices)[i], values[self->num_inputs + i]);
        has_key = place >= 0 && key.push(place);
    }
    if (!has_key) return refer(self, values);
    const auto found = self->plans->find(key.view());
    if (found == self->plans->end()) return make_plan(self, values, key, *type, inputs.data(), device);
    return run_plan(self, found->second, *type, values, inputs.data());
}

// ---------------------------------------------------------------- arguments by name

// Puts arguments where `names` has them. False where they are not those of the op, once each; no error is set.
bool bind(const Caller* self, PyObject* const* arguments, std::size_t count, PyObject* kwnames, PyObject** values) {
    if (count > self->num_arguments) return false;
    std::memcpy(values, arguments, count * sizeof *values);
    std::memset(values + count, 0, (self->num_arguments - count) * sizeof *values);
    const Py_ssize_t num_named = kwnames == nullptr ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t i = 0; i < num_named; ++i) {
        PyObject* name = PyTuple_GET_ITEM(kwnames, i);
        std::size_t at = count;
        while (at < self->num_arguments && (*self->names)[at] != name) ++at;
        if (at == self->num_arguments) {  // a name that was made at run time
            for (at = count; at < self->num_arguments && PyUnicode_Compare((*self->names)[at], name) != 0;) ++at;
        }
        if (at == self->num_arguments || values[at] != nullptr) return false;
        values[at] = arguments[count + static_cast<std::size_t>(i)];
    }
    for (std::size_t i = count; i < self->num_arguments; ++i) {
        if (values[i] == nullptr) values[i] = (*self->defaults)[i];
        if (values[i] == nullptr) return false;
    }
    return true;
}

PyObject* call(PyObject* callable, PyObject* const* arguments, std::size_t nargsf, PyObject* kwnames) {
    auto* self = reinterpret_cast<Caller*>(callable);
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(nargsf));
    if (kwnames == nullptr && count == self->num_arguments) return call_with(self, arguments);
    std::array<PyObject*, kMaxArguments> values;
    if (bind(self, arguments, count, kwnames, values.data())) return call_with(self, values.data());
    PyErr_SetString(PyExc_TypeError, "a caller takes the inputs and the attributes, by position or by name, once each");
    return nullptr;
}

// ---------------------------------------------------------------- the type

// Strings in code are interned where they look like names: the same object is found by its address.
PyObject* take(PyObject* object) {
    Py_INCREF(object);
    if (PyUnicode_CheckExact(object)) PyUnicode_InternInPlace(&object);
    return object;
}

PyObject* make_caller(PyTypeObject* type, PyObject* arguments, PyObject* keyword_arguments) {
    static const char* keywords[] = {"num_inputs", "choices",  "address_step", "resolve",    "refer", "error",
                                     "names",      "defaults", "get_device",   "set_device", nullptr};
    Py_ssize_t num_inputs = 0;
    unsigned long long step = 1;
    unsigned long long get_device = 0;
    unsigned long long set_device = 0;
    PyObject* choices = nullptr;
    PyObject* resolve = nullptr;
    PyObject* refer = nullptr;
    PyObject* error = nullptr;
    PyObject* names = nullptr;
    PyObject* defaults = nullptr;
    if (!PyArg_ParseTupleAndKeywords(arguments, keyword_arguments, "nO!KOOO|O!O!KK", const_cast<char**>(keywords), &num_inputs,
                                     &PyTuple_Type, &choices, &step, &resolve, &refer, &error, &PyTuple_Type, &names, &PyDict_Type,
                                     &defaults, &get_device, &set_device)) {
        return nullptr;
    }
    const Py_ssize_t count = num_inputs + PyTuple_GET_SIZE(choices);
    if (num_inputs < 1 || static_cast<std::size_t>(num_inputs) > kMaxInputs || step < 1) {
        PyErr_Format(PyExc_ValueError, "num_inputs must be in 1..%zu, and address_step at least 1", kMaxInputs);
        return nullptr;
    }
    if (static_cast<std::size_t>(count) > kMaxArguments || (names != nullptr && PyTuple_GET_SIZE(names) != count)) {
        PyErr_Format(PyExc_ValueError, "there must be one name for each argument, at most %zu", kMaxArguments);
        return nullptr;
    }
    auto* self = reinterpret_cast<Caller*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->vectorcall = call;
    self->num_inputs = static_cast<std::size_t>(num_inputs);
    self->num_arguments = static_cast<std::size_t>(count);
    self->address_step = step;
    self->get_device = reinterpret_cast<int (*)(int*)>(get_device);
    self->set_device = reinterpret_cast<int (*)(int)>(set_device);
    self->plans = new Plans();
    self->names = new std::vector<PyObject*>();
    self->defaults = new std::vector<PyObject*>();
    self->choices = new std::vector<std::vector<PyObject*>>();
    for (Py_ssize_t i = 0; i < count; ++i) {
        PyObject* name = names == nullptr ? nullptr : PyTuple_GET_ITEM(names, i);
        self->names->push_back(name == nullptr ? PyUnicode_FromString("") : take(name));
        PyObject* value = name == nullptr || defaults == nullptr ? nullptr : PyDict_GetItemWithError(defaults, name);
        self->defaults->push_back(value == nullptr ? nullptr : take(value));
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(choices); ++i) {
        std::vector<PyObject*> each;
        PyObject* row = PyTuple_GET_ITEM(choices, i);
        for (Py_ssize_t j = 0; PyTuple_Check(row) && j < PyTuple_GET_SIZE(row); ++j) each.push_back(take(PyTuple_GET_ITEM(row, j)));
        self->choices->push_back(std::move(each));
    }
    self->resolve = Py_NewRef(resolve);
    self->refer = Py_NewRef(refer);
    self->error = Py_NewRef(error);
    return reinterpret_cast<PyObject*>(self);
}

void free_caller(PyObject* object) {
    auto* self = reinterpret_cast<Caller*>(object);
    for (auto& row : *self->choices) {
        for (PyObject* each : row) Py_DECREF(each);
    }
    for (PyObject* each : *self->names) Py_XDECREF(each);
    for (PyObject* each : *self->defaults) Py_XDECREF(each);
    delete self->plans;
    delete self->choices;
    delete self->names;
    delete self->defaults;
    Py_XDECREF(self->resolve);
    Py_XDECREF(self->refer);
    Py_XDECREF(self->error);
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* count_plans(PyObject* object, PyObject*) { return PyLong_FromSize_t(reinterpret_cast<Caller*>(object)->plans->size()); }

// Whether arrays of a type are made without Python: for tests, and for those who ask where the time goes.
PyObject* makes_tensors(PyObject*, PyObject* type) {
    const ArrayType* found = find_array_type(reinterpret_cast<PyTypeObject*>(type));
    return PyBool_FromLong(found != nullptr && found->tensors.has_value());
}

PyMemberDef caller_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Caller, vectorcall), READONLY, nullptr}, {}};
PyMethodDef caller_methods[] = {{"count_plans", count_plans, METH_NOARGS, "The number of plans that are kept."}, {}};
PyType_Slot caller_slots[] = {{Py_tp_new, reinterpret_cast<void*>(make_caller)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(free_caller)},
                              {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                              {Py_tp_members, caller_members},
                              {Py_tp_methods, caller_methods},
                              {Py_tp_doc, const_cast<char*>("One op's calls: inputs and attributes; see calls.cpp.")},
                              {0, nullptr}};
PyType_Spec caller_spec = {"_aicf_calls.Caller", sizeof(Caller), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, caller_slots};

PyMethodDef module_methods[] = {
    {"register_type", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(register_type)), METH_VARARGS | METH_KEYWORDS,
     "Make an array type known; False where it has no exchange API and no attributes were named."},
    {"makes_tensors", makes_tensors, METH_O, "Whether outputs beside arrays of a type are made without Python."},
    {}};
PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "_aicf_calls", "Lean calls of frozen kernels.", -1, module_methods};

}  // namespace
}  // namespace aicf::calls

PyMODINIT_FUNC PyInit__aicf_calls() {
    using namespace aicf::calls;
    PyObject* module = PyModule_Create(&module_definition);
    if (module == nullptr) return nullptr;
    PyObject* type = PyType_FromSpec(&caller_spec);
    if (type == nullptr || PyModule_AddObjectRef(module, "Caller", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(module);
        return nullptr;
    }
    Py_DECREF(type);
    PyObject* launcher = PyType_FromSpec(&launcher_spec);
    if (launcher == nullptr || PyModule_AddObjectRef(module, "Launcher", launcher) < 0) Py_CLEAR(module);
    Py_XDECREF(launcher);
    return module;
}

// The lean path of a call from Python: a plan found by what the arguments are, their addresses put into it, a launch.
//
// A Caller is one op's. Its call takes the input arrays and the attributes' values, all by position. What the arguments are (types, dtypes,
// devices, shapes, strides, addresses modulo a step, attributes' places among their choices) is the key of a plan: the kernel's launch
// function, its Params with everything filled in but addresses, and how outputs are allocated. Nothing is checked here: a plan is made by
// the Python function `resolve`, which checks all, and is used only for arguments that are the same in all that was checked.
//
// Arrays are read through DLPack's C exchange API (dlpack.h 1.3) where their type has it (PyTorch), else through named attributes. Types
// are made known by `register_type`. Arguments of others, arguments that no plan can stand for, and calls that are recorded for a backward
// pass go to the Python function `refer`, which returns the result.
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace {

// ---------------------------------------------------------------- DLPack 1.x, as far as it is used; names as in dlpack.h

struct DLDevice {
    std::int32_t device_type;
    std::int32_t device_id;
};
struct DLDataType {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
};
struct DLTensor {
    void* data;
    DLDevice device;
    std::int32_t ndim;
    DLDataType dtype;
    std::int64_t* shape;
    std::int64_t* strides;
    std::uint64_t byte_offset;
};
struct DLPackExchangeAPI {
    std::uint32_t major;
    std::uint32_t minor;
    DLPackExchangeAPI* prev_api;
    void* managed_tensor_allocator;
    void* managed_tensor_from_py_object_no_sync;
    void* managed_tensor_to_py_object_no_sync;
    int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out);
    int (*current_work_stream)(std::int32_t device_type, std::int32_t device_id, void** out);
};
constexpr std::int32_t kDLCPU = 1;

// ---------------------------------------------------------------- the kernels' ABI, as in common/status.h

struct AicfStatus {
    std::int32_t code;
    std::int32_t cuda_code;
    char reason[248];
};
using Launch = AicfStatus (*)(const void* params, void* workspace, void* stream);

// ---------------------------------------------------------------- keys

// What arguments are, as words. An array has some words for itself and two for each dimension.
class Key {
public:
    static constexpr std::size_t kMaxWords = 160;

    bool push(std::int64_t word) {
        if (size_ == kMaxWords) return false;
        words_[size_++] = word;
        return true;
    }
    std::string_view view() const { return {reinterpret_cast<const char*>(words_.data()), size_ * sizeof(std::int64_t)}; }

private:
    std::array<std::int64_t, kMaxWords> words_;
    std::size_t size_ = 0;
};

struct KeyHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
};

// ---------------------------------------------------------------- array types

// How arrays of one type are read: through `api`, or through attributes (an address may lie several deep).
struct ArrayType {
    PyTypeObject* type = nullptr;
    const DLPackExchangeAPI* api = nullptr;
    std::vector<PyObject*> address_path;
    PyObject* shape = nullptr;
    PyObject* strides = nullptr;
    PyObject* dtype = nullptr;
    PyObject* current_stream = nullptr;  // called without arguments: the stream as a number; null: the default stream
    PyObject* is_tracked = nullptr;  // attribute that says that calls on this array are recorded, where its type has such a thing
    PyObject* is_tracking = nullptr;  // called without arguments: whether calls are recorded at all
};

// Calls in flight hold pointers to elements, which a deque that grows leaves where they are.
std::deque<ArrayType>& array_types() {
    static std::deque<ArrayType> types;
    return types;
}

const ArrayType* find_array_type(PyObject* object) {
    for (const ArrayType& each : array_types()) {
        if (each.type == Py_TYPE(object)) return &each;
    }
    return nullptr;
}

// Reads an integer attribute; false with a Python error set.
bool read_integer(PyObject* value, std::int64_t* out) {
    *out = PyLong_AsLongLong(value);
    return *out != -1 || PyErr_Occurred() == nullptr;
}

// An address may use all 64 bits.
bool read_address(const ArrayType& type, PyObject* object, std::uint64_t* out) {
    PyObject* at = Py_NewRef(object);
    for (PyObject* name : type.address_path) {
        PyObject* next = PyObject_GetAttr(at, name);
        Py_DECREF(at);
        if (next == nullptr) return false;
        at = next;
    }
    *out = PyLong_AsUnsignedLongLong(at);
    Py_DECREF(at);
    return PyErr_Occurred() == nullptr;
}

bool push_tuple(Key& key, PyObject* object, PyObject* name) {
    PyObject* values = PyObject_GetAttr(object, name);
    if (values == nullptr) return false;
    bool is_good = PyTuple_Check(values) != 0;
    if (!is_good) PyErr_SetString(PyExc_TypeError, "expected a tuple");
    const Py_ssize_t size = is_good ? PyTuple_GET_SIZE(values) : 0;
    is_good = is_good && key.push(size);
    for (Py_ssize_t i = 0; is_good && i < size; ++i) {
        std::int64_t value = 0;
        is_good = read_integer(PyTuple_GET_ITEM(values, i), &value) && key.push(value);
    }
    Py_DECREF(values);
    return is_good;
}

struct Array {
    std::uint64_t address = 0;
    DLDevice device = {};
};

// Reads an array's address, and pushes what else it is. False: a Python error is set, or the key is full.
bool read_array(const ArrayType& type, PyObject* object, std::uint64_t address_step, Key& key, Array* out) {
    if (type.api != nullptr) {
        DLTensor tensor;
        if (type.api->dltensor_from_py_object_no_sync(object, &tensor) != 0) return false;
        out->address = reinterpret_cast<std::uint64_t>(tensor.data) + tensor.byte_offset;
        out->device = tensor.device;
        std::int64_t facts = 0;
        static_assert(sizeof(DLDataType) == 4);
        std::memcpy(&facts, &tensor.dtype, sizeof tensor.dtype);
        facts |= static_cast<std::int64_t>(tensor.ndim) << 32 | static_cast<std::int64_t>(tensor.device.device_type) << 48;
        bool is_good = key.push(facts) && key.push(tensor.device.device_id);
        for (std::int32_t i = 0; is_good && i < tensor.ndim; ++i) is_good = key.push(tensor.shape[i]);
        is_good = is_good && key.push(tensor.strides != nullptr);
        for (std::int32_t i = 0; is_good && tensor.strides != nullptr && i < tensor.ndim; ++i) is_good = key.push(tensor.strides[i]);
        return is_good && key.push(static_cast<std::int64_t>(out->address % address_step));
    }
    if (!read_address(type, object, &out->address)) return false;
    PyObject* dtype = PyObject_GetAttr(object, type.dtype);
    if (dtype == nullptr) return false;
    // Dtypes of arrays live as long as the process (NumPy's and those of packages that add some): the key needs no reference.
    const bool is_good = key.push(reinterpret_cast<std::int64_t>(dtype));
    Py_DECREF(dtype);
    return is_good && push_tuple(key, object, type.shape) && push_tuple(key, object, type.strides) &&
           key.push(static_cast<std::int64_t>(out->address % address_step));
}

// 1: calls on this array are recorded (for a backward pass), 0: not, -1: a Python error is set.
int is_recorded(const ArrayType& type, PyObject* object) {
    if (type.is_tracked == nullptr) return 0;
    PyObject* value = PyObject_GetAttr(object, type.is_tracked);
    if (value == nullptr) return -1;
    const bool is_tracked = value == Py_True;
    Py_DECREF(value);
    if (!is_tracked) return 0;
    PyObject* on = PyObject_CallNoArgs(type.is_tracking);
    if (on == nullptr) return -1;
    const bool is_on = on == Py_True;
    Py_DECREF(on);
    return is_on ? 1 : 0;
}

bool find_stream(const ArrayType& type, const Array& array, void** out) {
    *out = nullptr;
    if (type.api != nullptr) {
        if (array.device.device_type == kDLCPU) return true;
        return type.api->current_work_stream(array.device.device_type, array.device.device_id, out) == 0;
    }
    if (type.current_stream == nullptr) return true;
    PyObject* value = PyObject_CallNoArgs(type.current_stream);
    if (value == nullptr) return false;
    *out = PyLong_AsVoidPtr(value);
    Py_DECREF(value);
    return PyErr_Occurred() == nullptr;
}

// ---------------------------------------------------------------- plans

// One array that a call makes: an output, or the workspace (offset -1). `arguments` go to `function`, behind the first input if
// `with_first`.
struct Allocation {
    Py_ssize_t offset = -1;
    PyObject* function = nullptr;
    bool with_first = false;
    std::vector<PyObject*> arguments;
};

struct Plan {
    Launch launch = nullptr;
    std::string params;
    std::vector<Py_ssize_t> offsets;  // of the inputs' addresses in params, -1: absent
    std::vector<Allocation> allocations;
    int num_outputs = 0;
};

void drop(Plan& plan) {
    for (Allocation& each : plan.allocations) {
        Py_CLEAR(each.function);
        for (PyObject*& argument : each.arguments) Py_CLEAR(argument);
    }
}

// Reads what resolve returned: (launch, params, offsets, ((offset, function, with_first, arguments), ...)).
bool read_plan(PyObject* row, Plan* plan) {
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
    for (Py_ssize_t i = 0; PyErr_Occurred() == nullptr && i < PyTuple_GET_SIZE(allocations); ++i) {
        Allocation made;
        PyObject* arguments = nullptr;
        int with_first = 0;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(allocations, i), "nOpO!", &made.offset, &made.function, &with_first, &PyTuple_Type,
                              &arguments))
            break;
        if (!fits(made.offset)) PyErr_SetString(PyExc_ValueError, "a plan's offset lies outside of its params");
        made.with_first = with_first != 0;
        Py_INCREF(made.function);
        for (Py_ssize_t j = 0; j < PyTuple_GET_SIZE(arguments); ++j) made.arguments.push_back(Py_NewRef(PyTuple_GET_ITEM(arguments, j)));
        plan->num_outputs += made.offset >= 0;
        plan->allocations.push_back(std::move(made));
    }
    return PyErr_Occurred() == nullptr;
}

// ---------------------------------------------------------------- Caller

constexpr std::size_t kMaxInputs = 8;
constexpr std::size_t kMaxAllocations = 8;
constexpr std::size_t kMaxParamsBytes = 512;
constexpr std::size_t kMaxPlans = 4096;

struct Caller {
    PyObject_HEAD vectorcallfunc vectorcall;
    std::size_t num_inputs;
    std::uint64_t address_step;
    std::vector<std::vector<PyObject*>>* choices;  // by attribute
    std::unordered_map<std::string, Plan, KeyHash, std::equal_to<>>* plans;
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

PyObject* run_plan(Caller* self, const Plan& plan, const ArrayType& type, PyObject* const* arguments, const Array* inputs) {
    alignas(16) char params[kMaxParamsBytes];
    std::memcpy(params, plan.params.data(), plan.params.size());
    const Array* first = nullptr;
    for (std::size_t i = 0; i < plan.offsets.size(); ++i) {
        if (plan.offsets[i] < 0) continue;
        if (first == nullptr) first = inputs + i;
        std::memcpy(params + plan.offsets[i], &inputs[i].address, sizeof inputs[i].address);
    }
    std::array<PyObject*, kMaxAllocations> made{};
    std::size_t num_made = 0;
    void* workspace = nullptr;
    bool is_good = first != nullptr;
    for (const Allocation& each : plan.allocations) {
        std::array<PyObject*, 6> values{};
        std::size_t count = 0;
        if (each.with_first) values[count++] = arguments[first - inputs];
        for (PyObject* argument : each.arguments) values[count++] = argument;
        PyObject* object = PyObject_Vectorcall(each.function, values.data(), count, nullptr);
        if (object == nullptr) {
            is_good = false;
            break;
        }
        made[num_made++] = object;
        Array array;
        if (type.api != nullptr) {
            DLTensor tensor;
            is_good = type.api->dltensor_from_py_object_no_sync(object, &tensor) == 0;
            if (is_good) array.address = reinterpret_cast<std::uint64_t>(tensor.data) + tensor.byte_offset;
        } else {
            is_good = read_address(type, object, &array.address);
        }
        if (!is_good) break;
        if (each.offset >= 0) {
            std::memcpy(params + each.offset, &array.address, sizeof array.address);
        } else {
            workspace = reinterpret_cast<void*>(array.address);
        }
    }
    void* stream = nullptr;
    is_good = is_good && find_stream(type, *first, &stream);
    if (is_good) {
        const Launch launch = plan.launch;
        AicfStatus status;
        Py_BEGIN_ALLOW_THREADS;  // a full queue makes a launch wait
        status = launch(params, workspace, stream);
        Py_END_ALLOW_THREADS;
        is_good = status.code == 0;
        if (!is_good) PyErr_SetString(self->error, status.reason);
    }
    PyObject* result = nullptr;
    if (is_good) {
        PyObject* outputs = plan.num_outputs == 1 ? nullptr : PyTuple_New(plan.num_outputs);
        std::size_t place = 0;
        for (std::size_t i = 0; i < num_made; ++i) {
            if (plan.allocations[i].offset < 0) continue;
            if (outputs == nullptr) {
                result = Py_NewRef(made[i]);
            } else {
                PyTuple_SET_ITEM(outputs, static_cast<Py_ssize_t>(place++), Py_NewRef(made[i]));
                result = outputs;
            }
        }
    }
    for (std::size_t i = 0; i < num_made; ++i) Py_DECREF(made[i]);
    return result;
}

// Asks resolve for a plan, which is kept and run.
PyObject* make_plan(Caller* self, PyObject* const* arguments, std::size_t count, const Key& key, const ArrayType& type,
                    const Array* inputs) {
    PyObject* row = PyObject_Vectorcall(self->resolve, arguments, count, nullptr);
    if (row == nullptr) return nullptr;
    Plan plan;
    const bool is_good = read_plan(row, &plan);
    Py_DECREF(row);
    const bool is_small =
        plan.params.size() <= kMaxParamsBytes && plan.allocations.size() <= kMaxAllocations && plan.offsets.size() == self->num_inputs;
    if (!is_good || !is_small) {
        drop(plan);
        if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_RuntimeError, "a plan has more in it than a call can hold");
        return nullptr;
    }
    if (self->plans->size() >= kMaxPlans) {
        for (auto& [_, each] : *self->plans) drop(each);
        self->plans->clear();
    }
    const auto [at, is_new] = self->plans->try_emplace(std::string(key.view()), std::move(plan));
    if (!is_new) drop(plan);  // another thread was here meanwhile; try_emplace has left the plan alone
    return run_plan(self, at->second, type, arguments, inputs);
}

PyObject* call(PyObject* callable, PyObject* const* arguments, std::size_t nargsf, PyObject* kwnames) {
    auto* self = reinterpret_cast<Caller*>(callable);
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(nargsf));
    if (kwnames != nullptr || count != self->num_inputs + self->choices->size()) {
        PyErr_SetString(PyExc_TypeError, "a caller takes the inputs and the attributes, all by position");
        return nullptr;
    }
    Key key;
    std::array<Array, kMaxInputs> inputs;
    const ArrayType* type = nullptr;
    bool has_key = true;
    for (std::size_t i = 0; has_key && i < self->num_inputs; ++i) {
        PyObject* object = arguments[i];
        if (object == Py_None) {
            has_key = key.push(0);
            continue;
        }
        const ArrayType* found = find_array_type(object);
        const bool is_same = type == nullptr || found == type || (found != nullptr && found->api != nullptr && found->api == type->api);
        if (found == nullptr || !is_same) {
            has_key = false;
            break;
        }
        if (type == nullptr) type = found;
        const int recorded = is_recorded(*found, object);
        if (recorded < 0) return nullptr;
        has_key = recorded == 0 && key.push(1) && read_array(*found, object, self->address_step, key, &inputs[i]);
        if (PyErr_Occurred() != nullptr) return nullptr;
    }
    has_key = has_key && type != nullptr &&
              key.push(type->api != nullptr ? reinterpret_cast<std::int64_t>(type->api) : reinterpret_cast<std::int64_t>(type->type));
    for (std::size_t i = 0; has_key && i < self->choices->size(); ++i) {
        const std::int64_t place = find_choice((*self->choices)[i], arguments[self->num_inputs + i]);
        has_key = place >= 0 && key.push(place);
    }
    if (!has_key) return PyObject_Vectorcall(self->refer, arguments, count, nullptr);
    const auto found = self->plans->find(key.view());
    if (found == self->plans->end()) return make_plan(self, arguments, count, key, *type, inputs.data());
    return run_plan(self, found->second, *type, arguments, inputs.data());
}

PyObject* make_caller(PyTypeObject* type, PyObject* arguments, PyObject* names) {
    static const char* keywords[] = {"num_inputs", "choices", "address_step", "resolve", "refer", "error", nullptr};
    Py_ssize_t num_inputs = 0;
    unsigned long long step = 1;
    PyObject* choices = nullptr;
    PyObject* resolve = nullptr;
    PyObject* refer = nullptr;
    PyObject* error = nullptr;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "nO!KOOO", const_cast<char**>(keywords), &num_inputs, &PyTuple_Type, &choices, &step,
                                     &resolve, &refer, &error)) {
        return nullptr;
    }
    if (num_inputs < 1 || static_cast<std::size_t>(num_inputs) > kMaxInputs || step < 1) {
        PyErr_Format(PyExc_ValueError, "num_inputs must be in 1..%zu, and address_step at least 1", kMaxInputs);
        return nullptr;
    }
    auto* self = reinterpret_cast<Caller*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->vectorcall = call;
    self->num_inputs = static_cast<std::size_t>(num_inputs);
    self->address_step = step;
    self->plans = new std::unordered_map<std::string, Plan, KeyHash, std::equal_to<>>();
    self->choices = new std::vector<std::vector<PyObject*>>();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(choices); ++i) {
        std::vector<PyObject*> each;
        PyObject* row = PyTuple_GET_ITEM(choices, i);
        for (Py_ssize_t j = 0; PyTuple_Check(row) && j < PyTuple_GET_SIZE(row); ++j) each.push_back(Py_NewRef(PyTuple_GET_ITEM(row, j)));
        self->choices->push_back(std::move(each));
    }
    self->resolve = Py_NewRef(resolve);
    self->refer = Py_NewRef(refer);
    self->error = Py_NewRef(error);
    return reinterpret_cast<PyObject*>(self);
}

void free_caller(PyObject* object) {
    auto* self = reinterpret_cast<Caller*>(object);
    for (auto& [_, plan] : *self->plans) drop(plan);
    for (auto& row : *self->choices) {
        for (PyObject* each : row) Py_DECREF(each);
    }
    delete self->plans;
    delete self->choices;
    Py_XDECREF(self->resolve);
    Py_XDECREF(self->refer);
    Py_XDECREF(self->error);
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* count_plans(PyObject* object, PyObject*) { return PyLong_FromSize_t(reinterpret_cast<Caller*>(object)->plans->size()); }

PyMemberDef caller_members[] = {{"__vectorcalloffset__", T_PYSSIZET, offsetof(Caller, vectorcall), READONLY, nullptr}, {}};
PyMethodDef caller_methods[] = {{"count_plans", count_plans, METH_NOARGS, "The number of plans that are kept."}, {}};
PyType_Slot caller_slots[] = {{Py_tp_new, reinterpret_cast<void*>(make_caller)},
                              {Py_tp_dealloc, reinterpret_cast<void*>(free_caller)},
                              {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
                              {Py_tp_members, caller_members},
                              {Py_tp_methods, caller_methods},
                              {Py_tp_doc, const_cast<char*>("One op's calls: inputs and attributes by position; see calls.cpp.")},
                              {0, nullptr}};
PyType_Spec caller_spec = {"_aicf_calls.Caller", sizeof(Caller), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL, caller_slots};

// ---------------------------------------------------------------- register_type

const DLPackExchangeAPI* find_api(PyObject* type) {
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

PyObject* register_type(PyObject*, PyObject* arguments, PyObject* names) {
    static const char* keywords[] = {"type",           "address_path", "shape",       "strides", "dtype",
                                     "current_stream", "is_tracked",   "is_tracking", nullptr};
    PyObject* type = nullptr;
    PyObject* path = nullptr;
    ArrayType made;
    if (!PyArg_ParseTupleAndKeywords(arguments, names, "O!|O!OOOOOO", const_cast<char**>(keywords), &PyType_Type, &type, &PyTuple_Type,
                                     &path, &made.shape, &made.strides, &made.dtype, &made.current_stream, &made.is_tracked,
                                     &made.is_tracking)) {
        return nullptr;
    }
    made.type = reinterpret_cast<PyTypeObject*>(type);
    for (const ArrayType& each : array_types()) {
        if (each.type == made.type) Py_RETURN_TRUE;
    }
    made.api = path == nullptr ? find_api(type) : nullptr;
    if (path == nullptr && made.api == nullptr) Py_RETURN_FALSE;
    for (PyObject** each : {&made.shape, &made.strides, &made.dtype, &made.current_stream, &made.is_tracked, &made.is_tracking}) {
        if (*each == Py_None) *each = nullptr;
        Py_XINCREF(*each);  // types stay registered until the process ends
    }
    for (Py_ssize_t i = 0; path != nullptr && i < PyTuple_GET_SIZE(path); ++i) {
        made.address_path.push_back(Py_NewRef(PyTuple_GET_ITEM(path, i)));
    }
    Py_INCREF(type);
    array_types().push_back(std::move(made));
    Py_RETURN_TRUE;
}

PyMethodDef module_methods[] = {
    {"register_type", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(register_type)), METH_VARARGS | METH_KEYWORDS,
     "Make an array type known; False where it has no exchange API and no attributes were named."},
    {}};
PyModuleDef module_definition = {PyModuleDef_HEAD_INIT, "_aicf_calls", "Lean calls of frozen kernels.", -1, module_methods};

}  // namespace

PyMODINIT_FUNC PyInit__aicf_calls() {
    PyObject* module = PyModule_Create(&module_definition);
    if (module == nullptr) return nullptr;
    PyObject* type = PyType_FromSpec(&caller_spec);
    if (type == nullptr || PyModule_AddObjectRef(module, "Caller", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(module);
        return nullptr;
    }
    Py_DECREF(type);
    return module;
}

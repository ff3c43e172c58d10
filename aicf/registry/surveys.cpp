// Times predicted from a survey: the sums of docs/frozen.md, in the order of the generated C dispatcher, so that both find the same bits.
//
// A Predictor is one survey's. It holds the kernels' tiles, rates and weights; by setting of the attributes the rates of arithmetic and
// which sizes each input's shape names; and by group the problems that were measured, with how far the model was off on each.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace {

constexpr std::size_t kMaxSizes = 8, kMaxKernels = 64, kMaxReads = 8, kNumTerms = 5;
constexpr double kNear = 0.3, kModelSay = 1.0;

struct Setting {
    std::vector<double> flops_per_s;      // by kernel, 0: not known
    std::vector<std::uint64_t> shapes;    // by input, a bit for each size that its shape names
};

struct Group {
    std::vector<double> logs;      // [points, sizes]
    std::vector<double> errors;    // [points, kernels], NaN: not measured
};

struct Call {
    std::array<std::int64_t, kMaxSizes> sizes;
    double flops, bytes;
    std::array<double, kMaxReads> reads;
    std::size_t num_reads;
    const Setting* setting;
};

struct Model {
    std::size_t num_sizes, num_kernels;
    double l2_bytes_per_s;
    std::vector<std::int64_t> edges;  // [kernels, sizes], 0: none
    std::vector<double> slots;
    std::vector<double> bytes_per_s;
    std::vector<double> weights;  // [kernels, terms]
    std::vector<Setting> settings;
    std::vector<Group> groups;
};

struct Predictor {
    PyObject_HEAD Model model;
};

Model& model_of(PyObject* object) { return reinterpret_cast<Predictor*>(object)->model; }

template <typename T>
bool read_numbers(const Py_buffer& buffer, std::size_t count, const char* what, std::vector<T>& found) {
    if (static_cast<std::size_t>(buffer.len) != count * sizeof(T)) {
        PyErr_Format(PyExc_ValueError, "%s: %zd bytes, must be %zu numbers", what, buffer.len, count);
        return false;
    }
    found.resize(count);
    if (count > 0) std::memcpy(found.data(), buffer.buf, count * sizeof(T));
    return true;
}

// Releases what PyArg_ParseTuple acquired.
struct Buffer : Py_buffer {
    Buffer() : Py_buffer{} {}
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { PyBuffer_Release(this); }
};

void destroy(PyObject* object) {
    model_of(object).~Model();
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    Py_ssize_t num_sizes, num_kernels;
    Buffer edges, slots, bytes_per_s, weights;
    double l2;
    if (!PyArg_ParseTuple(arguments, "nny*y*y*dy*", &num_sizes, &num_kernels, &edges, &slots, &bytes_per_s, &l2, &weights)) return nullptr;
    if (num_sizes < 1 || num_sizes > static_cast<Py_ssize_t>(kMaxSizes) || num_kernels < 1 ||
        num_kernels > static_cast<Py_ssize_t>(kMaxKernels)) {
        return PyErr_Format(PyExc_ValueError, "%zd sizes and %zd kernels: there may be 1 to %zu and 1 to %zu", num_sizes, num_kernels,
                            kMaxSizes, kMaxKernels);
    }
    PyObject* object = type->tp_alloc(type, 0);
    if (object == nullptr) return nullptr;
    const auto count = static_cast<std::size_t>(num_kernels);
    Model& model = *new (&model_of(object)) Model{static_cast<std::size_t>(num_sizes), count, l2, {}, {}, {}, {}, {}, {}};
    if (!read_numbers(edges, count * model.num_sizes, "edges", model.edges) || !read_numbers(slots, count, "slots", model.slots) ||
        !read_numbers(bytes_per_s, count, "bytes_per_s", model.bytes_per_s) ||
        !read_numbers(weights, count * kNumTerms, "weights", model.weights)) {
        Py_DECREF(object);
        return nullptr;
    }
    return object;
}

PyObject* add_setting(PyObject* object, PyObject* arguments) {
    Model& model = model_of(object);
    Buffer rates, shapes;
    if (!PyArg_ParseTuple(arguments, "y*y*", &rates, &shapes)) return nullptr;
    Setting made;
    const std::size_t num_reads = static_cast<std::size_t>(shapes.len) / sizeof(std::uint64_t);
    if (num_reads > kMaxReads) return PyErr_Format(PyExc_ValueError, "shapes: %zu inputs, there may be %zu", num_reads, kMaxReads);
    if (!read_numbers(rates, model.num_kernels, "rates", made.flops_per_s) || !read_numbers(shapes, num_reads, "shapes", made.shapes))
        return nullptr;
    model.settings.push_back(std::move(made));
    return PyLong_FromSize_t(model.settings.size() - 1);
}

PyObject* add_group(PyObject* object, PyObject* arguments) {
    Model& model = model_of(object);
    Py_ssize_t num_points;
    Buffer logs, errors;
    if (!PyArg_ParseTuple(arguments, "ny*y*", &num_points, &logs, &errors)) return nullptr;
    if (num_points < 0) return PyErr_Format(PyExc_ValueError, "%zd points", num_points);
    Group made;
    const auto count = static_cast<std::size_t>(num_points);
    if (!read_numbers(logs, count * model.num_sizes, "logs", made.logs) ||
        !read_numbers(errors, count * model.num_kernels, "errors", made.errors)) {
        return nullptr;
    }
    model.groups.push_back(std::move(made));
    return PyLong_FromSize_t(model.groups.size() - 1);
}

bool read_call(const Model& model, PyObject* sizes, PyObject* reads, Py_ssize_t setting, Call& call) {
    if (!PyTuple_Check(sizes) || static_cast<std::size_t>(PyTuple_GET_SIZE(sizes)) != model.num_sizes || !PyTuple_Check(reads)) {
        PyErr_Format(PyExc_ValueError, "sizes and reads must be tuples, the former of %zu numbers", model.num_sizes);
        return false;
    }
    if (setting < 0 || static_cast<std::size_t>(setting) >= model.settings.size()) {
        PyErr_Format(PyExc_IndexError, "setting %zd: there are %zu", setting, model.settings.size());
        return false;
    }
    call.setting = &model.settings[static_cast<std::size_t>(setting)];
    call.num_reads = call.setting->shapes.size();
    if (static_cast<std::size_t>(PyTuple_GET_SIZE(reads)) < call.num_reads) {
        PyErr_Format(PyExc_ValueError, "reads: %zd numbers, must be %zu", PyTuple_GET_SIZE(reads), call.num_reads);
        return false;
    }
    for (std::size_t i = 0; i < model.num_sizes; ++i) {
        call.sizes[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, static_cast<Py_ssize_t>(i)));
        if (call.sizes[i] < 1) {
            if (PyErr_Occurred() == nullptr) PyErr_SetString(PyExc_ValueError, "sizes must be at least 1");
            return false;
        }
    }
    for (std::size_t i = 0; i < call.num_reads; ++i) call.reads[i] = PyFloat_AsDouble(PyTuple_GET_ITEM(reads, static_cast<Py_ssize_t>(i)));
    return PyErr_Occurred() == nullptr;
}

// A launch (1 us), the waves of blocks, their arithmetic with what tiles pad, the least traffic of memory, what tiles read; in
// microseconds.
std::array<double, kNumTerms> find_terms(const Model& model, const Call& call, std::size_t kernel) {
    const std::int64_t* edges = model.edges.data() + kernel * model.num_sizes;
    const double slots = model.slots[kernel];
    std::array<double, kMaxSizes> steps{};
    double blocks = 1.0, share = 1.0;
    for (std::size_t i = 0; i < model.num_sizes; ++i) {
        const std::int64_t size = call.sizes[i], edge = edges[i];
        steps[i] = edge > 0 ? static_cast<double>(size / edge + (size % edge != 0)) : 1.0;
        if (edge > 0) share = share * (static_cast<double>(edge) / static_cast<double>(size));
        blocks = blocks * steps[i];
    }
    const double waves = std::ceil(blocks / slots);
    const double rate = call.setting->flops_per_s[kernel];
    const double compute = rate > 0.0 ? call.flops * share / rate * (waves * slots) * 1e6 : 0.0;
    const double memory = call.bytes / model.bytes_per_s[kernel] * 1e6;
    double tiles = 0.0;
    if (model.l2_bytes_per_s > 0.0) {
        for (std::size_t i = 0; i < call.num_reads; ++i) {
            double bytes = call.reads[i];
            for (std::size_t size = 0; size < model.num_sizes; ++size) {
                if (edges[size] > 0 && (call.setting->shapes[i] >> size & 1) == 0) bytes = bytes * steps[size];
            }
            tiles = tiles + bytes;
        }
        tiles = tiles / model.l2_bytes_per_s * 1e6;
    }
    return {1.0, waves, compute, memory, tiles};
}

PyObject* terms(PyObject* object, PyObject* arguments) {
    Model& model = model_of(object);
    PyObject *sizes, *reads;
    Call call{};
    Py_ssize_t setting;
    if (!PyArg_ParseTuple(arguments, "OddOn", &sizes, &call.flops, &call.bytes, &reads, &setting)) return nullptr;
    if (!read_call(model, sizes, reads, setting, call)) return nullptr;
    PyObject* found = PyList_New(static_cast<Py_ssize_t>(model.num_kernels));
    for (std::size_t k = 0; found != nullptr && k < model.num_kernels; ++k) {
        const auto t = find_terms(model, call, k);
        PyObject* row = Py_BuildValue("(ddddd)", t[0], t[1], t[2], t[3], t[4]);
        if (row == nullptr)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, static_cast<Py_ssize_t>(k), row);
    }
    return found;
}

PyObject* predict(PyObject* object, PyObject* arguments) {
    Model& model = model_of(object);
    PyObject *sizes, *reads;
    Call call{};
    Py_ssize_t setting, group;
    if (!PyArg_ParseTuple(arguments, "OddOnn", &sizes, &call.flops, &call.bytes, &reads, &setting, &group)) return nullptr;
    if (!read_call(model, sizes, reads, setting, call)) return nullptr;
    const std::size_t count = model.num_kernels;
    std::array<double, kMaxKernels> off{}, says{};
    if (group >= 0 && static_cast<std::size_t>(group) < model.groups.size()) {
        const Group& near_by = model.groups[static_cast<std::size_t>(group)];
        std::array<double, kMaxSizes> logs{};
        for (std::size_t i = 0; i < model.num_sizes; ++i) logs[i] = std::log2(static_cast<double>(call.sizes[i]));
        for (std::size_t p = 0; p * count < near_by.errors.size(); ++p) {
            double distance = kNear;
            for (std::size_t i = 0; i < model.num_sizes; ++i) {
                const double difference = near_by.logs[p * model.num_sizes + i] - logs[i];
                distance = distance + difference * difference;
            }
            const double say = 1.0 / (distance * distance);
            for (std::size_t k = 0; k < count; ++k) {
                const double error = near_by.errors[p * count + k];
                if (std::isnan(error)) continue;
                off[k] = off[k] + say * error;
                says[k] = says[k] + say;
            }
        }
    }
    PyObject* found = PyList_New(static_cast<Py_ssize_t>(count));
    for (std::size_t k = 0; found != nullptr && k < count; ++k) {
        const auto t = find_terms(model, call, k);
        const double* w = model.weights.data() + k * kNumTerms;
        const double modelled = w[0] + t[1] * w[1] + t[2] * w[2] + t[3] * w[3] + t[4] * w[4];
        PyObject* us = PyFloat_FromDouble(modelled * (1.0 + off[k] / (kModelSay + says[k])));
        if (us == nullptr)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, static_cast<Py_ssize_t>(k), us);
    }
    return found;
}

PyMethodDef methods[] = {
    {"add_setting", add_setting, METH_VARARGS, "Add a setting of the attributes: rates by kernel, shapes by input; return its number."},
    {"add_group", add_group, METH_VARARGS,
     "Add measured problems: how many, log2 of their sizes, errors by kernel; return the group's number."},
    {"terms", terms, METH_VARARGS, "Return the terms of a call by kernel: (sizes, flops, bytes, reads, setting)."},
    {"predict", predict, METH_VARARGS, "Return microseconds of a call by kernel: (sizes, flops, bytes, reads, setting, group or -1)."},
    {},
};

PyType_Slot slots[] = {
    {Py_tp_new, reinterpret_cast<void*>(create)},
    {Py_tp_dealloc, reinterpret_cast<void*>(destroy)},
    {Py_tp_methods, methods},
    {},
};
PyType_Spec spec = {"_aicf_surveys.Predictor", sizeof(Predictor), 0, Py_TPFLAGS_DEFAULT, slots};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_aicf_surveys", "Times predicted from surveys.", -1, nullptr, {}, {}, {}, {}};

}  // namespace

PyMODINIT_FUNC PyInit__aicf_surveys() {
    PyObject* made = PyModule_Create(&module);
    if (made == nullptr) return nullptr;
    PyObject* type = PyType_FromSpec(&spec);
    if (type == nullptr || PyModule_AddObject(made, "Predictor", type) < 0) {
        Py_XDECREF(type);
        Py_DECREF(made);
        return nullptr;
    }
    return made;
}

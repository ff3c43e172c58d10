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

constexpr std::size_t max_sizes = 8, max_kernels = 64, max_reads = 8, num_terms = 5;
constexpr double near = 0.3, model_say = 1.0;

struct Setting {
    std::vector<double> flops_per_s;      // by kernel, 0: not known
    std::vector<std::uint64_t> shapes;    // by input, a bit for each size that its shape names
};

struct Group {
    std::vector<double> logs;      // [points, sizes]
    std::vector<double> errors;    // [points, kernels], NaN: not measured
};

struct Call {
    std::array<std::int64_t, max_sizes> sizes;
    double flops, bytes;
    std::array<double, max_reads> reads;
    std::size_t num_reads;
    const Setting* setting;
};

struct Predictor {
    PyObject_HEAD std::size_t num_sizes, num_kernels;
    double l2_bytes_per_s;
    std::vector<std::int64_t>* edges;    // [kernels, sizes], 0: none
    std::vector<double>* slots;
    std::vector<double>* bytes_per_s;
    std::vector<double>* weights;    // [kernels, terms]
    std::vector<Setting>* settings;
    std::vector<Group>* groups;
};

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
    auto* self = reinterpret_cast<Predictor*>(object);
    delete self->edges;
    delete self->slots;
    delete self->bytes_per_s;
    delete self->weights;
    delete self->settings;
    delete self->groups;
    PyTypeObject* type = Py_TYPE(object);
    type->tp_free(object);
    Py_DECREF(type);
}

PyObject* create(PyTypeObject* type, PyObject* arguments, PyObject*) {
    Py_ssize_t num_sizes, num_kernels;
    Buffer edges, slots, bytes_per_s, weights;
    double l2;
    if (!PyArg_ParseTuple(arguments, "nny*y*y*dy*", &num_sizes, &num_kernels, &edges, &slots, &bytes_per_s, &l2, &weights)) return nullptr;
    if (num_sizes < 1 || num_sizes > static_cast<Py_ssize_t>(max_sizes) || num_kernels < 1 ||
        num_kernels > static_cast<Py_ssize_t>(max_kernels)) {
        return PyErr_Format(PyExc_ValueError, "%zd sizes and %zd kernels: there may be 1 to %zu and 1 to %zu", num_sizes, num_kernels,
                            max_sizes, max_kernels);
    }
    auto* self = reinterpret_cast<Predictor*>(type->tp_alloc(type, 0));
    if (self == nullptr) return nullptr;
    self->num_sizes = static_cast<std::size_t>(num_sizes);
    self->num_kernels = static_cast<std::size_t>(num_kernels);
    self->l2_bytes_per_s = l2;
    self->edges = new std::vector<std::int64_t>;
    self->slots = new std::vector<double>;
    self->bytes_per_s = new std::vector<double>;
    self->weights = new std::vector<double>;
    self->settings = new std::vector<Setting>;
    self->groups = new std::vector<Group>;
    const std::size_t count = self->num_kernels;
    if (!read_numbers(edges, count * self->num_sizes, "edges", *self->edges) || !read_numbers(slots, count, "slots", *self->slots) ||
        !read_numbers(bytes_per_s, count, "bytes_per_s", *self->bytes_per_s) ||
        !read_numbers(weights, count * num_terms, "weights", *self->weights)) {
        Py_DECREF(self);
        return nullptr;
    }
    return reinterpret_cast<PyObject*>(self);
}

PyObject* add_setting(PyObject* object, PyObject* arguments) {
    auto* self = reinterpret_cast<Predictor*>(object);
    Buffer rates, shapes;
    if (!PyArg_ParseTuple(arguments, "y*y*", &rates, &shapes)) return nullptr;
    Setting made;
    const std::size_t num_reads = static_cast<std::size_t>(shapes.len) / sizeof(std::uint64_t);
    if (num_reads > max_reads) return PyErr_Format(PyExc_ValueError, "shapes: %zu inputs, there may be %zu", num_reads, max_reads);
    if (!read_numbers(rates, self->num_kernels, "rates", made.flops_per_s) || !read_numbers(shapes, num_reads, "shapes", made.shapes))
        return nullptr;
    self->settings->push_back(std::move(made));
    return PyLong_FromSize_t(self->settings->size() - 1);
}

PyObject* add_group(PyObject* object, PyObject* arguments) {
    auto* self = reinterpret_cast<Predictor*>(object);
    Py_ssize_t num_points;
    Buffer logs, errors;
    if (!PyArg_ParseTuple(arguments, "ny*y*", &num_points, &logs, &errors)) return nullptr;
    if (num_points < 0) return PyErr_Format(PyExc_ValueError, "%zd points", num_points);
    Group made;
    const auto count = static_cast<std::size_t>(num_points);
    if (!read_numbers(logs, count * self->num_sizes, "logs", made.logs) ||
        !read_numbers(errors, count * self->num_kernels, "errors", made.errors)) {
        return nullptr;
    }
    self->groups->push_back(std::move(made));
    return PyLong_FromSize_t(self->groups->size() - 1);
}

bool read_call(const Predictor& self, PyObject* sizes, PyObject* reads, Py_ssize_t setting, Call& call) {
    if (!PyTuple_Check(sizes) || static_cast<std::size_t>(PyTuple_GET_SIZE(sizes)) != self.num_sizes || !PyTuple_Check(reads)) {
        PyErr_Format(PyExc_ValueError, "sizes and reads must be tuples, the former of %zu numbers", self.num_sizes);
        return false;
    }
    if (setting < 0 || static_cast<std::size_t>(setting) >= self.settings->size()) {
        PyErr_Format(PyExc_IndexError, "setting %zd: there are %zu", setting, self.settings->size());
        return false;
    }
    call.setting = &(*self.settings)[static_cast<std::size_t>(setting)];
    call.num_reads = call.setting->shapes.size();
    if (static_cast<std::size_t>(PyTuple_GET_SIZE(reads)) < call.num_reads) {
        PyErr_Format(PyExc_ValueError, "reads: %zd numbers, must be %zu", PyTuple_GET_SIZE(reads), call.num_reads);
        return false;
    }
    for (std::size_t i = 0; i < self.num_sizes; ++i) {
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
std::array<double, num_terms> find_terms(const Predictor& self, const Call& call, std::size_t kernel) {
    const std::int64_t* edges = self.edges->data() + kernel * self.num_sizes;
    const double slots = (*self.slots)[kernel];
    std::array<double, max_sizes> steps{};
    double blocks = 1.0, share = 1.0;
    for (std::size_t i = 0; i < self.num_sizes; ++i) {
        const std::int64_t size = call.sizes[i], edge = edges[i];
        steps[i] = edge > 0 ? static_cast<double>(size / edge + (size % edge != 0)) : 1.0;
        if (edge > 0) share = share * (static_cast<double>(edge) / static_cast<double>(size));
        blocks = blocks * steps[i];
    }
    const double waves = std::ceil(blocks / slots);
    const double rate = call.setting->flops_per_s[kernel];
    const double compute = rate > 0.0 ? call.flops * share / rate * (waves * slots) * 1e6 : 0.0;
    const double memory = call.bytes / (*self.bytes_per_s)[kernel] * 1e6;
    double tiles = 0.0;
    if (self.l2_bytes_per_s > 0.0) {
        for (std::size_t i = 0; i < call.num_reads; ++i) {
            double repeats = 1.0;
            for (std::size_t size = 0; size < self.num_sizes; ++size) {
                if (edges[size] > 0 && (call.setting->shapes[i] >> size & 1) == 0) repeats = repeats * steps[size];
            }
            tiles = tiles + call.reads[i] * repeats;
        }
        tiles = tiles / self.l2_bytes_per_s * 1e6;
    }
    return {1.0, waves, compute, memory, tiles};
}

PyObject* terms(PyObject* object, PyObject* arguments) {
    auto* self = reinterpret_cast<Predictor*>(object);
    PyObject *sizes, *reads;
    Call call{};
    Py_ssize_t setting;
    if (!PyArg_ParseTuple(arguments, "OddOn", &sizes, &call.flops, &call.bytes, &reads, &setting)) return nullptr;
    if (!read_call(*self, sizes, reads, setting, call)) return nullptr;
    PyObject* found = PyList_New(static_cast<Py_ssize_t>(self->num_kernels));
    for (std::size_t k = 0; found != nullptr && k < self->num_kernels; ++k) {
        const auto t = find_terms(*self, call, k);
        PyObject* row = Py_BuildValue("(ddddd)", t[0], t[1], t[2], t[3], t[4]);
        if (row == nullptr)
            Py_CLEAR(found);
        else
            PyList_SET_ITEM(found, static_cast<Py_ssize_t>(k), row);
    }
    return found;
}

PyObject* predict(PyObject* object, PyObject* arguments) {
    auto* self = reinterpret_cast<Predictor*>(object);
    PyObject *sizes, *reads;
    Call call{};
    Py_ssize_t setting, group;
    if (!PyArg_ParseTuple(arguments, "OddOnn", &sizes, &call.flops, &call.bytes, &reads, &setting, &group)) return nullptr;
    if (!read_call(*self, sizes, reads, setting, call)) return nullptr;
    const std::size_t count = self->num_kernels;
    std::array<double, max_kernels> off{}, says{};
    if (group >= 0 && static_cast<std::size_t>(group) < self->groups->size()) {
        const Group& near_by = (*self->groups)[static_cast<std::size_t>(group)];
        std::array<double, max_sizes> logs{};
        for (std::size_t i = 0; i < self->num_sizes; ++i) logs[i] = std::log2(static_cast<double>(call.sizes[i]));
        for (std::size_t p = 0; p * count < near_by.errors.size(); ++p) {
            double distance = near;
            for (std::size_t i = 0; i < self->num_sizes; ++i) {
                const double difference = near_by.logs[p * self->num_sizes + i] - logs[i];
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
        const auto t = find_terms(*self, call, k);
        const double* w = self->weights->data() + k * num_terms;
        const double model = w[0] + t[1] * w[1] + t[2] * w[2] + t[3] * w[3] + t[4] * w[4];
        PyObject* us = PyFloat_FromDouble(model * (1.0 + off[k] / (model_say + says[k])));
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

// What every op's pybind.cpp shares: device arrays from Python as checked views, and a variant's entry points from its library.
//
// No CUDA header and no framework's: arrays come through __cuda_array_interface__ (version 2 or 3). Ordering is the caller's: work is
// queued on the stream that is passed to launch, and an array's own `stream` entry is not waited for.
#pragma once

#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/status.h"

struct CUstream_st;

namespace aicf {

namespace py = pybind11;

// A device array: address, extents and strides in elements, outermost first.
struct ArrayView {
    std::uint64_t address = 0;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides;

    template <class T>
    T* data() const {
        return reinterpret_cast<T*>(static_cast<std::uintptr_t>(address));
    }
};

// What an op asks of an array argument. Each -1 in `shape` accepts any extent.
struct ArraySpec {
    const char* name;
    const char* typestr;  // NumPy's, e.g. "<f4"
    std::vector<std::int64_t> shape;
    bool is_output = false;
};

inline std::string format_extents(const std::vector<std::int64_t>& extents) {
    std::string text = "(";
    for (std::size_t i = 0; i < extents.size(); ++i) {
        if (i > 0) text += ", ";
        text += extents[i] < 0 ? "*" : std::to_string(extents[i]);
    }
    return text + (extents.size() == 1 ? ",)" : ")");
}

[[noreturn]] inline void throw_type_error(const std::string& message) { throw py::type_error(message); }
[[noreturn]] inline void throw_value_error(const std::string& message) { throw py::value_error(message); }

inline std::vector<std::int64_t> read_extents(const char* name, const py::handle& values, const char* key) {
    if (!py::isinstance<py::sequence>(values))
        throw_type_error(std::string(name) + ": __cuda_array_interface__['" + key + "'] is no sequence");
    std::vector<std::int64_t> extents;
    for (const auto& value : py::reinterpret_borrow<py::sequence>(values)) extents.push_back(value.cast<std::int64_t>());
    return extents;
}

inline std::int64_t find_item_bytes(const char* typestr) { return std::stoll(typestr + 2); }

// Strides in elements, from the interface's bytes (or row-major where it has none).
inline std::vector<std::int64_t> read_strides(const ArraySpec& spec, const py::dict& interface, const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> strides(shape.size());
    if (!interface.contains("strides") || interface["strides"].is_none()) {
        std::int64_t step = 1;
        for (std::size_t i = shape.size(); i-- > 0;) {
            strides[i] = step;
            step *= shape[i];
        }
        return strides;
    }
    const auto bytes = read_extents(spec.name, interface["strides"], "strides");
    if (bytes.size() != shape.size()) {
        throw_value_error(std::string(spec.name) + ": expected as many strides as dimensions, " + std::to_string(shape.size()) + ", got " +
                          std::to_string(bytes.size()));
    }
    const std::int64_t item = find_item_bytes(spec.typestr);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] % item != 0) {
            throw_value_error(std::string(spec.name) + ": expected strides in whole elements of " + std::to_string(item) + " bytes, got " +
                              format_extents(bytes) + " bytes");
        }
        strides[i] = bytes[i] / item;
    }
    return strides;
}

inline void check_shape(const ArraySpec& spec, const std::vector<std::int64_t>& shape) {
    const bool same_rank = shape.size() == spec.shape.size();
    if (!same_rank) {
        throw_value_error(std::string(spec.name) + ": expected " + std::to_string(spec.shape.size()) + " dimensions " +
                          format_extents(spec.shape) + ", got shape " + format_extents(shape));
    }
    for (std::size_t i = 0; i < shape.size(); ++i) {
        if (shape[i] < 1)
            throw_value_error(std::string(spec.name) + ": expected extents of at least 1, got shape " + format_extents(shape));
        if (spec.shape[i] >= 0 && spec.shape[i] != shape[i]) {
            throw_value_error(std::string(spec.name) + ": expected shape " + format_extents(spec.shape) + ", got " + format_extents(shape));
        }
    }
}

// Rows must be contiguous and apart. Where only one row or one element exists, its stride says nothing and is set to the row-major one.
inline void check_rows(const ArraySpec& spec, const std::vector<std::int64_t>& shape, std::vector<std::int64_t>& strides) {
    const std::size_t last = shape.size() - 1;
    if (shape[last] == 1) strides[last] = 1;
    if (strides[last] != 1) {
        throw_value_error(std::string(spec.name) + ": expected contiguous rows (last stride 1 element), got strides " +
                          format_extents(strides) + " elements; pass a contiguous copy");
    }
    std::int64_t row = shape[last];
    for (std::size_t i = last; i-- > 0;) {
        if (shape[i] == 1) strides[i] = strides[i] < row ? row : strides[i];
        if (strides[i] < row) {
            throw_value_error(std::string(spec.name) + ": expected row-major rows that do not overlap (stride at least " +
                              std::to_string(row) + " elements in dimension " + std::to_string(i) + "), got strides " +
                              format_extents(strides) + " elements");
        }
        row = strides[i] * shape[i];
    }
}

// Reads and checks one array argument. TypeError: no device array, or another dtype. ValueError: shape, strides, alignment, read-only.
inline ArrayView read_array(const ArraySpec& spec, const py::object& array) {
    const std::string name = spec.name;
    const py::object attribute = py::getattr(array, "__cuda_array_interface__", py::none());  // made anew each time it is asked for
    if (attribute.is_none()) {
        throw_type_error(name + ": expected a device array (with __cuda_array_interface__), got " +
                         py::str(py::type::of(array).attr("__name__")).cast<std::string>());
    }
    if (!py::isinstance<py::dict>(attribute)) throw_type_error(name + ": __cuda_array_interface__ is no dict");
    const auto interface = attribute.cast<py::dict>();
    for (const char* key : {"version", "shape", "typestr", "data"}) {
        if (!interface.contains(key)) throw_type_error(name + ": __cuda_array_interface__ lacks '" + key + "'");
    }
    const int version = interface["version"].cast<int>();
    if (version < 2) throw_type_error(name + ": expected __cuda_array_interface__ version 2 or 3, got " + std::to_string(version));
    if (interface.contains("mask") && !interface["mask"].is_none()) throw_type_error(name + ": masked arrays are not supported");
    const auto typestr = interface["typestr"].cast<std::string>();
    if (typestr != spec.typestr) throw_type_error(name + ": expected dtype " + spec.typestr + ", got " + typestr);

    ArrayView view;
    view.shape = read_extents(spec.name, interface["shape"], "shape");
    check_shape(spec, view.shape);
    view.strides = read_strides(spec, interface, view.shape);
    const auto data = interface["data"].cast<py::tuple>();
    if (data.size() != 2) throw_type_error(name + ": __cuda_array_interface__['data'] is no pair of address and read-only flag");
    view.address = data[0].cast<std::uint64_t>();
    if (view.address == 0) throw_value_error(name + ": expected a device address, got 0");
    const std::int64_t item = find_item_bytes(spec.typestr);
    if (view.address % static_cast<std::uint64_t>(item) != 0) {
        throw_value_error(name + ": expected an address aligned to " + std::to_string(item) + " bytes, got " +
                          std::to_string(view.address));
    }
    if (spec.is_output && data[1].cast<bool>()) throw_value_error(name + ": expected a writable array, got a read-only one");
    return view;
}

// The same, of an array of contiguous rows.
inline ArrayView view_array(const ArraySpec& spec, const py::object& array) {
    ArrayView view = read_array(spec, array);
    check_rows(spec, view.shape, view.strides);
    return view;
}

inline std::optional<ArrayView> view_optional_array(const ArraySpec& spec, const py::object& array) {
    if (array.is_none()) return std::nullopt;
    return view_array(spec, array);
}

// The entry points of one variant. Its library stays loaded until the process ends: graphs and streams may still refer to its kernels.
template <class Params>
class VariantLibrary {
public:
    VariantLibrary(const std::string& op, const std::string& library, const std::string& symbol_suffix) : name_(op + " " + symbol_suffix) {
        handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle_ == nullptr) throw py::import_error(name_ + ": cannot load " + library + ": " + dlerror());
        supports_ = find_symbol<Supports>(library, op + "_supports__" + symbol_suffix);
        workspace_bytes_ = find_symbol<WorkspaceBytes>(library, op + "_workspace_bytes__" + symbol_suffix);
        launch_ = find_symbol<Launch>(library, op + "_launch__" + symbol_suffix);
    }

    // "" when the variant serves the problem, else the reason why not.
    std::string supports(const Params& params) const {
        const AicfStatus status = supports_(&params);
        if (status.code == AICF_UNSUPPORTED) return status.reason;
        throw_unless_ok(status);
        return "";
    }

    std::size_t workspace_bytes(const Params& params) const {
        std::size_t bytes = 0;
        throw_unless_ok(workspace_bytes_(&params, &bytes));
        return bytes;
    }

    void launch(const Params& params, std::uint64_t workspace, std::uint64_t stream) const {
        if (workspace == 0) {
            const std::size_t needed = workspace_bytes(params);
            if (needed > 0)
                throw_value_error("workspace: expected the address of " + std::to_string(needed) + " bytes of device memory, got 0");
        }
        AicfStatus status;
        {
            const py::gil_scoped_release release;
            status = launch_(&params, reinterpret_cast<void*>(static_cast<std::uintptr_t>(workspace)),
                             reinterpret_cast<CUstream_st*>(static_cast<std::uintptr_t>(stream)));
        }
        throw_unless_ok(status);
    }

private:
    using Supports = AicfStatus (*)(const Params*);
    using WorkspaceBytes = AicfStatus (*)(const Params*, std::size_t*);
    using Launch = AicfStatus (*)(const Params*, void*, CUstream_st*);

    template <class Function>
    Function find_symbol(const std::string& library, const std::string& symbol) const {
        void* const address = dlsym(handle_, symbol.c_str());
        if (address == nullptr) throw py::import_error(name_ + ": " + library + " has no symbol " + symbol + "; rebuild the variant");
        return reinterpret_cast<Function>(address);
    }

    void throw_unless_ok(const AicfStatus& status) const {
        if (status.code == AICF_OK) return;
        if (status.code == AICF_INVALID || status.code == AICF_UNSUPPORTED) throw_value_error(name_ + ": " + status.reason);
        throw std::runtime_error(name_ + ": " + status.reason);
    }

    std::string name_;
    void* handle_ = nullptr;
    Supports supports_ = nullptr;
    WorkspaceBytes workspace_bytes_ = nullptr;
    Launch launch_ = nullptr;
};

// What a launch is made of.
template <class Params>
struct QueuedCall {
    Params params;
    std::uint64_t workspace, stream;
};

template <class Params>
QueuedCall<Params> read_call(Params (*read)(const py::kwargs&), const py::kwargs& arguments, const char* function) {
    const py::dict rest = arguments.attr("copy")();
    for (const char* key : {"workspace", "stream"}) {
        if (!rest.contains(key)) throw_type_error(std::string(function) + ": keyword argument '" + key + "' is missing");
    }
    const auto workspace = rest.attr("pop")("workspace").cast<std::uint64_t>();
    const auto stream = rest.attr("pop")("stream").cast<std::uint64_t>();
    return {read(py::reinterpret_borrow<py::kwargs>(rest)), workspace, stream};
}

// Registers class Variant(library, symbol_suffix) with the calls that harness.spec.Launchable asks for. `read` turns the keyword
// arguments of a call, all of them and no others, into the op's Params.
template <class Params>
void bind_variant(py::module_& module, const char* op, Params (*read)(const py::kwargs&)) {
    using Library = VariantLibrary<Params>;
    // module_local: a process may hold this op's binding twice, before and after a rebuild.
    py::class_<Library>(module, "Variant", py::module_local(), "A compiled variant: its entry points, loaded from a shared library.")
        .def(py::init([op](const std::string& library, const std::string& symbol_suffix) { return Library(op, library, symbol_suffix); }),
             py::arg("library"), py::arg("symbol_suffix"))
        .def(
            "supports", [read](const Library& self, const py::kwargs& arguments) { return self.supports(read(arguments)); },
            "Return \"\" when the problem is served, else the reason why not.")
        .def(
            "workspace_bytes", [read](const Library& self, const py::kwargs& arguments) { return self.workspace_bytes(read(arguments)); },
            "Return the device memory in bytes that launch wants as workspace.")
        .def(
            "prepare",
            [read](const py::object& self, const py::kwargs& arguments) {
                const QueuedCall<Params> call = read_call(read, arguments, "prepare");
                const auto& library = self.cast<const Library&>();
                return py::cpp_function([self, &library, call] { library.launch(call.params, call.workspace, call.stream); });
            },
            "Return what queues the op as launch does, on these arguments, which are read once: for launches by the thousand. Nothing\n"
            "of the caller's is kept alive.")
        .def(
            "launch",
            [read](const Library& self, const py::kwargs& arguments) {
                const QueuedCall<Params> call = read_call(read, arguments, "launch");
                self.launch(call.params, call.workspace, call.stream);
            },
            "Queue the op on a stream (a cudaStream_t as an integer): no allocation, no synchronisation.");
}

// The value of a keyword argument; TypeError where it is missing.
inline py::object take_argument(const py::kwargs& arguments, const char* name) {
    if (!arguments.contains(name)) throw_type_error(std::string(name) + ": argument is missing");
    return arguments[name];
}

// Throws TypeError for a keyword argument that is not one of `known`: for bindings that read their arguments themselves.
inline void check_argument_names(const py::kwargs& arguments, const std::vector<const char*>& known) {
    for (const auto& [key, value] : arguments) {
        const auto name = key.cast<std::string>();
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        std::string list;
        for (const char* each : known) list += (list.empty() ? "" : ", ") + std::string(each);
        throw_type_error(name + ": unknown argument; there are: " + list);
    }
}

}  // namespace aicf

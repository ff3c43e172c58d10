// The Python module of the op that kOpModule names: keyword arguments into its Params, by data alone.
#include "common/op_module.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/binding.hpp"
#include "common/contract.hpp"

namespace aicf {
namespace {

template <class T>
void write_field(void* params, std::size_t offset, T value) {
    std::memcpy(static_cast<char*>(params) + offset, &value, sizeof value);
}

std::string join_names(const contract::Table<contract::Choice>& choices) {
    std::string list;
    for (const auto& choice : choices) list += (list.empty() ? "" : ", ") + std::string(choice.name);
    return list;
}

std::string name_type(const py::object& value) { return py::str(py::type::of(value).attr("__name__")).cast<std::string>(); }

std::int32_t read_attribute(const contract::AttributeField& attribute, const py::object& value) {
    const std::string name = attribute.name;
    if (attribute.kind == contract::AttributeField::kName) {
        if (!py::isinstance<py::str>(value)) throw_type_error(name + ": expected a str, got " + name_type(value));
        const auto text = value.cast<std::string>();
        for (const auto& choice : attribute.choices) {
            if (text == choice.name) return choice.code;
        }
        throw_value_error(name + ": expected one of " + join_names(attribute.choices) + ", got '" + text + "'");
    }
    const bool is_switch = attribute.kind == contract::AttributeField::kSwitch;
    const bool is_bool = py::isinstance<py::bool_>(value);
    if (is_switch && !is_bool) throw_type_error(name + ": expected a bool, got " + name_type(value));
    if (!is_switch && (is_bool || !py::isinstance<py::int_>(value))) throw_type_error(name + ": expected an int, got " + name_type(value));
    const auto number = value.cast<std::int64_t>();
    for (const auto& choice : attribute.choices) {
        if (number == choice.code) return choice.code;
    }
    throw_value_error(name + ": expected one of " + join_names(attribute.choices) + ", got " + std::to_string(number));
}

void read_scalar_argument(const contract::ScalarField& scalar, const py::object& value, void* params) {
    const std::string name = scalar.name;
    const bool is_whole = scalar.kind == contract::ScalarField::kInt32 || scalar.kind == contract::ScalarField::kInt64;
    const bool is_number =
        !py::isinstance<py::bool_>(value) && (PyIndex_Check(value.ptr()) != 0 || (!is_whole && py::hasattr(value, "__float__")));
    if (!is_number) throw_type_error(name + ": expected " + (is_whole ? "an int" : "a float") + ", got " + name_type(value));
    if (is_whole) {
        const auto number = py::reinterpret_steal<py::int_>(PyNumber_Index(value.ptr())).cast<std::int64_t>();
        if (scalar.kind == contract::ScalarField::kInt64) return write_field(params, scalar.offset, number);
        if (number < INT32_MIN || number > INT32_MAX) throw_value_error(name + ": " + std::to_string(number) + " does not fit 32 bits");
        return write_field(params, scalar.offset, static_cast<std::int32_t>(number));
    }
    const double number = py::float_(value);
    if (scalar.kind == contract::ScalarField::kDouble) return write_field(params, scalar.offset, number);
    write_field(params, scalar.offset, static_cast<float>(number));
}

// Which choice of an attribute is the dtype of an array.
std::int32_t read_dtype(const contract::AttributeField& attribute, const contract::TensorField& tensor, int index,
                        const py::object& array) {
    const std::string name = tensor.name;
    if (!py::hasattr(array, "__cuda_array_interface__")) {
        throw_type_error(name + ": expected a device array (with __cuda_array_interface__), got " + name_type(array));
    }
    const auto found = py::str(array.attr("__cuda_array_interface__")["typestr"]).cast<std::string>();
    std::string list;
    for (const auto& each : tensor.cases) {
        for (int i = 0; i < each.num_when; ++i) {
            if (each.when[i].attribute != index) continue;
            if (found == each.typestr) return each.when[i].code;
            list += (list.empty() ? "" : ", ") + std::string(each.typestr);
        }
    }
    throw_type_error(name + ": expected a dtype of " + list + ", got " + found);
}

// Strides of a tensor whose dimensions have their own; what one element alone spans says nothing, and is let through.
void check_own_strides(const contract::TensorField& tensor, const ArrayView& view) {
    const std::size_t rank = view.shape.size();
    for (std::size_t i = 0; i < rank; ++i) {
        if (view.shape[i] > 1 && view.strides[i] < 1) {
            throw_value_error(std::string(tensor.name) + ": expected strides of at least 1 element, got " + format_extents(view.strides));
        }
    }
    if (tensor.strides == contract::TensorField::kOuter && view.shape[rank - 1] > 1 && view.strides[rank - 1] != 1) {
        throw_value_error(std::string(tensor.name) + ": expected contiguous rows (last stride 1 element), got strides " +
                          format_extents(view.strides) + " elements; pass a contiguous copy");
    }
}

// Dimensions that have no stride in Params lie without gaps.
void check_packed(const contract::TensorField& tensor, const ArrayView& view) {
    std::int64_t step = 1;
    for (std::size_t i = view.shape.size(); i-- > 0;) {
        const bool is_free = tensor.stride_fields[i] != contract::kNoField;
        if (!is_free && view.shape[i] > 1 && view.strides[i] != step) {
            throw_value_error(std::string(tensor.name) + ": expected an array without gaps, got strides " + format_extents(view.strides) +
                              " elements; pass a contiguous copy");
        }
        step = (is_free ? view.strides[i] : step) * view.shape[i];
    }
}

void read_tensor_argument(const contract::Description& op, const contract::TensorField& tensor, const std::int32_t* codes,
                          const py::object& array, void* params) {
    const auto* found = contract::find_case(tensor, codes);
    if (found == nullptr || !found->is_present) {
        if (!array.is_none()) throw_value_error(std::string(tensor.name) + ": expected None, since these attributes have no such tensor");
        return;
    }
    ArraySpec spec = {tensor.name, found->typestr, {}, tensor.is_written()};
    for (int i = 0; i < found->rank; ++i) {
        const int dim = found->dims[i];
        const std::int64_t known = dim < 0 ? -dim : contract::read_field<std::int64_t>(params, op.sizes[dim].offset);
        spec.shape.push_back(known > 0 ? known : -1);
    }
    ArrayView view = read_array(spec, array);
    const bool is_strided = tensor.strides == contract::TensorField::kOuter || tensor.strides == contract::TensorField::kAny;
    if (is_strided) check_own_strides(tensor, view);
    if (!is_strided && found->rank > 0) {
        check_rows(spec, view.shape, view.strides);
        check_packed(tensor, view);
    }
    write_field(params, tensor.offset, view.data<void>());
    for (int i = 0; i < found->rank; ++i) {
        if (found->dims[i] >= 0) write_field(params, op.sizes[found->dims[i]].offset, view.shape[static_cast<std::size_t>(i)]);
        if (tensor.stride_fields[i] == contract::kNoField) continue;
        const auto stride = view.strides[static_cast<std::size_t>(i)];
        write_field(params, tensor.stride_fields[i], stride < 1 ? std::int64_t{1} : stride);
    }
}

// The names that a call may have, in order.
std::vector<const char*> list_arguments(const contract::Description& op) {
    std::vector<const char*> names;
    for (const auto& tensor : op.tensors) names.push_back(tensor.name);
    for (const auto& attribute : op.attributes) {
        if (attribute.source == contract::AttributeField::kPassed) names.push_back(attribute.name);
    }
    for (const auto& scalar : op.scalars) names.push_back(scalar.name);
    return names;
}

// Fills a Params struct that is all zero.
void read_arguments(const contract::Description& op, const py::kwargs& arguments, void* params) {
    check_argument_names(arguments, list_arguments(op));
    std::int32_t codes[contract::kMaxAttributes] = {};
    for (int i = 0; i < op.attributes.count; ++i) {
        const auto& attribute = op.attributes[i];
        const auto& tensor = op.tensors[attribute.tensor];
        if (attribute.source == contract::AttributeField::kPresent) {
            codes[i] = !take_argument(arguments, tensor.name).is_none();
            continue;
        }
        codes[i] = attribute.source == contract::AttributeField::kPassed
                       ? read_attribute(attribute, take_argument(arguments, attribute.name))
                       : read_dtype(attribute, tensor, i, take_argument(arguments, tensor.name));
        write_field(params, attribute.offset, codes[i]);
    }
    for (const auto& scalar : op.scalars) read_scalar_argument(scalar, take_argument(arguments, scalar.name), params);
    for (const auto& tensor : op.tensors) read_tensor_argument(op, tensor, codes, take_argument(arguments, tensor.name), params);
    for (const auto& size : op.sizes) {
        if (size.equal < 0 || contract::read_field<std::int64_t>(params, size.offset) > 0) continue;
        write_field(params, size.offset, contract::read_field<std::int64_t>(params, op.sizes[size.equal].offset));
    }
    StridedView views[contract::kMaxTensors];
    bool is_present[contract::kMaxTensors] = {};
    for (int i = 0; i < op.tensors.count; ++i) {
        const AicfStatus status = contract::read_tensor(op, op.tensors[i], params, codes, views[i], is_present[i]);
        if (!is_ok(status)) throw_value_error(status.reason);
    }
    const AicfStatus status = contract::check_overlap(op, views, is_present);
    if (!is_ok(status)) throw_value_error(status.reason);
}

// Params of any op.
struct AnyParams {
    static constexpr std::size_t kBytes = 1024;
    alignas(16) std::byte bytes[kBytes];
};

AnyParams read_params(const py::kwargs& arguments) {
    AnyParams params = {};
    read_arguments(kOpModule.op, arguments, &params);
    return params;
}

}  // namespace
}  // namespace aicf

PYBIND11_MODULE(_op, module) {
    module.doc() = aicf::kOpModule.doc;
    if (aicf::kOpModule.params_bytes > aicf::AnyParams::kBytes)
        throw std::length_error("Params are larger than AnyParams of common/op_module.cpp");
    aicf::bind_variant(module, aicf::kOpModule.op.op, aicf::read_params);
}

// Python binding of op softmax: checks of arguments, and their translation to SoftmaxParams.
#include "common/binding.hpp"
#include "softmax/api.hpp"

namespace {

namespace py = pybind11;

// x [rows, columns], y of the same shape.
SoftmaxParams read_params(const py::kwargs& arguments) {
    aicf::check_argument_names(arguments, {"x", "y"});
    const auto x = aicf::view_array({"x", "<f4", {-1, -1}}, aicf::take_argument(arguments, "x"));
    const auto y = aicf::view_array({"y", "<f4", {x.shape[0], x.shape[1]}, true}, aicf::take_argument(arguments, "y"));
    aicf::check_no_overlap("y", y, "x", x, sizeof(float));

    SoftmaxParams params = {};
    params.x = x.data<const float>();
    params.y = y.data<float>();
    params.rows = x.shape[0];
    params.columns = x.shape[1];
    params.ldx = x.strides[0];
    params.ldy = y.strides[0];
    return params;
}

}  // namespace

PYBIND11_MODULE(_softmax, module) {
    module.doc() = "Softmax over rows in fp32: variants loaded from shared libraries.";
    aicf::bind_variant<SoftmaxParams>(module, "softmax", read_params);
}

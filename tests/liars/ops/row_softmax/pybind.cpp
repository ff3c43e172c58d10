// Python binding of op row_softmax: checks of arguments, and their translation to RowSoftmaxParams.
#include "api.hpp"
#include "common/binding.hpp"

namespace {

// X [rows, columns], Y the same.
RowSoftmaxParams read_params(const pybind11::kwargs& arguments) {
    aicf::check_argument_names(arguments, {"x", "y"});
    const auto x = aicf::view_array({"x", "<f4", {-1, -1}}, aicf::take_argument(arguments, "x"));
    const auto y = aicf::view_array({"y", "<f4", {x.shape[0], x.shape[1]}, true}, aicf::take_argument(arguments, "y"));
    return {x.data<const float>(), y.data<float>(), x.shape[0], x.shape[1], x.strides[0], y.strides[0]};
}

}  // namespace

PYBIND11_MODULE(_row_softmax, module) {
    module.doc() = "softmax over rows in fp32, honest and not: variants loaded from shared libraries.";
    aicf::bind_variant<RowSoftmaxParams>(module, "row_softmax", read_params);
}

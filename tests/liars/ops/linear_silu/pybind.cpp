// Python binding of op linear_silu: checks of arguments, and their translation to LinearSiluParams.
#include "api.hpp"
#include "common/binding.hpp"

namespace {

// A [M, K], B [K, N], bias [N] or None, Y [M, N].
LinearSiluParams read_params(const pybind11::kwargs& arguments) {
    aicf::check_argument_names(arguments, {"A", "B", "bias", "Y"});
    const auto take = [&](const char* name) { return aicf::take_argument(arguments, name); };
    const auto a = aicf::view_array({"A", "<f4", {-1, -1}}, take("A"));
    const auto b = aicf::view_array({"B", "<f4", {a.shape[1], -1}}, take("B"));
    const auto bias = aicf::view_optional_array({"bias", "<f4", {b.shape[1]}}, take("bias"));
    const auto y = aicf::view_array({"Y", "<f4", {a.shape[0], b.shape[1]}, true}, take("Y"));
    return {a.data<const float>(),
            b.data<const float>(),
            bias ? bias->data<const float>() : nullptr,
            y.data<float>(),
            a.shape[0],
            b.shape[1],
            a.shape[1],
            a.strides[0],
            b.strides[0],
            y.strides[0]};
}

}  // namespace

PYBIND11_MODULE(_linear_silu, module) {
    module.doc() = "silu(A B + bias) in fp32, honest and not: variants loaded from shared libraries.";
    aicf::bind_variant<LinearSiluParams>(module, "linear_silu", read_params);
}

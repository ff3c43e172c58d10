// Python binding of op matmul: checks of arguments, and their translation to MatmulParams.
#include "common/binding.hpp"
#include "matmul/api.hpp"

namespace {

namespace py = pybind11;

// a: [m, k], b: [k, n], c: [m, n].
MatmulParams read_params(const py::kwargs& arguments) {
    aicf::check_argument_names(arguments, {"a", "b", "c"});
    const auto a = aicf::view_array({"a", "<f4", {-1, -1}}, aicf::take_argument(arguments, "a"));
    const auto b = aicf::view_array({"b", "<f4", {a.shape[1], -1}}, aicf::take_argument(arguments, "b"));
    const auto c = aicf::view_array({"c", "<f4", {a.shape[0], b.shape[1]}, true}, aicf::take_argument(arguments, "c"));

    MatmulParams params = {};
    params.a = a.data<const float>();
    params.b = b.data<const float>();
    params.c = c.data<float>();
    params.m = a.shape[0];
    params.n = b.shape[1];
    params.k = a.shape[1];
    return params;
}

}  // namespace

PYBIND11_MODULE(_matmul, module) {
    module.doc() = "C = A B in fp32: variants loaded from shared libraries.";
    aicf::bind_variant<MatmulParams>(module, "matmul", read_params);
}

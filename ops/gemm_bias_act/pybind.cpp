// Python binding of op gemm_bias_act: checks of arguments, and their translation to GemmBiasActParams.
#include "common/binding.hpp"
#include "gemm_bias_act/api.hpp"

namespace {

namespace py = pybind11;

std::int32_t read_activation(const py::object& value) {
    constexpr const char* kNames[AICF_ACT_COUNT] = AICF_ACT_NAMES;
    if (!py::isinstance<py::str>(value)) {
        aicf::throw_type_error("act: expected a str, got " + py::str(py::type::of(value).attr("__name__")).cast<std::string>());
    }
    const auto name = value.cast<std::string>();
    std::string list;
    for (std::int32_t code = 0; code < AICF_ACT_COUNT; ++code) {
        if (name == kNames[code]) return code;
        list += (list.empty() ? "" : ", ") + std::string(kNames[code]);
    }
    aicf::throw_value_error("act: expected one of " + list + ", got '" + name + "'");
}

// a [M, K], b [K, N], bias [N] or None, y [M, N], z [M, N] or None, act by name. M and K are a's, N is b's.
GemmBiasActParams read_params(const py::kwargs& arguments) {
    aicf::check_argument_names(arguments, {"a", "b", "bias", "y", "z", "act"});
    const auto take = [&](const char* name) { return aicf::take_argument(arguments, name); };
    const auto a = aicf::view_array({"a", "<f4", {-1, -1}}, take("a"));
    const auto m = a.shape[0];
    const auto k = a.shape[1];
    const auto b = aicf::view_array({"b", "<f4", {k, -1}}, take("b"));
    const auto n = b.shape[1];
    const auto bias = aicf::view_optional_array({"bias", "<f4", {n}}, take("bias"));
    const auto y = aicf::view_array({"y", "<f4", {m, n}, true}, take("y"));
    const auto z = aicf::view_optional_array({"z", "<f4", {m, n}, true}, take("z"));
    const auto check_output = [&](const char* name, const aicf::ArrayView& output) {
        aicf::check_no_overlap(name, output, "a", a, sizeof(float));
        aicf::check_no_overlap(name, output, "b", b, sizeof(float));
        if (bias) aicf::check_no_overlap(name, output, "bias", *bias, sizeof(float));
    };
    check_output("y", y);
    if (z) {
        check_output("z", *z);
        aicf::check_no_overlap("z", *z, "y", y, sizeof(float));
    }

    GemmBiasActParams params = {};
    params.a = a.data<const float>();
    params.b = b.data<const float>();
    params.bias = bias ? bias->data<const float>() : nullptr;
    params.y = y.data<float>();
    params.z = z ? z->data<float>() : nullptr;
    params.m = m;
    params.n = n;
    params.k = k;
    params.lda = a.strides[0];
    params.ldb = b.strides[0];
    params.ldy = y.strides[0];
    params.ldz = z ? z->strides[0] : n;
    params.act = read_activation(take("act"));
    return params;
}

}  // namespace

PYBIND11_MODULE(_gemm_bias_act, module) {
    module.doc() = "Y = act(A B + bias) in fp32: variants loaded from shared libraries.";
    aicf::bind_variant<GemmBiasActParams>(module, "gemm_bias_act", read_params);
}

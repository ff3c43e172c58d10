// Python binding of op gemm_bias_act: checks of arguments, and their translation to GemmBiasActParams.
#include "common/binding.hpp"
#include "gemm_bias_act/api.hpp"

namespace {

namespace py = pybind11;

// a [M, K], b [K, N] or [N, K] by b_layout, bias [N] or None, y [M, N], z and residual [M, N] or None, all of a's dtype; act by name. M and
// K are a's.
GemmBiasActParams read_params(const py::kwargs& arguments) {
    constexpr const char* kTypestrs[AICF_DTYPE_COUNT] = AICF_DTYPE_TYPESTRS;
    constexpr std::int64_t kItemBytes[AICF_DTYPE_COUNT] = {4, 2, 2};
    aicf::check_argument_names(arguments, {"a", "b", "bias", "y", "z", "residual", "act", "b_layout", "precision"});
    const auto take = [&](const char* name) { return aicf::take_argument(arguments, name); };
    const auto b_layout = aicf::read_choice("b_layout", take("b_layout"), AICF_B_LAYOUT_NAMES);
    const auto dtype = aicf::find_dtype("a", take("a"), AICF_DTYPE_TYPESTRS);
    const char* const typestr = kTypestrs[dtype];
    const auto a = aicf::view_array({"a", typestr, {-1, -1}}, take("a"));
    const auto m = a.shape[0];
    const auto k = a.shape[1];
    const bool is_nk = b_layout == AICF_B_NK;
    const auto b = aicf::view_array({"b", typestr, {is_nk ? -1 : k, is_nk ? k : -1}}, take("b"));
    const auto n = b.shape[is_nk ? 0 : 1];
    const auto bias = aicf::view_optional_array({"bias", typestr, {n}}, take("bias"));
    const auto y = aicf::view_array({"y", typestr, {m, n}, true}, take("y"));
    const auto z = aicf::view_optional_array({"z", typestr, {m, n}, true}, take("z"));
    const auto residual = aicf::view_optional_array({"residual", typestr, {m, n}, true}, take("residual"));
    const auto check_output = [&](const char* name, const aicf::ArrayView& output) {
        aicf::check_no_overlap(name, output, "a", a, kItemBytes[dtype]);
        aicf::check_no_overlap(name, output, "b", b, kItemBytes[dtype]);
        if (bias) aicf::check_no_overlap(name, output, "bias", *bias, kItemBytes[dtype]);
        if (residual) aicf::check_no_overlap(name, output, "residual", *residual, kItemBytes[dtype]);
    };
    check_output("y", y);
    if (z) {
        check_output("z", *z);
        aicf::check_no_overlap("z", *z, "y", y, kItemBytes[dtype]);
    }

    GemmBiasActParams params = {};
    params.a = a.data<const void>();
    params.b = b.data<const void>();
    params.bias = bias ? bias->data<const void>() : nullptr;
    params.y = y.data<void>();
    params.z = z ? z->data<void>() : nullptr;
    params.m = m;
    params.n = n;
    params.k = k;
    params.lda = a.strides[0];
    params.ldb = b.strides[0];
    params.ldy = y.strides[0];
    params.ldz = z ? z->strides[0] : n;
    params.act = aicf::read_choice("act", take("act"), AICF_ACT_NAMES);
    params.dtype = static_cast<std::int32_t>(dtype);
    params.b_layout = b_layout;
    params.precision = aicf::read_choice("precision", take("precision"), AICF_PRECISION_NAMES);
    params.residual = residual ? residual->data<const void>() : nullptr;
    params.ldresidual = residual ? residual->strides[0] : n;
    return params;
}

}  // namespace

PYBIND11_MODULE(_gemm_bias_act, module) {
    module.doc() = "Y = act(A B + bias + residual): variants loaded from shared libraries.";
    aicf::bind_variant<GemmBiasActParams>(module, "gemm_bias_act", read_params);
}

// Python binding of op gemm_backward: checks of arguments, and their translation to GemmBackwardParams.
#include <iterator>

#include "common/binding.hpp"
#include "gemm_backward/api.hpp"

namespace {

namespace py = pybind11;

// dy [M, N], w, dw and dw_total [K, N] or [N, K] by w_layout, x, z and dz [M, K], dbias [K], all of dy's dtype; act by name. What is not
// wanted or not needed is None. K is that of whatever is there.
GemmBackwardParams read_params(const py::kwargs& arguments) {
    constexpr const char* kTypestrs[AICF_DTYPE_COUNT] = AICF_DTYPE_TYPESTRS;
    constexpr std::int64_t kItemBytes[AICF_DTYPE_COUNT] = {4, 2, 2};
    aicf::check_argument_names(arguments, {"dy", "w", "x", "z", "dz", "dbias", "dw", "dw_total", "act", "w_layout"});
    const auto take = [&](const char* name) { return aicf::take_argument(arguments, name); };
    const auto w_layout = aicf::read_choice("w_layout", take("w_layout"), AICF_W_LAYOUT_NAMES);
    const auto dtype = aicf::find_dtype("dy", take("dy"), AICF_DTYPE_TYPESTRS);
    const char* const typestr = kTypestrs[dtype];
    const bool is_nk = w_layout == AICF_W_NK;
    const auto dy = aicf::view_array({"dy", typestr, {-1, -1}}, take("dy"));
    const auto m = dy.shape[0];
    const auto n = dy.shape[1];
    std::int64_t k = -1;
    const auto view_matrix = [&](const char* name, bool is_output) {
        const auto view = aicf::view_optional_array({name, typestr, {m, k}, is_output}, take(name));
        if (view) k = view->shape[1];
        return view;
    };
    const auto dz = view_matrix("dz", true);
    const auto x = view_matrix("x", false);
    const auto z = view_matrix("z", false);
    const auto view_weights = [&](const char* name, bool is_output) {
        const auto view = aicf::view_optional_array({name, typestr, {is_nk ? n : k, is_nk ? k : n}, is_output}, take(name));
        if (view) k = view->shape[is_nk ? 1 : 0];
        return view;
    };
    const auto w = view_weights("w", false);
    const auto dw = view_weights("dw", true);
    const auto dw_total = view_weights("dw_total", true);
    const auto dbias = aicf::view_optional_array({"dbias", typestr, {k}, true}, take("dbias"));

    const std::pair<const char*, const std::optional<aicf::ArrayView>&> outputs[] = {
        {"dz", dz}, {"dbias", dbias}, {"dw", dw}, {"dw_total", dw_total}};
    const std::pair<const char*, const std::optional<aicf::ArrayView>&> inputs[] = {{"w", w}, {"x", x}, {"z", z}};
    for (std::size_t i = 0; i < std::size(outputs); ++i) {
        const auto& [name, output] = outputs[i];
        if (!output) continue;
        aicf::check_no_overlap(name, *output, "dy", dy, kItemBytes[dtype]);
        for (const auto& [other, view] : inputs) {
            if (view) aicf::check_no_overlap(name, *output, other, *view, kItemBytes[dtype]);
        }
        for (std::size_t j = 0; j < i; ++j) {
            if (outputs[j].second) aicf::check_no_overlap(name, *output, outputs[j].first, *outputs[j].second, kItemBytes[dtype]);
        }
    }

    const auto find_data = [](const std::optional<aicf::ArrayView>& view) { return view ? view->data<void>() : nullptr; };
    const auto find_stride = [](const std::optional<aicf::ArrayView>& view) { return view ? view->strides[0] : 0; };
    GemmBackwardParams params = {};
    params.dy = dy.data<const void>();
    params.w = find_data(w);
    params.x = find_data(x);
    params.z = find_data(z);
    params.dz = find_data(dz);
    params.dbias = find_data(dbias);
    params.dw = find_data(dw);
    params.m = m;
    params.n = n;
    params.k = k;
    params.lddy = dy.strides[0];
    params.ldw = find_stride(w);
    params.ldx = find_stride(x);
    params.ldz = find_stride(z);
    params.lddz = find_stride(dz);
    params.lddw = find_stride(dw);
    params.dw_total = find_data(dw_total);
    params.lddw_total = find_stride(dw_total);
    params.act = aicf::read_choice("act", take("act"), AICF_ACT_NAMES);
    params.dtype = static_cast<std::int32_t>(dtype);
    params.w_layout = w_layout;
    return params;
}

}  // namespace

PYBIND11_MODULE(_gemm_backward, module) {
    module.doc() = "The backward pass of Y = act(Z + bias) W: variants loaded from shared libraries.";
    aicf::bind_variant<GemmBackwardParams>(module, "gemm_backward", read_params);
}

// Generated from gemm_bias_act/op.py by the build; change it there. The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::gemm_bias_act::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params), or count_workspace_bytes(params, &bytes) with a status where counting may fail.
#pragma once

#include "common/domain.hpp"
#include "gemm_bias_act/contract.hpp"

namespace aicf::gemm_bias_act {

inline AicfStatus check_tie(const char* name, std::int64_t given, std::int64_t wanted) {
    if (given == wanted) return make_ok();
    return make_invalid("%s = %lld: the other arguments ask for %lld", name, static_cast<long long>(given), static_cast<long long>(wanted));
}

inline AicfStatus check_ties(const Params& params) {
    std::int64_t own_act = params.act;
    std::int64_t own_dtype = params.dtype;
    std::int64_t own_b_layout = params.b_layout;
    std::int64_t own_precision = params.precision;
    std::int64_t own_with_bias = params.bias != nullptr;
    std::int64_t own_save_z = params.z != nullptr;
    std::int64_t own_with_residual = params.residual != nullptr;
    std::int64_t own_with_dropout = params.p != nullptr;
    std::int64_t own_M = params.m;
    std::int64_t own_N = params.n;
    std::int64_t own_K = params.k;
    if ((own_dtype == 1 || own_dtype == 2)) { own_precision = 0; }
    AICF_RETURN_IF_NOT_OK(check_tie("act", params.act, own_act));
    AICF_RETURN_IF_NOT_OK(check_tie("dtype", params.dtype, own_dtype));
    AICF_RETURN_IF_NOT_OK(check_tie("b_layout", params.b_layout, own_b_layout));
    AICF_RETURN_IF_NOT_OK(check_tie("precision", params.precision, own_precision));
    AICF_RETURN_IF_NOT_OK(check_tie("with_bias", params.bias != nullptr, own_with_bias));
    AICF_RETURN_IF_NOT_OK(check_tie("save_z", params.z != nullptr, own_save_z));
    AICF_RETURN_IF_NOT_OK(check_tie("with_residual", params.residual != nullptr, own_with_residual));
    AICF_RETURN_IF_NOT_OK(check_tie("with_dropout", params.p != nullptr, own_with_dropout));
    AICF_RETURN_IF_NOT_OK(check_tie("M", params.m, own_M));
    AICF_RETURN_IF_NOT_OK(check_tie("N", params.n, own_N));
    AICF_RETURN_IF_NOT_OK(check_tie("K", params.k, own_K));
    return make_ok();
}

inline AicfStatus check_params(const Params& params) {
    AICF_RETURN_IF_NOT_OK(check_ties(params));
    return contract::check_params(kContract, kDomain.words, kDomain.count, &params);
}

template <class P>
AicfStatus find_workspace(const P& params, size_t* bytes) {
    *bytes = 0;
    AICF_RETURN_IF_NOT_OK(check_params(params));
    if constexpr (requires { count_workspace_bytes(params, bytes); }) {
        return count_workspace_bytes(params, bytes);
    } else {
        *bytes = count_workspace_bytes(params);
        return make_ok();
    }
}

inline AicfStatus check_and_launch(const Params& params, void* workspace, struct CUstream_st* stream) {
    size_t bytes = 0;
    AICF_RETURN_IF_NOT_OK(find_workspace(params, &bytes));
    AICF_RETURN_IF_NOT_OK(contract::check_workspace(workspace, bytes));
    return launch(params, workspace, stream);
}

}  // namespace aicf::gemm_bias_act

extern "C" {

AicfStatus AICF_ENTRY(gemm_bias_act, supports)(const GemmBiasActParams* params) { return aicf::gemm_bias_act::check_params(*params); }

AicfStatus AICF_ENTRY(gemm_bias_act, workspace_bytes)(const GemmBiasActParams* params, size_t* bytes) {
    return aicf::gemm_bias_act::find_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(gemm_bias_act, launch)(const GemmBiasActParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::gemm_bias_act::check_and_launch(*params, workspace, stream);
}
}

// Generated from gemm_backward/op.py by the build; change it there. The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::gemm_backward::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params), or count_workspace_bytes(params, &bytes) with a status where counting may fail.
#pragma once

#include "common/domain.hpp"
#include "gemm_backward/contract.hpp"

namespace aicf::gemm_backward {

inline AicfStatus check_tie(const char* name, std::int64_t given, std::int64_t wanted) {
    if (given == wanted) return make_ok();
    return make_invalid("%s = %lld: the other arguments ask for %lld", name, static_cast<long long>(given), static_cast<long long>(wanted));
}

inline AicfStatus check_ties(const Params& params) {
    std::int64_t own_act = params.act;
    std::int64_t own_dtype = params.dtype;
    std::int64_t own_w_layout = params.w_layout;
    std::int64_t own_with_w = params.w != nullptr;
    std::int64_t own_with_dz = params.dz != nullptr;
    std::int64_t own_with_dbias = params.dbias != nullptr;
    std::int64_t own_with_dw = params.x != nullptr;
    std::int64_t own_accumulate = params.dw_total != nullptr;
    std::int64_t own_M = params.m;
    std::int64_t own_N = params.n;
    std::int64_t own_K = params.k;
    if ((own_with_w == 0)) { own_with_dz = 1; own_with_dw = 0; own_accumulate = 0; own_N = own_K; }
    if ((own_with_dz == 0)) { own_with_dbias = 0; own_with_dw = 1; }
    if ((own_accumulate == 1)) { own_with_dw = 1; }
    AICF_RETURN_IF_NOT_OK(check_tie("act", params.act, own_act));
    AICF_RETURN_IF_NOT_OK(check_tie("dtype", params.dtype, own_dtype));
    AICF_RETURN_IF_NOT_OK(check_tie("w_layout", params.w_layout, own_w_layout));
    AICF_RETURN_IF_NOT_OK(check_tie("with_w", params.w != nullptr, own_with_w));
    AICF_RETURN_IF_NOT_OK(check_tie("with_dz", params.dz != nullptr, own_with_dz));
    AICF_RETURN_IF_NOT_OK(check_tie("with_dbias", params.dbias != nullptr, own_with_dbias));
    AICF_RETURN_IF_NOT_OK(check_tie("with_dw", params.x != nullptr, own_with_dw));
    AICF_RETURN_IF_NOT_OK(check_tie("accumulate", params.dw_total != nullptr, own_accumulate));
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

}  // namespace aicf::gemm_backward

extern "C" {

AicfStatus AICF_ENTRY(gemm_backward, supports)(const GemmBackwardParams* params) { return aicf::gemm_backward::check_params(*params); }

AicfStatus AICF_ENTRY(gemm_backward, workspace_bytes)(const GemmBackwardParams* params, size_t* bytes) {
    return aicf::gemm_backward::find_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(gemm_backward, launch)(const GemmBackwardParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::gemm_backward::check_and_launch(*params, workspace, stream);
}
}

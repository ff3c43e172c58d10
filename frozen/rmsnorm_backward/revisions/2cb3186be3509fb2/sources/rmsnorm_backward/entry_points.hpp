// Generated from rmsnorm_backward/op.py by the build; change it there. The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::rmsnorm_backward::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params), or count_workspace_bytes(params, &bytes) with a status where counting may fail.
#pragma once

#include "common/domain.hpp"
#include "rmsnorm_backward/contract.hpp"

namespace aicf::rmsnorm_backward {

inline AicfStatus check_params(const Params& params) {
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

}  // namespace aicf::rmsnorm_backward

extern "C" {

AicfStatus AICF_ENTRY(rmsnorm_backward, supports)(const RmsnormBackwardParams* params) { return aicf::rmsnorm_backward::check_params(*params); }

AicfStatus AICF_ENTRY(rmsnorm_backward, workspace_bytes)(const RmsnormBackwardParams* params, size_t* bytes) {
    return aicf::rmsnorm_backward::find_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(rmsnorm_backward, launch)(const RmsnormBackwardParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::rmsnorm_backward::check_and_launch(*params, workspace, stream);
}
}

// Generated from sdpa/op.py by the build; change it there. The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::sdpa::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params).
#pragma once

#include "common/domain.hpp"
#include "sdpa/contract.hpp"

namespace aicf::sdpa {

inline AicfStatus check_params(const Params& params) {
    return contract::check_params(kContract, kDomain.words, kDomain.count, &params);
}

inline AicfStatus find_workspace(const Params& params, size_t* bytes) {
    *bytes = 0;
    AICF_RETURN_IF_NOT_OK(check_params(params));
    *bytes = count_workspace_bytes(params);
    return make_ok();
}

inline AicfStatus check_and_launch(const Params& params, void* workspace, struct CUstream_st* stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    AICF_RETURN_IF_NOT_OK(contract::check_workspace(workspace, count_workspace_bytes(params)));
    return launch(params, workspace, stream);
}

}  // namespace aicf::sdpa

extern "C" {

AicfStatus AICF_ENTRY(sdpa, supports)(const SdpaParams* params) { return aicf::sdpa::check_params(*params); }

AicfStatus AICF_ENTRY(sdpa, workspace_bytes)(const SdpaParams* params, size_t* bytes) {
    return aicf::sdpa::find_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(sdpa, launch)(const SdpaParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::sdpa::check_and_launch(*params, workspace, stream);
}
}

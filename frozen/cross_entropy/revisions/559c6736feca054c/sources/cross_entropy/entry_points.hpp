// Generated from cross_entropy/op.py by the build; change it there. The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::cross_entropy::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params), or count_workspace_bytes(params, &bytes) with a status where counting may fail.
#pragma once

#include "common/domain.hpp"
#include "cross_entropy/contract.hpp"

namespace aicf::cross_entropy {

inline AicfStatus check_tie(const char* name, std::int64_t given, std::int64_t wanted) {
    if (given == wanted) return make_ok();
    return make_invalid("%s = %lld: the other arguments ask for %lld", name, static_cast<long long>(given), static_cast<long long>(wanted));
}

inline AicfStatus check_ties(const Params& params) {
    std::int64_t own_dtype = params.dtype;
    std::int64_t own_with_gradient = params.dlogits != nullptr;
    std::int64_t own_reduction = params.reduction;
    std::int64_t own_with_dbias = params.dbias != nullptr;
    std::int64_t own_rows = params.rows;
    std::int64_t own_classes = params.classes;
    if ((own_with_dbias == 1)) { own_with_gradient = 1; }
    AICF_RETURN_IF_NOT_OK(check_tie("dtype", params.dtype, own_dtype));
    AICF_RETURN_IF_NOT_OK(check_tie("with_gradient", params.dlogits != nullptr, own_with_gradient));
    AICF_RETURN_IF_NOT_OK(check_tie("reduction", params.reduction, own_reduction));
    AICF_RETURN_IF_NOT_OK(check_tie("with_dbias", params.dbias != nullptr, own_with_dbias));
    AICF_RETURN_IF_NOT_OK(check_tie("rows", params.rows, own_rows));
    AICF_RETURN_IF_NOT_OK(check_tie("classes", params.classes, own_classes));
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

}  // namespace aicf::cross_entropy

extern "C" {

AicfStatus AICF_ENTRY(cross_entropy, supports)(const CrossEntropyParams* params) { return aicf::cross_entropy::check_params(*params); }

AicfStatus AICF_ENTRY(cross_entropy, workspace_bytes)(const CrossEntropyParams* params, size_t* bytes) {
    return aicf::cross_entropy::find_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(cross_entropy, launch)(const CrossEntropyParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::cross_entropy::check_and_launch(*params, workspace, stream);
}
}

// Generated from reduce/op.py by the build; change it there. The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::reduce::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params), or count_workspace_bytes(params, &bytes) with a status where counting may fail.
#pragma once

#include "common/domain.hpp"
#include "reduce/contract.hpp"

namespace aicf::reduce {

inline AicfStatus check_tie(const char* name, std::int64_t given, std::int64_t wanted) {
    if (given == wanted) return make_ok();
    return make_invalid("%s = %lld: the other arguments ask for %lld", name, static_cast<long long>(given), static_cast<long long>(wanted));
}

inline AicfStatus check_ties(const Params& params) {
    std::int64_t own_dtype = params.dtype;
    std::int64_t own_result_dtype = params.result_dtype;
    std::int64_t own_reduction = params.reduction;
    std::int64_t own_over = params.over;
    std::int64_t own_rows = params.rows;
    std::int64_t own_columns = params.columns;
    if ((own_reduction == 4)) { own_result_dtype = 8; }
    if ((own_reduction == 0 || own_reduction == 1 || own_reduction == 2 || own_reduction == 3 || own_reduction == 5 || own_reduction == 6) && (own_result_dtype == 8)) { own_result_dtype = 0; }
    if ((own_dtype == 0 || own_dtype == 2) && (own_result_dtype == 1)) { own_result_dtype = 0; }
    if ((own_dtype == 0 || own_dtype == 1) && (own_result_dtype == 2)) { own_result_dtype = 0; }
    AICF_RETURN_IF_NOT_OK(check_tie("dtype", params.dtype, own_dtype));
    AICF_RETURN_IF_NOT_OK(check_tie("result_dtype", params.result_dtype, own_result_dtype));
    AICF_RETURN_IF_NOT_OK(check_tie("reduction", params.reduction, own_reduction));
    AICF_RETURN_IF_NOT_OK(check_tie("over", params.over, own_over));
    AICF_RETURN_IF_NOT_OK(check_tie("rows", params.rows, own_rows));
    AICF_RETURN_IF_NOT_OK(check_tie("columns", params.columns, own_columns));
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

}  // namespace aicf::reduce

extern "C" {

AicfStatus AICF_ENTRY(reduce, supports)(const ReduceParams* params) { return aicf::reduce::check_params(*params); }

AicfStatus AICF_ENTRY(reduce, workspace_bytes)(const ReduceParams* params, size_t* bytes) {
    return aicf::reduce::find_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(reduce, launch)(const ReduceParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::reduce::check_and_launch(*params, workspace, stream);
}
}

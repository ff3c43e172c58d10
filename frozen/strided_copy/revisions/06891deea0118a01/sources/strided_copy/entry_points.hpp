// Generated from strided_copy/op.py by the build; change it there. The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::strided_copy::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params), or count_workspace_bytes(params, &bytes) with a status where counting may fail.
#pragma once

#include "common/domain.hpp"
#include "strided_copy/contract.hpp"

namespace aicf::strided_copy {

inline AicfStatus check_tie(const char* name, std::int64_t given, std::int64_t wanted) {
    if (given == wanted) return make_ok();
    return make_invalid("%s = %lld: the other arguments ask for %lld", name, static_cast<long long>(given), static_cast<long long>(wanted));
}

inline AicfStatus check_ties(const Params& params) {
    std::int64_t own_dtype = params.dtype;
    std::int64_t own_pieces = params.pieces;
    std::int64_t own_whole = params.whole;
    std::int64_t own_a = params.a;
    std::int64_t own_b = params.b;
    std::int64_t own_n0 = params.n0;
    std::int64_t own_n1 = params.n1;
    std::int64_t own_n2 = params.n2;
    std::int64_t own_n3 = params.n3;
    std::int64_t own_n4 = params.n4;
    std::int64_t own_n5 = params.n5;
    std::int64_t own_n6 = params.n6;
    std::int64_t own_n7 = params.n7;
    std::int64_t own_c = params.c;
    std::int64_t own_d = params.d;
    std::int64_t own_yb = params.yb;
    std::int64_t own_yn = params.yn;
    std::int64_t own_yc = params.yc;
    std::int64_t own_yd = params.yd;
    if ((own_pieces == 1)) { own_n1 = own_n0; own_n2 = own_n0; own_n3 = own_n0; own_n4 = own_n0; own_n5 = own_n0; own_n6 = own_n0; own_n7 = own_n0; }
    if ((own_pieces == 2)) { own_n2 = own_n0; own_n3 = own_n0; own_n4 = own_n0; own_n5 = own_n0; own_n6 = own_n0; own_n7 = own_n0; }
    if ((own_pieces == 3)) { own_n3 = own_n0; own_n4 = own_n0; own_n5 = own_n0; own_n6 = own_n0; own_n7 = own_n0; }
    if ((own_pieces == 4)) { own_n4 = own_n0; own_n5 = own_n0; own_n6 = own_n0; own_n7 = own_n0; }
    if ((own_pieces == 5)) { own_n5 = own_n0; own_n6 = own_n0; own_n7 = own_n0; }
    if ((own_pieces == 6)) { own_n6 = own_n0; own_n7 = own_n0; }
    if ((own_pieces == 7)) { own_n7 = own_n0; }
    if ((own_whole == 0)) { own_yb = own_b; own_yn = own_n0; own_yc = own_c; own_yd = own_d; }
    AICF_RETURN_IF_NOT_OK(check_tie("dtype", params.dtype, own_dtype));
    AICF_RETURN_IF_NOT_OK(check_tie("pieces", params.pieces, own_pieces));
    AICF_RETURN_IF_NOT_OK(check_tie("whole", params.whole, own_whole));
    AICF_RETURN_IF_NOT_OK(check_tie("a", params.a, own_a));
    AICF_RETURN_IF_NOT_OK(check_tie("b", params.b, own_b));
    AICF_RETURN_IF_NOT_OK(check_tie("n0", params.n0, own_n0));
    AICF_RETURN_IF_NOT_OK(check_tie("n1", params.n1, own_n1));
    AICF_RETURN_IF_NOT_OK(check_tie("n2", params.n2, own_n2));
    AICF_RETURN_IF_NOT_OK(check_tie("n3", params.n3, own_n3));
    AICF_RETURN_IF_NOT_OK(check_tie("n4", params.n4, own_n4));
    AICF_RETURN_IF_NOT_OK(check_tie("n5", params.n5, own_n5));
    AICF_RETURN_IF_NOT_OK(check_tie("n6", params.n6, own_n6));
    AICF_RETURN_IF_NOT_OK(check_tie("n7", params.n7, own_n7));
    AICF_RETURN_IF_NOT_OK(check_tie("c", params.c, own_c));
    AICF_RETURN_IF_NOT_OK(check_tie("d", params.d, own_d));
    AICF_RETURN_IF_NOT_OK(check_tie("yb", params.yb, own_yb));
    AICF_RETURN_IF_NOT_OK(check_tie("yn", params.yn, own_yn));
    AICF_RETURN_IF_NOT_OK(check_tie("yc", params.yc, own_yc));
    AICF_RETURN_IF_NOT_OK(check_tie("yd", params.yd, own_yd));
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

}  // namespace aicf::strided_copy

extern "C" {

AicfStatus AICF_ENTRY(strided_copy, supports)(const StridedCopyParams* params) { return aicf::strided_copy::check_params(*params); }

AicfStatus AICF_ENTRY(strided_copy, workspace_bytes)(const StridedCopyParams* params, size_t* bytes) {
    return aicf::strided_copy::find_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(strided_copy, launch)(const StridedCopyParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::strided_copy::check_and_launch(*params, workspace, stream);
}
}

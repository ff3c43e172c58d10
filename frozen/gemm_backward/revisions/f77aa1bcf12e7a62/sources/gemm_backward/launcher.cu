// Entry points of one variant of gemm_backward: checks, geometry, workspace, launches.
#include "gemm_backward/fp32_plans.cuh"
#include "gemm_backward/half_plans.cuh"
#include "gemm_backward/launch_parts.cuh"
#include "gemm_backward/tiny_plan.cuh"

namespace aicf::gemm_backward {
namespace {

template <Tunables t>
struct streamed_plan {
    static std::int64_t count_sum_rows(const GemmBackwardParams& params) { return divide_up_64(params.m, t.rows); }

    static AicfStatus check(const GemmBackwardParams& params) {
        if (params.w != nullptr || params.dw != nullptr) return make_unsupported("w, dw: this kernel is for problems without them");
        constexpr std::int64_t kMaxBlocks = INT_MAX / 64;
        if (count_sum_rows(params) * divide_up_64(params.k, 32) <= kMaxBlocks) return make_ok();
        return make_unsupported("m, k = %lld, %lld: more than %lld blocks of %d x 32", static_cast<long long>(params.m),
                                static_cast<long long>(params.k), static_cast<long long>(kMaxBlocks), t.rows);
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus*) {
        return count_sum_bytes(count_sum_rows(params), params);
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        return dispatch_float(params.dtype, [&]<class Element>(Element) { return launch_act<Element>(params, workspace, stream); });
    }

    template <class Element>
    static AicfStatus launch_act(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        switch (params.act) {
            case AICF_ACT_RELU: return launch_width<Element, AICF_ACT_RELU>(params, workspace, stream);
            case AICF_ACT_GELU_TANH: return launch_width<Element, AICF_ACT_GELU_TANH>(params, workspace, stream);
            case AICF_ACT_GELU_ERF: return launch_width<Element, AICF_ACT_GELU_ERF>(params, workspace, stream);
            case AICF_ACT_SILU: return launch_width<Element, AICF_ACT_SILU>(params, workspace, stream);
            default: return launch_width<Element, AICF_ACT_NONE>(params, workspace, stream);
        }
    }

    template <class Element, int kAct>
    static AicfStatus launch_width(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        constexpr bool kHasZ = kAct != AICF_ACT_NONE;
        constexpr int kWide = kPackElems<Element>;
        const bool is_wide = params.k % kWide == 0 && has_pack_rows<Element>(params.dy, params.lddy) &&
                             has_pack_rows<Element>(params.dz, params.lddz) && (!kHasZ || has_pack_rows<Element>(params.z, params.ldz));
        StreamProblem<Element> problem = {};
        problem.dy = static_cast<const Element*>(params.dy);
        problem.z = kHasZ ? static_cast<const Element*>(params.z) : nullptr;
        problem.dz = static_cast<Element*>(params.dz);
        problem.partial_sums = params.dbias != nullptr ? static_cast<float*>(workspace) : nullptr;
        problem.lddy = params.lddy;
        problem.ldz = params.ldz;
        problem.lddz = params.lddz;
        problem.rows = static_cast<int>(params.m);
        problem.columns = static_cast<int>(params.k);
        problem.num_column_blocks = static_cast<int>(divide_up_64(params.k, 32 * (is_wide ? kWide : 1)));
        const auto kernel = is_wide ? pass_rows<Element, kAct, kWide, t.rows, t.unroll> : pass_rows<Element, kAct, 1, t.rows, t.unroll>;
        const dim3 grid(static_cast<unsigned>(count_sum_rows(params) * problem.num_column_blocks));
        AICF_RETURN_IF_NOT_OK(launch_early(kernel, grid, kStreamThreads, 0, 1, stream, problem));
        if (params.dbias == nullptr) return make_ok();
        return finish_bias<Element>(static_cast<const float*>(workspace), count_sum_rows(params), params, stream);
    }
};

using Chosen = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>;

AicfStatus check_params(const GemmBackwardParams& params) {
    AICF_RETURN_IF_NOT_OK(check_size("m", params.m));
    AICF_RETURN_IF_NOT_OK(check_size("n", params.n));
    AICF_RETURN_IF_NOT_OK(check_size("k", params.k));
    AICF_RETURN_IF_NOT_OK(check_code("act", params.act, AICF_ACT_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("dtype", params.dtype, AICF_DTYPE_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("w_layout", params.w_layout, AICF_W_LAYOUT_COUNT));
    const bool has_dw = params.dw != nullptr || params.dw_total != nullptr;
    if (params.dz == nullptr && !has_dw) return make_invalid("dz, dw, dw_total: null pointers; one of them must be wanted");
    if (params.dw != nullptr && params.dw_total != nullptr) return make_invalid("dw, dw_total: X' dY is stored or added, not both");
    if (params.dz == nullptr && params.dbias != nullptr) return make_invalid("dbias: the sums of dz's columns need dz");
    if (params.w == nullptr && (params.n != params.k || has_dw)) {
        return make_invalid("w: null pointer; without it n and k must be equal, and neither dw nor dw_total wanted");
    }
    const std::int64_t w_row = is_nk(params) ? params.k : params.n;
    AICF_RETURN_IF_NOT_OK(check_matrix("dy", params.dy, params.n, params.lddy));
    if (params.w != nullptr) AICF_RETURN_IF_NOT_OK(check_matrix("w", params.w, w_row, params.ldw));
    if (params.dz != nullptr) {
        AICF_RETURN_IF_NOT_OK(check_matrix("dz", params.dz, params.k, params.lddz));
        if (params.act != AICF_ACT_NONE) AICF_RETURN_IF_NOT_OK(check_matrix("z", params.z, params.k, params.ldz));
    }
    if (params.dw != nullptr) {
        AICF_RETURN_IF_NOT_OK(check_matrix("dw", params.dw, w_row, params.lddw));
    }
    if (params.dw_total != nullptr) AICF_RETURN_IF_NOT_OK(check_matrix("dw_total", params.dw_total, w_row, params.lddw_total));
    if (has_dw) AICF_RETURN_IF_NOT_OK(check_matrix("x", params.x, params.k, params.ldx));
    // Rows, columns and steps are counted in 32 bits; the last tile may end this far past the matrix.
    constexpr std::int64_t kMaxExtent = INT_MAX - 1024;
    if (params.m > kMaxExtent || params.n > kMaxExtent || params.k > kMaxExtent) {
        return make_unsupported("m, n, k = %lld, %lld, %lld: sizes must not exceed %lld", static_cast<long long>(params.m),
                                static_cast<long long>(params.n), static_cast<long long>(params.k), static_cast<long long>(kMaxExtent));
    }
    return Chosen::check(params);
}

AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    return Chosen::launch(params, workspace, stream);
}

AicfStatus count_workspace(const GemmBackwardParams& params, size_t* bytes) {
    *bytes = 0;
    AICF_RETURN_IF_NOT_OK(check_params(params));
    AicfStatus status = make_ok();
    *bytes = static_cast<size_t>(Chosen::count_workspace(params, &status));
    return status;
}

}  // namespace
}  // namespace aicf::gemm_backward

extern "C" {

AicfStatus AICF_ENTRY(gemm_backward, supports)(const GemmBackwardParams* params) { return aicf::gemm_backward::check_params(*params); }

AicfStatus AICF_ENTRY(gemm_backward, workspace_bytes)(const GemmBackwardParams* params, size_t* bytes) {
    return aicf::gemm_backward::count_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(gemm_backward, launch)(const GemmBackwardParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::gemm_backward::launch(*params, workspace, stream);
}
}

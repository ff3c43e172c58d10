// How each kernel of gemm_backward is launched: the plan of the kernel without products, and which plan is the variant's.
#include "gemm_backward/evenly_plan.cuh"
#include "gemm_backward/fp32_plans.cuh"
#include "gemm_backward/half_plans.cuh"
#include "gemm_backward/launch_parts.cuh"
#include "gemm_backward/thin_plan.cuh"
#include "gemm_backward/tiny_plan.cuh"

namespace aicf::gemm_backward {
namespace {

template <Tunables t>
struct streamed_plan {
    static std::int64_t count_sum_rows(const GemmBackwardParams& params) { return divide_up_64(params.m, t.rows); }

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

AicfStatus count_workspace_bytes(const Params& params, std::size_t* bytes) {
    AicfStatus status = make_ok();
    *bytes = static_cast<std::size_t>(Chosen::count_workspace(params, &status));
    return status;
}

AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) { return Chosen::launch(params, workspace, stream); }

}  // namespace
}  // namespace aicf::gemm_backward

#include "gemm_backward/entry_points.hpp"

// How each kernel of gemm_bias_act is launched: the plans of the tensor-core kernels for 16-bit floats, and which plan is the variant's.
#include "gemm_bias_act/decode.cuh"
#include "gemm_bias_act/fp32_plans.cuh"
#include "gemm_bias_act/gemv.cuh"
#include "gemm_bias_act/launch_parts.cuh"
#include "gemm_bias_act/mma.cuh"
#include "gemm_bias_act/wgmma_plans.cuh"

namespace aicf::gemm_bias_act {
namespace {

template <Tunables t>
struct mma_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            using L = MmaLayout<t.bm, t.bn, t.wm, t.wn, t.stages>;
            const auto kernel = params.p != nullptr
                                    ? multiply_mma<Element, IsTransposed::value, t.bm, t.bn, t.wm, t.wn, t.stages, t.group, true>
                                    : multiply_mma<Element, IsTransposed::value, t.bm, t.bn, t.wm, t.wn, t.stages, t.group, false>;
            AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, L::kSharedBytes));
            kernel<<<static_cast<unsigned>(count_blocks(params)), L::kThreads, L::kSharedBytes, stream>>>(make_half_gemm<Element>(params));
            return AICF_CUDA_STATUS(cudaGetLastError());
        });
    }
};

template <Tunables t>
struct gemv_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return params.dtype == AICF_DTYPE_BFLOAT16 ? launch_rows<Bf16>(params, stream) : launch_rows<Fp16>(params, stream);
    }

    template <class Element>
    static AicfStatus launch_rows(const GemmBiasActParams& params, cudaStream_t stream) {
        if (params.m == 1) return launch_kernel<Element, 1>(params, stream);
        if (params.m == 2) return launch_kernel<Element, 2>(params, stream);
        return launch_kernel<Element, kGemvMaxRows>(params, stream);
    }

    template <class Element, int kRows>
    static AicfStatus launch_kernel(const GemmBiasActParams& params, cudaStream_t stream) {
        constexpr int kColumnsPerBlock = t.bn;
        constexpr int kColumns = t.tn;
        constexpr int kWarps = kColumnsPerBlock / kColumns;
        // Each chunk of B meets kRows chunks of A: with four of them the registers hold half as many.
        constexpr int kUnroll = kRows < kGemvMaxRows ? t.stages : (t.stages + 1) / 2;
        const auto num_blocks = static_cast<unsigned>((params.n + kColumnsPerBlock - 1) / kColumnsPerBlock);
        return launch_early(multiply_gemv<Element, kRows, kColumns, kWarps, kUnroll>, dim3(num_blocks), kWarps * 32, 0, 1, stream,
                            make_half_gemm<Element>(params));
    }
};

template <Tunables t>
struct decode_plan {
    using L = DecodeLayout<t.bm, t.bn, t.stages, t.splits>;

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return launch_kernel(multiply_decode<Element, IsTransposed::value, t.bm, t.bn, t.stages, t.splits>, params, stream);
        });
    }

    template <class Kernel>
    static AicfStatus launch_kernel(Kernel kernel, const GemmBiasActParams& params, cudaStream_t stream) {
        CUtensorMap a, b;
        AICF_RETURN_IF_NOT_OK(encode_half(&a, params.dtype, params.a, params.m, params.k, params.lda, t.bm));
        if (params.b_layout == AICF_B_NK) {
            AICF_RETURN_IF_NOT_OK(encode_half(&b, params.dtype, params.b, params.n, params.k, params.ldb, t.bn));
        } else {
            AICF_RETURN_IF_NOT_OK(encode_half(&b, params.dtype, params.b, params.k, params.n, params.ldb, L::kTileK));
        }
        const dim3 grid(t.splits, static_cast<unsigned>((params.n + t.bn - 1) / t.bn), static_cast<unsigned>((params.m + t.bm - 1) / t.bm));
        const DecodeProblem problem = {params.bias,
                                       params.y,
                                       params.z,
                                       params.ldy,
                                       params.ldz,
                                       static_cast<int>(params.m),
                                       static_cast<int>(params.n),
                                       static_cast<int>(params.k),
                                       static_cast<int>(params.act),
                                       params.residual,
                                       params.ldresidual};
        return launch_early(kernel, grid, L::kThreads, L::kSharedBytes, t.splits, stream, a, b, problem);
    }
};

// Kernels that split k hand sums over through memory; the others want none.
template <class Plan>
concept HasWorkspace = requires(const Params& params, std::int64_t* bytes) { Plan::count_workspace(params, bytes); };

template <class Plan>
struct Launcher {
    static AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) {
        if constexpr (HasWorkspace<Plan>) {
            return Plan::launch(params, workspace, stream);
        } else {
            return Plan::launch(params, stream);
        }
    }

    static AicfStatus count_workspace(const Params& params, std::size_t* bytes) {
        std::int64_t found = 0;
        if constexpr (HasWorkspace<Plan>) AICF_RETURN_IF_NOT_OK(Plan::count_workspace(params, &found));
        *bytes = static_cast<std::size_t>(found);
        return make_ok();
    }
};

using Chosen = Launcher < AICF_CONCAT(AICF_KERNEL, _plan) < kTunables >> ;

AicfStatus count_workspace_bytes(const Params& params, std::size_t* bytes) { return Chosen::count_workspace(params, bytes); }

AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) { return Chosen::launch(params, workspace, stream); }

}  // namespace
}  // namespace aicf::gemm_bias_act

#include "gemm_bias_act/entry_points.hpp"

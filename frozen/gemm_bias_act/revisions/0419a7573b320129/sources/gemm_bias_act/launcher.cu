// Entry points of one variant of gemm_bias_act: the plans of its kernels, checks, launch.
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
    static AicfStatus check(const GemmBiasActParams& params) { return require_half(params); }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            using L = MmaLayout<t.bm, t.bn, t.wm, t.wn, t.stages>;
            const auto kernel = multiply_mma<Element, IsTransposed::value, t.bm, t.bn, t.wm, t.wn, t.stages, t.group>;
            AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, L::kSharedBytes));
            kernel<<<static_cast<unsigned>(count_blocks(params)), L::kThreads, L::kSharedBytes, stream>>>(make_half_gemm<Element>(params));
            return AICF_CUDA_STATUS(cudaGetLastError());
        });
    }
};

template <Tunables t>
struct gemv_plan {
    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_half(params));
        if (params.b_layout != AICF_B_NK) return make_unsupported("b_layout: this kernel reads b as [n, k] ('nk')");
        if (params.m > kGemvMaxRows)
            return make_unsupported("m = %lld: this kernel takes at most %d", static_cast<long long>(params.m), kGemvMaxRows);
        if (params.k % 8 != 0) return make_unsupported("k = %lld: must be a multiple of 8", static_cast<long long>(params.k));
        return require_mappable({{"a", params.a, params.lda}, {"b", params.b, params.ldb}});
    }

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

    static AicfStatus check(const GemmBiasActParams& params) {
        AICF_RETURN_IF_NOT_OK(require_half(params));
        AICF_RETURN_IF_NOT_OK((require_grid<t.bm, t.bn>(params)));
        return require_mappable({{"a", params.a, params.lda}, {"b", params.b, params.ldb}});
    }

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

using Chosen = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>;

AicfStatus check_params(const GemmBiasActParams& params) {
    AICF_RETURN_IF_NOT_OK(check_size("m", params.m));
    AICF_RETURN_IF_NOT_OK(check_size("n", params.n));
    AICF_RETURN_IF_NOT_OK(check_size("k", params.k));
    AICF_RETURN_IF_NOT_OK(check_code("act", params.act, AICF_ACT_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("dtype", params.dtype, AICF_DTYPE_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("b_layout", params.b_layout, AICF_B_LAYOUT_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("precision", params.precision, AICF_PRECISION_COUNT));
    if (params.precision == AICF_PRECISION_TF32 && params.dtype != AICF_DTYPE_FLOAT32)
        return make_invalid("precision: tf32 is what fp32 inputs may be multiplied in, 16-bit floats are not");
    AICF_RETURN_IF_NOT_OK(check_matrix("a", params.a, params.k, params.lda));
    AICF_RETURN_IF_NOT_OK(check_matrix("b", params.b, params.b_layout == AICF_B_NK ? params.k : params.n, params.ldb));
    AICF_RETURN_IF_NOT_OK(check_matrix("y", params.y, params.n, params.ldy));
    if (params.z) AICF_RETURN_IF_NOT_OK(check_matrix("z", params.z, params.n, params.ldz));
    if (params.residual) AICF_RETURN_IF_NOT_OK(check_matrix("residual", params.residual, params.n, params.ldresidual));
    // Rows, columns and blocks are counted in 32 bits; the last tile may end this far past the matrix.
    constexpr std::int64_t kMaxExtent = INT_MAX - 1024;
    if (params.m > kMaxExtent || params.n > kMaxExtent || params.k > kMaxExtent || count_blocks(params) > kMaxExtent / 64) {
        return make_unsupported("m, n, k = %lld, %lld, %lld: sizes must not exceed %lld, nor %d x %d tiles of y %lld",
                                static_cast<long long>(params.m), static_cast<long long>(params.n), static_cast<long long>(params.k),
                                static_cast<long long>(kMaxExtent), kTunables.bm, kTunables.bn, static_cast<long long>(kMaxExtent / 64));
    }
    return Chosen::check(params);
}

// Kernels that split k hand sums over through memory; the others want none.
template <class Plan>
concept HasWorkspace = requires(const GemmBiasActParams& params, std::int64_t* bytes) { Plan::count_workspace(params, bytes); };

template <class Plan>
AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    if constexpr (HasWorkspace<Plan>) {
        return Plan::launch(params, workspace, stream);
    } else {
        return Plan::launch(params, stream);
    }
}

template <class Plan>
AicfStatus count_workspace(const GemmBiasActParams& params, size_t* result) {
    *result = 0;
    AICF_RETURN_IF_NOT_OK(check_params(params));
    if constexpr (HasWorkspace<Plan>) {
        std::int64_t bytes = 0;
        AICF_RETURN_IF_NOT_OK(Plan::count_workspace(params, &bytes));
        *result = static_cast<size_t>(bytes);
    }
    return make_ok();
}

}  // namespace
}  // namespace aicf::gemm_bias_act

extern "C" {

AicfStatus AICF_ENTRY(gemm_bias_act, supports)(const GemmBiasActParams* params) { return aicf::gemm_bias_act::check_params(*params); }

AicfStatus AICF_ENTRY(gemm_bias_act, workspace_bytes)(const GemmBiasActParams* params, size_t* bytes) {
    return aicf::gemm_bias_act::count_workspace<aicf::gemm_bias_act::Chosen>(*params, bytes);
}

AicfStatus AICF_ENTRY(gemm_bias_act, launch)(const GemmBiasActParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::gemm_bias_act::launch<aicf::gemm_bias_act::Chosen>(*params, workspace, stream);
}
}

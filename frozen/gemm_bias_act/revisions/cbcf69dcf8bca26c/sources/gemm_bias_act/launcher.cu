// How each kernel of gemm_bias_act is launched: the plans of the tensor-core kernels for 16-bit floats, and which plan is the variant's.
#include "common/resident_clusters.hpp"
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
    using L = DecodeLayout<t.bm, t.bn, t.stages>;
    // A block that multiplies fewer steps of k costs more than it helps.
    static constexpr std::int64_t kLeastSteps = 5;

    // Blocks that share the k of a tile: the most with which all tiles run at once. What the device says is for the best order of clusters:
    // on an H200 40 of three and 16 of seven took two waves, 36 and 12 of eight took one. Pairs always fit.
    template <class Kernel>
    static AicfStatus count_splits(Kernel kernel, std::int64_t num_tiles, std::int64_t num_steps, int* splits) {
        static ResidentClusters resident;
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        for (*splits = t.splits; *splits > 1; --*splits) {
            if (num_steps < *splits * kLeastSteps || num_tiles * *splits > num_sms) continue;
            int at_once = 0;
            AICF_RETURN_IF_NOT_OK(resident.count(kernel, L::kThreads, L::kSharedBytes, *splits, &at_once));
            if (num_tiles <= (*splits == 2 ? at_once : at_once - divide_up(at_once, 16))) break;
        }
        return make_ok();
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return launch_kernel(multiply_decode<Element, IsTransposed::value, t.bm, t.bn, t.stages>, params, stream);
        });
    }

    template <class Kernel>
    static AicfStatus launch_kernel(Kernel kernel, const GemmBiasActParams& params, cudaStream_t stream) {
        // Tiles of as many rows as divide them evenly.
        const std::int64_t row_tiles = divide_up(params.m, std::int64_t{t.bm});
        const int tile_rows = static_cast<int>(divide_up(divide_up(params.m, row_tiles), std::int64_t{8}) * 8);
        const std::int64_t column_tiles = divide_up(params.n, std::int64_t{t.bn});
        CUtensorMap a, b;
        AICF_RETURN_IF_NOT_OK(encode_half(&a, params.dtype, params.a, params.m, params.k, params.lda, tile_rows));
        if (params.b_layout == AICF_B_NK) {
            AICF_RETURN_IF_NOT_OK(encode_half(&b, params.dtype, params.b, params.n, params.k, params.ldb, t.bn));
        } else {
            AICF_RETURN_IF_NOT_OK(encode_half(&b, params.dtype, params.b, params.k, params.n, params.ldb, L::kTileK));
        }
        int splits = 1;
        AICF_RETURN_IF_NOT_OK(count_splits(kernel, row_tiles * column_tiles, divide_up(params.k, std::int64_t{L::kTileK}), &splits));
        const dim3 grid(static_cast<unsigned>(splits), static_cast<unsigned>(column_tiles), static_cast<unsigned>(row_tiles));
        return launch_early(kernel, grid, L::kThreads, L::kSharedBytes, splits, stream, a, b, make_output_problem<kHalfBytes>(params),
                            static_cast<int>(params.k), tile_rows);
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

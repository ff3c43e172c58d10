// Plans of the kernels on the main loop of common/wgmma_pipeline.cuh: tensor maps, tiles, split steps and their workspace, copies of
// operands.
#pragma once

#include "common/repack.cuh"
#include "common/split_plan.cuh"
#include "gemm_bias_act/launch_parts.cuh"
#include "gemm_bias_act/turned.cuh"
#include "gemm_bias_act/wgmma.cuh"

namespace aicf::gemm_bias_act {
namespace {

// A tensor map of boxes of 128 bytes, swizzled as wgmma reads them: of 16-bit floats, or of fp32, which is rounded to TF32 where it is
// read.
template <int kItemBytes>
AicfStatus encode_operand(CUtensorMap* map, std::int32_t dtype, const void* base, std::int64_t rows, std::int64_t columns,
                          std::int64_t stride, int box_rows, bool is_output = false) {
    return kItemBytes == kHalfBytes ? encode_half(map, dtype, base, rows, columns, stride, box_rows)
                                    : encode_tf32(map, base, rows, columns, stride, box_rows, is_output);
}

template <Tunables t, int kItemBytes>
struct WgmmaPlan {
    static constexpr int kNumSlabs = 2;
    using Config = WgmmaTunables<t.bm, t.bn, t.stages, t.clusterm, t.clustern, t.pingpong, t.group, kNumSlabs,
                                 count_bias_bytes(t.bn, kItemBytes), kItemBytes>;
    using L = WgmmaLayout<Config>;

    struct Maps {
        CUtensorMap a, b, y, z;
    };

    static AicfStatus encode_maps(const GemmBiasActParams& params, Maps* maps) {
        const auto encode = [&](CUtensorMap* map, const void* base, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                int box_rows, bool is_output) {
            return encode_operand<kItemBytes>(map, params.dtype, base, rows, columns, stride, box_rows, is_output);
        };
        AICF_RETURN_IF_NOT_OK(encode(&maps->a, params.a, params.m, params.k, params.lda, t.bm / t.clustern, false));
        if (params.b_layout == AICF_B_NK) {
            AICF_RETURN_IF_NOT_OK(encode(&maps->b, params.b, params.n, params.k, params.ldb, t.bn / t.clusterm, false));
        } else {
            AICF_RETURN_IF_NOT_OK(encode(&maps->b, params.b, params.k, params.n, params.ldb, L::kTileK / t.clusterm, false));
        }
        AICF_RETURN_IF_NOT_OK(encode(&maps->y, params.y, params.m, params.n, params.ldy, L::kSlabRows, true));
        maps->z = maps->y;
        if (params.z == nullptr) return make_ok();
        return encode(&maps->z, params.z, params.m, params.n, params.ldz, L::kSlabRows, true);
    }

    static WgmmaProblem make_problem(const GemmBiasActParams& params) {
        WgmmaProblem problem = {};
        problem.bias = params.bias;
        problem.n = static_cast<int>(params.n);
        problem.act = static_cast<int>(params.act);
        problem.has_z = params.z != nullptr;
        problem.residual = params.residual;
        problem.ldresidual = params.ldresidual;
        problem.m = static_cast<int>(params.m);
        problem.grid = make_tile_grid<Config>(params.m, params.n, params.k);
        return problem;
    }

    template <class Kernel>
    static AicfStatus launch_kernel(Kernel kernel, const GemmBiasActParams& params, cudaStream_t stream) {
        Maps maps;
        AICF_RETURN_IF_NOT_OK(encode_maps(params, &maps));
        const WgmmaProblem problem = make_problem(params);
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const int num_resident = count_resident_clusters(num_sms, L::kClusterSize);
        const dim3 grid(static_cast<unsigned>(std::min(problem.grid.num_tiles, num_resident) * L::kClusterSize));
        return launch_early(kernel, grid, L::kThreads, L::kSharedBytes, L::kClusterSize, stream, maps.a, maps.b, maps.y, maps.z, problem);
    }
};

template <Tunables t>
struct wgmma_plan : WgmmaPlan<t, kHalfBytes> {
    using Plan = WgmmaPlan<t, kHalfBytes>;

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return Plan::launch_kernel(multiply_wgmma<Element, typename Plan::Config, IsTransposed::value>, params, stream);
        });
    }
};

template <Tunables t>
struct tf32_plan : WgmmaPlan<t, 4> {
    using Plan = WgmmaPlan<t, 4>;

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return Plan::launch_kernel(multiply_wgmma<Tf32, typename Plan::Config, false>, params, stream);
    }
};

template <int kItemBytes>
OutputProblem make_output_problem(const GemmBiasActParams& params) {
    return {params.bias,
            params.y,
            params.z,
            params.ldy,
            params.ldz,
            static_cast<int>(params.m),
            static_cast<int>(params.n),
            static_cast<int>(params.act),
            is_mappable(params.y, params.ldy, kItemBytes) && (params.z == nullptr || is_mappable(params.z, params.ldz, kItemBytes)),
            params.residual,
            params.ldresidual};
}

// SplitPlan of a problem, and the kernel behind the product.
template <class Config, bool kHasSecondKernel, bool kTurned>
struct OutputSplitPlan : SplitPlan<Config, kHasSecondKernel, kTurned> {
    using Split = SplitPlan<Config, kHasSecondKernel, kTurned>;
    using L = typename Split::L;
    using Split::grid;

    static AicfStatus make(const GemmBiasActParams& params, OutputSplitPlan* result) {
        return Split::make(params.m, params.n, params.k, result);
    }

    static AicfStatus count_workspace(const GemmBiasActParams& params, std::int64_t* bytes) {
        OutputSplitPlan split;
        AICF_RETURN_IF_NOT_OK(make(params, &split));
        *bytes = split.workspace.count_bytes();
        return make_ok();
    }

    template <class Element>
    AicfStatus finish(const GemmBiasActParams& params, cudaStream_t stream) const {
        if constexpr (kHasSecondKernel) {
            if (grid.num_split == 0) return make_ok();
            const dim3 blocks(static_cast<unsigned>(grid.num_split * L::kClusterSize), count_add_blocks<Config>());
            const OutputProblem problem = make_output_problem<Config::item_bytes>(params);
            const auto launch = [&](auto kernel) { return launch_early(kernel, blocks, kAddThreads, 0, 1, stream, problem, grid); };
            if constexpr (Config::is_even) {
                return launch(add_even_parts<Element, Config>);
            } else {
                return launch(add_split_parts<Element, Config, kTurned>);
            }
        } else {
            return make_ok();
        }
    }
};

// The wgmma kernel with split steps. Parts of large tiles cost most by their bytes, of which a second kernel moves more.
template <Tunables t, int kItemBytes>
struct StreamKPlan : WgmmaPlan<t, kItemBytes> {
    static constexpr bool kHasSecondKernel = t.bm * t.bn <= 128 * 128;
    using Plan = WgmmaPlan<t, kItemBytes>;
    using Config = typename Plan::Config;
    using L = typename Plan::L;
    using Split = OutputSplitPlan<Config, kHasSecondKernel, false>;

    static AicfStatus count_workspace(const GemmBiasActParams& params, std::int64_t* bytes) {
        return Split::count_workspace(params, bytes);
    }

    template <class Element, bool kTransposedB>
    static AicfStatus launch_kernel(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        typename Plan::Maps maps;
        AICF_RETURN_IF_NOT_OK(Plan::encode_maps(params, &maps));
        Split split;
        AICF_RETURN_IF_NOT_OK(Split::make(params, &split));
        AICF_RETURN_IF_NOT_OK(split.prepare(workspace, stream));
        AICF_RETURN_IF_NOT_OK(launch_early(multiply_streamk<Element, Config, kTransposedB, kHasSecondKernel>, split.count_blocks(),
                                           L::kThreads, L::kSharedBytes, L::kClusterSize, stream, maps.a, maps.b, maps.y, maps.z,
                                           Plan::make_problem(params), split.grid));
        return split.template finish<Element>(params, stream);
    }
};

template <Tunables t>
struct streamk_plan : StreamKPlan<t, kHalfBytes> {
    using Plan = StreamKPlan<t, kHalfBytes>;

    static AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return Plan::template launch_kernel<Element, IsTransposed::value>(params, workspace, stream);
        });
    }
};

template <Tunables t>
struct streamk_tf32_plan : StreamKPlan<t, 4> {
    using Plan = StreamKPlan<t, 4>;

    static AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        return Plan::template launch_kernel<Tf32, false>(params, workspace, stream);
    }
};

// Columns of Y are the rows of its tiles, and rows of Y their columns: t.bm, or where kIsEven as many as divide them evenly.
template <Tunables t, int kItemBytes, int kPingpong = 0, bool kIsEven = false>
struct TurnedPlan {
    static constexpr int kGroups = count_consumers(t.bn, kPingpong);
    static constexpr int kBlocks = t.bn / (kPingpong ? 64 : 64 * kGroups);  // of 64 columns, of a warp group
    using Fixed = WgmmaTunables<t.bn, t.bm, t.stages, t.clustern, t.clusterm, kPingpong, t.group, 0,
                                TurnedStage<kBlocks, kGroups, kItemBytes>::kAllBytes, kItemBytes>;
    using Config = std::conditional_t<kIsEven, EvenTunables<Fixed>, Fixed>;
    using L = WgmmaLayout<Config>;
    using Split = OutputSplitPlan<Config, true, true>;

    static void bring_operands(GemmBiasActParams* p, Repacker* repacker) {
        const bool is_nk = p->b_layout == AICF_B_NK;
        repacker->bring(&p->a, &p->lda, p->m, p->k);
        repacker->bring(&p->b, &p->ldb, is_nk ? p->n : p->k, is_nk ? p->k : p->n);
    }

    static AicfStatus count_workspace(const GemmBiasActParams& params, std::int64_t* bytes) {
        AICF_RETURN_IF_NOT_OK(Split::count_workspace(params, bytes));
        GemmBiasActParams copied = params;
        Repacker repacker(kItemBytes, nullptr);
        bring_operands(&copied, &repacker);
        *bytes += repacker.count_bytes();
        return make_ok();
    }

    template <class Element, bool kTransposedB>
    static AicfStatus launch_kernel(GemmBiasActParams params, void* workspace, cudaStream_t stream) {
        Repacker repacker(kItemBytes, workspace);
        bring_operands(&params, &repacker);
        AICF_RETURN_IF_NOT_OK(repacker.launch(stream));
        Split split;
        AICF_RETURN_IF_NOT_OK(Split::make(params, &split));
        CUtensorMap a, b;
        const auto encode = encode_operand<kItemBytes>;
        const int rows = Config::count_columns(split.grid) / t.clustern;
        AICF_RETURN_IF_NOT_OK(encode(&a, params.dtype, params.a, params.m, params.k, params.lda, rows, false));
        if (kTransposedB) {
            AICF_RETURN_IF_NOT_OK(encode(&b, params.dtype, params.b, params.k, params.n, params.ldb, L::kTileK / t.clusterm, false));
        } else {
            AICF_RETURN_IF_NOT_OK(encode(&b, params.dtype, params.b, params.n, params.k, params.ldb, t.bn / t.clusterm, false));
        }
        AICF_RETURN_IF_NOT_OK(split.prepare(repacker.place(), stream));
        const auto launch = [&](auto kernel) {
            return launch_early(kernel, split.count_blocks(), L::kThreads, L::kSharedBytes, L::kClusterSize, stream, b, a,
                                make_output_problem<kItemBytes>(params), split.grid);
        };
        if constexpr (kIsEven) {
            AICF_RETURN_IF_NOT_OK(launch(multiply_turned_evenly<Element, Config, kTransposedB>));
        } else {
            AICF_RETURN_IF_NOT_OK(launch(multiply_turned<Element, Config, kTransposedB>));
        }
        return split.template finish<Element>(params, stream);
    }
};

template <Tunables t, int kPingpong = 0, bool kIsEven = false>
struct turned_plan : TurnedPlan<t, kHalfBytes, kPingpong, kIsEven> {
    using Plan = TurnedPlan<t, kHalfBytes, kPingpong, kIsEven>;

    static AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        return dispatch_half(params, [&]<class Element, class IsTransposed>(Element, IsTransposed) {
            return Plan::template launch_kernel<Element, IsTransposed::value>(params, workspace, stream);
        });
    }
};

template <Tunables t>
struct turned_pingpong_plan : turned_plan<t, 1> {};

template <Tunables t>
struct turned_evenly_plan : turned_plan<t, 0, true> {};

template <Tunables t, bool kIsEven = false>
struct turned_tf32_plan : TurnedPlan<t, 4, 0, kIsEven> {
    using Plan = TurnedPlan<t, 4, 0, kIsEven>;

    static AicfStatus launch(const GemmBiasActParams& params, void* workspace, cudaStream_t stream) {
        return Plan::template launch_kernel<Tf32, false>(params, workspace, stream);
    }
};

template <Tunables t>
struct turned_evenly_tf32_plan : turned_tf32_plan<t, true> {};

}  // namespace
}  // namespace aicf::gemm_bias_act

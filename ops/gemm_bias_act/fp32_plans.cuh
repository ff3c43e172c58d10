// Plans of the fp32 kernels: what each takes of a problem, geometry, shared memory, launch.
#pragma once

#include "common/even_shapes.cuh"
#include "gemm_bias_act/boxed.cuh"
#include "gemm_bias_act/boxed_evenly.cuh"
#include "gemm_bias_act/kernels.cu"
#include "gemm_bias_act/launch_parts.cuh"
#include "gemm_bias_act/rows.cuh"
#include "gemm_bias_act/skinny.cuh"
#include "gemm_bias_act/tiny.cuh"

namespace aicf::gemm_bias_act {
namespace {

template <Tunables t>
struct naive_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return params.p != nullptr ? launch_layout<true>(params, stream) : launch_layout<false>(params, stream);
    }

    template <bool kDrops>
    static AicfStatus launch_layout(const GemmBiasActParams& params, cudaStream_t stream) {
        const bool is_nk = params.b_layout == AICF_B_NK;
        const auto kernel = is_nk ? multiply_naive<t.bm, t.bn, true, kDrops> : multiply_naive<t.bm, t.bn, false, kDrops>;
        return launch_fp32(kernel, t.bm * t.bn, 0, params, stream);
    }
};

template <Tunables t>
struct coalesced_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_coalesced<t.bm, t.bn>, t.bm * t.bn, 0, params, stream);
    }
};

template <Tunables t>
struct smem_tiled_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_smem_tiled<t.bm, t.bn, t.bk>, t.bm * t.bn, 0, params, stream);
    }
};

// The block's tile of Y takes the place of the tiles of A and B in the epilogue.
[[maybe_unused]] constexpr int count_tile_bytes(const Tunables& t, int padding) {
    return count_bytes(std::max((t.bm + padding + t.bn) * t.bk, t.bm * t.bn));
}

template <Tunables t>
struct reg_tiled_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_reg_tiled<t.bm, t.bn, t.bk, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn), count_tile_bytes(t, 0), params,
                           stream);
    }
};

template <Tunables t>
struct vectorised_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_vectorised<t.bm, t.bn, t.bk, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn),
                           count_tile_bytes(t, kVectorElems), params, stream);
    }
};

template <Tunables t>
struct warp_tiled_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return launch_fp32(multiply_warp_tiled<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn),
                           count_tile_bytes(t, kVectorElems), params, stream);
    }
};

template <Tunables t>
struct pipelined_plan {
    template <bool kIsNk>
    using Config = Pipeline<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, kIsNk>;

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        if (params.b_layout == AICF_B_NK) return launch_kernel<1, true>(params, stream);
        if (has_vector_rows(params.b, params.ldb)) return launch_kernel<kVectorElems, false>(params, stream);
        return launch_kernel<1, false>(params, stream);
    }

    template <int kWidthB, bool kIsNk>
    static AicfStatus launch_kernel(const GemmBiasActParams& params, cudaStream_t stream) {
        using C = Config<kIsNk>;
        const auto kernel = params.p != nullptr ? find_kernel<kWidthB, kIsNk, true>() : find_kernel<kWidthB, kIsNk, false>();
        if (t.splits == 1) return launch_fp32(kernel, C::kThreads, C::kSharedBytes, params, stream);
        const dim3 grid(static_cast<unsigned>(count_blocks(params) * t.splits));
        return launch_early(kernel, grid, C::kThreads, C::kSharedBytes, t.splits, stream, make_gemm(params));
    }

    template <int kWidthB, bool kIsNk, bool kDrops>
    static auto find_kernel() {
        return multiply_pipelined<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, t.group, t.minblocks, kWidthB, t.splits, kIsNk,
                                  kDrops>;
    }
};

template <Tunables t>
struct boxed_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return params.b_layout == AICF_B_NK ? launch_layout<true>(params, stream) : launch_layout<false>(params, stream);
    }

    template <bool kTurnsB>
    static AicfStatus launch_layout(const GemmBiasActParams& params, cudaStream_t stream) {
        using L = BoxedLayout<t.bm, t.bn, t.bk, t.wm, t.wn, t.stages, kTurnsB>;
        constexpr auto kType = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
        CUtensorMap a, b;
        AICF_RETURN_IF_NOT_OK(encode_tensor_map(&a, {params.a, params.m, params.k, params.lda, kType, 4, t.bm, t.bk, 0}));
        if (kTurnsB) {
            AICF_RETURN_IF_NOT_OK(encode_tensor_map(&b, {params.b, params.n, params.k, params.ldb, kType, 4, t.bn, t.bk, 0}));
        } else {
            AICF_RETURN_IF_NOT_OK(encode_tensor_map(&b, {params.b, params.k, params.n, params.ldb, kType, 4, t.bk, t.bn, 0}));
        }
        return launch_early(multiply_boxed<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, t.group, t.minblocks, t.splits, kTurnsB>,
                            dim3(static_cast<unsigned>(count_blocks(params) * t.splits)), L::kThreads, L::kSharedBytes, t.splits, stream, a,
                            b, make_gemm(params));
    }
};

template <Tunables t>
struct boxed_evenly_plan {
    using Shapes = EvenShapes<t>;

    template <int kThreadM, bool kTurnsB>
    using Layout =
        EvenLayout<kThreadM, t.bn, t.bk, Shapes::count_stages(kThreadM * 8, true, kTurnsB), Shapes::kSlices, t.splits, true, kTurnsB>;

    static EvenProduct describe(const GemmBiasActParams& params) {
        return {params.m, params.n, params.k, t.bk, params.b_layout == AICF_B_NK ? EvenProduct::kTurningStep : 0.0};
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const EvenShape shape = Shapes::find(describe(params), num_sms, [](EvenTime time) { return time.span; });
        return Shapes::dispatch_rows(shape.thread_rows, [&](auto rows) {
            return params.b_layout == AICF_B_NK ? launch_rows<rows.value, true>(params, shape, stream)
                                                : launch_rows<rows.value, false>(params, shape, stream);
        });
    }

    template <int kThreadM, bool kTurnsB>
    static AicfStatus launch_rows(const GemmBiasActParams& params, EvenShape shape, cudaStream_t stream) {
        using L = Layout<kThreadM, kTurnsB>;
        CUtensorMap a, b;
        AICF_RETURN_IF_NOT_OK(encode_even_operand<true>(&a, params.a, params.m, params.k, params.lda, L::kTileM, t.bk));
        AICF_RETURN_IF_NOT_OK(encode_even_operand<kTurnsB>(&b, params.b, params.n, params.k, params.ldb, t.bn, t.bk));
        const std::int64_t num_blocks = Shapes::count_tiles(describe(params), L::kTileM) * shape.splits;
        return launch_early(multiply_boxed_evenly<L, t.group, t.minblocks>, dim3(static_cast<unsigned>(num_blocks)), L::kThreads,
                            L::kSharedBytes, shape.splits, stream, a, b, make_gemm(params), shape.splits);
    }
};

template <Tunables t>
struct skinny_plan {
    using L = SkinnyLayout<t.bm, t.bn, t.bk, t.stages, t.splits>;

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        const dim3 grid(t.splits, static_cast<unsigned>((params.n + t.bn - 1) / t.bn), static_cast<unsigned>((params.m + t.bm - 1) / t.bm));
        return launch_early(multiply_skinny<t.bm, t.bn, t.bk, t.stages, t.splits, t.minblocks>, grid, L::kThreads, L::kSharedBytes,
                            t.splits, stream, make_gemm(params));
    }
};

template <Tunables t>
struct tiny_plan {
    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        return dispatch_float(params.dtype, [&]<class Element>(Element) { return launch_dtype<Element>(params, stream); });
    }

    template <class Element>
    static AicfStatus launch_dtype(const GemmBiasActParams& params, cudaStream_t stream) {
        using L = ShortLayout<Element, t.bm, t.bn, t.stages>;
        constexpr int kItemBytes = static_cast<int>(sizeof(Element)), kQuadBytes = kVectorElems * kItemBytes;
        const auto has_quads = [](const void* base, std::int64_t stride) {
            return base == nullptr || has_aligned_rows(base, stride, kItemBytes, kQuadBytes);
        };
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const int splits = count_short_splits(count_blocks(params), divide_up(params.k, std::int64_t{L::kTileK}), num_sms, t.splits);
        const TinyProblem<Element> problem = {make_short_operand<Element>(params.a, params.lda),
                                              make_short_operand<Element>(params.b, params.ldb),
                                              static_cast<const Element*>(params.bias),
                                              static_cast<Element*>(params.y),
                                              static_cast<Element*>(params.z),
                                              static_cast<const Element*>(params.residual),
                                              params.ldy,
                                              params.ldz,
                                              params.ldresidual,
                                              static_cast<int>(params.m),
                                              static_cast<int>(params.n),
                                              static_cast<int>(params.k),
                                              static_cast<int>(params.act),
                                              splits,
                                              has_quads(params.bias, 0) && has_quads(params.y, params.ldy) &&
                                                  has_quads(params.z, params.ldz) && has_quads(params.residual, params.ldresidual)};
        const auto kernel = params.b_layout == AICF_B_NK ? multiply_tiny<L, true> : multiply_tiny<L, false>;
        return launch_early(kernel, dim3(static_cast<unsigned>(count_blocks(params) * splits)), L::kThreads, kTinySharedBytes<L>, splits,
                            stream, problem);
    }
};

template <Tunables t>
struct rows_plan {
    static constexpr int kMostRows = 16;

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        if (params.m == 1) return launch_kernel<1>(params, stream);
        if (params.m == 2) return launch_kernel<2>(params, stream);
        if (params.m <= 4) return launch_kernel<4>(params, stream);
        if (params.m <= 8) return launch_kernel<8>(params, stream);
        return launch_kernel<kMostRows>(params, stream);
    }

    template <int kRows>
    static AicfStatus launch_kernel(const GemmBiasActParams& params, cudaStream_t stream) {
        constexpr int kUnroll = kRows < 8 ? t.stages : (t.stages + 1) / 2;  // many sums leave few registers for what is on its way
        const auto num_blocks = static_cast<unsigned>((params.n + t.bn - 1) / t.bn);
        return launch_early(multiply_rows<kRows, t.bn, t.splits, kUnroll>, dim3(num_blocks), t.splits * 32, 0, 1, stream,
                            make_gemm(params));
    }
};

}  // namespace
}  // namespace aicf::gemm_bias_act

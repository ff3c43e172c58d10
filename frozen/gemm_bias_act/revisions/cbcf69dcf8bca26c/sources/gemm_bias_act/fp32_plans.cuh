// Plans of the fp32 kernels: what each takes of a problem, geometry, shared memory, launch.
#pragma once

#include "common/split_order.cuh"
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
    static constexpr int kThreads = 128;
    static constexpr int kMostRows = t.bm / 8, kLeastRows = t.bm / 16;  // of a thread

    // Where fewer rows, or no B that is transposed, leave room, the ring has more stages.
    static constexpr int count_stages(int rows, bool turns_b) {
        constexpr int kPadding = kVectorElems;
        constexpr int kElems = t.stages * (t.bm + t.bn) * t.bk + 2 * t.bk * (t.bm + t.bn + 2 * kPadding);
        const int turned = 2 * t.bk * (rows + kPadding + (turns_b ? t.bn + kPadding : 0));
        return (kElems - turned) / ((rows + t.bn) * t.bk);
    }

    template <int kThreadM, bool kTurnsB>
    using Layout = EvenLayout<kThreadM, t.bn, t.bk, count_stages(kThreadM * 8, kTurnsB), kThreads / t.bn, t.splits, kTurnsB>;

    struct Shape {
        int thread_rows, splits;
    };

    // What the busiest multiprocessor takes, in cycles. A block has a warp on each of its schedulers, so that blocks take turns at products
    // and share what a wave of them waits for. The five constants are those of the least error over the times of 346 launches on an H200,
    // of all four variants, with bk = 16 (profiles/gemm_bias_act/NOTES.md).
    static double estimate_cycles(const GemmBiasActParams& params, Shape shape, int num_sms) {
        constexpr double kProduct = 1.05;       // a row of a warp's tile and step of k: its products, and the instructions between them
        constexpr double kTurning = 5.0;        // a step of k, where B is transposed
        constexpr double kLeaving = 35.0;       // a row of the tile, whose sums are joined and stored
        constexpr double kWaiting = 280.0;      // a wave and tile of k: its barriers
        constexpr double kWaitingShare = 0.16;  // and of a block's products, what no other block hides
        constexpr int kBlocks = t.minblocks;
        const int rows = shape.thread_rows * 8, splits = shape.splits;
        const std::int64_t num_tiles = divide_up(params.m, std::int64_t{rows}) * divide_up(params.n, std::int64_t{t.bn});
        const std::int64_t at_once = count_resident_clusters(num_sms, splits, kBlocks);
        const std::int64_t whole_waves = num_tiles / at_once;
        const std::int64_t num_left = num_tiles - whole_waves * at_once;
        int last_blocks = 0;  // of a multiprocessor in the last wave
        while (num_left > 0 && (last_blocks == 0 || count_resident_clusters(num_sms, splits, last_blocks) < num_left)) ++last_blocks;
        // Behind a whole wave, clusters begin where the first ones end, and not one block to a multiprocessor.
        if (splits > 1 && whole_waves > 0 && last_blocks == 1) last_blocks = std::min(2, kBlocks);
        const auto num_blocks = static_cast<double>(whole_waves * kBlocks + last_blocks);
        const auto num_waves = static_cast<double>(whole_waves + (num_left > 0));
        const auto depth = static_cast<double>(divide_up(divide_up(params.k, std::int64_t{t.bk}), std::int64_t{splits}));  // tiles of k
        constexpr double kWarpSteps = t.bk * t.bn / 128.0;  // of a tile of k, whose steps slices share
        const double products = depth * kWarpSteps * (kProduct * rows + (params.b_layout == AICF_B_NK ? kTurning : 0.0));
        return num_blocks * (products + kLeaving * rows) + num_waves * (depth * kWaiting + kWaitingShare * products);
    }

    static Shape find_shape(const GemmBiasActParams& params, int num_sms) {
        const std::int64_t num_steps = divide_up(params.k, std::int64_t{t.bk});
        Shape best = {kMostRows, 1};
        double least = estimate_cycles(params, best, num_sms);
        const auto count_row_tiles = [&](int rows) { return divide_up(params.m, std::int64_t{rows} * 8); };
        for (int rows = kMostRows; rows >= kLeastRows; --rows) {
            if (rows > kLeastRows && count_row_tiles(rows - 1) == count_row_tiles(rows)) continue;  // fewer rows are as many tiles
            for (int splits = 1; splits <= t.splits && splits * 2 <= std::max<std::int64_t>(num_steps, 2); ++splits) {
                const double cycles = estimate_cycles(params, {rows, splits}, num_sms);
                if (cycles < least) {
                    least = cycles;
                    best = {rows, splits};
                }
            }
        }
        return best;
    }

    static AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const Shape shape = find_shape(params, num_sms);
        return params.b_layout == AICF_B_NK ? launch_rows<kMostRows, true>(params, shape, stream)
                                            : launch_rows<kMostRows, false>(params, shape, stream);
    }

    template <int kThreadM, bool kTurnsB>
    static AicfStatus launch_rows(const GemmBiasActParams& params, Shape shape, cudaStream_t stream) {
        if constexpr (kThreadM > kLeastRows) {
            if (shape.thread_rows < kThreadM) return launch_rows<kThreadM - 1, kTurnsB>(params, shape, stream);
        }
        using L = Layout<kThreadM, kTurnsB>;
        constexpr auto kType = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
        CUtensorMap a, b;
        AICF_RETURN_IF_NOT_OK(
            encode_tensor_map(&a, {params.a, params.m, params.k, params.lda, kType, 4, L::kTileM, t.bk, L::TurnerA::kSwizzleBytes}));
        if (kTurnsB) {
            AICF_RETURN_IF_NOT_OK(
                encode_tensor_map(&b, {params.b, params.n, params.k, params.ldb, kType, 4, t.bn, t.bk, L::TurnerB::kSwizzleBytes}));
        } else {
            AICF_RETURN_IF_NOT_OK(encode_tensor_map(&b, {params.b, params.k, params.n, params.ldb, kType, 4, t.bk, t.bn, 0}));
        }
        const std::int64_t num_tiles = divide_up(params.m, std::int64_t{L::kTileM}) * divide_up(params.n, std::int64_t{t.bn});
        return launch_early(multiply_boxed_evenly<L, t.group, t.minblocks>, dim3(static_cast<unsigned>(num_tiles * shape.splits)),
                            L::kThreads, L::kSharedBytes, shape.splits, stream, a, b, make_gemm(params), shape.splits);
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

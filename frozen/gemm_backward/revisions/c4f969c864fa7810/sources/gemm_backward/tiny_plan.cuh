// The plan of the kernel for few tiles: what it takes of a problem, geometry, workspace, launches.
#pragma once

#include "gemm_backward/paired_grid.cuh"
#include "gemm_backward/tiny.cuh"

namespace aicf::gemm_backward {
namespace {

template <Tunables t>
struct tiny_plan {
    template <class Element>
    using Layout = ShortLayout<Element, t.bm, t.bn, t.stages>;

    // Two products share the multiprocessors.
    static AicfStatus make_grid(const GemmBackwardParams& params, PairedGrid* grid) {
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const bool has_both = params.dz != nullptr && find_weight_grad(params).d != nullptr;
        const int num_blocks = has_both ? num_sms / 2 : num_sms;
        const int depth = params.dtype == AICF_DTYPE_FLOAT32 ? Layout<float>::kTileK : Layout<Bf16>::kTileK;
        *grid = make_paired_grid(params, t.bm, t.bn, [&](std::int64_t num_tiles, std::int64_t k) {
            return count_short_splits(num_tiles, divide_up_64(k, depth), num_blocks, t.splits);
        });
        return make_ok();
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus* status) {
        PairedGrid grid;
        *status = make_grid(params, &grid);
        return grid.count_sum_bytes(params);
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        return dispatch_float(params.dtype, [&]<class Element>(Element) { return launch_both<Element>(params, workspace, stream); });
    }

    template <class Element>
    static AicfStatus launch_both(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        using L = Layout<Element>;
        constexpr int kItemBytes = static_cast<int>(sizeof(Element));
        const auto has_quads = [](const void* base, std::int64_t stride) {
            return has_aligned_rows(base, stride, kItemBytes, kVectorElems * kItemBytes);
        };
        PairedGrid grid;
        AICF_RETURN_IF_NOT_OK(make_grid(params, &grid));
        TinyProblem<Element> problem = {};
        problem.num_dz_blocks = static_cast<int>(grid.dz.num_blocks);
        problem.cluster = grid.cluster;
        if (params.dz != nullptr) {
            const bool has_z = params.act != AICF_ACT_NONE;
            problem.dz = {make_short_operand<Element>(params.dy, params.lddy),
                          make_short_operand<Element>(params.w, params.ldw),
                          static_cast<Element*>(params.dz),
                          params.lddz,
                          static_cast<int>(params.m),
                          static_cast<int>(params.k),
                          static_cast<int>(params.n),
                          grid.dz.splits,
                          grid.dz.strips,
                          false,
                          has_quads(params.dz, params.lddz) && (!has_z || has_quads(params.z, params.ldz))};
            problem.z = has_z ? static_cast<const Element*>(params.z) : nullptr;
            problem.ldz = params.ldz;
            problem.act = static_cast<int>(params.act);
            problem.dbias = static_cast<Element*>(params.dbias);
        }
        const WeightGrad grad = find_weight_grad(params);
        if (grad.d != nullptr) {
            problem.dw = {make_short_operand<Element>(grad.a, grad.lda),
                          make_short_operand<Element>(grad.b, grad.ldb),
                          static_cast<Element*>(grad.d),
                          grad.ldd,
                          static_cast<int>(grad.rows),
                          static_cast<int>(grad.columns),
                          static_cast<int>(params.m),
                          grid.dw.splits,
                          grid.dw.strips,
                          grad.is_added,
                          has_quads(grad.d, grad.ldd)};
        }
        const bool is_finished_apart = grid.needs_second_launch(params);
        if (is_finished_apart) problem.partial_sums = static_cast<float*>(workspace);
        const auto kernel = is_nk(params) ? multiply_tiny<L, true> : multiply_tiny<L, false>;
        AICF_RETURN_IF_NOT_OK(launch_early(kernel, grid.find_size(), L::kThreads, kTinySharedBytes<L>, grid.cluster, stream, problem));
        if (!is_finished_apart) return make_ok();
        return finish_bias<Element>(problem.partial_sums, grid.dz.strips, params, stream);
    }
};

}  // namespace
}  // namespace aicf::gemm_backward

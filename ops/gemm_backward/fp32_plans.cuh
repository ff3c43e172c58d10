// Plans of the kernels of fp32 alone: what each takes of a problem, geometry, workspace, launches.
#pragma once

#include "gemm_backward/paired_grid.cuh"

namespace aicf::gemm_backward {
namespace {

template <Tunables t>
struct plain_plan {
    static std::int64_t count_sum_rows(const GemmBackwardParams& params) { return divide_up_64(params.m, t.tile); }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus*) {
        return count_sum_bytes(count_sum_rows(params), params);
    }

    static PlainMatrix view(const void* base, std::int64_t stride, bool is_transposed) {
        return {static_cast<const float*>(base), is_transposed ? 1 : stride, is_transposed ? stride : 1};
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        if (params.dz != nullptr) {
            PlainProduct dz = {};
            dz.a = view(params.dy, params.lddy, false);
            dz.b = view(params.w, params.ldw, !is_nk(params));
            dz.d = static_cast<float*>(params.dz);
            dz.ldd = params.lddz;
            dz.rows = static_cast<int>(params.m);
            dz.columns = static_cast<int>(params.k);
            dz.k = static_cast<int>(params.n);
            dz.z = params.act != AICF_ACT_NONE ? static_cast<const float*>(params.z) : nullptr;
            dz.ldz = params.ldz;
            dz.act = static_cast<int>(params.act);
            dz.partial_sums = params.dbias != nullptr ? static_cast<float*>(workspace) : nullptr;
            AICF_RETURN_IF_NOT_OK(launch_product(dz, stream));
        }
        if (params.dbias != nullptr) {
            AICF_RETURN_IF_NOT_OK(finish_bias<float>(static_cast<const float*>(workspace), count_sum_rows(params), params, stream));
        }
        const WeightGrad grad = find_weight_grad(params);
        if (grad.d == nullptr) return make_ok();
        PlainProduct dw = {};
        dw.a = view(grad.a, grad.lda, true);
        dw.b = view(grad.b, grad.ldb, false);
        dw.d = static_cast<float*>(grad.d);
        dw.ldd = grad.ldd;
        dw.is_added = grad.is_added;
        dw.rows = static_cast<int>(grad.rows);
        dw.columns = static_cast<int>(grad.columns);
        dw.k = static_cast<int>(params.m);
        return launch_product(dw, stream);
    }

    static AicfStatus launch_product(const PlainProduct& product, cudaStream_t stream) {
        const auto blocks = static_cast<unsigned>(divide_up_64(product.rows, t.tile) * divide_up_64(product.columns, t.tile));
        return launch_kernel(multiply_plain<t.tile>, dim3(blocks), t.tile * t.tile, 0, stream, product);
    }
};

template <Tunables t>
struct ffma_plan {
    using L = FfmaLayout<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, t.slices>;

    static FfmaOperand view(const void* base, std::int64_t stride) {
        return {static_cast<const float*>(base), stride, has_vector_rows(base, stride)};
    }

    // Blocks that share the k of a tile, a power of two: as many as keep every multiprocessor busy, with two steps at least for each.
    static AicfStatus make_grid(const GemmBackwardParams& params, PairedGrid* grid) {
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        *grid = make_paired_grid(params, t.bm, t.bn, [&](std::int64_t num_tiles, std::int64_t k) {
            int splits = 1;
            while (splits < kMostPairedBlocks && num_tiles * splits < num_sms && k >= 4 * splits * t.bk) splits *= 2;
            return splits;
        });
        return make_ok();
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus* status) {
        PairedGrid grid;
        *status = make_grid(params, &grid);
        return grid.count_sum_bytes(params);
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        PairedGrid grid;
        AICF_RETURN_IF_NOT_OK(make_grid(params, &grid));
        const bool is_finished_apart = grid.needs_second_launch(params);
        FfmaProblem problem = {};
        problem.cluster = grid.cluster;
        if (params.dz != nullptr) {
            FfmaProduct& dz = problem.dz;
            dz.a = view(params.dy, params.lddy);
            dz.b = view(params.w, params.ldw);
            dz.d = static_cast<float*>(params.dz);
            dz.ldd = params.lddz;
            dz.rows = static_cast<int>(params.m);
            dz.columns = static_cast<int>(params.k);
            dz.k = static_cast<int>(params.n);
            dz.has_vectors =
                has_vector_rows(params.dz, params.lddz) && (params.act == AICF_ACT_NONE || has_vector_rows(params.z, params.ldz));
            dz.splits = grid.dz.splits;
            dz.strips = grid.dz.strips;
        }
        const WeightGrad grad = find_weight_grad(params);
        if (grad.d != nullptr) {
            FfmaProduct& dw = problem.dw;
            dw.a = view(grad.a, grad.lda);
            dw.b = view(grad.b, grad.ldb);
            dw.d = static_cast<float*>(grad.d);
            dw.ldd = grad.ldd;
            dw.is_added = grad.is_added;
            dw.rows = static_cast<int>(grad.rows);
            dw.columns = static_cast<int>(grad.columns);
            dw.k = static_cast<int>(params.m);
            dw.has_vectors = has_vector_rows(grad.d, grad.ldd);
            dw.splits = grid.dw.splits;
            dw.strips = grid.dw.strips;
        }
        problem.num_dz_blocks = static_cast<int>(grid.dz.num_blocks);
        problem.z = params.act != AICF_ACT_NONE ? static_cast<const float*>(params.z) : nullptr;
        problem.ldz = params.ldz;
        problem.act = static_cast<int>(params.act);
        problem.column_sums = static_cast<float*>(is_finished_apart ? workspace : params.dbias);
        const auto kernel = is_nk(params) ? multiply_ffma<L, true, t.group, t.minblocks> : multiply_ffma<L, false, t.group, t.minblocks>;
        AICF_RETURN_IF_NOT_OK(launch_early(kernel, grid.find_size(), L::kThreads, kFfmaSharedBytes<L>, grid.cluster, stream, problem));
        if (!is_finished_apart) return make_ok();
        return finish_bias<float>(problem.column_sums, grid.dz.strips, params, stream);
    }
};

}  // namespace
}  // namespace aicf::gemm_backward

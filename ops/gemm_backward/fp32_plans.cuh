// Plans of the fp32 kernels: what each takes of a problem, geometry, workspace, launches.
#pragma once

#include "gemm_backward/launch_parts.cuh"

namespace aicf::gemm_backward {
namespace {

template <Tunables t>
struct plain_plan {
    static std::int64_t count_sum_rows(const GemmBackwardParams& params) { return divide_up_64(params.m, t.tile); }

    static AicfStatus check(const GemmBackwardParams& params) {
        AICF_RETURN_IF_NOT_OK(require_fp32(params));
        AICF_RETURN_IF_NOT_OK(require_weights(params));
        return check_tiles(params, t.tile, t.tile, t.tile, t.tile);
    }

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
    static constexpr int kMostBlocks = 8;  // of a cluster that every GPU with clusters can run

    // How the blocks of both products are dealt out, which depends on sizes and the number of multiprocessors alone.
    struct Plan {
        FfmaProduct dz, dw;
        int cluster;

        std::int64_t count_blocks(const FfmaProduct& product) const {
            return product.strips * divide_up_64(product.columns, t.bn) * cluster;
        }
    };

    static AicfStatus check(const GemmBackwardParams& params) {
        AICF_RETURN_IF_NOT_OK(require_fp32(params));
        AICF_RETURN_IF_NOT_OK(require_weights(params));
        return check_tiles(params, t.bm, t.bn, t.bm, t.bn);
    }

    static FfmaOperand view(const void* base, std::int64_t stride) {
        return {static_cast<const float*>(base), stride, has_vector_rows(base, stride)};
    }

    // Blocks that share the k of a tile, a power of two: as many as keep every multiprocessor busy, with two steps at least for each.
    static int count_splits(const FfmaProduct& product, int num_sms) {
        const std::int64_t tiles = divide_up_64(product.rows, t.bm) * divide_up_64(product.columns, t.bn);
        int splits = 1;
        while (splits < kMostBlocks && tiles * splits < num_sms && product.k >= 4 * splits * t.bk) splits *= 2;
        return splits;
    }

    static AicfStatus make_plan(const GemmBackwardParams& params, Plan* plan) {
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        *plan = {};
        plan->cluster = 1;
        FfmaProduct& dz = plan->dz;
        FfmaProduct& dw = plan->dw;
        if (params.dz != nullptr) {
            dz.a = view(params.dy, params.lddy);
            dz.b = view(params.w, params.ldw);
            dz.d = static_cast<float*>(params.dz);
            dz.ldd = params.lddz;
            dz.rows = static_cast<int>(params.m);
            dz.columns = static_cast<int>(params.k);
            dz.k = static_cast<int>(params.n);
            dz.has_vectors =
                has_vector_rows(params.dz, params.lddz) && (params.act == AICF_ACT_NONE || has_vector_rows(params.z, params.ldz));
            dz.splits = count_splits(dz, num_sms);
            // All rows of tiles in one cluster where it holds them: then its sums of columns are dbias.
            int below = 1;
            const std::int64_t tiles = divide_up_64(params.m, t.bm);
            if (params.dbias != nullptr && tiles * dz.splits <= kMostBlocks) {
                while (below < tiles) below *= 2;
            }
            plan->cluster = std::max(plan->cluster, dz.splits * below);
        }
        const WeightGrad grad = find_weight_grad(params);
        if (grad.d != nullptr) {
            dw.a = view(grad.a, grad.lda);
            dw.b = view(grad.b, grad.ldb);
            dw.d = static_cast<float*>(grad.d);
            dw.ldd = grad.ldd;
            dw.is_added = grad.is_added;
            dw.rows = static_cast<int>(grad.rows);
            dw.columns = static_cast<int>(grad.columns);
            dw.k = static_cast<int>(params.m);
            dw.has_vectors = has_vector_rows(grad.d, grad.ldd);
            dw.splits = count_splits(dw, num_sms);
            plan->cluster = std::max(plan->cluster, dw.splits);
        }
        for (FfmaProduct* product : {&dz, &dw}) {
            if (product->d == nullptr) continue;
            product->strips = static_cast<int>(divide_up_64(divide_up_64(product->rows, t.bm), plan->cluster / product->splits));
        }
        return make_ok();
    }

    static bool needs_second_launch(const GemmBackwardParams& params, const Plan& plan) {
        return params.dbias != nullptr && plan.dz.strips > 1;
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus* status) {
        Plan plan;
        *status = make_plan(params, &plan);
        return needs_second_launch(params, plan) ? count_sum_bytes(plan.dz.strips, params) : 0;
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        Plan plan;
        AICF_RETURN_IF_NOT_OK(make_plan(params, &plan));
        const bool is_finished_apart = needs_second_launch(params, plan);
        FfmaProblem problem = {};
        problem.dz = plan.dz;
        problem.dw = plan.dw;
        problem.cluster = plan.cluster;
        problem.num_dz_blocks = params.dz != nullptr ? static_cast<int>(plan.count_blocks(plan.dz)) : 0;
        problem.z = params.act != AICF_ACT_NONE ? static_cast<const float*>(params.z) : nullptr;
        problem.ldz = params.ldz;
        problem.act = static_cast<int>(params.act);
        problem.column_sums = static_cast<float*>(is_finished_apart ? workspace : params.dbias);
        const auto kernel = is_nk(params) ? multiply_ffma<L, true, t.group, t.minblocks> : multiply_ffma<L, false, t.group, t.minblocks>;
        const std::int64_t blocks = problem.num_dz_blocks + (plan.dw.d != nullptr ? plan.count_blocks(plan.dw) : 0);
        AICF_RETURN_IF_NOT_OK(
            launch_early(kernel, dim3(static_cast<unsigned>(blocks)), L::kThreads, kFfmaSharedBytes<L>, plan.cluster, stream, problem));
        if (!is_finished_apart) return make_ok();
        return finish_bias<float>(problem.column_sums, plan.dz.strips, params, stream);
    }
};

}  // namespace
}  // namespace aicf::gemm_backward

// Plans of the tensor-core kernels of 16-bit floats: what each takes of a problem, geometry, workspace, launches.
#pragma once

#include "common/repack.cuh"
#include "gemm_backward/launch_parts.cuh"

namespace aicf::gemm_backward {
namespace {

template <Tunables t>
struct mma_plan {
    using L = MmaLayout<t.bm, t.bn, t.wm, t.wn, t.stages>;

    static std::int64_t count_sum_rows(const GemmBackwardParams& params) { return divide_up_64(params.m, t.bm) * (t.bm / t.wm); }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus*) {
        return count_sum_bytes(count_sum_rows(params), params);
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        return dispatch(params, [&]<class Element, class IsNk>(Element, IsNk) {
            const auto view = [](const void* base, std::int64_t stride) {
                return MmaOperand<Element>{static_cast<const Element*>(base), stride, is_mappable(base, stride, kHalfBytes)};
            };
            const auto has_pairs = [](const void* base, std::int64_t stride) {
                return base == nullptr || has_aligned_rows(base, stride, kHalfBytes, 4);
            };
            if (params.dz != nullptr) {
                MmaProblem<Element> problem = {view(params.dy, params.lddy),
                                               view(params.w, params.ldw),
                                               static_cast<Element*>(params.dz),
                                               params.lddz,
                                               static_cast<int>(params.m),
                                               static_cast<int>(params.k),
                                               static_cast<int>(params.n),
                                               has_pairs(params.dz, params.lddz),
                                               nullptr,
                                               0,
                                               static_cast<int>(params.act),
                                               params.dbias != nullptr ? static_cast<float*>(workspace) : nullptr,
                                               false};
                if (params.act != AICF_ACT_NONE) {
                    problem.z = static_cast<const Element*>(params.z);
                    problem.ldz = params.ldz;
                    problem.has_pairs = problem.has_pairs && has_pairs(params.z, params.ldz);
                }
                AICF_RETURN_IF_NOT_OK((launch_product<false, IsNk::value>(problem, stream)));
                if (params.dbias != nullptr) {
                    AICF_RETURN_IF_NOT_OK(
                        finish_bias<Element>(static_cast<const float*>(workspace), count_sum_rows(params), params, stream));
                }
            }
            const WeightGrad dw = find_weight_grad(params);
            if (dw.d == nullptr) return make_ok();
            const MmaProblem<Element> problem = {view(dw.a, dw.lda),
                                                 view(dw.b, dw.ldb),
                                                 static_cast<Element*>(dw.d),
                                                 dw.ldd,
                                                 static_cast<int>(dw.rows),
                                                 static_cast<int>(dw.columns),
                                                 static_cast<int>(params.m),
                                                 has_pairs(dw.d, dw.ldd),
                                                 nullptr,
                                                 0,
                                                 AICF_ACT_NONE,
                                                 nullptr,
                                                 dw.is_added};
            return launch_product<true, true>(problem, stream);
        });
    }

    template <bool kTransposedA, bool kTransposedB, class Element>
    static AicfStatus launch_product(const MmaProblem<Element>& problem, cudaStream_t stream) {
        const auto kernel = multiply_mma<Element, L, kTransposedA, kTransposedB, t.group>;
        AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, L::kSharedBytes));
        const auto num_blocks = static_cast<unsigned>(divide_up_64(problem.m, t.bm) * divide_up_64(problem.n, t.bn));
        kernel<<<num_blocks, L::kThreads, L::kSharedBytes, stream>>>(problem);
        return AICF_CUDA_STATUS(cudaGetLastError());
    }
};

template <Tunables t>
struct wgmma_plan {
    using ConfigZ =
        WgmmaTunables<t.bm, t.bn, t.stages, t.clusterm, t.clustern, t.pingpong, t.group, t.slabs, count_act_grad_bytes(t.bn, t.slabs)>;
    using ConfigW = WgmmaTunables<t.dwbm, t.dwbn, 4, t.dwclusterm, t.dwclustern, t.dwpingpong, t.group, 2, 0>;
    using LayoutZ = WgmmaLayout<ConfigZ>;
    using LayoutW = WgmmaLayout<ConfigW>;

    // Parts of the workspace, in this order.
    struct Workspace {
        std::int64_t sum_rows, sum_bytes;
        std::int64_t copy_bytes;  // of matrices whose rows are off 16-byte boundaries, which come first
        std::int64_t slot_bytes;  // of parts of tiles of dW, all blocks
        int num_flags;
        SplitGrid grid;

        std::int64_t count_bytes() const {
            return copy_bytes + sum_bytes + slot_bytes + num_flags * static_cast<std::int64_t>(sizeof(std::uint32_t));
        }
    };

    static AicfStatus plan_workspace(const GemmBackwardParams& params, Workspace* result) {
        *result = {};
        result->sum_rows = divide_up_64(params.m, t.bm * t.clusterm) * t.clusterm * (t.bm / LayoutZ::kRows);
        result->sum_bytes = count_sum_bytes(result->sum_rows, params);
        result->copy_bytes = count_copies(params);
        if (params.dw == nullptr) return make_ok();
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const int num_clusters = count_resident_clusters(num_sms, LayoutW::kClusterSize);
        const WeightGrad dw = find_weight_grad(params);
        // A second kernel costs less than waiting, and sums of fewer steps than these take longer to join than to make.
        constexpr bool kIsJoined = kHasSecondKernel<ConfigW>;
        constexpr int kLeastSteps = kIsJoined ? 4 : 1;
        constexpr JoinCost kGain = {kIsJoined ? count_join_steps<ConfigW>() : kJoinSteps};
        result->grid = split_tile_grid(make_tile_grid<ConfigW>(dw.rows, dw.columns, params.m), num_clusters, kGain, kLeastSteps);
        const SplitWorkspace split = plan_split_workspace<ConfigW>(result->grid, kIsJoined);
        result->slot_bytes = split.slot_bytes;
        result->num_flags = split.num_flags;
        return make_ok();
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus* status) {
        Workspace plan;
        *status = plan_workspace(params, &plan);
        return plan.count_bytes();
    }

    // Matrices that tensor copies cannot read or write as they lie go through copies: rows of W and dW, and of the others.
    static std::int64_t count_copies(GemmBackwardParams params) {
        Repacker operands(kHalfBytes, nullptr);
        Repacker results(kHalfBytes, nullptr);
        bring_operands(&params, &operands);
        take_results(&params, &results);
        return operands.count_bytes() + results.count_bytes();
    }

    static void bring_operands(GemmBackwardParams* p, Repacker* repacker) {
        repacker->bring(&p->dy, &p->lddy, p->m, p->n);
        if (p->dz != nullptr) repacker->bring(&p->w, &p->ldw, is_nk(*p) ? p->n : p->k, is_nk(*p) ? p->k : p->n);
        if (p->dz != nullptr && p->act != AICF_ACT_NONE) repacker->bring(&p->z, &p->ldz, p->m, p->k);
        if (p->dw != nullptr) repacker->bring(&p->x, &p->ldx, p->m, p->k);
    }

    static void take_results(GemmBackwardParams* p, Repacker* repacker) {
        if (p->dz != nullptr) repacker->take(&p->dz, &p->lddz, p->m, p->k);
        if (p->dw != nullptr) repacker->take(&p->dw, &p->lddw, is_nk(*p) ? p->n : p->k, is_nk(*p) ? p->k : p->n);
    }

    static AicfStatus launch(GemmBackwardParams params, void* workspace, cudaStream_t stream) {
        Workspace plan;
        AICF_RETURN_IF_NOT_OK(plan_workspace(params, &plan));
        Repacker operands(kHalfBytes, workspace);
        bring_operands(&params, &operands);
        AICF_RETURN_IF_NOT_OK(operands.launch(stream));
        Repacker results(kHalfBytes, operands.place());
        take_results(&params, &results);
        std::uint8_t* const base = results.place();
        auto* const sums = reinterpret_cast<float*>(base);
        plan.grid.slots = reinterpret_cast<float*>(base + plan.sum_bytes);
        plan.grid.flags = reinterpret_cast<std::uint32_t*>(base + plan.sum_bytes + plan.slot_bytes);
        AICF_RETURN_IF_NOT_OK(dispatch(params, [&]<class Element, class IsNk>(Element, IsNk) {
            if (params.dz != nullptr) {
                AICF_RETURN_IF_NOT_OK((launch_act_grad<Element, IsNk::value>(params, plan, sums, stream)));
            } else if (plan.num_flags > 0) {
                AICF_RETURN_IF_NOT_OK(
                    launch_early(clear_flags<std::uint32_t>, dim3(1), 256, 0, 1, stream, plan.grid.flags, plan.num_flags));
            }
            if (params.dw != nullptr) AICF_RETURN_IF_NOT_OK(launch_weight_grad<Element>(params, plan.grid, stream));
            if (params.dbias == nullptr) return make_ok();
            return finish_bias<Element>(sums, plan.sum_rows, params, stream);
        }));
        return results.launch(stream);
    }

    static AicfStatus count_blocks(int num_tiles, int cluster_size, dim3* result) {
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        *result = dim3(static_cast<unsigned>(std::min(num_tiles, count_resident_clusters(num_sms, cluster_size)) * cluster_size));
        return make_ok();
    }

    template <class Element, bool kIsNk>
    static AicfStatus launch_act_grad(const GemmBackwardParams& params, const Workspace& plan, float* sums, cudaStream_t stream) {
        using L = LayoutZ;
        CUtensorMap dy, w, z, dz;
        AICF_RETURN_IF_NOT_OK(encode_half(&dy, params.dtype, params.dy, params.m, params.n, params.lddy, t.bm / t.clustern));
        if (kIsNk) {
            AICF_RETURN_IF_NOT_OK(encode_half(&w, params.dtype, params.w, params.n, params.k, params.ldw, L::kTileK / t.clusterm));
        } else {
            AICF_RETURN_IF_NOT_OK(encode_half(&w, params.dtype, params.w, params.k, params.n, params.ldw, t.bn / t.clusterm));
        }
        AICF_RETURN_IF_NOT_OK(encode_half(&dz, params.dtype, params.dz, params.m, params.k, params.lddz, L::kSlabRows));
        z = dz;
        const bool has_z = params.act != AICF_ACT_NONE;
        if (has_z) AICF_RETURN_IF_NOT_OK(encode_half(&z, params.dtype, params.z, params.m, params.k, params.ldz, L::kSlabRows));
        ActGradProblem problem = {};
        problem.partial_sums = sums;
        problem.has_sums = params.dbias != nullptr;
        problem.m = static_cast<int>(params.m);
        problem.n = static_cast<int>(params.k);
        problem.act = static_cast<int>(params.act);
        problem.has_z = has_z;
        problem.flags = plan.grid.flags;
        problem.num_flags = plan.num_flags;
        problem.grid = make_tile_grid<ConfigZ>(params.m, params.k, params.n);
        dim3 grid;
        AICF_RETURN_IF_NOT_OK(count_blocks(problem.grid.num_tiles, L::kClusterSize, &grid));
        return launch_early(multiply_act_grad<Element, ConfigZ, kIsNk>, grid, L::kThreads, L::kSharedBytes, L::kClusterSize, stream, dy, w,
                            z, dz, problem);
    }

    template <class Element>
    static AicfStatus launch_weight_grad(const GemmBackwardParams& params, const SplitGrid& split, cudaStream_t stream) {
        using L = LayoutW;
        const WeightGrad dw = find_weight_grad(params);
        CUtensorMap a, b, target;
        AICF_RETURN_IF_NOT_OK(encode_half(&a, params.dtype, dw.a, params.m, dw.rows, dw.lda, L::kTileK / t.dwclustern));
        AICF_RETURN_IF_NOT_OK(encode_half(&b, params.dtype, dw.b, params.m, dw.columns, dw.ldb, L::kTileK / t.dwclusterm));
        AICF_RETURN_IF_NOT_OK(encode_half(&target, params.dtype, params.dw, dw.rows, dw.columns, params.lddw, L::kSlabRows));
        // Of a split grid every cluster has its range.
        const dim3 grid(static_cast<unsigned>(split.num_clusters * L::kClusterSize));
        AICF_RETURN_IF_NOT_OK(launch_early(multiply_weight_grad<Element, ConfigW>, grid, L::kThreads, L::kSharedBytes, L::kClusterSize,
                                           stream, a, b, target, split));
        if constexpr (kHasSecondKernel<ConfigW>) {
            if (split.num_split == 0) return make_ok();
            const dim3 blocks(static_cast<unsigned>(split.num_split * L::kClusterSize), count_add_blocks<ConfigW>());
            return launch_early(add_weight_parts<Element, ConfigW>, blocks, kAddThreads, 0, 1, stream, static_cast<Element*>(params.dw),
                                params.lddw, static_cast<int>(dw.rows), static_cast<int>(dw.columns), split);
        }
        return make_ok();
    }
};

}  // namespace
}  // namespace aicf::gemm_backward

// Plans of the tensor-core kernels of 16-bit floats: what each takes of a problem, geometry, workspace, launches.
#pragma once

#include "common/repack.cuh"
#include "common/split_plan.cuh"
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

// dW's share of a launch on the main loop of common/wgmma_pipeline.cuh: its steps are split where waves are short.
template <Tunables t>
struct WeightGradPlan {
    using Config = WgmmaTunables<t.dwbm, t.dwbn, 4, t.dwclusterm, t.dwclustern, t.dwpingpong, t.group, 2, 0>;
    using L = WgmmaLayout<Config>;
    SplitGrid grid;
    SplitWorkspace workspace;

    static AicfStatus make(const GemmBackwardParams& params, WeightGradPlan* result) {
        *result = {};
        if (params.dw == nullptr) return make_ok();
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const int num_clusters = count_resident_clusters(num_sms, L::kClusterSize);
        const WeightGrad dw = find_weight_grad(params);
        // A second kernel costs less than waiting, and sums of fewer steps than these take longer to join than to make.
        constexpr bool kIsJoined = kHasSecondKernel<Config>;
        constexpr int kLeastSteps = kIsJoined ? 4 : 1;
        constexpr JoinCost kGain = {kIsJoined ? count_join_steps<Config>() : kJoinSteps};
        result->grid = split_tile_grid(make_tile_grid<Config>(dw.rows, dw.columns, params.m), num_clusters, kGain, kLeastSteps);
        result->workspace = plan_split_workspace<Config>(result->grid, kIsJoined);
        return make_ok();
    }

    template <class Element>
    AicfStatus launch(const GemmBackwardParams& params, cudaStream_t stream) const {
        const WeightGrad dw = find_weight_grad(params);
        CUtensorMap a, b, target;
        AICF_RETURN_IF_NOT_OK(encode_half(&a, params.dtype, dw.a, params.m, dw.rows, dw.lda, L::kTileK / t.dwclustern));
        AICF_RETURN_IF_NOT_OK(encode_half(&b, params.dtype, dw.b, params.m, dw.columns, dw.ldb, L::kTileK / t.dwclusterm));
        AICF_RETURN_IF_NOT_OK(encode_half(&target, params.dtype, params.dw, dw.rows, dw.columns, params.lddw, L::kSlabRows));
        // Of a split grid every cluster has its range.
        const dim3 blocks(static_cast<unsigned>(grid.num_clusters * L::kClusterSize));
        AICF_RETURN_IF_NOT_OK(launch_early(multiply_weight_grad<Element, Config>, blocks, L::kThreads, L::kSharedBytes, L::kClusterSize,
                                           stream, a, b, target, grid));
        if constexpr (kHasSecondKernel<Config>) {
            if (grid.num_split == 0) return make_ok();
            const dim3 of_parts(static_cast<unsigned>(grid.num_split * L::kClusterSize), count_add_blocks<Config>());
            return launch_early(add_weight_parts<Element, Config>, of_parts, kAddThreads, 0, 1, stream, static_cast<Element*>(params.dw),
                                params.lddw, static_cast<int>(dw.rows), static_cast<int>(dw.columns), grid);
        }
        return make_ok();
    }
};

// Matrices that tensor copies cannot read or write as they lie go through copies: rows of W and dW, and of the others.
void bring_operands(GemmBackwardParams* p, Repacker* repacker) {
    repacker->bring(&p->dy, &p->lddy, p->m, p->n);
    if (p->dz != nullptr) repacker->bring(&p->w, &p->ldw, is_nk(*p) ? p->n : p->k, is_nk(*p) ? p->k : p->n);
    if (p->dz != nullptr && p->act != AICF_ACT_NONE) repacker->bring(&p->z, &p->ldz, p->m, p->k);
    if (p->dw != nullptr) repacker->bring(&p->x, &p->ldx, p->m, p->k);
}

// dZ may leave by stores that need no copy.
void take_results(GemmBackwardParams* p, Repacker* repacker, bool has_copy_of_dz) {
    if (p->dz != nullptr && has_copy_of_dz) repacker->take(&p->dz, &p->lddz, p->m, p->k);
    if (p->dw != nullptr) repacker->take(&p->dw, &p->lddw, is_nk(*p) ? p->n : p->k, is_nk(*p) ? p->k : p->n);
}

// Launches on the main loop of common/wgmma_pipeline.cuh: copies of operands, dZ as GradPlan has it, dW, dbias, copies of results.
//
// GradPlan: kHasCopyOfDz; make(params, plan) counts sum_rows, the rows of partial sums, and slot_bytes, of parts of tiles of dZ;
// launch<Element, kIsNk>(params, sums, slots, flags, num_flags, stream), which clears the flags.
template <Tunables t, class GradPlan>
struct HalfPlan {
    using WeightPlan = WeightGradPlan<t>;

    // Parts of the workspace, in this order. Those of dZ's tiles are added before dW's are made.
    struct Workspace {
        GradPlan grad;
        WeightPlan weights;
        std::int64_t copy_bytes;  // of matrices whose rows are off 16-byte boundaries
        std::int64_t sum_bytes;
        std::int64_t slot_bytes;  // of parts of tiles

        std::int64_t count_bytes() const {
            return copy_bytes + sum_bytes + slot_bytes + weights.workspace.num_flags * static_cast<std::int64_t>(sizeof(std::uint32_t));
        }
    };

    static AicfStatus plan_workspace(const GemmBackwardParams& params, Workspace* result) {
        *result = {};
        AICF_RETURN_IF_NOT_OK(GradPlan::make(params, &result->grad));
        AICF_RETURN_IF_NOT_OK(WeightPlan::make(params, &result->weights));
        result->copy_bytes = count_copies(params);
        result->sum_bytes = count_sum_bytes(result->grad.sum_rows, params);
        result->slot_bytes = std::max(result->grad.slot_bytes, result->weights.workspace.slot_bytes);
        return make_ok();
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus* status) {
        Workspace plan;
        *status = plan_workspace(params, &plan);
        return plan.count_bytes();
    }

    static std::int64_t count_copies(GemmBackwardParams params) {
        Repacker operands(kHalfBytes, nullptr);
        Repacker results(kHalfBytes, nullptr);
        bring_operands(&params, &operands);
        take_results(&params, &results, GradPlan::kHasCopyOfDz);
        return operands.count_bytes() + results.count_bytes();
    }

    static AicfStatus launch(GemmBackwardParams params, void* workspace, cudaStream_t stream) {
        Workspace plan;
        AICF_RETURN_IF_NOT_OK(plan_workspace(params, &plan));
        Repacker operands(kHalfBytes, workspace);
        bring_operands(&params, &operands);
        AICF_RETURN_IF_NOT_OK(operands.launch(stream));
        Repacker results(kHalfBytes, operands.place());
        take_results(&params, &results, GradPlan::kHasCopyOfDz);
        auto* const sums = reinterpret_cast<float*>(results.place());
        auto* const slots = reinterpret_cast<float*>(results.place() + plan.sum_bytes);
        auto* const flags = reinterpret_cast<std::uint32_t*>(results.place() + plan.sum_bytes + plan.slot_bytes);
        plan.weights.grid.slots = slots;
        plan.weights.grid.flags = flags;
        const int num_flags = plan.weights.workspace.num_flags;
        AICF_RETURN_IF_NOT_OK(dispatch(params, [&]<class Element, class IsNk>(Element, IsNk) {
            if (params.dz != nullptr) {
                AICF_RETURN_IF_NOT_OK((plan.grad.template launch<Element, IsNk::value>(params, sums, slots, flags, num_flags, stream)));
            } else if (num_flags > 0) {
                AICF_RETURN_IF_NOT_OK(launch_early(clear_flags<std::uint32_t>, dim3(1), 256, 0, 1, stream, flags, num_flags));
            }
            if (params.dw != nullptr) AICF_RETURN_IF_NOT_OK(plan.weights.template launch<Element>(params, stream));
            if (params.dbias == nullptr || plan.grad.sum_rows == 0) return make_ok();
            return finish_bias<Element>(sums, plan.grad.sum_rows, params, stream);
        }));
        return results.launch(stream);
    }
};

// dZ in tiles of fixed sizes, none of them split.
template <Tunables t>
struct ActGradPlan {
    static constexpr bool kHasCopyOfDz = true;
    using Config =
        WgmmaTunables<t.bm, t.bn, t.stages, t.clusterm, t.clustern, t.pingpong, t.group, t.slabs, count_act_grad_bytes(t.bn, t.slabs)>;
    using L = WgmmaLayout<Config>;
    std::int64_t sum_rows, slot_bytes;

    static AicfStatus make(const GemmBackwardParams& params, ActGradPlan* result) {
        result->sum_rows = divide_up_64(params.m, t.bm * t.clusterm) * t.clusterm * (t.bm / L::kRows);
        return make_ok();
    }

    template <class Element, bool kIsNk>
    AicfStatus launch(const GemmBackwardParams& params, float* sums, float*, std::uint32_t* flags, int num_flags,
                      cudaStream_t stream) const {
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
        problem.flags = flags;
        problem.num_flags = num_flags;
        problem.grid = make_tile_grid<Config>(params.m, params.k, params.n);
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const int num_clusters = std::min(problem.grid.num_tiles, count_resident_clusters(num_sms, L::kClusterSize));
        const dim3 grid(static_cast<unsigned>(num_clusters * L::kClusterSize));
        return launch_early(multiply_act_grad<Element, Config, kIsNk>, grid, L::kThreads, L::kSharedBytes, L::kClusterSize, stream, dy, w,
                            z, dz, problem);
    }
};

template <Tunables t>
struct wgmma_plan : HalfPlan<t, ActGradPlan<t>> {};

// dZ in tiles of as many of its rows, t.bm at most, as take the least time; their steps are split where that gains.
template <Tunables t>
struct TurnedGradPlan {
    static constexpr bool kHasCopyOfDz = false;
    static constexpr int kGroups = count_consumers(t.bn, 0);
    using Config =
        EvenTunables<WgmmaTunables<t.bn, t.bm, t.stages, t.clustern, t.clusterm, 0, t.group, 0, count_turned_grad_bytes(kGroups)>>;
    using L = WgmmaLayout<Config>;
    using Split = SplitPlan<Config, true, true>;
    std::int64_t sum_rows, slot_bytes;
    Split split;

    static AicfStatus make(const GemmBackwardParams& params, TurnedGradPlan* result) {
        if (params.dz == nullptr) return make_ok();
        AICF_RETURN_IF_NOT_OK(Split::make(params.m, params.k, params.n, &result->split));
        result->slot_bytes = result->split.workspace.slot_bytes;
        const std::int64_t tiles_of_rows = divide_up_64(params.m, result->split.grid.columns);
        result->sum_rows = tiles_of_rows > 1 ? tiles_of_rows : 0;
        return make_ok();
    }

    template <class Element, bool kIsNk>
    AicfStatus launch(const GemmBackwardParams& params, float* sums, float* slots, std::uint32_t* flags, int num_flags,
                      cudaStream_t stream) const {
        CUtensorMap w, dy;
        const int rows = Config::count_columns(split.grid) / t.clustern;
        AICF_RETURN_IF_NOT_OK(encode_half(&dy, params.dtype, params.dy, params.m, params.n, params.lddy, rows));
        if (kIsNk) {
            AICF_RETURN_IF_NOT_OK(encode_half(&w, params.dtype, params.w, params.n, params.k, params.ldw, L::kTileK / t.clusterm));
        } else {
            AICF_RETURN_IF_NOT_OK(encode_half(&w, params.dtype, params.w, params.k, params.n, params.ldw, t.bn / t.clusterm));
        }
        TurnedGradProblem problem = {};
        problem.z = params.act != AICF_ACT_NONE ? params.z : nullptr;
        problem.ldz = params.ldz;
        problem.dz = params.dz;
        problem.lddz = params.lddz;
        problem.partial_sums = params.dbias != nullptr && sum_rows > 0 ? sums : nullptr;
        problem.dbias = sum_rows > 0 ? nullptr : params.dbias;
        problem.m = static_cast<int>(params.m);
        problem.n = static_cast<int>(params.k);
        problem.act = static_cast<int>(params.act);
        problem.has_chunks = is_mappable(params.dz, params.lddz, kHalfBytes);
        problem.flags = flags;
        problem.num_flags = num_flags;
        EvenSplitGrid grid = split.grid;
        grid.slots = slots;
        AICF_RETURN_IF_NOT_OK(launch_early(multiply_turned_grad<Element, Config, kIsNk>, split.count_blocks(), L::kThreads, L::kSharedBytes,
                                           L::kClusterSize, stream, w, dy, problem, grid));
        if (grid.num_split == 0) return make_ok();
        const dim3 blocks(static_cast<unsigned>(grid.num_split * L::kClusterSize), t.bn / 16);
        return launch_early(add_grad_parts<Element, Config>, blocks, kAddGradWarps<Config> * 32, 0, 1, stream, problem, grid);
    }
};

template <Tunables t>
struct turned_evenly_plan : HalfPlan<t, TurnedGradPlan<t>> {};

}  // namespace
}  // namespace aicf::gemm_backward

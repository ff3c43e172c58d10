// Entry points of one variant of gemm_backward: checks, geometry, workspace, launches.
//
// The build names the kernel and binds its tunables: AICF_KERNEL, AICF_VARIANT, AICF_BM, ... A tunable that the kernel does not have is 0.
#include <algorithm>
#include <climits>
#include <cstdint>
#include <type_traits>

#include "common/launch.hpp"
#include "common/repack.cuh"
#include "gemm_backward/api.hpp"
#include "gemm_backward/kernels.cu"

#ifndef AICF_BM
#define AICF_BM 0
#endif
#ifndef AICF_BN
#define AICF_BN 0
#endif
#ifndef AICF_ROWS
#define AICF_ROWS 0
#endif
#ifndef AICF_UNROLL
#define AICF_UNROLL 0
#endif
#ifndef AICF_WM
#define AICF_WM 0
#endif
#ifndef AICF_WN
#define AICF_WN 0
#endif
#ifndef AICF_STAGES
#define AICF_STAGES 0
#endif
#ifndef AICF_SLABS
#define AICF_SLABS 0
#endif
#ifndef AICF_CLUSTERM
#define AICF_CLUSTERM 0
#endif
#ifndef AICF_CLUSTERN
#define AICF_CLUSTERN 0
#endif
#ifndef AICF_PINGPONG
#define AICF_PINGPONG 0
#endif
#ifndef AICF_GROUP
#define AICF_GROUP 0
#endif
#ifndef AICF_DWBM
#define AICF_DWBM 0
#endif
#ifndef AICF_DWBN
#define AICF_DWBN 0
#endif
#ifndef AICF_DWPINGPONG
#define AICF_DWPINGPONG 0
#endif
#ifndef AICF_DWCLUSTERM
#define AICF_DWCLUSTERM 0
#endif
#ifndef AICF_DWCLUSTERN
#define AICF_DWCLUSTERN 0
#endif

namespace aicf::gemm_backward {
namespace {

// Meanings and units of the tunables are in space.py.
struct Tunables {
    int bm, bn, wm, wn, stages, slabs, clusterm, clustern, pingpong, group, dwbm, dwbn, dwclusterm, dwclustern, dwpingpong, rows, unroll;
};

constexpr Tunables kTunables = {AICF_BM,         AICF_BN,         AICF_WM,         AICF_WN,    AICF_STAGES, AICF_SLABS,
                                AICF_CLUSTERM,   AICF_CLUSTERN,   AICF_PINGPONG,   AICF_GROUP, AICF_DWBM,   AICF_DWBN,
                                AICF_DWCLUSTERM, AICF_DWCLUSTERN, AICF_DWPINGPONG, AICF_ROWS,  AICF_UNROLL};

std::int64_t divide_up_64(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

bool is_nk(const GemmBackwardParams& params) { return params.w_layout == AICF_W_NK; }

// dW as a product: which operand gives its rows. kn: X' dY, [k, n]; nk: dY' X, [n, k].
struct WeightGrad {
    const void *a, *b;
    std::int64_t lda, ldb, rows, columns;
};

[[maybe_unused]] WeightGrad find_weight_grad(const GemmBackwardParams& p) {
    if (is_nk(p)) return {p.dy, p.x, p.lddy, p.ldx, p.n, p.k};
    return {p.x, p.dy, p.ldx, p.lddy, p.k, p.n};
}

// Calls `use` with what a problem is in types: its element (a value of it), and whether W is [n, k], across the k of wgmma.
template <class Use>
AicfStatus dispatch(const GemmBackwardParams& params, Use use) {
    const bool is_bf16 = params.dtype == AICF_DTYPE_BFLOAT16;
    if (is_nk(params)) return is_bf16 ? use(Bf16{}, std::true_type{}) : use(Fp16{}, std::true_type{});
    return is_bf16 ? use(Bf16{}, std::false_type{}) : use(Fp16{}, std::false_type{});
}

// Adds `num_rows` rows of partial sums.
template <class Element>
AicfStatus finish_bias(const float* partial, std::int64_t num_rows, const GemmBackwardParams& params, cudaStream_t stream) {
    const auto columns = static_cast<int>(params.k);
    const auto num_blocks = static_cast<unsigned>(divide_up_64(columns, kSumColumns));
    return launch_early(add_partial_sums<Element>, dim3(num_blocks), kSumColumns * kSumRows, 0, 1, stream, partial,
                        static_cast<Element*>(params.dbias), static_cast<int>(num_rows), columns);
}

// Bytes of partial sums, and what lies behind them begins on a 16-byte boundary.
std::int64_t count_sum_bytes(std::int64_t num_rows, const GemmBackwardParams& params) {
    if (params.dbias == nullptr) return 0;
    return divide_up_64(num_rows * params.k * static_cast<std::int64_t>(sizeof(float)), 16) * 16;
}

// Tiles of dz, and of dw in either layout, are counted in 32 bits.
[[maybe_unused]] AicfStatus check_tiles(const GemmBackwardParams& params, int rows, int columns, int dw_rows, int dw_columns) {
    constexpr std::int64_t kMaxTiles = INT_MAX / 64;
    const auto count = [](std::int64_t m, std::int64_t n, int tile_m, int tile_n) {
        return divide_up_64(m, tile_m) * divide_up_64(n, tile_n);
    };
    if (count(params.m, params.k, rows, columns) <= kMaxTiles && count(params.n, params.k, dw_rows, dw_columns) <= kMaxTiles &&
        count(params.k, params.n, dw_rows, dw_columns) <= kMaxTiles) {
        return make_ok();
    }
    return make_unsupported("m, n, k = %lld, %lld, %lld: more than %lld tiles of %d x %d of dz, or of %d x %d of dw",
                            static_cast<long long>(params.m), static_cast<long long>(params.n), static_cast<long long>(params.k),
                            static_cast<long long>(kMaxTiles), rows, columns, dw_rows, dw_columns);
}

[[maybe_unused]] AicfStatus require_weights(const GemmBackwardParams& params) {
    if (params.w != nullptr) return make_ok();
    return make_unsupported("w: null pointer; this kernel multiplies by it, 'streamed' does without");
}

template <Tunables t>
struct streamed_plan {
    static constexpr int kWide = 8;  // elements of 16 bytes

    static std::int64_t count_sum_rows(const GemmBackwardParams& params) { return divide_up_64(params.m, t.rows); }

    static AicfStatus check(const GemmBackwardParams& params) {
        if (params.w != nullptr || params.dw != nullptr) return make_unsupported("w, dw: this kernel is for problems without them");
        constexpr std::int64_t kMaxBlocks = INT_MAX / 64;
        if (count_sum_rows(params) * divide_up_64(params.k, 32) <= kMaxBlocks) return make_ok();
        return make_unsupported("m, k = %lld, %lld: more than %lld blocks of %d x 32", static_cast<long long>(params.m),
                                static_cast<long long>(params.k), static_cast<long long>(kMaxBlocks), t.rows);
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus*) {
        return count_sum_bytes(count_sum_rows(params), params);
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        const bool is_bf16 = params.dtype == AICF_DTYPE_BFLOAT16;
        return is_bf16 ? launch_act<Bf16>(params, workspace, stream) : launch_act<Fp16>(params, workspace, stream);
    }

    template <class Element>
    static AicfStatus launch_act(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        switch (params.act) {
            case AICF_ACT_RELU: return launch_width<Element, AICF_ACT_RELU>(params, workspace, stream);
            case AICF_ACT_GELU_TANH: return launch_width<Element, AICF_ACT_GELU_TANH>(params, workspace, stream);
            case AICF_ACT_GELU_ERF: return launch_width<Element, AICF_ACT_GELU_ERF>(params, workspace, stream);
            case AICF_ACT_SILU: return launch_width<Element, AICF_ACT_SILU>(params, workspace, stream);
            default: return launch_width<Element, AICF_ACT_NONE>(params, workspace, stream);
        }
    }

    template <class Element, int kAct>
    static AicfStatus launch_width(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        constexpr bool kHasZ = kAct != AICF_ACT_NONE;
        const bool is_wide = params.k % kWide == 0 && is_mappable(params.dy, params.lddy, kHalfBytes) &&
                             is_mappable(params.dz, params.lddz, kHalfBytes) && (!kHasZ || is_mappable(params.z, params.ldz, kHalfBytes));
        StreamProblem<Element> problem = {};
        problem.dy = static_cast<const Element*>(params.dy);
        problem.z = kHasZ ? static_cast<const Element*>(params.z) : nullptr;
        problem.dz = static_cast<Element*>(params.dz);
        problem.partial_sums = params.dbias != nullptr ? static_cast<float*>(workspace) : nullptr;
        problem.lddy = params.lddy;
        problem.ldz = params.ldz;
        problem.lddz = params.lddz;
        problem.rows = static_cast<int>(params.m);
        problem.columns = static_cast<int>(params.k);
        problem.num_column_blocks = static_cast<int>(divide_up_64(params.k, 32 * (is_wide ? kWide : 1)));
        const auto kernel = is_wide ? pass_rows<Element, kAct, kWide, t.rows, t.unroll> : pass_rows<Element, kAct, 1, t.rows, t.unroll>;
        const dim3 grid(static_cast<unsigned>(count_sum_rows(params) * problem.num_column_blocks));
        AICF_RETURN_IF_NOT_OK(launch_early(kernel, grid, kStreamThreads, 0, 1, stream, problem));
        if (params.dbias == nullptr) return make_ok();
        return finish_bias<Element>(static_cast<const float*>(workspace), count_sum_rows(params), params, stream);
    }
};

template <Tunables t>
struct mma_plan {
    using L = MmaLayout<t.bm, t.bn, t.wm, t.wn, t.stages>;

    static std::int64_t count_sum_rows(const GemmBackwardParams& params) { return divide_up_64(params.m, t.bm) * (t.bm / t.wm); }

    static AicfStatus check(const GemmBackwardParams& params) {
        AICF_RETURN_IF_NOT_OK(require_weights(params));
        return check_tiles(params, t.bm, t.bn, t.bm, t.bn);
    }

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
                                               params.dbias != nullptr ? static_cast<float*>(workspace) : nullptr};
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
            if (params.dw == nullptr) return make_ok();
            const WeightGrad dw = find_weight_grad(params);
            const MmaProblem<Element> problem = {view(dw.a, dw.lda),
                                                 view(dw.b, dw.ldb),
                                                 static_cast<Element*>(params.dw),
                                                 params.lddw,
                                                 static_cast<int>(dw.rows),
                                                 static_cast<int>(dw.columns),
                                                 static_cast<int>(params.m),
                                                 has_pairs(params.dw, params.lddw),
                                                 nullptr,
                                                 0,
                                                 AICF_ACT_NONE,
                                                 nullptr};
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
        const int num_clusters = std::max(num_sms / LayoutW::kClusterSize, 1);
        const WeightGrad dw = find_weight_grad(params);
        // A second kernel costs less than waiting, and sums of fewer steps than these take longer to join than to make.
        constexpr bool kIsJoined = kHasSecondKernel<ConfigW>;
        constexpr int kLeastSteps = kIsJoined ? 4 : 1;
        constexpr int kGain = kIsJoined ? count_join_steps<ConfigW>() : kJoinSteps;
        result->grid = split_tile_grid(make_tile_grid<ConfigW>(dw.rows, dw.columns, params.m), num_clusters, kGain, kLeastSteps);
        const SplitWorkspace split = plan_split_workspace<ConfigW>(result->grid, kIsJoined);
        result->slot_bytes = split.slot_bytes;
        result->num_flags = split.num_flags;
        return make_ok();
    }

    static AicfStatus check(const GemmBackwardParams& params) {
        AICF_RETURN_IF_NOT_OK(require_weights(params));
        AICF_RETURN_IF_NOT_OK(require_mappable({{"dy", params.dy, 0}, {"w", params.w, 0}}));
        if (params.dz != nullptr) {
            AICF_RETURN_IF_NOT_OK(require_mappable({{"z", params.act != AICF_ACT_NONE ? params.z : nullptr, 0}, {"dz", params.dz, 0}}));
        }
        if (params.dw != nullptr) AICF_RETURN_IF_NOT_OK(require_mappable({{"x", params.x, 0}, {"dw", params.dw, 0}}));
        AICF_RETURN_IF_NOT_OK(require_repackable("dy", params.m, params.n));
        AICF_RETURN_IF_NOT_OK(require_repackable("x, z, dz", params.m, params.k));
        AICF_RETURN_IF_NOT_OK(require_repackable("w, dw", params.n, params.k));
        AICF_RETURN_IF_NOT_OK(require_repackable("w, dw", params.k, params.n));
        return check_tiles(params, t.bm, t.bn, t.dwbm, t.dwbn);
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
                AICF_RETURN_IF_NOT_OK(launch_early(clear_flags<std::uint32_t>, dim3(1), 256, 0, 1, stream, plan.grid.flags, plan.num_flags));
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
        *result = dim3(static_cast<unsigned>(std::min(num_tiles, std::max(num_sms / cluster_size, 1)) * cluster_size));
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

using Chosen = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>;

AicfStatus check_params(const GemmBackwardParams& params) {
    AICF_RETURN_IF_NOT_OK(check_size("m", params.m));
    AICF_RETURN_IF_NOT_OK(check_size("n", params.n));
    AICF_RETURN_IF_NOT_OK(check_size("k", params.k));
    AICF_RETURN_IF_NOT_OK(check_code("act", params.act, AICF_ACT_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("dtype", params.dtype, AICF_DTYPE_COUNT));
    AICF_RETURN_IF_NOT_OK(check_code("w_layout", params.w_layout, AICF_W_LAYOUT_COUNT));
    if (params.dtype == AICF_DTYPE_FLOAT32) return make_unsupported("dy: float32; this op is for bfloat16 and float16");
    if (params.dz == nullptr && params.dw == nullptr) return make_invalid("dz, dw: null pointers; one of them must be wanted");
    if (params.dz == nullptr && params.dbias != nullptr) return make_invalid("dbias: the sums of dz's columns need dz");
    if (params.w == nullptr && (params.n != params.k || params.dw != nullptr)) {
        return make_invalid("w: null pointer; without it n and k must be equal, and dw not wanted");
    }
    const std::int64_t w_row = is_nk(params) ? params.k : params.n;
    AICF_RETURN_IF_NOT_OK(check_matrix("dy", params.dy, params.n, params.lddy));
    if (params.w != nullptr) AICF_RETURN_IF_NOT_OK(check_matrix("w", params.w, w_row, params.ldw));
    if (params.dz != nullptr) {
        AICF_RETURN_IF_NOT_OK(check_matrix("dz", params.dz, params.k, params.lddz));
        if (params.act != AICF_ACT_NONE) AICF_RETURN_IF_NOT_OK(check_matrix("z", params.z, params.k, params.ldz));
    }
    if (params.dw != nullptr) {
        AICF_RETURN_IF_NOT_OK(check_matrix("dw", params.dw, w_row, params.lddw));
        AICF_RETURN_IF_NOT_OK(check_matrix("x", params.x, params.k, params.ldx));
    }
    // Rows, columns and steps are counted in 32 bits; the last tile may end this far past the matrix.
    constexpr std::int64_t kMaxExtent = INT_MAX - 1024;
    if (params.m > kMaxExtent || params.n > kMaxExtent || params.k > kMaxExtent) {
        return make_unsupported("m, n, k = %lld, %lld, %lld: sizes must not exceed %lld", static_cast<long long>(params.m),
                                static_cast<long long>(params.n), static_cast<long long>(params.k), static_cast<long long>(kMaxExtent));
    }
    return Chosen::check(params);
}

AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    return Chosen::launch(params, workspace, stream);
}

AicfStatus count_workspace(const GemmBackwardParams& params, size_t* bytes) {
    *bytes = 0;
    AICF_RETURN_IF_NOT_OK(check_params(params));
    AicfStatus status = make_ok();
    *bytes = static_cast<size_t>(Chosen::count_workspace(params, &status));
    return status;
}

}  // namespace
}  // namespace aicf::gemm_backward

extern "C" {

AicfStatus AICF_ENTRY(gemm_backward, supports)(const GemmBackwardParams* params) { return aicf::gemm_backward::check_params(*params); }

AicfStatus AICF_ENTRY(gemm_backward, workspace_bytes)(const GemmBackwardParams* params, size_t* bytes) {
    return aicf::gemm_backward::count_workspace(*params, bytes);
}

AicfStatus AICF_ENTRY(gemm_backward, launch)(const GemmBackwardParams* params, void* workspace, struct CUstream_st* stream) {
    return aicf::gemm_backward::launch(*params, workspace, stream);
}
}

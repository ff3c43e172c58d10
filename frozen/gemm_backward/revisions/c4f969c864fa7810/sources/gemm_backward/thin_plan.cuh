// The plan of the kernel for few columns N: what it takes of a problem, geometry, workspace, launches.
#pragma once

#include "gemm_backward/launch_parts.cuh"
#include "gemm_backward/thin.cuh"

namespace aicf::gemm_backward {
namespace {

template <Tunables t>
struct thin_plan {
    struct Grid {
        std::int64_t num_strips, num_blocks_of_rows;
        int rows;  // of a block
    };

    // Calls `use` with the least bound on N that has an instance.
    template <class Use>
    static AicfStatus dispatch_columns(std::int64_t n, const Use& use) {
        if (n <= 4) return use(std::integral_constant<int, 4>{});
        if (n <= 16) return use(std::integral_constant<int, 16>{});
        return use(std::integral_constant<int, kMostThinColumns>{});
    }

    static int count_sum_rows(const GemmBackwardParams& params) {
        return (find_weight_grad(params).d != nullptr ? static_cast<int>(params.n) : 0) + (params.dbias != nullptr ? 1 : 0);
    }

    // Of the grids that fill whole waves of blocks, the one that takes the least time, in rows: those of a block, what it takes to begin
    // and end, and the launch that adds sums of several blocks.
    template <int kN>
    static AicfStatus make_grid(const GemmBackwardParams& params, Grid* grid) {
        constexpr int kStep = kThinWarps * t.unroll, kBlockRows = 64, kAddRows = 96;
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const std::int64_t at_a_time = std::int64_t{num_sms} * kThinBlocks<kN, t.unroll>;
        const std::int64_t strips = divide_up_64(params.k, kThinStrip<kN>);
        std::int64_t least = INT64_MAX;
        for (const std::int64_t waves : {0, 1, 2, 4, 8}) {
            const std::int64_t wanted = std::min(std::max<std::int64_t>(waves * at_a_time / strips, 1), divide_up_64(params.m, kStep));
            const std::int64_t rows = divide_up_64(divide_up_64(params.m, wanted), kStep) * kStep;
            const std::int64_t blocks = divide_up_64(params.m, rows);
            const std::int64_t joining = blocks > 1 && count_sum_rows(params) > 0 ? kAddRows : 0;
            const std::int64_t time = divide_up_64(strips * blocks, at_a_time) * (rows + kBlockRows) + joining;
            if (time >= least) continue;
            least = time;
            *grid = {strips, blocks, static_cast<int>(rows)};
        }
        return make_ok();
    }

    static std::int64_t count_partial_bytes(const GemmBackwardParams& params, const Grid& grid) {
        if (grid.num_blocks_of_rows == 1 || count_sum_rows(params) == 0) return 0;
        return grid.num_blocks_of_rows * (params.n + 1) * params.k * static_cast<std::int64_t>(sizeof(float));
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus* status) {
        Grid grid = {};
        *status = dispatch_columns(params.n, [&]<int kN>(std::integral_constant<int, kN>) { return make_grid<kN>(params, &grid); });
        return count_partial_bytes(params, grid);
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        return dispatch_columns(params.n, [&]<int kN>(std::integral_constant<int, kN>) {
            return dispatch_float(params.dtype,
                                  [&]<class Element>(Element) { return launch_bounded<Element, kN>(params, workspace, stream); });
        });
    }

    template <class Element, int kN>
    static AicfStatus launch_bounded(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        constexpr int kWidth = kThinWidth<kN>;
        constexpr int kItemBytes = static_cast<int>(sizeof(Element));
        Grid grid = {};
        AICF_RETURN_IF_NOT_OK(make_grid<kN>(params, &grid));
        const WeightGrad grad = find_weight_grad(params);
        const bool has_z = params.dz != nullptr && params.act != AICF_ACT_NONE;
        const bool is_joined = count_partial_bytes(params, grid) > 0;
        ThinProblem<Element> problem = {};
        problem.dy = static_cast<const Element*>(params.dy);
        problem.w = params.dz != nullptr ? static_cast<const Element*>(params.w) : nullptr;
        problem.x = grad.d != nullptr ? static_cast<const Element*>(params.x) : nullptr;
        problem.z = has_z ? static_cast<const Element*>(params.z) : nullptr;
        problem.dz = static_cast<Element*>(params.dz);
        problem.lddy = params.lddy;
        problem.ldw = params.ldw;
        problem.ldx = params.ldx;
        problem.ldz = params.ldz;
        problem.lddz = params.lddz;
        problem.m = static_cast<int>(params.m);
        problem.act = static_cast<int>(params.act);
        problem.sums = {static_cast<Element*>(grad.d),
                        static_cast<Element*>(params.dbias),
                        grad.ldd,
                        static_cast<int>(params.n),
                        static_cast<int>(params.k),
                        is_nk(params),
                        grad.is_added};
        problem.partial_sums = is_joined ? static_cast<float*>(workspace) : nullptr;
        problem.num_strips = static_cast<int>(grid.num_strips);
        problem.rows = grid.rows;
        const auto is_aligned = [](const void* base, std::int64_t stride) {
            return base == nullptr || has_aligned_rows(base, stride, kItemBytes, kWidth * kItemBytes);
        };
        const bool is_wide = params.k % kWidth == 0 && is_aligned(problem.x, params.ldx) && is_aligned(problem.z, params.ldz) &&
                             is_aligned(problem.dz, params.lddz);
        const auto kernel = is_wide ? multiply_thin<Element, kN, t.unroll, true> : multiply_thin<Element, kN, t.unroll, false>;
        const dim3 blocks(static_cast<unsigned>(grid.num_strips * grid.num_blocks_of_rows));
        AICF_RETURN_IF_NOT_OK(launch_early(kernel, blocks, kThinThreads, 0, 1, stream, problem));
        if (!is_joined) return make_ok();
        const dim3 of_sums(static_cast<unsigned>(divide_up_64(params.k, 32)), static_cast<unsigned>(count_sum_rows(params)));
        return launch_early(add_thin_sums<Element>, of_sums, 32 * kThinAddRows, 0, 1, stream, problem.partial_sums,
                            static_cast<int>(grid.num_blocks_of_rows), problem.sums);
    }
};

}  // namespace
}  // namespace aicf::gemm_backward

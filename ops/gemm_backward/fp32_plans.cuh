// Plans of the kernels of fp32 alone: what each takes of a problem, geometry, workspace, launches.
#pragma once

#include "common/even_shapes.cuh"
#include "gemm_backward/boxed_evenly.cuh"
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

template <Tunables t>
struct boxed_evenly_plan {
    using Shapes = EvenShapes<t>;

    template <int kThreadM, bool kTurnsA, bool kTurnsB>
    using Layout = EvenLayout<kThreadM, t.bn, t.bk, Shapes::count_stages(kThreadM * 8, kTurnsA, kTurnsB), Shapes::kSlices, t.splits, kTurnsA,
                              kTurnsB>;

    // What both products cost. The constants of products and waiting are those of gemm_bias_act's kernel of the same main loop, fitted to
    // its times; what is stored with a slope, and tiles that nothing is transposed in, are guessed from the machine code.
    static EvenProduct describe_dz(const GemmBackwardParams& params) {
        EvenProduct product = {};
        product.rows = params.m;
        product.columns = params.k;
        product.k = params.n;
        product.product = 1.05;
        product.turning = is_nk(params) ? 0.0 : 5.0;
        product.leaving = params.act == AICF_ACT_NONE ? 35.0 : 60.0;
        product.waiting = 280.0;
        product.waiting_share = 0.16;
        product.least_steps = t.bk;
        return product;
    }

    static EvenProduct describe_dw(const GemmBackwardParams& params, const WeightGrad& grad) {
        EvenProduct product = {};
        product.rows = grad.rows;
        product.columns = grad.columns;
        product.k = params.m;
        product.product = 1.03;
        product.leaving = 35.0;
        product.waiting = 150.0;
        product.waiting_share = 0.16;
        product.least_steps = 4;
        return product;
    }

    struct Shape {
        EvenShape dz, dw;
        bool has_dz, has_dw;
        bool is_dw_first;  // of two: the product whose blocks take longer
    };

    // Of two products the first has a shape by what it leaves to the second one's blocks, which fill its last wave.
    static AicfStatus find_shape(const GemmBackwardParams& params, Shape* shape) {
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const WeightGrad grad = find_weight_grad(params);
        *shape = {{Shapes::kMostRows, 1}, {Shapes::kMostRows, 1}, params.dz != nullptr, grad.d != nullptr, params.m > params.n};
        const auto find_alone = [&](const EvenProduct& product) {
            return Shapes::find(product, num_sms, [](EvenTime time) { return time.span; });
        };
        const auto find_both = [&](const EvenProduct& first, EvenShape* of_first, const EvenProduct& second, EvenShape* of_second) {
            *of_second = find_alone(second);
            const double behind = Shapes::estimate(second, *of_second, num_sms).span;
            *of_first = Shapes::find(first, num_sms, [&](EvenTime time) { return std::max(time.span, time.work + behind); });
        };
        if (shape->has_dz && shape->has_dw) {
            const EvenProduct dz = describe_dz(params), dw = describe_dw(params, grad);
            if (shape->is_dw_first) {
                find_both(dw, &shape->dw, dz, &shape->dz);
            } else {
                find_both(dz, &shape->dz, dw, &shape->dw);
            }
        } else if (shape->has_dz) {
            shape->dz = find_alone(describe_dz(params));
        } else {
            shape->dw = find_alone(describe_dw(params, grad));
        }
        return make_ok();
    }

    static std::int64_t count_sum_rows(const GemmBackwardParams& params, const Shape& shape) {
        return divide_up_64(params.m, shape.dz.thread_rows * 8) * shape.dz.splits * Shapes::kSlices;
    }

    static std::int64_t count_workspace(const GemmBackwardParams& params, AicfStatus* status) {
        Shape shape;
        *status = find_shape(params, &shape);
        const std::int64_t rows = count_sum_rows(params, shape);
        return rows > 1 ? count_sum_bytes(rows, params) : 0;
    }

    static AicfStatus launch(const GemmBackwardParams& params, void* workspace, cudaStream_t stream) {
        Shape shape;
        AICF_RETURN_IF_NOT_OK(find_shape(params, &shape));
        const std::int64_t sum_rows = count_sum_rows(params, shape);
        auto* const column_sums = static_cast<float*>(sum_rows > 1 ? workspace : params.dbias);
        const bool is_pair = shape.has_dz && shape.has_dw;
        const auto launch_dz = [&](bool is_first) {
            const PairedLaunch paired = {is_pair && is_first, is_pair && !is_first};
            float* const sums = params.dbias != nullptr ? column_sums : nullptr;
            return is_nk(params) ? launch_act_grad<Shapes::kMostRows, false>(params, shape.dz, paired, sums, stream)
                                 : launch_act_grad<Shapes::kMostRows, true>(params, shape.dz, paired, sums, stream);
        };
        const auto launch_dw = [&](bool is_first) {
            const PairedLaunch paired = {is_pair && is_first, is_pair && !is_first};
            return launch_weight_grad<Shapes::kMostRows>(params, shape.dw, paired, stream);
        };
        if (shape.has_dw && shape.is_dw_first) AICF_RETURN_IF_NOT_OK(launch_dw(true));
        if (shape.has_dz) AICF_RETURN_IF_NOT_OK(launch_dz(!shape.is_dw_first));
        if (shape.has_dw && !shape.is_dw_first) AICF_RETURN_IF_NOT_OK(launch_dw(false));
        if (params.dbias == nullptr || sum_rows == 1) return make_ok();
        return finish_bias<float>(column_sums, sum_rows, params, stream);
    }

    static EvenOutput describe_output(void* d, std::int64_t ldd, const EvenProduct& product, EvenShape shape, PairedLaunch paired) {
        EvenOutput output = {};
        output.d = static_cast<float*>(d);
        output.ldd = ldd;
        output.rows = static_cast<int>(product.rows);
        output.columns = static_cast<int>(product.columns);
        output.k = static_cast<int>(product.k);
        output.splits = shape.splits;
        output.has_vectors = has_vector_rows(d, ldd);
        output.launch = paired;
        return output;
    }

    template <class L, class Kernel, class Problem>
    static AicfStatus launch_tiles(Kernel kernel, const EvenProduct& product, EvenShape shape, const CUtensorMap& a, const CUtensorMap& b,
                                   const Problem& problem, cudaStream_t stream) {
        const std::int64_t num_blocks = Shapes::count_tiles(product, L::kTileM) * shape.splits;
        return launch_early(kernel, dim3(static_cast<unsigned>(num_blocks)), L::kThreads, L::kSharedBytes, shape.splits, stream, a, b,
                            problem);
    }

    template <int kThreadM, bool kTurnsB>
    static AicfStatus launch_act_grad(const GemmBackwardParams& params, EvenShape shape, PairedLaunch paired, float* column_sums,
                                      cudaStream_t stream) {
        if constexpr (kThreadM > Shapes::kLeastRows) {
            if (shape.thread_rows < kThreadM) return launch_act_grad<kThreadM - 1, kTurnsB>(params, shape, paired, column_sums, stream);
        }
        using L = Layout<kThreadM, true, kTurnsB>;
        const EvenProduct product = describe_dz(params);
        EvenActGrad problem = {};
        problem.dz = describe_output(params.dz, params.lddz, product, shape, paired);
        if (params.act != AICF_ACT_NONE) {
            problem.z = static_cast<const float*>(params.z);
            problem.ldz = params.ldz;
            problem.dz.has_vectors = problem.dz.has_vectors && has_vector_rows(params.z, params.ldz);
        }
        problem.act = static_cast<int>(params.act);
        problem.column_sums = column_sums;
        CUtensorMap dy, w;
        AICF_RETURN_IF_NOT_OK(encode_even_operand<true>(&dy, params.dy, params.m, params.n, params.lddy, L::kTileM, t.bk));
        AICF_RETURN_IF_NOT_OK(encode_even_operand<kTurnsB>(&w, params.w, params.k, params.n, params.ldw, t.bn, t.bk));
        return launch_tiles<L>(multiply_act_grad_evenly<L, t.group, t.minblocks>, product, shape, dy, w, problem, stream);
    }

    template <int kThreadM>
    static AicfStatus launch_weight_grad(const GemmBackwardParams& params, EvenShape shape, PairedLaunch paired, cudaStream_t stream) {
        if constexpr (kThreadM > Shapes::kLeastRows) {
            if (shape.thread_rows < kThreadM) return launch_weight_grad<kThreadM - 1>(params, shape, paired, stream);
        }
        using L = Layout<kThreadM, false, false>;
        const WeightGrad grad = find_weight_grad(params);
        const EvenProduct product = describe_dw(params, grad);
        EvenWeightGrad problem = {};
        problem.dw = describe_output(grad.d, grad.ldd, product, shape, paired);
        problem.is_added = grad.is_added;
        CUtensorMap a, b;
        AICF_RETURN_IF_NOT_OK(encode_even_operand<false>(&a, grad.a, grad.rows, params.m, grad.lda, L::kTileM, t.bk));
        AICF_RETURN_IF_NOT_OK(encode_even_operand<false>(&b, grad.b, grad.columns, params.m, grad.ldb, t.bn, t.bk));
        return launch_tiles<L>(multiply_weight_grad_evenly<L, t.group, t.minblocks>, product, shape, a, b, problem, stream);
    }
};

}  // namespace
}  // namespace aicf::gemm_backward

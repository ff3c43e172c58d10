// The plan of the fp32 kernel in boxes: copies of operands that need them, dZ and dW, each in tiles of its own, dbias.
#pragma once

#include "common/even_shapes.cuh"
#include "common/repack.cuh"
#include "gemm_backward/boxed_evenly.cuh"
#include "gemm_backward/launch_parts.cuh"

namespace aicf::gemm_backward {
namespace {

template <Tunables t>
struct boxed_evenly_plan {
    using Shapes = EvenShapes<t>;
    static constexpr int kItemBytes = 4;

    template <int kThreadM, bool kTurnsA, bool kTurnsB>
    using Layout =
        EvenLayout<kThreadM, t.bn, t.bk, Shapes::count_stages(kThreadM * 8, kTurnsA, kTurnsB), Shapes::kSlices, t.splits, kTurnsA, kTurnsB>;

    // What both products cost beyond what the main loop does elsewhere. The slope's share is a guess. In dW's tiles nothing is transposed:
    // by the machine code a step of k is 1.04 instructions a row and 10 more, against 1.06 and 10; barriers have one thing less to wait
    // for.
    static EvenProduct describe_dz(const GemmBackwardParams& params) {
        EvenProduct product = {params.m, params.k, params.n, t.bk, is_nk(params) ? 0.0 : EvenProduct::kTurningStep};
        if (params.act != AICF_ACT_NONE) product.leaving = 60.0;
        return product;
    }

    static EvenProduct describe_dw(const GemmBackwardParams& params, const WeightGrad& grad) {
        EvenProduct product = {grad.rows, grad.columns, params.m, 4, 5.0};
        product.product = 1.0;
        product.waiting = 150.0;
        return product;
    }

    // Operands whose rows tensor copies cannot read as they lie go through copies.
    static void bring_operands(GemmBackwardParams* p, Repacker* repacker) {
        repacker->bring(&p->dy, &p->lddy, p->m, p->n);
        if (p->dz != nullptr) repacker->bring(&p->w, &p->ldw, is_nk(*p) ? p->n : p->k, is_nk(*p) ? p->k : p->n);
        if (find_weight_grad(*p).d != nullptr) repacker->bring(&p->x, &p->ldx, p->m, p->k);
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
        Repacker operands(kItemBytes, nullptr);
        GemmBackwardParams of_copies = params;
        bring_operands(&of_copies, &operands);
        return operands.count_bytes() + (rows > 1 ? count_sum_bytes(rows, params) : 0);
    }

    static AicfStatus launch(GemmBackwardParams params, void* workspace, cudaStream_t stream) {
        Shape shape;
        AICF_RETURN_IF_NOT_OK(find_shape(params, &shape));
        Repacker operands(kItemBytes, workspace);
        bring_operands(&params, &operands);
        AICF_RETURN_IF_NOT_OK(operands.launch(stream));
        const std::int64_t sum_rows = count_sum_rows(params, shape);
        auto* const column_sums = sum_rows > 1 ? reinterpret_cast<float*>(operands.place()) : static_cast<float*>(params.dbias);
        const bool is_pair = shape.has_dz && shape.has_dw;
        const auto find_pairing = [&](bool is_first) { return PairedLaunch{is_pair && is_first, is_pair && !is_first}; };
        const auto launch_dz = [&](bool is_first) {
            float* const sums = params.dbias != nullptr ? column_sums : nullptr;
            return Shapes::dispatch_rows(shape.dz.thread_rows, [&](auto rows) {
                return is_nk(params) ? launch_act_grad<rows.value, false>(params, shape.dz, find_pairing(is_first), sums, stream)
                                     : launch_act_grad<rows.value, true>(params, shape.dz, find_pairing(is_first), sums, stream);
            });
        };
        const auto launch_dw = [&](bool is_first) {
            return Shapes::dispatch_rows(shape.dw.thread_rows, [&](auto rows) {
                return launch_weight_grad<rows.value>(params, shape.dw, find_pairing(is_first), stream);
            });
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

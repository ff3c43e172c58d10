// What the plans of all kernels share: operands, and dbias from partial sums.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/launch.hpp"
#include "gemm_backward/api.hpp"
#include "gemm_backward/contract.hpp"
#include "gemm_backward/kernels.cu"

namespace aicf::gemm_backward {
namespace {

std::int64_t divide_up_64(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

bool is_nk(const GemmBackwardParams& params) { return params.w_layout == AICF_W_NK; }

// dW as a product: which operand gives its rows. kn: X' dY, [k, n]; nk: dY' X, [n, k].
struct WeightGrad {
    const void *a, *b;
    std::int64_t lda, ldb, rows, columns;
    void* d;  // null: not wanted
    std::int64_t ldd;
    bool is_added;  // to what is there
};

[[maybe_unused]] WeightGrad find_weight_grad(const GemmBackwardParams& p) {
    const bool is_added = p.dw_total != nullptr;
    void* const d = is_added ? p.dw_total : p.dw;
    const std::int64_t ldd = is_added ? p.lddw_total : p.lddw;
    if (is_nk(p)) return {p.dy, p.x, p.lddy, p.ldx, p.n, p.k, d, ldd, is_added};
    return {p.x, p.dy, p.ldx, p.lddy, p.k, p.n, d, ldd, is_added};
}

// Calls `use` with what a problem is in types: its element (a value of it), and whether W is [n, k], across the k of wgmma.
template <class Use>
[[maybe_unused]] AicfStatus dispatch(const GemmBackwardParams& params, Use use) {
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

}  // namespace
}  // namespace aicf::gemm_backward

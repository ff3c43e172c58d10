// What the plans of all kernels share: counts of tiles, and a problem's form for kernels.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/launch.hpp"
#include "gemm_bias_act/api.hpp"
#include "gemm_bias_act/contract.hpp"
#include "gemm_bias_act/mma.cuh"
#include "gemm_bias_act/tiles.cuh"

namespace aicf::gemm_bias_act {
namespace {

// Tiles of Y; a kernel without one of these tunables counts rows or columns instead.
[[maybe_unused]] std::int64_t count_blocks(const GemmBiasActParams& params) {
    constexpr std::int64_t kRows = std::max(kTunables.bm, 1);
    constexpr std::int64_t kColumns = std::max(kTunables.bn, 1);
    return (params.m + kRows - 1) / kRows * ((params.n + kColumns - 1) / kColumns);
}

constexpr int count_bytes(int num_elems) { return num_elems * static_cast<int>(sizeof(float)); }

Dropout make_dropout(const GemmBiasActParams& params) { return {params.p, reinterpret_cast<const Counter*>(params.counter)}; }

Gemm make_gemm(const GemmBiasActParams& params) {
    const bool has_vector_outputs = has_vector_rows(params.y, params.ldy) && is_vector_aligned(params.bias) &&
                                    (params.z == nullptr || has_vector_rows(params.z, params.ldz)) &&
                                    (params.residual == nullptr || has_vector_rows(params.residual, params.ldresidual));
    return {static_cast<const float*>(params.a),
            static_cast<const float*>(params.b),
            static_cast<const float*>(params.bias),
            static_cast<float*>(params.y),
            static_cast<float*>(params.z),
            params.lda,
            params.ldb,
            params.ldy,
            params.ldz,
            static_cast<int>(params.m),
            static_cast<int>(params.n),
            static_cast<int>(params.k),
            static_cast<int>(params.act),
            has_vector_outputs,
            static_cast<const float*>(params.residual),
            params.ldresidual,
            make_dropout(params)};
}

[[maybe_unused]] AicfStatus launch_fp32(void (*kernel)(Gemm), int num_threads, int shared_bytes, const GemmBiasActParams& params,
                                        cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, shared_bytes));
    kernel<<<static_cast<unsigned>(count_blocks(params)), num_threads, shared_bytes, stream>>>(make_gemm(params));
    return AICF_CUDA_STATUS(cudaGetLastError());
}

// Calls `use` with what a problem of 16-bit floats is in types: its element (a value of it), and whether B is [k, n].
template <class Use>
AicfStatus dispatch_half(const GemmBiasActParams& params, Use use) {
    const bool is_bf16 = params.dtype == AICF_DTYPE_BFLOAT16;
    if (params.b_layout == AICF_B_NK) return is_bf16 ? use(Bf16{}, std::false_type{}) : use(Fp16{}, std::false_type{});
    return is_bf16 ? use(Bf16{}, std::true_type{}) : use(Fp16{}, std::true_type{});
}

template <class Element>
HalfGemm<Element> make_half_gemm(const GemmBiasActParams& params) {
    const auto is_pair_aligned = [](const void* base, std::int64_t stride) { return has_aligned_rows(base, stride, kHalfBytes, 4); };
    return {
        static_cast<const Element*>(params.a),
        static_cast<const Element*>(params.b),
        static_cast<const Element*>(params.bias),
        static_cast<Element*>(params.y),
        static_cast<Element*>(params.z),
        params.lda,
        params.ldb,
        params.ldy,
        params.ldz,
        static_cast<int>(params.m),
        static_cast<int>(params.n),
        static_cast<int>(params.k),
        static_cast<int>(params.act),
        is_mappable(params.a, params.lda, kHalfBytes),
        is_mappable(params.b, params.ldb, kHalfBytes),
        is_pair_aligned(params.y, params.ldy) && (params.z == nullptr || is_pair_aligned(params.z, params.ldz)),
        static_cast<const Element*>(params.residual),
        params.ldresidual,
        make_dropout(params),
    };
}

}  // namespace
}  // namespace aicf::gemm_bias_act

// What the plans of all kernels share: the tunables that the build binds, counts of tiles, checks of a problem, and its form for kernels.
//
// The build names the kernel and binds its tunables: AICF_KERNEL, AICF_VARIANT, AICF_BM, ... A tunable that the kernel does not have is 0.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdint>
#include <type_traits>

#include "common/launch.hpp"
#include "gemm_bias_act/api.hpp"
#include "gemm_bias_act/mma.cuh"
#include "gemm_bias_act/tiles.cuh"

#ifndef AICF_BM
#define AICF_BM 0
#endif
#ifndef AICF_BN
#define AICF_BN 0
#endif
#ifndef AICF_BK
#define AICF_BK 0
#endif
#ifndef AICF_WM
#define AICF_WM 0
#endif
#ifndef AICF_WN
#define AICF_WN 0
#endif
#ifndef AICF_TM
#define AICF_TM 0
#endif
#ifndef AICF_TN
#define AICF_TN 0
#endif
#ifndef AICF_STAGES
#define AICF_STAGES 0
#endif
#ifndef AICF_GROUP
#define AICF_GROUP 0
#endif
#ifndef AICF_MINBLOCKS
#define AICF_MINBLOCKS 0
#endif
#ifndef AICF_CLUSTERM
#define AICF_CLUSTERM 0
#endif
#ifndef AICF_CLUSTERN
#define AICF_CLUSTERN 0
#endif
#ifndef AICF_SPLITS
#define AICF_SPLITS 0
#endif
#ifndef AICF_PINGPONG
#define AICF_PINGPONG 0
#endif

namespace aicf::gemm_bias_act {
namespace {

// Meanings and units of the tunables are in op.py.
struct Tunables {
    int bm, bn, bk, wm, wn, tm, tn, stages, group, minblocks, clusterm, clustern, pingpong, splits;
};

constexpr Tunables kTunables = {AICF_BM,     AICF_BN,    AICF_BK,        AICF_WM,       AICF_WN,       AICF_TM,       AICF_TN,
                                AICF_STAGES, AICF_GROUP, AICF_MINBLOCKS, AICF_CLUSTERM, AICF_CLUSTERN, AICF_PINGPONG, AICF_SPLITS};

// Tiles of Y; a kernel without one of these tunables counts rows or columns instead.
[[maybe_unused]] std::int64_t count_blocks(const GemmBiasActParams& params) {
    constexpr std::int64_t kRows = std::max(kTunables.bm, 1);
    constexpr std::int64_t kColumns = std::max(kTunables.bn, 1);
    return (params.m + kRows - 1) / kRows * ((params.n + kColumns - 1) / kColumns);
}

constexpr int count_bytes(int num_elems) { return num_elems * static_cast<int>(sizeof(float)); }

// Of either layout of B.
[[maybe_unused]] AicfStatus require_fp32(const GemmBiasActParams& params) {
    if (params.dtype != AICF_DTYPE_FLOAT32)
        return make_unsupported("a: this kernel is for float32; wgmma and mma take bfloat16 and float16");
    if (params.precision != AICF_PRECISION_IEEE) return make_unsupported("precision: this kernel multiplies in fp32 ('ieee')");
    return make_ok();
}

[[maybe_unused]] AicfStatus require_fp32_kn(const GemmBiasActParams& params) {
    AICF_RETURN_IF_NOT_OK(require_fp32(params));
    if (params.b_layout != AICF_B_KN) return make_unsupported("b_layout: this kernel reads b as [k, n] ('kn')");
    return make_ok();
}

[[maybe_unused]] AicfStatus require_vector_rows(const GemmBiasActParams& params) {
    AICF_RETURN_IF_NOT_OK(require_fp32_kn(params));
    const struct {
        const char* name;
        const void* base;
        long long stride;
    } matrices[] = {{"a", params.a, params.lda}, {"b", params.b, params.ldb}};
    for (const auto& matrix : matrices) {
        if (!is_vector_aligned(matrix.base)) {
            return make_unsupported("%s: address %p is not a multiple of %d bytes, which this kernel's float4 reads need", matrix.name,
                                    matrix.base, kVectorBytes);
        }
        if (matrix.stride % kVectorElems != 0) {
            return make_unsupported(
                "%s: row stride %lld is not a multiple of %d elements, which this kernel's float4 reads need; pad the rows", matrix.name,
                matrix.stride, kVectorElems);
        }
    }
    return make_ok();
}

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
            params.ldresidual};
}

[[maybe_unused]] AicfStatus launch_fp32(void (*kernel)(Gemm), int num_threads, int shared_bytes, const GemmBiasActParams& params,
                                        cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, shared_bytes));
    kernel<<<static_cast<unsigned>(count_blocks(params)), num_threads, shared_bytes, stream>>>(make_gemm(params));
    return AICF_CUDA_STATUS(cudaGetLastError());
}

// For grids of (splits, tiles of n, tiles of m).
template <int kBm, int kTileN>
AicfStatus require_grid(const GemmBiasActParams& params) {
    constexpr std::int64_t kMaxTiles = 65535;  // of a grid's second and third dimension
    if ((params.n + kTileN - 1) / kTileN <= kMaxTiles && (params.m + kBm - 1) / kBm <= kMaxTiles) return make_ok();
    return make_unsupported("m, n = %lld, %lld: this kernel takes at most %lld tiles of %d x %d each way", static_cast<long long>(params.m),
                            static_cast<long long>(params.n), static_cast<long long>(kMaxTiles), kBm, kTileN);
}

// Calls `use` with what a problem of 16-bit floats is in types: its element (a value of it), and whether B is [k, n].
template <class Use>
AicfStatus dispatch_half(const GemmBiasActParams& params, Use use) {
    const bool is_bf16 = params.dtype == AICF_DTYPE_BFLOAT16;
    if (params.b_layout == AICF_B_NK) return is_bf16 ? use(Bf16{}, std::false_type{}) : use(Fp16{}, std::false_type{});
    return is_bf16 ? use(Bf16{}, std::true_type{}) : use(Fp16{}, std::true_type{});
}

[[maybe_unused]] AicfStatus require_half(const GemmBiasActParams& params) {
    if (params.dtype == AICF_DTYPE_FLOAT32) return make_unsupported("a: this kernel is for bfloat16 and float16, not float32");
    return make_ok();
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
    };
}

}  // namespace
}  // namespace aicf::gemm_bias_act

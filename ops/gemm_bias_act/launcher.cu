// Entry points of one variant of gemm_bias_act: checks, geometry, shared memory, launch.
//
// The build names the kernel and binds its tunables: AICF_KERNEL, AICF_VARIANT, AICF_BM, ... A tunable that the kernel does not have is 0.
#include <algorithm>
#include <climits>
#include <cstdint>

#include "common/cuda_check.hpp"
#include "common/status.hpp"
#include "gemm_bias_act/api.hpp"
#include "gemm_bias_act/kernels.cu"

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

namespace aicf::gemm_bias_act {
namespace {

// Meanings and units of the tunables are in op.py.
struct Tunables {
    int bm, bn, bk, wm, wn, tm, tn, stages, group, minblocks;
};

constexpr Tunables kTunables = {AICF_BM, AICF_BN, AICF_BK, AICF_WM, AICF_WN, AICF_TM, AICF_TN, AICF_STAGES, AICF_GROUP, AICF_MINBLOCKS};

using KernelFunction = void (*)(Gemm);

// How to launch a problem: which instance, with how many threads a block and how much dynamic shared memory.
struct Plan {
    KernelFunction kernel;
    int num_threads;
    int shared_bytes;
};

constexpr int count_bytes(int num_elems) { return num_elems * static_cast<int>(sizeof(float)); }

[[maybe_unused]] AicfStatus accept_any(const GemmBiasActParams&) { return make_ok(); }

[[maybe_unused]] AicfStatus require_vector_rows(const GemmBiasActParams& params) {
    const struct {
        const char* name;
        const float* base;
        long long stride;
    } matrices[] = {{"a", params.a, params.lda}, {"b", params.b, params.ldb}};
    for (const auto& matrix : matrices) {
        if (!is_vector_aligned(matrix.base)) {
            return make_unsupported("%s: address %p is not a multiple of %d bytes, which this kernel's float4 reads need", matrix.name,
                                    static_cast<const void*>(matrix.base), kVectorBytes);
        }
        if (matrix.stride % kVectorElems != 0) {
            return make_unsupported(
                "%s: row stride %lld is not a multiple of %d elements, which this kernel's float4 reads need; pad the rows", matrix.name,
                matrix.stride, kVectorElems);
        }
    }
    return make_ok();
}

template <Tunables t>
struct naive_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return accept_any(params); }
    static Plan make(const GemmBiasActParams&) { return {multiply_naive<t.bm, t.bn>, t.bm * t.bn, 0}; }
};

template <Tunables t>
struct coalesced_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return accept_any(params); }
    static Plan make(const GemmBiasActParams&) { return {multiply_coalesced<t.bm, t.bn>, t.bm * t.bn, 0}; }
};

template <Tunables t>
struct smem_tiled_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return accept_any(params); }
    static Plan make(const GemmBiasActParams&) { return {multiply_smem_tiled<t.bm, t.bn, t.bk>, t.bm * t.bn, 0}; }
};

// The block's tile of Y takes the place of the tiles of A and B in the epilogue.
[[maybe_unused]] constexpr int count_tile_bytes(const Tunables& t, int padding) {
    return count_bytes(std::max((t.bm + padding + t.bn) * t.bk, t.bm * t.bn));
}

template <Tunables t>
struct reg_tiled_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return accept_any(params); }
    static Plan make(const GemmBiasActParams&) {
        return {multiply_reg_tiled<t.bm, t.bn, t.bk, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn), count_tile_bytes(t, 0)};
    }
};

template <Tunables t>
struct vectorised_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_vector_rows(params); }
    static Plan make(const GemmBiasActParams&) {
        return {multiply_vectorised<t.bm, t.bn, t.bk, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn), count_tile_bytes(t, kVectorElems)};
    }
};

template <Tunables t>
struct warp_tiled_plan {
    static AicfStatus check(const GemmBiasActParams& params) { return require_vector_rows(params); }
    static Plan make(const GemmBiasActParams&) {
        return {multiply_warp_tiled<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn>, t.bm / t.tm * (t.bn / t.tn),
                count_tile_bytes(t, kVectorElems)};
    }
};

template <Tunables t>
struct pipelined_plan {
    using Config = Pipeline<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages>;

    static AicfStatus check(const GemmBiasActParams& params) {
        constexpr std::int64_t kMaxStride = UINT32_MAX / t.bm;
        if (params.lda > kMaxStride) {
            return make_unsupported("a: row stride %lld exceeds %lld elements, beyond which offsets in this kernel's tile overflow 32 bits",
                                    static_cast<long long>(params.lda), static_cast<long long>(kMaxStride));
        }
        return make_ok();
    }

    static Plan make(const GemmBiasActParams& params) {
        const bool is_aligned = has_vector_rows(params.b, params.ldb);
        return {is_aligned ? multiply_pipelined<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, t.group, t.minblocks, kVectorElems>
                           : multiply_pipelined<t.bm, t.bn, t.bk, t.wm, t.wn, t.tm, t.tn, t.stages, t.group, t.minblocks, 1>,
                Config::kThreads, Config::kSharedBytes};
    }
};

using Chosen = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>;

AicfStatus check_size(const char* name, std::int64_t size) {
    if (size < 1) return make_invalid("%s = %lld: must be at least 1", name, static_cast<long long>(size));
    if (size > INT_MAX) return make_unsupported("%s = %lld: must not exceed %d", name, static_cast<long long>(size), INT_MAX);
    return make_ok();
}

AicfStatus check_matrix(const char* name, const float* base, std::int64_t row_length, std::int64_t stride) {
    if (base == nullptr) return make_invalid("%s: null pointer", name);
    if (stride < row_length) {
        return make_invalid("%s: row stride %lld is smaller than a row of %lld elements", name, static_cast<long long>(stride),
                            static_cast<long long>(row_length));
    }
    return make_ok();
}

std::int64_t count_blocks(const GemmBiasActParams& params) {
    return ((params.m + kTunables.bm - 1) / kTunables.bm) * ((params.n + kTunables.bn - 1) / kTunables.bn);
}

AicfStatus check_params(const GemmBiasActParams& params) {
    AICF_RETURN_IF_NOT_OK(check_size("m", params.m));
    AICF_RETURN_IF_NOT_OK(check_size("n", params.n));
    AICF_RETURN_IF_NOT_OK(check_size("k", params.k));
    AICF_RETURN_IF_NOT_OK(check_matrix("a", params.a, params.k, params.lda));
    AICF_RETURN_IF_NOT_OK(check_matrix("b", params.b, params.n, params.ldb));
    AICF_RETURN_IF_NOT_OK(check_matrix("y", params.y, params.n, params.ldy));
    if (params.z) AICF_RETURN_IF_NOT_OK(check_matrix("z", params.z, params.n, params.ldz));
    if (params.act < 0 || params.act >= AICF_ACT_COUNT) {
        return make_invalid("act = %d: must be from 0 to %d", static_cast<int>(params.act), AICF_ACT_COUNT - 1);
    }
    // Rows, columns and blocks are counted in 32 bits; the last tile may end this far past the matrix.
    constexpr std::int64_t kMaxExtent = INT_MAX - 1024;
    if (params.m > kMaxExtent || params.n > kMaxExtent || params.k > kMaxExtent || count_blocks(params) > kMaxExtent / 64) {
        return make_unsupported("m, n, k = %lld, %lld, %lld: sizes must not exceed %lld, nor %d x %d tiles of y %lld",
                                static_cast<long long>(params.m), static_cast<long long>(params.n), static_cast<long long>(params.k),
                                static_cast<long long>(kMaxExtent), kTunables.bm, kTunables.bn, static_cast<long long>(kMaxExtent / 64));
    }
    return Chosen::check(params);
}

Gemm make_gemm(const GemmBiasActParams& params) {
    const bool has_vector_outputs = has_vector_rows(params.y, params.ldy) && is_vector_aligned(params.bias) &&
                                    (params.z == nullptr || has_vector_rows(params.z, params.ldz));
    return {params.a,
            params.b,
            params.bias,
            params.y,
            params.z,
            params.lda,
            params.ldb,
            params.ldy,
            params.ldz,
            static_cast<int>(params.m),
            static_cast<int>(params.n),
            static_cast<int>(params.k),
            static_cast<int>(params.act),
            has_vector_outputs};
}

AicfStatus launch(const GemmBiasActParams& params, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    const Plan plan = Chosen::make(params);
    constexpr int kDefaultSharedBytes = 48 * 1024;
    if (plan.shared_bytes > kDefaultSharedBytes) {
        AICF_RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(reinterpret_cast<const void*>(plan.kernel),
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes));
    }
    plan.kernel<<<static_cast<unsigned>(count_blocks(params)), plan.num_threads, plan.shared_bytes, stream>>>(make_gemm(params));
    return AICF_CUDA_STATUS(cudaGetLastError());
}

}  // namespace
}  // namespace aicf::gemm_bias_act

extern "C" {

AicfStatus AICF_ENTRY(gemm_bias_act, supports)(const GemmBiasActParams* params) { return aicf::gemm_bias_act::check_params(*params); }

AicfStatus AICF_ENTRY(gemm_bias_act, workspace_bytes)(const GemmBiasActParams* params, size_t* bytes) {
    *bytes = 0;
    return aicf::gemm_bias_act::check_params(*params);
}

AicfStatus AICF_ENTRY(gemm_bias_act, launch)(const GemmBiasActParams* params, void*, struct CUstream_st* stream) {
    return aicf::gemm_bias_act::launch(*params, stream);
}
}

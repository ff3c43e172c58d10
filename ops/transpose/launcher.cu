// Entry points of one variant of transpose: checks, geometry, launch.
//
// The build names the kernel and binds its tunables: AICF_KERNEL, AICF_VARIANT, AICF_BM, ... A tunable that the kernel does not have is 0.
#include <climits>
#include <cstdint>

#include "common/cuda_check.hpp"
#include "common/status.hpp"
#include "transpose/api.hpp"
#include "transpose/kernels.cu"

#ifndef AICF_BM
#define AICF_BM 0
#endif
#ifndef AICF_BN
#define AICF_BN 0
#endif
#ifndef AICF_THREADS
#define AICF_THREADS 0
#endif
#ifndef AICF_PAD
#define AICF_PAD 0
#endif
#ifndef AICF_LM
#define AICF_LM 0
#endif
#ifndef AICF_ITEMS
#define AICF_ITEMS 0
#endif

namespace aicf::transpose {
namespace {

// Meanings and units of the tunables are in op.py.
struct Tunables {
    int bm, bn, threads, pad, lm, items;
};

constexpr Tunables kTunables = {AICF_BM, AICF_BN, AICF_THREADS, AICF_PAD, AICF_LM, AICF_ITEMS};

// How to launch: which instance, the tile of X that a block takes, its threads, its dynamic shared memory, and whether it moves float4.
struct Plan {
    void (*kernel)(Matrices);
    int tile_rows, tile_columns;
    int num_threads;
    int shared_bytes;
    bool needs_vectors;
};

template <Tunables t>
struct naive_plan {
    static Plan make() { return {transpose_naive<t.bm, t.bn>, t.bm, t.bn, t.bm * t.bn, 0, false}; }
};

template <Tunables t>
struct tiled_plan {
    static Plan make() { return {transpose_tiled<t.bm, t.bn, t.threads, t.pad>, t.bm, t.bn, t.threads, 0, false}; }
};

template <Tunables t>
struct swizzled_plan {
    static Plan make() { return {transpose_swizzled<t.bm, t.bn, t.threads>, t.bm, t.bn, t.threads, 0, false}; }
};

template <Tunables t>
struct patches_plan {
    static Plan make() {
        return {transpose_patches<t.lm, t.threads, t.items>, 4 * t.lm * t.items, 4 * (32 / t.lm) * (t.threads / 32), t.threads, 0, true};
    }
};

template <Tunables t>
struct vectorised_plan {
    static Plan make() {
        constexpr int kBytes = t.bm * t.bn * static_cast<int>(sizeof(float));
        return {transpose_vectorised<t.bm, t.bn, t.threads>, t.bm, t.bn, t.threads, kBytes, true};
    }
};

using Chosen = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>;

// Rows, columns and blocks are counted in 32 bits; the last tile may end this far past the matrix.
constexpr std::int64_t kMaxExtent = INT_MAX - 8192;
constexpr int kStaticSharedBytes = 48 * 1024;

AicfStatus check_size(const char* name, std::int64_t size) {
    if (size < 1) return make_invalid("%s = %lld: must be at least 1", name, static_cast<long long>(size));
    if (size > kMaxExtent) {
        return make_unsupported("%s = %lld: must not exceed %lld", name, static_cast<long long>(size), static_cast<long long>(kMaxExtent));
    }
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

AicfStatus check_vector_rows(const char* name, const float* base, std::int64_t stride) {
    if (has_vector_rows(base, stride)) return make_ok();
    return make_unsupported(
        "%s: address %p and row stride %lld are not both multiples of %d bytes, which this kernel's float4 accesses need", name,
        static_cast<const void*>(base), static_cast<long long>(stride), kVectorBytes);
}

std::int64_t count_blocks(const TransposeParams& params, const Plan& plan) {
    return (params.rows + plan.tile_rows - 1) / plan.tile_rows * ((params.columns + plan.tile_columns - 1) / plan.tile_columns);
}

AicfStatus check_params(const TransposeParams& params) {
    const Plan plan = Chosen::make();
    AICF_RETURN_IF_NOT_OK(check_size("rows", params.rows));
    AICF_RETURN_IF_NOT_OK(check_size("columns", params.columns));
    AICF_RETURN_IF_NOT_OK(check_matrix("x", params.x, params.columns, params.ldx));
    AICF_RETURN_IF_NOT_OK(check_matrix("y", params.y, params.rows, params.ldy));
    if (plan.needs_vectors) {
        AICF_RETURN_IF_NOT_OK(check_vector_rows("x", params.x, params.ldx));
        AICF_RETURN_IF_NOT_OK(check_vector_rows("y", params.y, params.ldy));
    }
    if (count_blocks(params, plan) > kMaxExtent) {
        return make_unsupported("rows, columns = %lld, %lld: more tiles of %d x %d than a grid holds", static_cast<long long>(params.rows),
                                static_cast<long long>(params.columns), plan.tile_rows, plan.tile_columns);
    }
    return make_ok();
}

AicfStatus launch(const TransposeParams& params, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    const Plan plan = Chosen::make();
    const Matrices m = {params.x, params.y, params.ldx, params.ldy, static_cast<int>(params.rows), static_cast<int>(params.columns)};
    if (plan.shared_bytes > kStaticSharedBytes) {
        AICF_RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(reinterpret_cast<const void*>(plan.kernel),
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes));
    }
    plan.kernel<<<static_cast<unsigned>(count_blocks(params, plan)), plan.num_threads, plan.shared_bytes, stream>>>(m);
    return AICF_CUDA_STATUS(cudaGetLastError());
}

}  // namespace
}  // namespace aicf::transpose

extern "C" {

AicfStatus AICF_ENTRY(transpose, supports)(const TransposeParams* params) { return aicf::transpose::check_params(*params); }

AicfStatus AICF_ENTRY(transpose, workspace_bytes)(const TransposeParams* params, size_t* bytes) {
    *bytes = 0;
    return aicf::transpose::check_params(*params);
}

AicfStatus AICF_ENTRY(transpose, launch)(const TransposeParams* params, void*, struct CUstream_st* stream) {
    return aicf::transpose::launch(*params, stream);
}
}

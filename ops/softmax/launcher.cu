// Entry points of one variant of softmax: checks, geometry, launch.
//
// The build names the kernel and binds its tunables: AICF_KERNEL, AICF_VARIANT, AICF_THREADS, AICF_ROWS. A tunable that the kernel does
// not have is 0.
#include <climits>
#include <cstdint>

#include "common/cuda_check.hpp"
#include "common/status.hpp"
#include "softmax/api.hpp"
#include "softmax/kernels.cu"

#ifndef AICF_THREADS
#define AICF_THREADS 0
#endif
#ifndef AICF_ROWS
#define AICF_ROWS 0
#endif

namespace aicf::softmax {
namespace {

// Meanings and units of the tunables are in op.py.
struct Tunables {
    int threads, rows;
};

constexpr Tunables kTunables = {AICF_THREADS, AICF_ROWS};

// How to launch a problem: which instance, with how many threads a block, and how many rows a block takes.
struct Plan {
    void (*kernel)(Rows);
    int num_threads;
    int rows_per_block;
};

template <Tunables t>
struct naive_plan {
    static Plan make(const SoftmaxParams&) { return {softmax_naive<t.threads>, t.threads, t.threads}; }
};

template <Tunables t>
struct warp_per_row_plan {
    static Plan make(const SoftmaxParams&) { return {softmax_warp<t.rows>, t.rows * kWarpSize, t.rows}; }
};

template <Tunables t>
struct block_online_plan {
    static Plan make(const SoftmaxParams& params) {
        const bool is_aligned = has_vector_rows(params.x, params.ldx) && has_vector_rows(params.y, params.ldy);
        return {is_aligned ? softmax_block<t.threads, kVectorElems> : softmax_block<t.threads, 1>, t.threads, 1};
    }
};

using Chosen = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>;

// Columns are counted in 32 bits, and a loop may step this far past the last one.
constexpr std::int64_t kMaxSize = INT_MAX - 8192;

AicfStatus check_size(const char* name, std::int64_t size) {
    if (size < 1) return make_invalid("%s = %lld: must be at least 1", name, static_cast<long long>(size));
    if (size > kMaxSize) {
        return make_unsupported("%s = %lld: must not exceed %lld", name, static_cast<long long>(size), static_cast<long long>(kMaxSize));
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

AicfStatus check_params(const SoftmaxParams& params) {
    AICF_RETURN_IF_NOT_OK(check_size("rows", params.rows));
    AICF_RETURN_IF_NOT_OK(check_size("columns", params.columns));
    AICF_RETURN_IF_NOT_OK(check_matrix("x", params.x, params.columns, params.ldx));
    return check_matrix("y", params.y, params.columns, params.ldy);
}

AicfStatus launch(const SoftmaxParams& params, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    const Plan plan = Chosen::make(params);
    const Rows rows = {params.x, params.y, params.ldx, params.ldy, static_cast<int>(params.rows), static_cast<int>(params.columns)};
    const auto num_blocks = static_cast<unsigned>((params.rows + plan.rows_per_block - 1) / plan.rows_per_block);
    plan.kernel<<<num_blocks, plan.num_threads, 0, stream>>>(rows);
    return AICF_CUDA_STATUS(cudaGetLastError());
}

}  // namespace
}  // namespace aicf::softmax

extern "C" {

AicfStatus AICF_ENTRY(softmax, supports)(const SoftmaxParams* params) { return aicf::softmax::check_params(*params); }

AicfStatus AICF_ENTRY(softmax, workspace_bytes)(const SoftmaxParams* params, size_t* bytes) {
    *bytes = 0;
    return aicf::softmax::check_params(*params);
}

AicfStatus AICF_ENTRY(softmax, launch)(const SoftmaxParams* params, void*, struct CUstream_st* stream) {
    return aicf::softmax::launch(*params, stream);
}
}

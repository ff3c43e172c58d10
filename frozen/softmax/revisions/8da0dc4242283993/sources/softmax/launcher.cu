// Entry points of one variant of softmax: checks, geometry, launch.
//
// The build names the kernel and binds its tunables: AICF_KERNEL, AICF_VARIANT, AICF_THREADS, AICF_ROWS, AICF_VECTORS. A tunable that
// the kernel does not have is 0.
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
#ifndef AICF_VECTORS
#define AICF_VECTORS 0
#endif

namespace aicf::softmax {
namespace {

// Meanings and units of the tunables are in op.py.
struct Tunables {
    int threads, rows, vectors;
};

constexpr Tunables kTunables = {AICF_THREADS, AICF_ROWS, AICF_VECTORS};

// How to launch a problem: which instance, with how many threads a block, how many rows a block takes, and its dynamic shared memory.
struct Plan {
    void (*kernel)(Rows);
    int num_threads;
    int rows_per_block;
    int shared_bytes = 0;
};

// The longest row that a kernel takes by default: columns are counted in 32 bits, and a loop may step this far past the last one.
constexpr std::int64_t kMaxSize = INT_MAX - 8192;
// What a block has after opting in on compute capability 8.0 and 9.0, less room for partial results.
constexpr int kMaxSharedBytes = (163 - 1) * 1024;

template <Tunables t>
struct naive_plan {
    static constexpr std::int64_t kMaxColumns = kMaxSize;
    static Plan make(const SoftmaxParams&) { return {softmax_naive<t.threads>, t.threads, t.threads}; }
};

template <Tunables t>
struct warp_per_row_plan {
    static constexpr std::int64_t kMaxColumns = kMaxSize;
    static Plan make(const SoftmaxParams&) { return {softmax_warp<t.rows>, t.rows * kWarpSize, t.rows}; }
};

template <Tunables t>
struct block_online_plan {
    static constexpr std::int64_t kMaxColumns = kMaxSize;
    static Plan make(const SoftmaxParams& params) {
        const bool is_aligned = has_vector_rows(params.x, params.ldx) && has_vector_rows(params.y, params.ldy);
        return {is_aligned ? softmax_block<t.threads, kVectorElems> : softmax_block<t.threads, 1>, t.threads, 1};
    }
};

template <Tunables t>
struct row_in_registers_plan {
    static constexpr int kElems = t.vectors * kVectorElems;
    static constexpr std::int64_t kMaxColumns = t.threads * kElems;
    static Plan make(const SoftmaxParams& params) {
        const bool is_aligned = has_vector_rows(params.x, params.ldx) && has_vector_rows(params.y, params.ldy);
        return {is_aligned ? softmax_registers<t.threads, t.rows, kElems, kVectorElems> : softmax_registers<t.threads, t.rows, kElems, 1>,
                t.threads * t.rows, t.rows};
    }
};

template <Tunables t>
struct row_in_shared_plan {
    static constexpr std::int64_t kMaxColumns = kMaxSharedBytes / static_cast<int>(sizeof(float));
    static Plan make(const SoftmaxParams& params) {
        const bool is_aligned = has_vector_rows(params.x, params.ldx) && has_vector_rows(params.y, params.ldy);
        return {is_aligned ? softmax_shared<t.threads, kVectorElems> : softmax_shared<t.threads, 1>, t.threads, 1,
                static_cast<int>(params.columns * sizeof(float))};
    }
};

using Chosen = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>;

AicfStatus check_size(const char* name, std::int64_t size, std::int64_t largest) {
    if (size < 1) return make_invalid("%s = %lld: must be at least 1", name, static_cast<long long>(size));
    if (size > largest) {
        return make_unsupported("%s = %lld: must not exceed %lld for this kernel", name, static_cast<long long>(size),
                                static_cast<long long>(largest));
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
    AICF_RETURN_IF_NOT_OK(check_size("rows", params.rows, kMaxSize));
    AICF_RETURN_IF_NOT_OK(check_size("columns", params.columns, Chosen::kMaxColumns));
    AICF_RETURN_IF_NOT_OK(check_matrix("x", params.x, params.columns, params.ldx));
    return check_matrix("y", params.y, params.columns, params.ldy);
}

AicfStatus launch(const SoftmaxParams& params, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(check_params(params));
    const Plan plan = Chosen::make(params);
    const Rows rows = {params.x, params.y, params.ldx, params.ldy, static_cast<int>(params.rows), static_cast<int>(params.columns)};
    const auto num_blocks = static_cast<unsigned>((params.rows + plan.rows_per_block - 1) / plan.rows_per_block);
    constexpr int kDefaultSharedBytes = 48 * 1024 - 1024;  // less the partial results
    if (plan.shared_bytes > kDefaultSharedBytes) {
        AICF_RETURN_IF_CUDA_ERROR(cudaFuncSetAttribute(reinterpret_cast<const void*>(plan.kernel),
                                                       cudaFuncAttributeMaxDynamicSharedMemorySize, plan.shared_bytes));
    }
    plan.kernel<<<num_blocks, plan.num_threads, plan.shared_bytes, stream>>>(rows);
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

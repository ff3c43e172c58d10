// How each kernel of softmax is launched.
#include "common/launch.hpp"
#include "softmax/api.hpp"
#include "softmax/contract.hpp"
#include "softmax/kernels.cu"

namespace aicf::softmax {
namespace {

// Which instance, with how many threads a block, how many rows a block takes, and its dynamic shared memory.
struct Plan {
    void (*kernel)(Rows);
    int num_threads;
    int rows_per_block;
    int shared_bytes = 0;
};

bool has_vectors(const Params& params) { return has_vector_rows(params.x, params.ldx) && has_vector_rows(params.y, params.ldy); }

template <Tunables t>
struct naive_plan {
    static Plan make(const Params&) { return {softmax_naive<t.threads>, t.threads, t.threads}; }
};

template <Tunables t>
struct warp_per_row_plan {
    static Plan make(const Params&) { return {softmax_warp<t.rows>, t.rows * kWarpSize, t.rows}; }
};

template <Tunables t>
struct block_online_plan {
    static Plan make(const Params& params) {
        return {has_vectors(params) ? softmax_block<t.threads, kVectorElems> : softmax_block<t.threads, 1>, t.threads, 1};
    }
};

template <Tunables t>
struct row_in_registers_plan {
    static Plan make(const Params& params) {
        constexpr int kElems = t.vectors * kVectorElems;
        return {has_vectors(params) ? softmax_registers<t.threads, t.rows, kElems, kVectorElems>
                                    : softmax_registers<t.threads, t.rows, kElems, 1>,
                t.threads * t.rows, t.rows};
    }
};

template <Tunables t>
struct row_in_shared_plan {
    static Plan make(const Params& params) {
        return {has_vectors(params) ? softmax_shared<t.threads, kVectorElems> : softmax_shared<t.threads, 1>, t.threads, 1,
                static_cast<int>(params.columns * sizeof(float))};
    }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    const Plan plan = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>::make(params);
    const Rows rows = {params.x, params.y, params.ldx, params.ldy, static_cast<int>(params.rows), static_cast<int>(params.columns)};
    return launch_kernel(plan.kernel, divide_up(params.rows, plan.rows_per_block), plan.num_threads, plan.shared_bytes, stream, rows);
}

}  // namespace
}  // namespace aicf::softmax

#include "softmax/entry_points.hpp"

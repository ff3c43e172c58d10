// How each kernel of transpose is launched.
#include "common/launch.hpp"
#include "transpose/api.hpp"
#include "transpose/contract.hpp"
#include "transpose/kernels.cu"

namespace aicf::transpose {
namespace {

// Which instance, the tile of X that a block takes, its threads and its dynamic shared memory.
struct Plan {
    void (*kernel)(Matrices);
    int tile_rows, tile_columns;
    int num_threads;
    int shared_bytes;
};

template <Tunables t>
struct naive_plan {
    static Plan make() { return {transpose_naive<t.bm, t.bn>, t.bm, t.bn, t.bm * t.bn, 0}; }
};

template <Tunables t>
struct tiled_plan {
    static Plan make() { return {transpose_tiled<t.bm, t.bn, t.threads, t.pad>, t.bm, t.bn, t.threads, 0}; }
};

template <Tunables t>
struct swizzled_plan {
    static Plan make() { return {transpose_swizzled<t.bm, t.bn, t.threads>, t.bm, t.bn, t.threads, 0}; }
};

template <Tunables t>
struct patches_plan {
    static Plan make() {
        return {transpose_patches<t.lm, t.threads, t.items>, 4 * t.lm * t.items, 4 * (32 / t.lm) * (t.threads / 32), t.threads, 0};
    }
};

template <Tunables t>
struct vectorised_plan {
    static Plan make() {
        constexpr int kBytes = t.bm * t.bn * static_cast<int>(sizeof(float));
        return {transpose_vectorised<t.bm, t.bn, t.threads>, t.bm, t.bn, t.threads, kBytes};
    }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    const Plan plan = AICF_CONCAT(AICF_KERNEL, _plan)<kTunables>::make();
    const Matrices m = {params.x, params.y, params.ldx, params.ldy, static_cast<int>(params.rows), static_cast<int>(params.columns)};
    const std::int64_t num_tiles = aicf::divide_up(params.rows, plan.tile_rows) * aicf::divide_up(params.columns, plan.tile_columns);
    return launch_kernel(plan.kernel, static_cast<unsigned>(num_tiles), plan.num_threads, plan.shared_bytes, stream, m);
}

}  // namespace
}  // namespace aicf::transpose

#include "transpose/entry_points.hpp"

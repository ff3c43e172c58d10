// How the kernel of row_mean is launched.
#include "common/launch.hpp"
#include "row_mean/api.hpp"
#include "row_mean/contract.hpp"
#include "row_mean/kernels.cu"

namespace aicf::row_mean {

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) {
        using Element = decltype(element);
        const bool is_aligned = has_pack_rows<Element>(params.x, params.ldx) && has_pack_rows<Element>(params.y, params.ldy);
        const auto blocks = static_cast<unsigned>(divide_up(params.rows, kTunables.rows));
        return launch_kernel(grouped<kTunables.threads, kTunables.rows, Element>, blocks, kTunables.threads * kTunables.rows, 0, stream,
                             params, is_aligned);
    });
}

}  // namespace aicf::row_mean

#include "row_mean/entry_points.hpp"

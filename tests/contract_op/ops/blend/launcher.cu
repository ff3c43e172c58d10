// How the kernels of blend are launched.
#include "blend/api.hpp"
#include "blend/contract.hpp"
#include "blend/kernels.cu"
#include "common/launch.hpp"

namespace aicf::blend {

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    constexpr int kThreads = kTunables.threads > 0 ? kTunables.threads : 32;
    const auto blocks = static_cast<unsigned>(divide_up(params.b * params.h * params.p * params.d, kThreads));
    return dispatch_dtype<float, Bf16>(params.dtype, [&](auto element) {
        return launch_kernel(blend_elements<AICF_KERNEL, decltype(element)>, blocks, kThreads, 0, stream, params);
    });
}

}  // namespace aicf::blend

#include "blend/entry_points.hpp"

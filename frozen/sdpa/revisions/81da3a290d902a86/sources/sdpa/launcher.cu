// How each kernel of sdpa is launched: one instance for heads of up to 64, 128 and 256 elements.
#include "common/launch.hpp"
#include "sdpa/api.hpp"
#include "sdpa/contract.hpp"
#include "sdpa/kernels.cu"

namespace aicf::sdpa {
namespace {

constexpr int kWarps = kTunables.warps;
constexpr int kRows = kTunables.rows;
constexpr int kKeys = kTunables.keys;

AicfStatus launch_rows(void (*kernel)(SdpaParams), const Params& params, int rows, int shared_bytes, cudaStream_t stream) {
    const auto blocks = static_cast<unsigned>(params.b * params.h * divide_up(params.s, rows));
    return launch_kernel(kernel, blocks, kWarps * kWarpSize, shared_bytes, stream, params);
}

template <int kChunks, class Element>
struct naive {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_rows(sdpa_naive<kWarps, kChunks, Element>, params, kWarps, 0, stream);
    }
};

template <int kChunks, class Element>
struct online {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        const std::int64_t floats = (kWarps * kRows + kKeys) * params.d + kKeys * (params.d + 1);
        const int shared_bytes = static_cast<int>(floats * sizeof(float));
        return launch_rows(sdpa_online<kWarps, kRows, kKeys, kChunks, Element>, params, kWarps * kRows, shared_bytes, stream);
    }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) {
        using Element = decltype(element);
        if (params.d <= 64) return AICF_KERNEL<2, Element>::launch(params, stream);
        if (params.d <= 128) return AICF_KERNEL<4, Element>::launch(params, stream);
        return AICF_KERNEL<8, Element>::launch(params, stream);
    });
}

}  // namespace
}  // namespace aicf::sdpa

#include "sdpa/entry_points.hpp"

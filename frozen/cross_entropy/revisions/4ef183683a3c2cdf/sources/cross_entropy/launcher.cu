// How each kernel of cross_entropy is launched.
#include "common/launch.hpp"
#include "cross_entropy/api.hpp"
#include "cross_entropy/contract.hpp"
#include "cross_entropy/kernels.cu"

namespace aicf::cross_entropy {
namespace {

constexpr int kThreads = kTunables.threads;
constexpr std::size_t kLossesOffset = 16;

template <class Element>
struct naive {
    static AicfStatus launch(const Params& params, const Workspace& workspace, cudaStream_t stream) {
        const std::int64_t blocks = divide_up(params.rows, kThreads);
        return launch_kernel(cross_entropy_naive<Element, kThreads>, blocks, kThreads, 0, stream, params, workspace);
    }
};

template <class Element>
struct block_online {
    static AicfStatus launch(const Params& params, const Workspace& workspace, cudaStream_t stream) {
        return launch_kernel(cross_entropy_block_online<Element, kThreads>, params.rows, kThreads, 0, stream, params, workspace,
                             has_pack_rows<Element>(params.logits, params.ldlogits),
                             has_pack_rows<Element>(params.dlogits, params.lddlogits));
    }
};

std::size_t count_workspace_bytes(const Params& params) { return kLossesOffset + static_cast<std::size_t>(params.rows) * sizeof(float); }

AicfStatus launch(const Params& params, void* memory, cudaStream_t stream) {
    auto* bytes = static_cast<char*>(memory);
    const Workspace workspace = {reinterpret_cast<Shared*>(bytes), reinterpret_cast<float*>(bytes + kLossesOffset)};
    AICF_RETURN_IF_NOT_OK(launch_kernel(cross_entropy_prepare, 1, kPrepareThreads, 0, stream, params, workspace));
    return dispatch_float(params.dtype, [&](auto element) { return AICF_KERNEL<decltype(element)>::launch(params, workspace, stream); });
}

}  // namespace
}  // namespace aicf::cross_entropy

#include "cross_entropy/entry_points.hpp"

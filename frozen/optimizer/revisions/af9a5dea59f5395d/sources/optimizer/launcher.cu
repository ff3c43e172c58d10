// How each kernel of optimizer is launched.
#include "common/launch.hpp"
#include "optimizer/api.hpp"
#include "optimizer/contract.hpp"
#include "optimizer/kernels.cu"

namespace aicf::optimizer {
namespace {

constexpr int kThreads = kTunables.threads;

bool is_aligned(const Params& params) {
    for (const void* base : {static_cast<const void*>(params.p), params.grad, static_cast<const void*>(params.m),
                             static_cast<const void*>(params.v), static_cast<const void*>(params.copy)}) {
        if (!has_pack_rows<float>(base, 0)) return false;  // an absent copy is aligned
    }
    return true;
}

unsigned count_blocks(const Params& params, int elems) { return static_cast<unsigned>(divide_up(params.n, elems)); }

template <class Element>
struct naive {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_early(optimizer_naive<Element>, count_blocks(params, kThreads), kThreads, 0, 1, stream, params);
    }
};

template <class Element>
struct shared_factors {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_early(optimizer_shared_factors<Element, kThreads>, count_blocks(params, kThreads), kThreads, 0, 1, stream, params);
    }
};

template <class Element>
struct vectorised {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        constexpr int kChunks = kTunables.chunks > 0 ? kTunables.chunks : 1;
        const unsigned blocks = count_blocks(params, kThreads * kChunks * kPackElems<Element>);
        return launch_early(optimizer_vectorised<Element, kThreads, kChunks>, blocks, kThreads, 0, 1, stream, params, is_aligned(params));
    }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) { return AICF_KERNEL<decltype(element)>::launch(params, stream); });
}

}  // namespace
}  // namespace aicf::optimizer

#include "optimizer/entry_points.hpp"

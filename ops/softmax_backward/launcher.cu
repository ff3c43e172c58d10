// How each kernel of softmax_backward is launched.
#include "common/launch.hpp"
#include "common/row_cluster.cuh"
#include "softmax_backward/api.hpp"
#include "softmax_backward/contract.hpp"
#include "softmax_backward/kernels.cu"

namespace aicf::softmax_backward {
namespace {

inline constexpr int kThreads = kTunables.threads;

template <class Element>
bool has_packs(const Params& p) {
    return has_pack_rows<Element>(p.dy, p.lddy) && has_pack_rows<Element>(p.y, p.ldy) && has_pack_rows<Element>(p.dx, p.lddx);
}

template <class Element>
struct naive {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_kernel(softmax_backward_naive<Element, kThreads>, divide_up(params.rows, kThreads), kThreads, 0, stream, params);
    }
};

template <class Element>
struct block_passes {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_kernel(softmax_backward_block<Element, kThreads, RowGroup<kThreads>>, params.rows, kThreads, 0, stream, params,
                             has_packs<Element>(params));
    }
};

template <class Element>
struct cluster_passes {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_early(softmax_backward_block<Element, kThreads, RowCluster<kThreads>>,
                            static_cast<unsigned>(params.rows * kRowCluster), kThreads, 0, kRowCluster, stream, params,
                            has_packs<Element>(params));
    }
};

template <class Element>
struct row_in_registers {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        constexpr int kRows = kTunables.rows, kElems = kTunables.elems;
        return launch_kernel(softmax_backward_registers<Element, kThreads, kRows, kElems>, divide_up(params.rows, kRows), kThreads * kRows,
                             0, stream, params, has_packs<Element>(params));
    }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) { return AICF_KERNEL<decltype(element)>::launch(params, stream); });
}

}  // namespace
}  // namespace aicf::softmax_backward

#include "softmax_backward/entry_points.hpp"

// How each kernel of rmsnorm_backward is launched.
#include "common/norm_backward_plans.cuh"
#include "rmsnorm_backward/api.hpp"
#include "rmsnorm_backward/contract.hpp"
#include "rmsnorm_backward/kernels.cu"

namespace aicf::rmsnorm_backward {
namespace {

inline constexpr bool kIsCentred = false;

template <class Element>
using Kernel = norm_backward::AICF_KERNEL<kIsCentred, kTunables, Element>;

template <class Element>
NormGradient<Element> read_params(const Params& p, void* workspace, std::int64_t num_partials) {
    return {static_cast<const Element*>(p.dy),
            static_cast<const Element*>(p.x),
            static_cast<const Element*>(p.weight),
            static_cast<const Element*>(p.dsum),
            nullptr,
            p.rstd,
            static_cast<Element*>(p.dx),
            static_cast<Element*>(p.dweight),
            nullptr,
            p.rows,
            p.columns,
            p.lddy,
            p.ldx,
            p.lddsum,
            p.lddx,
            static_cast<float*>(workspace),
            static_cast<int>(num_partials)};
}

std::int64_t count_partials(const Params& params) { return Kernel<float>::count_partials(params.rows, params.columns); }

std::size_t count_workspace_bytes(const Params& params) {
    return kNumSums<kIsCentred> * sizeof(float) * static_cast<std::size_t>(count_partials(params) * params.columns);
}

AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) {
        using Element = decltype(element);
        return Kernel<Element>::launch(read_params<Element>(params, workspace, count_partials(params)), stream);
    });
}

}  // namespace
}  // namespace aicf::rmsnorm_backward

#include "rmsnorm_backward/entry_points.hpp"

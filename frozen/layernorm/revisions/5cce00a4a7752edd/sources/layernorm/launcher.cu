// How each kernel of layernorm is launched.
#include "common/norm_plans.cuh"
#include "layernorm/api.hpp"
#include "layernorm/contract.hpp"
#include "layernorm/kernels.cu"

namespace aicf::layernorm {
namespace {

inline constexpr bool kIsCentred = true;

template <class Element>
using Kernel = norm::AICF_KERNEL<kIsCentred, kTunables, Element>;

template <class Element>
Norm<Element> read_params(const Params& p) {
    return {static_cast<const Element*>(p.x),
            static_cast<const Element*>(p.residual),
            static_cast<const Element*>(p.weight),
            static_cast<const Element*>(p.bias),
            static_cast<Element*>(p.y),
            static_cast<Element*>(p.sum),
            p.mean,
            p.rstd,
            p.rows,
            p.columns,
            p.ldx,
            p.ldresidual,
            p.ldy,
            p.ldsum,
            p.eps};
}

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) {
        using Element = decltype(element);
        return Kernel<Element>::launch(read_params<Element>(params), stream);
    });
}

}  // namespace
}  // namespace aicf::layernorm

#include "layernorm/entry_points.hpp"

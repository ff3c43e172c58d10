// Python binding of op layernorm_backward.
#include "common/bind_op.hpp"
#include "layernorm_backward/contract.hpp"

PYBIND11_MODULE(_layernorm_backward, module) {
    module.doc() = "Gradients of layer normalisation: variants loaded from shared libraries.";
    aicf::bind_op<LayernormBackwardParams, aicf::layernorm_backward::kContract>(module);
}

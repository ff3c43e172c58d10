// Python binding of op rmsnorm_backward.
#include "common/bind_op.hpp"
#include "rmsnorm_backward/contract.hpp"

PYBIND11_MODULE(_rmsnorm_backward, module) {
    module.doc() = "Gradients of RMS normalisation: variants loaded from shared libraries.";
    aicf::bind_op<RmsnormBackwardParams, aicf::rmsnorm_backward::kContract>(module);
}

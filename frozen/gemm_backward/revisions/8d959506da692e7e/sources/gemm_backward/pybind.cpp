// Python binding of op gemm_backward.
#include "common/bind_op.hpp"
#include "gemm_backward/contract.hpp"

PYBIND11_MODULE(_gemm_backward, module) {
    module.doc() = "The backward pass of Y = act(Z + bias) W: variants loaded from shared libraries.";
    aicf::bind_op<GemmBackwardParams, aicf::gemm_backward::kContract>(module);
}

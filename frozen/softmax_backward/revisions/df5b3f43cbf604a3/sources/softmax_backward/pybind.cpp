// Python binding of op softmax_backward.
#include "common/bind_op.hpp"
#include "softmax_backward/contract.hpp"

PYBIND11_MODULE(_softmax_backward, module) {
    module.doc() = "Gradient of softmax over rows: variants loaded from shared libraries.";
    aicf::bind_op<SoftmaxBackwardParams, aicf::softmax_backward::kContract>(module);
}

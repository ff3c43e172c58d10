// Python binding of op softmax.
#include "common/bind_op.hpp"
#include "softmax/contract.hpp"

PYBIND11_MODULE(_softmax, module) {
    module.doc() = "Softmax over rows: variants loaded from shared libraries.";
    aicf::bind_op<SoftmaxParams, aicf::softmax::kContract>(module);
}

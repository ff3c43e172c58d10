// Python binding of op optimizer.
#include "common/bind_op.hpp"
#include "optimizer/contract.hpp"

PYBIND11_MODULE(_optimizer, module) {
    module.doc() = "Adam and AdamW steps in place: variants loaded from shared libraries.";
    aicf::bind_op<OptimizerParams, aicf::optimizer::kContract>(module);
}

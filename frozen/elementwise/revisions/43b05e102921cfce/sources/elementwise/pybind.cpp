// Python binding of op elementwise.
#include "common/bind_op.hpp"
#include "elementwise/contract.hpp"

PYBIND11_MODULE(_elementwise, module) {
    module.doc() = "Chains of elementwise functions: variants loaded from shared libraries.";
    aicf::bind_op<ElementwiseParams, aicf::elementwise::kContract>(module);
}

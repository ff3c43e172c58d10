// Python binding of op layernorm.
#include "common/bind_op.hpp"
#include "layernorm/contract.hpp"

PYBIND11_MODULE(_layernorm, module) {
    module.doc() = "Layer normalisation: variants loaded from shared libraries.";
    aicf::bind_op<LayernormParams, aicf::layernorm::kContract>(module);
}

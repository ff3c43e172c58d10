// Python binding of op rmsnorm.
#include "common/bind_op.hpp"
#include "rmsnorm/contract.hpp"

PYBIND11_MODULE(_rmsnorm, module) {
    module.doc() = "RMS normalisation: variants loaded from shared libraries.";
    aicf::bind_op<RmsnormParams, aicf::rmsnorm::kContract>(module);
}

// Python binding of op sdpa.
#include "common/bind_op.hpp"
#include "sdpa/contract.hpp"

PYBIND11_MODULE(_sdpa, module) {
    module.doc() = "Scaled dot-product attention: variants loaded from shared libraries.";
    aicf::bind_op<SdpaParams, aicf::sdpa::kContract>(module);
}

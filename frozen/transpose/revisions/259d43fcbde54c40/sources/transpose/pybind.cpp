// Python binding of op transpose.
#include "common/bind_op.hpp"
#include "transpose/contract.hpp"

PYBIND11_MODULE(_transpose, module) {
    module.doc() = "Transpose in fp32: variants loaded from shared libraries.";
    aicf::bind_op<TransposeParams, aicf::transpose::kContract>(module);
}

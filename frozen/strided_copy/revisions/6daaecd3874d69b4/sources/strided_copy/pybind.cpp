// Python binding of op strided_copy.
#include "common/bind_op.hpp"
#include "strided_copy/contract.hpp"

PYBIND11_MODULE(_strided_copy, module) {
    module.doc() = "Strided copies of pieces: variants loaded from shared libraries.";
    aicf::bind_op<StridedCopyParams, aicf::strided_copy::kContract>(module);
}

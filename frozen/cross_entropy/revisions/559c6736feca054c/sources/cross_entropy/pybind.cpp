// Python binding of op cross_entropy.
#include "common/bind_op.hpp"
#include "cross_entropy/contract.hpp"

PYBIND11_MODULE(_cross_entropy, module) {
    module.doc() = "Cross-entropy and its gradient: variants loaded from shared libraries.";
    aicf::bind_op<CrossEntropyParams, aicf::cross_entropy::kContract>(module);
}

// Python binding of op reduce.
#include "common/bind_op.hpp"
#include "reduce/contract.hpp"

PYBIND11_MODULE(_reduce, module) {
    module.doc() = "Sums, means, extremes and norms of a matrix: variants loaded from shared libraries.";
    aicf::bind_op<ReduceParams, aicf::reduce::kContract>(module);
}

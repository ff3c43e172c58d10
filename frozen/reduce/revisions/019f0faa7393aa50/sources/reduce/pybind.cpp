// Python binding of op reduce.
#include "common/op_module.hpp"
#include "reduce/contract.hpp"

AICF_OP_MODULE(reduce, "Sums, means, extremes and norms of a matrix: variants loaded from shared libraries.")

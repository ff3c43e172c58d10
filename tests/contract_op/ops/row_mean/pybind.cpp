// Python binding of op row_mean.
#include "common/op_module.hpp"
#include "row_mean/contract.hpp"

AICF_OP_MODULE(row_mean, "Variants of op row_mean, loaded from shared libraries.")

// Python binding of op elementwise.
#include "common/op_module.hpp"
#include "elementwise/contract.hpp"

AICF_OP_MODULE(elementwise, "Chains of elementwise functions: variants loaded from shared libraries.")

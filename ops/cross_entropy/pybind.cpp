// Python binding of op cross_entropy.
#include "common/op_module.hpp"
#include "cross_entropy/contract.hpp"

AICF_OP_MODULE(cross_entropy, "Cross-entropy and its gradient: variants loaded from shared libraries.")

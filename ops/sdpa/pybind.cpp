// Python binding of op sdpa.
#include "common/op_module.hpp"
#include "sdpa/contract.hpp"

AICF_OP_MODULE(sdpa, "Scaled dot-product attention: variants loaded from shared libraries.")

// Python binding of op layernorm.
#include "common/op_module.hpp"
#include "layernorm/contract.hpp"

AICF_OP_MODULE(layernorm, "Layer normalisation: variants loaded from shared libraries.")

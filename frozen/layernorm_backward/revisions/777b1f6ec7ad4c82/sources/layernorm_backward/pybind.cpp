// Python binding of op layernorm_backward.
#include "common/op_module.hpp"
#include "layernorm_backward/contract.hpp"

AICF_OP_MODULE(layernorm_backward, "Gradients of layer normalisation: variants loaded from shared libraries.")

// Python binding of op rmsnorm_backward.
#include "common/op_module.hpp"
#include "rmsnorm_backward/contract.hpp"

AICF_OP_MODULE(rmsnorm_backward, "Gradients of RMS normalisation: variants loaded from shared libraries.")

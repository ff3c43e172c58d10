// Python binding of op gemm_backward.
#include "common/op_module.hpp"
#include "gemm_backward/contract.hpp"

AICF_OP_MODULE(gemm_backward, "The backward pass of Y = act(Z + bias) W: variants loaded from shared libraries.")

// Python binding of op gemm_bias_act.
#include "common/op_module.hpp"
#include "gemm_bias_act/contract.hpp"

AICF_OP_MODULE(gemm_bias_act, "Y = dropout(act(A B + bias + residual)): variants loaded from shared libraries.")

// Python binding of op softmax_backward.
#include "common/op_module.hpp"
#include "softmax_backward/contract.hpp"

AICF_OP_MODULE(softmax_backward, "Gradient of softmax over rows: variants loaded from shared libraries.")

// Python binding of op softmax.
#include "common/op_module.hpp"
#include "softmax/contract.hpp"

AICF_OP_MODULE(softmax, "Softmax over rows: variants loaded from shared libraries.")

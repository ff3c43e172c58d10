// Python binding of op transpose.
#include "common/op_module.hpp"
#include "transpose/contract.hpp"

AICF_OP_MODULE(transpose, "Transpose in fp32: variants loaded from shared libraries.")

// Python binding of op strided_copy.
#include "common/op_module.hpp"
#include "strided_copy/contract.hpp"

AICF_OP_MODULE(strided_copy, "Strided copies of pieces: variants loaded from shared libraries.")

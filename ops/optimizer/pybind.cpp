// Python binding of op optimizer.
#include "common/op_module.hpp"
#include "optimizer/contract.hpp"

AICF_OP_MODULE(optimizer, "Adam and AdamW steps in place: variants loaded from shared libraries.")

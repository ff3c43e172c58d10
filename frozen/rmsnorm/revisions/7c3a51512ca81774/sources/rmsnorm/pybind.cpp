// Python binding of op rmsnorm.
#include "common/op_module.hpp"
#include "rmsnorm/contract.hpp"

AICF_OP_MODULE(rmsnorm, "RMS normalisation: variants loaded from shared libraries.")

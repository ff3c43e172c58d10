// Python binding of op blend.
#include "blend/contract.hpp"
#include "common/op_module.hpp"

AICF_OP_MODULE(blend, "Variants of op blend, loaded from shared libraries.")

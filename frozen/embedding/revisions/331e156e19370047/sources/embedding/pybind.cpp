// Python binding of op embedding.
#include "common/op_module.hpp"
#include "embedding/contract.hpp"

AICF_OP_MODULE(embedding, "Rows of a table by index: variants loaded from shared libraries.")

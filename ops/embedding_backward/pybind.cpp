// Python binding of op embedding_backward.
#include "common/op_module.hpp"
#include "embedding_backward/contract.hpp"

AICF_OP_MODULE(embedding_backward, "Gradient of an embedding by its table: variants loaded from shared libraries.")

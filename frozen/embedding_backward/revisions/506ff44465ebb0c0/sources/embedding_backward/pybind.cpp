// Python binding of op embedding_backward.
#include "common/bind_op.hpp"
#include "embedding_backward/contract.hpp"

PYBIND11_MODULE(_embedding_backward, module) {
    module.doc() = "Gradient of an embedding by its table: variants loaded from shared libraries.";
    aicf::bind_op<EmbeddingBackwardParams, aicf::embedding_backward::kContract>(module);
}

// Python binding of op embedding.
#include "common/bind_op.hpp"
#include "embedding/contract.hpp"

PYBIND11_MODULE(_embedding, module) {
    module.doc() = "Rows of a table by index: variants loaded from shared libraries.";
    aicf::bind_op<EmbeddingParams, aicf::embedding::kContract>(module);
}

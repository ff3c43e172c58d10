// Python binding of op gemm_bias_act.
#include "common/bind_op.hpp"
#include "gemm_bias_act/contract.hpp"

PYBIND11_MODULE(_gemm_bias_act, module) {
    module.doc() = "Y = dropout(act(A B + bias + residual)): variants loaded from shared libraries.";
    aicf::bind_op<GemmBiasActParams, aicf::gemm_bias_act::kContract>(module);
}

// Python binding of op blend.
#include "blend/contract.hpp"
#include "common/bind_op.hpp"

PYBIND11_MODULE(_blend, module) { aicf::bind_op<BlendParams, aicf::blend::kContract>(module); }

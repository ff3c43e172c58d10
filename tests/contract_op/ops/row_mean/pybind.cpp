// Python binding of op row_mean.
#include "common/bind_op.hpp"
#include "row_mean/contract.hpp"

PYBIND11_MODULE(_row_mean, module) { aicf::bind_op<RowMeanParams, aicf::row_mean::kContract>(module); }

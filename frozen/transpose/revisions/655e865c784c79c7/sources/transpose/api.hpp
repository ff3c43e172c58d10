/* The C contract of op transpose: Y = X^T, fp32, row-major: Y[j * ldy + i] = X[i * ldx + j].
 *
 * TransposeParams and the entry points are generated from op.py; `python -m harness show transpose --api` prints them. */
#ifndef AICF_OPS_TRANSPOSE_API_HPP_
#define AICF_OPS_TRANSPOSE_API_HPP_

#include "transpose/params.h"

#endif /* AICF_OPS_TRANSPOSE_API_HPP_ */

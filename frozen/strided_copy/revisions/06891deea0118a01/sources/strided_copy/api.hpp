/* The C contract of op strided_copy: y_i[a, b, n, c, d] = x_i[a, b, n, c, d] for `pieces` pieces, n below n_i, any strides.
 *
 * StridedCopyParams and the entry points are generated from op.py; `python -m harness show strided_copy --api` prints them. */
#ifndef AICF_OPS_STRIDED_COPY_API_HPP_
#define AICF_OPS_STRIDED_COPY_API_HPP_

#include "strided_copy/params.h"

#endif /* AICF_OPS_STRIDED_COPY_API_HPP_ */

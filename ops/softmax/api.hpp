/* The C contract of op softmax: Y = softmax(X) over the last axis, fp32, row-major.
 *
 * A row may hold -inf as long as one element is finite: it counts as weight 0. A row of nothing but -inf, or with NaN or +inf in it,
 * becomes NaN throughout. SoftmaxParams and the entry points are generated from op.py; `python -m harness show softmax --api` prints them.
 */
#ifndef AICF_OPS_SOFTMAX_API_HPP_
#define AICF_OPS_SOFTMAX_API_HPP_

#include "softmax/params.h"

#endif /* AICF_OPS_SOFTMAX_API_HPP_ */

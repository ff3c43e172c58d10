/* The C contract of op softmax: y = softmax(scale * x) over the last axis, or its logarithm, in fp32, bf16 or fp16.
 *
 * `scale` and `queries` are one number in device memory each; without `scale` x is taken as it is. mask says which columns of a row count:
 * all, those where `keep` is not 0, or, causal, columns 0 to r % queries of row r. The others are 0, and their logarithms -inf.
 *
 * A row may hold -inf as long as one element is finite: it counts as weight 0. A row of nothing but -inf, or with NaN or +inf in it,
 * becomes NaN throughout; but a masked row of which nothing finite counts becomes 0 throughout. SoftmaxParams and the entry points are
 * generated from op.py; `python -m harness show softmax --api` prints them.
 */
#ifndef AICF_OPS_SOFTMAX_API_HPP_
#define AICF_OPS_SOFTMAX_API_HPP_

#include "softmax/params.h"

#endif /* AICF_OPS_SOFTMAX_API_HPP_ */

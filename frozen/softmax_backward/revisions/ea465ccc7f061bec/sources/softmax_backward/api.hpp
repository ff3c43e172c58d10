/* The C contract of op softmax_backward: the gradient of softmax, or of its logarithm, by its input.
 *
 * y is what op softmax wrote, under any mask, and dy the gradient of y. `scale` is one number in device memory, the one that softmax was
 * given; it may be absent. A logarithm of -inf has no gradient, and its dy counts for nothing. SoftmaxBackwardParams and the entry points
 * are generated from op.py; `python -m harness show softmax_backward --api` prints them. */
#ifndef AICF_OPS_SOFTMAX_BACKWARD_API_HPP_
#define AICF_OPS_SOFTMAX_BACKWARD_API_HPP_

#include "softmax_backward/params.h"

#endif /* AICF_OPS_SOFTMAX_BACKWARD_API_HPP_ */

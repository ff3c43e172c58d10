/* The C contract of op layernorm_backward: the gradients of layer normalisation.
 *
 * x is what was normalised (layernorm's `sum` where it added), mean and rstd what layernorm wrote. dsum, where there is one, is the
 * gradient that reaches x by another way, and is added to dx. LayernormBackwardParams and the entry points are generated from op.py;
 * `python -m harness show layernorm_backward --api` prints them. */
#ifndef AICF_OPS_LAYERNORM_BACKWARD_API_HPP_
#define AICF_OPS_LAYERNORM_BACKWARD_API_HPP_

#include "layernorm_backward/params.h"

#endif /* AICF_OPS_LAYERNORM_BACKWARD_API_HPP_ */

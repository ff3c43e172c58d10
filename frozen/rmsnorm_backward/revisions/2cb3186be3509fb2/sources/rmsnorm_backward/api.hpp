/* The C contract of op rmsnorm_backward: the gradients of RMS normalisation.
 *
 * x is what was normalised (rmsnorm's `sum` where it added), rstd what rmsnorm wrote. dsum, where there is one, is the
 * gradient that reaches x by another way, and is added to dx. RmsnormBackwardParams and the entry points are generated from op.py;
 * `python -m harness show rmsnorm_backward --api` prints them. */
#ifndef AICF_OPS_RMSNORM_BACKWARD_API_HPP_
#define AICF_OPS_RMSNORM_BACKWARD_API_HPP_

#include "rmsnorm_backward/params.h"

#endif /* AICF_OPS_RMSNORM_BACKWARD_API_HPP_ */

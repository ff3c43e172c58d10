/* The C contract of op optimizer: one Adam or AdamW step over a flat parameter, in place.
 *
 * step counts from 1; it and lr are read from device memory when the kernel runs, so that a captured graph replays for ever. A copy of the
 * new parameter in the gradient's dtype is written where it is given. With steps_done, from 0 on, in place of step, the kernel counts the
 * steps itself. With factor, the gradient is multiplied by it, and where it is not positive (or NaN) nothing is changed and no step
 * counted: loss scaling. OptimizerParams and the entry points are generated from op.py; `python -m harness show optimizer --api` prints
 * them. */
#ifndef AICF_OPS_OPTIMIZER_API_HPP_
#define AICF_OPS_OPTIMIZER_API_HPP_

#include "optimizer/params.h"

#endif /* AICF_OPS_OPTIMIZER_API_HPP_ */

/* The C contract of op layernorm: rows less their mean, over their standard deviation, times a weight.
 *
 * With a residual, what is normalised is x + residual, rounded to the dtype and written to `sum`. mean and rstd are what
 * layernorm_backward wants; both are there, or neither. LayernormParams and the entry points are generated from op.py;
 * `python -m harness show layernorm --api` prints them. */
#ifndef AICF_OPS_LAYERNORM_API_HPP_
#define AICF_OPS_LAYERNORM_API_HPP_

#include "layernorm/params.h"

#endif /* AICF_OPS_LAYERNORM_API_HPP_ */

/* The C contract of op rmsnorm: rows over their root mean square, times a weight.
 *
 * With a residual, what is normalised is x + residual, rounded to the dtype and written to `sum`. rstd, where it is
 * wanted, is what rmsnorm_backward takes. RmsnormParams and the entry points are generated from op.py;
 * `python -m harness show rmsnorm --api` prints them. */
#ifndef AICF_OPS_RMSNORM_API_HPP_
#define AICF_OPS_RMSNORM_API_HPP_

#include "rmsnorm/params.h"

#endif /* AICF_OPS_RMSNORM_API_HPP_ */

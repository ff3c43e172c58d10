/* The C contract of op cross_entropy: the loss of logits and class indices, and its gradient.
 *
 * A row whose label is ignore_index counts nothing, and its gradient is 0; one with another label outside of the classes makes the loss
 * and its own gradient NaN. The mean over no row at all is NaN. dbias, where it is given, has the sums of the gradient's columns.
 * CrossEntropyParams and the entry points are generated from op.py; `python -m harness show cross_entropy --api` prints them. */
#ifndef AICF_OPS_CROSS_ENTROPY_API_HPP_
#define AICF_OPS_CROSS_ENTROPY_API_HPP_

#include "cross_entropy/params.h"

#endif /* AICF_OPS_CROSS_ENTROPY_API_HPP_ */

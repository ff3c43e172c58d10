/* The C contract of op sdpa: O = softmax(scale Q K') V for each batch and head.
 *
 * Element (b, h, i, d) of Q lies at q[b * q_stride0 + h * q_stride1 + i * q_stride2 + d], so that heads may lie around rows or inside of
 * them. With causal, row i sees rows 0 to i of K and V. lse is the logarithm of a row's sum of exponentials, which a backward pass needs.
 *
 * SdpaParams and the entry points are generated from op.py; `python -m harness show sdpa --api` prints them. */
#ifndef AICF_OPS_SDPA_API_HPP_
#define AICF_OPS_SDPA_API_HPP_

#include "sdpa/params.h"

#endif /* AICF_OPS_SDPA_API_HPP_ */

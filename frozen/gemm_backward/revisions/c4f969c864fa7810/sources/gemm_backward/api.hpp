/* The C contract of op gemm_backward: the backward pass of Y = act(Z + bias) W, in fp32, bf16 or fp16 with fp32 sums, row-major.
 *
 * dz = (dY W') * act'(Z + bias), dbias the sums of its columns before they are rounded, dw = X' dY, or dw_total += X' dY. x is what W was
 * multiplied by, act(Z + bias), and needed for dw; z is Z + bias, or for relu x itself, and needed where dz is wanted and act is not none.
 * Without w, Y is X itself, n is k, and there is no dw. What is neither wanted nor needed is NULL. GemmBackwardParams and the entry
 * points are generated from op.py; `python -m harness show gemm_backward --api` prints them.
 */
#ifndef AICF_OPS_GEMM_BACKWARD_API_HPP_
#define AICF_OPS_GEMM_BACKWARD_API_HPP_

#include "gemm_backward/params.h"

/* Short names of w_layout. */
enum { AICF_W_KN = AICF_GEMM_BACKWARD_W_LAYOUT_KN, AICF_W_NK = AICF_GEMM_BACKWARD_W_LAYOUT_NK };

#endif /* AICF_OPS_GEMM_BACKWARD_API_HPP_ */

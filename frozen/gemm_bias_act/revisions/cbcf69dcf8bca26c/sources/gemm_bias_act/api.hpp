/* The C contract of op gemm_bias_act: Y = dropout(act(A B + bias + residual)), Z the same before act, in fp32, TF32 on
 * request, bf16 or fp16 with fp32 sums, row-major.
 *
 * B is [k, n], or [n, k] as frameworks keep the weights of a linear layer. TF32 is what fp32 inputs may be multiplied in: 11 bits of
 * significand each, on the tensor cores. bias, z and residual are NULL where they are not wanted; residual is added in fp32.
 * With p, a share of Y in device memory, elements are dropped by Philox 4x32-10 at counter, seed and offset (common/philox.cuh).
 * GemmBiasActParams and the entry points are generated from op.py; `python -m harness show gemm_bias_act --api` prints them.
 */
#ifndef AICF_OPS_GEMM_BIAS_ACT_API_HPP_
#define AICF_OPS_GEMM_BIAS_ACT_API_HPP_

#include "gemm_bias_act/params.h"

/* Short names of b_layout. */
enum { AICF_B_KN = AICF_GEMM_BIAS_ACT_B_LAYOUT_KN, AICF_B_NK = AICF_GEMM_BIAS_ACT_B_LAYOUT_NK };

#endif /* AICF_OPS_GEMM_BIAS_ACT_API_HPP_ */

// The kernels of gemm_backward, by the names that op.py gives them. Each is two products and what belongs to them; bf16 and fp16, fp32
// sums.
//
//   mma    multiply_mma (mma.cuh) for dZ = (dY W') * act'(Z) and for dW = X' dY; add_partial_sums (column_sums.cuh) for dbias
//   wgmma  multiply_act_grad and multiply_weight_grad (wgmma.cuh); the same add_partial_sums
#pragma once

#include "gemm_backward/column_sums.cuh"
#include "gemm_backward/mma.cuh"
#include "gemm_backward/wgmma.cuh"

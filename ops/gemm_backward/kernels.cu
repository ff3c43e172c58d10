// The kernels of gemm_backward, by the names that op.py gives them; fp32 sums. add_partial_sums (column_sums.cuh) ends dbias.
//
//   streamed  pass_rows (streamed.cuh), where there is no W; fp32, bf16 and fp16
//   tiny      multiply_tiny (tiny.cuh) for both products at once, where they are small; fp32, bf16 and fp16
//   thin      multiply_thin (thin.cuh) for both in one pass, where N is small, and add_thin_sums; fp32, bf16 and fp16
// fp32:
//   plain     multiply_plain (plain.cuh) for dZ, and for dW
//   ffma      multiply_ffma (ffma.cuh) for both at once
//   boxed_evenly  multiply_act_grad_evenly and multiply_weight_grad_evenly (boxed_evenly.cuh)
// bf16 and fp16:
//   mma       multiply_mma (mma.cuh) for dZ = (dY W') * act'(Z) and for dW = X' dY
//   wgmma     multiply_act_grad and multiply_weight_grad (wgmma.cuh)
//   turned_evenly  multiply_turned_grad (turned.cuh) and multiply_weight_grad
#pragma once

#include "gemm_backward/boxed_evenly.cuh"
#include "gemm_backward/column_sums.cuh"
#include "gemm_backward/ffma.cuh"
#include "gemm_backward/mma.cuh"
#include "gemm_backward/plain.cuh"
#include "gemm_backward/streamed.cuh"
#include "gemm_backward/thin.cuh"
#include "gemm_backward/tiny.cuh"
#include "gemm_backward/turned.cuh"
#include "gemm_backward/wgmma.cuh"

/* Generated from gemm_backward/op.py by the build; change it there. Parameters and entry points of op gemm_backward: dZ = (dY W') act'(Z), dbias and dW = X' dY of a linear layer behind an activation, in fp32, bf16 or fp16, row-major. */
#ifndef AICF_OPS_GEMM_BACKWARD_PARAMS_H_
#define AICF_OPS_GEMM_BACKWARD_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/activations.h"
#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* w_layout */
enum {
    AICF_GEMM_BACKWARD_W_LAYOUT_NK = 1,
    AICF_GEMM_BACKWARD_W_LAYOUT_KN = 0,
};

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct GemmBackwardParams {
    const void* dy;     /* input [M, N] or [M, K]; bfloat16 or float16 or float32; stride lddy */
    const void* w;      /* input [N, K] or [K, N]; bfloat16 or float16 or float32; stride ldw; NULL where it is not wanted */
    const void* x;      /* input [M, K]; bfloat16 or float16 or float32; stride ldx; NULL where it is not wanted */
    const void* z;      /* input [M, K]; bfloat16 or float16 or float32; stride ldz; NULL where it is not wanted */
    void* dz;           /* output [M, K]; bfloat16 or float16 or float32; stride lddz; NULL where it is not wanted */
    void* dbias;        /* output [K]; bfloat16 or float16 or float32; NULL where it is not wanted */
    void* dw;           /* output [N, K] or [K, N]; bfloat16 or float16 or float32; stride lddw; NULL where it is not wanted */
    int64_t m;          /* at least 1 */
    int64_t n;          /* at least 1 */
    int64_t k;          /* at least 1 */
    int64_t lddy;       /* elements, of dimension 0 of dy */
    int64_t ldw;        /* elements, of dimension 0 of w */
    int64_t ldx;        /* elements, of dimension 0 of x */
    int64_t ldz;        /* elements, of dimension 0 of z */
    int64_t lddz;       /* elements, of dimension 0 of dz */
    int64_t lddw;       /* elements, of dimension 0 of dw */
    int32_t act;        /* AICF_ACT_NONE or AICF_ACT_RELU or AICF_ACT_GELU_TANH or AICF_ACT_GELU_ERF or AICF_ACT_SILU */
    int32_t dtype;      /* AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 or AICF_DTYPE_FLOAT32 */
    int32_t w_layout;   /* AICF_GEMM_BACKWARD_W_LAYOUT_NK or AICF_GEMM_BACKWARD_W_LAYOUT_KN */
    void* dw_total;     /* inout [N, K] or [K, N]; bfloat16 or float16 or float32; stride lddw_total; NULL where it is not wanted */
    int64_t lddw_total; /* elements, of dimension 0 of dw_total */
} GemmBackwardParams;

/* A variant's entry points, by the type of its symbols gemm_backward_<call>__<suffix>. */
typedef AicfStatus (*GemmBackwardSupports)(const GemmBackwardParams* params);
typedef AicfStatus (*GemmBackwardWorkspaceBytes)(const GemmBackwardParams* params, size_t* bytes);
typedef AicfStatus (*GemmBackwardLaunch)(const GemmBackwardParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_backward, supports)(const GemmBackwardParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_backward, workspace_bytes)(const GemmBackwardParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_backward, launch)(const GemmBackwardParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_GEMM_BACKWARD_PARAMS_H_ */

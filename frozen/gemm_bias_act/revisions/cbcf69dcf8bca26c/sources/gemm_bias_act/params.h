/* Generated from gemm_bias_act/op.py by the build; change it there. Parameters and entry points of op gemm_bias_act: Y = dropout(act(A B + bias + residual)) in fp32, TF32, bf16 or fp16, row-major; the pre-activation Z on request. */
#ifndef AICF_OPS_GEMM_BIAS_ACT_PARAMS_H_
#define AICF_OPS_GEMM_BIAS_ACT_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/activations.h"
#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* b_layout */
enum {
    AICF_GEMM_BIAS_ACT_B_LAYOUT_KN = 0,
    AICF_GEMM_BIAS_ACT_B_LAYOUT_NK = 1,
};

/* precision */
enum {
    AICF_GEMM_BIAS_ACT_PRECISION_IEEE = 0,
    AICF_GEMM_BIAS_ACT_PRECISION_TF32 = 1,
};

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct GemmBiasActParams {
    const void* a;          /* input [M, K]; float32 or bfloat16 or float16; stride lda */
    const void* b;          /* input [K, N] or [N, K]; float32 or bfloat16 or float16; stride ldb */
    const void* bias;       /* input [N]; float32 or bfloat16 or float16; NULL where it is not wanted */
    void* y;                /* output [M, N]; float32 or bfloat16 or float16; stride ldy */
    void* z;                /* output [M, N]; float32 or bfloat16 or float16; stride ldz; NULL where it is not wanted */
    int64_t m;              /* at least 1 */
    int64_t n;              /* at least 1 */
    int64_t k;              /* at least 1 */
    int64_t lda;            /* elements, of dimension 0 of a */
    int64_t ldb;            /* elements, of dimension 0 of b */
    int64_t ldy;            /* elements, of dimension 0 of y */
    int64_t ldz;            /* elements, of dimension 0 of z */
    int32_t act;            /* AICF_ACT_NONE or AICF_ACT_RELU or AICF_ACT_GELU_TANH or AICF_ACT_GELU_ERF or AICF_ACT_SILU */
    int32_t dtype;          /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
    int32_t b_layout;       /* AICF_GEMM_BIAS_ACT_B_LAYOUT_KN or AICF_GEMM_BIAS_ACT_B_LAYOUT_NK */
    int32_t precision;      /* AICF_GEMM_BIAS_ACT_PRECISION_IEEE or AICF_GEMM_BIAS_ACT_PRECISION_TF32 */
    const void* residual;   /* input [M, N]; float32 or bfloat16 or float16; stride ldresidual; NULL where it is not wanted */
    int64_t ldresidual;     /* elements, of dimension 0 of residual */
    const float* p;         /* input []; NULL where it is not wanted */
    const int64_t* counter; /* input [2]; NULL where it is not wanted */
} GemmBiasActParams;

/* A variant's entry points, by the type of its symbols gemm_bias_act_<call>__<suffix>. */
typedef AicfStatus (*GemmBiasActSupports)(const GemmBiasActParams* params);
typedef AicfStatus (*GemmBiasActWorkspaceBytes)(const GemmBiasActParams* params, size_t* bytes);
typedef AicfStatus (*GemmBiasActLaunch)(const GemmBiasActParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_bias_act, supports)(const GemmBiasActParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_bias_act, workspace_bytes)(const GemmBiasActParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_bias_act, launch)(const GemmBiasActParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_GEMM_BIAS_ACT_PARAMS_H_ */

/* The C contract of op gemm_bias_act: Y = act(A B + bias + residual), Z the same before act, in fp32, TF32 on request, bf16 or
 * fp16 with fp32 sums, row-major. */
#ifndef AICF_OPS_GEMM_BIAS_ACT_API_HPP_
#define AICF_OPS_GEMM_BIAS_ACT_API_HPP_

#include <stddef.h>
#include <stdint.h>

#include "common/activations.h"
#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How B lies in memory. */
enum {
    AICF_B_KN = 0, /* [k, n] */
    AICF_B_NK = 1, /* [n, k]: the weights of a linear layer as frameworks keep them */
    AICF_B_LAYOUT_COUNT = 2
};

#define AICF_B_LAYOUT_NAMES {"kn", "nk"}

/* What fp32 inputs are multiplied in. */
enum {
    AICF_PRECISION_IEEE = 0, /* their own: every product and sum is rounded as fp32 */
    AICF_PRECISION_TF32 = 1, /* 11 bits of significand each, on the tensor cores, with fp32 sums; for AICF_DTYPE_FLOAT32 alone */
    AICF_PRECISION_COUNT = 2
};

#define AICF_PRECISION_NAMES {"ieee", "tf32"}

/* All pointers are device addresses of elements of `dtype`. Element (i, j) of a matrix X lies at x[i * ldx + j]; strides are in elements.
 * Outputs overlap neither the inputs nor each other. */
typedef struct GemmBiasActParams {
    const void* a;     /* [m, k], row stride lda */
    const void* b;     /* [k, n] or [n, k] as b_layout says, row stride ldb */
    const void* bias;  /* [n], contiguous; NULL: no bias */
    void* y;           /* [m, n], row stride ldy: act(A B + bias + residual) */
    void* z;           /* [m, n], row stride ldz: what act is applied to, kept for a backward pass; NULL: not wanted */
    int64_t m;         /* rows of A, Y and Z, at least 1 */
    int64_t n;         /* columns of B, Y and Z, at least 1 */
    int64_t k;         /* columns of A, rows of B, at least 1 */
    int64_t lda;       /* at least k */
    int64_t ldb;       /* at least n, or k where b_layout is AICF_B_NK */
    int64_t ldy;       /* at least n */
    int64_t ldz;       /* at least n; ignored where z is NULL */
    int32_t act;       /* AICF_ACT_* of common/activations.h */
    int32_t dtype;     /* AICF_DTYPE_* of common/dtypes.h, of all tensors; sums are fp32 */
    int32_t b_layout;  /* AICF_B_* */
    int32_t precision; /* AICF_PRECISION_* */
    /* What came later lies behind all else: kernels sealed before take a pointer to this struct. */
    const void* residual; /* [m, n], row stride ldresidual, added in fp32; NULL: none */
    int64_t ldresidual;   /* at least n; ignored where residual is NULL */
} GemmBiasActParams;

/* A variant's entry points, by the type of its symbols gemm_bias_act_<call>__<suffix>. */
typedef AicfStatus (*GemmBiasActSupports)(const GemmBiasActParams* params);
typedef AicfStatus (*GemmBiasActWorkspaceBytes)(const GemmBiasActParams* params, size_t* bytes);
typedef AicfStatus (*GemmBiasActLaunch)(const GemmBiasActParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_bias_act, supports)(const GemmBiasActParams* params);
/* Device memory in bytes that launch wants as workspace: 0 but for kernels that split k. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_bias_act, workspace_bytes)(const GemmBiasActParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_bias_act, launch)(const GemmBiasActParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_GEMM_BIAS_ACT_API_HPP_ */

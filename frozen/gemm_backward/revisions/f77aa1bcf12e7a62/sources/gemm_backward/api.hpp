/* The C contract of op gemm_backward: the backward pass of Y = act(Z + bias) W, in fp32, bf16 or fp16 with fp32 sums, row-major. */
#ifndef AICF_OPS_GEMM_BACKWARD_API_HPP_
#define AICF_OPS_GEMM_BACKWARD_API_HPP_

#include <stddef.h>
#include <stdint.h>

#include "common/activations.h"
#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How W and dW lie in memory. */
enum {
    AICF_W_KN = 0, /* [k, n] */
    AICF_W_NK = 1, /* [n, k]: the weights of a linear layer as frameworks keep them */
    AICF_W_LAYOUT_COUNT = 2
};

#define AICF_W_LAYOUT_NAMES {"kn", "nk"}

/* All pointers are device addresses of elements of `dtype`. Element (i, j) of a matrix X lies at x[i * ldx + j]; strides are in elements.
 * Outputs overlap neither the inputs nor each other. An output that is NULL is not wanted; what it alone needs may be NULL too. */
typedef struct GemmBackwardParams {
    const void* dy; /* [m, n], row stride lddy: gradient of Y */
    const void* w;  /* [k, n] or [n, k] as w_layout says, row stride ldw; NULL: Y is X itself, n is k, and there is no dw */
    const void* x;  /* [m, k], row stride ldx: act(Z + bias), what W was multiplied by; needed for dw */
    const void* z;  /* [m, k], row stride ldz: Z + bias, or for relu x itself; needed where dz is wanted and act is not none */
    void* dz;       /* [m, k], row stride lddz: (dY W') * act'(Z + bias); without w dY * act'(Z + bias) */
    void* dbias;    /* [k]: the sums of the columns of dZ, before it is rounded; wanted with dz alone */
    void* dw;       /* like w, row stride lddw: X' dY; NULL where dw_total is wanted */
    int64_t m;      /* rows of Y and X, at least 1 */
    int64_t n;      /* columns of Y, at least 1 */
    int64_t k;      /* columns of X, at least 1 */
    int64_t lddy, ldw, ldx, ldz, lddz, lddw; /* at least a row; ignored where the matrix is NULL */
    int32_t act;      /* AICF_ACT_* of common/activations.h */
    int32_t dtype;    /* AICF_DTYPE_FLOAT32, _BFLOAT16 or _FLOAT16, of all tensors; sums are fp32 */
    int32_t w_layout; /* AICF_W_* */
    void* dw_total;    /* like w, row stride lddw_total: what X' dY is added to, in place; NULL where dw is wanted */
    int64_t lddw_total;
} GemmBackwardParams;

/* A variant's entry points, by the type of its symbols gemm_backward_<call>__<suffix>. */
typedef AicfStatus (*GemmBackwardSupports)(const GemmBackwardParams* params);
typedef AicfStatus (*GemmBackwardWorkspaceBytes)(const GemmBackwardParams* params, size_t* bytes);
typedef AicfStatus (*GemmBackwardLaunch)(const GemmBackwardParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_backward, supports)(const GemmBackwardParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content: sums of columns, and parts of tiles of dW. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_backward, workspace_bytes)(const GemmBackwardParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(gemm_backward, launch)(const GemmBackwardParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_GEMM_BACKWARD_API_HPP_ */

/* Generated from rmsnorm_backward/op.py by the build; change it there. Parameters and entry points of op rmsnorm_backward: gradients of RMS normalisation. */
#ifndef AICF_OPS_RMSNORM_BACKWARD_PARAMS_H_
#define AICF_OPS_RMSNORM_BACKWARD_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct RmsnormBackwardParams {
    const void* dy;     /* input [rows, columns]; float32 or bfloat16 or float16; stride lddy */
    const void* x;      /* input [rows, columns]; float32 or bfloat16 or float16; stride ldx */
    const void* weight; /* input [columns]; float32 or bfloat16 or float16 */
    const float* rstd;  /* input [rows] */
    const void* dsum;   /* input [rows, columns]; float32 or bfloat16 or float16; stride lddsum; NULL where it is not wanted */
    void* dx;           /* output [rows, columns]; float32 or bfloat16 or float16; stride lddx */
    void* dweight;      /* output [columns]; float32 or bfloat16 or float16 */
    int64_t rows;       /* at least 1 */
    int64_t columns;    /* at least 1 */
    int64_t lddy;       /* elements, of dimension 0 of dy */
    int64_t ldx;        /* elements, of dimension 0 of x */
    int64_t lddsum;     /* elements, of dimension 0 of dsum */
    int64_t lddx;       /* elements, of dimension 0 of dx */
    int32_t dtype;      /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
} RmsnormBackwardParams;

/* A variant's entry points, by the type of its symbols rmsnorm_backward_<call>__<suffix>. */
typedef AicfStatus (*RmsnormBackwardSupports)(const RmsnormBackwardParams* params);
typedef AicfStatus (*RmsnormBackwardWorkspaceBytes)(const RmsnormBackwardParams* params, size_t* bytes);
typedef AicfStatus (*RmsnormBackwardLaunch)(const RmsnormBackwardParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(rmsnorm_backward, supports)(const RmsnormBackwardParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(rmsnorm_backward, workspace_bytes)(const RmsnormBackwardParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(rmsnorm_backward, launch)(const RmsnormBackwardParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_RMSNORM_BACKWARD_PARAMS_H_ */

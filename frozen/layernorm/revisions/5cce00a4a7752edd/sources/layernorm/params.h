/* Generated from layernorm/op.py by the build; change it there. Parameters and entry points of op layernorm: layer normalisation of rows, with an addition in front. */
#ifndef AICF_OPS_LAYERNORM_PARAMS_H_
#define AICF_OPS_LAYERNORM_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct LayernormParams {
    const void* x;        /* input [rows, columns]; float32 or bfloat16 or float16; stride ldx */
    const void* residual; /* input [rows, columns]; float32 or bfloat16 or float16; stride ldresidual; NULL where it is not wanted */
    const void* weight;   /* input [columns]; float32 or bfloat16 or float16 */
    const void* bias;     /* input [columns]; float32 or bfloat16 or float16; NULL where it is not wanted */
    void* y;              /* output [rows, columns]; float32 or bfloat16 or float16; stride ldy */
    void* sum;            /* output [rows, columns]; float32 or bfloat16 or float16; stride ldsum; NULL where it is not wanted */
    float* mean;          /* output [rows]; NULL where it is not wanted */
    float* rstd;          /* output [rows]; NULL where it is not wanted */
    int64_t rows;         /* at least 1 */
    int64_t columns;      /* at least 1 */
    int64_t ldx;          /* elements, of dimension 0 of x */
    int64_t ldresidual;   /* elements, of dimension 0 of residual */
    int64_t ldy;          /* elements, of dimension 0 of y */
    int64_t ldsum;        /* elements, of dimension 0 of sum */
    float eps;            /* from 1e-08 to 0.01 */
    int32_t dtype;        /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
} LayernormParams;

/* A variant's entry points, by the type of its symbols layernorm_<call>__<suffix>. */
typedef AicfStatus (*LayernormSupports)(const LayernormParams* params);
typedef AicfStatus (*LayernormWorkspaceBytes)(const LayernormParams* params, size_t* bytes);
typedef AicfStatus (*LayernormLaunch)(const LayernormParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(layernorm, supports)(const LayernormParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(layernorm, workspace_bytes)(const LayernormParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(layernorm, launch)(const LayernormParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_LAYERNORM_PARAMS_H_ */

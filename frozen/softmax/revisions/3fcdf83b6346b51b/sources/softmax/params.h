/* Generated from softmax/op.py by the build; change it there. Parameters and entry points of op softmax: softmax or its logarithm over the last axis, scaled and masked. */
#ifndef AICF_OPS_SOFTMAX_PARAMS_H_
#define AICF_OPS_SOFTMAX_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* mask */
enum {
    AICF_SOFTMAX_MASK_NONE = 0,
    AICF_SOFTMAX_MASK_CAUSAL = 1,
    AICF_SOFTMAX_MASK_BOOLEAN = 2,
};

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct SoftmaxParams {
    const void* x;          /* input [rows, columns]; float32 or bfloat16 or float16; stride ldx */
    void* y;                /* output [rows, columns]; float32 or bfloat16 or float16; stride ldy */
    int64_t rows;           /* at least 1 */
    int64_t columns;        /* at least 1 */
    int64_t ldx;            /* elements, of dimension 0 of x */
    int64_t ldy;            /* elements, of dimension 0 of y */
    const float* scale;     /* input []; NULL where it is not wanted */
    const uint8_t* keep;    /* input [rows, columns]; stride ldkeep; NULL where it is not wanted */
    const int64_t* queries; /* input []; NULL where it is not wanted */
    int64_t ldkeep;         /* elements, of dimension 0 of keep */
    int32_t dtype;          /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
    int32_t log;            /* log: one of 0, 1 */
    int32_t mask;           /* AICF_SOFTMAX_MASK_NONE or AICF_SOFTMAX_MASK_CAUSAL or AICF_SOFTMAX_MASK_BOOLEAN */
} SoftmaxParams;

/* A variant's entry points, by the type of its symbols softmax_<call>__<suffix>. */
typedef AicfStatus (*SoftmaxSupports)(const SoftmaxParams* params);
typedef AicfStatus (*SoftmaxWorkspaceBytes)(const SoftmaxParams* params, size_t* bytes);
typedef AicfStatus (*SoftmaxLaunch)(const SoftmaxParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax, supports)(const SoftmaxParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax, workspace_bytes)(const SoftmaxParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax, launch)(const SoftmaxParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_SOFTMAX_PARAMS_H_ */

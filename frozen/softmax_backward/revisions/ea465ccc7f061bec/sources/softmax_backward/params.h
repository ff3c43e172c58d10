/* Generated from softmax_backward/op.py by the build; change it there. Parameters and entry points of op softmax_backward: gradient of softmax, or of its logarithm, by its input. */
#ifndef AICF_OPS_SOFTMAX_BACKWARD_PARAMS_H_
#define AICF_OPS_SOFTMAX_BACKWARD_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct SoftmaxBackwardParams {
    const void* dy;     /* input [rows, columns]; float32 or bfloat16 or float16; stride lddy */
    const void* y;      /* input [rows, columns]; float32 or bfloat16 or float16; stride ldy */
    const float* scale; /* input []; NULL where it is not wanted */
    void* dx;           /* output [rows, columns]; float32 or bfloat16 or float16; stride lddx */
    int64_t rows;       /* at least 1 */
    int64_t columns;    /* at least 1 */
    int64_t lddy;       /* elements, of dimension 0 of dy */
    int64_t ldy;        /* elements, of dimension 0 of y */
    int64_t lddx;       /* elements, of dimension 0 of dx */
    int32_t dtype;      /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
    int32_t log;        /* log: one of 0, 1 */
} SoftmaxBackwardParams;

/* A variant's entry points, by the type of its symbols softmax_backward_<call>__<suffix>. */
typedef AicfStatus (*SoftmaxBackwardSupports)(const SoftmaxBackwardParams* params);
typedef AicfStatus (*SoftmaxBackwardWorkspaceBytes)(const SoftmaxBackwardParams* params, size_t* bytes);
typedef AicfStatus (*SoftmaxBackwardLaunch)(const SoftmaxBackwardParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax_backward, supports)(const SoftmaxBackwardParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax_backward, workspace_bytes)(const SoftmaxBackwardParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax_backward, launch)(const SoftmaxBackwardParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_SOFTMAX_BACKWARD_PARAMS_H_ */

/* Generated from transpose/op.py by the build; change it there. Parameters and entry points of op transpose: Y = X transposed, fp32, row-major. */
#ifndef AICF_OPS_TRANSPOSE_PARAMS_H_
#define AICF_OPS_TRANSPOSE_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct TransposeParams {
    const float* x;  /* input [rows, columns]; stride ldx */
    float* y;        /* output [columns, rows]; stride ldy */
    int64_t rows;    /* at least 1 */
    int64_t columns; /* at least 1 */
    int64_t ldx;     /* elements, of dimension 0 of x */
    int64_t ldy;     /* elements, of dimension 0 of y */
} TransposeParams;

/* A variant's entry points, by the type of its symbols transpose_<call>__<suffix>. */
typedef AicfStatus (*TransposeSupports)(const TransposeParams* params);
typedef AicfStatus (*TransposeWorkspaceBytes)(const TransposeParams* params, size_t* bytes);
typedef AicfStatus (*TransposeLaunch)(const TransposeParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(transpose, supports)(const TransposeParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(transpose, workspace_bytes)(const TransposeParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(transpose, launch)(const TransposeParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_TRANSPOSE_PARAMS_H_ */

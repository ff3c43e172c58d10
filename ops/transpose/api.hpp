/* The C contract of op transpose: Y = X^T, fp32, row-major. */
#ifndef AICF_OPS_TRANSPOSE_API_HPP_
#define AICF_OPS_TRANSPOSE_API_HPP_

#include <stddef.h>
#include <stdint.h>

#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses of float32. Y[j * ldy + i] = X[i * ldx + j]; strides are in elements. Y does not overlap X. */
typedef struct TransposeParams {
    const float* x;  /* [rows, columns], row stride ldx */
    float* y;        /* [columns, rows], row stride ldy */
    int64_t rows;    /* at least 1 */
    int64_t columns; /* at least 1 */
    int64_t ldx;     /* at least columns */
    int64_t ldy;     /* at least rows */
} TransposeParams;

/* A variant's entry points, by the type of its symbols transpose_<call>__<suffix>. */
typedef AicfStatus (*TransposeSupports)(const TransposeParams* params);
typedef AicfStatus (*TransposeWorkspaceBytes)(const TransposeParams* params, size_t* bytes);
typedef AicfStatus (*TransposeLaunch)(const TransposeParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(transpose, supports)(const TransposeParams* params);
/* Device memory in bytes that launch wants as workspace: 0 for every kernel of this op. */
AICF_EXPORT AicfStatus AICF_ENTRY(transpose, workspace_bytes)(const TransposeParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(transpose, launch)(const TransposeParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_TRANSPOSE_API_HPP_ */

/* The C contract of op softmax: Y = softmax(X) over the last axis, fp32, row-major. */
#ifndef AICF_OPS_SOFTMAX_API_HPP_
#define AICF_OPS_SOFTMAX_API_HPP_

#include <stddef.h>
#include <stdint.h>

#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses of float32. Element (i, j) of X lies at x[i * ldx + j]; strides are in elements. Y does not overlap X.
 *
 * A row may hold -inf as long as one element is finite: it counts as weight 0. A row of nothing but -inf, or with NaN or +inf in it,
 * becomes NaN throughout. */
typedef struct SoftmaxParams {
    const float* x;  /* [rows, columns], row stride ldx */
    float* y;        /* [rows, columns], row stride ldy */
    int64_t rows;    /* at least 1 */
    int64_t columns; /* at least 1 */
    int64_t ldx;     /* at least columns */
    int64_t ldy;     /* at least columns */
} SoftmaxParams;

/* A variant's entry points, by the type of its symbols softmax_<call>__<suffix>. */
typedef AicfStatus (*SoftmaxSupports)(const SoftmaxParams* params);
typedef AicfStatus (*SoftmaxWorkspaceBytes)(const SoftmaxParams* params, size_t* bytes);
typedef AicfStatus (*SoftmaxLaunch)(const SoftmaxParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax, supports)(const SoftmaxParams* params);
/* Device memory in bytes that launch wants as workspace: 0 for every kernel of this op. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax, workspace_bytes)(const SoftmaxParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(softmax, launch)(const SoftmaxParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_SOFTMAX_API_HPP_ */

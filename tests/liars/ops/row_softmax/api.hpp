/* The C contract of op row_softmax: softmax over the rows of X, fp32, row-major. */
#ifndef AICF_LIARS_ROW_SOFTMAX_API_HPP_
#define AICF_LIARS_ROW_SOFTMAX_API_HPP_

#include <stddef.h>
#include <stdint.h>

#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device addresses of float32 [rows, columns]; element (i, j) of X lies at x[i * ldx + j], strides in elements. */
typedef struct RowSoftmaxParams {
    const float* x;
    float* y;
    int64_t rows;
    int64_t columns;
    int64_t ldx;
    int64_t ldy;
} RowSoftmaxParams;

typedef AicfStatus (*RowSoftmaxSupports)(const RowSoftmaxParams* params);
typedef AicfStatus (*RowSoftmaxWorkspaceBytes)(const RowSoftmaxParams* params, size_t* bytes);
typedef AicfStatus (*RowSoftmaxLaunch)(const RowSoftmaxParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
AICF_EXPORT AicfStatus AICF_ENTRY(row_softmax, supports)(const RowSoftmaxParams* params);
AICF_EXPORT AicfStatus AICF_ENTRY(row_softmax, workspace_bytes)(const RowSoftmaxParams* params, size_t* bytes);
AICF_EXPORT AicfStatus AICF_ENTRY(row_softmax, launch)(const RowSoftmaxParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_LIARS_ROW_SOFTMAX_API_HPP_ */

/* Generated from reduce/op.py by the build; change it there. Parameters and entry points of op reduce: sums, means, extremes and norms of a matrix over columns, rows or all. */
#ifndef AICF_OPS_REDUCE_PARAMS_H_
#define AICF_OPS_REDUCE_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* reduction */
enum {
    AICF_REDUCE_REDUCTION_SUM = 0,
    AICF_REDUCE_REDUCTION_MEAN = 1,
    AICF_REDUCE_REDUCTION_MAX = 2,
    AICF_REDUCE_REDUCTION_MIN = 3,
    AICF_REDUCE_REDUCTION_ARGMAX = 4,
    AICF_REDUCE_REDUCTION_L2_NORM = 5,
    AICF_REDUCE_REDUCTION_SUM_SQUARES = 6,
};

/* over */
enum {
    AICF_REDUCE_OVER_COLUMNS = 0,
    AICF_REDUCE_OVER_ROWS = 1,
    AICF_REDUCE_OVER_ALL = 2,
};

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct ReduceParams {
    const void* x;        /* input [rows, columns]; float32 or bfloat16 or float16; stride ldx */
    void* y;              /* output [rows] or [columns] or []; float32 or bfloat16 or float16 or int64 */
    int64_t rows;         /* at least 1 */
    int64_t columns;      /* at least 1 */
    int64_t ldx;          /* elements, of dimension 0 of x */
    int32_t dtype;        /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
    int32_t result_dtype; /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 or AICF_DTYPE_INT64 */
    int32_t reduction;    /* AICF_REDUCE_REDUCTION_SUM or AICF_REDUCE_REDUCTION_MEAN or AICF_REDUCE_REDUCTION_MAX or AICF_REDUCE_REDUCTION_MIN or AICF_REDUCE_REDUCTION_ARGMAX or AICF_REDUCE_REDUCTION_L2_NORM or AICF_REDUCE_REDUCTION_SUM_SQUARES */
    int32_t over;         /* AICF_REDUCE_OVER_COLUMNS or AICF_REDUCE_OVER_ROWS or AICF_REDUCE_OVER_ALL */
} ReduceParams;

/* A variant's entry points, by the type of its symbols reduce_<call>__<suffix>. */
typedef AicfStatus (*ReduceSupports)(const ReduceParams* params);
typedef AicfStatus (*ReduceWorkspaceBytes)(const ReduceParams* params, size_t* bytes);
typedef AicfStatus (*ReduceLaunch)(const ReduceParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(reduce, supports)(const ReduceParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(reduce, workspace_bytes)(const ReduceParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(reduce, launch)(const ReduceParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_REDUCE_PARAMS_H_ */

/* Generated from cross_entropy/op.py by the build; change it there. Parameters and entry points of op cross_entropy: cross-entropy of logits and class indices, with its gradient. */
#ifndef AICF_OPS_CROSS_ENTROPY_PARAMS_H_
#define AICF_OPS_CROSS_ENTROPY_PARAMS_H_

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
    AICF_CROSS_ENTROPY_REDUCTION_MEAN = 0,
    AICF_CROSS_ENTROPY_REDUCTION_SUM = 1,
};

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct CrossEntropyParams {
    const void* logits;    /* input [rows, classes]; float32 or bfloat16 or float16; stride ldlogits */
    const int64_t* labels; /* input [rows] */
    float* loss;           /* output [] */
    void* dlogits;         /* output [rows, classes]; float32 or bfloat16 or float16; stride lddlogits; NULL where it is not wanted */
    int64_t rows;          /* at least 1 */
    int64_t classes;       /* at least 1 */
    int64_t ldlogits;      /* elements, of dimension 0 of logits */
    int64_t lddlogits;     /* elements, of dimension 0 of dlogits */
    float label_smoothing; /* from 0 to 0.5 */
    int64_t ignore_index;  /* one of -100, 0, 1 */
    int32_t dtype;         /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
    int32_t reduction;     /* AICF_CROSS_ENTROPY_REDUCTION_MEAN or AICF_CROSS_ENTROPY_REDUCTION_SUM */
    void* dbias;           /* output [classes]; float32 or bfloat16 or float16; NULL where it is not wanted */
} CrossEntropyParams;

/* A variant's entry points, by the type of its symbols cross_entropy_<call>__<suffix>. */
typedef AicfStatus (*CrossEntropySupports)(const CrossEntropyParams* params);
typedef AicfStatus (*CrossEntropyWorkspaceBytes)(const CrossEntropyParams* params, size_t* bytes);
typedef AicfStatus (*CrossEntropyLaunch)(const CrossEntropyParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(cross_entropy, supports)(const CrossEntropyParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(cross_entropy, workspace_bytes)(const CrossEntropyParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(cross_entropy, launch)(const CrossEntropyParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_CROSS_ENTROPY_PARAMS_H_ */

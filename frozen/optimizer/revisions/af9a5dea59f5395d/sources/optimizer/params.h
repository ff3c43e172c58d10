/* Generated from optimizer/op.py by the build; change it there. Parameters and entry points of op optimizer: an Adam or AdamW step over a flat parameter, in place. */
#ifndef AICF_OPS_OPTIMIZER_PARAMS_H_
#define AICF_OPS_OPTIMIZER_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct OptimizerParams {
    float* p;            /* inout [N] */
    const void* grad;    /* input [N]; float32 or bfloat16 or float16 */
    float* m;            /* inout [N] */
    float* v;            /* inout [N] */
    const int64_t* step; /* input []; NULL where it is not wanted */
    const float* lr;     /* input [] */
    void* copy;          /* output [N]; float32 or bfloat16 or float16; NULL where it is not wanted */
    int64_t n;           /* at least 1 */
    double beta1;        /* from 0 to 0.999 */
    double beta2;        /* from 0.5 to 0.9999 */
    double eps;          /* from 1e-12 to 0.01 */
    double weight_decay; /* from 0 to 1 */
    int32_t dtype;       /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
    int32_t decoupled;   /* decoupled: one of 1, 0 */
    int64_t* steps_done; /* inout []; NULL where it is not wanted */
    const float* factor; /* input []; NULL where it is not wanted */
} OptimizerParams;

/* A variant's entry points, by the type of its symbols optimizer_<call>__<suffix>. */
typedef AicfStatus (*OptimizerSupports)(const OptimizerParams* params);
typedef AicfStatus (*OptimizerWorkspaceBytes)(const OptimizerParams* params, size_t* bytes);
typedef AicfStatus (*OptimizerLaunch)(const OptimizerParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(optimizer, supports)(const OptimizerParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(optimizer, workspace_bytes)(const OptimizerParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(optimizer, launch)(const OptimizerParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_OPTIMIZER_PARAMS_H_ */

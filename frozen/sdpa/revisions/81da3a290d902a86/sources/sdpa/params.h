/* Generated from sdpa/op.py by the build; change it there. Parameters and entry points of op sdpa: scaled dot-product attention, rank 4 with any strides of batch, head and row. */
#ifndef AICF_OPS_SDPA_PARAMS_H_
#define AICF_OPS_SDPA_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct SdpaParams {
    const void* q;     /* input [B, H, S, D]; float32 or bfloat16 or float16; strides q_stride0, q_stride1, q_stride2 */
    const void* k;     /* input [B, H, T, D]; float32 or bfloat16 or float16; strides k_stride0, k_stride1, k_stride2 */
    const void* v;     /* input [B, H, T, D]; float32 or bfloat16 or float16; strides v_stride0, v_stride1, v_stride2 */
    void* o;           /* output [B, H, S, D]; float32 or bfloat16 or float16; strides o_stride0, o_stride1, o_stride2 */
    float* lse;        /* output [B, H, S]; NULL where it is not wanted */
    int64_t b;         /* at least 1 */
    int64_t h;         /* at least 1 */
    int64_t s;         /* at least 1 */
    int64_t t;         /* at least 1 */
    int64_t d;         /* at least 1 */
    int64_t q_stride0; /* elements, of dimension 0 of q */
    int64_t q_stride1; /* elements, of dimension 1 of q */
    int64_t q_stride2; /* elements, of dimension 2 of q */
    int64_t k_stride0; /* elements, of dimension 0 of k */
    int64_t k_stride1; /* elements, of dimension 1 of k */
    int64_t k_stride2; /* elements, of dimension 2 of k */
    int64_t v_stride0; /* elements, of dimension 0 of v */
    int64_t v_stride1; /* elements, of dimension 1 of v */
    int64_t v_stride2; /* elements, of dimension 2 of v */
    int64_t o_stride0; /* elements, of dimension 0 of o */
    int64_t o_stride1; /* elements, of dimension 1 of o */
    int64_t o_stride2; /* elements, of dimension 2 of o */
    float scale;       /* from 0.000976562 to 1 */
    int32_t dtype;     /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
    int32_t causal;    /* causal: one of 0, 1 */
} SdpaParams;

/* A variant's entry points, by the type of its symbols sdpa_<call>__<suffix>. */
typedef AicfStatus (*SdpaSupports)(const SdpaParams* params);
typedef AicfStatus (*SdpaWorkspaceBytes)(const SdpaParams* params, size_t* bytes);
typedef AicfStatus (*SdpaLaunch)(const SdpaParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(sdpa, supports)(const SdpaParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(sdpa, workspace_bytes)(const SdpaParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(sdpa, launch)(const SdpaParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_SDPA_PARAMS_H_ */

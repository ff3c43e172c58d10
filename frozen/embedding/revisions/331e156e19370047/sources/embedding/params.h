/* Generated from embedding/op.py by the build; change it there. Parameters and entry points of op embedding: rows of a table by index. */
#ifndef AICF_OPS_EMBEDDING_PARAMS_H_
#define AICF_OPS_EMBEDDING_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct EmbeddingParams {
    const void* table;   /* input [vocabulary, width]; float32 or bfloat16 or float16; stride ldtable */
    const void* indices; /* input [count]; int64 or int32 */
    void* y;             /* output [count, width]; float32 or bfloat16 or float16; stride ldy */
    int32_t* status;     /* inout []; NULL where it is not wanted */
    int64_t count;       /* at least 1 */
    int64_t vocabulary;  /* at least 1 */
    int64_t width;       /* at least 1 */
    int64_t ldtable;     /* elements, of dimension 0 of table */
    int64_t ldy;         /* elements, of dimension 0 of y */
    int32_t dtype;       /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
    int32_t index_dtype; /* AICF_DTYPE_INT64 or AICF_DTYPE_INT32 */
} EmbeddingParams;

/* A variant's entry points, by the type of its symbols embedding_<call>__<suffix>. */
typedef AicfStatus (*EmbeddingSupports)(const EmbeddingParams* params);
typedef AicfStatus (*EmbeddingWorkspaceBytes)(const EmbeddingParams* params, size_t* bytes);
typedef AicfStatus (*EmbeddingLaunch)(const EmbeddingParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(embedding, supports)(const EmbeddingParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(embedding, workspace_bytes)(const EmbeddingParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(embedding, launch)(const EmbeddingParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_EMBEDDING_PARAMS_H_ */

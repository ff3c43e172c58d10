/* Generated from elementwise/op.py by the build; change it there. Parameters and entry points of op elementwise: chains of elementwise functions, fused from expressions. */
#ifndef AICF_OPS_ELEMENTWISE_PARAMS_H_
#define AICF_OPS_ELEMENTWISE_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* chain */
enum {
    AICF_ELEMENTWISE_CHAIN_ADD = 0,
    AICF_ELEMENTWISE_CHAIN_MUL = 1,
    AICF_ELEMENTWISE_CHAIN_ADD_BIAS = 2,
    AICF_ELEMENTWISE_CHAIN_AXPBY = 3,
    AICF_ELEMENTWISE_CHAIN_SCALE = 4,
    AICF_ELEMENTWISE_CHAIN_RELU = 5,
    AICF_ELEMENTWISE_CHAIN_RELU_GRAD = 6,
    AICF_ELEMENTWISE_CHAIN_GELU_BIAS = 7,
    AICF_ELEMENTWISE_CHAIN_GELU_GRAD = 8,
    AICF_ELEMENTWISE_CHAIN_GELU_TANH = 9,
    AICF_ELEMENTWISE_CHAIN_GELU_TANH_GRAD = 10,
    AICF_ELEMENTWISE_CHAIN_SILU = 11,
    AICF_ELEMENTWISE_CHAIN_SILU_GRAD = 12,
    AICF_ELEMENTWISE_CHAIN_TANH = 13,
    AICF_ELEMENTWISE_CHAIN_TANH_GRAD = 14,
    AICF_ELEMENTWISE_CHAIN_SIGMOID = 15,
    AICF_ELEMENTWISE_CHAIN_SWIGLU = 16,
    AICF_ELEMENTWISE_CHAIN_SWIGLU_GRAD = 17,
    AICF_ELEMENTWISE_CHAIN_GEGLU = 18,
    AICF_ELEMENTWISE_CHAIN_DROPOUT = 19,
    AICF_ELEMENTWISE_CHAIN_BIAS_DROPOUT_RESIDUAL = 20,
    AICF_ELEMENTWISE_CHAIN_TO_FLOAT32 = 21,
    AICF_ELEMENTWISE_CHAIN_TO_BFLOAT16 = 22,
    AICF_ELEMENTWISE_CHAIN_TO_FLOAT16 = 23,
    AICF_ELEMENTWISE_CHAIN_WHERE = 24,
    AICF_ELEMENTWISE_CHAIN_GREATER = 25,
    AICF_ELEMENTWISE_CHAIN_SCALE_ROWS = 26,
    AICF_ELEMENTWISE_CHAIN_SGD = 27,
    AICF_ELEMENTWISE_CHAIN_LION = 28,
};

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct ElementwiseParams {
    const void* in0;        /* input [rows, columns]; float32 or bfloat16 or float16; stride ldin0 */
    const void* in1;        /* input [rows, columns] or [1, columns] or [1, 1] or [rows, 1]; float32 or bfloat16 or float16; stride ldin1; NULL where it is not wanted */
    const void* in2;        /* input [rows, columns] or [1, 1]; float32 or bfloat16 or float16 or bool; stride ldin2; NULL where it is not wanted */
    const float* in3;       /* input [rows, columns] or [1, 1]; stride ldin3; NULL where it is not wanted */
    const float* in4;       /* input [rows, columns] or [1, 1]; stride ldin4; NULL where it is not wanted */
    const float* in5;       /* input [rows, columns] or [1, 1]; stride ldin5; NULL where it is not wanted */
    const float* in6;       /* input [rows, columns] or [1, 1]; stride ldin6; NULL where it is not wanted */
    const float* in7;       /* input [rows, columns]; stride ldin7; NULL where it is not wanted */
    void* out0;             /* output [rows, columns]; float32 or bfloat16 or float16 or bool; stride ldout0 */
    void* out1;             /* output [rows, columns]; float32 or bfloat16 or float16; stride ldout1; NULL where it is not wanted */
    void* out2;             /* output [rows, columns]; float32 or bfloat16 or float16; stride ldout2; NULL where it is not wanted */
    float* out3;            /* output [rows, columns]; stride ldout3; NULL where it is not wanted */
    const int64_t* counter; /* input [2]; NULL where it is not wanted */
    int64_t rows;           /* at least 1 */
    int64_t columns;        /* at least 1 */
    int64_t ldin0;          /* elements, of dimension 0 of in0 */
    int64_t ldin1;          /* elements, of dimension 0 of in1 */
    int64_t ldin2;          /* elements, of dimension 0 of in2 */
    int64_t ldin3;          /* elements, of dimension 0 of in3 */
    int64_t ldin4;          /* elements, of dimension 0 of in4 */
    int64_t ldin5;          /* elements, of dimension 0 of in5 */
    int64_t ldin6;          /* elements, of dimension 0 of in6 */
    int64_t ldin7;          /* elements, of dimension 0 of in7 */
    int64_t ldout0;         /* elements, of dimension 0 of out0 */
    int64_t ldout1;         /* elements, of dimension 0 of out1 */
    int64_t ldout2;         /* elements, of dimension 0 of out2 */
    int64_t ldout3;         /* elements, of dimension 0 of out3 */
    int32_t chain;          /* AICF_ELEMENTWISE_CHAIN_ADD or AICF_ELEMENTWISE_CHAIN_MUL or AICF_ELEMENTWISE_CHAIN_ADD_BIAS or AICF_ELEMENTWISE_CHAIN_AXPBY or AICF_ELEMENTWISE_CHAIN_SCALE or AICF_ELEMENTWISE_CHAIN_RELU or AICF_ELEMENTWISE_CHAIN_RELU_GRAD or AICF_ELEMENTWISE_CHAIN_GELU_BIAS or AICF_ELEMENTWISE_CHAIN_GELU_GRAD or AICF_ELEMENTWISE_CHAIN_GELU_TANH or AICF_ELEMENTWISE_CHAIN_GELU_TANH_GRAD or AICF_ELEMENTWISE_CHAIN_SILU or AICF_ELEMENTWISE_CHAIN_SILU_GRAD or AICF_ELEMENTWISE_CHAIN_TANH or AICF_ELEMENTWISE_CHAIN_TANH_GRAD or AICF_ELEMENTWISE_CHAIN_SIGMOID or AICF_ELEMENTWISE_CHAIN_SWIGLU or AICF_ELEMENTWISE_CHAIN_SWIGLU_GRAD or AICF_ELEMENTWISE_CHAIN_GEGLU or AICF_ELEMENTWISE_CHAIN_DROPOUT or AICF_ELEMENTWISE_CHAIN_BIAS_DROPOUT_RESIDUAL or AICF_ELEMENTWISE_CHAIN_TO_FLOAT32 or AICF_ELEMENTWISE_CHAIN_TO_BFLOAT16 or AICF_ELEMENTWISE_CHAIN_TO_FLOAT16 or AICF_ELEMENTWISE_CHAIN_WHERE or AICF_ELEMENTWISE_CHAIN_GREATER or AICF_ELEMENTWISE_CHAIN_SCALE_ROWS or AICF_ELEMENTWISE_CHAIN_SGD or AICF_ELEMENTWISE_CHAIN_LION */
    int32_t dtype;          /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 */
} ElementwiseParams;

/* A variant's entry points, by the type of its symbols elementwise_<call>__<suffix>. */
typedef AicfStatus (*ElementwiseSupports)(const ElementwiseParams* params);
typedef AicfStatus (*ElementwiseWorkspaceBytes)(const ElementwiseParams* params, size_t* bytes);
typedef AicfStatus (*ElementwiseLaunch)(const ElementwiseParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(elementwise, supports)(const ElementwiseParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(elementwise, workspace_bytes)(const ElementwiseParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(elementwise, launch)(const ElementwiseParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_ELEMENTWISE_PARAMS_H_ */

/* Generated from strided_copy/op.py by the build; change it there. Parameters and entry points of op strided_copy: copies of up to 8 pieces of up to 5 axes, any strides on both sides. */
#ifndef AICF_OPS_STRIDED_COPY_PARAMS_H_
#define AICF_OPS_STRIDED_COPY_PARAMS_H_

#include <stddef.h>
#include <stdint.h>

#include "common/dtypes.h"
#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */
typedef struct StridedCopyParams {
    const void* x0;     /* input [a, b, n0, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides x0_stride0, x0_stride1, x0_stride2, x0_stride3, x0_stride4 */
    const void* x1;     /* input [a, b, n1, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides x1_stride0, x1_stride1, x1_stride2, x1_stride3, x1_stride4; NULL where it is not wanted */
    const void* x2;     /* input [a, b, n2, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides x2_stride0, x2_stride1, x2_stride2, x2_stride3, x2_stride4; NULL where it is not wanted */
    const void* x3;     /* input [a, b, n3, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides x3_stride0, x3_stride1, x3_stride2, x3_stride3, x3_stride4; NULL where it is not wanted */
    const void* x4;     /* input [a, b, n4, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides x4_stride0, x4_stride1, x4_stride2, x4_stride3, x4_stride4; NULL where it is not wanted */
    const void* x5;     /* input [a, b, n5, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides x5_stride0, x5_stride1, x5_stride2, x5_stride3, x5_stride4; NULL where it is not wanted */
    const void* x6;     /* input [a, b, n6, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides x6_stride0, x6_stride1, x6_stride2, x6_stride3, x6_stride4; NULL where it is not wanted */
    const void* x7;     /* input [a, b, n7, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides x7_stride0, x7_stride1, x7_stride2, x7_stride3, x7_stride4; NULL where it is not wanted */
    void* y0;           /* output [a, b, n0, c, d] or [a, yb, yn, yc, yd]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides y0_stride0, y0_stride1, y0_stride2, y0_stride3, y0_stride4 */
    void* y1;           /* output [a, b, n1, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides y1_stride0, y1_stride1, y1_stride2, y1_stride3, y1_stride4; NULL where it is not wanted */
    void* y2;           /* output [a, b, n2, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides y2_stride0, y2_stride1, y2_stride2, y2_stride3, y2_stride4; NULL where it is not wanted */
    void* y3;           /* output [a, b, n3, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides y3_stride0, y3_stride1, y3_stride2, y3_stride3, y3_stride4; NULL where it is not wanted */
    void* y4;           /* output [a, b, n4, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides y4_stride0, y4_stride1, y4_stride2, y4_stride3, y4_stride4; NULL where it is not wanted */
    void* y5;           /* output [a, b, n5, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides y5_stride0, y5_stride1, y5_stride2, y5_stride3, y5_stride4; NULL where it is not wanted */
    void* y6;           /* output [a, b, n6, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides y6_stride0, y6_stride1, y6_stride2, y6_stride3, y6_stride4; NULL where it is not wanted */
    void* y7;           /* output [a, b, n7, c, d]; float32 or bfloat16 or float16 or float64 or int8 or uint8 or int16 or int32 or int64 or bool; strides y7_stride0, y7_stride1, y7_stride2, y7_stride3, y7_stride4; NULL where it is not wanted */
    int64_t a;          /* at least 1 */
    int64_t b;          /* at least 1 */
    int64_t n0;         /* at least 1 */
    int64_t n1;         /* at least 1 */
    int64_t n2;         /* at least 1 */
    int64_t n3;         /* at least 1 */
    int64_t n4;         /* at least 1 */
    int64_t n5;         /* at least 1 */
    int64_t n6;         /* at least 1 */
    int64_t n7;         /* at least 1 */
    int64_t c;          /* at least 1 */
    int64_t d;          /* at least 1 */
    int64_t yb;         /* at least 1 */
    int64_t yn;         /* at least 1 */
    int64_t yc;         /* at least 1 */
    int64_t yd;         /* at least 1 */
    int64_t x0_stride0; /* elements, of dimension 0 of x0 */
    int64_t x0_stride1; /* elements, of dimension 1 of x0 */
    int64_t x0_stride2; /* elements, of dimension 2 of x0 */
    int64_t x0_stride3; /* elements, of dimension 3 of x0 */
    int64_t x0_stride4; /* elements, of dimension 4 of x0 */
    int64_t x1_stride0; /* elements, of dimension 0 of x1 */
    int64_t x1_stride1; /* elements, of dimension 1 of x1 */
    int64_t x1_stride2; /* elements, of dimension 2 of x1 */
    int64_t x1_stride3; /* elements, of dimension 3 of x1 */
    int64_t x1_stride4; /* elements, of dimension 4 of x1 */
    int64_t x2_stride0; /* elements, of dimension 0 of x2 */
    int64_t x2_stride1; /* elements, of dimension 1 of x2 */
    int64_t x2_stride2; /* elements, of dimension 2 of x2 */
    int64_t x2_stride3; /* elements, of dimension 3 of x2 */
    int64_t x2_stride4; /* elements, of dimension 4 of x2 */
    int64_t x3_stride0; /* elements, of dimension 0 of x3 */
    int64_t x3_stride1; /* elements, of dimension 1 of x3 */
    int64_t x3_stride2; /* elements, of dimension 2 of x3 */
    int64_t x3_stride3; /* elements, of dimension 3 of x3 */
    int64_t x3_stride4; /* elements, of dimension 4 of x3 */
    int64_t x4_stride0; /* elements, of dimension 0 of x4 */
    int64_t x4_stride1; /* elements, of dimension 1 of x4 */
    int64_t x4_stride2; /* elements, of dimension 2 of x4 */
    int64_t x4_stride3; /* elements, of dimension 3 of x4 */
    int64_t x4_stride4; /* elements, of dimension 4 of x4 */
    int64_t x5_stride0; /* elements, of dimension 0 of x5 */
    int64_t x5_stride1; /* elements, of dimension 1 of x5 */
    int64_t x5_stride2; /* elements, of dimension 2 of x5 */
    int64_t x5_stride3; /* elements, of dimension 3 of x5 */
    int64_t x5_stride4; /* elements, of dimension 4 of x5 */
    int64_t x6_stride0; /* elements, of dimension 0 of x6 */
    int64_t x6_stride1; /* elements, of dimension 1 of x6 */
    int64_t x6_stride2; /* elements, of dimension 2 of x6 */
    int64_t x6_stride3; /* elements, of dimension 3 of x6 */
    int64_t x6_stride4; /* elements, of dimension 4 of x6 */
    int64_t x7_stride0; /* elements, of dimension 0 of x7 */
    int64_t x7_stride1; /* elements, of dimension 1 of x7 */
    int64_t x7_stride2; /* elements, of dimension 2 of x7 */
    int64_t x7_stride3; /* elements, of dimension 3 of x7 */
    int64_t x7_stride4; /* elements, of dimension 4 of x7 */
    int64_t y0_stride0; /* elements, of dimension 0 of y0 */
    int64_t y0_stride1; /* elements, of dimension 1 of y0 */
    int64_t y0_stride2; /* elements, of dimension 2 of y0 */
    int64_t y0_stride3; /* elements, of dimension 3 of y0 */
    int64_t y0_stride4; /* elements, of dimension 4 of y0 */
    int64_t y1_stride0; /* elements, of dimension 0 of y1 */
    int64_t y1_stride1; /* elements, of dimension 1 of y1 */
    int64_t y1_stride2; /* elements, of dimension 2 of y1 */
    int64_t y1_stride3; /* elements, of dimension 3 of y1 */
    int64_t y1_stride4; /* elements, of dimension 4 of y1 */
    int64_t y2_stride0; /* elements, of dimension 0 of y2 */
    int64_t y2_stride1; /* elements, of dimension 1 of y2 */
    int64_t y2_stride2; /* elements, of dimension 2 of y2 */
    int64_t y2_stride3; /* elements, of dimension 3 of y2 */
    int64_t y2_stride4; /* elements, of dimension 4 of y2 */
    int64_t y3_stride0; /* elements, of dimension 0 of y3 */
    int64_t y3_stride1; /* elements, of dimension 1 of y3 */
    int64_t y3_stride2; /* elements, of dimension 2 of y3 */
    int64_t y3_stride3; /* elements, of dimension 3 of y3 */
    int64_t y3_stride4; /* elements, of dimension 4 of y3 */
    int64_t y4_stride0; /* elements, of dimension 0 of y4 */
    int64_t y4_stride1; /* elements, of dimension 1 of y4 */
    int64_t y4_stride2; /* elements, of dimension 2 of y4 */
    int64_t y4_stride3; /* elements, of dimension 3 of y4 */
    int64_t y4_stride4; /* elements, of dimension 4 of y4 */
    int64_t y5_stride0; /* elements, of dimension 0 of y5 */
    int64_t y5_stride1; /* elements, of dimension 1 of y5 */
    int64_t y5_stride2; /* elements, of dimension 2 of y5 */
    int64_t y5_stride3; /* elements, of dimension 3 of y5 */
    int64_t y5_stride4; /* elements, of dimension 4 of y5 */
    int64_t y6_stride0; /* elements, of dimension 0 of y6 */
    int64_t y6_stride1; /* elements, of dimension 1 of y6 */
    int64_t y6_stride2; /* elements, of dimension 2 of y6 */
    int64_t y6_stride3; /* elements, of dimension 3 of y6 */
    int64_t y6_stride4; /* elements, of dimension 4 of y6 */
    int64_t y7_stride0; /* elements, of dimension 0 of y7 */
    int64_t y7_stride1; /* elements, of dimension 1 of y7 */
    int64_t y7_stride2; /* elements, of dimension 2 of y7 */
    int64_t y7_stride3; /* elements, of dimension 3 of y7 */
    int64_t y7_stride4; /* elements, of dimension 4 of y7 */
    int64_t at_b;       /* from -1.09951e+12 to 1.09951e+12 */
    int64_t at_n;       /* from -1.09951e+12 to 1.09951e+12 */
    int64_t at_c;       /* from -1.09951e+12 to 1.09951e+12 */
    int64_t at_d;       /* from -1.09951e+12 to 1.09951e+12 */
    int32_t dtype;      /* AICF_DTYPE_FLOAT32 or AICF_DTYPE_BFLOAT16 or AICF_DTYPE_FLOAT16 or AICF_DTYPE_FLOAT64 or AICF_DTYPE_INT8 or AICF_DTYPE_UINT8 or AICF_DTYPE_INT16 or AICF_DTYPE_INT32 or AICF_DTYPE_INT64 or AICF_DTYPE_BOOL */
    int32_t pieces;     /* pieces: one of 1, 2, 3, 4, 5, 6, 7, 8 */
    int32_t whole;      /* whole: one of 0, 1 */
} StridedCopyParams;

/* A variant's entry points, by the type of its symbols strided_copy_<call>__<suffix>. */
typedef AicfStatus (*StridedCopySupports)(const StridedCopyParams* params);
typedef AicfStatus (*StridedCopyWorkspaceBytes)(const StridedCopyParams* params, size_t* bytes);
typedef AicfStatus (*StridedCopyLaunch)(const StridedCopyParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
/* AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed. */
AICF_EXPORT AicfStatus AICF_ENTRY(strided_copy, supports)(const StridedCopyParams* params);
/* Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content. */
AICF_EXPORT AicfStatus AICF_ENTRY(strided_copy, workspace_bytes)(const StridedCopyParams* params, size_t* bytes);
/* Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph. */
AICF_EXPORT AicfStatus AICF_ENTRY(strided_copy, launch)(const StridedCopyParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_STRIDED_COPY_PARAMS_H_ */

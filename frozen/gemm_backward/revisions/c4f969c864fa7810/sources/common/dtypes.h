/* Codes of element types in the C ABI, and NumPy's names for the first of them in the same order. */
#ifndef AICF_OPS_COMMON_DTYPES_H_
#define AICF_OPS_COMMON_DTYPES_H_

enum {
    AICF_DTYPE_FLOAT32 = 0,
    AICF_DTYPE_BFLOAT16 = 1, /* 8 bits of significand, the exponents of float32 */
    AICF_DTYPE_FLOAT16 = 2,
    AICF_DTYPE_COUNT = 3, /* those that matrix products take */
    AICF_DTYPE_FLOAT64 = 3,
    AICF_DTYPE_INT8 = 4,
    AICF_DTYPE_UINT8 = 5,
    AICF_DTYPE_INT16 = 6,
    AICF_DTYPE_INT32 = 7,
    AICF_DTYPE_INT64 = 8,
    AICF_DTYPE_BOOL = 9 /* a byte of 0 or 1 */
};

#define AICF_DTYPE_NAMES {"float32", "bfloat16", "float16"}

/* What __cuda_array_interface__ calls them. bfloat16 has no letter of its own there: two bytes of no kind. */
#define AICF_DTYPE_TYPESTRS {"<f4", "<V2", "<f2"}

#endif /* AICF_OPS_COMMON_DTYPES_H_ */

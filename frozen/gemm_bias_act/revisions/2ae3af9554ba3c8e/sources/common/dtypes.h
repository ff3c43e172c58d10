/* Codes of element types in the C ABI, and NumPy's names for them in the same order. */
#ifndef AICF_OPS_COMMON_DTYPES_H_
#define AICF_OPS_COMMON_DTYPES_H_

enum {
    AICF_DTYPE_FLOAT32 = 0,
    AICF_DTYPE_BFLOAT16 = 1, /* 8 bits of significand, the exponents of float32 */
    AICF_DTYPE_FLOAT16 = 2,
    AICF_DTYPE_COUNT = 3
};

#define AICF_DTYPE_NAMES {"float32", "bfloat16", "float16"}

/* What __cuda_array_interface__ calls them. bfloat16 has no letter of its own there: two bytes of no kind. */
#define AICF_DTYPE_TYPESTRS {"<f4", "<V2", "<f2"}

#endif /* AICF_OPS_COMMON_DTYPES_H_ */

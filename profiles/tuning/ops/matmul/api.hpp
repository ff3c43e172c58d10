/* The C contract of op matmul: C = A B in fp32, row-major, for sizes that a variant's tiles divide. */
#ifndef AICF_OPS_MATMUL_API_HPP_
#define AICF_OPS_MATMUL_API_HPP_

#include <stddef.h>
#include <stdint.h>

#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All pointers are device addresses of float32, contiguous. c overlaps no input. */
typedef struct MatmulParams {
    const float* a; /* [m, k] */
    const float* b; /* [k, n] */
    float* c;       /* [m, n] */
    int64_t m, n, k;
} MatmulParams;

#ifdef AICF_VARIANT
AICF_EXPORT AicfStatus AICF_ENTRY(matmul, supports)(const MatmulParams* params);
AICF_EXPORT AicfStatus AICF_ENTRY(matmul, workspace_bytes)(const MatmulParams* params, size_t* bytes);
AICF_EXPORT AicfStatus AICF_ENTRY(matmul, launch)(const MatmulParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_MATMUL_API_HPP_ */

/* The C contract of op linear_silu: Y = silu(A B + bias), fp32, row-major. */
#ifndef AICF_LIARS_LINEAR_SILU_API_HPP_
#define AICF_LIARS_LINEAR_SILU_API_HPP_

#include <stddef.h>
#include <stdint.h>

#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device addresses of float32; element (i, j) of X lies at x[i * ldx + j], strides in elements. */
typedef struct LinearSiluParams {
    const float* a;    /* [m, k] */
    const float* b;    /* [k, n] */
    const float* bias; /* [n]; NULL: no bias */
    float* y;          /* [m, n] */
    int64_t m;
    int64_t n;
    int64_t k;
    int64_t lda;
    int64_t ldb;
    int64_t ldy;
} LinearSiluParams;

typedef AicfStatus (*LinearSiluSupports)(const LinearSiluParams* params);
typedef AicfStatus (*LinearSiluWorkspaceBytes)(const LinearSiluParams* params, size_t* bytes);
typedef AicfStatus (*LinearSiluLaunch)(const LinearSiluParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
AICF_EXPORT AicfStatus AICF_ENTRY(linear_silu, supports)(const LinearSiluParams* params);
AICF_EXPORT AicfStatus AICF_ENTRY(linear_silu, workspace_bytes)(const LinearSiluParams* params, size_t* bytes);
AICF_EXPORT AicfStatus AICF_ENTRY(linear_silu, launch)(const LinearSiluParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_LIARS_LINEAR_SILU_API_HPP_ */

/* The C contract of op turn: Y[j, i] = X[i, j], fp32, row-major. */
#ifndef AICF_LIARS_TURN_API_HPP_
#define AICF_LIARS_TURN_API_HPP_

#include <stddef.h>
#include <stdint.h>

#include "common/entry.h"
#include "common/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Device addresses of float32, X [rows, columns] and Y [columns, rows]; element (i, j) of X lies at x[i * ldx + j], strides in elements. */
typedef struct TurnParams {
    const float* x;
    float* y;
    int64_t rows;
    int64_t columns;
    int64_t ldx;
    int64_t ldy;
} TurnParams;

typedef AicfStatus (*TurnSupports)(const TurnParams* params);
typedef AicfStatus (*TurnWorkspaceBytes)(const TurnParams* params, size_t* bytes);
typedef AicfStatus (*TurnLaunch)(const TurnParams* params, void* workspace, struct CUstream_st* stream);

#ifdef AICF_VARIANT
AICF_EXPORT AicfStatus AICF_ENTRY(turn, supports)(const TurnParams* params);
AICF_EXPORT AicfStatus AICF_ENTRY(turn, workspace_bytes)(const TurnParams* params, size_t* bytes);
AICF_EXPORT AicfStatus AICF_ENTRY(turn, launch)(const TurnParams* params, void* workspace, struct CUstream_st* stream);
#endif

#ifdef __cplusplus
}
#endif
#endif /* AICF_LIARS_TURN_API_HPP_ */

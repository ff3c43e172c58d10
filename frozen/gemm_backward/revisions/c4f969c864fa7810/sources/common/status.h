/* Status of an op's C entry points: a code and the reason in words, by value, so that calls are thread-safe and allocate nothing. */
#ifndef AICF_OPS_COMMON_STATUS_H_
#define AICF_OPS_COMMON_STATUS_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    AICF_OK = 0,
    AICF_UNSUPPORTED = 1, /* the variant does not serve this problem; the reason names the limit */
    AICF_INVALID = 2,     /* the parameters contradict themselves; the reason names the argument */
    AICF_CUDA_ERROR = 3   /* a CUDA call failed; cuda_code holds its cudaError_t */
};

enum { AICF_REASON_BYTES = 248 };

typedef struct AicfStatus {
    int32_t code;
    int32_t cuda_code;
    char reason[AICF_REASON_BYTES]; /* NUL-terminated UTF-8; empty when code is AICF_OK */
} AicfStatus;

#ifdef __cplusplus
}
#endif
#endif /* AICF_OPS_COMMON_STATUS_H_ */

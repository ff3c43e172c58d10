// One way to turn a failed CUDA call into an AicfStatus: code, name, text, file, line and the call itself.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstring>

#include "common/status.hpp"

namespace aicf {

inline AicfStatus make_cuda_status(cudaError_t error, const char* call, const char* file, int line) {
    if (error == cudaSuccess) return make_ok();
    AicfStatus status = {};
    status.code = AICF_CUDA_ERROR;
    status.cuda_code = static_cast<int32_t>(error);
    const char* slash = std::strrchr(file, '/');
    std::snprintf(status.reason, sizeof status.reason, "%s (%d): %s, at %s:%d in %s", cudaGetErrorName(error), static_cast<int>(error),
                  cudaGetErrorString(error), slash ? slash + 1 : file, line, call);
    return status;
}

}  // namespace aicf

#define AICF_CUDA_STATUS(call) ::aicf::make_cuda_status((call), #call, __FILE__, __LINE__)

// Leaves the enclosing function, which returns AicfStatus, when the call fails.
#define AICF_RETURN_IF_CUDA_ERROR(call)                         \
    do {                                                        \
        const AicfStatus aicf_status_ = AICF_CUDA_STATUS(call); \
        if (!::aicf::is_ok(aicf_status_)) return aicf_status_;  \
    } while (false)

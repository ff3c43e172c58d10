/* What every C file of the library shares: statuses, and the context that a thread needs. No part of the interface. */
#ifndef AICF_DEPLOY_STATUS_H_
#define AICF_DEPLOY_STATUS_H_

#include "aicf_kernels.h"

#include <cuda_runtime_api.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static AicfStatus make_status(int code, const char* format, ...) {
    AicfStatus status;
    memset(&status, 0, sizeof status);
    status.code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(status.reason, sizeof status.reason, format, arguments);
    va_end(arguments);
    return status;
}

static AicfStatus make_ok(void) {
    AicfStatus status;
    memset(&status, 0, sizeof status);
    return status;
}

static AicfStatus make_cuda_error(cudaError_t error) {
    AicfStatus status = make_status(AICF_CUDA_ERROR, "%s: %s", cudaGetErrorName(error), cudaGetErrorString(error));
    status.cuda_code = (int32_t)error;
    return status;
}

/* Makes the current device's context current on this thread, once: a launcher's calls of the driver (encoders of tensor maps) need one, and
 * a thread whose first CUDA call is a launch has none. */
static AicfStatus bind_thread(void) {
    static _Thread_local int bound = -1;
    int device = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess && device != bound) error = cudaSetDevice(device);
    if (error != cudaSuccess) return make_cuda_error(error);
    bound = device;
    return make_ok();
}

#endif /* AICF_DEPLOY_STATUS_H_ */

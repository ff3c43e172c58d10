// Tensor maps for tensor_copy.cuh, made on the host. The encoder is taken from the driver through the runtime: nothing to link.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "common/cuda_check.hpp"
#include "common/status.hpp"

namespace aicf {

inline constexpr int kTensorMapAlignment = 16;  // bytes, of the base and of the row stride

// A row-major matrix as the copy engine sees it. Extents and box in elements; the box's rows are swizzled by 16-byte chunks where
// `swizzle_bytes` (32, 64, 128, or 0 for none) says so, and then are at most that long.
struct MatrixView {
    const void* base;
    std::int64_t rows, columns, row_stride;
    CUtensorMapDataType type;
    int element_bytes;
    int box_rows, box_columns;
    int swizzle_bytes;
};

// True when the copy engine can address the matrix; else pad the rows, or take another kernel.
inline bool is_mappable(const void* base, std::int64_t row_stride, int element_bytes) {
    return reinterpret_cast<std::uintptr_t>(base) % kTensorMapAlignment == 0 && row_stride * element_bytes % kTensorMapAlignment == 0;
}

// Makes the current device's context current on this thread, once: the encoder needs one, and a thread whose first call is a launch has
// none (neither cudaGetDevice nor looking up the encoder makes one current).
inline AicfStatus bind_thread() {
    static thread_local int bound = -1;
    int device = 0;
    AICF_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
    if (bound == device) return make_ok();
    AICF_RETURN_IF_CUDA_ERROR(cudaSetDevice(device));
    bound = device;
    return make_ok();
}

inline AicfStatus encode_tensor_map(CUtensorMap* map, const MatrixView& view) {
    using Encode = decltype(&cuTensorMapEncodeTiled);
    AICF_RETURN_IF_NOT_OK(bind_thread());
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    AICF_RETURN_IF_CUDA_ERROR(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
    if (function == nullptr) return make_unsupported("the driver has no cuTensorMapEncodeTiled; it must be of CUDA 12.0 or newer");
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
    if (view.swizzle_bytes == 32) swizzle = CU_TENSOR_MAP_SWIZZLE_32B;
    if (view.swizzle_bytes == 64) swizzle = CU_TENSOR_MAP_SWIZZLE_64B;
    if (view.swizzle_bytes == 128) swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    const cuuint64_t extents[] = {static_cast<cuuint64_t>(view.columns), static_cast<cuuint64_t>(view.rows)};
    const cuuint64_t strides[] = {static_cast<cuuint64_t>(view.row_stride) * static_cast<cuuint64_t>(view.element_bytes)};
    const cuuint32_t box[] = {static_cast<cuuint32_t>(view.box_columns), static_cast<cuuint32_t>(view.box_rows)};
    const cuuint32_t steps[] = {1, 1};
    const CUresult result = reinterpret_cast<Encode>(function)(map, view.type, 2, const_cast<void*>(view.base), extents, strides, box,
                                                               steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                                               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result == CUDA_SUCCESS) return make_ok();
    return make_unsupported("cuTensorMapEncodeTiled failed (%d) for %lld x %lld elements of %d bytes, row stride %lld, box %d x %d",
                            static_cast<int>(result), static_cast<long long>(view.rows), static_cast<long long>(view.columns),
                            view.element_bytes, static_cast<long long>(view.row_stride), view.box_rows, view.box_columns);
}

}  // namespace aicf

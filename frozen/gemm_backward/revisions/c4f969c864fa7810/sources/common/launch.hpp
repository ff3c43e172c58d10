// Launches: shared memory, clusters, programmatic dependence; tensor maps of operands.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>

#include "common/cuda_check.hpp"
#include "common/dtypes.h"
#include "common/status.hpp"
#include "common/tensor_map.hpp"

namespace aicf {

inline constexpr int kHalfBytes = 2;

// Of the largest chip, an H200: where a launcher counts blocks for one, whichever runs them.
inline constexpr int kMultiprocessors = 132;

// Lets a kernel have so much dynamic shared memory.
template <class Kernel>
AicfStatus allow_shared_memory(Kernel kernel, int bytes) {
    // The 48 KiB that a block has without asking hold a kernel's static shared memory, too.
    constexpr int kDefaultBytes = 48 * 1024, kMaxStaticBytes = 16 * 1024;
    if (bytes + kMaxStaticBytes <= kDefaultBytes) return make_ok();
    return AICF_CUDA_STATUS(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

inline AicfStatus read_device_attribute(cudaDeviceAttr attribute, int* value) {
    int device = 0;
    AICF_RETURN_IF_CUDA_ERROR(cudaGetDevice(&device));
    return AICF_CUDA_STATUS(cudaDeviceGetAttribute(value, attribute, device));
}

inline constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Launches blocks along x with as much shared memory as they ask for.
template <class... Parameters, class... Arguments>
AicfStatus launch_kernel(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, cudaStream_t stream,
                         const Arguments&... arguments) {
    AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, shared_bytes));
    kernel<<<grid, static_cast<unsigned>(threads), static_cast<std::size_t>(shared_bytes), stream>>>(arguments...);
    return AICF_CUDA_STATUS(cudaGetLastError());
}

// Launches blocks in clusters of `cluster` along x; from sm_90 on to begin before the kernel ahead of it in the stream has ended
// (programmatic.cuh).
template <class... Parameters, class... Arguments>
AicfStatus launch_early(void (*kernel)(Parameters...), dim3 grid, int threads, int shared_bytes, int cluster, cudaStream_t stream,
                        const Arguments&... arguments) {
    AICF_RETURN_IF_NOT_OK(allow_shared_memory(kernel, shared_bytes));
    int major = 0;
    AICF_RETURN_IF_NOT_OK(read_device_attribute(cudaDevAttrComputeCapabilityMajor, &major));
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    const auto add_attribute = [&]() -> cudaLaunchAttribute& { return attributes[config.numAttrs++]; };
    if (major >= 9) {
        cudaLaunchAttribute& early = add_attribute();
        early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
        early.val.programmaticStreamSerializationAllowed = 1;
    }
    if (cluster > 1) {
        cudaLaunchAttribute& clusters = add_attribute();
        clusters.id = cudaLaunchAttributeClusterDimension;
        clusters.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
    }
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    return AICF_CUDA_STATUS(cudaLaunchKernelEx(&config, kernel, arguments...));
}

inline AicfStatus count_multiprocessors(int* count) { return read_device_attribute(cudaDevAttrMultiProcessorCount, count); }

// Rows of a matrix start on `bytes` boundaries.
inline bool has_aligned_rows(const void* base, std::int64_t row_stride, int element_bytes, int bytes) {
    return reinterpret_cast<std::uintptr_t>(base) % static_cast<unsigned>(bytes) == 0 && row_stride * element_bytes % bytes == 0;
}

// A tensor map of boxes of 64 columns, swizzled as wgmma reads them.
inline AicfStatus encode_half(CUtensorMap* map, std::int32_t dtype, const void* base, std::int64_t rows, std::int64_t columns,
                              std::int64_t stride, int box_rows) {
    constexpr int kRowBytes = 128;
    const auto type = dtype == AICF_DTYPE_BFLOAT16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    return encode_tensor_map(map, {base, rows, columns, stride, type, kHalfBytes, box_rows, kRowBytes / kHalfBytes, kRowBytes});
}

// The same for fp32, boxes of 32 columns. What is read is rounded to TF32 by the copy.
inline AicfStatus encode_tf32(CUtensorMap* map, const void* base, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                              int box_rows, bool is_output) {
    constexpr int kRowBytes = 128;
    const auto type = is_output ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
    return encode_tensor_map(map, {base, rows, columns, stride, type, 4, box_rows, kRowBytes / 4, kRowBytes});
}

}  // namespace aicf

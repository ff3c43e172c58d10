// The exported runtime functions that our own sources call: the driver entry points stand on them.
#pragma once

#include <cstddef>

#include "cuda_abi.hpp"

#define AICF_IMPORT extern "C" int

AICF_IMPORT cudaGetDeviceCount(int* count);
AICF_IMPORT cudaSetDevice(int device);
AICF_IMPORT cudaGetDevice(int* device);
AICF_IMPORT cudaGetDeviceProperties(aicf::emu::abi::DeviceProp* properties, int device);
AICF_IMPORT cudaDeviceGetAttribute(int* value, int attribute, int device);
AICF_IMPORT cudaDeviceGetPCIBusId(char* text, int length, int device);
AICF_IMPORT cudaDeviceSynchronize(void);
AICF_IMPORT cudaDriverGetVersion(int* version);
AICF_IMPORT cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);
AICF_IMPORT cudaMalloc(void** out, size_t size_bytes);
AICF_IMPORT cudaMallocAsync(void** out, size_t size_bytes, void* stream);
AICF_IMPORT cudaMallocManaged(void** out, size_t size_bytes, unsigned flags);
AICF_IMPORT cudaHostAlloc(void** out, size_t size_bytes, unsigned flags);
AICF_IMPORT cudaFree(void* pointer);
AICF_IMPORT cudaFreeAsync(void* pointer, void* stream);
AICF_IMPORT cudaFreeHost(void* pointer);
AICF_IMPORT cudaMemcpy(void* dst, const void* src, size_t count, int kind);
AICF_IMPORT cudaMemcpyAsync(void* dst, const void* src, size_t count, int kind, void* stream);
AICF_IMPORT cudaPointerGetAttributes(aicf::emu::abi::PointerAttributes* attributes, const void* pointer);
AICF_IMPORT cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority);
AICF_IMPORT cudaStreamDestroy(void* stream);
AICF_IMPORT cudaStreamSynchronize(void* stream);
AICF_IMPORT cudaStreamQuery(void* stream);
AICF_IMPORT cudaStreamWaitEvent(void* stream, void* event, unsigned flags);
AICF_IMPORT cudaStreamGetDevice(void* stream, int* device);
AICF_IMPORT cudaStreamGetPriority(void* stream, int* priority);
AICF_IMPORT cudaStreamGetFlags(void* stream, unsigned* flags);
AICF_IMPORT cudaStreamIsCapturing(void* stream, int* status);
AICF_IMPORT cudaStreamGetCaptureInfo(void* stream, int* status, unsigned long long* id, void** graph, void* const** dependencies,
                                     const aicf::emu::abi::GraphEdgeData** edge_data, size_t* count);
AICF_IMPORT cudaEventCreateWithFlags(void** event, unsigned flags);
AICF_IMPORT cudaEventDestroy(void* event);
AICF_IMPORT cudaEventRecord(void* event, void* stream);
AICF_IMPORT cudaEventQuery(void* event);
AICF_IMPORT cudaEventSynchronize(void* event);
AICF_IMPORT cudaEventElapsedTime(float* milliseconds, void* start, void* end);
AICF_IMPORT cudaLaunchHostFunc(void* stream, aicf::emu::abi::HostFn function, void* user_data);
AICF_IMPORT cudaLaunchKernel(const void* kernel, aicf::emu::Dim3 grid, aicf::emu::Dim3 block, void** args, size_t shared_bytes,
                             void* stream);
AICF_IMPORT cudaLaunchCooperativeKernel(const void* kernel, aicf::emu::Dim3 grid, aicf::emu::Dim3 block, void** args, size_t shared_bytes,
                                        void* stream);
AICF_IMPORT cudaLaunchKernelExC(const aicf::emu::abi::LaunchConfig* config, const void* kernel, void** args);
AICF_IMPORT cudaFuncGetAttributes(aicf::emu::abi::FuncAttributes* attributes, const void* function);
AICF_IMPORT cudaFuncSetAttribute(const void* function, int attribute, int value);
AICF_IMPORT cudaFuncGetName(const char** name, const void* function);
AICF_IMPORT cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* size_bytes);
AICF_IMPORT cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block_threads,
                                                                   size_t dynamic_shared_bytes, unsigned flags);
AICF_IMPORT cudaOccupancyMaxActiveClusters(int* num_clusters, const void* function, const aicf::emu::abi::LaunchConfig* config);
AICF_IMPORT cudaOccupancyMaxPotentialClusterSize(int* cluster_blocks, const void* function, const aicf::emu::abi::LaunchConfig* config);
AICF_IMPORT cudaLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*, void**, unsigned);
AICF_IMPORT cudaLibraryLoadFromFile(void** library, const char* path, int*, void**, unsigned, int*, void**, unsigned);
AICF_IMPORT cudaLibraryUnload(void* library);
AICF_IMPORT cudaLibraryGetKernel(void** kernel, void* library, const char* name);
AICF_IMPORT cudaLibraryGetGlobal(void** address, size_t* size_bytes, void* library, const char* name);
AICF_IMPORT cudaDeviceCanAccessPeer(int* can_access, int device, int peer);
AICF_IMPORT cudaDeviceEnablePeerAccess(int peer, unsigned flags);
AICF_IMPORT cudaDeviceDisablePeerAccess(int peer);

#undef AICF_IMPORT

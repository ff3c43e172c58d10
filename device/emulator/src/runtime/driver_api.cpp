#include "driver_api.hpp"
#include "../tensormap/encode.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <vector>

#include "launch.hpp"
#include "memory_ops.hpp"
#include "runtime.hpp"
#include "runtime_api.hpp"

namespace aicf::emu {
namespace {

// The runtime's codes are the driver's for all but a few.
int to_driver(int code) {
    switch (code) {
        case kErrInvalidConfiguration:
        case kErrInvalidPitchValue:
        case kErrInvalidMemcpyDirection: return 1;    // CUDA_ERROR_INVALID_VALUE
        case kErrInvalidDeviceFunction: return 400;   // CUDA_ERROR_INVALID_HANDLE
        case kErrInvalidSymbol: return 500;           // CUDA_ERROR_NOT_FOUND
        default: return code;
    }
}

// Calls a function of the runtime; the driver leaves the runtime's last error alone.
template <class Call>
int call(Call&& function) {
    const int kept = thread_state().last_error;
    const int code = function();
    thread_state().last_error = kept;
    return to_driver(code);
}

constexpr int kMostContexts = 64;
char contexts[kMostContexts];  // a context is the address of its device's element

constexpr int kNoDevice = -1;  // the thread had no context
thread_local int pushed_devices[64];
thread_local int num_pushed = 0;

void* context_of(int device) { return &contexts[device]; }
int device_of(const void* context) {
    const auto index = static_cast<const char*>(context) - contexts;
    return context != nullptr && index >= 0 && index < kMostContexts ? static_cast<int>(index) : -1;
}

constexpr int kInvalidValue = 1, kInvalidContext = 201, kNotFound = 500;

int get_error_string(int code, const char** text) {
    if (text == nullptr) return kInvalidValue;
    *text = error_text(code);
    return kNoError;
}

// CUDA_ERROR_ILLEGAL_ADDRESS from cudaErrorIllegalAddress: the driver's names are the runtime's in capitals, but for those listed.
int get_error_name(int code, const char** text) {
    static constexpr std::pair<int, const char*> kNames[] = {
        {0, "CUDA_SUCCESS"},
        {1, "CUDA_ERROR_INVALID_VALUE"},
        {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {3, "CUDA_ERROR_NOT_INITIALIZED"},
        {4, "CUDA_ERROR_DEINITIALIZED"},
        {100, "CUDA_ERROR_NO_DEVICE"},
        {101, "CUDA_ERROR_INVALID_DEVICE"},
        {200, "CUDA_ERROR_INVALID_IMAGE"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"},
        {209, "CUDA_ERROR_NO_BINARY_FOR_GPU"},
        {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"},
        {218, "CUDA_ERROR_INVALID_PTX"},
        {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
        {301, "CUDA_ERROR_FILE_NOT_FOUND"},
        {304, "CUDA_ERROR_OPERATING_SYSTEM"},
        {400, "CUDA_ERROR_INVALID_HANDLE"},
        {401, "CUDA_ERROR_ILLEGAL_STATE"},
        {500, "CUDA_ERROR_NOT_FOUND"},
        {600, "CUDA_ERROR_NOT_READY"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
        {702, "CUDA_ERROR_LAUNCH_TIMEOUT"},
        {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"},
        {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED"},
        {710, "CUDA_ERROR_ASSERT"},
        {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED"},
        {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED"},
        {714, "CUDA_ERROR_HARDWARE_STACK_ERROR"},
        {715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"},
        {716, "CUDA_ERROR_MISALIGNED_ADDRESS"},
        {717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"},
        {718, "CUDA_ERROR_INVALID_PC"},
        {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE"},
        {800, "CUDA_ERROR_NOT_PERMITTED"},
        {801, "CUDA_ERROR_NOT_SUPPORTED"},
        {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
        {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
        {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"},
        {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
        {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"},
        {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
        {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"},
        {907, "CUDA_ERROR_CAPTURED_EVENT"},
        {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"},
        {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"},
        {912, "CUDA_ERROR_INVALID_CLUSTER_SIZE"},
        {999, "CUDA_ERROR_UNKNOWN"},
    };
    if (text == nullptr) return kInvalidValue;
    const auto* row = std::find_if(std::begin(kNames), std::end(kNames), [code](const auto& each) { return each.first == code; });
    *text = row == std::end(kNames) ? nullptr : row->second;
    return row == std::end(kNames) ? kInvalidValue : kNoError;
}

// Devices and contexts: a device's primary context is always there.

int init(unsigned flags) { return flags == 0 ? kNoError : kInvalidValue; }
int driver_version(int* version) {
    return call([&] { return cudaDriverGetVersion(version); });
}
int device_count(int* count) {
    return call([&] { return cudaGetDeviceCount(count); });
}
int check_device(int device) {
    int count = 0;
    cudaGetDeviceCount(&count);
    return device >= 0 && device < count ? kNoError : kErrInvalidDevice;
}
int device_get(int* device, int ordinal) {
    if (device == nullptr) return kInvalidValue;
    *device = ordinal;
    return check_device(ordinal);
}
int device_name(char* text, int length, int device) {
    abi::DeviceProp properties;
    if (const int code = call([&] { return cudaGetDeviceProperties(&properties, device); }); code != kNoError) return code;
    if (text == nullptr || length <= 0) return kInvalidValue;
    std::strncpy(text, properties.name, static_cast<size_t>(length));
    text[length - 1] = '\0';
    return kNoError;
}
int device_uuid(char* uuid, int device) {
    abi::DeviceProp properties;
    if (const int code = call([&] { return cudaGetDeviceProperties(&properties, device); }); code != kNoError) return code;
    std::memcpy(uuid, properties.uuid, sizeof properties.uuid);
    return kNoError;
}
int device_total_mem(size_t* bytes, int device) {
    abi::DeviceProp properties;
    if (const int code = call([&] { return cudaGetDeviceProperties(&properties, device); }); code != kNoError) return code;
    *bytes = properties.totalGlobalMem;
    return kNoError;
}
int device_attribute(int* value, int attribute, int device) {
    // Attributes that the runtime API does not have, of features that are not here either: virtual memory management, handles of its
    // memory for other processes, compressible memory, memory shared over a fabric, multicast.
    constexpr int kNotHere[] = {102, 103, 104, 105, 107, 110, 128, 132, 141, 145};
    if (value != nullptr && std::find(std::begin(kNotHere), std::end(kNotHere), attribute) != std::end(kNotHere)) {
        *value = 0;
        return check_device(device);
    }
    return call([&] { return cudaDeviceGetAttribute(value, attribute, device); });
}
int primary_retain(void** context, int device) {
    if (context == nullptr) return kInvalidValue;
    if (const int code = check_device(device); code != kNoError) return code;
    *context = context_of(device);
    return kNoError;
}
int primary_release(int device) { return check_device(device); }
int primary_state(int device, unsigned* flags, int* active) {
    if (flags != nullptr) *flags = 0;
    if (active != nullptr) *active = 1;
    return check_device(device);
}
int current_device() {
    int device = 0;
    cudaGetDevice(&device);
    return device;
}
void* current_context() { return thread_state().has_context ? context_of(current_device()) : nullptr; }
int context_get(void** context) {
    if (context == nullptr) return kInvalidValue;
    *context = current_context();
    return kNoError;
}
int context_set(void* context) {
    if (context == nullptr) {
        thread_state().has_context = false;
        return kNoError;
    }
    const int device = device_of(context);
    return device < 0 ? kInvalidContext : call([&] { return cudaSetDevice(device); });
}
int context_push(void* context) {
    if (num_pushed == static_cast<int>(std::size(pushed_devices))) return kInvalidValue;
    const int before = thread_state().has_context ? current_device() : kNoDevice;
    if (const int code = context == nullptr ? kInvalidContext : context_set(context); code != kNoError) return code;
    pushed_devices[num_pushed++] = before;
    return kNoError;
}
int context_pop(void** context) {
    if (num_pushed == 0) return kInvalidContext;
    if (context != nullptr) *context = current_context();
    const int device = pushed_devices[--num_pushed];
    return context_set(device == kNoDevice ? nullptr : context_of(device));
}
int context_device(int* device) {
    if (device == nullptr) return kInvalidValue;
    if (!thread_state().has_context) return kInvalidContext;
    *device = current_device();
    return kNoError;
}
int context_synchronize() {
    return call([] { return cudaDeviceSynchronize(); });
}
int context_version(void*, unsigned* version) {
    *version = 3020;
    return kNoError;
}

// Memory. Device pointers are 64-bit integers in the driver API.

void* pointer(uint64_t address) { return reinterpret_cast<void*>(address); }

int mem_info(size_t* free_bytes, size_t* total_bytes) {
    return call([&] { return cudaMemGetInfo(free_bytes, total_bytes); });
}
int mem_alloc(uint64_t* address, size_t bytes) {
    return bytes == 0 ? kInvalidValue : call([&] { return cudaMalloc(reinterpret_cast<void**>(address), bytes); });
}
int mem_alloc_managed(uint64_t* address, size_t bytes, unsigned flags) {
    return call([&] { return cudaMallocManaged(reinterpret_cast<void**>(address), bytes, flags); });
}
int mem_alloc_async(uint64_t* address, size_t bytes, void* stream) {
    return call([&] { return cudaMallocAsync(reinterpret_cast<void**>(address), bytes, stream); });
}
int mem_host_alloc(void** address, size_t bytes, unsigned flags) {
    return call([&] { return cudaHostAlloc(address, bytes, flags); });
}
int mem_free(uint64_t address) {
    return call([&] { return cudaFree(pointer(address)); });
}
int mem_free_async(uint64_t address, void* stream) {
    return call([&] { return cudaFreeAsync(pointer(address), stream); });
}
int mem_free_host(void* address) {
    return call([&] { return cudaFreeHost(address); });
}
int copy(uint64_t dst, uint64_t src, size_t bytes, int kind) {
    return call([&] { return cudaMemcpy(pointer(dst), pointer(src), bytes, kind); });
}
int copy_async(uint64_t dst, uint64_t src, size_t bytes, int kind, void* stream) {
    return call([&] { return cudaMemcpyAsync(pointer(dst), pointer(src), bytes, kind, stream); });
}
int copy_any(uint64_t dst, uint64_t src, size_t bytes) { return copy(dst, src, bytes, abi::kCopyDefault); }
int copy_any_async(uint64_t dst, uint64_t src, size_t bytes, void* stream) {
    return copy_async(dst, src, bytes, abi::kCopyDefault, stream);
}
int copy_to_device(uint64_t dst, const void* src, size_t bytes) { return copy(dst, to_address(src), bytes, abi::kHostToDevice); }
int copy_to_host(void* dst, uint64_t src, size_t bytes) { return copy(to_address(dst), src, bytes, abi::kDeviceToHost); }
int copy_on_device(uint64_t dst, uint64_t src, size_t bytes) { return copy(dst, src, bytes, abi::kDeviceToDevice); }
int copy_to_device_async(uint64_t dst, const void* src, size_t bytes, void* stream) {
    return copy_async(dst, to_address(src), bytes, abi::kHostToDevice, stream);
}
int copy_to_host_async(void* dst, uint64_t src, size_t bytes, void* stream) {
    return copy_async(to_address(dst), src, bytes, abi::kDeviceToHost, stream);
}
int copy_on_device_async(uint64_t dst, uint64_t src, size_t bytes, void* stream) {
    return copy_async(dst, src, bytes, abi::kDeviceToDevice, stream);
}

int fill(uint64_t dst, uint32_t value, uint32_t element_bytes, size_t count, void* stream, bool wait) {
    const int code = call([&] { return fill_elements(pointer(dst), value, element_bytes, count, stream); });
    return code == kNoError && wait ? call([&] { return cudaStreamSynchronize(stream); }) : code;
}
int fill8(uint64_t dst, unsigned char value, size_t count) { return fill(dst, value, 1, count, nullptr, true); }
int fill16(uint64_t dst, unsigned short value, size_t count) { return fill(dst, value, 2, count, nullptr, true); }
int fill32(uint64_t dst, unsigned value, size_t count) { return fill(dst, value, 4, count, nullptr, true); }
int fill8_async(uint64_t dst, unsigned char value, size_t count, void* stream) { return fill(dst, value, 1, count, stream, false); }
int fill16_async(uint64_t dst, unsigned short value, size_t count, void* stream) { return fill(dst, value, 2, count, stream, false); }
int fill32_async(uint64_t dst, unsigned value, size_t count, void* stream) { return fill(dst, value, 4, count, stream, false); }

int pointer_attribute(void* out, int attribute, uint64_t address) {
    constexpr int kContext = 1, kMemoryTypeOf = 2, kDevicePointer = 3, kHostPointer = 4, kIsManaged = 8, kDeviceOrdinal = 9;
    abi::PointerAttributes found;
    if (const int code = call([&] { return cudaPointerGetAttributes(&found, pointer(address)); }); code != kNoError) return code;
    if (out == nullptr || found.type == abi::kMemoryUnregistered) return kInvalidValue;
    switch (attribute) {
        case kContext: *static_cast<void**>(out) = context_of(std::max(found.device, 0)); return kNoError;
        case kMemoryTypeOf: *static_cast<unsigned*>(out) = found.type == abi::kMemoryHost ? 1 : 2; return kNoError;
        case kDevicePointer: *static_cast<void**>(out) = found.devicePointer; return kNoError;
        case kHostPointer: *static_cast<void**>(out) = found.hostPointer; return found.hostPointer == nullptr ? kInvalidValue : kNoError;
        case kIsManaged: *static_cast<unsigned*>(out) = found.type == abi::kMemoryManaged ? 1 : 0; return kNoError;
        case kDeviceOrdinal: *static_cast<int*>(out) = found.device; return kNoError;
        default: return kErrNotSupported;
    }
}

// Streams and events.

int stream_create(void** stream, unsigned flags) {
    return call([&] { return cudaStreamCreateWithPriority(stream, flags, 0); });
}
int stream_create_priority(void** stream, unsigned flags, int priority) {
    return call([&] { return cudaStreamCreateWithPriority(stream, flags, priority); });
}
int stream_destroy(void* stream) {
    return call([&] { return cudaStreamDestroy(stream); });
}
int stream_synchronize(void* stream) {
    return call([&] { return cudaStreamSynchronize(stream); });
}
int stream_query(void* stream) {
    return call([&] { return cudaStreamQuery(stream); });
}
int stream_wait(void* stream, void* event, unsigned flags) {
    return call([&] { return cudaStreamWaitEvent(stream, event, flags); });
}
int stream_context(void* stream, void** context) {
    int device = 0;
    if (const int code = call([&] { return cudaStreamGetDevice(stream, &device); }); code != kNoError) return code;
    *context = context_of(device);
    return kNoError;
}
int stream_device(void* stream, int* device) {
    return call([&] { return cudaStreamGetDevice(stream, device); });
}
int stream_priority(void* stream, int* priority) {
    return call([&] { return cudaStreamGetPriority(stream, priority); });
}
int stream_flags(void* stream, unsigned* flags) {
    return call([&] { return cudaStreamGetFlags(stream, flags); });
}
int stream_capturing(void* stream, int* status) {
    return call([&] { return cudaStreamIsCapturing(stream, status); });
}
int stream_capture_info(void* stream, int* status, unsigned long long* id, void** graph, void* const** dependencies,
                        const abi::GraphEdgeData** data, size_t* count) {
    return call([&] { return cudaStreamGetCaptureInfo(stream, status, id, graph, dependencies, data, count); });
}
int launch_host(void* stream, abi::HostFn function, void* user_data) {
    return call([&] { return cudaLaunchHostFunc(stream, function, user_data); });
}
int event_create(void** event, unsigned flags) {
    return call([&] { return cudaEventCreateWithFlags(event, flags); });
}
int event_destroy(void* event) {
    return call([&] { return cudaEventDestroy(event); });
}
int event_record(void* event, void* stream) {
    return call([&] { return cudaEventRecord(event, stream); });
}
int event_query(void* event) {
    return call([&] { return cudaEventQuery(event); });
}
int event_synchronize(void* event) {
    return call([&] { return cudaEventSynchronize(event); });
}
int event_elapsed(float* milliseconds, void* start, void* end) {
    return call([&] { return cudaEventElapsedTime(milliseconds, start, end); });
}

// Kernels: a CUkernel, a CUfunction and a cudaKernel_t are one handle here; a module is a library.

int kernel_function(void** function, void* kernel) {
    if (function == nullptr) return kInvalidValue;
    *function = kernel;
    return kNoError;
}
// Replaces arguments given as one buffer by pointers into it.
int unpack(void* function, void** extra, std::vector<void*>& kept, void**& args) {
    if (extra == nullptr) return kNoError;
    if (args != nullptr) return kInvalidValue;
    return call([&] {
        return api("cuLaunchKernel", [&](Runtime& runtime) {
            kept = unpack_arguments(runtime.registry->load(runtime, *require_kernel(runtime, function)), extra);
            args = kept.data();
        });
    });
}
int launch_kernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                  unsigned shared_bytes, void* stream, void** args, void** extra) {
    std::vector<void*> kept;
    if (const int code = unpack(function, extra, kept, args); code != kNoError) return code;
    return call(
        [&] { return cudaLaunchKernel(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, args, shared_bytes, stream); });
}
int launch_cooperative(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                       unsigned block_z, unsigned shared_bytes, void* stream, void** args) {
    return call([&] {
        return cudaLaunchCooperativeKernel(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, args, shared_bytes, stream);
    });
}

struct DriverLaunchConfig {  // CUlaunchConfig
    Dim3 grid, block;
    uint32_t shared_bytes;
    void* stream;
    abi::LaunchAttribute* attributes;
    uint32_t num_attributes;
};

abi::LaunchConfig to_runtime(const DriverLaunchConfig& config) {
    return {config.grid, config.block, config.shared_bytes, config.stream, config.attributes, config.num_attributes};
}
int launch_kernel_ex(const DriverLaunchConfig* config, void* function, void** args, void** extra) {
    if (config == nullptr) return kInvalidValue;
    std::vector<void*> kept;
    if (const int code = unpack(function, extra, kept, args); code != kNoError) return code;
    const abi::LaunchConfig wanted = to_runtime(*config);
    return call([&] { return cudaLaunchKernelExC(&wanted, function, args); });
}
int function_get_attribute(int* value, int attribute, void* function) {
    abi::FuncAttributes all;
    if (const int code = call([&] { return cudaFuncGetAttributes(&all, function); }); code != kNoError) return code;
    const int values[] = {all.maxThreadsPerBlock,
                          static_cast<int>(all.sharedSizeBytes),
                          static_cast<int>(all.constSizeBytes),
                          static_cast<int>(all.localSizeBytes),
                          all.numRegs,
                          all.ptxVersion,
                          all.binaryVersion,
                          all.cacheModeCA,
                          all.maxDynamicSharedSizeBytes,
                          all.preferredShmemCarveout,
                          all.clusterDimMustBeSet,
                          all.requiredClusterWidth,
                          all.requiredClusterHeight,
                          all.requiredClusterDepth,
                          all.nonPortableClusterSizeAllowed,
                          all.clusterSchedulingPolicyPreference};
    if (value == nullptr || attribute < 0 || attribute >= static_cast<int>(std::size(values))) return kInvalidValue;
    *value = values[attribute];
    return kNoError;
}
int kernel_get_attribute(int* value, int attribute, void* kernel, int) { return function_get_attribute(value, attribute, kernel); }
int function_set_attribute(void* function, int attribute, int value) {
    return call([&] { return cudaFuncSetAttribute(function, attribute, value); });
}
int kernel_set_attribute(int attribute, int value, void* kernel, int) { return function_set_attribute(kernel, attribute, value); }
int function_name(const char** name, void* function) {
    return call([&] { return cudaFuncGetName(name, function); });
}
int function_param_info(void* function, size_t index, size_t* offset, size_t* bytes) {
    return call([&] { return cudaFuncGetParamInfo(function, index, offset, bytes); });
}
int function_cache_config(void*, int config) { return config >= 0 && config <= 3 ? kNoError : kInvalidValue; }
int occupancy_flags(int* blocks, void* function, int block_threads, size_t shared_bytes, unsigned flags) {
    return call(
        [&] { return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_threads, shared_bytes, flags); });
}
int occupancy(int* blocks, void* function, int block_threads, size_t shared_bytes) {
    return occupancy_flags(blocks, function, block_threads, shared_bytes, 0);
}
int occupancy_clusters(int* clusters, void* function, const DriverLaunchConfig* config) {
    if (config == nullptr) return kInvalidValue;
    const abi::LaunchConfig wanted = to_runtime(*config);
    return call([&] { return cudaOccupancyMaxActiveClusters(clusters, function, &wanted); });
}
int occupancy_cluster_size(int* blocks, void* function, const DriverLaunchConfig* config) {
    if (config == nullptr) return kInvalidValue;
    const abi::LaunchConfig wanted = to_runtime(*config);
    return call([&] { return cudaOccupancyMaxPotentialClusterSize(blocks, function, &wanted); });
}

int library_load(void** library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
    return call([&] { return cudaLibraryLoadData(library, code, nullptr, nullptr, 0, nullptr, nullptr, 0); });
}
int library_load_file(void** library, const char* path, int*, void**, unsigned, int*, void**, unsigned) {
    return call([&] { return cudaLibraryLoadFromFile(library, path, nullptr, nullptr, 0, nullptr, nullptr, 0); });
}
int library_unload(void* library) {
    return call([&] { return cudaLibraryUnload(library); });
}
int library_kernel(void** kernel, void* library, const char* name) {
    return call([&] { return cudaLibraryGetKernel(kernel, library, name); });
}
int library_global(void** address, size_t* bytes, void* library, const char* name) {
    return call([&] { return cudaLibraryGetGlobal(address, bytes, library, name); });
}
int library_module(void** module, void* library) { return kernel_function(module, library); }
int module_load(void** module, const void* code) { return library_load(module, code, nullptr, nullptr, 0, nullptr, nullptr, 0); }
int module_load_ex(void** module, const void* code, unsigned, int*, void**) { return module_load(module, code); }
int module_load_file(void** module, const char* path) { return library_load_file(module, path, nullptr, nullptr, 0, nullptr, nullptr, 0); }
int module_global(uint64_t* address, size_t* bytes, void* module, const char* name) {
    return library_global(reinterpret_cast<void**>(address), bytes, module, name);
}

int can_access_peer(int* can_access, int device, int peer) {
    return call([&] { return cudaDeviceCanAccessPeer(can_access, device, peer); });
}
int enable_peer(void* context, unsigned flags) {
    const int device = device_of(context);
    return device < 0 ? kInvalidContext : call([&] { return cudaDeviceEnablePeerAccess(device, flags); });
}
int disable_peer(void* context) {
    const int device = device_of(context);
    return device < 0 ? kInvalidContext : call([&] { return cudaDeviceDisablePeerAccess(device); });
}

int get_proc_address(const char* name, void** function, int, uint64_t, int* status) {
    if (name == nullptr || function == nullptr) return kInvalidValue;
    *function = find_driver_function(name);
    constexpr int kFound = 0, kSymbolNotFound = 1;
    if (status != nullptr) *status = *function == nullptr ? kSymbolNotFound : kFound;
    return *function == nullptr ? kNotFound : kNoError;
}

// A driver function that fails on a thread without a current context.
template <auto kFunction>
struct WithContext;
template <class... Arguments, int (*kFunction)(Arguments...)>
struct WithContext<kFunction> {
    static int run(Arguments... arguments) { return thread_state().has_context ? kFunction(arguments...) : kInvalidContext; }
};
template <auto kFunction>
constexpr auto* with_context = &WithContext<kFunction>::run;

struct DriverFunction {
    std::string_view name;
    void* function;
};

template <class Function>
DriverFunction row(std::string_view name, Function* function) {
    return {name, reinterpret_cast<void*>(function)};
}

const DriverFunction kFunctions[] = {
    row("cuInit", init),
    row("cuDriverGetVersion", driver_version),
    row("cuGetErrorString", get_error_string),
    row("cuGetErrorName", get_error_name),
    row("cuGetProcAddress", get_proc_address),
    row("cuDeviceGet", device_get),
    row("cuDeviceGetCount", device_count),
    row("cuDeviceGetName", device_name),
    row("cuDeviceGetUuid", device_uuid),
    row("cuDeviceTotalMem", device_total_mem),
    row("cuDeviceGetAttribute", device_attribute),
    row("cuDeviceCanAccessPeer", can_access_peer),
    row("cuDevicePrimaryCtxRetain", primary_retain),
    row("cuDevicePrimaryCtxRelease", primary_release),
    row("cuDevicePrimaryCtxGetState", primary_state),
    row("cuCtxGetCurrent", context_get),
    row("cuCtxSetCurrent", context_set),
    row("cuCtxPushCurrent", context_push),
    row("cuCtxPopCurrent", context_pop),
    row("cuCtxGetDevice", context_device),
    row("cuCtxSynchronize", context_synchronize),
    row("cuCtxGetApiVersion", context_version),
    row("cuCtxEnablePeerAccess", enable_peer),
    row("cuCtxDisablePeerAccess", disable_peer),
    row("cuMemGetInfo", mem_info),
    row("cuMemAlloc", mem_alloc),
    row("cuMemAllocManaged", mem_alloc_managed),
    row("cuMemAllocAsync", mem_alloc_async),
    row("cuMemHostAlloc", mem_host_alloc),
    row("cuMemFree", mem_free),
    row("cuMemFreeAsync", mem_free_async),
    row("cuMemFreeHost", mem_free_host),
    row("cuMemcpy", copy_any),
    row("cuMemcpyAsync", copy_any_async),
    row("cuMemcpyHtoD", copy_to_device),
    row("cuMemcpyDtoH", copy_to_host),
    row("cuMemcpyDtoD", copy_on_device),
    row("cuMemcpyHtoDAsync", copy_to_device_async),
    row("cuMemcpyDtoHAsync", copy_to_host_async),
    row("cuMemcpyDtoDAsync", copy_on_device_async),
    row("cuMemsetD8", fill8),
    row("cuMemsetD16", fill16),
    row("cuMemsetD32", fill32),
    row("cuMemsetD8Async", fill8_async),
    row("cuMemsetD16Async", fill16_async),
    row("cuMemsetD32Async", fill32_async),
    row("cuPointerGetAttribute", pointer_attribute),
    row("cuStreamCreate", stream_create),
    row("cuStreamCreateWithPriority", stream_create_priority),
    row("cuStreamDestroy", stream_destroy),
    row("cuStreamSynchronize", stream_synchronize),
    row("cuStreamQuery", stream_query),
    row("cuStreamWaitEvent", stream_wait),
    row("cuStreamGetCtx", stream_context),
    row("cuStreamGetDevice", stream_device),
    row("cuStreamGetPriority", stream_priority),
    row("cuStreamGetFlags", stream_flags),
    row("cuStreamIsCapturing", stream_capturing),
    row("cuStreamGetCaptureInfo", stream_capture_info),
    row("cuLaunchHostFunc", launch_host),
    row("cuEventCreate", event_create),
    row("cuEventDestroy", event_destroy),
    row("cuEventRecord", event_record),
    row("cuEventQuery", event_query),
    row("cuEventSynchronize", event_synchronize),
    row("cuEventElapsedTime", event_elapsed),
    row("cuKernelGetFunction", kernel_function),
    row("cuLaunchKernel", launch_kernel),
    row("cuLaunchCooperativeKernel", launch_cooperative),
    row("cuLaunchKernelEx", launch_kernel_ex),
    row("cuFuncGetAttribute", function_get_attribute),
    row("cuFuncSetAttribute", function_set_attribute),
    row("cuFuncGetName", function_name),
    row("cuKernelGetName", function_name),
    row("cuFuncGetParamInfo", function_param_info),
    row("cuKernelGetParamInfo", function_param_info),
    row("cuFuncSetCacheConfig", function_cache_config),
    row("cuKernelGetAttribute", kernel_get_attribute),
    row("cuKernelSetAttribute", kernel_set_attribute),
    row("cuOccupancyMaxActiveBlocksPerMultiprocessor", occupancy),
    row("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", occupancy_flags),
    row("cuOccupancyMaxActiveClusters", occupancy_clusters),
    row("cuOccupancyMaxPotentialClusterSize", occupancy_cluster_size),
    row("cuLibraryLoadData", library_load),
    row("cuLibraryLoadFromFile", library_load_file),
    row("cuLibraryUnload", library_unload),
    row("cuLibraryGetKernel", library_kernel),
    row("cuLibraryGetGlobal", library_global),
    row("cuLibraryGetModule", library_module),
    row("cuModuleLoad", module_load_file),
    row("cuModuleLoadData", module_load),
    row("cuModuleLoadDataEx", module_load_ex),
    row("cuModuleLoadFatBinary", module_load),
    row("cuModuleUnload", library_unload),
    row("cuModuleGetFunction", library_kernel),
    row("cuModuleGetGlobal", module_global),
    row("cuTensorMapEncodeTiled", with_context<encode_tiled>),
    row("cuTensorMapEncodeIm2col", with_context<encode_im2col>),
    row("cuTensorMapReplaceAddress", replace_address),
};

std::string_view without_suffixes(std::string_view name) {
    for (const std::string_view suffix : {"_ptsz", "_ptds", "_v2", "_v3"})
        if (name.size() > suffix.size() && name.substr(name.size() - suffix.size()) == suffix) name.remove_suffix(suffix.size());
    return name;
}

}  // namespace

void* find_driver_function(std::string_view name) {
    const std::string_view plain = without_suffixes(name);
    const auto* found =
        std::find_if(std::begin(kFunctions), std::end(kFunctions), [&](const DriverFunction& r) { return r.name == plain; });
    return found == std::end(kFunctions) ? nullptr : found->function;
}

}  // namespace aicf::emu

AICF_EXPORT void* aicfEmulatorDriverFunction(const char* name) { return name != nullptr ? aicf::emu::find_driver_function(name) : nullptr; }

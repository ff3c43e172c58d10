// Registration by the start-up code that nvcc writes, kernel launches, function attributes, occupancy, libraries.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>

#include "fatbin.hpp"
#include "launch.hpp"
#include "queue.hpp"

using namespace aicf::emu;

namespace {

struct CallConfiguration {
    Dim3 grid, block;
    size_t shared_bytes;
    void* stream;
};

std::vector<CallConfiguration>& configurations() {
    thread_local std::vector<CallConfiguration> stack;
    return stack;
}

int launch(const char* function, const void* kernel, Dim3 grid, Dim3 block, void** args, size_t shared_bytes, void* stream, bool per_thread,
           bool cooperative, const abi::LaunchAttribute* attributes = nullptr, size_t num_attributes = 0) {
    return api(function, [&](Runtime& runtime) {
        Stream& target = find_stream(runtime, stream, per_thread);
        const auto found = runtime.registry->find_kernel(kernel);
        require(found != nullptr, kErrInvalidResourceHandle, "the function is no registered kernel");
        if (target.device != thread_state().device) {
            const std::string text = "kernel " + found->name + " is launched in a stream of device " + std::to_string(target.device) +
                                     " while device " + std::to_string(thread_state().device) + " is current";
            runtime.add_report("wrong_device", Severity::kError, text + "\n");
            throw Failure{kErrInvalidResourceHandle, text};
        }
        try {
            KernelOp operation = make_launch(runtime, found, grid, block, args, shared_bytes);
            operation.cooperative = cooperative;
            std::vector<std::shared_ptr<Event>> events;
            for (size_t i = 0; i < num_attributes; ++i) {
                const int id = attributes[i].id;
                if (id == abi::kAttributeProgrammaticEvent || id == abi::kAttributeLaunchCompletionEvent)
                    events.push_back(find_event(runtime, attributes[i].val.programmaticEvent.event));
                else
                    apply_attribute(operation, id, attributes[i].val);
            }
            check_launch(runtime, operation);
            submit(runtime, target, std::move(operation));
            // They come when all blocks have begun, or triggered, at the earliest: that they have ended is one of the allowed moments.
            for (const auto& event : events) {
                if (target.capture != nullptr)
                    capture_event_record(runtime, target, event, false);
                else
                    enqueue(runtime, target, RecordOp{event});
            }
        } catch (const Failure&) {
            if (target.capture != nullptr) invalidate(*target.capture);
            throw;
        }
    });
}

int launch_config(const abi::LaunchConfig* config, const void* kernel, void** args, bool per_thread) {
    if (config == nullptr) return record_error(kErrInvalidValue, "cudaLaunchKernelExC: the configuration is null");
    return launch("cudaLaunchKernelExC", kernel, config->gridDim, config->blockDim, args, config->dynamicSmemBytes, config->stream,
                  per_thread, false, config->attrs, config->numAttrs);
}

void set_attribute(const Target& target, Kernel& kernel, int attribute, int value) {
    switch (attribute) {
        case abi::kFuncMaxDynamicSharedMemorySize: {
            const int most = target.shared_per_block_optin_bytes - static_cast<int>(kernel.info->static_shared_bytes);
            if (value < 0 || value > most)
                throw Failure{kErrInvalidValue, std::to_string(value) + " bytes of dynamic shared memory for kernel " + kernel.name +
                                                    "; from 0 to " + std::to_string(most) + " are possible beside its " +
                                                    std::to_string(kernel.info->static_shared_bytes) + " static bytes"};
            kernel.max_dynamic_shared_bytes = value;
            break;
        }
        case abi::kFuncPreferredSharedMemoryCarveout:
            require(value >= -1 && value <= 100, kErrInvalidValue, "the carve-out is a percentage, or -1");
            kernel.carveout = value;
            break;
        case abi::kFuncClusterDimMustBeSet: kernel.cluster_must_be_set = value != 0; break;
        case abi::kFuncRequiredClusterWidth: kernel.required_cluster.x = static_cast<uint32_t>(std::max(value, 0)); break;
        case abi::kFuncRequiredClusterHeight: kernel.required_cluster.y = static_cast<uint32_t>(std::max(value, 0)); break;
        case abi::kFuncRequiredClusterDepth: kernel.required_cluster.z = static_cast<uint32_t>(std::max(value, 0)); break;
        case abi::kFuncNonPortableClusterSizeAllowed: kernel.non_portable_cluster = value != 0; break;
        case abi::kFuncClusterSchedulingPolicyPreference: kernel.cluster_policy = value; break;
        default: throw Failure{kErrInvalidValue, "function attribute " + std::to_string(attribute) + " cannot be set"};
    }
}

void fill_attributes(Runtime& runtime, const Kernel& kernel, abi::FuncAttributes* out) {
    const KernelInfo& info = *kernel.info;
    const Dim3 cluster = info.required_cluster.x != 0 ? info.required_cluster : kernel.required_cluster;
    const auto limit = [](const Dim3& dim) { return static_cast<int>(uint64_t{dim.x} * dim.y * dim.z); };
    std::memset(out, 0, sizeof *out);
    out->sharedSizeBytes = info.static_shared_bytes;
    out->localSizeBytes = info.local_bytes;
    out->maxThreadsPerBlock = info.required_threads.x != 0 ? limit(info.required_threads)
                              : info.max_threads.x != 0    ? limit(info.max_threads)
                                                           : 1024;
    out->numRegs = kernel_registers(kernel);
    out->maxThreadsPerBlock = std::min(out->maxThreadsPerBlock, runtime.target->registers_per_sm / std::max(out->numRegs, 1) / 32 * 32);
    out->ptxVersion = kernel.module->ptx_version;
    out->binaryVersion = kernel.module->binary_version;
    out->maxDynamicSharedSizeBytes = kernel.max_dynamic_shared_bytes >= 0
                                         ? kernel.max_dynamic_shared_bytes
                                         : runtime.target->shared_per_block_bytes - static_cast<int>(info.static_shared_bytes);
    out->preferredShmemCarveout = kernel.carveout;
    out->clusterDimMustBeSet = kernel.cluster_must_be_set || info.required_cluster.x != 0 ? 1 : 0;
    out->requiredClusterWidth = static_cast<int>(cluster.x);
    out->requiredClusterHeight = static_cast<int>(cluster.y);
    out->requiredClusterDepth = static_cast<int>(cluster.z);
    out->clusterSchedulingPolicyPreference = kernel.cluster_policy;
    out->nonPortableClusterSizeAllowed = kernel.non_portable_cluster ? 1 : 0;
}

// Loads the module of a kernel, so that `kernel->info` is there.
std::shared_ptr<Kernel> loaded_kernel(Runtime& runtime, const void* handle) {
    auto kernel = require_kernel(runtime, handle);
    runtime.registry->load(runtime, *kernel);
    return kernel;
}

int occupancy(const char* function, int* blocks, const void* kernel, int block_threads, size_t dynamic_shared_bytes) {
    return api(function, [&](Runtime& runtime) {
        require(blocks != nullptr, kErrInvalidValue, "the result pointer is null");
        require(block_threads > 0, kErrInvalidValue, "the block size is not positive");
        const auto loaded = loaded_kernel(runtime, kernel);
        const bool fits = block_threads <= 1024 && loaded->info->static_shared_bytes + dynamic_shared_bytes <=
                                                       static_cast<size_t>(runtime.target->shared_per_block_optin_bytes);
        *blocks = fits ? resident_blocks(*runtime.target, *loaded, block_threads, dynamic_shared_bytes) : 0;
    });
}

Dim3 cluster_of(const abi::LaunchConfig& config) {
    for (uint32_t i = 0; i < config.numAttrs; ++i)
        if (config.attrs[i].id == abi::kAttributeClusterDimension)
            return {config.attrs[i].val.clusterDim.x, config.attrs[i].val.clusterDim.y, config.attrs[i].val.clusterDim.z};
    return {1, 1, 1};
}

// The bytes of a library's image: fat binaries know their length, PTX text ends with a NUL.
std::string copy_image(const void* code) {
    uint32_t magic;
    std::memcpy(&magic, code, sizeof magic);
    if (magic == kFatbinWrapperMagic) {
        const void* data;
        std::memcpy(&data, static_cast<const std::byte*>(code) + 8, sizeof data);
        return copy_image(data);
    }
    if (magic != kFatbinMagic) return static_cast<const char*>(code);
    uint16_t header_bytes;
    uint64_t payload_bytes;
    std::memcpy(&header_bytes, static_cast<const std::byte*>(code) + 6, sizeof header_bytes);
    std::memcpy(&payload_bytes, static_cast<const std::byte*>(code) + 8, sizeof payload_bytes);
    return std::string(static_cast<const char*>(code), header_bytes + payload_bytes);
}

void load_library(Runtime& runtime, void** library, std::string image) {
    CodeModule* module = runtime.registry->add_library(std::move(image));
    try {
        for (const std::string& name : runtime.registry->load(runtime, *module).kernel_names())
            runtime.registry->add_kernel(module, nullptr, name);
    } catch (...) {
        runtime.registry->remove_module(module);
        throw;
    }
    *library = module;
}

CodeModule& find_library(Runtime& runtime, void* library) {
    CodeModule* module = runtime.registry->find_module(library);
    require(module != nullptr && module->is_library, kErrInvalidResourceHandle, "the handle is no library (or it was unloaded)");
    return *module;
}

}  // namespace

// Start-up code.

AICF_EXPORT void** __cudaRegisterFatBinary(void* image) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    return reinterpret_cast<void**>(runtime.registry->add_module(image, image));
}

AICF_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}

AICF_EXPORT void __cudaUnregisterFatBinary(void** handle) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    if (CodeModule* module = runtime.registry->find_module(handle)) runtime.registry->remove_module(module);
}

AICF_EXPORT void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* device_name, int, void*, void*, void*,
                                        void*, int*) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    if (CodeModule* module = runtime.registry->find_module(handle)) runtime.registry->add_kernel(module, host_function, device_name);
}

AICF_EXPORT void __cudaRegisterVar(void** handle, char* host_variable, char*, const char* device_name, int, size_t size_bytes, int, int) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    if (CodeModule* module = runtime.registry->find_module(handle))
        runtime.registry->add_variable(module, host_variable, device_name, size_bytes, nullptr);
}

AICF_EXPORT void __cudaRegisterManagedVar(void** handle, void** host_variable, char*, const char* device_name, int, size_t size_bytes, int,
                                          int) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    if (CodeModule* module = runtime.registry->find_module(handle))
        runtime.registry->add_variable(module, host_variable, device_name, size_bytes, host_variable);
}

// A variable in host memory that device code may name; kernels cannot reach host memory here, so using one fails in the kernel's check.
AICF_EXPORT void __cudaRegisterHostVar(void**, const char*, char*, size_t) {}

AICF_EXPORT void __cudaRegisterUnifiedTable(void**, void*) {}

// Called before the first use of a managed variable: loads the module, which sets the variables' pointers.
AICF_EXPORT char __cudaInitModule(void** handle) {
    return api("__cudaInitModule", [&](Runtime& runtime) {
               if (CodeModule* module = runtime.registry->find_module(handle)) runtime.registry->load(runtime, *module);
           }) == kNoError;
}

AICF_EXPORT unsigned __cudaPushCallConfiguration(Dim3 grid, Dim3 block, size_t shared_bytes, void* stream) {
    configurations().push_back({grid, block, shared_bytes, stream});
    return 0;
}

AICF_API __cudaPopCallConfiguration(Dim3* grid, Dim3* block, size_t* shared_bytes, void* stream) {
    if (configurations().empty())
        return record_error(kErrMissingConfiguration, "__cudaPopCallConfiguration: no launch configuration was pushed");
    const CallConfiguration top = configurations().back();
    configurations().pop_back();
    *grid = top.grid;
    *block = top.block;
    *shared_bytes = top.shared_bytes;
    *static_cast<void**>(stream) = top.stream;
    return kNoError;
}

AICF_API __cudaGetKernel(void** kernel, const void* host_function) {
    return api("__cudaGetKernel", [&](Runtime& runtime) { *kernel = require_kernel(runtime, host_function).get(); }, AfterError::kRun);
}

AICF_API cudaGetKernel(void** kernel, const void* host_function) {
    return api("cudaGetKernel", [&](Runtime& runtime) {
        require(kernel != nullptr, kErrInvalidValue, "the result pointer is null");
        *kernel = require_kernel(runtime, host_function).get();
    });
}

AICF_API cudaGetFuncBySymbol(void** function, const void* symbol) {
    return api("cudaGetFuncBySymbol", [&](Runtime& runtime) {
        require(function != nullptr, kErrInvalidValue, "the result pointer is null");
        *function = loaded_kernel(runtime, symbol).get();
    });
}

// Launches.

AICF_TWIN_API(__cudaLaunchKernel, _ptsz, (void* kernel, Dim3 grid, Dim3 block, void** args, size_t shared_bytes, void* stream),
              (kernel, grid, block, args, shared_bytes, stream)) {
    return launch("kernel launch", kernel, grid, block, args, shared_bytes, stream, per_thread, false);
}

AICF_TWIN_API(cudaLaunchKernel, _ptsz, (const void* kernel, Dim3 grid, Dim3 block, void** args, size_t shared_bytes, void* stream),
              (kernel, grid, block, args, shared_bytes, stream)) {
    return launch("cudaLaunchKernel", kernel, grid, block, args, shared_bytes, stream, per_thread, false);
}

AICF_TWIN_API(cudaLaunchCooperativeKernel, _ptsz,
              (const void* kernel, Dim3 grid, Dim3 block, void** args, size_t shared_bytes, void* stream),
              (kernel, grid, block, args, shared_bytes, stream)) {
    return launch("cudaLaunchCooperativeKernel", kernel, grid, block, args, shared_bytes, stream, per_thread, true);
}

AICF_TWIN_API(cudaLaunchKernelExC, _ptsz, (const abi::LaunchConfig* config, const void* kernel, void** args), (config, kernel, args)) {
    return launch_config(config, kernel, args, per_thread);
}

// Functions.

AICF_API cudaFuncGetAttributes(abi::FuncAttributes* attributes, const void* function) {
    return api("cudaFuncGetAttributes", [&](Runtime& runtime) {
        require(attributes != nullptr, kErrInvalidValue, "the result pointer is null");
        fill_attributes(runtime, *loaded_kernel(runtime, function), attributes);
    });
}

AICF_API cudaFuncSetAttribute(const void* function, int attribute, int value) {
    return api("cudaFuncSetAttribute",
               [&](Runtime& runtime) { set_attribute(*runtime.target, *loaded_kernel(runtime, function), attribute, value); });
}

AICF_API cudaKernelSetAttributeForDevice(void* kernel, int attribute, int value, int device) {
    return api("cudaKernelSetAttributeForDevice", [&](Runtime& runtime) {
        require(device >= 0 && device < static_cast<int>(runtime.devices.size()), kErrInvalidDevice, "there is no such device");
        set_attribute(*runtime.target, *loaded_kernel(runtime, kernel), attribute, value);
    });
}

AICF_API cudaFuncGetName(const char** name, const void* function) {
    return api("cudaFuncGetName", [&](Runtime& runtime) {
        require(name != nullptr, kErrInvalidValue, "the result pointer is null");
        *name = require_kernel(runtime, function)->name.c_str();
    });
}

AICF_API cudaFuncGetParamInfo(const void* function, size_t index, size_t* offset, size_t* size_bytes) {
    return api("cudaFuncGetParamInfo", [&](Runtime& runtime) {
        const auto kernel = loaded_kernel(runtime, function);
        require(offset != nullptr && index < kernel->info->params.size(), kErrInvalidValue, "the kernel has no parameter of that index");
        *offset = kernel->info->params[index].offset;
        if (size_bytes != nullptr) *size_bytes = kernel->info->params[index].size_bytes;
    });
}

AICF_API cudaFuncSetCacheConfig(const void* function, int config) {
    return api("cudaFuncSetCacheConfig", [&](Runtime& runtime) {
        require(config >= 0 && config <= 3, kErrInvalidValue, "the cache configuration is not in 0 to 3");
        require_kernel(runtime, function);
    });
}

AICF_API cudaFuncSetSharedMemConfig(const void* function, int config) {
    return api("cudaFuncSetSharedMemConfig", [&](Runtime& runtime) {
        require(config >= 0 && config <= 2, kErrInvalidValue, "the bank size is not in 0 to 2");
        require_kernel(runtime, function);
    });
}

// Occupancy.

AICF_API cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_threads, size_t dynamic_shared_bytes) {
    return occupancy("cudaOccupancyMaxActiveBlocksPerMultiprocessor", blocks, function, block_threads, dynamic_shared_bytes);
}

AICF_API cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int block_threads,
                                                                size_t dynamic_shared_bytes, unsigned flags) {
    if (flags > 1) return record_error(kErrInvalidValue, "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags: flags are 0 or 1");
    return occupancy("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", blocks, function, block_threads, dynamic_shared_bytes);
}

AICF_API cudaOccupancyAvailableDynamicSMemPerBlock(size_t* dynamic_shared_bytes, const void* function, int num_blocks, int block_threads) {
    return api("cudaOccupancyAvailableDynamicSMemPerBlock", [&](Runtime& runtime) {
        require(dynamic_shared_bytes != nullptr, kErrInvalidValue, "the result pointer is null");
        require(num_blocks > 0 && block_threads > 0, kErrInvalidValue, "the number of blocks and the block size must be positive");
        const auto kernel = loaded_kernel(runtime, function);
        const Target& target = *runtime.target;
        require(resident_blocks(target, *kernel, block_threads, 0) >= num_blocks, kErrInvalidValue,
                "so many blocks do not fit on a multiprocessor");
        const int share = target.shared_per_sm_bytes / num_blocks;  // the system's share is not taken off (seen on an H200)
        *dynamic_shared_bytes =
            static_cast<size_t>(std::min(share, target.shared_per_block_optin_bytes)) - kernel->info->static_shared_bytes;
    });
}

AICF_API cudaOccupancyMaxPotentialClusterSize(int* cluster_blocks, const void* function, const abi::LaunchConfig* config) {
    return api("cudaOccupancyMaxPotentialClusterSize", [&](Runtime& runtime) {
        require(cluster_blocks != nullptr && config != nullptr, kErrInvalidValue, "a pointer is null");
        const auto kernel = loaded_kernel(runtime, function);
        require(runtime.target->has_clusters, kErrNotSupported, "the target has no clusters");
        *cluster_blocks = kernel->non_portable_cluster ? runtime.target->max_cluster : runtime.target->max_portable_cluster;
    });
}

AICF_API cudaOccupancyMaxActiveClusters(int* num_clusters, const void* function, const abi::LaunchConfig* config) {
    return api("cudaOccupancyMaxActiveClusters", [&](Runtime& runtime) {
        require(num_clusters != nullptr && config != nullptr, kErrInvalidValue, "a pointer is null");
        const auto kernel = loaded_kernel(runtime, function);
        require(runtime.target->has_clusters, kErrNotSupported, "the target has no clusters");
        const Dim3 cluster = cluster_of(*config);
        const Dim3 block = config->blockDim;
        const int resident =
            resident_blocks(*runtime.target, *kernel, static_cast<int>(block.x * block.y * block.z), config->dynamicSmemBytes);
        const int size = static_cast<int>(std::max(1u, cluster.x * cluster.y * cluster.z));
        // Clusters live within a GPU processing cluster of up to 18 multiprocessors, at most 8 blocks of clusters on each. An upper bound:
        // how many multiprocessors each one really has differs from chip to chip.
        constexpr int kGpcSms = 18, kMostBlocks = 8;
        const int blocks = std::min(resident, kMostBlocks);
        *num_clusters = runtime.target->num_sms / kGpcSms * (kGpcSms * blocks / size) + runtime.target->num_sms % kGpcSms * blocks / size;
    });
}

// Libraries.

AICF_API cudaLibraryLoadData(void** library, const void* code, int*, void**, unsigned, int*, void**, unsigned) {
    return api("cudaLibraryLoadData", [&](Runtime& runtime) {
        require(library != nullptr && code != nullptr, kErrInvalidValue, "a pointer is null");
        load_library(runtime, library, copy_image(code));
    });
}

AICF_API cudaLibraryLoadFromFile(void** library, const char* path, int*, void**, unsigned, int*, void**, unsigned) {
    return api("cudaLibraryLoadFromFile", [&](Runtime& runtime) {
        require(library != nullptr && path != nullptr, kErrInvalidValue, "a pointer is null");
        std::ifstream file(path, std::ios::binary);
        if (!file) throw Failure{kErrFileNotFound, std::string("cannot read ") + path};
        load_library(runtime, library, std::string(std::istreambuf_iterator<char>(file), {}));
    });
}

AICF_API cudaLibraryUnload(void* library) {
    return api("cudaLibraryUnload", [&](Runtime& runtime) {
        finish_all(runtime);
        runtime.registry->remove_module(&find_library(runtime, library));
    });
}

AICF_API cudaLibraryGetKernel(void** kernel, void* library, const char* name) {
    return api("cudaLibraryGetKernel", [&](Runtime& runtime) {
        require(kernel != nullptr && name != nullptr, kErrInvalidValue, "a pointer is null");
        CodeModule& module = find_library(runtime, library);
        const auto found = module.kernels.find(name);
        if (found == module.kernels.end()) throw Failure{kErrSymbolNotFound, std::string("the library has no kernel ") + name};
        *kernel = found->second.get();
    });
}

AICF_API cudaLibraryGetKernelCount(unsigned* count, void* library) {
    return api("cudaLibraryGetKernelCount", [&](Runtime& runtime) {
        require(count != nullptr, kErrInvalidValue, "the result pointer is null");
        *count = static_cast<unsigned>(find_library(runtime, library).kernels.size());
    });
}

AICF_API cudaLibraryEnumerateKernels(void** kernels, unsigned count, void* library) {
    return api("cudaLibraryEnumerateKernels", [&](Runtime& runtime) {
        require(kernels != nullptr, kErrInvalidValue, "the result pointer is null");
        for (const auto& [name, kernel] : find_library(runtime, library).kernels) {
            if (count-- == 0) break;
            *kernels++ = kernel.get();
        }
    });
}

AICF_API cudaLibraryGetManaged(void** address, size_t* size_bytes, void* library, const char* name) {
    return api("cudaLibraryGetManaged", [&](Runtime& runtime) {
        require(name != nullptr, kErrInvalidValue, "the name is null");
        const VariableInfo* variable = runtime.registry->load(runtime, find_library(runtime, library)).find_variable(name);
        const Allocation* allocation = variable == nullptr ? nullptr : runtime.memory().find(variable->address);
        if (allocation == nullptr || allocation->kind != MemoryKind::kManagedVariable)
            throw Failure{kErrSymbolNotFound, std::string("the library has no managed variable ") + name};
        if (address != nullptr) *address = reinterpret_cast<void*>(variable->address);
        if (size_bytes != nullptr) *size_bytes = variable->size_bytes;
    });
}

AICF_API cudaLibraryGetGlobal(void** address, size_t* size_bytes, void* library, const char* name) {
    return api("cudaLibraryGetGlobal", [&](Runtime& runtime) {
        require(name != nullptr, kErrInvalidValue, "the name is null");
        CodeModule& module = find_library(runtime, library);
        const VariableInfo* variable = runtime.registry->load(runtime, module).find_variable(name);
        if (variable == nullptr) throw Failure{kErrSymbolNotFound, std::string("the library has no variable ") + name};
        if (address != nullptr) *address = reinterpret_cast<void*>(variable->address);
        if (size_bytes != nullptr) *size_bytes = variable->size_bytes;
    });
}

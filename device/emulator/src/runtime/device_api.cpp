// Devices, versions, errors, limits and what else belongs to no stream.
#include <cstdio>
#include <cstring>
#include <utility>

#include "driver_api.hpp"
#include "graph.hpp"

using namespace aicf::emu;

namespace {

constexpr int kVersion = 13000;  // CUDA 13.0
constexpr const char* kPciBusId = "0000:00:00.0";

void require_device(int device) {
    if (device != 0) throw Failure{kErrInvalidDevice, "device " + std::to_string(device) + " is asked for; there is device 0 only"};
}

// cudaLimit: value by number; the stack and heap limits are kept and do not bind here.
size_t limits[] = {1024, 8650752, 8 << 20, 0, 2048, 64, 11796480};

int device_flags = 0;

int driver_entry_point(const char* symbol, void** function, int* status) {
    constexpr int kFound = 0, kSymbolNotFound = 1;
    return api("cudaGetDriverEntryPoint", [&](Runtime&) {
        require(symbol != nullptr && function != nullptr, kErrInvalidValue, "a pointer is null");
        *function = find_driver_function(symbol);
        if (status != nullptr)
            *status = *function == nullptr ? kSymbolNotFound : kFound;
        else if (*function == nullptr)
            throw Failure{kErrSymbolNotFound, std::string("the emulated device has no driver function ") + symbol};
    });
}

int synchronize_device(const char* function) {
    return api(function, [&](Runtime& runtime) { forbid_during_any_capture(runtime, "a device-wide synchronisation"); });
}

}  // namespace

AICF_API cudaGetDeviceCount(int* count) {
    return api(
        "cudaGetDeviceCount",
        [&](Runtime&) {
            require(count != nullptr, kErrInvalidValue, "the result pointer is null");
            *count = 1;
        },
        AfterError::kRun);
}

AICF_API cudaSetDevice(int device) {
    return api("cudaSetDevice", [&](Runtime&) { require_device(device); });
}

AICF_API cudaGetDevice(int* device) {
    return api(
        "cudaGetDevice",
        [&](Runtime&) {
            require(device != nullptr, kErrInvalidValue, "the result pointer is null");
            *device = 0;
        },
        AfterError::kRun);
}

AICF_API cudaInitDevice(int device, unsigned, unsigned) {
    return api("cudaInitDevice", [&](Runtime&) { require_device(device); });
}

AICF_API cudaSetValidDevices(int* devices, int count) {
    return api("cudaSetValidDevices", [&](Runtime&) {
        require(count == 0 || devices != nullptr, kErrInvalidValue, "the list is null");
        for (int i = 0; i < count; ++i) require_device(devices[i]);
    });
}

AICF_API cudaChooseDevice(int* device, const abi::DeviceProp* wanted) {
    return api("cudaChooseDevice", [&](Runtime&) {
        require(device != nullptr && wanted != nullptr, kErrInvalidValue, "a pointer is null");
        *device = 0;
    });
}

AICF_API cudaSetDeviceFlags(unsigned flags) {
    return api("cudaSetDeviceFlags", [&](Runtime&) {
        require(flags <= 0xFF, kErrInvalidValue, "unknown flags");
        device_flags = static_cast<int>(flags);
    });
}

AICF_API cudaGetDeviceFlags(unsigned* flags) {
    return api("cudaGetDeviceFlags", [&](Runtime&) {
        require(flags != nullptr, kErrInvalidValue, "the result pointer is null");
        *flags = static_cast<unsigned>(device_flags) | 8;  // cudaDeviceMapHost is always on
    });
}

AICF_API cudaDeviceSynchronize(void) { return synchronize_device("cudaDeviceSynchronize"); }

AICF_API cudaDeviceReset(void) {
    return api(
        "cudaDeviceReset",
        [&](Runtime& runtime) {
            forbid_during_any_capture(runtime, "cudaDeviceReset");
            runtime.reset();
            thread_state().last_error = 0;
        },
        AfterError::kRun);
}

AICF_API cudaGetDeviceProperties(abi::DeviceProp* properties, int device) {
    return api(
        "cudaGetDeviceProperties",
        [&](Runtime& runtime) {
            require(properties != nullptr, kErrInvalidValue, "the result pointer is null");
            require_device(device);
            fill_properties(*runtime.target, properties);
            properties->totalGlobalMem = runtime.memory_bytes;
        },
        AfterError::kRun);
}

AICF_API cudaDeviceGetAttribute(int* value, int attribute, int device) {
    return api(
        "cudaDeviceGetAttribute",
        [&](Runtime& runtime) {
            require(value != nullptr, kErrInvalidValue, "the result pointer is null");
            require_device(device);
            if (!device_attribute(*runtime.target, attribute, value))
                throw Failure{kErrInvalidValue, "there is no device attribute " + std::to_string(attribute)};
        },
        AfterError::kRun);
}

AICF_API cudaDeviceGetPCIBusId(char* text, int length, int device) {
    return api("cudaDeviceGetPCIBusId", [&](Runtime&) {
        require_device(device);
        require(text != nullptr && length > static_cast<int>(std::strlen(kPciBusId)), kErrInvalidValue,
                "the buffer is null or too short (13 bytes are needed)");
        std::strcpy(text, kPciBusId);
    });
}

AICF_API cudaDeviceGetByPCIBusId(int* device, const char* text) {
    return api("cudaDeviceGetByPCIBusId", [&](Runtime&) {
        require(device != nullptr && text != nullptr, kErrInvalidValue, "a pointer is null");
        require(std::strcmp(text, kPciBusId) == 0, kErrInvalidDevice, "no device has this PCI address");
        *device = 0;
    });
}

AICF_API cudaDriverGetVersion(int* version) {
    return api(
        "cudaDriverGetVersion",
        [&](Runtime&) {
            require(version != nullptr, kErrInvalidValue, "the result pointer is null");
            *version = kVersion;
        },
        AfterError::kRun);
}

AICF_API cudaRuntimeGetVersion(int* version) {
    return api(
        "cudaRuntimeGetVersion",
        [&](Runtime&) {
            require(version != nullptr, kErrInvalidValue, "the result pointer is null");
            *version = kVersion;
        },
        AfterError::kRun);
}

// Errors.

AICF_API cudaGetLastError(void) { return std::exchange(thread_state().last_error, kNoError); }

AICF_API cudaPeekAtLastError(void) { return thread_state().last_error; }

AICF_EXPORT const char* cudaGetErrorName(int error) { return error_name(error); }
AICF_EXPORT const char* cudaGetErrorString(int error) { return error_text(error); }

// Limits and preferences.

AICF_API cudaDeviceGetLimit(size_t* value, int limit) {
    return api("cudaDeviceGetLimit", [&](Runtime&) {
        require(value != nullptr, kErrInvalidValue, "the result pointer is null");
        require(limit >= 0 && limit < static_cast<int>(std::size(limits)), kErrInvalidValue, "there is no such limit");
        require(limit != 3, kErrUnsupportedLimit, "device-side synchronisation is not supported on this architecture");
        *value = limits[limit];
    });
}

AICF_API cudaDeviceSetLimit(int limit, size_t value) {
    return api("cudaDeviceSetLimit", [&](Runtime& runtime) {
        require(limit >= 0 && limit < static_cast<int>(std::size(limits)), kErrInvalidValue, "there is no such limit");
        require(limit != 3, kErrUnsupportedLimit, "device-side synchronisation is not supported on this architecture");
        limits[limit] = value;
        if (limit == 2) runtime.memory().set_heap_limit(value);
    });
}

AICF_API cudaDeviceGetCacheConfig(int* config) {
    return api("cudaDeviceGetCacheConfig", [&](Runtime&) {
        require(config != nullptr, kErrInvalidValue, "the result pointer is null");
        *config = 0;
    });
}

AICF_API cudaDeviceSetCacheConfig(int config) {
    return api("cudaDeviceSetCacheConfig",
               [&](Runtime&) { require(config >= 0 && config <= 3, kErrInvalidValue, "the cache configuration is none of 0 to 3"); });
}

AICF_API cudaDeviceGetSharedMemConfig(int* config) {
    return api("cudaDeviceGetSharedMemConfig", [&](Runtime&) {
        require(config != nullptr, kErrInvalidValue, "the result pointer is null");
        *config = 1;  // four-byte banks
    });
}

AICF_API cudaDeviceSetSharedMemConfig(int config) {
    return api("cudaDeviceSetSharedMemConfig",
               [&](Runtime&) { require(config >= 0 && config <= 2, kErrInvalidValue, "the bank size is none of 0 to 2"); });
}

AICF_API cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return api("cudaDeviceGetStreamPriorityRange", [&](Runtime&) {
        if (least != nullptr) *least = 0;
        if (greatest != nullptr) *greatest = -5;
    });
}

AICF_API cudaCtxResetPersistingL2Cache(void) {
    return api("cudaCtxResetPersistingL2Cache", [](Runtime&) {});
}

AICF_API cudaDeviceFlushGPUDirectRDMAWrites(int, int) {
    return api("cudaDeviceFlushGPUDirectRDMAWrites",
               [](Runtime&) { throw Failure{kErrNotSupported, "the emulated device has no GPUDirect RDMA"}; });
}

// Peers: there are none.

AICF_API cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
    return api("cudaDeviceCanAccessPeer", [&](Runtime&) {
        require(can_access != nullptr, kErrInvalidValue, "the result pointer is null");
        require_device(device);
        require_device(peer);
        *can_access = 0;
    });
}

AICF_API cudaDeviceEnablePeerAccess(int peer, unsigned) {
    return api("cudaDeviceEnablePeerAccess",
               [&](Runtime&) { throw Failure{kErrInvalidDevice, "device " + std::to_string(peer) + " is no other device"}; });
}

AICF_API cudaDeviceDisablePeerAccess(int peer) {
    return api("cudaDeviceDisablePeerAccess",
               [&](Runtime&) { throw Failure{kErrInvalidDevice, "device " + std::to_string(peer) + " is no other device"}; });
}

// The profiler interface marks a region for tools; there is nothing to switch.

AICF_API cudaProfilerStart(void) {
    return api("cudaProfilerStart", [](Runtime&) {});
}

AICF_API cudaProfilerStop(void) {
    return api("cudaProfilerStop", [](Runtime&) {});
}

// Driver entry points: our own (driver_api.cpp); for others callers are told by the status that there is none.

AICF_TWIN_API(cudaGetDriverEntryPoint, _ptsz, (const char* symbol, void** function, unsigned long long flags, int* status),
              (symbol, function, flags, status)) {
    return driver_entry_point(symbol, function, status);
}

AICF_TWIN_API(cudaGetDriverEntryPointByVersion, _ptsz,
              (const char* symbol, void** function, unsigned version, unsigned long long flags, int* status),
              (symbol, function, version, flags, status)) {
    return driver_entry_point(symbol, function, status);
}

AICF_EXPORT abi::ChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return {x, y, z, w, kind}; }

// Devices, versions, errors, limits and what else belongs to no stream.
#include <cstdio>
#include <cstring>
#include <utility>

#include "driver_api.hpp"
#include "pools.hpp"
#include "queue.hpp"

using namespace aicf::emu;

namespace {

constexpr int kVersion = 13000;  // CUDA 13.0
// Each device is a bus of its own.
std::string pci_bus_id(int device) {
    char text[24];
    std::snprintf(text, sizeof text, "0000:%02x:00.0", device);
    return text;
}

void require_device(Runtime& runtime, int device) {
    const auto count = static_cast<int>(runtime.devices.size());
    if (device < 0 || device >= count)
        throw Failure{kErrInvalidDevice, "device " + std::to_string(device) + " is asked for; there " +
                                             (count == 1 ? "is device 0 only" : "are devices 0 to " + std::to_string(count - 1)) +
                                             " (option devices)"};
}

Device& current_device(Runtime& runtime) { return runtime.devices[static_cast<size_t>(thread_state().device)]; }

// Peer access is from the current device to another.
uint32_t peer_bit(Runtime& runtime, int peer) {
    require_device(runtime, peer);
    require(peer != thread_state().device, kErrInvalidDevice, "a device is no peer of itself");
    return 1u << peer;
}

// cudaLimit: value by number; the stack and heap limits are kept and do not bind here.
size_t limits[] = {1024, 8650752, 8 << 20, 0, 2048, 64, 11796480};

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
    return api(function, [&](Runtime& runtime) {
        forbid_during_any_capture(runtime, "a device-wide synchronisation");
        finish_device(runtime, thread_state().device);
        trim_pools(runtime);
    });
}

}  // namespace

AICF_API cudaGetDeviceCount(int* count) {
    return api(
        "cudaGetDeviceCount",
        [&](Runtime& runtime) {
            require(count != nullptr, kErrInvalidValue, "the result pointer is null");
            *count = static_cast<int>(runtime.devices.size());
        },
        AfterError::kRun);
}

AICF_API cudaSetDevice(int device) {
    return api("cudaSetDevice", [&](Runtime& runtime) {
        require_device(runtime, device);
        thread_state().device = device;
    });
}

AICF_API cudaGetDevice(int* device) {
    return api(
        "cudaGetDevice",
        [&](Runtime&) {
            require(device != nullptr, kErrInvalidValue, "the result pointer is null");
            *device = thread_state().device;
        },
        AfterError::kRun);
}

AICF_API cudaInitDevice(int device, unsigned, unsigned) {
    return api("cudaInitDevice", [&](Runtime& runtime) { require_device(runtime, device); });
}

AICF_API cudaSetValidDevices(int* devices, int count) {
    return api("cudaSetValidDevices", [&](Runtime& runtime) {
        require(count == 0 || devices != nullptr, kErrInvalidValue, "the list is null");
        for (int i = 0; i < count; ++i) require_device(runtime, devices[i]);
    });
}

AICF_API cudaChooseDevice(int* device, const abi::DeviceProp* wanted) {
    return api("cudaChooseDevice", [&](Runtime&) {
        require(device != nullptr && wanted != nullptr, kErrInvalidValue, "a pointer is null");
        *device = 0;
    });
}

AICF_API cudaSetDeviceFlags(unsigned flags) {
    return api("cudaSetDeviceFlags", [&](Runtime& runtime) {
        require(flags <= 0xFF, kErrInvalidValue, "unknown flags");
        current_device(runtime).flags = flags;
    });
}

AICF_API cudaGetDeviceFlags(unsigned* flags) {
    return api("cudaGetDeviceFlags", [&](Runtime& runtime) {
        require(flags != nullptr, kErrInvalidValue, "the result pointer is null");
        *flags = current_device(runtime).flags | 8;  // cudaDeviceMapHost is always on
    });
}

AICF_API cudaDeviceSynchronize(void) { return synchronize_device("cudaDeviceSynchronize"); }

AICF_API cudaDeviceReset(void) {
    return api(
        "cudaDeviceReset",
        [&](Runtime& runtime) {
            forbid_during_any_capture(runtime, "cudaDeviceReset");
            try {
                finish_all(runtime);
            } catch (const Failure&) {  // the work that failed goes with the context
            }
            runtime.reset(thread_state().device);
            thread_state().last_error = 0;
        },
        AfterError::kRun);
}

AICF_API cudaGetDeviceProperties(abi::DeviceProp* properties, int device) {
    return api(
        "cudaGetDeviceProperties",
        [&](Runtime& runtime) {
            require(properties != nullptr, kErrInvalidValue, "the result pointer is null");
            require_device(runtime, device);
            fill_properties(*runtime.target, properties);
            properties->pciBusID = device;
            properties->uuid[15] = static_cast<char>(properties->uuid[15] + device);
            properties->totalGlobalMem = runtime.memory_bytes;
        },
        AfterError::kRun);
}

AICF_API cudaDeviceGetAttribute(int* value, int attribute, int device) {
    return api(
        "cudaDeviceGetAttribute",
        [&](Runtime& runtime) {
            require(value != nullptr, kErrInvalidValue, "the result pointer is null");
            require_device(runtime, device);
            constexpr int kPciBusIdAttribute = 33;
            if (attribute == kPciBusIdAttribute) {
                *value = device;
                return;
            }
            if (!device_attribute(*runtime.target, attribute, value))
                throw Failure{kErrInvalidValue, "there is no device attribute " + std::to_string(attribute)};
        },
        AfterError::kRun);
}

AICF_API cudaDeviceGetPCIBusId(char* text, int length, int device) {
    return api("cudaDeviceGetPCIBusId", [&](Runtime& runtime) {
        require_device(runtime, device);
        const std::string id = pci_bus_id(device);
        require(text != nullptr && length > static_cast<int>(id.size()), kErrInvalidValue,
                "the buffer is null or too short (13 bytes are needed)");
        std::strcpy(text, id.c_str());
    });
}

AICF_API cudaDeviceGetByPCIBusId(int* device, const char* text) {
    return api("cudaDeviceGetByPCIBusId", [&](Runtime& runtime) {
        require(device != nullptr && text != nullptr, kErrInvalidValue, "a pointer is null");
        int found = static_cast<int>(runtime.devices.size()) - 1;
        while (found >= 0 && pci_bus_id(found) != text) --found;
        require(found >= 0, kErrInvalidDevice, "no device has this PCI address");
        *device = found;
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
               [&](Runtime&) { require(config >= 0 && config <= 3, kErrInvalidValue, "the cache configuration is not in 0 to 3"); });
}

AICF_API cudaDeviceGetSharedMemConfig(int* config) {
    return api("cudaDeviceGetSharedMemConfig", [&](Runtime&) {
        require(config != nullptr, kErrInvalidValue, "the result pointer is null");
        *config = 1;  // four-byte banks
    });
}

AICF_API cudaDeviceSetSharedMemConfig(int config) {
    return api("cudaDeviceSetSharedMemConfig",
               [&](Runtime&) { require(config >= 0 && config <= 2, kErrInvalidValue, "the bank size is not in 0 to 2"); });
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

// Peers: every device can reach every other one, once that is switched on.

AICF_API cudaDeviceCanAccessPeer(int* can_access, int device, int peer) {
    return api("cudaDeviceCanAccessPeer", [&](Runtime& runtime) {
        require(can_access != nullptr, kErrInvalidValue, "the result pointer is null");
        require_device(runtime, device);
        require_device(runtime, peer);
        *can_access = device != peer ? 1 : 0;
    });
}

AICF_API cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    return api("cudaDeviceEnablePeerAccess", [&](Runtime& runtime) {
        require(flags == 0, kErrInvalidValue, "flags are not 0");
        const uint32_t bit = peer_bit(runtime, peer);
        require((current_device(runtime).peers & bit) == 0, kErrPeerAccessAlreadyEnabled, "access to this peer is on already");
        current_device(runtime).peers |= bit;
    });
}

AICF_API cudaDeviceDisablePeerAccess(int peer) {
    return api("cudaDeviceDisablePeerAccess", [&](Runtime& runtime) {
        const uint32_t bit = peer_bit(runtime, peer);
        require((current_device(runtime).peers & bit) != 0, kErrPeerAccessNotEnabled, "access to this peer is not on");
        current_device(runtime).peers &= ~bit;
    });
}

AICF_API cudaDeviceGetP2PAttribute(int* value, int attribute, int source, int target) {
    return api("cudaDeviceGetP2PAttribute", [&](Runtime& runtime) {
        constexpr int kPerformanceRank = 1, kPartialAtomics = 5;
        require(value != nullptr && attribute >= kPerformanceRank && attribute <= kPartialAtomics, kErrInvalidValue,
                "a null pointer or an unknown attribute");
        require_device(runtime, source);
        require_device(runtime, target);
        require(source != target, kErrInvalidDevice, "a device is no peer of itself");
        *value = attribute == kPerformanceRank || attribute == kPartialAtomics ? 0 : 1;  // access, atomics and arrays work
    });
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

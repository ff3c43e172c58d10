// Stream-ordered allocation, memory pools, and what graphs hold.
#include "order.hpp"
#include "pools.hpp"
#include "queue.hpp"
#include "touches.hpp"

using namespace aicf::emu;

namespace {

int checked_device(Runtime& runtime, int device) {
    require(device >= 0 && device < static_cast<int>(runtime.devices.size()), kErrInvalidDevice, "there is no such device");
    return device;
}

Device& device_at(Runtime& runtime, int device) { return runtime.devices[static_cast<size_t>(checked_device(runtime, device))]; }

// Pools hold pinned memory of a device; the host's own pools and managed ones there are none.
Device& device_at(Runtime& runtime, const abi::MemLocation* location, int type) {
    constexpr int kPinnedMemory = 1, kDeviceLocation = 1;
    require(location != nullptr, kErrInvalidValue, "the location is null");
    require(type == kPinnedMemory && location->type == kDeviceLocation, kErrNotSupported,
            "pools of the emulated device hold device memory");
    return device_at(runtime, location->id);
}

void allocate_async(Runtime& runtime, void** out, size_t size_bytes, void* pool_handle, void* stream, bool per_thread) {
    require(out != nullptr, kErrInvalidValue, "the result pointer is null");
    *out = nullptr;
    Stream& target = find_stream(runtime, stream, per_thread);
    const auto pool = pool_handle != nullptr ? find_pool(runtime, pool_handle) : runtime.devices[static_cast<size_t>(target.device)].pool;
    if (target.capture == nullptr) {
        forbid_implicit_dependency(runtime, target);
        forbid_during_capture(runtime, "an allocation outside the capture");
        if (size_bytes == 0) return;
        AllocOp operation;
        operation.params.dptr = *out = reinterpret_cast<void*>(allocate_from(runtime, pool, size_bytes));
        note_operands(runtime, begin_work(runtime, target, operation), operation);
        return;
    }
    abi::MemAllocNodeParams params{};
    params.poolProps.allocType = 1;
    params.poolProps.location = {1, pool->device};
    params.bytesize = size_bytes;
    submit(runtime, target, make_alloc(runtime, &params));
    *out = params.dptr;
}

void free_async(Runtime& runtime, void* pointer, void* stream, bool per_thread) {
    Stream& target = find_stream(runtime, stream, per_thread);
    const uint64_t address = to_address(pointer);
    if (target.capture != nullptr) {
        submit(runtime, target, make_free(runtime, *target.capture->graph, address));
        return;
    }
    forbid_implicit_dependency(runtime, target);
    if (pointer == nullptr) return;
    note_work_on_freed_memory(runtime, address, &target);
    begin_release(runtime, address);
    enqueue(runtime, target, FreeOp{address});
}

// The attributes that count; -> the count, or null.
uint64_t* count_of(MemoryCounts& counts, int attribute) {
    constexpr int kReserved = 5, kReservedHigh = 6, kUsed = 7, kUsedHigh = 8;
    switch (attribute) {
        case kReserved: return &counts.reserved;
        case kReservedHigh: return &counts.reserved_high;
        case kUsed: return &counts.used;
        case kUsedHigh: return &counts.used_high;
        default: return nullptr;
    }
}

// cudaGraphMemAttributeType -> cudaMemPoolAttr
int pool_attribute(int graph_attribute) {
    constexpr int kByGraphAttribute[] = {7, 8, 5, 6};
    require(graph_attribute >= 0 && graph_attribute < 4, kErrInvalidValue, "there is no such attribute");
    return kByGraphAttribute[graph_attribute];
}

// High-water marks can be set back, to what is in use.
void reset_high(MemoryCounts& counts, int attribute, const void* value) {
    constexpr int kReservedHigh = 6, kUsedHigh = 8;
    require(attribute == kReservedHigh || attribute == kUsedHigh, kErrInvalidValue, "the attribute cannot be set");
    require(*static_cast<const uint64_t*>(value) == 0, kErrInvalidValue, "a high-water mark can be set to 0 only");
    (attribute == kReservedHigh ? counts.reserved_high : counts.used_high) = attribute == kReservedHigh ? counts.reserved : counts.used;
}

constexpr int kFirstFlag = 1, kLastFlag = 3, kReleaseThreshold = 4;

}  // namespace

AICF_TWIN_API(cudaMallocAsync, _ptsz, (void** out, size_t size_bytes, void* stream), (out, size_bytes, stream)) {
    return api("cudaMallocAsync", [&](Runtime& runtime) { allocate_async(runtime, out, size_bytes, nullptr, stream, per_thread); });
}

AICF_TWIN_API(cudaMallocFromPoolAsync, _ptsz, (void** out, size_t size_bytes, void* pool, void* stream), (out, size_bytes, pool, stream)) {
    return api("cudaMallocFromPoolAsync", [&](Runtime& runtime) {
        require(pool != nullptr, kErrInvalidValue, "the pool is null");
        allocate_async(runtime, out, size_bytes, pool, stream, per_thread);
    });
}

AICF_TWIN_API(cudaFreeAsync, _ptsz, (void* pointer, void* stream), (pointer, stream)) {
    return api("cudaFreeAsync", [&](Runtime& runtime) { free_async(runtime, pointer, stream, per_thread); });
}

AICF_API cudaDeviceGetDefaultMemPool(void** pool, int device) {
    return api("cudaDeviceGetDefaultMemPool", [&](Runtime& runtime) {
        require(pool != nullptr, kErrInvalidValue, "the result pointer is null");
        *pool = device_at(runtime, device).default_pool.get();
    });
}

AICF_API cudaDeviceGetMemPool(void** pool, int device) {
    return api("cudaDeviceGetMemPool", [&](Runtime& runtime) {
        require(pool != nullptr, kErrInvalidValue, "the result pointer is null");
        *pool = device_at(runtime, device).pool.get();
    });
}

AICF_API cudaDeviceSetMemPool(int device, void* pool) {
    return api("cudaDeviceSetMemPool", [&](Runtime& runtime) {
        const auto found = find_pool(runtime, pool);
        require(found->device == checked_device(runtime, device), kErrInvalidValue, "the pool is of another device");
        device_at(runtime, device).pool = found;
    });
}

AICF_API cudaMemGetDefaultMemPool(void** pool, const abi::MemLocation* location, int type) {
    return api("cudaMemGetDefaultMemPool", [&](Runtime& runtime) {
        require(pool != nullptr, kErrInvalidValue, "the result pointer is null");
        *pool = device_at(runtime, location, type).default_pool.get();
    });
}

AICF_API cudaMemGetMemPool(void** pool, const abi::MemLocation* location, int type) {
    return api("cudaMemGetMemPool", [&](Runtime& runtime) {
        require(pool != nullptr, kErrInvalidValue, "the result pointer is null");
        *pool = device_at(runtime, location, type).pool.get();
    });
}

AICF_API cudaMemSetMemPool(const abi::MemLocation* location, int type, void* pool) {
    return api("cudaMemSetMemPool", [&](Runtime& runtime) {
        Device& device = device_at(runtime, location, type);
        const auto found = find_pool(runtime, pool);
        require(found->device == location->id, kErrInvalidValue, "the pool is of another device");
        device.pool = found;
    });
}

AICF_API cudaMemPoolCreate(void** pool, const abi::MemPoolProps* properties) {
    return api("cudaMemPoolCreate", [&](Runtime& runtime) {
        require(pool != nullptr && properties != nullptr, kErrInvalidValue, "a pointer is null");
        require(properties->handleTypes == 0, kErrNotSupported, "pools of the emulated device cannot be shared between processes");
        device_at(runtime, &properties->location, properties->allocType);
        auto made = std::make_shared<MemoryPool>();
        made->device = properties->location.id;
        made->max_bytes = properties->maxSize;
        *pool = made.get();
        runtime.pools[made.get()] = std::move(made);
    });
}

AICF_API cudaMemPoolDestroy(void* pool) {
    return api("cudaMemPoolDestroy", [&](Runtime& runtime) {
        const auto found = find_pool(runtime, pool);
        require(!found->is_default, kErrInvalidValue, "the default pool cannot be destroyed");
        Device& device = device_at(runtime, found->device);
        if (device.pool == found) device.pool = device.default_pool;
        runtime.pools.erase(pool);  // what was allocated from it stays until it is freed
    });
}

AICF_API cudaMemPoolTrimTo(void* pool, size_t least_bytes) {
    return api("cudaMemPoolTrimTo", [&](Runtime& runtime) {
        const auto found = find_pool(runtime, pool);
        trim_counts(found->counts, least_bytes);
    });
}

AICF_API cudaMemPoolSetAttribute(void* pool, int attribute, void* value) {
    return api("cudaMemPoolSetAttribute", [&](Runtime& runtime) {
        const auto target = find_pool(runtime, pool);
        require(value != nullptr, kErrInvalidValue, "the value is null");
        if (attribute >= kFirstFlag && attribute <= kLastFlag)
            target->reuse_flags[attribute] = *static_cast<int*>(value);
        else if (attribute == kReleaseThreshold)
            target->release_threshold = *static_cast<uint64_t*>(value);
        else
            reset_high(target->counts, attribute, value);
    });
}

AICF_API cudaMemPoolGetAttribute(void* pool, int attribute, void* value) {
    return api("cudaMemPoolGetAttribute", [&](Runtime& runtime) {
        const auto source = find_pool(runtime, pool);
        require(value != nullptr, kErrInvalidValue, "the result pointer is null");
        if (attribute >= kFirstFlag && attribute <= kLastFlag) {
            *static_cast<int*>(value) = source->reuse_flags[attribute];
            return;
        }
        const uint64_t* count = attribute == kReleaseThreshold ? &source->release_threshold : count_of(source->counts, attribute);
        require(count != nullptr, kErrInvalidValue, "there is no such attribute");
        *static_cast<uint64_t*>(value) = *count;
    });
}

AICF_API cudaMemPoolSetAccess(void* pool, const abi::MemAccessDesc* descriptions, size_t count) {
    return api("cudaMemPoolSetAccess", [&](Runtime& runtime) {
        const auto target = find_pool(runtime, pool);
        require(descriptions != nullptr || count == 0, kErrInvalidValue, "the list is null");
        constexpr int kReadWrite = 3;
        for (size_t i = 0; i < count; ++i) {
            const int device = checked_device(runtime, descriptions[i].location.id);
            const bool grants = descriptions[i].flags == kReadWrite;
            require(grants || descriptions[i].flags == 0, kErrInvalidValue, "access is 0 (none) or 3 (read and write)");
            require(grants || device != target->device, kErrInvalidDevice, "a device's access to its own pool cannot be taken away");
            target->granted = grants ? target->granted | 1u << device : target->granted & ~(1u << device);
        }
        for (const auto& [address, owner] : runtime.pool_of)
            if (owner == target) runtime.memory().set_granted(address, target->granted);
    });
}

AICF_API cudaMemPoolGetAccess(int* flags, void* pool, abi::MemLocation* location) {
    return api("cudaMemPoolGetAccess", [&](Runtime& runtime) {
        const auto source = find_pool(runtime, pool);
        require(flags != nullptr && location != nullptr, kErrInvalidValue, "a pointer is null");
        const int device = checked_device(runtime, location->id);
        constexpr int kReadWrite = 3;
        *flags = device == source->device || (source->granted >> device & 1) != 0 ? kReadWrite : 0;
    });
}

// Memory of graphs.

AICF_API cudaDeviceGraphMemTrim(int device) {
    return api("cudaDeviceGraphMemTrim", [&](Runtime& runtime) {
        finish_device(runtime, checked_device(runtime, device));
        trim_counts(device_at(runtime, device).graph_memory, 0);
    });
}

AICF_API cudaDeviceGetGraphMemAttribute(int device, int attribute, void* value) {
    return api("cudaDeviceGetGraphMemAttribute", [&](Runtime& runtime) {
        require(value != nullptr, kErrInvalidValue, "the result pointer is null");
        *static_cast<uint64_t*>(value) = *count_of(device_at(runtime, device).graph_memory, pool_attribute(attribute));
    });
}

AICF_API cudaDeviceSetGraphMemAttribute(int device, int attribute, void* value) {
    return api("cudaDeviceSetGraphMemAttribute", [&](Runtime& runtime) {
        require(value != nullptr, kErrInvalidValue, "the value is null");
        reset_high(device_at(runtime, device).graph_memory, pool_attribute(attribute), value);
    });
}

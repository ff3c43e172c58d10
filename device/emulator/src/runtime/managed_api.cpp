// Advice and prefetches of managed memory. The memory is in one place here: they are checked, remembered for queries, and change nothing.
#include <algorithm>

#include "queue.hpp"
#include "ranges.hpp"

using namespace aicf::emu;

namespace {

constexpr int kCpuDeviceId = -1, kInvalidDeviceId = -2;
constexpr int kDeviceLocation = 1, kHostLocation = 2, kCurrentNumaLocation = 4;
constexpr unsigned kHostBit = 31;

enum Attribute : int {
    kReadMostly = 1,
    kPreferredLocation,
    kAccessedBy,
    kLastPrefetchLocation,
    kPreferredLocationType,
    kPreferredLocationId,
    kLastPrefetchLocationType,
    kLastPrefetchLocationId
};

void require_managed(Runtime& runtime, const void* pointer, size_t count) {
    const Allocation* allocation = runtime.memory().find(to_address(pointer));
    const bool is_managed =
        allocation != nullptr && (allocation->kind == MemoryKind::kManaged || allocation->kind == MemoryKind::kManagedVariable);
    require(is_managed && count != 0 && runtime.memory().accessible(to_address(pointer), count), kErrInvalidValue,
            "the range is not in managed memory");
}

void require_location(Runtime& runtime, const abi::MemLocation& location) {
    require(location.type >= kDeviceLocation && location.type <= kCurrentNumaLocation, kErrInvalidValue,
            "there is no such kind of location");
    require(location.type != kDeviceLocation || (location.id >= 0 && location.id < static_cast<int>(runtime.devices.size())),
            kErrInvalidDevice, "there is no such device");
}

void advise(Runtime& runtime, const void* pointer, size_t count, int advice, const abi::MemLocation& location) {
    enum : int { kSetReadMostly = 1, kUnsetReadMostly, kSetPreferred, kUnsetPreferred, kSetAccessedBy, kUnsetAccessedBy };
    require_managed(runtime, pointer, count);
    require(advice >= kSetReadMostly && advice <= kUnsetAccessedBy, kErrInvalidValue, "there is no such advice");
    if (advice == kSetPreferred || advice >= kSetAccessedBy) require_location(runtime, location);
    const uint32_t bit = 1u << (location.type == kDeviceLocation ? static_cast<unsigned>(location.id) : kHostBit);
    change_ranges(runtime, to_address(pointer), count, [&](RangeState& state) {
        switch (advice) {
            case kSetReadMostly:
            case kUnsetReadMostly: state.read_mostly = advice == kSetReadMostly; break;
            case kSetPreferred: state.preferred = location; break;
            case kUnsetPreferred: state.preferred = {}; break;
            case kSetAccessedBy: state.accessed_by |= bit; break;
            default: state.accessed_by &= ~bit;
        }
    });
}

void prefetch(Runtime& runtime, const void* pointer, size_t count, const abi::MemLocation& location) {
    require_managed(runtime, pointer, count);
    require_location(runtime, location);
    change_ranges(runtime, to_address(pointer), count, [&](RangeState& state) { state.prefetched = location; });
}

// A property that all of the range has; else `otherwise`.
template <class Read>
int common(Runtime& runtime, const void* pointer, size_t count, Read&& read, int otherwise) {
    const std::vector<RangeState> states = ranges_of(runtime, to_address(pointer), count);
    const int first = read(states.front());
    return std::all_of(states.begin(), states.end(), [&](const RangeState& each) { return read(each) == first; }) ? first : otherwise;
}

int device_id(const abi::MemLocation& location) {
    return location.type == kDeviceLocation ? location.id : location.type == 0 ? kInvalidDeviceId : kCpuDeviceId;
}

void get_attribute(Runtime& runtime, void* data, size_t data_bytes, int attribute, const void* pointer, size_t count) {
    require(data != nullptr && data_bytes != 0 && data_bytes % sizeof(int) == 0, kErrInvalidValue, "the result pointer or its size");
    require(attribute == kAccessedBy || data_bytes == sizeof(int), kErrInvalidValue, "the size of the result is not 4");
    require_managed(runtime, pointer, count);
    int* out = static_cast<int*>(data);
    const auto ask = [&](auto&& read, int otherwise) { *out = common(runtime, pointer, count, read, otherwise); };
    switch (attribute) {
        case kReadMostly: return ask([](const RangeState& s) { return static_cast<int>(s.read_mostly); }, 0);
        case kPreferredLocation: return ask([](const RangeState& s) { return device_id(s.preferred); }, kInvalidDeviceId);
        case kLastPrefetchLocation: return ask([](const RangeState& s) { return device_id(s.prefetched); }, kInvalidDeviceId);
        case kPreferredLocationType: return ask([](const RangeState& s) { return s.preferred.type; }, 0);
        case kPreferredLocationId: return ask([](const RangeState& s) { return s.preferred.id; }, 0);
        case kLastPrefetchLocationType: return ask([](const RangeState& s) { return s.prefetched.type; }, 0);
        case kLastPrefetchLocationId: return ask([](const RangeState& s) { return s.prefetched.id; }, 0);
        case kAccessedBy: break;
        default: throw Failure{kErrInvalidValue, "there is no range attribute " + std::to_string(attribute)};
    }
    uint32_t by_all = ~0u;
    for (const RangeState& state : ranges_of(runtime, to_address(pointer), count)) by_all &= state.accessed_by;
    for (size_t i = 0; i < data_bytes / sizeof(int); ++i, by_all &= by_all - 1) {
        const auto bit = static_cast<unsigned>(__builtin_ctz(by_all | 1u << kHostBit));
        out[i] = by_all == 0 ? kInvalidDeviceId : bit == kHostBit ? kCpuDeviceId : static_cast<int>(bit);
    }
}

Stream& batch_stream(Runtime& runtime, void* stream, bool per_thread, unsigned long long flags) {
    require(flags == 0, kErrInvalidValue, "flags are not 0");
    Stream& target = find_stream(runtime, stream, per_thread);
    require(target.kind != Stream::Kind::kLegacy, kErrInvalidValue, "a batch cannot run in the legacy default stream");
    return target;
}

int prefetch_batch(const char* function, void* const* pointers, const size_t* sizes, size_t count, const abi::MemLocation* locations,
                   const size_t* first, size_t num_locations, unsigned long long flags, void* stream, bool per_thread) {
    return api(function, [&](Runtime& runtime) {
        batch_stream(runtime, stream, per_thread, flags);
        require(pointers != nullptr && sizes != nullptr && locations != nullptr && first != nullptr && count != 0, kErrInvalidValue,
                "the batch is empty or an array is null");
        require(num_locations != 0 && num_locations <= count && first[0] == 0, kErrInvalidValue,
                "the locations' first indices begin with 0, and there are at most as many as ranges");
        for (size_t i = 0, at = 0; i < count; ++i) {
            if (at + 1 < num_locations && first[at + 1] == i) ++at;
            prefetch(runtime, pointers[i], sizes[i], locations[at]);
        }
    });
}

}  // namespace

AICF_API cudaMemAdvise(const void* pointer, size_t count, int advice, abi::MemLocation location) {
    return api("cudaMemAdvise", [&](Runtime& runtime) { advise(runtime, pointer, count, advice, location); });
}

AICF_TWIN_API(cudaMemPrefetchAsync, _ptsz, (const void* pointer, size_t count, abi::MemLocation location, unsigned flags, void* stream),
              (pointer, count, location, flags, stream)) {
    return api("cudaMemPrefetchAsync", [&](Runtime& runtime) {
        require(flags == 0, kErrInvalidValue, "flags are not 0");
        find_stream(runtime, stream, per_thread);
        prefetch(runtime, pointer, count, location);
    });
}

AICF_TWIN_API(cudaMemPrefetchBatchAsync, _ptsz,
              (void** pointers, size_t* sizes, size_t count, abi::MemLocation* locations, size_t* first, size_t num_locations,
               unsigned long long flags, void* stream),
              (pointers, sizes, count, locations, first, num_locations, flags, stream)) {
    return prefetch_batch("cudaMemPrefetchBatchAsync", pointers, sizes, count, locations, first, num_locations, flags, stream, per_thread);
}

AICF_TWIN_API(cudaMemDiscardBatchAsync, _ptsz, (void** pointers, size_t* sizes, size_t count, unsigned long long flags, void* stream),
              (pointers, sizes, count, flags, stream)) {
    return api("cudaMemDiscardBatchAsync", [&](Runtime& runtime) {
        batch_stream(runtime, stream, per_thread, flags);
        require(pointers != nullptr && sizes != nullptr && count != 0, kErrInvalidValue, "the batch is empty or an array is null");
        for (size_t i = 0; i < count; ++i) require_managed(runtime, pointers[i], sizes[i]);  // what was there may stay
    });
}

AICF_TWIN_API(cudaMemDiscardAndPrefetchBatchAsync, _ptsz,
              (void** pointers, size_t* sizes, size_t count, abi::MemLocation* locations, size_t* first, size_t num_locations,
               unsigned long long flags, void* stream),
              (pointers, sizes, count, locations, first, num_locations, flags, stream)) {
    return prefetch_batch("cudaMemDiscardAndPrefetchBatchAsync", pointers, sizes, count, locations, first, num_locations, flags, stream,
                          per_thread);
}

AICF_API cudaMemRangeGetAttribute(void* data, size_t data_bytes, int attribute, const void* pointer, size_t count) {
    return api("cudaMemRangeGetAttribute", [&](Runtime& runtime) { get_attribute(runtime, data, data_bytes, attribute, pointer, count); });
}

AICF_API cudaMemRangeGetAttributes(void** data, size_t* data_bytes, const int* attributes, size_t num_attributes, const void* pointer,
                                   size_t count) {
    return api("cudaMemRangeGetAttributes", [&](Runtime& runtime) {
        require(data != nullptr && data_bytes != nullptr && attributes != nullptr && num_attributes != 0, kErrInvalidValue,
                "a pointer is null, or there are no attributes");
        for (size_t i = 0; i < num_attributes; ++i) get_attribute(runtime, data[i], data_bytes[i], attributes[i], pointer, count);
    });
}

AICF_TWIN_API(cudaStreamAttachMemAsync, _ptsz, (void* stream, void* pointer, size_t length, unsigned flags),
              (stream, pointer, length, flags)) {
    return api("cudaStreamAttachMemAsync", [&](Runtime& runtime) {
        find_stream(runtime, stream, per_thread);
        require(flags == 1 || flags == 2 || flags == 4, kErrInvalidValue, "flags are 1, 2 or 4");
        require_managed(runtime, pointer, std::max<size_t>(length, 1));  // 0 stands for the whole allocation
    });
}

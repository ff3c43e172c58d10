#include "memory_ops.hpp"

#include <algorithm>
#include <cstring>

#include "arrays.hpp"

namespace aicf::emu {
namespace {

// One side of a copy: rows of `width` bytes at base + z * slice + y * pitch.
struct Side {
    uint64_t base = 0;
    size_t pitch = 0;
    size_t slice = 0;
    bool in_arena = false;
};

Side make_side(Runtime& runtime, const abi::PitchedPtr& pointer, const abi::Pos& position, const abi::Extent& extent) {
    Side side;
    side.pitch = pointer.pitch != 0 ? pointer.pitch : extent.width;
    side.slice = side.pitch * (pointer.ysize != 0 ? pointer.ysize : extent.height);
    side.base = to_address(pointer.ptr) + position.z * side.slice + position.y * side.pitch + position.x;
    side.in_arena = runtime.is_device_address(pointer.ptr);
    return side;
}

// A side in a CUDA array, whose positions and widths count elements.
Side make_side(const void* handle, const abi::Pos& position, const abi::Extent& elements) {
    const auto array = find_array(handle);
    const ImageLevel& level = array->level;
    const bool inside = position.x <= level.width && elements.width <= level.width - position.x && position.y <= level.height &&
                        elements.height <= level.height - position.y && position.z <= level.depth &&
                        elements.depth <= level.depth - position.z;
    require(inside, kErrInvalidValue, "the copy reaches beyond the CUDA array");
    Side side;
    side.pitch = level.row_pitch;
    side.slice = level.slice_pitch;
    side.base = level.address + position.z * side.slice + position.y * side.pitch + position.x * array->element_bytes;
    side.in_arena = true;
    return side;
}

// The extent of a copy, whose width counts elements where a CUDA array takes part.
abi::Extent extent_in_bytes(const abi::Memcpy3DParms& params) {
    abi::Extent extent = params.extent;
    const auto element_bytes = [](const void* array) { return array == nullptr ? 0 : find_array(array)->element_bytes; };
    const uint32_t from = element_bytes(params.srcArray), to = element_bytes(params.dstArray);
    require(from == 0 || to == 0 || from == to, kErrInvalidValue, "the two arrays have elements of different sizes");
    if (from + to != 0) extent.width *= from != 0 ? from : to;
    return extent;
}

bool host_accessible(Runtime& runtime, uint64_t address) {
    const Allocation* allocation = runtime.memory().find(address);
    return allocation != nullptr && is_host_visible(allocation->kind);
}

// Throws Failure(1) with a report when [address, address + bytes) of the arena is not within one live allocation. A graph's memory need
// not be live before the copy runs (`now`).
void check_range(Runtime& runtime, const char* verb, uint64_t address, uint64_t bytes, bool now) {
    if (bytes == 0 || runtime.memory().accessible(address, bytes)) return;
    const Allocation* allocation = runtime.memory().find(address);
    const bool inside = allocation != nullptr && address >= allocation->address && bytes <= allocation->size_bytes &&
                        address - allocation->address <= allocation->size_bytes - bytes;
    if (inside && !now && runtime.graph_memory.contains(allocation->address)) return;
    const bool freed = allocation != nullptr && !allocation->live;
    const std::string text = std::string("host call ") + verb + " " + std::to_string(bytes) + " bytes at " + hex(address) + ", which is " +
                             describe_place(runtime, address);
    runtime.add_report(freed ? "host_copy_after_free" : "host_copy_out_of_bounds", Severity::kError, text, address);
    throw Failure{kErrInvalidValue, text};
}

uint64_t span_bytes(const Side& side, const abi::Extent& extent) {
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return 0;
    return (extent.depth - 1) * side.slice + (extent.height - 1) * side.pitch + extent.width;
}

void check_direction(Runtime& runtime, const abi::Memcpy3DParms& params, const Side& dst, const Side& src) {
    const int kind = params.kind;
    if (kind < abi::kHostToHost || kind > abi::kCopyDefault)
        throw Failure{kErrInvalidMemcpyDirection, "copy kind " + std::to_string(kind) + " is not in 0 to 4"};
    if (kind == abi::kCopyDefault) return;
    const bool device_source = kind == abi::kDeviceToHost || kind == abi::kDeviceToDevice;
    const bool device_target = kind == abi::kHostToDevice || kind == abi::kDeviceToDevice;
    const auto complain = [&](const char* which, uint64_t address, bool wants_device) {
        throw Failure{kErrInvalidValue, std::string("the ") + which + " " + hex(address) + " is a " + (wants_device ? "host" : "device") +
                                            " address, and the copy kind says the opposite"};
    };
    if (src.in_arena != device_source && !host_accessible(runtime, src.base)) complain("source", src.base, device_source);
    if (dst.in_arena != device_target && !host_accessible(runtime, dst.base)) complain("destination", dst.base, device_target);
}

struct Sides {
    Side dst, src;
};

Sides read_sides(Runtime& runtime, const abi::Memcpy3DParms& params) {
    const abi::Extent extent = extent_in_bytes(params);
    return {params.dstArray != nullptr ? make_side(params.dstArray, params.dstPos, params.extent)
                                       : make_side(runtime, params.dstPtr, params.dstPos, extent),
            params.srcArray != nullptr ? make_side(params.srcArray, params.srcPos, params.extent)
                                       : make_side(runtime, params.srcPtr, params.srcPos, extent)};
}

// Copies the initialisation bits of a row, or forgets them where the source has none.
void copy_init_bits(DeviceMemory& memory, uint64_t dst, uint64_t src, size_t bytes) {
    if (memory.is_initialized(src, bytes)) {
        memory.mark_initialized(dst, bytes);
        return;
    }
    uint8_t* bits = memory.init_bits();
    for (size_t i = 0; i < bytes; ++i) {
        const uint64_t from = src - memory.base() + i, to = dst - memory.base() + i;
        const bool initialized = (bits[from / 8] >> (from % 8) & 1) != 0;
        const auto mask = static_cast<uint8_t>(1u << (to % 8));
        bits[to / 8] = static_cast<uint8_t>(initialized ? bits[to / 8] | mask : bits[to / 8] & ~mask);
    }
}

void note_uninitialized(Runtime& runtime, uint64_t address, size_t bytes) {
    if ((runtime.options.checks & kInitcheck) == 0 || runtime.memory().is_initialized(address, bytes)) return;
    size_t first = 0;
    while (runtime.memory().is_initialized(address + first, 1)) ++first;
    runtime.add_report("host_read_uninitialized", Severity::kWarning,
                       "host call copies " + std::to_string(bytes) + " bytes from " + hex(address) + " to the host; byte " +
                           std::to_string(first) + " of them was never written (" + describe_place(runtime, address + first) + ")",
                       address + first);
}

}  // namespace

std::string describe_place(Runtime& runtime, uint64_t address) {
    const Allocation* allocation = runtime.memory().find(address);
    if (allocation == nullptr) return "in no allocation";
    const auto offset = static_cast<int64_t>(address - allocation->address);
    return (offset < 0 ? std::to_string(-offset) + " bytes before " : std::to_string(offset) + " bytes into ") +
           (allocation->live ? "" : "the freed ") + "allocation #" + std::to_string(allocation->serial) + " of " +
           std::to_string(allocation->size_bytes) + " bytes" + (allocation->label.empty() ? "" : " (" + allocation->label + ")");
}

std::byte* host_view(Runtime& runtime, uint64_t address) {
    if (runtime.is_device_address(reinterpret_cast<const void*>(address))) return runtime.memory().alias(address);
    return reinterpret_cast<std::byte*>(address);
}

abi::Memcpy3DParms pitched_copy(void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int kind) {
    abi::Memcpy3DParms params{};
    params.dstPtr = {dst, dst_pitch, width, height};
    params.srcPtr = {const_cast<void*>(src), src_pitch, width, height};
    params.extent = {width, height, 1};
    params.kind = kind;
    return params;
}

abi::Memcpy3DParms linear_copy(void* dst, const void* src, size_t count, int kind) {
    return pitched_copy(dst, count, src, count, count, 1, kind);
}

void check_copy(Runtime& runtime, const abi::Memcpy3DParms& params, bool now) {
    const auto [dst, src] = read_sides(runtime, params);
    const abi::Extent extent = extent_in_bytes(params);
    if (params.kind < abi::kHostToHost || params.kind > abi::kCopyDefault)
        throw Failure{kErrInvalidMemcpyDirection, "copy kind " + std::to_string(params.kind) + " is not in 0 to 4"};
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return;
    require(
        (params.dstPtr.ptr != nullptr) != (params.dstArray != nullptr) && (params.srcPtr.ptr != nullptr) != (params.srcArray != nullptr),
        kErrInvalidValue, "each side of a copy is a pointer or an array, and not null");
    if (extent.height > 1 && ((params.dstArray == nullptr && params.dstPos.x + extent.width > dst.pitch) ||
                              (params.srcArray == nullptr && params.srcPos.x + extent.width > src.pitch)))
        throw Failure{kErrInvalidPitchValue, "rows of " + std::to_string(extent.width) + " bytes do not fit in the pitches " +
                                                 std::to_string(dst.pitch) + " (destination) and " + std::to_string(src.pitch) +
                                                 " (source)"};
    check_direction(runtime, params, dst, src);
    if (src.in_arena) check_range(runtime, "reads", src.base, span_bytes(src, extent), now);
    if (dst.in_arena) check_range(runtime, "writes", dst.base, span_bytes(dst, extent), now);
}

void run_copy(Runtime& runtime, const abi::Memcpy3DParms& params) {
    check_copy(runtime, params, true);
    const auto [dst, src] = read_sides(runtime, params);
    abi::Extent extent = extent_in_bytes(params);
    if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return;
    if (extent.depth == 1 && dst.pitch == extent.width && src.pitch == extent.width) {
        extent.width *= extent.height;
        extent.height = 1;
    }
    for (size_t z = 0; z < extent.depth; ++z) {
        for (size_t y = 0; y < extent.height; ++y) {
            const uint64_t to = dst.base + z * dst.slice + y * dst.pitch;
            const uint64_t from = src.base + z * src.slice + y * src.pitch;
            if (src.in_arena && !dst.in_arena) note_uninitialized(runtime, from, extent.width);
            std::memmove(host_view(runtime, to), host_view(runtime, from), extent.width);
            if (dst.in_arena && src.in_arena) copy_init_bits(runtime.memory(), to, from, extent.width);
            if (dst.in_arena && !src.in_arena) runtime.memory().mark_initialized(to, extent.width);
        }
    }
}

CopyRows rows_of_copy(Runtime& runtime, const abi::Memcpy3DParms& params) {
    const auto [dst, src] = read_sides(runtime, params);
    const abi::Extent extent = extent_in_bytes(params);
    const auto rows = [&](const Side& side) {
        return MemoryRows{side.base, side.pitch, side.slice, extent.width, extent.height, extent.depth};
    };
    return {rows(dst), rows(src)};
}

MemoryRows rows_of_fill(const abi::MemsetParams& params, size_t depth, size_t slice_pitch) {
    return {to_address(params.dst), params.pitch, slice_pitch, params.width * params.elementSize, params.height, depth};
}

void check_fill(Runtime& runtime, const abi::MemsetParams& params, size_t depth, size_t slice_pitch, bool now) {
    if (params.elementSize != 1 && params.elementSize != 2 && params.elementSize != 4)
        throw Failure{kErrInvalidValue, "elements of " + std::to_string(params.elementSize) + " bytes; a fill takes 1, 2 or 4"};
    const size_t row = params.width * params.elementSize;
    if (row == 0 || params.height == 0 || depth == 0) return;
    if (params.height > 1 && row > params.pitch)
        throw Failure{kErrInvalidValue,
                      "rows of " + std::to_string(row) + " bytes do not fit in the pitch " + std::to_string(params.pitch)};
    require(runtime.is_device_address(params.dst) || host_accessible(runtime, to_address(params.dst)), kErrInvalidValue,
            "the destination of a fill is no device address");
    require(to_address(params.dst) % params.elementSize == 0, kErrInvalidValue, "the destination of a fill is not aligned to its elements");
    check_range(runtime, "writes", to_address(params.dst), (depth - 1) * slice_pitch + (params.height - 1) * params.pitch + row, now);
}

void run_fill(Runtime& runtime, const abi::MemsetParams& params, size_t depth, size_t slice_pitch) {
    check_fill(runtime, params, depth, slice_pitch, true);
    const size_t row = params.width * params.elementSize;
    if (row == 0) return;
    for (size_t z = 0; z < depth; ++z) {
        for (size_t y = 0; y < params.height; ++y) {
            const uint64_t address = to_address(params.dst) + z * slice_pitch + y * params.pitch;
            std::byte* at = host_view(runtime, address);
            if (params.elementSize == 1) {
                std::memset(at, static_cast<int>(params.value & 0xFF), row);
            } else {
                for (size_t i = 0; i < params.width; ++i) std::memcpy(at + i * params.elementSize, &params.value, params.elementSize);
            }
            runtime.memory().mark_initialized(address, row);
        }
    }
}

}  // namespace aicf::emu

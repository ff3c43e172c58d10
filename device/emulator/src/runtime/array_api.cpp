// Allocation of CUDA arrays and copies to and from them (CUDA runtime API, "Memory management").
#include <algorithm>
#include <array>

#include "array.hpp"
#include "graph.hpp"
#include "memory_ops.hpp"

namespace aicf::emu {
namespace {

constexpr uint64_t kRowAlign = 512;  // of rows and slices; textures of pitched memory ask for less
constexpr uint64_t kMostWidth = 131072;

struct Arrays {
    std::map<const void*, std::unique_ptr<Array>> plain, mipmapped;
};
Arrays& arrays() {
    static Arrays* all = new Arrays;  // as the runtime, it is never destroyed
    return *all;
}

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// Fills dimensions and levels, without addresses, and returns the bytes that all levels need.
uint64_t lay_out(Array& array, uint32_t num_levels) {
    const abi::Extent& extent = array.extent;
    ImageDescriptor& image = array.image;
    image.format = texel_format(array.channels);
    image.is_layered = (array.flags & abi::kArrayLayered) != 0;
    image.is_cubemap = (array.flags & abi::kArrayCubemap) != 0;
    require(extent.width != 0 && extent.width <= kMostWidth && extent.height <= kMostWidth && extent.depth <= 16384, kErrInvalidValue,
            "an array has from 1 to 131072 columns and rows, and up to 16384 slices or layers");
    require(extent.height != 0 || extent.depth == 0 || image.is_layered, kErrInvalidValue, "an array with depth has a height");
    if (image.is_cubemap) {
        require(extent.width == extent.height && extent.depth % 6 == 0 && extent.depth != 0, kErrInvalidValue,
                "a cube map has square faces, and 6 of them for each cube");
    }
    const bool has_slices = extent.depth != 0 && !image.is_layered && !image.is_cubemap;
    image.dimensions = static_cast<uint8_t>(has_slices ? 3 : extent.height != 0 ? 2 : 1);
    image.num_layers = static_cast<uint32_t>(!image.is_layered  ? 1
                                             : image.is_cubemap ? extent.depth / 6
                                                                : std::max<size_t>(extent.depth, 1));
    uint64_t at = 0;
    for (uint32_t level = 0; level < num_levels; ++level) {
        ImageLevel each;
        const auto shrink = [&](size_t size) { return static_cast<uint32_t>(std::max<size_t>(size >> level, 1)); };
        each.width = shrink(extent.width);
        each.height = shrink(extent.height);
        each.depth = has_slices ? shrink(extent.depth) : static_cast<uint32_t>(std::max<size_t>(extent.depth, 1));
        each.row_pitch = round_up(uint64_t{each.width} * image.format.texel_bytes(), kRowAlign);
        each.slice_pitch = each.row_pitch * each.height;
        each.address = at;
        at += each.slice_pitch * each.depth;
        image.levels.push_back(each);
    }
    return at;
}

std::unique_ptr<Array> make_array(Runtime& runtime, const abi::ChannelFormatDesc* channels, abi::Extent extent, unsigned flags,
                                  uint32_t num_levels) {
    require(channels != nullptr, kErrInvalidValue, "the channel descriptor is null");
    constexpr unsigned kKnown = abi::kArrayLayered | abi::kArraySurfaceLoadStore | abi::kArrayCubemap | abi::kArrayTextureGather;
    if ((flags & ~kKnown) != 0)
        throw Failure{kErrNotSupported, "array flags " + hex(flags & ~kKnown) + ": sparse, deferred and graphics arrays are not emulated"};
    auto array = std::make_unique<Array>();
    array->channels = *channels;
    array->extent = extent;
    array->flags = flags;
    const uint64_t size_bytes = lay_out(*array, num_levels);
    array->address = runtime.memory().allocate(size_bytes, MemoryKind::kDevice, "CUDA array");
    require(array->address != 0, kErrMemoryAllocation, "no memory for the array (option memory_bytes)");
    for (ImageLevel& level : array->image.levels) level.address += array->address;
    return array;
}

void* keep(std::map<const void*, std::unique_ptr<Array>>& table, std::unique_ptr<Array> array) {
    void* handle = array.get();
    table.emplace(handle, std::move(array));
    return handle;
}

const Array& find_in(const std::map<const void*, std::unique_ptr<Array>>& table, const void* handle) {
    const auto found = table.find(handle);
    require(found != table.end(), kErrInvalidResourceHandle, "the array handle is none, or the array was freed");
    return *found->second;
}

// A side of a copy that is an array: its memory as a pitched pointer, positions in bytes.
void lower_side(void*& handle, abi::Pos& position, abi::PitchedPtr& pointer, const abi::Extent& elements) {
    const Array& array = find_array(handle);
    const ImageLevel& level = array.image.levels.front();
    const auto leaves = [](size_t at, size_t count, size_t most) { return at > most || count > most - at; };
    if (leaves(position.x, elements.width, level.width) || leaves(position.y, elements.height, level.height) ||
        leaves(position.z, elements.depth, level.depth)) {
        throw Failure{kErrInvalidValue, "the copy of " + std::to_string(elements.width) + " x " + std::to_string(elements.height) + " x " +
                                            std::to_string(elements.depth) + " elements leaves the array of " +
                                            std::to_string(level.width) + " x " + std::to_string(level.height) + " x " +
                                            std::to_string(level.depth)};
    }
    const uint32_t texel_bytes = array.image.format.texel_bytes();
    pointer = {reinterpret_cast<void*>(level.address), level.row_pitch, level.width * texel_bytes, level.height};
    position.x *= texel_bytes;
    handle = nullptr;
}

// The copies of two dimensions count bytes in a row, the general one counts elements where an array takes part.
abi::Extent to_elements(const Array& array, size_t width_bytes, size_t height) {
    const uint32_t texel_bytes = array.image.format.texel_bytes();
    require(width_bytes % texel_bytes == 0, kErrInvalidValue, "the width in bytes is no multiple of the array's element size");
    return {width_bytes / texel_bytes, height, 1};
}

abi::Memcpy3DParms to_array(void* dst, size_t x_bytes, size_t y, const void* src, size_t pitch, size_t width, size_t height, int kind) {
    abi::Memcpy3DParms params{};
    const Array& array = find_array(dst);
    params.dstArray = dst;
    params.dstPos = {to_elements(array, x_bytes, 1).width, y, 0};
    params.srcPtr = {const_cast<void*>(src), pitch, width, height};
    params.extent = to_elements(array, width, height);
    params.kind = kind;
    return params;
}

abi::Memcpy3DParms from_array(void* dst, size_t pitch, const void* src, size_t x_bytes, size_t y, size_t width, size_t height, int kind) {
    abi::Memcpy3DParms params{};
    const Array& array = find_array(src);
    params.srcArray = const_cast<void*>(src);
    params.srcPos = {to_elements(array, x_bytes, 1).width, y, 0};
    params.dstPtr = {dst, pitch, width, height};
    params.extent = to_elements(array, width, height);
    params.kind = kind;
    return params;
}

abi::Memcpy3DParms between(void* dst, size_t dst_x, size_t dst_y, const void* src, size_t src_x, size_t src_y, size_t width, size_t height,
                           int kind) {
    abi::Memcpy3DParms params{};
    const Array& array = find_array(dst);
    params.srcArray = const_cast<void*>(src);
    params.dstArray = dst;
    params.srcPos = {to_elements(array, src_x, 1).width, src_y, 0};
    params.dstPos = {to_elements(array, dst_x, 1).width, dst_y, 0};
    params.extent = to_elements(array, width, height);
    params.kind = kind;
    return params;
}

// The deprecated copies of `count` bytes go on from row to row; one row is what programs use them for.
void require_one_row(const void* handle, size_t x_bytes, size_t count) {
    const Array& array = find_array(handle);
    require(x_bytes + count <= uint64_t{array.image.levels[0].width} * array.image.format.texel_bytes(), kErrNotSupported,
            "a linear copy over several rows of an array is not emulated: use cudaMemcpy2DToArray or cudaMemcpy2DFromArray");
}

}  // namespace

const Array& find_array(const void* handle) { return find_in(arrays().plain, handle); }
const Array& find_mipmapped_array(const void* handle) { return find_in(arrays().mipmapped, handle); }

TexelFormat texel_format(const abi::ChannelFormatDesc& channels) {
    const std::array<int, 4> bits{channels.x, channels.y, channels.z, channels.w};
    TexelFormat format;
    format.channels = static_cast<uint8_t>(std::count_if(bits.begin(), bits.end(), [](int b) { return b != 0; }));
    format.channel_bits = static_cast<uint8_t>(bits[0]);
    bool fits = (bits[0] == 8 || bits[0] == 16 || bits[0] == 32) && format.channels != 0 && format.channels != 3 && channels.f >= 0 &&
                channels.f <= 2;
    for (uint32_t i = 0; i < 4; ++i) fits &= bits[i] == (i < format.channels ? bits[0] : 0);
    fits &= !(channels.f == 2 && bits[0] == 8);
    require(fits, kErrInvalidChannelDescriptor,
            "a channel format has 1, 2 or 4 channels of 8, 16 or 32 bits each, signed, unsigned, or float of 16 or 32 bits");
    format.kind = static_cast<TexelKind>(channels.f);
    return format;
}

abi::Memcpy3DParms lower_arrays(const abi::Memcpy3DParms& params) {
    if (params.srcArray == nullptr && params.dstArray == nullptr) return params;
    abi::Memcpy3DParms lowered = params;
    uint32_t texel_bytes = 0;
    for (const void* handle : {params.srcArray, params.dstArray}) {
        if (handle == nullptr) continue;
        const uint32_t bytes = find_array(handle).image.format.texel_bytes();
        require(texel_bytes == 0 || texel_bytes == bytes, kErrInvalidValue, "the two arrays of a copy differ in the size of an element");
        texel_bytes = bytes;
    }
    if (params.srcArray != nullptr) lower_side(lowered.srcArray, lowered.srcPos, lowered.srcPtr, params.extent);
    if (params.dstArray != nullptr) lower_side(lowered.dstArray, lowered.dstPos, lowered.dstPtr, params.extent);
    lowered.extent.width *= texel_bytes;
    return lowered;
}

}  // namespace aicf::emu

using namespace aicf::emu;

AICF_API cudaMalloc3DArray(void** out, const abi::ChannelFormatDesc* channels, abi::Extent extent, unsigned flags) {
    return api("cudaMalloc3DArray", [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        forbid_during_capture(runtime, "cudaMalloc3DArray");
        *out = keep(arrays().plain, make_array(runtime, channels, extent, flags, 1));
    });
}

AICF_API cudaMallocArray(void** out, const abi::ChannelFormatDesc* channels, size_t width, size_t height, unsigned flags) {
    return api("cudaMallocArray", [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        forbid_during_capture(runtime, "cudaMallocArray");
        *out = keep(arrays().plain, make_array(runtime, channels, {width, height, 0}, flags, 1));
    });
}

AICF_API cudaFreeArray(void* handle) {
    return api("cudaFreeArray", [&](Runtime& runtime) {
        if (handle == nullptr) return;
        forbid_during_capture(runtime, "cudaFreeArray");
        const Array& array = find_array(handle);
        require(array.address != 0, kErrInvalidValue, "a level of a mipmapped array is freed with it, by cudaFreeMipmappedArray");
        runtime.memory().release(array.address);
        arrays().plain.erase(handle);
    });
}

AICF_API cudaMallocMipmappedArray(void** out, const abi::ChannelFormatDesc* channels, abi::Extent extent, unsigned num_levels,
                                  unsigned flags) {
    return api("cudaMallocMipmappedArray", [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        forbid_during_capture(runtime, "cudaMallocMipmappedArray");
        uint32_t most = 1;
        while (std::max({extent.width, extent.height, (flags & abi::kArrayLayered) != 0 ? size_t{0} : extent.depth}) >> most) ++most;
        auto whole = make_array(runtime, channels, extent, flags, std::clamp(num_levels, 1u, most));
        for (const ImageLevel& level : whole->image.levels) {
            auto each = std::make_unique<Array>(*whole);
            each->address = 0;
            each->level_handles.clear();
            each->image.levels = {level};
            each->extent = {level.width, extent.height == 0 ? 0 : level.height, extent.depth == 0 ? 0 : level.depth};
            whole->level_handles.push_back(keep(arrays().plain, std::move(each)));
        }
        *out = keep(arrays().mipmapped, std::move(whole));
    });
}

AICF_API cudaGetMipmappedArrayLevel(void** out, const void* handle, unsigned level) {
    return api("cudaGetMipmappedArrayLevel", [&](Runtime&) {
        const Array& array = find_mipmapped_array(handle);
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        require(level < array.level_handles.size(), kErrInvalidValue, "the mipmapped array has no such level");
        *out = array.level_handles[level];
    });
}

AICF_API cudaFreeMipmappedArray(void* handle) {
    return api("cudaFreeMipmappedArray", [&](Runtime& runtime) {
        if (handle == nullptr) return;
        forbid_during_capture(runtime, "cudaFreeMipmappedArray");
        const Array& array = find_mipmapped_array(handle);
        for (const void* level : array.level_handles) arrays().plain.erase(level);
        runtime.memory().release(array.address);
        arrays().mipmapped.erase(handle);
    });
}

AICF_API cudaArrayGetInfo(abi::ChannelFormatDesc* channels, abi::Extent* extent, unsigned* flags, const void* handle) {
    return api("cudaArrayGetInfo", [&](Runtime&) {
        const Array& array = find_array(handle);
        if (channels != nullptr) *channels = array.channels;
        if (extent != nullptr) *extent = array.extent;
        if (flags != nullptr) *flags = array.flags;
    });
}

AICF_API cudaGetChannelDesc(abi::ChannelFormatDesc* channels, const void* handle) {
    return api("cudaGetChannelDesc", [&](Runtime&) {
        require(channels != nullptr, kErrInvalidValue, "the result pointer is null");
        *channels = find_array(handle).channels;
    });
}

AICF_TWIN_API(cudaMemcpy2DToArray, _ptds,
              (void* dst, size_t x, size_t y, const void* src, size_t pitch, size_t width, size_t height, int kind),
              (dst, x, y, src, pitch, width, height, kind)) {
    return api("cudaMemcpy2DToArray",
               [&](Runtime& runtime) { copy_now(runtime, per_thread, to_array(dst, x, y, src, pitch, width, height, kind)); });
}

AICF_TWIN_API(cudaMemcpy2DToArrayAsync, _ptsz,
              (void* dst, size_t x, size_t y, const void* src, size_t pitch, size_t width, size_t height, int kind, void* stream),
              (dst, x, y, src, pitch, width, height, kind, stream)) {
    return api("cudaMemcpy2DToArrayAsync",
               [&](Runtime& runtime) { copy_in(runtime, stream, per_thread, to_array(dst, x, y, src, pitch, width, height, kind)); });
}

AICF_TWIN_API(cudaMemcpy2DFromArray, _ptds,
              (void* dst, size_t pitch, const void* src, size_t x, size_t y, size_t width, size_t height, int kind),
              (dst, pitch, src, x, y, width, height, kind)) {
    return api("cudaMemcpy2DFromArray",
               [&](Runtime& runtime) { copy_now(runtime, per_thread, from_array(dst, pitch, src, x, y, width, height, kind)); });
}

AICF_TWIN_API(cudaMemcpy2DFromArrayAsync, _ptsz,
              (void* dst, size_t pitch, const void* src, size_t x, size_t y, size_t width, size_t height, int kind, void* stream),
              (dst, pitch, src, x, y, width, height, kind, stream)) {
    return api("cudaMemcpy2DFromArrayAsync",
               [&](Runtime& runtime) { copy_in(runtime, stream, per_thread, from_array(dst, pitch, src, x, y, width, height, kind)); });
}

AICF_TWIN_API(cudaMemcpy2DArrayToArray, _ptds,
              (void* dst, size_t dst_x, size_t dst_y, const void* src, size_t src_x, size_t src_y, size_t width, size_t height, int kind),
              (dst, dst_x, dst_y, src, src_x, src_y, width, height, kind)) {
    return api("cudaMemcpy2DArrayToArray", [&](Runtime& runtime) {
        copy_now(runtime, per_thread, between(dst, dst_x, dst_y, src, src_x, src_y, width, height, kind));
    });
}

AICF_TWIN_API(cudaMemcpyToArray, _ptds, (void* dst, size_t x, size_t y, const void* src, size_t count, int kind),
              (dst, x, y, src, count, kind)) {
    return api("cudaMemcpyToArray", [&](Runtime& runtime) {
        require_one_row(dst, x, count);
        copy_now(runtime, per_thread, to_array(dst, x, y, src, count, count, 1, kind));
    });
}

AICF_TWIN_API(cudaMemcpyToArrayAsync, _ptsz, (void* dst, size_t x, size_t y, const void* src, size_t count, int kind, void* stream),
              (dst, x, y, src, count, kind, stream)) {
    return api("cudaMemcpyToArrayAsync", [&](Runtime& runtime) {
        require_one_row(dst, x, count);
        copy_in(runtime, stream, per_thread, to_array(dst, x, y, src, count, count, 1, kind));
    });
}

AICF_TWIN_API(cudaMemcpyFromArray, _ptds, (void* dst, const void* src, size_t x, size_t y, size_t count, int kind),
              (dst, src, x, y, count, kind)) {
    return api("cudaMemcpyFromArray", [&](Runtime& runtime) {
        require_one_row(src, x, count);
        copy_now(runtime, per_thread, from_array(dst, count, src, x, y, count, 1, kind));
    });
}

AICF_TWIN_API(cudaMemcpyFromArrayAsync, _ptsz, (void* dst, const void* src, size_t x, size_t y, size_t count, int kind, void* stream),
              (dst, src, x, y, count, kind, stream)) {
    return api("cudaMemcpyFromArrayAsync", [&](Runtime& runtime) {
        require_one_row(src, x, count);
        copy_in(runtime, stream, per_thread, from_array(dst, count, src, x, y, count, 1, kind));
    });
}

AICF_TWIN_API(cudaMemcpyArrayToArray, _ptds,
              (void* dst, size_t dst_x, size_t dst_y, const void* src, size_t src_x, size_t src_y, size_t count, int kind),
              (dst, dst_x, dst_y, src, src_x, src_y, count, kind)) {
    return api("cudaMemcpyArrayToArray", [&](Runtime& runtime) {
        require_one_row(src, src_x, count);
        require_one_row(dst, dst_x, count);
        copy_now(runtime, per_thread, between(dst, dst_x, dst_y, src, src_x, src_y, count, 1, kind));
    });
}

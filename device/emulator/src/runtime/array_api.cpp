// CUDA arrays and mipmapped arrays: making them, asking about them, copying to and from them.
#include <algorithm>
#include <cstring>

#include "../memory/round_up.hpp"
#include "arrays.hpp"
#include "graph.hpp"
#include "memory_ops.hpp"
#include "pools.hpp"
#include "queue.hpp"

using namespace aicf::emu;

namespace {

constexpr unsigned kAllFlags = 0x0F;
constexpr uint64_t kRowAlign = 64;

void check_extent(const Target& target, const abi::Extent& extent, unsigned flags) {
    const auto limit = [&](int attribute) {
        int value = 0;
        device_attribute(target, attribute, &value);
        return static_cast<size_t>(value);
    };
    const bool layered = (flags & kLayered) != 0;
    const bool cubemap = (flags & kCubemap) != 0;
    require(extent.width != 0, kErrInvalidValue, "an array has a width of at least 1");
    require(extent.depth == 0 || extent.height != 0 || layered, kErrInvalidValue, "a height of 0 with a depth needs cudaArrayLayered");
    if (cubemap) {
        require(extent.width == extent.height, kErrInvalidValue, "the faces of a cube map are squares");
        require(layered ? extent.depth % 6 == 0 && extent.depth != 0 : extent.depth == 6, kErrInvalidValue,
                "a cube map has six faces (a layered one a multiple of six)");
    }
    // cudaDeviceAttr: the most texels of each kind of texture.
    const bool one = extent.height == 0, three = extent.depth != 0 && !layered && !cubemap;
    const size_t width = three ? limit(24) : one ? limit(layered ? 42 : 21) : limit(layered ? 27 : 22);
    const size_t height = three ? limit(25) : one ? 1 : limit(layered ? 28 : 23);
    const size_t depth = three ? limit(26) : limit(one ? 43 : 29);
    if (extent.width > width || std::max<size_t>(extent.height, 1) > height || extent.depth > depth)
        throw Failure{kErrInvalidValue, "an array of " + std::to_string(extent.width) + " x " + std::to_string(extent.height) + " x " +
                                            std::to_string(extent.depth) + " is beyond the device's limits"};
}

// The layout of an image of this extent, from address 0.
ImageLevel lay_out(const abi::Extent& extent, uint32_t element_bytes) {
    ImageLevel level;
    level.width = static_cast<uint32_t>(extent.width);
    level.height = static_cast<uint32_t>(std::max<size_t>(extent.height, 1));
    level.depth = static_cast<uint32_t>(std::max<size_t>(extent.depth, 1));
    level.row_pitch = round_up(extent.width * element_bytes, kRowAlign);
    level.slice_pitch = level.row_pitch * level.height;
    return level;
}

uint64_t level_bytes(const ImageLevel& level) { return level.slice_pitch * level.depth; }

std::shared_ptr<CudaArray> describe(const abi::ChannelFormatDesc& format, const abi::Extent& extent, unsigned flags) {
    auto array = std::make_shared<CudaArray>();
    array->format = format;
    array->extent = extent;
    array->flags = flags;
    array->element_bytes = texel_format(format).texel_bytes();
    array->level = lay_out(extent, array->element_bytes);
    return array;
}

int make_array(const char* function, void** out, const abi::ChannelFormatDesc* format, const abi::Extent& extent, unsigned flags) {
    return api(function, [&](Runtime& runtime) {
        require(out != nullptr && format != nullptr, kErrInvalidValue, "a pointer is null");
        require((flags & ~kAllFlags) == 0, kErrNotSupported, "sparse and deferred-mapping arrays are not supported by the emulated device");
        forbid_during_capture(runtime, function);
        check_extent(*runtime.target, extent, flags);
        auto array = describe(*format, extent, flags);
        array->allocation = allocate_memory(runtime, level_bytes(array->level), MemoryKind::kDevice, "CUDA array");
        array->level.address = array->allocation;
        *out = array.get();
        images().arrays[array.get()] = std::move(array);
    });
}

int copy_array(const char* function, bool per_thread, abi::Memcpy3DParms params, void* stream, bool is_async) {
    return api(function, [&](Runtime& runtime) {
        if (is_async)
            enqueue_copy(runtime, stream, per_thread, params);
        else
            copy_now(runtime, per_thread, params);
    });
}

// The old calls give the width of a row in bytes also where an array takes part.
struct Rows {
    size_t x_bytes, y, width_bytes, height;
};

void set_array(const CudaArray& array, const Rows& rows, abi::Pos* position, abi::Extent* extent) {
    require(rows.x_bytes % array.element_bytes == 0 && rows.width_bytes % array.element_bytes == 0, kErrInvalidValue,
            "the offset and the width are no multiples of the array's element size");
    *position = {rows.x_bytes / array.element_bytes, rows.y, 0};
    *extent = {rows.width_bytes / array.element_bytes, rows.height, 1};
}

int rows_to_array(const char* function, bool per_thread, void* dst, const void* src, size_t src_pitch, const Rows& rows, int kind,
                  void* stream, bool is_async) {
    abi::Memcpy3DParms params{};
    const int code = api(function, [&](Runtime& runtime) {
        set_array(*find_array(dst), rows, &params.dstPos, &params.extent);
        require(rows.height <= 1 || src_pitch >= rows.width_bytes, kErrInvalidPitchValue, "the pitch is less than the width of a row");
    });
    if (code != kNoError) return code;
    params.dstArray = dst;
    params.srcPtr = {const_cast<void*>(src), src_pitch, rows.width_bytes, rows.height};
    params.kind = kind;
    return copy_array(function, per_thread, params, stream, is_async);
}

int rows_from_array(const char* function, bool per_thread, void* dst, size_t dst_pitch, const void* src, const Rows& rows, int kind,
                    void* stream, bool is_async) {
    abi::Memcpy3DParms params{};
    const int code = api(function, [&](Runtime& runtime) {
        set_array(*find_array(src), rows, &params.srcPos, &params.extent);
        require(rows.height <= 1 || dst_pitch >= rows.width_bytes, kErrInvalidPitchValue, "the pitch is less than the width of a row");
    });
    if (code != kNoError) return code;
    params.srcArray = const_cast<void*>(src);
    params.dstPtr = {dst, dst_pitch, rows.width_bytes, rows.height};
    params.kind = kind;
    return copy_array(function, per_thread, params, stream, is_async);
}

// A run of bytes of an array: the rest of a row, whole rows, the beginning of a row. `copy(offset in the run, rows)` for each of the three.
template <typename Copy>
int copy_run(const char* function, const void* handle, size_t x, size_t y, size_t count, Copy copy) {
    size_t row_bytes = 0;
    int code = api(function, [&](Runtime&) {
        const auto array = find_array(handle);
        row_bytes = array->extent.width * array->element_bytes;
        require(x <= row_bytes, kErrInvalidValue, "the offset lies beyond the end of a row");
    });
    size_t done = 0;
    const auto step = [&](const Rows& rows) {
        if (code == kNoError && rows.width_bytes != 0 && rows.height != 0) code = copy(done, rows);
        done += rows.width_bytes * rows.height;
    };
    if (code != kNoError) return code;
    if (x != 0) {
        step({x, y, std::min(count, row_bytes - x), 1});
        ++y;
    }
    const size_t whole = (count - done) / row_bytes;
    step({0, y, row_bytes, whole});
    step({0, y + whole, count - done, 1});
    return code;
}

int array_to_array(const char* function, bool per_thread, void* dst, const Rows& to, const void* src, const Rows& from, int kind) {
    abi::Memcpy3DParms params{};
    const int code = api(function, [&](Runtime& runtime) {
        set_array(*find_array(dst), to, &params.dstPos, &params.extent);
        set_array(*find_array(src), from, &params.srcPos, &params.extent);
    });
    if (code != kNoError) return code;
    params.dstArray = dst;
    params.srcArray = const_cast<void*>(src);
    params.kind = kind;
    return copy_array(function, per_thread, params, nullptr, false);
}

}  // namespace

Images& aicf::emu::images() {
    static auto* const all = new Images;
    return *all;
}

void Images::clear() {
    for (const auto& [object, record] : textures) remove_texture(object);
    for (const auto& [object, record] : surfaces) remove_surface(object);
    textures.clear();
    surfaces.clear();
    arrays.clear();
    mipmapped_arrays.clear();
}

CudaArray::~CudaArray() {
    if (allocation != 0 && Runtime::get().memory_if_made() != nullptr) Runtime::get().memory().release(allocation);
}

MipmappedArray::~MipmappedArray() {
    if (allocation != 0 && Runtime::get().memory_if_made() != nullptr) Runtime::get().memory().release(allocation);
}

std::shared_ptr<CudaArray> aicf::emu::find_array(const void* handle) {
    const auto found = images().arrays.find(const_cast<void*>(handle));
    require(found != images().arrays.end(), kErrInvalidResourceHandle, "the handle is no CUDA array (or the array was freed)");
    return found->second;
}

TexelFormat aicf::emu::texel_format(const abi::ChannelFormatDesc& format) {
    const int bits[] = {format.x, format.y, format.z, format.w};
    const auto channels = std::count_if(std::begin(bits), std::end(bits), [](int width) { return width != 0; });
    const bool even = std::all_of(bits, bits + channels, [&](int width) { return width == format.x; });
    const bool sound = even && channels != 0 && channels != 3 && (format.x == 8 || format.x == 16 || format.x == 32) && format.f >= 0 &&
                       format.f <= 2 && !(format.f == 2 && format.x == 8);
    if (!sound)
        throw Failure{kErrInvalidChannelDescriptor,
                      "channels of " + std::to_string(format.x) + ", " + std::to_string(format.y) + ", " + std::to_string(format.z) + ", " +
                          std::to_string(format.w) + " bits, kind " + std::to_string(format.f) +
                          ": the emulated device has 1, 2 or 4 channels of 8, 16 or 32 bits, signed, unsigned or float"};
    return {static_cast<TexelKind>(format.f), static_cast<uint8_t>(channels), static_cast<uint8_t>(format.x)};
}

AICF_API cudaMallocArray(void** array, const abi::ChannelFormatDesc* format, size_t width, size_t height, unsigned flags) {
    return make_array("cudaMallocArray", array, format, {width, height, 0}, flags);
}

AICF_API cudaMalloc3DArray(void** array, const abi::ChannelFormatDesc* format, abi::Extent extent, unsigned flags) {
    return make_array("cudaMalloc3DArray", array, format, extent, flags);
}

AICF_API cudaFreeArray(void* array) {
    return api("cudaFreeArray", [&](Runtime& runtime) {
        if (array == nullptr) return;
        forbid_during_capture(runtime, "cudaFreeArray");
        const auto found = find_array(array);
        require(found->allocation != 0, kErrInvalidValue, "a level of a mipmapped array is freed with the whole");
        finish_all(runtime);
        images().arrays.erase(array);
    });
}

AICF_API cudaMallocMipmappedArray(void** out, const abi::ChannelFormatDesc* format, abi::Extent extent, unsigned num_levels,
                                  unsigned flags) {
    return api("cudaMallocMipmappedArray", [&](Runtime& runtime) {
        require(out != nullptr && format != nullptr && num_levels != 0, kErrInvalidValue, "a pointer is null, or there are no levels");
        require((flags & ~kAllFlags) == 0, kErrNotSupported, "sparse and deferred-mapping arrays are not supported by the emulated device");
        forbid_during_capture(runtime, "cudaMallocMipmappedArray");
        check_extent(*runtime.target, extent, flags);
        const bool flat = (flags & (kLayered | kCubemap)) != 0;
        const size_t largest = std::max({extent.width, extent.height, flat ? size_t{0} : extent.depth});
        unsigned most = 1;
        while (largest >> most != 0) ++most;
        auto whole = std::make_shared<MipmappedArray>();
        uint64_t bytes = 0;
        for (unsigned i = 0; i < std::min(num_levels, most); ++i) {
            const auto halved = [&](size_t size) { return size == 0 ? size : std::max<size_t>(size >> i, 1); };
            auto level =
                describe(*format, {halved(extent.width), halved(extent.height), flat ? extent.depth : halved(extent.depth)}, flags);
            level->level.address = bytes;
            bytes += round_up(level_bytes(level->level), 512);
            whole->levels.push_back(std::move(level));
        }
        whole->allocation = allocate_memory(runtime, bytes, MemoryKind::kDevice, "CUDA mipmapped array");
        for (const auto& level : whole->levels) {
            level->level.address += whole->allocation;
            images().arrays[level.get()] = level;
        }
        *out = whole.get();
        images().mipmapped_arrays[whole.get()] = std::move(whole);
    });
}

AICF_API cudaFreeMipmappedArray(void* array) {
    return api("cudaFreeMipmappedArray", [&](Runtime& runtime) {
        if (array == nullptr) return;
        forbid_during_capture(runtime, "cudaFreeMipmappedArray");
        const auto found = images().mipmapped_arrays.find(array);
        require(found != images().mipmapped_arrays.end(), kErrInvalidResourceHandle, "the handle is no mipmapped array (or it was freed)");
        for (const auto& level : found->second->levels) images().arrays.erase(level.get());
        images().mipmapped_arrays.erase(found);
    });
}

AICF_API cudaGetMipmappedArrayLevel(void** level, const void* array, unsigned index) {
    return api("cudaGetMipmappedArrayLevel", [&](Runtime& runtime) {
        require(level != nullptr, kErrInvalidValue, "the result pointer is null");
        const auto found = images().mipmapped_arrays.find(const_cast<void*>(array));
        require(found != images().mipmapped_arrays.end(), kErrInvalidResourceHandle, "the handle is no mipmapped array (or it was freed)");
        require(index < found->second->levels.size(), kErrInvalidValue, "the array has no such level");
        *level = found->second->levels[index].get();
    });
}

AICF_API cudaArrayGetInfo(abi::ChannelFormatDesc* format, abi::Extent* extent, unsigned* flags, void* array) {
    return api("cudaArrayGetInfo", [&](Runtime& runtime) {
        const auto found = find_array(array);
        if (format != nullptr) *format = found->format;
        if (extent != nullptr) *extent = found->extent;
        if (flags != nullptr) *flags = found->flags;
    });
}

AICF_API cudaGetChannelDesc(abi::ChannelFormatDesc* format, const void* array) {
    return api("cudaGetChannelDesc", [&](Runtime& runtime) {
        require(format != nullptr, kErrInvalidValue, "the result pointer is null");
        *format = find_array(array)->format;
    });
}

AICF_TWIN_API(cudaMemcpy2DToArray, _ptds,
              (void* dst, size_t x, size_t y, const void* src, size_t src_pitch, size_t width, size_t height, int kind),
              (dst, x, y, src, src_pitch, width, height, kind)) {
    return rows_to_array("cudaMemcpy2DToArray", per_thread, dst, src, src_pitch, {x, y, width, height}, kind, nullptr, false);
}

AICF_TWIN_API(cudaMemcpy2DToArrayAsync, _ptsz,
              (void* dst, size_t x, size_t y, const void* src, size_t src_pitch, size_t width, size_t height, int kind, void* stream),
              (dst, x, y, src, src_pitch, width, height, kind, stream)) {
    return rows_to_array("cudaMemcpy2DToArrayAsync", per_thread, dst, src, src_pitch, {x, y, width, height}, kind, stream, true);
}

AICF_TWIN_API(cudaMemcpy2DFromArray, _ptds,
              (void* dst, size_t dst_pitch, const void* src, size_t x, size_t y, size_t width, size_t height, int kind),
              (dst, dst_pitch, src, x, y, width, height, kind)) {
    return rows_from_array("cudaMemcpy2DFromArray", per_thread, dst, dst_pitch, src, {x, y, width, height}, kind, nullptr, false);
}

AICF_TWIN_API(cudaMemcpy2DFromArrayAsync, _ptsz,
              (void* dst, size_t dst_pitch, const void* src, size_t x, size_t y, size_t width, size_t height, int kind, void* stream),
              (dst, dst_pitch, src, x, y, width, height, kind, stream)) {
    return rows_from_array("cudaMemcpy2DFromArrayAsync", per_thread, dst, dst_pitch, src, {x, y, width, height}, kind, stream, true);
}

AICF_TWIN_API(cudaMemcpy2DArrayToArray, _ptds,
              (void* dst, size_t dst_x, size_t dst_y, const void* src, size_t src_x, size_t src_y, size_t width, size_t height, int kind),
              (dst, dst_x, dst_y, src, src_x, src_y, width, height, kind)) {
    return array_to_array("cudaMemcpy2DArrayToArray", per_thread, dst, {dst_x, dst_y, width, height}, src, {src_x, src_y, width, height},
                          kind);
}

// The oldest calls, deprecated: `count` bytes from a place in a row on, and on through the rows that follow.

AICF_TWIN_API(cudaMemcpyToArray, _ptds, (void* dst, size_t x, size_t y, const void* src, size_t count, int kind),
              (dst, x, y, src, count, kind)) {
    return copy_run("cudaMemcpyToArray", dst, x, y, count, [&](size_t offset, const Rows& rows) {
        return rows_to_array("cudaMemcpyToArray", per_thread, dst, static_cast<const char*>(src) + offset, rows.width_bytes, rows, kind,
                             nullptr, false);
    });
}

AICF_TWIN_API(cudaMemcpyToArrayAsync, _ptsz, (void* dst, size_t x, size_t y, const void* src, size_t count, int kind, void* stream),
              (dst, x, y, src, count, kind, stream)) {
    return copy_run("cudaMemcpyToArrayAsync", dst, x, y, count, [&](size_t offset, const Rows& rows) {
        return rows_to_array("cudaMemcpyToArrayAsync", per_thread, dst, static_cast<const char*>(src) + offset, rows.width_bytes, rows,
                             kind, stream, true);
    });
}

AICF_TWIN_API(cudaMemcpyFromArray, _ptds, (void* dst, const void* src, size_t x, size_t y, size_t count, int kind),
              (dst, src, x, y, count, kind)) {
    return copy_run("cudaMemcpyFromArray", src, x, y, count, [&](size_t offset, const Rows& rows) {
        return rows_from_array("cudaMemcpyFromArray", per_thread, static_cast<char*>(dst) + offset, rows.width_bytes, src, rows, kind,
                               nullptr, false);
    });
}

AICF_TWIN_API(cudaMemcpyFromArrayAsync, _ptsz, (void* dst, const void* src, size_t x, size_t y, size_t count, int kind, void* stream),
              (dst, src, x, y, count, kind, stream)) {
    return copy_run("cudaMemcpyFromArrayAsync", src, x, y, count, [&](size_t offset, const Rows& rows) {
        return rows_from_array("cudaMemcpyFromArrayAsync", per_thread, static_cast<char*>(dst) + offset, rows.width_bytes, src, rows, kind,
                               stream, true);
    });
}

AICF_TWIN_API(cudaMemcpyArrayToArray, _ptds,
              (void* dst, size_t dst_x, size_t dst_y, const void* src, size_t src_x, size_t src_y, size_t count, int kind),
              (dst, dst_x, dst_y, src, src_x, src_y, count, kind)) {
    return array_to_array("cudaMemcpyArrayToArray", per_thread, dst, {dst_x, dst_y, count, 1}, src, {src_x, src_y, count, 1}, kind);
}

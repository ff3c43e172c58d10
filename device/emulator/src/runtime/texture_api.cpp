// Texture and surface objects (CUDA runtime API, "Texture object management" and "Surface object management").
#include <cstring>
#include <unordered_map>

#include "array.hpp"

namespace aicf::emu {

namespace abi {

enum ResourceType : int { kResourceArray = 0, kResourceMipmapped = 1, kResourceLinear = 2, kResourcePitch2D = 3 };

struct ResourceDesc {
    int type;
    union {
        struct {
            void* array;
        } array;
        struct {
            void* devPtr;
            ChannelFormatDesc desc;
            size_t sizeInBytes;
        } linear;
        struct {
            void* devPtr;
            ChannelFormatDesc desc;
            size_t width, height, pitchInBytes;
        } pitch2D;
        int reserved[32];
    } res;
    unsigned flags;
};
static_assert(sizeof(ResourceDesc) == 144);

struct TextureDesc {
    int addressMode[3];
    int filterMode;
    int readMode;  // 0: element type, 1: normalised float
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
    unsigned maxAnisotropy;
    int mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
    int disableTrilinearOptimization;
    int seamlessCubemap;
};
static_assert(sizeof(TextureDesc) == 72);

struct ResourceViewDesc {
    int format;
    size_t width, height, depth;
    unsigned firstMipmapLevel, lastMipmapLevel, firstLayer, lastLayer;
    unsigned reserved[16];
};

}  // namespace abi

namespace {

constexpr uint64_t kTextureAlign = 512, kPitchAlign = 32;
constexpr uint64_t kMostLinearTexels = uint64_t{1} << 28;

struct Made {
    abi::ResourceDesc resource;
    abi::TextureDesc texture;
};
std::unordered_map<uint64_t, Made>& made_objects() {
    static auto* objects = new std::unordered_map<uint64_t, Made>;
    return *objects;
}

void require_memory(Runtime& runtime, const void* pointer, uint64_t bytes) {
    require(to_address(pointer) % kTextureAlign == 0, kErrInvalidValue, "the address of a texture's memory is no multiple of 512");
    require(runtime.is_device_address(pointer) && runtime.memory().accessible(to_address(pointer), bytes), kErrInvalidValue,
            "the memory of a texture is not within one allocation on the device");
}

ImageDescriptor describe(Runtime& runtime, const abi::ResourceDesc& resource) {
    ImageDescriptor image;
    switch (resource.type) {
        case abi::kResourceArray: return find_array(resource.res.array.array).image;
        case abi::kResourceMipmapped: return find_mipmapped_array(resource.res.array.array).image;
        case abi::kResourceLinear: {
            const auto& linear = resource.res.linear;
            image.source = ImageDescriptor::Source::kLinear;
            image.format = texel_format(linear.desc);
            const uint64_t texels = linear.sizeInBytes / image.format.texel_bytes();
            require(texels != 0 && texels <= kMostLinearTexels, kErrInvalidValue, "a linear texture has from 1 to 2^28 texels");
            require_memory(runtime, linear.devPtr, linear.sizeInBytes);
            image.levels.push_back(
                {to_address(linear.devPtr), static_cast<uint32_t>(texels), 1, 1, linear.sizeInBytes, linear.sizeInBytes});
            return image;
        }
        case abi::kResourcePitch2D: {
            const auto& pitched = resource.res.pitch2D;
            image.source = ImageDescriptor::Source::kPitched;
            image.dimensions = 2;
            image.format = texel_format(pitched.desc);
            require(pitched.width != 0 && pitched.height != 0 && pitched.pitchInBytes % kPitchAlign == 0 &&
                        pitched.width * image.format.texel_bytes() <= pitched.pitchInBytes,
                    kErrInvalidValue, "rows of a pitched texture fit in its pitch, which is a multiple of 32 bytes");
            require_memory(runtime, pitched.devPtr,
                           (pitched.height - 1) * pitched.pitchInBytes + pitched.width * image.format.texel_bytes());
            image.levels.push_back({to_address(pitched.devPtr), static_cast<uint32_t>(pitched.width), static_cast<uint32_t>(pitched.height),
                                    1, pitched.pitchInBytes, pitched.pitchInBytes * pitched.height});
            return image;
        }
        default: throw Failure{kErrInvalidValue, "resource type " + std::to_string(resource.type) + " is none of 0 to 3"};
    }
}

TextureDescriptor describe(ImageDescriptor image, const abi::TextureDesc& desc) {
    TextureDescriptor texture;
    for (int i = 0; i < 3; ++i) {
        require(desc.addressMode[i] >= 0 && desc.addressMode[i] <= 3, kErrInvalidValue, "an address mode is one of 0 to 3");
        texture.address[i] = static_cast<TextureAddress>(desc.addressMode[i]);
        const bool repeats = texture.address[i] == TextureAddress::kWrap || texture.address[i] == TextureAddress::kMirror;
        if (repeats && desc.normalizedCoords == 0) texture.address[i] = TextureAddress::kClamp;  // as the programming guide says
    }
    require((desc.filterMode | desc.readMode | desc.mipmapFilterMode) <= 1 && desc.filterMode >= 0 && desc.readMode >= 0, kErrInvalidValue,
            "filter and read modes are 0 or 1");
    texture.is_linear_filter = desc.filterMode == 1;
    texture.is_normalized_coordinates = desc.normalizedCoords != 0;
    const bool is_integer = image.format.kind != TexelKind::kFloat;
    texture.is_normalized_read = desc.readMode == 1 && is_integer;
    require(!texture.is_normalized_read || image.format.channel_bits != 32, kErrInvalidNormSetting,
            "32-bit integers cannot be read as normalised floats");
    require(!texture.is_linear_filter || !is_integer || texture.is_normalized_read, kErrInvalidFilterSetting,
            "linear filtering needs a texture that returns floats");
    texture.is_srgb = desc.sRGB != 0;
    std::memcpy(texture.border, desc.borderColor, sizeof texture.border);
    texture.is_linear_mipmap = desc.mipmapFilterMode == 1;
    texture.mipmap_bias = desc.mipmapLevelBias;
    texture.min_mipmap = desc.minMipmapLevelClamp;
    texture.max_mipmap = desc.maxMipmapLevelClamp;
    texture.is_seamless_cubemap = desc.seamlessCubemap != 0;
    texture.max_anisotropy = desc.maxAnisotropy;
    texture.image = std::move(image);
    return texture;
}

const Made& find_made(uint64_t object) {
    const auto found = made_objects().find(object);
    require(found != made_objects().end(), kErrInvalidValue, "there is no such texture or surface object");
    return found->second;
}

}  // namespace
}  // namespace aicf::emu

using namespace aicf::emu;

AICF_API cudaCreateTextureObject(uint64_t* out, const abi::ResourceDesc* resource, const abi::TextureDesc* texture,
                                 const abi::ResourceViewDesc* view) {
    return api("cudaCreateTextureObject", [&](Runtime& runtime) {
        require(out != nullptr && resource != nullptr && texture != nullptr, kErrInvalidValue, "an argument is null");
        require(view == nullptr || view->format == 0, kErrNotSupported, "views of another format are not emulated");
        *out = add_texture(describe(describe(runtime, *resource), *texture));
        made_objects()[*out] = {*resource, *texture};
    });
}

AICF_API cudaDestroyTextureObject(uint64_t object) {
    return api("cudaDestroyTextureObject", [&](Runtime&) {
        require(object == 0 || remove_texture(object), kErrInvalidValue, "there is no such texture object");
        made_objects().erase(object);
    });
}

AICF_API cudaCreateSurfaceObject(uint64_t* out, const abi::ResourceDesc* resource) {
    return api("cudaCreateSurfaceObject", [&](Runtime& runtime) {
        require(out != nullptr && resource != nullptr, kErrInvalidValue, "an argument is null");
        require(resource->type == abi::kResourceArray, kErrInvalidValue, "a surface is made of a CUDA array");
        require((find_array(resource->res.array.array).flags & abi::kArraySurfaceLoadStore) != 0, kErrInvalidValue,
                "the array was not made with cudaArraySurfaceLoadStore");
        *out = add_surface(describe(runtime, *resource));
        made_objects()[*out] = {*resource, {}};
    });
}

AICF_API cudaDestroySurfaceObject(uint64_t object) {
    return api("cudaDestroySurfaceObject", [&](Runtime&) {
        require(object == 0 || remove_surface(object), kErrInvalidValue, "there is no such surface object");
        made_objects().erase(object);
    });
}

AICF_API cudaGetTextureObjectResourceDesc(abi::ResourceDesc* out, uint64_t object) {
    return api("cudaGetTextureObjectResourceDesc", [&](Runtime&) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        *out = find_made(object).resource;
    });
}

AICF_API cudaGetTextureObjectTextureDesc(abi::TextureDesc* out, uint64_t object) {
    return api("cudaGetTextureObjectTextureDesc", [&](Runtime&) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        *out = find_made(object).texture;
    });
}

AICF_API cudaGetSurfaceObjectResourceDesc(abi::ResourceDesc* out, uint64_t object) {
    return api("cudaGetSurfaceObjectResourceDesc", [&](Runtime&) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        *out = find_made(object).resource;
    });
}

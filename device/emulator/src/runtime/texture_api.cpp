// Texture and surface objects: descriptors checked and made into what the engine reads (exec/texture.hpp).
#include <algorithm>
#include <cstring>

#include "arrays.hpp"
#include "graph.hpp"

using namespace aicf::emu;

namespace {

constexpr int kFilterLinear = 1;
constexpr uint64_t kTextureAlign = 512, kTexturePitchAlign = 32;

void describe_array(ImageDescriptor& image, const CudaArray& array) {
    image.source = ImageDescriptor::Source::kArray;
    image.format = texel_format(array.format);
    image.is_layered = (array.flags & kLayered) != 0;
    image.is_cubemap = (array.flags & kCubemap) != 0;
    const bool flat = image.is_layered || image.is_cubemap;
    image.dimensions = array.extent.height == 0 ? 1 : array.extent.depth == 0 || flat ? 2 : 3;
    const auto faces = static_cast<uint32_t>(std::max<size_t>(array.extent.depth, 1));
    image.num_layers = !image.is_layered ? 1 : image.is_cubemap ? faces / 6 : faces;
}

// A texture over plain memory: the range is checked where it is used, as for every access of a kernel.
void describe_memory(Runtime& runtime, ImageDescriptor& image, const abi::ResourceDesc& resource) {
    ImageLevel level;
    const bool linear = resource.resType == abi::kResourceLinear;
    const abi::ChannelFormatDesc& format = linear ? resource.linear.desc : resource.pitch2D.desc;
    image.format = texel_format(format);
    image.source = linear ? ImageDescriptor::Source::kLinear : ImageDescriptor::Source::kPitched;
    image.dimensions = linear ? 1 : 2;
    level.address = to_address(linear ? resource.linear.devPtr : resource.pitch2D.devPtr);
    require(runtime.is_device_address(reinterpret_cast<const void*>(level.address)), kErrInvalidValue, "the address is no device address");
    require(level.address % (linear ? image.format.texel_bytes() : kTexturePitchAlign) == 0, kErrInvalidValue,
            "the address is not aligned to the device's texture alignment");
    if (linear) {
        level.width = static_cast<uint32_t>(resource.linear.sizeInBytes / image.format.texel_bytes());
        level.row_pitch = level.slice_pitch = resource.linear.sizeInBytes;
        int most = 0;
        device_attribute(*runtime.target, 69, &most);
        require(level.width != 0 && level.width <= static_cast<uint32_t>(most), kErrInvalidValue,
                "the size is 0, or more than the texels that a linear texture may have");
    } else {
        level.width = static_cast<uint32_t>(resource.pitch2D.width);
        level.height = static_cast<uint32_t>(resource.pitch2D.height);
        level.row_pitch = resource.pitch2D.pitchInBytes;
        level.slice_pitch = level.row_pitch * level.height;
        require(level.width != 0 && level.height != 0 && level.row_pitch % kTexturePitchAlign == 0 &&
                    level.row_pitch >= uint64_t{level.width} * image.format.texel_bytes(),
                kErrInvalidValue, "the extent is 0, or the pitch is less than a row or no multiple of 32 bytes");
    }
    image.levels = {level};
}

ImageDescriptor describe_resource(Runtime& runtime, const abi::ResourceDesc& resource) {
    ImageDescriptor image;
    switch (resource.resType) {
        case abi::kResourceArray: {
            const auto array = find_array(resource.array);
            describe_array(image, *array);
            image.levels = {array->level};
            return image;
        }
        case abi::kResourceMipmappedArray: {
            const auto found = images().mipmapped_arrays.find(resource.array);
            require(found != images().mipmapped_arrays.end(), kErrInvalidResourceHandle, "the handle is no mipmapped array");
            describe_array(image, *found->second->levels.front());
            for (const auto& level : found->second->levels) image.levels.push_back(level->level);
            return image;
        }
        case abi::kResourceLinear:
        case abi::kResourcePitch2D: describe_memory(runtime, image, resource); return image;
        default: throw Failure{kErrInvalidValue, "the resource is of none of the types 0 to 3"};
    }
}

// cudaResourceViewFormat 1 to 24: the kind and width change in threes of 1, 2 and 4 channels.
TexelFormat view_format(int format) {
    static constexpr TexelFormat kGroups[] = {{TexelKind::kUnsigned, 1, 8}, {TexelKind::kSigned, 1, 8},    {TexelKind::kUnsigned, 1, 16},
                                              {TexelKind::kSigned, 1, 16},  {TexelKind::kUnsigned, 1, 32}, {TexelKind::kSigned, 1, 32},
                                              {TexelKind::kFloat, 1, 16},   {TexelKind::kFloat, 1, 32}};
    constexpr uint8_t kChannels[] = {1, 2, 4};
    require(format >= 1 && format <= 24, kErrNotSupported, "block-compressed views are not supported by the emulated device");
    TexelFormat result = kGroups[(format - 1) / 3];
    result.channels = kChannels[(format - 1) % 3];
    return result;
}

void apply_view(ImageDescriptor& image, const abi::ResourceViewDesc& view) {
    require(image.source == ImageDescriptor::Source::kArray, kErrInvalidValue, "a view is of an array");
    if (view.format != 0) {
        const TexelFormat format = view_format(view.format);
        require(format.texel_bytes() == image.format.texel_bytes(), kErrInvalidValue,
                "the view's texels are of another size than the array's");
        image.format = format;
    }
    require(view.firstMipmapLevel <= view.lastMipmapLevel && view.lastMipmapLevel < image.levels.size(), kErrInvalidValue,
            "the view's levels are not those of the array");
    image.levels = {image.levels.begin() + view.firstMipmapLevel, image.levels.begin() + view.lastMipmapLevel + 1};
    if (!image.is_layered) return;
    const uint32_t faces = image.is_cubemap ? 6 : 1;
    require(view.firstLayer <= view.lastLayer && view.lastLayer < image.num_layers * faces, kErrInvalidValue,
            "the view's layers are not those of the array");
    for (ImageLevel& level : image.levels) {
        level.address += view.firstLayer * level.slice_pitch;
        level.depth = view.lastLayer - view.firstLayer + 1;
    }
    image.num_layers = (view.lastLayer - view.firstLayer + 1) / faces;
}

TextureDescriptor describe_texture(ImageDescriptor image, const abi::TextureDesc& wanted) {
    TextureDescriptor texture;
    for (int i = 0; i < 3; ++i) {
        require(wanted.addressMode[i] >= 0 && wanted.addressMode[i] <= 3, kErrInvalidValue, "an address mode is not in 0 to 3");
        texture.address[i] = static_cast<TextureAddress>(wanted.addressMode[i]);
        // Wrap and mirror are for normalised coordinates; with others they are clamp (CUDA C++ programming guide, "Texture object API").
        const bool folds = texture.address[i] == TextureAddress::kWrap || texture.address[i] == TextureAddress::kMirror;
        if (folds && wanted.normalizedCoords == 0) texture.address[i] = TextureAddress::kClamp;
    }
    const bool integer = image.format.kind != TexelKind::kFloat;
    texture.is_normalized_read = wanted.readMode == 1 && integer;
    require(!texture.is_normalized_read || image.format.channel_bits != 32, kErrInvalidNormSetting,
            "cudaReadModeNormalizedFloat is for integers of 8 and 16 bits");
    texture.is_linear_filter = wanted.filterMode == kFilterLinear;
    require(!texture.is_linear_filter || !integer || texture.is_normalized_read, kErrInvalidFilterSetting,
            "linear filtering needs a texture that is read as float");
    const bool linear_memory = image.source == ImageDescriptor::Source::kLinear;
    require(!linear_memory || wanted.normalizedCoords == 0, kErrInvalidValue, "a linear texture has no normalised coordinates");
    require(image.levels.size() == 1 || wanted.normalizedCoords != 0, kErrInvalidValue, "a mipmapped texture needs normalised coordinates");
    if (linear_memory) texture.is_linear_filter = false;
    texture.is_normalized_coordinates = wanted.normalizedCoords != 0;
    texture.is_srgb = wanted.sRGB != 0;
    std::copy(std::begin(wanted.borderColor), std::end(wanted.borderColor), std::begin(texture.border));
    texture.is_linear_mipmap = wanted.mipmapFilterMode == kFilterLinear;
    texture.mipmap_bias = wanted.mipmapLevelBias;
    texture.min_mipmap = wanted.minMipmapLevelClamp;
    texture.max_mipmap = wanted.maxMipmapLevelClamp;
    texture.is_seamless_cubemap = wanted.seamlessCubemap != 0;
    texture.max_anisotropy = wanted.maxAnisotropy;
    texture.image = std::move(image);
    return texture;
}

const TextureRecord& find_record(unsigned long long object) {
    const auto found = images().textures.find(object);
    require(found != images().textures.end(), kErrInvalidValue, "there is no such texture object (or it was destroyed)");
    return found->second;
}

}  // namespace

AICF_API cudaCreateTextureObject(unsigned long long* object, const abi::ResourceDesc* resource, const abi::TextureDesc* texture,
                                 const abi::ResourceViewDesc* view) {
    return api("cudaCreateTextureObject", [&](Runtime& runtime) {
        require(object != nullptr && resource != nullptr && texture != nullptr, kErrInvalidValue, "a pointer is null");
        ImageDescriptor image = describe_resource(runtime, *resource);
        if (view != nullptr) apply_view(image, *view);
        *object = add_texture(describe_texture(std::move(image), *texture));
        images().textures[*object] = {*resource, *texture, view == nullptr ? abi::ResourceViewDesc{} : *view, view != nullptr};
    });
}

AICF_API cudaDestroyTextureObject(unsigned long long object) {
    return api("cudaDestroyTextureObject", [&](Runtime& runtime) {
        if (object == 0) return;
        images().textures.erase(object);
        require(remove_texture(object), kErrInvalidValue, "there is no such texture object (or it was destroyed)");
    });
}

AICF_API cudaGetTextureObjectResourceDesc(abi::ResourceDesc* resource, unsigned long long object) {
    return api("cudaGetTextureObjectResourceDesc", [&](Runtime& runtime) {
        require(resource != nullptr, kErrInvalidValue, "the result pointer is null");
        *resource = find_record(object).resource;
    });
}

AICF_API cudaGetTextureObjectTextureDesc(abi::TextureDesc* texture, unsigned long long object) {
    return api("cudaGetTextureObjectTextureDesc", [&](Runtime& runtime) {
        require(texture != nullptr, kErrInvalidValue, "the result pointer is null");
        *texture = find_record(object).texture;
    });
}

AICF_API cudaGetTextureObjectResourceViewDesc(abi::ResourceViewDesc* view, unsigned long long object) {
    return api("cudaGetTextureObjectResourceViewDesc", [&](Runtime& runtime) {
        require(view != nullptr, kErrInvalidValue, "the result pointer is null");
        require(find_record(object).has_view, kErrInvalidValue, "the object was made without a view");
        *view = find_record(object).view;
    });
}

AICF_API cudaCreateSurfaceObject(unsigned long long* object, const abi::ResourceDesc* resource) {
    return api("cudaCreateSurfaceObject", [&](Runtime& runtime) {
        require(object != nullptr && resource != nullptr, kErrInvalidValue, "a pointer is null");
        require(resource->resType == abi::kResourceArray, kErrInvalidValue, "a surface is of an array");
        // An H200 makes the object all the same; what a kernel then writes through it CUDA does not define.
        if ((find_array(resource->array)->flags & kSurfaceLoadStore) == 0) {
            runtime.add_report("surface_flag", Severity::kError,
                               "a surface object was made of an array that lacks the flag cudaArraySurfaceLoadStore\n");
        }
        *object = add_surface(describe_resource(runtime, *resource));
        images().surfaces[*object] = *resource;
    });
}

AICF_API cudaDestroySurfaceObject(unsigned long long object) {
    return api("cudaDestroySurfaceObject", [&](Runtime& runtime) {
        if (object == 0) return;
        images().surfaces.erase(object);
        require(remove_surface(object), kErrInvalidValue, "there is no such surface object (or it was destroyed)");
    });
}

AICF_API cudaGetSurfaceObjectResourceDesc(abi::ResourceDesc* resource, unsigned long long object) {
    return api("cudaGetSurfaceObjectResourceDesc", [&](Runtime& runtime) {
        const auto found = images().surfaces.find(object);
        require(resource != nullptr && found != images().surfaces.end(), kErrInvalidValue, "there is no such surface object");
        *resource = found->second;
    });
}

AICF_API cudaDeviceGetTexture1DLinearMaxWidth(size_t* texels, const abi::ChannelFormatDesc* format, int) {
    return api("cudaDeviceGetTexture1DLinearMaxWidth", [&](Runtime& runtime) {
        require(texels != nullptr && format != nullptr, kErrInvalidValue, "a pointer is null");
        texel_format(*format);
        int most = 0;
        device_attribute(*runtime.target, 69, &most);
        *texels = static_cast<size_t>(most);
    });
}

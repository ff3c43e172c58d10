// Texture and surface objects: what the runtime makes of cudaCreateTextureObject and cudaCreateSurfaceObject, and tex, tld4, suld, sust,
// sured and txq read. Names and meanings follow the CUDA C++ programming guide, "Texture and surface memory".
#pragma once

#include <cstdint>
#include <vector>

namespace aicf::emu {

enum class TexelKind : uint8_t { kSigned, kUnsigned, kFloat };  // of every channel; cudaChannelFormatKind

// Channels lie one after another from the texel's first byte, each of the same width, the first one lowest.
struct TexelFormat {
    TexelKind kind = TexelKind::kFloat;
    uint8_t channels = 1;      // 1, 2 or 4
    uint8_t channel_bits = 32;  // 8, 16 or 32
    uint32_t texel_bytes() const { return channels * channel_bits / 8u; }
};

// Texel (x, y, z) of a level is at address + z * slice_pitch + y * row_pitch + x * texel_bytes(), in device memory (DeviceMemory::alias).
// For a layered image z is the layer; for a cube map the face (+x -x +y -y +z -z); for a layered cube map 6 * layer + face.
struct ImageLevel {
    uint64_t address = 0;
    uint32_t width = 1, height = 1, depth = 1;  // texels; depth counts slices, layers or faces
    uint64_t row_pitch = 0, slice_pitch = 0;    // bytes
};

struct ImageDescriptor {
    enum class Source : uint8_t { kArray, kLinear, kPitched } source = Source::kArray;
    TexelFormat format;
    uint8_t dimensions = 1;  // 1, 2 or 3, layers and faces not counted
    bool is_layered = false, is_cubemap = false;
    uint32_t num_layers = 1;
    std::vector<ImageLevel> levels;  // at least one; more for a mipmapped array (of a view: from its first level on)
};

enum class TextureAddress : uint8_t { kWrap, kClamp, kMirror, kBorder };  // cudaTextureAddressMode

struct TextureDescriptor {
    ImageDescriptor image;
    TextureAddress address[3] = {TextureAddress::kClamp, TextureAddress::kClamp, TextureAddress::kClamp};
    bool is_linear_filter = false;          // cudaFilterModeLinear
    bool is_normalized_coordinates = false;
    bool is_normalized_read = false;        // 8- and 16-bit integers come back as floats in [0, 1] or [-1, 1]
    bool is_srgb = false;
    float border[4] = {0, 0, 0, 0};
    bool is_linear_mipmap = false;
    float mipmap_bias = 0, min_mipmap = 0, max_mipmap = 0;
    bool is_seamless_cubemap = false;
    uint32_t max_anisotropy = 0;
};

// By the 64-bit object that a kernel holds; nullptr: no such object (never made, or destroyed). Pointers stay valid until the object is
// removed, which the runtime does not do while a kernel that could see it runs. Thread-safe.
const TextureDescriptor* find_texture(uint64_t object);
const ImageDescriptor* find_surface(uint64_t object);

// The runtime's side. Objects are never 0, and a number is not given twice.
uint64_t add_texture(TextureDescriptor descriptor);
uint64_t add_surface(ImageDescriptor descriptor);
bool remove_texture(uint64_t object);  // false: no such object
bool remove_surface(uint64_t object);

}  // namespace aicf::emu

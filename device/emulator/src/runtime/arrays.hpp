// CUDA arrays: images in device memory whose layout is the emulator's own (rows one after another).
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "../exec/texture/texture.hpp"
#include "runtime.hpp"
#include "texture_abi.hpp"

namespace aicf::emu {

// cudaArrayLayered and so on: flags of an array.
constexpr unsigned kLayered = 1, kSurfaceLoadStore = 2, kCubemap = 4;

struct CudaArray {
    abi::ChannelFormatDesc format{};
    abi::Extent extent{};  // as asked for; 0 where a dimension is not there
    uint32_t flags = 0;
    uint32_t element_bytes = 0;
    ImageLevel level;
    uint64_t allocation = 0;  // 0: belongs to a mipmapped array
    ~CudaArray();
};

struct MipmappedArray {
    std::vector<std::shared_ptr<CudaArray>> levels;
    uint64_t allocation = 0;
    ~MipmappedArray();
};

struct TextureRecord {  // what cudaCreateTextureObject was given
    abi::ResourceDesc resource{};
    abi::TextureDesc texture{};
    abi::ResourceViewDesc view{};
    bool has_view = false;
};

// Arrays and objects by handle; guarded by the runtime's mutex.
struct Images {
    std::unordered_map<void*, std::shared_ptr<CudaArray>> arrays;
    std::unordered_map<void*, std::shared_ptr<MipmappedArray>> mipmapped_arrays;
    std::unordered_map<uint64_t, TextureRecord> textures;
    std::unordered_map<uint64_t, abi::ResourceDesc> surfaces;
    // cudaDeviceReset.
    void clear();
};
Images& images();

// Throws Failure(400): the handle is no array (or it was freed).
std::shared_ptr<CudaArray> find_array(const void* handle);

// cudaChannelFormatDesc as the engine reads it; throws Failure(20) for a format that the emulated device does not have.
TexelFormat texel_format(const abi::ChannelFormatDesc& format);

}  // namespace aicf::emu

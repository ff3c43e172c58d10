// The binary interface of texture and surface objects (driver_types.h, texture_types.h), as in cuda_abi.hpp.
#pragma once

#include "cuda_abi.hpp"

namespace aicf::emu::abi {

enum ResourceType : int { kResourceArray = 0, kResourceMipmappedArray = 1, kResourceLinear = 2, kResourcePitch2D = 3 };

struct ResourceDesc {
    int resType;
    union {
        void* array;  // or the mipmapped array
        struct {
            void* devPtr;
            ChannelFormatDesc desc;
            size_t sizeInBytes;
        } linear;
        struct {
            void* devPtr;
            ChannelFormatDesc desc;
            size_t width, height;  // texels
            size_t pitchInBytes;
        } pitch2D;
        int reserved[32];
    };
    uint32_t flags;
};
static_assert(sizeof(ResourceDesc) == 144);

struct TextureDesc {
    int addressMode[3];
    int filterMode;
    int readMode;
    int sRGB;
    float borderColor[4];
    int normalizedCoords;
    uint32_t maxAnisotropy;
    int mipmapFilterMode;
    float mipmapLevelBias, minMipmapLevelClamp, maxMipmapLevelClamp;
    int disableTrilinearOptimization;
    int seamlessCubemap;
};
static_assert(sizeof(TextureDesc) == 72);

struct ResourceViewDesc {
    int format;
    size_t width, height, depth;
    uint32_t firstMipmapLevel, lastMipmapLevel;
    uint32_t firstLayer, lastLayer;
    uint32_t reserved[16];
};
static_assert(sizeof(ResourceViewDesc) == 112);

}  // namespace aicf::emu::abi

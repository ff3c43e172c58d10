// CUDA arrays: images in device memory whose layout is the device's own. Here it is plain rows, each `row_pitch` bytes.
#pragma once

#include <cstdint>

#include "../exec/texture.hpp"
#include "cuda_abi.hpp"
#include "runtime.hpp"

namespace aicf::emu {

namespace abi {

constexpr unsigned kArrayLayered = 1, kArraySurfaceLoadStore = 2, kArrayCubemap = 4, kArrayTextureGather = 8;

}  // namespace abi

// What a cudaArray_t or cudaMipmappedArray_t points to.
struct Array {
    abi::ChannelFormatDesc channels{};
    abi::Extent extent{};  // as given: 0 where there is no such dimension
    unsigned flags = 0;
    ImageDescriptor image;
    uint64_t address = 0;           // of the allocation; 0: a level of a mipmapped array
    std::vector<void*> level_handles;  // of a mipmapped array
};

// The array behind a handle. Throws Failure(1 or 400) for a handle that is none, or that was freed.
const Array& find_array(const void* handle);
const Array& find_mipmapped_array(const void* handle);

TexelFormat texel_format(const abi::ChannelFormatDesc& channels);  // throws Failure(20)

// The copy with its arrays replaced by the memory behind them: positions and extent in bytes. Throws Failure(1) where it leaves an array.
abi::Memcpy3DParms lower_arrays(const abi::Memcpy3DParms& params);

}  // namespace aicf::emu

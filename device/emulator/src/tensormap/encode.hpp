// The driver API's encoders of tensor maps, with its signatures.
#pragma once

#include <cstdint>

namespace aicf::emu {

int encode_tiled(void* map, int type, uint32_t rank, void* address, const uint64_t* extents, const uint64_t* strides, const uint32_t* box,
                 const uint32_t* steps, int interleave, int swizzle, int promotion, int fill);
int encode_im2col(void* map, int type, uint32_t rank, void* address, const uint64_t* extents, const uint64_t* strides, const int* lower,
                  const int* upper, uint32_t channels, uint32_t pixels, const uint32_t* steps, int interleave, int swizzle, int promotion,
                  int fill);
int replace_address(void* map, void* address);

}  // namespace aicf::emu

// cuTensorMapEncodeTiled, cuTensorMapEncodeIm2col, cuTensorMapReplaceAddress: the requirements are those of the CUDA driver API's
// documentation, "Tensor Map Object Management".
#include "encode.hpp"

#include <cstring>

#include "tensor_map.hpp"

namespace aicf::emu {
namespace {

constexpr int kOk = 0, kInvalidValue = 1;  // CUresult
constexpr uint64_t kMaxExtent = 1ull << 32, kMaxStride = 1ull << 40;
constexpr uint64_t kMapAlignment = 32;           // that a driver accepts; the documentation asks for 64
constexpr uint64_t kSharedBytes = 227 * 1024;    // no box is larger
constexpr uint32_t kMaxBox = 256, kMaxStep = 8, kMaxPixels = 1024;

bool is_aligned(const void* pointer, uint64_t alignment) { return reinterpret_cast<uint64_t>(pointer) % alignment == 0; }

// What both kinds of map have in common. False: an argument is out of its range.
bool take_tensor(TensorMap& map, const void* to, int type, uint32_t rank, void* address, const uint64_t* extents, const uint64_t* strides,
                 const uint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
    if (to == nullptr || !is_aligned(to, kMapAlignment)) return false;
    if (type < 0 || type >= static_cast<int>(kNumMapTypes)) return false;
    if (rank == 0 || rank > kMaxTensorRank) return false;
    if (interleave < 0 || interleave > 2 || swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || fill < 0 || fill > 1)
        return false;
    if (interleave != 0 && rank < 3) return false;
    if (extents == nullptr || steps == nullptr || (strides == nullptr && rank > 1)) return false;
    const uint64_t alignment = interleave == 2 ? 32 : 16;
    if (address == nullptr || !is_aligned(address, alignment)) return false;
    map.type = static_cast<MapType>(type);
    if (fill != 0 && !is_map_float(map.type)) return false;
    for (uint32_t i = 0; i < rank; ++i) {
        if (extents[i] == 0 || extents[i] > kMaxExtent) return false;
        map.last[i] = static_cast<uint32_t>(extents[i] - 1);
        if (steps[i] == 0 || steps[i] > kMaxStep) return false;
        map.steps[i] = i == 0 && interleave == 0 ? 1 : static_cast<uint8_t>(steps[i]);  // has no effect there
        if (i + 1 == rank) break;
        if (strides[i] % alignment != 0 || strides[i] >= kMaxStride) return false;
        map.strides[i] = strides[i];
    }
    map.magic = kTensorMapMagic;
    map.address = reinterpret_cast<uint64_t>(address);
    map.rank = static_cast<uint8_t>(rank);
    map.interleave = static_cast<uint8_t>(interleave);
    map.swizzle = static_cast<uint8_t>(swizzle);
    map.promotion = static_cast<uint8_t>(promotion);
    map.nan_fill = static_cast<uint8_t>(fill);
    return true;
}

// A row of the box: a multiple of 16 bytes, and no wider than what a swizzle spans.
bool is_row(const TensorMap& map, uint32_t elements) {
    const uint32_t bytes = elements * map.element_bytes();
    return bytes % 16 == 0 && (map.interleave != 0 || map.swizzle == 0 || bytes <= 16u << map.swizzle);
}

int finish(TensorMap& map, void* to) {
    map.seal();
    std::memcpy(to, &map, sizeof map);
    return kOk;
}

}  // namespace

int encode_tiled(void* to, int type, uint32_t rank, void* address, const uint64_t* extents, const uint64_t* strides, const uint32_t* box,
                 const uint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
    TensorMap map;
    if (!take_tensor(map, to, type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill)) return kInvalidValue;
    if (box == nullptr) return kInvalidValue;
    uint64_t bytes = map.element_bytes();
    for (uint32_t i = 0; i < rank; ++i) {
        if (box[i] == 0 || box[i] > kMaxBox) return kInvalidValue;
        map.box[i] = static_cast<uint16_t>(box[i]);
        bytes *= map.box_elements(i);
    }
    if (bytes > kSharedBytes) return kInvalidValue;
    return is_row(map, box[0]) ? finish(map, to) : kInvalidValue;
}

int encode_im2col(void* to, int type, uint32_t rank, void* address, const uint64_t* extents, const uint64_t* strides, const int* lower,
                  const int* upper, uint32_t channels, uint32_t pixels, const uint32_t* steps, int interleave, int swizzle, int promotion,
                  int fill) {
    TensorMap map;
    if (rank < 3 || lower == nullptr || upper == nullptr) return kInvalidValue;
    if (!take_tensor(map, to, type, rank, address, extents, strides, steps, interleave, swizzle, promotion, fill)) return kInvalidValue;
    const int most = rank == 3 ? 32767 : rank == 4 ? 127 : 15;
    for (uint32_t i = 0; i + 2 < rank; ++i) {
        if (lower[i] < -most - 1 || lower[i] > most || upper[i] < -most - 1 || upper[i] > most) return kInvalidValue;
        if (static_cast<int64_t>(extents[i + 1]) + upper[i] - lower[i] <= 0) return kInvalidValue;
        map.lower[i] = static_cast<int16_t>(lower[i]);
        map.upper[i] = static_cast<int16_t>(upper[i]);
    }
    if (channels == 0 || channels > kMaxBox || pixels == 0 || pixels > kMaxPixels) return kInvalidValue;
    map.channels = static_cast<uint16_t>(channels);
    map.pixels = static_cast<uint16_t>(pixels);
    map.im2col = 1;
    return is_row(map, channels) ? finish(map, to) : kInvalidValue;
}

int replace_address(void* to, void* address) {
    TensorMap map;
    if (to == nullptr || !is_aligned(to, 64)) return kInvalidValue;
    std::memcpy(&map, to, sizeof map);
    if (!tensor_map_fault(map).empty() || address == nullptr || !is_aligned(address, map.interleave == 2 ? 32 : 16)) return kInvalidValue;
    map.address = reinterpret_cast<uint64_t>(address);
    return finish(map, to);
}

}  // namespace aicf::emu

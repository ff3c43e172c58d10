// What a tensor map means, and what makes one invalid.
#include "tensor_map.hpp"

#include <cstring>

namespace aicf::emu {

uint32_t TensorMap::box_bytes() const {
    if (im2col) return static_cast<uint32_t>(channels) * pixels * element_bytes();
    uint32_t bytes = element_bytes();
    for (uint32_t i = 0; i < rank; ++i) bytes *= box_elements(i);
    return bytes;
}

uint32_t TensorMap::shared_bytes() const {
    const uint32_t row = (im2col ? channels : box[0]) * element_bytes();
    return row == 0 ? 0 : box_bytes() / row * row_pitch();
}

uint32_t TensorMap::sum() const {
    TensorMap copy = *this;
    copy.check = 0;
    uint32_t words[32];
    std::memcpy(words, &copy, sizeof words);
    uint32_t sum = 0x811C9DC5u;
    for (const uint32_t word : words) sum = (sum ^ word) * 0x01000193u + 0x9E3779B9u;
    return sum;
}

std::string tensor_map_fault(const TensorMap& map) {
    if (map.magic != kTensorMapMagic) return "the 128 bytes are no tensor map: cuTensorMapEncodeTiled or cuTensorMapEncodeIm2col makes one";
    if (map.check != map.sum()) return "the tensor map was changed by ordinary stores, or only a part of it was copied";
    if (map.rank == 0 || map.rank > kMaxTensorRank) return "the tensor map has rank " + std::to_string(map.rank);
    if (static_cast<uint32_t>(map.type) >= kNumMapTypes) return "the tensor map has an element type that sm_90 does not know";
    return "";
}

void fill_out_of_bounds(const TensorMap& map, uint8_t* to, uint32_t bytes) {
    if (!map.nan_fill || !is_map_float(map.type)) {
        std::memset(to, 0, bytes);
        return;
    }
    for (uint32_t i = 0; i < bytes; ++i) to[i] = i % 2 == 0 ? 0xF7 : 0x7F;  // a NaN of every type, as an H200 writes it
}

void convert_loaded(const TensorMap& map, uint8_t* at, uint32_t bytes) {
    // An H200 rounds to tf32 and leaves subnormal numbers alone, also for the types that are called FTZ.
    if (map.type != MapType::kTF32 && map.type != MapType::kTF32Ftz) return;
    for (uint32_t i = 0; i + 4 <= bytes; i += 4) {
        uint32_t bits;
        std::memcpy(&bits, at + i, 4);
        const uint32_t magnitude = bits & 0x7FFFFFFFu;
        if (magnitude > 0x7F800000u)
            bits = 0x7FFFE000u;
        else if (magnitude < 0x7F800000u)
            bits = (bits + 0x1000u) & 0xFFFFE000u;
        std::memcpy(at + i, &bits, 4);
    }
}

bool replace_field(TensorMap& map, MapField field, uint32_t ordinal, uint64_t value) {
    // Element types by their number in tensormap.replace, which is not that of CUtensorMapDataType.
    constexpr MapType kTypes[] = {MapType::kU8,   MapType::kU16,  MapType::kU32,    MapType::kI32,    MapType::kU64,
                                  MapType::kI64,  MapType::kF16,  MapType::kF32,    MapType::kF32Ftz, MapType::kF64,
                                  MapType::kBF16, MapType::kTF32, MapType::kTF32Ftz};
    switch (field) {
        case MapField::kAddress:
            if (value % 16 != 0) return false;
            map.address = value;
            break;
        case MapField::kRank:  // counted from zero
            if (value >= kMaxTensorRank) return false;
            map.rank = static_cast<uint8_t>(value + 1);
            break;
        case MapField::kBox:
            if (ordinal >= kMaxTensorRank || value == 0 || value > 256) return false;
            map.box[ordinal] = static_cast<uint16_t>(value);
            break;
        case MapField::kExtent:
            if (ordinal >= kMaxTensorRank || value == 0) return false;
            map.last[ordinal] = static_cast<uint32_t>(value - 1);
            break;
        case MapField::kStride:
            if (ordinal >= kMaxTensorRank - 1 || value % 16 != 0 || value >= 1ull << 40) return false;
            map.strides[ordinal] = value;
            break;
        case MapField::kStep:
            if (ordinal >= kMaxTensorRank || value == 0 || value > 8) return false;
            map.steps[ordinal] = static_cast<uint8_t>(value);
            break;
        case MapField::kType:
            if (value >= std::size(kTypes)) return false;
            map.type = kTypes[value];
            break;
        case MapField::kInterleave:
            if (value > 2) return false;
            map.interleave = static_cast<uint8_t>(value);
            break;
        case MapField::kSwizzle:
            if (value > 3) return false;
            map.swizzle = static_cast<uint8_t>(value);
            break;
        case MapField::kFill:
            if (value > 1) return false;
            map.nan_fill = static_cast<uint8_t>(value);
            break;
    }
    map.seal();
    return true;
}

}  // namespace aicf::emu

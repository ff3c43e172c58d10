// Tensor maps: the 128 opaque bytes that describe a tensor in global memory and the box that a tensor copy moves. The layout is our own;
// a magic number and a check sum tell a map from other bytes. PTX ISA, "Tensors" and "Tensor-map"; CUDA driver API, "Tensor Map Object".
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

namespace aicf::emu {

// CUtensorMapDataType.
enum class MapType : uint8_t { kU8, kU16, kU32, kI32, kU64, kI64, kF16, kF32, kF64, kBF16, kF32Ftz, kTF32, kTF32Ftz };
constexpr uint32_t kNumMapTypes = 13;
constexpr uint32_t map_type_bytes(MapType type) {
    constexpr uint8_t kBytes[kNumMapTypes] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    return kBytes[static_cast<uint32_t>(type)];
}
constexpr bool is_map_float(MapType type) { return type >= MapType::kF16; }

constexpr uint32_t kMaxTensorRank = 5;
constexpr uint64_t kTensorMapMagic = 0x70614D726F736E54ull;

struct alignas(64) TensorMap {
    uint64_t magic = 0;
    uint64_t address = 0;
    uint64_t strides[kMaxTensorRank - 1] = {};  // bytes, of dimensions 1 and up
    uint32_t last[kMaxTensorRank] = {};         // extent of each dimension, less one
    uint16_t box[kMaxTensorRank] = {};          // elements; im2col: unused
    uint16_t channels = 0, pixels = 0;          // im2col
    int16_t lower[3] = {}, upper[3] = {};       // im2col: corners of the pixel box in W, H, D
    uint8_t steps[kMaxTensorRank] = {};         // element strides
    uint8_t rank = 0;
    MapType type = MapType::kU8;
    uint8_t interleave = 0;  // 0 none, 1 of 16 bytes, 2 of 32 bytes
    uint8_t swizzle = 0;     // 0 none, 1 over 32 bytes, 2 over 64, 3 over 128
    uint8_t promotion = 0;
    uint8_t nan_fill = 0;    // out-of-bounds elements of floating-point types are NaN, not zero
    uint8_t im2col = 0;
    uint32_t check = 0;

    uint64_t extent(uint32_t i) const { return static_cast<uint64_t>(last[i]) + 1; }
    uint32_t element_bytes() const { return map_type_bytes(type); }
    // Elements of the box along a dimension, in shared memory.
    uint32_t box_elements(uint32_t i) const { return i == 0 ? box[0] : (box[i] + steps[i] - 1u) / steps[i]; }
    uint32_t box_bytes() const;
    // Bytes from one row of the box to the next one in shared memory: a swizzle wants its whole span, also where the box is narrower.
    uint32_t row_pitch() const {
        const uint32_t bytes = (im2col ? channels : box[0]) * element_bytes();
        return swizzle == 0 ? bytes : std::max(bytes, 16u << swizzle);
    }
    // Bytes of shared memory from the first one of the box to the last one.
    uint32_t shared_bytes() const;
    uint32_t sum() const;
    void seal() { check = sum(); }
};
static_assert(sizeof(TensorMap) == 128);

// Why 128 bytes are no tensor map that a copy can use; empty when they are one.
std::string tensor_map_fault(const TensorMap& map);

// A tensor map and where the box lies.
struct TensorCopy {
    TensorMap map;
    int32_t at[kMaxTensorRank] = {};
    uint32_t offset[3] = {};  // im2col
    // An H200 stores whole units of 16 bytes: the last one of a row may reach into the padding that follows it.
    bool whole_units = false;
};

constexpr uint64_t kOutOfBounds = ~0ull;

// Where a byte of shared memory lies under a swizzle: 16-byte units within 128 bytes are exchanged by the bits above.
constexpr uint32_t swizzled(uint32_t address, uint32_t mode) {
    constexpr uint32_t kUnits[4] = {0, 1, 3, 7};
    return address ^ ((address >> 7 & kUnits[mode]) << 4);
}

namespace detail {

// One row along dimension 0: `visit(global address or kOutOfBounds, shared address, bytes)` for each run of bytes.
template <typename Visit>
void visit_row(const TensorMap& map, int64_t first, uint32_t count, uint64_t row, bool inside, bool whole_units, uint32_t shared,
               Visit&& visit) {
    const uint32_t size = map.element_bytes();
    const auto run = [&](uint64_t global, uint32_t from, uint32_t bytes) {
        if (map.swizzle == 0) return visit(global, shared + from, bytes);
        while (bytes != 0) {
            const uint32_t at = shared + from;
            const uint32_t part = std::min(bytes, 16 - at % 16);
            visit(global, swizzled(at, map.swizzle), part);
            if (global != kOutOfBounds) global += part;
            from += part;
            bytes -= part;
        }
    };
    const int64_t extent = static_cast<int64_t>(map.extent(0));
    const int64_t begin = inside ? std::clamp<int64_t>(first, 0, extent) : 0,
                  end = inside ? std::clamp<int64_t>(first + count, 0, extent) : 0;
    if (begin >= end) return run(kOutOfBounds, 0, count * size);
    const uint32_t before = static_cast<uint32_t>(begin - first) * size, total = count * size;
    uint32_t within = static_cast<uint32_t>(end - begin) * size;
    if (whole_units) within = std::min((within + 15) / 16 * 16, total - before);
    if (before != 0) run(kOutOfBounds, 0, before);
    run(row + static_cast<uint64_t>(begin) * size, before, within);
    if (before + within != total) run(kOutOfBounds, before + within, total - before - within);
}

}  // namespace detail

// Visits the bytes of a copy's box in the order of shared memory, from the address `shared` on.
template <typename Visit>
void visit_box(const TensorCopy& copy, uint32_t shared, Visit&& visit) {
    const TensorMap& map = copy.map;
    const uint32_t rank = map.rank;
    if (map.im2col) {
        int64_t at[kMaxTensorRank];
        for (uint32_t i = 0; i < rank; ++i) at[i] = copy.at[i];
        for (uint32_t pixel = 0; pixel < map.pixels; ++pixel) {
            bool inside = at[rank - 1] >= 0 && at[rank - 1] <= map.last[rank - 1];
            uint64_t row = map.address + static_cast<uint64_t>(at[rank - 1]) * map.strides[rank - 2];
            for (uint32_t i = 1; i + 1 < rank; ++i) {
                const int64_t where = at[i] + copy.offset[i - 1];
                inside &= where >= 0 && where <= map.last[i];
                row += static_cast<uint64_t>(where) * map.strides[i - 1];
            }
            detail::visit_row(map, copy.at[0], map.channels, row, inside, copy.whole_units, shared, visit);
            shared += map.row_pitch();
            uint32_t i = 1;
            for (; i + 1 < rank; ++i) {  // on to the next pixel of the pixel box
                at[i] += map.steps[i];
                if (at[i] <= static_cast<int64_t>(map.last[i]) + map.upper[i - 1]) break;
                at[i] = map.lower[i - 1];
            }
            if (i + 1 == rank) ++at[rank - 1];
        }
        return;
    }
    uint32_t index[kMaxTensorRank] = {};
    for (;;) {
        bool inside = true;
        uint64_t row = map.address;
        for (uint32_t i = 1; i < rank; ++i) {
            const int64_t where = copy.at[i] + static_cast<int64_t>(index[i]) * map.steps[i];
            inside &= where >= 0 && where <= map.last[i];
            row += static_cast<uint64_t>(where) * map.strides[i - 1];
        }
        detail::visit_row(map, copy.at[0], map.box_elements(0), row, inside, copy.whole_units, shared, visit);
        shared += map.row_pitch();
        uint32_t i = 1;
        for (; i < rank; ++i) {
            if (++index[i] < map.box_elements(i)) break;
            index[i] = 0;
        }
        if (i >= rank) return;
    }
}

// Writes what out-of-bounds elements get over `bytes` bytes, whole elements.
void fill_out_of_bounds(const TensorMap& map, uint8_t* to, uint32_t bytes);
// What loads of some types make of the 32-bit numbers they move.
void convert_loaded(const TensorMap& map, uint8_t* at, uint32_t bytes);

// The fields that tensormap.replace can change; `ordinal` counts dimensions. False: a value that the field cannot have.
enum class MapField : uint8_t {
    kAddress,
    kRank,
    kBox,
    kExtent,
    kStride,
    kStep,
    kType,
    kInterleave,
    kSwizzle,
    kFill,
};
bool replace_field(TensorMap& map, MapField field, uint32_t ordinal, uint64_t value);

}  // namespace aicf::emu

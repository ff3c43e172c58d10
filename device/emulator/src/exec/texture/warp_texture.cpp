// Textures and surfaces. CUDA C++ programming guide, "Texture and Surface Memory" and the appendix "Texture Fetching": which texels a
// fetch reads, and weights of 8 fractional bits for linear filtering.
#include "texture.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <string>

#include "../../memory/footprint.hpp"
#include "../arith/values.hpp"
#include "../warp/warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

using Color = std::array<double, 4>;
using Words = std::array<uint32_t, 4>;

double half_value(uint16_t bits) {
    const int exponent = bits >> 10 & 31;
    const double fraction = bits & 1023;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction != 0 ? std::nan("") : sign * HUGE_VAL;
    return sign * (exponent ? std::ldexp(1024 + fraction, exponent - 25) : std::ldexp(fraction, -24));
}

// An H200's table of these has 8 significant bits; here they are rounded to nearest, there about one in eight is one unit off.
double from_srgb(double c) {
    const double value = c <= 0.04045 ? c / 12.92 : std::pow((c + 0.055) / 1.055, 2.4);
    return arith::widen(arith::to_bf16(static_cast<float>(value)));
}

// The channels of a texel as 32-bit words: integers extended, floats as they are.
Words read_words(const TexelFormat& format, const uint8_t* at) {
    const bool is_float = format.kind == TexelKind::kFloat;
    Words words{};  // channels that there are not are zero, alpha too
    const uint32_t bytes = format.channel_bits / 8u;
    for (uint32_t i = 0; i < format.channels; ++i) {
        uint32_t raw = 0;
        std::memcpy(&raw, at + i * bytes, bytes);
        if (is_float && bytes == 2) {
            raw = std::bit_cast<uint32_t>(static_cast<float>(half_value(static_cast<uint16_t>(raw))));
        } else if (format.kind == TexelKind::kSigned && bytes < 4) {
            const uint32_t shift = 32 - 8 * bytes;
            raw = static_cast<uint32_t>(static_cast<int32_t>(raw << shift) >> shift);
        }
        words[i] = raw;
    }
    return words;
}

// As surfaces take it: what does not fit is cut off.
uint32_t to_f16_towards_zero(float value) {
    const uint32_t nearest = arith::to_f16(value).bits;
    const bool is_finite = (nearest & 0x7C00) != 0x7C00;
    const bool is_larger = is_finite && std::fabs(arith::widen(arith::F16{static_cast<uint16_t>(nearest)})) > std::fabs(value);
    return is_larger ? nearest - 1 : nearest;
}

// A texel from 32-bit words, one for each channel: integers clamped to the channel's range, floats cut off.
void write_words(const TexelFormat& format, const Words& words, uint8_t* at) {
    const uint32_t bits = format.channel_bits, bytes = bits / 8;
    for (uint32_t i = 0; i < format.channels; ++i) {
        uint32_t raw = words[i];
        if (format.kind == TexelKind::kFloat && bits == 16)
            raw = to_f16_towards_zero(std::bit_cast<float>(raw));
        else if (format.kind == TexelKind::kUnsigned && bits < 32)
            raw = std::min(raw, (1u << bits) - 1);
        else if (format.kind == TexelKind::kSigned && bits < 32)
            raw = static_cast<uint32_t>(std::clamp(static_cast<int32_t>(raw), -(1 << (bits - 1)), (1 << (bits - 1)) - 1));
        std::memcpy(at + i * bytes, &raw, bytes);
    }
}

// One of the reductions that surfaces have, on the bytes as an atomic.
template <class T>
void reduce_cell(uint8_t* at, uint32_t op, uint64_t operand) {
    std::atomic_ref<T> cell(*reinterpret_cast<T*>(at));
    const T value = static_cast<T>(operand);
    T before = cell.load(std::memory_order_relaxed), after;
    do {
        switch (static_cast<AtomOp>(op)) {
            case AtomOp::kAdd: after = static_cast<T>(static_cast<uint64_t>(before) + static_cast<uint64_t>(value)); break;
            case AtomOp::kMin: after = std::min(before, value); break;
            case AtomOp::kMax: after = std::max(before, value); break;
            case AtomOp::kAnd: after = before & value; break;
            default: after = before | value; break;
        }
    } while (!cell.compare_exchange_weak(before, after, std::memory_order_relaxed));
}

Color to_color(const TextureDescriptor& texture, const Words& words) {
    const TexelFormat& format = texture.image.format;
    Color color{};
    for (int i = 0; i < format.channels; ++i) {
        if (format.kind == TexelKind::kFloat) {
            color[i] = std::bit_cast<float>(words[i]);
        } else if (format.kind == TexelKind::kUnsigned) {
            color[i] = words[i] / (std::ldexp(1.0, format.channel_bits) - 1);
            if (texture.is_srgb && i < 3) color[i] = from_srgb(color[i]);
        } else {
            color[i] = std::max(-1.0, static_cast<int32_t>(words[i]) / (std::ldexp(1.0, format.channel_bits - 1) - 1));
        }
    }
    return color;
}

// Index of a texel along an axis of `size` texels; -1: the border.
int64_t address_index(int64_t index, int64_t size, TextureAddress mode, bool is_normalized) {
    if (index >= 0 && index < size) return index;
    if (!is_normalized && (mode == TextureAddress::kWrap || mode == TextureAddress::kMirror)) mode = TextureAddress::kClamp;
    switch (mode) {
        case TextureAddress::kWrap: return (index % size + size) % size;
        case TextureAddress::kMirror: {
            const int64_t at = (index % (2 * size) + 2 * size) % (2 * size);
            return at < size ? at : 2 * size - 1 - at;
        }
        case TextureAddress::kBorder: return -1;
        default: return std::clamp<int64_t>(index, 0, size - 1);
    }
}

struct Position {
    double at[3] = {0, 0, 0};
    int64_t layer = 0;  // or face, or both
};

// Reads texels of one level.
class Sampler {
public:
    Sampler(const TextureDescriptor& texture, const ImageLevel& level, DeviceMemory& memory, int axes, bool normalized)
        : texture_(texture),
          level_(level),
          memory_(memory),
          axes_(axes),
          normalized_(normalized),
          size_{level.width, axes > 1 ? level.height : 1, axes > 2 ? level.depth : 1} {}

    // At indices that may lie outside.
    Words texel(const int64_t (&index)[3], int64_t layer) {
        uint64_t offset[3] = {};
        for (int axis = 0; axis < axes_; ++axis) {
            int64_t at = address_index(index[axis], size_[axis], texture_.address[axis], normalized_);
            if (texture_.image.source == ImageDescriptor::Source::kLinear && at != index[axis]) return {};  // beyond the memory: zeros
            if (at < 0) return border();
            offset[axis] = static_cast<uint64_t>(at);
        }
        const TexelFormat& format = texture_.image.format;
        const uint64_t slice = axes_ > 2 ? offset[2] : static_cast<uint64_t>(layer);
        const uint64_t address =
            level_.address + slice * level_.slice_pitch + offset[1] * level_.row_pitch + offset[0] * format.texel_bytes();
        if (!memory_.is_initialized(address, format.texel_bytes())) unwritten = address;
        if (touched != nullptr) touched->mark(Touch::kRead, address, format.texel_bytes());
        return read_words(format, reinterpret_cast<const uint8_t*>(memory_.alias(address)));
    }

    Words nearest(const Position& position) {
        const int64_t index[3] = {whole(position.at[0]), whole(position.at[1]), whole(position.at[2])};
        return texel(index, position.layer);
    }

    // `share`: of 256 parts, those that this level gets. Weights are whole parts too, also where axes multiply: an H200 rounds the product
    // of two fractions, and what it leaves of either goes to the other texels. Of three axes the second one comes last.
    Color linear(const Position& position, int64_t share = kParts) {
        int64_t first[3] = {}, fraction[3] = {};
        for (int axis = 0; axis < axes_; ++axis) split(position.at[axis], first[axis], fraction[axis]);
        std::array<int64_t, 8> weight{share};
        int done = 0;  // bits of the axes that the weights are spread over so far
        for (const int axis : {0, 2, 1}) {
            if (axis >= axes_) continue;
            int64_t rest = rounded(fraction[axis] * share);
            for (int corner = 7; corner >= 0; --corner) {
                if ((corner & ~done) != 0) continue;
                const int64_t upper = corner == 0 ? rest : rounded(weight[corner] * fraction[axis]);
                rest -= upper;
                weight[corner | 1 << axis] = upper;
                weight[corner] -= upper;
            }
            done |= 1 << axis;
        }
        Color sum{};
        for (int corner = 0; corner < 1 << axes_; ++corner) {
            if (weight[corner] == 0) continue;
            int64_t index[3] = {};
            for (int axis = 0; axis < axes_; ++axis) index[axis] = first[axis] + (corner >> axis & 1);
            const Color color = to_color(texture_, texel(index, position.layer));
            for (int i = 0; i < 4; ++i) sum[i] += static_cast<double>(weight[corner]) / kParts * color[i];
        }
        return sum;
    }

    // The four texels that linear filtering would read, in the order that tld4 gives them.
    std::array<Words, 4> gather(const Position& position) {
        int64_t first[3] = {}, fraction[3] = {};
        for (int axis = 0; axis < 2; ++axis) split(position.at[axis], first[axis], fraction[axis]);
        constexpr int kOrder[4][2] = {{0, 1}, {1, 1}, {1, 0}, {0, 0}};
        std::array<Words, 4> out;
        for (int i = 0; i < 4; ++i) out[i] = texel({first[0] + kOrder[i][0], first[1] + kOrder[i][1], 0}, position.layer);
        return out;
    }

    static constexpr int64_t kParts = 256;
    uint64_t unwritten = 0;  // address of a texel that nothing wrote
    FootprintMap* touched = nullptr;

private:
    static constexpr double kFarAway = 1e15;  // beyond it an index would not fit
    static int64_t whole(double x) { return static_cast<int64_t>(std::floor(std::clamp(std::isnan(x) ? 0.0 : x, -kFarAway, kFarAway))); }

    static int64_t rounded(int64_t product) { return (product + kParts / 2) / kParts; }

    // The lower texel, and in parts how far the upper one is from it.
    static void split(double x, int64_t& first, int64_t& fraction) {
        const int64_t fixed = whole((x - 0.5) * kParts + 0.5);
        first = fixed >> 8;
        fraction = fixed & (kParts - 1);
    }

    Words border() const {
        Words words{};
        const TexelFormat& format = texture_.image.format;
        const bool is_signed = format.kind == TexelKind::kSigned;
        for (int i = 0; i < format.channels; ++i) {
            const double value = texture_.border[i];
            if (format.kind == TexelKind::kFloat) {
                words[i] = std::bit_cast<uint32_t>(texture_.border[i]);
            } else if (texture_.is_normalized_read) {  // to the nearest, of two the lower
                const double most = std::ldexp(1.0, format.channel_bits - is_signed) - 1;
                words[i] =
                    static_cast<uint32_t>(static_cast<int32_t>(std::ceil(std::clamp(value, is_signed ? -1.0 : 0.0, 1.0) * most - 0.5)));
            } else {  // the bits that an integer of the texel has room for
                const uint32_t shift = 32u - format.channel_bits, bits = std::bit_cast<uint32_t>(texture_.border[i]) << shift;
                words[i] = is_signed ? static_cast<uint32_t>(static_cast<int32_t>(bits) >> shift) : bits >> shift;
            }
        }
        return words;
    }

    const TextureDescriptor& texture_;
    const ImageLevel& level_;
    DeviceMemory& memory_;
    const int axes_;
    const bool normalized_;
    const int64_t size_[3];
};

int axes_of(Geometry geometry) {
    switch (geometry) {
        case Geometry::k1d:
        case Geometry::kLayered1d: return 1;
        case Geometry::k3d: return 3;
        default: return 2;
    }
}

bool has_layers(Geometry geometry) {
    return geometry == Geometry::kLayered1d || geometry == Geometry::kLayered2d || geometry == Geometry::kLayeredCube;
}

bool is_cube(Geometry geometry) { return geometry == Geometry::kCube || geometry == Geometry::kLayeredCube; }

// The face that a direction points to, and where on it.
int cube_face(const double (&v)[3], double& s, double& t) {
    const double x = std::fabs(v[0]), y = std::fabs(v[1]), z = std::fabs(v[2]);
    int face = 0;
    double m = 0, a = 0, b = 0;
    if (z >= x && z >= y) {  // of two that are as long the later one
        face = v[2] >= 0 ? 4 : 5;
        m = z, a = v[2] >= 0 ? v[0] : -v[0], b = -v[1];
    } else if (y >= x) {
        face = v[1] >= 0 ? 2 : 3;
        m = y, a = v[0], b = v[1] >= 0 ? v[2] : -v[2];
    } else {
        face = v[0] >= 0 ? 0 : 1;
        m = x, a = v[0] >= 0 ? -v[2] : v[2], b = -v[1];
    }
    s = (a / m + 1) / 2;
    t = (b / m + 1) / 2;
    return face;
}

}  // namespace

template <Mode M>
void Interpreter<M>::texture_misuse(uint32_t lane, Finding finding, const std::string& detail) {
    report_event(worker_, block_, warp_, pc_, lane, finding, detail);
    if (!checking(kMemcheck)) return stop_launch(kErrorIllegalAddress);
    std::lock_guard lock(block_.launch->mutex);
    if (block_.launch->status == kSuccess) block_.launch->status = kErrorIllegalAddress;
}

// Whether the memory behind an image is still there.
template <Mode M>
bool Interpreter<M>::image_alive(uint32_t lane, const ImageDescriptor&, const ImageLevel& level) {
    Range& range = worker_.ranges[pc_];
    if (level.address >= range.begin && level.address < range.end) return true;
    const Allocation* allocation = memory_.contains(level.address) ? memory_.find(level.address) : nullptr;
    if (allocation && allocation->live && level.address >= allocation->address) {
        range = {allocation->address, allocation->address + allocation->size_bytes};
        return true;
    }
    texture_misuse(lane, Finding::kUseAfterFree, "the memory of the texture or surface was freed");
    return false;
}

template <Mode M>
void Interpreter<M>::texture_fetch(const Inst& inst, uint32_t lane, const TextureDescriptor& texture) {
    const TextureOp op = static_cast<TextureOp>(inst.mode);
    const Geometry geometry = static_cast<Geometry>(inst.mode2);
    const ImageDescriptor& image = texture.image;
    const int axes = axes_of(geometry);
    const bool wrong = image.dimensions > axes || image.is_cubemap != is_cube(geometry) || (image.is_layered && !has_layers(geometry));
    if (wrong)
        return texture_misuse(lane, Finding::kTextureObject,
                              "a fetch with " + std::to_string(axes) + " coordinates" + (has_layers(geometry) ? " and a layer" : "") +
                                  " from an image of " + std::to_string(image.dimensions) + " dimensions" +
                                  (image.is_layered ? " with layers" : "") + (image.is_cubemap ? ", a cube map" : ""));
    if (texture.is_seamless_cubemap && is_cube(geometry) && texture.is_linear_filter)
        return texture_misuse(lane, Finding::kTextureObject, "seamless cube maps with linear filtering are not supported by this device");
    // Coordinates.
    uint32_t at = inst.vec;
    const auto word = [&](uint32_t index) { return row32(listed(inst, index))[lane]; };
    const bool by_index = inst.dbytes != 0;
    const auto number = [&](uint32_t index) {
        return by_index ? static_cast<double>(static_cast<int32_t>(word(index))) : static_cast<double>(std::bit_cast<float>(word(index)));
    };
    Position position;
    if (has_layers(geometry)) position.layer = std::min(word(at++), std::max(image.num_layers, 1u) - 1);  // below 0: the last, as beyond it
    bool normalized = texture.is_normalized_coordinates && !by_index;
    if (is_cube(geometry)) {
        const double direction[3] = {number(at), number(at + 1), number(at + 2)};
        at += 3;
        position.layer = 6 * position.layer + cube_face(direction, position.at[0], position.at[1]);
        normalized = true;
    } else {
        for (int axis = 0; axis < axes; ++axis) position.at[axis] = number(at++);
    }
    // Level of detail.
    double detail = 0;
    const ImageLevel& base = image.levels[0];
    const double extent[3] = {static_cast<double>(base.width), static_cast<double>(base.height), static_cast<double>(base.depth)};
    if (op == TextureOp::kFetchLevel) detail = std::bit_cast<float>(word(at));
    if (op == TextureOp::kFetchGradient) {
        double length[2] = {};
        for (int i = 0; i < 2; ++i) {
            double sum = 0;
            for (int axis = 0; axis < axes; ++axis) {
                const double step = std::bit_cast<float>(word(at++)) * (normalized ? extent[axis] : 1);
                sum += step * step;
            }
            length[i] = std::sqrt(sum);
        }
        // Two directions of much the same length are more than one of them: in one dimension this is what an H200 does.
        const double longest = std::max({length[0], length[1], (length[0] + length[1]) * 11 / 16});
        detail = longest > 0 ? std::log2(longest) : -1000;
    }
    const double last = static_cast<double>(image.levels.size() - 1);
    detail = std::isnan(detail) ? 0 : detail + texture.mipmap_bias;
    if (last > 0)
        detail = std::clamp(detail, static_cast<double>(texture.min_mipmap), std::max<double>(texture.min_mipmap, texture.max_mipmap));
    detail = std::clamp(detail, 0.0, last);
    const bool between = texture.is_linear_mipmap && detail != std::floor(detail);
    const size_t level_index = static_cast<size_t>(texture.is_linear_mipmap ? std::floor(detail) : std::floor(detail + 0.5));

    const bool is_value = image.format.kind == TexelKind::kFloat || texture.is_normalized_read;  // else integers as they are
    Words result{};
    uint64_t unwritten = 0;
    // A one-dimensional array is one of two dimensions and height 1 to an H200, read at 0: where the second axis has a border, half of a
    // filtered value is the border's.
    const bool meets_border = geometry == Geometry::k1d && image.source == ImageDescriptor::Source::kArray && texture.is_linear_filter &&
                              texture.address[1] == TextureAddress::kBorder;
    const auto sample = [&](size_t index, int64_t share) {
        const ImageLevel& level = image.levels[std::min(index, image.levels.size() - 1)];
        Sampler sampler(texture, level, memory_, meets_border ? 2 : axes, normalized);
        if (checking(kStreamcheck)) sampler.touched = &memory_.footprints();
        Position scaled = position;
        const double size[3] = {static_cast<double>(level.width), static_cast<double>(level.height), static_cast<double>(level.depth)};
        if (normalized) {
            for (int axis = 0; axis < axes; ++axis) scaled.at[axis] *= size[axis];
        }
        Color color{};
        if (op == TextureOp::kGather) {
            const std::array<Words, 4> texels = sampler.gather(scaled);
            for (int i = 0; i < 4; ++i) {
                result[i] = texels[i][inst.bytes];
                if (is_value) color[i] = to_color(texture, texels[i])[inst.bytes];
            }
        } else if (texture.is_linear_filter && is_value && !by_index) {
            color = sampler.linear(scaled, share);
            if (image.format.kind == TexelKind::kFloat && image.format.channel_bits == 16) {
                for (double& channel : color) channel = arith::widen(arith::to_f16(static_cast<float>(channel)));
            }
        } else {
            result = sampler.nearest(scaled);
            if (is_value) color = to_color(texture, result);
            for (double& channel : color) channel *= static_cast<double>(share) / Sampler::kParts;
        }
        if (sampler.unwritten) unwritten = sampler.unwritten;
        return color;
    };
    if (!image_alive(lane, image, base)) return;
    const int64_t upper = between ? static_cast<int64_t>((detail - std::floor(detail)) * Sampler::kParts) : 0;
    Color color = sample(level_index, Sampler::kParts - upper);
    if (upper != 0) {
        const Color next = sample(level_index + 1, upper);
        for (int i = 0; i < 4; ++i) color[i] += next[i];
    }
    if (unwritten && checking(kInitcheck)) {
        report_access(worker_, block_, warp_, pc_, lane,
                      {Finding::kUninitialized, MemSpace::kGlobal, false, false, unwritten, image.format.texel_bytes()});
    }
    const bool as_bits = image.format.kind == TexelKind::kFloat && !texture.is_linear_filter;  // NaNs too come through as they are
    for (uint32_t i = 0; i < inst.vec; ++i) {
        row32(listed(inst, i))[lane] = is_value && !as_bits ? std::bit_cast<uint32_t>(static_cast<float>(color[i])) : result[i];
    }
}

template <Mode M>
void Interpreter<M>::surface_access(const Inst& inst, uint32_t lane, const ImageDescriptor& surface) {
    const Geometry geometry = static_cast<Geometry>(inst.mode2);
    const TextureOp op = static_cast<TextureOp>(inst.mode);
    const bool is_store = op != TextureOp::kSurfaceLoad;
    // Formatted accesses count in texels, and convert.
    const bool is_formatted = op == TextureOp::kSurfaceStoreFormatted || op == TextureOp::kSurfaceReduceFormatted;
    const bool reduces = op == TextureOp::kSurfaceReduce || op == TextureOp::kSurfaceReduceFormatted;
    const int axes = axes_of(geometry);
    const uint32_t texel_bytes = surface.format.texel_bytes();
    const uint32_t size = is_formatted ? texel_bytes : inst.bytes * inst.vec;
    const ImageLevel& level = surface.levels[0];
    uint32_t at = inst.vec;
    const auto number = [&] { return static_cast<int64_t>(static_cast<int32_t>(row32(listed(inst, at++))[lane])); };
    int64_t layer = has_layers(geometry) ? number() : 0;
    int64_t index[3] = {0, 0, 0};
    for (int axis = 0; axis < axes; ++axis) index[axis] = number();
    if (is_formatted) index[0] *= texel_bytes;
    const int64_t layers = surface.is_cubemap ? 6ll * std::max(surface.num_layers, 1u) : std::max(surface.num_layers, 1u);
    const int64_t extent[3] = {static_cast<int64_t>(level.width) * texel_bytes, level.height, level.depth};
    if (index[0] % size != 0)
        return texture_misuse(
            lane, Finding::kMisaligned,
            "the byte offset " + std::to_string(index[0]) + " is no multiple of the " + std::to_string(size) + " bytes of the access");
    if (op == TextureOp::kSurfaceReduceFormatted && (surface.format.kind == TexelKind::kFloat || texel_bytes != inst.bytes))
        return texture_misuse(lane, Finding::kTextureObject,
                              "a reduction of " + std::to_string(inst.bytes) + " bytes in texels of " + std::to_string(texel_bytes) +
                                  (surface.format.kind == TexelKind::kFloat ? " and floating-point type" : ""));
    if (surface.dimensions > axes)
        return texture_misuse(lane, Finding::kTextureObject,
                              "an access with " + std::to_string(axes) + " coordinates to a surface of " +
                                  std::to_string(surface.dimensions) + " dimensions");
    bool outside = has_layers(geometry) && (layer < 0 || layer >= layers);
    for (int axis = 0; axis < axes; ++axis) outside |= index[axis] < 0 || index[axis] + (axis == 0 ? size : 1) > extent[axis];
    const SurfaceBounds bounds = static_cast<SurfaceBounds>(inst.c);
    if (outside && bounds == SurfaceBounds::kTrap) {
        return texture_misuse(lane, is_store ? Finding::kOutOfBoundsWrite : Finding::kOutOfBoundsRead,
                              "surface coordinates (" + std::to_string(index[0]) + " bytes, " + std::to_string(index[1]) + ", " +
                                  std::to_string(index[2]) + "), layer " + std::to_string(layer) + ", of a surface of " +
                                  std::to_string(extent[0]) + " bytes x " + std::to_string(extent[1]) + " x " + std::to_string(extent[2]) +
                                  " and " + std::to_string(layers) + " layers");
    }
    const bool drop = outside && bounds == SurfaceBounds::kZero;
    if (outside) {
        index[0] = std::clamp<int64_t>(index[0], 0, std::max<int64_t>(extent[0] - size, 0));
        for (int axis = 1; axis < axes; ++axis) index[axis] = std::clamp<int64_t>(index[axis], 0, extent[axis] - 1);
        layer = std::clamp<int64_t>(layer, 0, layers - 1);
    }
    if (!image_alive(lane, surface, level)) return;
    const uint64_t slice = static_cast<uint64_t>(axes > 2 ? index[2] : layer);
    const uint64_t address =
        level.address + slice * level.slice_pitch + static_cast<uint64_t>(index[1]) * level.row_pitch + static_cast<uint64_t>(index[0]);
    uint8_t* bytes = reinterpret_cast<uint8_t*>(memory_.alias(address));
    if ((!is_store || reduces) && !drop && checking(kInitcheck) && !memory_.is_initialized(address, size))
        report_access(worker_, block_, warp_, pc_, lane, {Finding::kUninitialized, MemSpace::kGlobal, false, false, address, size});
    if (!drop && checking(kStreamcheck) && memory_.contains(address))
        memory_.footprints().mark(reduces ? Touch::kStrongWrite : is_store ? Touch::kWrite : Touch::kRead, address, size);
    if (reduces) {
        const bool is_signed = is_formatted ? surface.format.kind == TexelKind::kSigned : inst.dbytes != 0;
        const uint64_t value = inst.bytes == 8 ? row64(listed(inst, 0))[lane] : row32(listed(inst, 0))[lane];
        if (drop) return;
        if (inst.bytes == 8)
            is_signed ? reduce_cell<int64_t>(bytes, inst.e, value) : reduce_cell<uint64_t>(bytes, inst.e, value);
        else
            is_signed ? reduce_cell<int32_t>(bytes, inst.e, value) : reduce_cell<uint32_t>(bytes, inst.e, value);
        return memory_.mark_initialized(address, size);
    }
    if (is_formatted) {
        if (drop) return;
        Words words{};
        for (uint32_t i = 0; i < inst.vec; ++i) words[i] = row32(listed(inst, i))[lane];
        write_words(surface.format, words, bytes);
        return memory_.mark_initialized(address, size);
    }
    for (uint32_t i = 0; i < inst.vec; ++i) {
        uint64_t value = 0;
        if (is_store) {
            value = inst.bytes == 8 ? row64(listed(inst, i))[lane] : row32(listed(inst, i))[lane];
            if (!drop) std::memcpy(bytes + i * inst.bytes, &value, inst.bytes);
        } else {
            if (!drop) std::memcpy(&value, bytes + i * inst.bytes, inst.bytes);
            if (inst.bytes == 8)
                row64(listed(inst, i))[lane] = value;
            else
                row32(listed(inst, i))[lane] = static_cast<uint32_t>(value);
        }
    }
    if (is_store && !drop) memory_.mark_initialized(address, size);
}

template <Mode M>
void Interpreter<M>::texture(const Inst& inst, uint32_t mask) {
    const TextureOp op = static_cast<TextureOp>(inst.mode);
    const bool is_surface = op >= TextureOp::kSurfaceQuery;
    if (op == TextureOp::kIsTexture || op == TextureOp::kIsSurface) {
        uint32_t found = 0;
        for_lanes(mask, [&](uint32_t lane) {
            const uint64_t object = row64(inst.a)[lane];
            const bool is_one = op == TextureOp::kIsTexture ? find_texture(object) != nullptr : find_surface(object) != nullptr;
            found |= static_cast<uint32_t>(is_one) << lane;
        });
        predicate_slot(inst.pd) = (predicate_slot(inst.pd) & ~mask) | found;
        ++pc_;
        return;
    }
    const TextureDescriptor* texture = nullptr;
    const ImageDescriptor* image = nullptr;
    uint64_t known = 0;
    for_lanes(mask, [&](uint32_t lane) {
        if (fatal_) return;
        const uint64_t object = row64(inst.a)[lane];
        if (object != known || !image) {
            texture = is_surface ? nullptr : find_texture(object);
            image = is_surface ? find_surface(object) : texture ? &texture->image : nullptr;
            known = object;
        }
        if (!image)
            return texture_misuse(lane, Finding::kTextureObject,
                                  "there is no " + std::string(is_surface ? "surface" : "texture") + " object " + std::to_string(object) +
                                      " (never made, or destroyed)");
        if (op == TextureOp::kQuery || op == TextureOp::kSurfaceQuery) {
            const uint32_t number = row32(inst.b)[lane];
            if (number >= image->levels.size())
                return texture_misuse(
                    lane, Finding::kTextureObject,
                    "a query of level " + std::to_string(number) + " of a texture of " + std::to_string(image->levels.size()) + " levels");
            const ImageLevel& level = image->levels[number];
            uint32_t value = 0;
            switch (static_cast<TextureQuery>(inst.bytes)) {
                case TextureQuery::kWidth: value = level.width; break;
                case TextureQuery::kHeight: value = level.height; break;
                case TextureQuery::kDepth: value = level.depth; break;
                case TextureQuery::kLayers: value = image->num_layers; break;
                case TextureQuery::kLevels: value = static_cast<uint32_t>(image->levels.size()); break;
                case TextureQuery::kNormalized: value = texture && texture->is_normalized_coordinates; break;
            }
            row32(inst.d)[lane] = value;
        } else if (is_surface) {
            surface_access(inst, lane, *image);
        } else {
            texture_fetch(inst, lane, *texture);
        }
    });
    ++pc_;
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

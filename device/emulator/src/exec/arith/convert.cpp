// Conversions: PTX ISA, "Data Movement and Conversion Instructions: cvt" and "cvt.pack".
#include <cmath>
#include <limits>

#include "values.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {

uint32_t round_to(const Format& format, double value, Round round, bool saturate_finite) {
    if (is_nan(value)) return format.nan;
    const auto raw = as<uint64_t>(value);
    const bool is_negative = raw >> 63 != 0;
    const double magnitude = as<double>(raw & ~(uint64_t{1} << 63));
    const uint32_t sign = is_negative ? format.sign : 0;
    const uint32_t overflow = saturate_finite ? format.max_finite : format.infinity;
    if (magnitude == 0) return sign;
    if (magnitude > std::numeric_limits<double>::max()) return sign | overflow;

    // Subnormal doubles lie below every format's least exponent. The scaling is exact: a power of two, and no result is subnormal.
    int exponent = static_cast<int>(as<uint64_t>(magnitude) >> 52) - 1023;
    if (exponent < format.min_exponent) exponent = format.min_exponent;
    const double scaled = magnitude * as<double>(static_cast<uint64_t>(1023 + format.mantissa_bits - exponent) << 52);
    auto units = static_cast<uint64_t>(scaled);
    const double rest = scaled - static_cast<double>(units);
    bool up = false;
    switch (round) {
        case Round::kRz: break;
        case Round::kRm: up = is_negative && rest > 0; break;
        case Round::kRp: up = !is_negative && rest > 0; break;
        case Round::kRna: up = rest >= 0.5; break;
        default: up = rest > 0.5 || (rest == 0.5 && (units & 1) != 0); break;
    }
    units += up ? 1 : 0;
    // The hidden bit of a normal value adds one to the exponent field; a carry out of the mantissa does the rest.
    const uint64_t bits = (static_cast<uint64_t>(exponent - format.min_exponent) << format.mantissa_bits) + units;
    if (bits <= format.max_finite) return sign | static_cast<uint32_t>(bits);
    const bool stays_finite = round == Round::kRz || (round == Round::kRm && !is_negative) || (round == Round::kRp && is_negative);
    return sign | (stays_finite ? format.max_finite : overflow);
}

double to_odd_double(unsigned __int128 magnitude, bool is_negative) {
    int shift = 0;
    bool lost = false;
    while (magnitude >> shift >= (uint64_t{1} << 53)) {
        lost = lost || (magnitude >> shift & 1) != 0;
        ++shift;
    }
    const auto kept = static_cast<uint64_t>(magnitude >> shift) | (lost ? 1 : 0);
    const double value = std::ldexp(static_cast<double>(kept), shift);
    return is_negative ? -value : value;
}

namespace {

// ---- Conversions worth a vector loop ----

struct Convert {
    template <class D, class A>
    static D lane(A a) {
        return static_cast<D>(a);
    }
};
template <class D>
struct To {
    template <class A>
    static D lane(A a) {
        return static_cast<D>(a);
    }
};
// Truncated to T, then extended to 32 bits by T's sign.
template <class T>
struct Extended {
    template <class A>
    static int32_t lane(A a) {
        return static_cast<T>(a);
    }
};

// Float to 32-bit integers: saturating, NaN becomes zero.
template <class D, bool kNearest>
struct ToInteger {
    static D lane(float a) {
        const float value = kNearest ? __builtin_rintf(a) : a;
        constexpr float kEnd = std::is_signed_v<D> ? 0x1p31f : 0x1p32f;  // first value too large
        constexpr float kBegin = std::is_signed_v<D> ? -0x1p31f : 0.0f;
        const bool is_inside = value >= kBegin && value < kEnd;
        const auto wide = static_cast<D>(is_inside ? value : 0.0f);
        const D above = value >= kEnd ? std::numeric_limits<D>::max() : wide;
        return value < kBegin ? std::numeric_limits<D>::min() : above;
    }
};

struct WidenF16 {
    static float lane(F16 a) { return canonical(widen(a)); }
};
struct WidenBF16 {  // a shift, NaN and all
    static float lane(BF16 a) { return widen(a); }
};
struct Same {
    template <class T>
    static T lane(T a) {
        return a;
    }
};
// cvt.rna.tf32: on the bits of an f32, as ptxas expands it; so a NaN keeps the upper bits of its payload.
struct NearestAwayTF32 {
    static uint32_t lane(uint32_t a) { return (a + ((a & 0x7fffffff) < 0x7f800000 ? 0x1000 : 0)) & 0xffffe000; }
};
struct FiniteTF32 {
    static uint32_t lane(uint32_t a) {
        const uint32_t rounded = NearestAwayTF32::lane(a);
        return (rounded & 0x7fffffff) >= 0x7f800000 ? rounded - 0x2000 : rounded;
    }
};
struct NarrowF16 {
    static F16 lane(float a) { return to_f16(a); }
};
struct NarrowBF16 {
    static BF16 lane(float a) { return to_bf16(a); }
};
// `a` goes to the upper half.
template <class H>
struct NarrowPair {
    static uint32_t lane(float a, float b) {
        if constexpr (std::is_same_v<H, F16>) return static_cast<uint32_t>(to_f16(a).bits) << 16 | to_f16(b).bits;
        return static_cast<uint32_t>(to_bf16(a).bits) << 16 | to_bf16(b).bits;
    }
};
// cvt.sat.f32.f32, of which each expf of nvcc's has one.
template <bool kFlushes>
struct Saturated {
    static float lane(float a) { return saturate(kFlushes ? flush(a) : a); }
};
struct NarrowDouble {
    static float lane(double a) { return static_cast<float>(a); }  // a NaN keeps its sign and the upper bits of its payload, quieted
};
struct WidenFloat {
    static double lane(float a) { return canonical(static_cast<double>(a)); }
};

template <class A>
Fn integer_from(ptx::Type to) {
    using enum ptx::Type;
    switch (to) {
        case kU8: return hot1<To<uint8_t>, uint8_t, A>;
        case kU16: return hot1<To<uint16_t>, uint16_t, A>;
        case kU32: return hot1<To<uint32_t>, uint32_t, A>;
        case kU64: return hot1<To<uint64_t>, uint64_t, A>;
        case kS8: return hot1<Extended<int8_t>, int32_t, A>;
        case kS16: return hot1<Extended<int16_t>, int32_t, A>;
        case kS32: return hot1<To<uint32_t>, uint32_t, A>;
        case kS64: return hot1<To<uint64_t>, uint64_t, A>;
        default: return nullptr;
    }
}

Fn pick_integer_pair(ptx::Type to, ptx::Type from) {
    using enum ptx::Type;
    switch (from) {
        case kU8: return integer_from<uint8_t>(to);
        case kU16: return integer_from<uint16_t>(to);
        case kU32: return integer_from<uint32_t>(to);
        case kU64:
        case kS64: return integer_from<uint64_t>(to);
        case kS8: return integer_from<int8_t>(to);
        case kS16: return integer_from<int16_t>(to);
        case kS32: return integer_from<int32_t>(to);
        default: return nullptr;
    }
}

struct HotPair {
    ptx::Type to, from;
    Round round;
    Fn fn;
};
constexpr HotPair kHotPairs[] = {
    {ptx::Type::kF32, ptx::Type::kS32, Round::kRn, hot1<To<float>, float, int32_t>},
    {ptx::Type::kF32, ptx::Type::kU32, Round::kRn, hot1<To<float>, float, uint32_t>},
    {ptx::Type::kF32, ptx::Type::kU16, Round::kRn, hot1<To<float>, float, uint16_t>},
    {ptx::Type::kF32, ptx::Type::kS16, Round::kRn, hot1<To<float>, float, int16_t>},
    {ptx::Type::kF64, ptx::Type::kS32, Round::kRn, hot1<To<double>, double, int32_t>},
    {ptx::Type::kS32, ptx::Type::kF32, Round::kRzi, hot1<ToInteger<int32_t, false>, int32_t, float>},
    {ptx::Type::kU32, ptx::Type::kF32, Round::kRzi, hot1<ToInteger<uint32_t, false>, uint32_t, float>},
    {ptx::Type::kS32, ptx::Type::kF32, Round::kRni, hot1<ToInteger<int32_t, true>, int32_t, float>},
    {ptx::Type::kF32, ptx::Type::kF16, Round::kNone, hot1<WidenF16, float, F16>},
    {ptx::Type::kF32, ptx::Type::kBF16, Round::kNone, hot1<WidenBF16, float, BF16>},
    {ptx::Type::kF32, ptx::Type::kBF16, Round::kRn, hot1<WidenBF16, float, BF16>},
    {ptx::Type::kF32, ptx::Type::kBF16, Round::kRz, hot1<WidenBF16, float, BF16>},
    {ptx::Type::kF32, ptx::Type::kBF16, Round::kRm, hot1<WidenBF16, float, BF16>},
    {ptx::Type::kF32, ptx::Type::kBF16, Round::kRp, hot1<WidenBF16, float, BF16>},
    {ptx::Type::kF32, ptx::Type::kF32, Round::kNone, hot1<Same, uint32_t, uint32_t>},
    {ptx::Type::kF64, ptx::Type::kF64, Round::kNone, hot1<Same, uint64_t, uint64_t>},
    {ptx::Type::kTF32, ptx::Type::kF32, Round::kRna, hot1<NearestAwayTF32, uint32_t, uint32_t>},
    {ptx::Type::kF16, ptx::Type::kF32, Round::kRn, hot1<NarrowF16, F16, float>},
    {ptx::Type::kBF16, ptx::Type::kF32, Round::kRn, hot1<NarrowBF16, BF16, float>},
    {ptx::Type::kF32, ptx::Type::kF64, Round::kRn, hot1<NarrowDouble, float, double>},
    {ptx::Type::kF64, ptx::Type::kF32, Round::kNone, hot1<WidenFloat, double, float>},
};

// ---- Everything else: one routine that reads types and modifiers at run time ----
// Args::immediate: destination type (bits 0-5), source type (6-11), kFtz.. kRelu as below, rounding (24-27).

constexpr uint32_t kFlushing = 1u << 12, kSaturating = 1u << 13, kClipping = 1u << 14, kFinite = 1u << 15;

uint32_t encode(ptx::Type to, ptx::Type from, const Form& form) {
    return static_cast<uint32_t>(to) | static_cast<uint32_t>(from) << 6 | (form.has(kFtz) ? kFlushing : 0) |
           (form.has(kSat) ? kSaturating : 0) | (form.has(kRelu) ? kClipping : 0) | (form.has(kSatfinite) ? kFinite : 0) |
           static_cast<uint32_t>(form.round) << 24;
}

bool is_float(ptx::Type type) {
    using enum ptx::Type;
    return type == kF16 || type == kBF16 || type == kF32 || type == kF64 || type == kTF32 || type == kE4M3 || type == kE5M2;
}

// A scalar on its way: an exact integer or a double.
struct Value {
    bool is_integer = false;
    __int128 integer = 0;
    double real = 0;
};

double widen_small(const Format& format, uint32_t bits, uint32_t sign_bit) {
    const uint32_t magnitude = bits & (sign_bit - 1);
    double value = 0;
    const uint32_t field = magnitude >> format.mantissa_bits, mantissa = magnitude & ((1u << format.mantissa_bits) - 1);
    if (magnitude > format.infinity || (magnitude == format.nan)) {
        value = std::numeric_limits<double>::quiet_NaN();
    } else if (magnitude == format.infinity) {
        value = std::numeric_limits<double>::infinity();
    } else if (field == 0) {
        value = std::ldexp(static_cast<double>(mantissa), format.min_exponent - format.mantissa_bits);
    } else {
        value = std::ldexp(static_cast<double>(mantissa + (1u << format.mantissa_bits)),
                           format.min_exponent - format.mantissa_bits + static_cast<int>(field) - 1);
    }
    return (bits & sign_bit) != 0 ? -value : value;
}

Value read_value(ptx::Type type, uint64_t slot, bool flushing) {
    using enum ptx::Type;
    const auto integer = [](__int128 value) { return Value{true, value, 0}; };
    const auto real = [](double value) { return Value{false, 0, value}; };
    switch (type) {
        case kU8: return integer(static_cast<uint8_t>(slot));
        case kU16: return integer(static_cast<uint16_t>(slot));
        case kU32: return integer(static_cast<uint32_t>(slot));
        case kU64: return integer(slot);
        case kS8: return integer(static_cast<int8_t>(slot));
        case kS16: return integer(static_cast<int16_t>(slot));
        case kS32: return integer(static_cast<int32_t>(slot));
        case kS64: return integer(static_cast<int64_t>(slot));
        case kF16: return real(static_cast<double>(widen(take<F16>(static_cast<uint32_t>(slot)))));
        case kBF16: return real(static_cast<double>(widen(take<BF16>(static_cast<uint32_t>(slot)))));
        case kF32: {
            const auto value = take<float>(static_cast<uint32_t>(slot));
            return real(static_cast<double>(flushing ? flush(canonical(value)) : value));
        }
        case kE4M3: return real(widen_small(kFormatE4M3, static_cast<uint32_t>(slot), 0x80));
        case kE5M2: return real(widen_small(kFormatE5M2, static_cast<uint32_t>(slot), 0x80));
        default: return real(take<double>(slot));
    }
}

double to_integral(double value, Round round) {
    switch (round) {
        case Round::kRni: return std::rint(value);
        case Round::kRzi: return std::trunc(value);
        case Round::kRmi: return std::floor(value);
        case Round::kRpi: return std::ceil(value);
        default: return value;
    }
}

struct Limits {
    __int128 least, greatest;
};
Limits limits_of(ptx::Type type) {
    const uint32_t bits = bits_of(type);
    const __int128 one = 1;
    if (is_signed(type)) return {-(one << (bits - 1)), (one << (bits - 1)) - 1};
    return {0, (one << bits) - 1};
}

// Float to integer saturates. NaN becomes zero where both sides are narrower than 64 bits, and only the top bit otherwise.
__int128 real_to_integer(double value, ptx::Type to, ptx::Type from, Round round) {
    const Limits limits = limits_of(to);
    if (is_nan(value)) {
        if (from != ptx::Type::kF64 && bits_of(to) < 64) return 0;
        return is_signed(to) ? limits.least : static_cast<__int128>(1) << (bits_of(to) - 1);
    }
    const double integral = to_integral(value, round);
    if (integral >= 0x1p64) return limits.greatest;
    if (integral < -0x1p63) return limits.least;
    const auto integer = static_cast<__int128>(integral);
    return integer < limits.least ? limits.least : integer > limits.greatest ? limits.greatest : integer;
}

uint64_t write_float(double value, ptx::Type to, uint32_t immediate) {
    using enum ptx::Type;
    const Round round = round_of(immediate);
    const bool finite = (immediate & kFinite) != 0;
    switch (to) {
        case kF16: return round_to(kFormatF16, value, round, finite);
        case kBF16: return round_to(kFormatBF16, value, round, finite);
        case kTF32: {
            const uint32_t bits = round_to(kFormatTF32, value, round, finite);
            return is_nan(value) ? kNan32 & 0xffffe000 : bits << 13;
        }
        case kE4M3: return round_to(kFormatE4M3, value, round, true);
        case kE5M2: return round_to(kFormatE5M2, value, round, true);
        case kF32: {
            RoundingScope scope(round);
            volatile float narrowed = static_cast<float>(value);
            return as<uint32_t>(flush_if((immediate & kFlushing) != 0, canonical(narrowed)));
        }
        default: return as<uint64_t>(canonical(value));
    }
}

uint64_t integer_to_float(__int128 integer, ptx::Type to, uint32_t immediate) {
    const bool is_negative = integer < 0;
    const unsigned __int128 magnitude = is_negative ? -static_cast<unsigned __int128>(integer) : static_cast<unsigned __int128>(integer);
    if (to != ptx::Type::kF64) {
        double value = to_odd_double(magnitude, is_negative);
        if ((immediate & kSaturating) != 0) value = saturate(value);
        return write_float(value, to, immediate);
    }
    RoundingScope scope(round_of(immediate));
    volatile double value = static_cast<double>(static_cast<uint64_t>(magnitude >> 32));
    volatile double low = static_cast<double>(static_cast<uint32_t>(magnitude));
    if (is_negative) {
        value = -value;
        low = -low;
    }
    value = value * 0x1p32;  // exact
    const double sum = value + low;
    return as<uint64_t>((immediate & kSaturating) != 0 ? saturate(sum) : sum);
}

uint64_t convert_value(uint64_t slot, uint32_t immediate) {
    const auto to = static_cast<ptx::Type>(immediate & 63), from = static_cast<ptx::Type>(immediate >> 6 & 63);
    // .ftz of a conversion to f16 leaves the subnormal source as it is: the hardware's rounding sees it.
    const Value value = read_value(from, slot, (immediate & kFlushing) != 0 && to != ptx::Type::kF16);
    if (!is_float(to)) {
        const Limits limits = limits_of(to);
        __int128 result = value.is_integer ? value.integer : real_to_integer(value.real, to, from, round_of(immediate));
        if ((immediate & kSaturating) != 0)
            result = result < limits.least ? limits.least : result > limits.greatest ? limits.greatest : result;
        return static_cast<uint64_t>(result);
    }
    if (value.is_integer) return integer_to_float(value.integer, to, immediate);
    double real = to_integral(value.real, round_of(immediate));
    if ((immediate & kSaturating) != 0) real = saturate(real);
    if ((immediate & kClipping) != 0 && real < 0) real = 0;
    if ((immediate & kClipping) != 0 && real == 0) real = 0.0;
    if (from == ptx::Type::kF64 && is_nan(real)) {  // keeps its sign and the upper bits of its payload, quieted
        const auto bits = as<uint64_t>(real);
        if (to == ptx::Type::kF32) return (bits >> 32 & 0x80000000) | 0x7fc00000 | (bits >> 29 & 0x3fffff);
        if (to == ptx::Type::kF16) return (bits >> 48 & 0x8000) | 0x7e00 | (bits >> 42 & 0x1ff);
        if (to == ptx::Type::kBF16) return (bits >> 48 & 0x8000) | 0x7fc0 | (bits >> 45 & 0x3f);
    }
    return write_float(real, to, immediate);
}

template <class D, class A>
void convert_any(const Args& args) {
    auto* d = destination<D>(args.d);
    const auto* a = source<A>(args.a);
    const auto to = static_cast<ptx::Type>(args.immediate & 63);
    const uint32_t bits = bits_of(to);
    for_lanes(args.mask, [&](uint32_t i) {
        uint64_t result = convert_value(a[i], args.immediate);
        if (!is_float(to) && bits < 32) result = is_signed(to) ? static_cast<uint32_t>(result) : result & ((uint64_t{1} << bits) - 1);
        d[i] = static_cast<Slot<D>>(result);
    });
}

// Two elements: immediate's types are those of one element.
struct PairFromFloats {  // cvt.f16x2.f32 d, a, b and kin; `a` goes to the upper half
    static uint32_t lane(uint32_t immediate, uint32_t a, uint32_t b) {
        const uint32_t width = bits_of(static_cast<ptx::Type>(immediate & 63));
        return static_cast<uint32_t>(convert_value(a, immediate) << width | convert_value(b, immediate));
    }
};
struct PairFromPair {  // cvt.e4m3x2.f16x2, cvt.f16x2.e4m3x2 and kin
    static uint32_t lane(uint32_t immediate, uint32_t a) {
        const uint32_t to = bits_of(static_cast<ptx::Type>(immediate & 63)), from = bits_of(static_cast<ptx::Type>(immediate >> 6 & 63));
        return static_cast<uint32_t>(convert_value(a >> from, immediate) << to | convert_value(a & ((1u << from) - 1), immediate));
    }
};

ptx::Type element_of(ptx::Type type) {
    using enum ptx::Type;
    switch (type) {
        case kF16x2: return kF16;
        case kBF16x2: return kBF16;
        case kE4M3x2: return kE4M3;
        case kE5M2x2: return kE5M2;
        default: return type;
    }
}

// cvt.pack: two saturated integers beside each other, `a` above `b`, and with a third operand that one shifted up above both.
// Args::immediate: bits of an element (0-7), whether it is signed (8).
uint32_t pack_two(uint32_t immediate, uint32_t a, uint32_t b) {
    const uint32_t bits = immediate & 0xff;
    const bool with_sign = (immediate >> 8 & 1) != 0;
    const int64_t least = with_sign ? -(int64_t{1} << (bits - 1)) : 0, greatest = (int64_t{1} << (with_sign ? bits - 1 : bits)) - 1;
    const auto element = [&](uint32_t value) {
        const int64_t x = static_cast<int32_t>(value);
        const int64_t clamped = x < least ? least : x > greatest ? greatest : x;
        return static_cast<uint32_t>(clamped) & ((1u << bits) - 1);
    };
    return element(a) << bits | element(b);
}
struct PackTwo {
    static uint32_t lane(uint32_t immediate, uint32_t a, uint32_t b) { return pack_two(immediate, a, b); }
};
struct PackAbove {
    static uint32_t lane(uint32_t immediate, uint32_t a, uint32_t b, uint32_t c) {
        return static_cast<uint32_t>(static_cast<uint64_t>(c) << 2 * (immediate & 0xff)) | pack_two(immediate, a, b);
    }
};

}  // namespace

Pick pick_convert(const Form& form) {
    const ptx::Type to = form.types[0], from = form.types[1];
    if (!is_float(to) && !is_float(from) && !form.has(kSat)) return {pick_integer_pair(to, from)};
    if (form.flags == 0) {
        for (const HotPair& pair : kHotPairs) {
            if (pair.to == to && pair.from == from && pair.round == form.round) return {pair.fn};
        }
    }
    if (to == ptx::Type::kF32 && from == ptx::Type::kF32 && form.round == Round::kNone) {
        if (form.flags == kSat) return {hot1<Saturated<false>, float, float>};
        if (form.flags == (kSat | kFtz)) return {hot1<Saturated<true>, float, float>};
    }
    if (to == ptx::Type::kTF32 && form.round == Round::kRna) return {hot1<FiniteTF32, uint32_t, uint32_t>};
    const bool to_wide = bits_of(to) == 64, from_wide = bits_of(from) == 64;
    const Fn fn = to_wide ? (from_wide ? convert_any<uint64_t, uint64_t> : convert_any<uint64_t, uint32_t>)
                          : (from_wide ? convert_any<uint32_t, uint64_t> : convert_any<uint32_t, uint32_t>);
    return {fn, encode(to, from, form)};
}

Pick pick_convert_pair(const Form& form) {
    const ptx::Type to = element_of(form.types[0]), from = element_of(form.types[1]);
    if (form.flags == 0 && form.round == Round::kRn && from == ptx::Type::kF32) {
        if (to == ptx::Type::kF16) return {hot2<NarrowPair<F16>, uint32_t, float>};
        if (to == ptx::Type::kBF16) return {hot2<NarrowPair<BF16>, uint32_t, float>};
    }
    const uint32_t immediate = encode(to, from, form);
    if (form.types[1] == ptx::Type::kF32) return {cold2<PairFromFloats, uint32_t, uint32_t>, immediate};
    return {cold1<PairFromPair, uint32_t, uint32_t>, immediate};
}

Pick pick_convert_pack(const Form& form) {
    const uint32_t bits = form.mode.empty() ? bits_of(form.type()) : static_cast<uint32_t>(form.mode[1] - '0');
    const bool with_sign = form.mode.empty() ? is_signed(form.type()) : form.mode[0] == 's';
    const uint32_t immediate = bits | (with_sign ? 1u << 8 : 0);
    const bool has_third = form.types[form.num_types - 1] == ptx::Type::kB32;
    return {has_third ? cold3<PackAbove, uint32_t, uint32_t> : cold2<PackTwo, uint32_t, uint32_t>, immediate};
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

// Logic, shifts, bit fields, byte permutation and moves: PTX ISA, "Logic and Shift Instructions", bit operations of "Integer Arithmetic
// Instructions", and "Data Movement and Conversion Instructions" for prmt and mov.
#include "lanes.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {
namespace {

struct And {
    template <class T>
    static T lane(T a, T b) {
        return static_cast<T>(a & b);
    }
};
struct Or {
    template <class T>
    static T lane(T a, T b) {
        return static_cast<T>(a | b);
    }
};
struct Xor {
    template <class T>
    static T lane(T a, T b) {
        return static_cast<T>(a ^ b);
    }
};
struct Not {
    template <class T>
    static T lane(T a) {
        return static_cast<T>(~a);
    }
};
struct Cnot {
    template <class T>
    static T lane(T a) {
        return a == 0 ? 1 : 0;
    }
};
struct Copy {
    template <class T>
    static T lane(T a) {
        return a;
    }
};

// Shift amounts beyond the width shift everything out (ISA: clamped to the width).
struct Shl {
    template <class T>
    static T lane(T a, uint32_t b) {
        return b >= sizeof(T) * 8 ? T{0} : static_cast<T>(static_cast<Slot<T>>(a) << (b & (sizeof(T) * 8 - 1)));
    }
};
struct Shr {
    template <class T>
    static T lane(T a, uint32_t b) {
        constexpr uint32_t kLast = sizeof(T) * 8 - 1;
        if constexpr (std::is_signed_v<T>) {
            return static_cast<T>(a >> (b > kLast ? kLast : b));
        } else {
            return b > kLast ? T{0} : static_cast<T>(a >> (b & kLast));
        }
    }
};

// Funnel shifts of the 64 bits b:a. left: the high word of b:a << n; right: the low word of b:a >> n.
struct FunnelLeftWrap {
    static uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
        return static_cast<uint32_t>((static_cast<uint64_t>(b) << 32 | a) << (c & 31) >> 32);
    }
};
struct FunnelRightWrap {
    static uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
        return static_cast<uint32_t>((static_cast<uint64_t>(b) << 32 | a) >> (c & 31));
    }
};
struct FunnelLeftClamp {
    static uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
        return static_cast<uint32_t>((static_cast<uint64_t>(b) << 32 | a) << (c > 32 ? 32 : c) >> 32);
    }
};
struct FunnelRightClamp {
    static uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
        return static_cast<uint32_t>((static_cast<uint64_t>(b) << 32 | a) >> (c > 32 ? 32 : c));
    }
};

// Truth table bit 4a + 2b + c. The minterms are chosen outside of the loop.
[[gnu::always_inline]] inline uint32_t lookup3(const uint32_t (&minterm)[8], uint32_t a, uint32_t b, uint32_t c) {
    return (minterm[0] & ~a & ~b & ~c) | (minterm[1] & ~a & ~b & c) | (minterm[2] & ~a & b & ~c) | (minterm[3] & ~a & b & c) |
           (minterm[4] & a & ~b & ~c) | (minterm[5] & a & ~b & c) | (minterm[6] & a & b & ~c) | (minterm[7] & a & b & c);
}

[[gnu::always_inline]] inline uint32_t lop3_rows(const Args& args) {
    uint32_t minterm[8];
    for (uint32_t i = 0; i < 8; ++i) minterm[i] = (args.immediate >> i & 1) != 0 ? ~0u : 0u;
    const auto *a = source<uint32_t>(args.a), *b = source<uint32_t>(args.b), *c = source<uint32_t>(args.c);
    alignas(64) uint32_t result[kLanes];
    for (uint32_t i = 0; i < kLanes; ++i) result[i] = lookup3(minterm, a[i], b[i], c[i]);
    uint32_t nonzero = 0;
    for (uint32_t i = 0; i < kLanes; ++i) nonzero |= result[i] != 0 ? kLaneBit[i] : 0;
    if (args.d != nullptr) {
        auto* d = destination<uint32_t>(args.d);
        for (uint32_t i = 0; i < kLanes; ++i) d[i] = (args.mask & kLaneBit[i]) != 0 ? result[i] : d[i];
    }
    return nonzero;
}

void lop3(const Args& args) { lop3_rows(args); }

template <Bool Operation>
void lop3_predicate(const Args& args) {
    write_predicate(args.pd, combine(Operation, lop3_rows(args), args.pa), args.mask);
}

// prmt's byte selectors, one nibble a byte of the result: bits 0-2 choose of b:a, bit 3 replicates the byte's sign.
struct Prmt {
    static uint32_t lane(uint32_t a, uint32_t b, uint32_t c) {
        const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
        uint32_t result = 0;
        for (uint32_t i = 0; i < 4; ++i) {
            const uint32_t selector = c >> 4 * i;
            const auto byte = static_cast<uint32_t>(bytes >> 8 * (selector & 7)) & 0xff;
            const uint32_t sign = byte >> 7 != 0 ? 0xff : 0;
            result |= ((selector & 8) != 0 ? sign : byte) << 8 * i;
        }
        return result;
    }
};

// The special modes are generic selectors chosen by c & 3.
template <uint32_t S0, uint32_t S1, uint32_t S2, uint32_t S3>
struct PrmtMode {
    static uint32_t lane(uint32_t, uint32_t a, uint32_t b, uint32_t c) {
        constexpr uint32_t kSelectors[4] = {S0, S1, S2, S3};
        return Prmt::lane(a, b, kSelectors[c & 3]);
    }
};

struct Popc {
    template <class T>
    static uint32_t lane(uint32_t, T a) {
        return static_cast<uint32_t>(__builtin_popcountll(a));
    }
};
struct Clz {
    template <class T>
    static uint32_t lane(uint32_t, T a) {
        return a == 0 ? sizeof(T) * 8 : static_cast<uint32_t>(__builtin_clzll(a)) - (64 - sizeof(T) * 8);
    }
};
struct Brev {
    template <class T>
    static T lane(uint32_t, T a) {
        T result = 0;
        for (uint32_t i = 0; i < sizeof(T) * 8; ++i) result = static_cast<T>(result << 1 | (a >> i & 1));
        return result;
    }
};
// Most significant bit that differs from the sign (signed) or from zero (unsigned).
struct Bfind {
    template <class T>
    static uint32_t lane(uint32_t modifiers, T a) {
        using U = std::make_unsigned_t<T>;
        const U bits = static_cast<U>(a < 0 ? ~a : a);
        if (bits == 0) return ~0u;
        const auto position = 63 - static_cast<uint32_t>(__builtin_clzll(bits));
        return (modifiers & kShiftamt) != 0 ? static_cast<uint32_t>(sizeof(T) * 8 - 1) - position : position;
    }
};

struct Fns {
    static uint32_t lane(uint32_t, uint32_t bits, uint32_t base, int32_t offset) {
        if (base > 31) return ~0u;
        if (offset == 0) return (bits >> base & 1) != 0 ? base : ~0u;
        const int32_t step = offset > 0 ? 1 : -1;
        int64_t remaining = (offset > 0 ? static_cast<int64_t>(offset) : -static_cast<int64_t>(offset)) - 1;
        for (auto position = static_cast<int32_t>(base); position >= 0 && position < 32; position += step) {
            if ((bits >> position & 1) == 0) continue;
            if (remaining == 0) return static_cast<uint32_t>(position);
            --remaining;
        }
        return ~0u;
    }
};

// Position and length of a bit field. The ISA restricts them to 0..255; 32-bit forms read their low 8 bits, 64-bit ones, which the hardware
// puts together from shifts, all 32.
template <class T>
uint32_t field_operand(uint32_t value) {
    return sizeof(T) == 8 ? value : value & 0xff;
}

struct Bfe {
    template <class T>
    static T lane(uint32_t, T a, uint32_t b, uint32_t c) {
        using U = std::make_unsigned_t<T>;
        constexpr uint32_t kWidth = sizeof(T) * 8;
        const uint32_t position = field_operand<T>(b), length = field_operand<T>(c);
        if (length == 0) return 0;
        const uint64_t end = uint64_t{position} + length - 1;
        const auto last = static_cast<uint32_t>(end < kWidth - 1 ? end : kWidth - 1);
        const bool fill = std::is_signed_v<T> && (static_cast<U>(a) >> last & 1) != 0;
        U field = position < kWidth ? static_cast<U>(a) >> position : U{0};
        const uint32_t available = position < kWidth ? (length < kWidth - position ? length : kWidth - position) : 0;
        if (available < kWidth) {
            const U above = ~U{0} << available;
            field = fill ? field | above : field & ~above;
        }
        return static_cast<T>(field);
    }
};

template <class T>
void bfi(const Args& args) {
    constexpr uint32_t kWidth = sizeof(T) * 8;
    auto* d = destination<T>(args.d);
    const auto *a = source<T>(args.a), *b = source<T>(args.b);
    const auto *c = source<uint32_t>(args.c), *e = source<uint32_t>(args.e);
    for_lanes(args.mask, [=](uint32_t i) {
        const uint32_t position = field_operand<T>(c[i]), length = field_operand<T>(e[i]);
        const T field = length >= kWidth ? ~T{0} : static_cast<T>((T{1} << length) - 1);
        const T place = position < kWidth ? static_cast<T>(field << position) : T{0};
        const T inserted = position < kWidth ? static_cast<T>(a[i] << position) : T{0};
        d[i] = (b[i] & ~place) | (inserted & place);
    });
}

struct Szext {
    template <class T>
    static T lane(uint32_t modifiers, T a, uint32_t b) {
        if ((modifiers & kClamp) != 0 && b >= 32) return a;
        const uint32_t width = b & 31;
        if (width == 0) return 0;
        const uint32_t left = static_cast<uint32_t>(a) << (32 - width);
        return static_cast<T>(static_cast<T>(left) >> (32 - width));
    }
};

struct Bmsk {
    static uint32_t lane(uint32_t modifiers, uint32_t a, uint32_t b) {
        const uint32_t position = a & 31, width = b & 31;
        uint32_t from = ~0u << position;
        const bool is_clamp = (modifiers & kClamp) != 0;
        const bool position_overflow = is_clamp && a >= 32, width_overflow = is_clamp && b >= 32;
        if (position_overflow) from = 0;
        const uint32_t end = position + width;
        uint32_t beyond = end >= 32 || position_overflow || width_overflow ? 0 : ~0u << end;
        if (width == 0 && !position_overflow && !width_overflow) beyond = ~0u;
        return from & ~beyond;
    }
};

void and_pred(const Args& args) { write_predicate(args.pd, args.pa & args.pb, args.mask); }
void or_pred(const Args& args) { write_predicate(args.pd, args.pa | args.pb, args.mask); }
void xor_pred(const Args& args) { write_predicate(args.pd, args.pa ^ args.pb, args.mask); }
void not_pred(const Args& args) { write_predicate(args.pd, ~args.pa, args.mask); }
void mov_pred(const Args& args) { write_predicate(args.pd, args.pa, args.mask); }

struct ByWidth {
    std::string_view opcode;
    Fn b16, b32, b64;

    Fn of(ptx::Type type) const {
        switch (bits_of(type)) {
            case 16: return b16;
            case 32: return b32;
            case 64: return b64;
            default: return nullptr;
        }
    }
};

template <class F>
constexpr ByWidth binary_by_width(std::string_view opcode) {
    return {opcode, hot2<F, uint16_t, uint16_t>, hot2<F, uint32_t, uint32_t>, hot2<F, uint64_t, uint64_t>};
}
template <class F>
constexpr ByWidth unary_by_width(std::string_view opcode) {
    return {opcode, hot1<F, uint16_t, uint16_t>, hot1<F, uint32_t, uint32_t>, hot1<F, uint64_t, uint64_t>};
}

constexpr ByWidth kLogic[] = {binary_by_width<And>("and"), binary_by_width<Or>("or"), binary_by_width<Xor>("xor"),
                              unary_by_width<Not>("not"), unary_by_width<Cnot>("cnot")};
constexpr ByWidth kShl{"shl", hot2<Shl, uint16_t, uint16_t, uint32_t>, hot2<Shl, uint32_t, uint32_t, uint32_t>,
                       hot2<Shl, uint64_t, uint64_t, uint32_t>};
constexpr ByWidth kShrUnsigned{"shr", hot2<Shr, uint16_t, uint16_t, uint32_t>, hot2<Shr, uint32_t, uint32_t, uint32_t>,
                               hot2<Shr, uint64_t, uint64_t, uint32_t>};
constexpr ByWidth kShrSigned{"shr", hot2<Shr, int16_t, int16_t, uint32_t>, hot2<Shr, int32_t, int32_t, uint32_t>,
                             hot2<Shr, int64_t, int64_t, uint32_t>};
constexpr ByWidth kCopy = unary_by_width<Copy>("mov");

struct Mode {
    std::string_view name;
    Fn fn;
};
constexpr Mode kPrmtModes[] = {
    {"", hot3<Prmt, uint32_t, uint32_t>},
    {"f4e", cold3<PrmtMode<0x3210, 0x4321, 0x5432, 0x6543>, uint32_t, uint32_t>},
    {"b4e", cold3<PrmtMode<0x5670, 0x6701, 0x7012, 0x0123>, uint32_t, uint32_t>},
    {"rc8", cold3<PrmtMode<0x0000, 0x1111, 0x2222, 0x3333>, uint32_t, uint32_t>},
    {"ecl", cold3<PrmtMode<0x3210, 0x3211, 0x3222, 0x3333>, uint32_t, uint32_t>},
    {"ecr", cold3<PrmtMode<0x0000, 0x1110, 0x2210, 0x3210>, uint32_t, uint32_t>},
    {"rc16", cold3<PrmtMode<0x1010, 0x3232, 0x1010, 0x3232>, uint32_t, uint32_t>},
};

}  // namespace

Pick pick_logic(const Form& form) {
    if (form.opcode == "lop3") {
        return {form.boolean == Bool::kNone ? lop3 : form.boolean == Bool::kAnd ? lop3_predicate<Bool::kAnd> : lop3_predicate<Bool::kOr>};
    }
    for (const ByWidth& row : kLogic) {
        if (row.opcode == form.opcode) return {row.of(form.type())};
    }
    return {};
}

Pick pick_shift(const Form& form) {
    if (form.opcode == "shf") {
        if (form.has(kLeft))
            return {form.has(kWrap) ? hot3<FunnelLeftWrap, uint32_t, uint32_t> : hot3<FunnelLeftClamp, uint32_t, uint32_t>};
        return {form.has(kWrap) ? hot3<FunnelRightWrap, uint32_t, uint32_t> : hot3<FunnelRightClamp, uint32_t, uint32_t>};
    }
    const ByWidth& row = form.opcode == "shl" ? kShl : is_signed(form.type()) ? kShrSigned : kShrUnsigned;
    return {row.of(form.type())};
}

Pick pick_bits(const Form& form) {
    const bool is_wide = bits_of(form.type()) == 64, with_sign = is_signed(form.type());
    const auto choose = [&](Fn narrow, Fn wide) { return Pick{is_wide ? wide : narrow, form.pack()}; };
    if (form.opcode == "popc") return choose(cold1<Popc, uint32_t, uint32_t>, cold1<Popc, uint32_t, uint64_t>);
    if (form.opcode == "clz") return choose(cold1<Clz, uint32_t, uint32_t>, cold1<Clz, uint32_t, uint64_t>);
    if (form.opcode == "brev") return choose(cold1<Brev, uint32_t, uint32_t>, cold1<Brev, uint64_t, uint64_t>);
    if (form.opcode == "bfind" && with_sign) return choose(cold1<Bfind, uint32_t, int32_t>, cold1<Bfind, uint32_t, int64_t>);
    if (form.opcode == "bfind") return choose(cold1<Bfind, uint32_t, uint32_t>, cold1<Bfind, uint32_t, uint64_t>);
    if (form.opcode == "fns") return {cold3<Fns, uint32_t, uint32_t, uint32_t, int32_t>};
    if (form.opcode == "bfe" && with_sign) {
        return choose(cold3<Bfe, int32_t, int32_t, uint32_t, uint32_t>, cold3<Bfe, int64_t, int64_t, uint32_t, uint32_t>);
    }
    if (form.opcode == "bfe")
        return choose(cold3<Bfe, uint32_t, uint32_t, uint32_t, uint32_t>, cold3<Bfe, uint64_t, uint64_t, uint32_t, uint32_t>);
    if (form.opcode == "bfi") return choose(bfi<uint32_t>, bfi<uint64_t>);
    if (form.opcode == "szext")
        return {with_sign ? cold2<Szext, int32_t, int32_t, uint32_t> : cold2<Szext, uint32_t, uint32_t>, form.pack()};
    if (form.opcode == "bmsk") return {cold2<Bmsk, uint32_t, uint32_t>, form.pack()};
    if (form.opcode == "prmt") {
        for (const Mode& mode : kPrmtModes) {
            if (mode.name == form.mode) return {mode.fn};
        }
    }
    return {};
}

Pick pick_move(const Form& form) { return {kCopy.of(form.type())}; }

Pick pick_predicate(const Form& form) {
    if (form.opcode == "and") return {and_pred};
    if (form.opcode == "or") return {or_pred};
    if (form.opcode == "xor") return {xor_pred};
    if (form.opcode == "not") return {not_pred};
    if (form.opcode == "mov") return {mov_pred};
    return {};
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

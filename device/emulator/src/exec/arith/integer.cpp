// Integer arithmetic: PTX ISA, "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic Instructions".
#include <limits>

#include "lanes.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {
namespace {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// Wider than T by a factor of two.
template <class T>
struct Widened;
template <>
struct Widened<uint16_t> {
    using type = uint32_t;
};
template <>
struct Widened<int16_t> {
    using type = int32_t;
};
template <>
struct Widened<uint32_t> {
    using type = uint64_t;
};
template <>
struct Widened<int32_t> {
    using type = int64_t;
};
template <>
struct Widened<uint64_t> {
    using type = unsigned __int128;
};
template <>
struct Widened<int64_t> {
    using type = __int128;
};
template <class T>
using Wide = typename Widened<T>::type;

template <class T>
constexpr uint32_t kBits = sizeof(T) * 8;

template <class T>
T clamp_to(Wide<T> value) {
    if (value > std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
    if (value < std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
    return static_cast<T>(value);
}

// Wrapping operations are done on 32 or 64 unsigned bits, so that no signed overflow occurs.
template <class T>
using Word = Slot<T>;

struct Add {
    template <class T>
    static T lane(T a, T b) {
        return static_cast<T>(static_cast<Word<T>>(a) + static_cast<Word<T>>(b));
    }
};
struct Sub {
    template <class T>
    static T lane(T a, T b) {
        return static_cast<T>(static_cast<Word<T>>(a) - static_cast<Word<T>>(b));
    }
};
struct MulLo {
    template <class T>
    static T lane(T a, T b) {
        return static_cast<T>(static_cast<Word<T>>(a) * static_cast<Word<T>>(b));
    }
};
struct MulHi {
    template <class T>
    static T lane(T a, T b) {
        return static_cast<T>(static_cast<Wide<T>>(a) * b >> kBits<T>);
    }
};
struct MulWide {
    template <class T>
    static Wide<T> lane(T a, T b) {
        return static_cast<Wide<T>>(a) * b;
    }
};
struct MadLo {
    template <class T>
    static T lane(T a, T b, T c) {
        return Add::lane(MulLo::lane(a, b), c);
    }
};
struct MadHi {
    template <class T>
    static T lane(T a, T b, T c) {
        return Add::lane(MulHi::lane(a, b), c);
    }
};
struct MadWide {
    template <class T>
    static Wide<T> lane(T a, T b, Wide<T> c) {
        return Add::lane(MulWide::lane(a, b), c);
    }
};
struct Min {
    template <class T>
    static T lane(T a, T b) {
        return a < b ? a : b;
    }
};
struct Max {
    template <class T>
    static T lane(T a, T b) {
        return a < b ? b : a;
    }
};
struct Neg {
    template <class T>
    static T lane(T a) {
        return static_cast<T>(0 - static_cast<Word<T>>(a));
    }
};
struct Abs {
    template <class T>
    static T lane(T a) {
        return a < 0 ? Neg::lane(a) : a;
    }
};
struct Sad {
    template <class T>
    static T lane(T a, T b, T c) {
        return Add::lane(c, Sub::lane(Max::lane(a, b), Min::lane(a, b)));
    }
};

struct AddSat {
    static int32_t lane(int32_t a, int32_t b) { return clamp_to<int32_t>(static_cast<int64_t>(a) + b); }
};
struct SubSat {
    static int32_t lane(int32_t a, int32_t b) { return clamp_to<int32_t>(static_cast<int64_t>(a) - b); }
};
struct MadHiSat {
    static int32_t lane(uint32_t, int32_t a, int32_t b, int32_t c) {
        return clamp_to<int32_t>(static_cast<int64_t>(MulHi::lane(a, b)) + c);
    }
};
struct MinRelu {
    static int32_t lane(int32_t a, int32_t b) { return Max::lane(Min::lane(a, b), 0); }
};
struct MaxRelu {
    static int32_t lane(int32_t a, int32_t b) { return Max::lane(Max::lane(a, b), 0); }
};

// Division by zero sets all bits of quotient and remainder, as the code that ptxas emits for 32 bits does; the ISA leaves both open.
struct Div {
    template <class T>
    static T lane(uint32_t, T a, T b) {
        if (b == 0) return static_cast<T>(-1);
        if constexpr (std::is_signed_v<T>) {
            if (b == -1) return Neg::lane(a);
        }
        return static_cast<T>(a / b);
    }
};
struct Rem {
    template <class T>
    static T lane(uint32_t, T a, T b) {
        if (b == 0) return static_cast<T>(-1);
        if constexpr (std::is_signed_v<T>) {
            if (b == -1) return 0;
        }
        return static_cast<T>(a % b);
    }
};

// 24-bit products: the low or the high 32 of their 48 bits.
template <class T>
T multiply24(uint32_t modifiers, T a, T b) {
    const int64_t x = std::is_signed_v<T> ? static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8 : static_cast<int64_t>(a & 0xffffff);
    const int64_t y = std::is_signed_v<T> ? static_cast<int32_t>(static_cast<uint32_t>(b) << 8) >> 8 : static_cast<int64_t>(b & 0xffffff);
    const auto product = static_cast<uint64_t>(x) * static_cast<uint64_t>(y);
    return static_cast<T>((modifiers & kHi) != 0 ? product >> 16 : product);
}
struct Mul24 {
    template <class T>
    static T lane(uint32_t modifiers, T a, T b) {
        return multiply24(modifiers, a, b);
    }
};
struct Mad24 {
    template <class T>
    static T lane(uint32_t modifiers, T a, T b, T c) {
        const T product = multiply24(modifiers, a, b);
        if constexpr (std::is_signed_v<T>) {
            if ((modifiers & kSat) != 0) return clamp_to<T>(static_cast<Wide<T>>(product) + c);
        }
        return Add::lane(product, c);
    }
};

// Two 16-bit values in a word; T is the type of a half.
template <class F, class T>
struct Halves {
    static uint32_t lane(uint32_t modifiers, uint32_t a, uint32_t b) {
        T low = F::lane(static_cast<T>(a), static_cast<T>(b));
        T high = F::lane(static_cast<T>(a >> 16), static_cast<T>(b >> 16));
        if ((modifiers & kRelu) != 0) {
            low = Max::lane(low, T{0});
            high = Max::lane(high, T{0});
        }
        return static_cast<uint16_t>(low) | static_cast<uint32_t>(static_cast<uint16_t>(high)) << 16;
    }
};

struct Operator {
    std::string_view name;
    Fn u16, s16, u32, s32, u64, s64;

    Fn of(ptx::Type type) const {
        using enum ptx::Type;
        switch (type) {
            case kU16: return u16;
            case kS16: return s16;
            case kU32:
            case kB32: return u32;
            case kS32: return s32;
            case kU64:
            case kB64: return u64;
            case kS64: return s64;
            default: return nullptr;
        }
    }
};

// Operations on bit patterns are the same function for signed and unsigned.
template <class F>
constexpr Operator kModular1{"",
                             hot1<F, uint16_t, uint16_t>,
                             hot1<F, uint16_t, uint16_t>,
                             hot1<F, uint32_t, uint32_t>,
                             hot1<F, uint32_t, uint32_t>,
                             hot1<F, uint64_t, uint64_t>,
                             hot1<F, uint64_t, uint64_t>};
template <class F>
constexpr Operator kModular2{"",
                             hot2<F, uint16_t, uint16_t>,
                             hot2<F, uint16_t, uint16_t>,
                             hot2<F, uint32_t, uint32_t>,
                             hot2<F, uint32_t, uint32_t>,
                             hot2<F, uint64_t, uint64_t>,
                             hot2<F, uint64_t, uint64_t>};
template <class F>
constexpr Operator kModular3{"",
                             hot3<F, uint16_t, uint16_t>,
                             hot3<F, uint16_t, uint16_t>,
                             hot3<F, uint32_t, uint32_t>,
                             hot3<F, uint32_t, uint32_t>,
                             hot3<F, uint64_t, uint64_t>,
                             hot3<F, uint64_t, uint64_t>};
template <class F>
constexpr Operator kTyped2{"",
                           hot2<F, uint16_t, uint16_t>,
                           hot2<F, int16_t, int16_t>,
                           hot2<F, uint32_t, uint32_t>,
                           hot2<F, int32_t, int32_t>,
                           hot2<F, uint64_t, uint64_t>,
                           hot2<F, int64_t, int64_t>};
template <class F>
constexpr Operator kTyped3{"",
                           hot3<F, uint16_t, uint16_t>,
                           hot3<F, int16_t, int16_t>,
                           hot3<F, uint32_t, uint32_t>,
                           hot3<F, int32_t, int32_t>,
                           hot3<F, uint64_t, uint64_t>,
                           hot3<F, int64_t, int64_t>};
template <class F>
constexpr Operator kCold2{"",
                          cold2<F, uint16_t, uint16_t>,
                          cold2<F, int16_t, int16_t>,
                          cold2<F, uint32_t, uint32_t>,
                          cold2<F, int32_t, int32_t>,
                          cold2<F, uint64_t, uint64_t>,
                          cold2<F, int64_t, int64_t>};

constexpr Operator named(std::string_view name, Operator op) {
    op.name = name;
    return op;
}

constexpr Operator kOperators[] = {
    named("add", kModular2<Add>),
    named("sub", kModular2<Sub>),
    named("mul.lo", kModular2<MulLo>),
    named("mul.hi", kTyped2<MulHi>),
    named("mad.lo", kModular3<MadLo>),
    named("mad.hi", kTyped3<MadHi>),
    named("min", kTyped2<Min>),
    named("max", kTyped2<Max>),
    named("neg", kModular1<Neg>),
    named("sad", kTyped3<Sad>),
    named("div", kCold2<Div>),
    named("rem", kCold2<Rem>),
    {"abs", nullptr, hot1<Abs, int16_t, int16_t>, nullptr, hot1<Abs, int32_t, int32_t>, nullptr, hot1<Abs, int64_t, int64_t>},
    {"mul.wide", hot2<MulWide, uint32_t, uint16_t>, hot2<MulWide, int32_t, int16_t>, hot2<MulWide, uint64_t, uint32_t>,
     hot2<MulWide, int64_t, int32_t>, nullptr, nullptr},
    {"mad.wide", hot3<MadWide, uint32_t, uint16_t>, hot3<MadWide, int32_t, int16_t>, hot3<MadWide, uint64_t, uint32_t>,
     hot3<MadWide, int64_t, int32_t>, nullptr, nullptr},
    {"mul24", nullptr, nullptr, cold2<Mul24, uint32_t, uint32_t>, cold2<Mul24, int32_t, int32_t>, nullptr, nullptr},
    {"mad24", nullptr, nullptr, cold3<Mad24, uint32_t, uint32_t>, cold3<Mad24, int32_t, int32_t>, nullptr, nullptr},
};

struct Special {
    std::string_view name;
    ptx::Type type;
    uint32_t flags;  // of kSat and kRelu; kAny: read at run time
    Fn fn;
};
constexpr uint32_t kAny = ~0u;

constexpr Special kSpecials[] = {
    {"add", ptx::Type::kS32, kSat, hot2<AddSat, int32_t, int32_t>},
    {"sub", ptx::Type::kS32, kSat, hot2<SubSat, int32_t, int32_t>},
    {"mad.hi", ptx::Type::kS32, kSat, cold3<MadHiSat, int32_t, int32_t>},
    {"min", ptx::Type::kS32, kRelu, hot2<MinRelu, int32_t, int32_t>},
    {"max", ptx::Type::kS32, kRelu, hot2<MaxRelu, int32_t, int32_t>},
    {"add", ptx::Type::kU16x2, kAny, cold2<Halves<Add, uint16_t>, uint32_t, uint32_t>},
    {"add", ptx::Type::kS16x2, kAny, cold2<Halves<Add, int16_t>, uint32_t, uint32_t>},
    {"min", ptx::Type::kU16x2, kAny, cold2<Halves<Min, uint16_t>, uint32_t, uint32_t>},
    {"min", ptx::Type::kS16x2, kAny, cold2<Halves<Min, int16_t>, uint32_t, uint32_t>},
    {"max", ptx::Type::kU16x2, kAny, cold2<Halves<Max, uint16_t>, uint32_t, uint32_t>},
    {"max", ptx::Type::kS16x2, kAny, cold2<Halves<Max, int16_t>, uint32_t, uint32_t>},
};

// Sums with carry. The condition code holds the carry of what the adder does, so after a subtraction, a + ~b + 1, the inverse of the
// borrow. The ISA speaks of a borrow and leaves open what an addc sees after a sub.cc; this is what an H200 does. Unsigned T serves both
// signs, except for the high half of a product.
template <class T>
struct WithCarry {
    T value;
    bool carry;
};

template <class T>
WithCarry<T> add_carry(T a, T b, bool carry) {
    T sum = 0;
    const bool first = __builtin_add_overflow(a, b, &sum);
    const bool second = __builtin_add_overflow(sum, static_cast<T>(carry), &sum);
    return {sum, first || second};
}

template <class T>
WithCarry<T> sub_borrow(T a, T b, bool borrow) {
    T difference = 0;
    const bool first = __builtin_sub_overflow(a, b, &difference);
    const bool second = __builtin_sub_overflow(difference, static_cast<T>(borrow), &difference);
    return {difference, first || second};
}

// Reads the condition code where `Reads` (addc, subc, madc), writes it under the modifier .cc.
template <bool Reads, class T, class Compute>
void carry_loop(const Args& args, Compute compute) {
    auto* d = destination<T>(args.d);
    uint32_t carry = *args.carry;
    for_lanes(args.mask, [&](uint32_t i) {
        const auto result = compute(i, Reads && (carry >> i & 1) != 0);
        d[i] = result.value;
        if ((args.immediate & kCc) != 0) carry = (carry & ~kLaneBit[i]) | (result.carry ? kLaneBit[i] : 0);
    });
    *args.carry = carry;
}

template <class T, bool Reads>
void add_cc(const Args& args) {
    const auto *a = source<T>(args.a), *b = source<T>(args.b);
    carry_loop<Reads, T>(args, [=](uint32_t i, bool carry) { return add_carry<T>(a[i], b[i], carry); });
}

template <class T, bool Reads>
void sub_cc(const Args& args) {
    const auto *a = source<T>(args.a), *b = source<T>(args.b);
    carry_loop<Reads, T>(args, [=](uint32_t i, bool carry) {
        auto result = sub_borrow<T>(a[i], b[i], Reads && !carry);
        result.carry = !result.carry;
        return result;
    });
}

template <class T, bool Reads>
void mad_cc(const Args& args) {
    using U = Unsigned<T>;
    const auto *a = source<T>(args.a), *b = source<T>(args.b), *c = source<T>(args.c);
    const bool high = (args.immediate & kHi) != 0;
    carry_loop<Reads, U>(args, [=](uint32_t i, bool carry) {
        const T x = take<T>(a[i]), y = take<T>(b[i]);
        const T product = high ? MulHi::lane(x, y) : MulLo::lane(x, y);
        return add_carry<U>(static_cast<U>(product), c[i], carry);
    });
}

template <bool Reads>
Fn pick_sum(const Form& form) {
    const bool is_wide = bits_of(form.type()) == 64;
    if (form.opcode.starts_with("add")) return is_wide ? add_cc<uint64_t, Reads> : add_cc<uint32_t, Reads>;
    if (form.opcode.starts_with("sub")) return is_wide ? sub_cc<uint64_t, Reads> : sub_cc<uint32_t, Reads>;
    if (is_signed(form.type())) return is_wide ? mad_cc<int64_t, Reads> : mad_cc<int32_t, Reads>;
    return is_wide ? mad_cc<uint64_t, Reads> : mad_cc<uint32_t, Reads>;
}

// dp4a and dp2a: types are those of the parts of a and of b; the sum wraps.
template <class A, class B>
struct Dp4a {
    static uint32_t lane(uint32_t, uint32_t a, uint32_t b, uint32_t c) {
        for (uint32_t i = 0; i < 32; i += 8) c += static_cast<uint32_t>(static_cast<A>(a >> i) * static_cast<B>(b >> i));
        return c;
    }
};
template <class A, class B>
struct Dp2a {
    static uint32_t lane(uint32_t modifiers, uint32_t a, uint32_t b, uint32_t c) {
        if ((modifiers & kHi) != 0) b >>= 16;
        for (uint32_t i = 0; i < 2; ++i) c += static_cast<uint32_t>(static_cast<A>(a >> 16 * i) * static_cast<B>(b >> 8 * i));
        return c;
    }
};

// vabsdiff4 without byte masks and selectors: four absolute differences side by side, or with .add their sum on top of c.
// The intrinsics __vabsdiff[us]4 and __vsad[us]4 come to this.
template <class T>
struct VAbsDiff4 {
    static uint32_t lane(uint32_t modifiers, uint32_t a, uint32_t b, uint32_t c) {
        uint32_t bytes = 0, sum = c;
        for (uint32_t i = 0; i < 32; i += 8) {
            const int32_t difference = static_cast<T>(a >> i) - static_cast<T>(b >> i);
            const auto magnitude = static_cast<uint32_t>(difference < 0 ? -difference : difference);
            bytes |= (magnitude & 0xff) << i;
            sum += magnitude;
        }
        return (modifiers & kSum) != 0 ? sum : bytes;
    }
};

}  // namespace

Pick pick_integer(const Form& form) {
    std::string_view name = form.opcode;
    if (name == "mul") name = form.has(kHi) ? "mul.hi" : form.has(kWide) ? "mul.wide" : "mul.lo";
    if (name == "mad") name = form.has(kHi) ? "mad.hi" : form.has(kWide) ? "mad.wide" : "mad.lo";
    const uint32_t special = form.flags & (kSat | kRelu);
    for (const Special& row : kSpecials) {
        if (row.name == name && row.type == form.type() && (row.flags == kAny || row.flags == special)) return {row.fn, form.pack()};
    }
    for (const Operator& row : kOperators) {
        if (row.name == name) return {row.of(form.type()), form.pack()};
    }
    return {};
}

Pick pick_carry(const Form& form) {
    const bool reads = form.opcode.ends_with('c');
    return {reads ? pick_sum<true>(form) : pick_sum<false>(form), form.pack()};
}

Pick pick_video(const Form& form) {
    return {is_signed(form.type()) ? cold3<VAbsDiff4<int8_t>, uint32_t, uint32_t> : cold3<VAbsDiff4<uint8_t>, uint32_t, uint32_t>,
            form.pack()};
}

Pick pick_dot(const Form& form) {
    const bool a = is_signed(form.types[0]), b = is_signed(form.types[1]);
    Fn fn = nullptr;
    if (form.opcode == "dp4a") {
        fn = a ? (b ? cold3<Dp4a<int8_t, int8_t>, uint32_t, uint32_t> : cold3<Dp4a<int8_t, uint8_t>, uint32_t, uint32_t>)
               : (b ? cold3<Dp4a<uint8_t, int8_t>, uint32_t, uint32_t> : cold3<Dp4a<uint8_t, uint8_t>, uint32_t, uint32_t>);
    } else {
        fn = a ? (b ? cold3<Dp2a<int16_t, int8_t>, uint32_t, uint32_t> : cold3<Dp2a<int16_t, uint8_t>, uint32_t, uint32_t>)
               : (b ? cold3<Dp2a<uint16_t, int8_t>, uint32_t, uint32_t> : cold3<Dp2a<uint16_t, uint8_t>, uint32_t, uint32_t>);
    }
    return {fn, form.pack()};
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

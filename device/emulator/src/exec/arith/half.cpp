// f16, bf16 and their pairs: PTX ISA, "Half Precision Floating Point Instructions".
//
// Sums, differences and products of two f16 are computed in single precision: 24 bits are enough that the second rounding is innocuous
// (p >= 2q + 2; Figueroa, "When is double rounding innocuous?", 1995). Fused operations, and bf16 products that may be subnormal in single
// precision, go through round-to-odd sums instead.
#include "values.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {
namespace {

struct Add {
    static F16 lane(F16 a, F16 b) { return to_f16(widen(a) + widen(b)); }
    static BF16 lane(BF16 a, BF16 b) { return to_bf16(widen(a) + widen(b)); }
};
struct Sub {
    static F16 lane(F16 a, F16 b) { return to_f16(widen(a) - widen(b)); }
    static BF16 lane(BF16 a, BF16 b) { return to_bf16(widen(a) - widen(b)); }
};
struct Mul {
    static F16 lane(F16 a, F16 b) { return to_f16(widen(a) * widen(b)); }
    static BF16 lane(BF16 a, BF16 b) { return to_bf16(narrow_to_odd(static_cast<double>(widen(a)) * static_cast<double>(widen(b)))); }
};
struct Fma {
    static F16 lane(F16 a, F16 b, F16 c) { return to_f16(add_to_odd(widen(a) * widen(b), widen(c))); }
    static BF16 lane(BF16 a, BF16 b, BF16 c) {
        const double product = static_cast<double>(widen(a)) * static_cast<double>(widen(b));
        return to_bf16(narrow_to_odd(add_to_odd(product, static_cast<double>(widen(c)))));
    }
};

template <class H>
constexpr uint32_t kInfinityOf = std::is_same_v<H, F16> ? 0x7c00 : 0x7f80;
template <class H>
constexpr uint32_t kNanOf = std::is_same_v<H, F16> ? kNanF16 : kNanBF16;
template <class H>
constexpr uint32_t kOneOf = std::is_same_v<H, F16> ? 0x3c00 : 0x3f80;

template <class H>
bool is_nan_half(H x) {
    return (x.bits & 0x7fff) > kInfinityOf<H>;
}
template <class H>
H half_of(uint32_t bits) {
    return {static_cast<uint16_t>(bits)};
}
template <class H>
H flush_half(H x) {
    return (x.bits & kInfinityOf<H>) == 0 ? half_of<H>(x.bits & 0x8000) : x;
}

// .ftz, .sat and .relu around F.
template <class F>
struct Modified {
    template <class H, class... T>
    static H lane(uint32_t modifiers, H a, T... rest) {
        const auto in = [&](H x) { return (modifiers & kFtz) != 0 ? flush_half(x) : x; };
        H result = in(F::lane(in(a), in(rest)...));
        if (is_nan_half(result)) return (modifiers & kSat) != 0 ? half_of<H>(0) : result;
        const bool is_negative = (result.bits & 0x8000) != 0;
        if ((modifiers & (kSat | kRelu)) != 0 && is_negative) return half_of<H>(0);
        if ((modifiers & kSat) != 0 && result.bits > kOneOf<H>) return half_of<H>(kOneOf<H>);
        return result;
    }
};

template <class H>
H magnitude_of(H x) {
    return half_of<H>(x.bits & 0x7fffu);
}

// As for f32, NaN comes out canonical.
struct Neg {
    template <class H>
    static H lane(H x) {
        return half_of<H>(is_nan_half(x) ? kNanOf<H> : x.bits ^ 0x8000u);
    }
};
struct Abs {
    template <class H>
    static H lane(H x) {
        return half_of<H>(is_nan_half(x) ? kNanOf<H> : x.bits & 0x7fffu);
    }
};

template <bool kMaximum>
struct Extremum {
    template <class H>
    static H lane(uint32_t modifiers, H a, H b) {
        if ((modifiers & kFtz) != 0) {
            a = flush_half(a);
            b = flush_half(b);
        }
        const uint32_t sign = (a.bits ^ b.bits) & 0x8000u;
        if ((modifiers & kXorsign) != 0) {
            a = magnitude_of(a);
            b = magnitude_of(b);
        }
        const bool a_nan = is_nan_half(a), b_nan = is_nan_half(b);
        if ((a_nan && b_nan) || ((modifiers & kNan) != 0 && (a_nan || b_nan))) return half_of<H>(kNanOf<H>);
        H result = a_nan ? b : a;
        if (!a_nan && !b_nan) {
            // Sign-magnitude to an ordered integer: -0 just below +0.
            const auto key = [](H x) { return (x.bits & 0x8000) != 0 ? -1 - (x.bits & 0x7fff) : static_cast<int32_t>(x.bits); };
            result = (key(a) < key(b)) == kMaximum ? b : a;
        }
        return (modifiers & kXorsign) != 0 ? half_of<H>(result.bits | sign) : result;
    }
};

// F on both halves of a pair.
template <class F, class H>
struct Pair {
    template <class... T>
    static uint32_t lane(T... x) {
        const H low = F::lane(half_of<H>(x)...), high = F::lane(half_of<H>(x >> 16)...);
        return low.bits | static_cast<uint32_t>(high.bits) << 16;
    }
};
template <class F, class H>
struct ModifiedPair {
    template <class... T>
    static uint32_t lane(uint32_t modifiers, T... x) {
        const H low = F::lane(modifiers, half_of<H>(x)...), high = F::lane(modifiers, half_of<H>(x >> 16)...);
        return low.bits | static_cast<uint32_t>(high.bits) << 16;
    }
};

struct ByType {
    Fn f16, f16x2, bf16, bf16x2;

    Fn of(ptx::Type type) const {
        switch (type) {
            case ptx::Type::kF16: return f16;
            case ptx::Type::kF16x2: return f16x2;
            case ptx::Type::kBF16: return bf16;
            case ptx::Type::kBF16x2: return bf16x2;
            default: return nullptr;
        }
    }
};

template <class F>
constexpr ByType kPlain1{hot1<F, F16, F16>, hot1<Pair<F, F16>, uint32_t, uint32_t>, hot1<F, BF16, BF16>,
                         hot1<Pair<F, BF16>, uint32_t, uint32_t>};
template <class F>
constexpr ByType kPlain2{hot2<F, F16, F16>, hot2<Pair<F, F16>, uint32_t, uint32_t>, hot2<F, BF16, BF16>,
                         hot2<Pair<F, BF16>, uint32_t, uint32_t>};
template <class F>
constexpr ByType kPlain3{hot3<F, F16, F16>, hot3<Pair<F, F16>, uint32_t, uint32_t>, hot3<F, BF16, BF16>,
                         hot3<Pair<F, BF16>, uint32_t, uint32_t>};
template <class F>
constexpr ByType kModified1{cold1<F, F16, F16>, cold1<ModifiedPair<F, F16>, uint32_t, uint32_t>, cold1<F, BF16, BF16>,
                            cold1<ModifiedPair<F, BF16>, uint32_t, uint32_t>};
template <class F>
constexpr ByType kModified2{cold2<F, F16, F16>, cold2<ModifiedPair<F, F16>, uint32_t, uint32_t>, cold2<F, BF16, BF16>,
                            cold2<ModifiedPair<F, BF16>, uint32_t, uint32_t>};
template <class F>
constexpr ByType kModified3{cold3<F, F16, F16>, cold3<ModifiedPair<F, F16>, uint32_t, uint32_t>, cold3<F, BF16, BF16>,
                            cold3<ModifiedPair<F, BF16>, uint32_t, uint32_t>};

struct Operator {
    std::string_view name;
    ByType plain, modified;
};
constexpr Operator kOperators[] = {
    {"add", kPlain2<Add>, kModified2<Modified<Add>>},
    {"sub", kPlain2<Sub>, kModified2<Modified<Sub>>},
    {"mul", kPlain2<Mul>, kModified2<Modified<Mul>>},
    {"fma", kPlain3<Fma>, kModified3<Modified<Fma>>},
    {"neg", kPlain1<Neg>, kModified1<Modified<Neg>>},
    {"abs", kPlain1<Abs>, kModified1<Modified<Abs>>},
    {"min", kModified2<Extremum<false>>, kModified2<Extremum<false>>},
    {"max", kModified2<Extremum<true>>, kModified2<Extremum<true>>},
};

}  // namespace

Pick pick_half(const Form& form) {
    for (const Operator& row : kOperators) {
        if (row.name == form.opcode) return {(form.flags != 0 ? row.modified : row.plain).of(form.type()), form.pack()};
    }
    return {};
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

// Single and double precision arithmetic: PTX ISA, "Floating Point Instructions" (add sub mul fma mad div min max neg abs copysign).
// rcp, sqrt and the approximate functions are in arith/special.cpp.
#include "values.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {
namespace {

struct Add {
    template <class T>
    static T lane(T a, T b) {
        return a + b;
    }
};
struct Sub {
    template <class T>
    static T lane(T a, T b) {
        return a - b;
    }
};
struct Mul {
    template <class T>
    static T lane(T a, T b) {
        return a * b;
    }
};
struct Fma {
    static float lane(float a, float b, float c) { return fma32(a, b, c); }
    static double lane(double a, double b, double c) { return __builtin_fma(a, b, c); }
};
struct Div {
    template <class T>
    static T lane(T a, T b) {
        return a / b;
    }
};

// The smaller, a number rather than a NaN, and -0 before +0.
struct Min {
    template <class T>
    static T lane(T a, T b) {
        using U = Slot<T>;
        const T both = as<T>(as<U>(a) | as<U>(b));
        const T smaller = a < b ? a : b < a ? b : both;  // equal values differ by the sign of zero at most; NaN is handled below
        const T number = a != a ? b : b != b ? a : smaller;
        return canonical(number);
    }
};
struct Max {
    template <class T>
    static T lane(T a, T b) {
        using U = Slot<T>;
        const T both = as<T>(as<U>(a) & as<U>(b));
        const T larger = a < b ? b : b < a ? a : both;
        const T number = a != a ? b : b != b ? a : larger;
        return canonical(number);
    }
};

// Alone, neg and abs of f32 are additions of zero on the hardware: a NaN comes out as the canonical one. Those of f64 pass a NaN on.
struct Neg {
    template <class T>
    static T lane(T a) {
        return as<T>(as<Slot<T>>(a) ^ Slot<T>{1} << (sizeof(T) * 8 - 1));
    }
};
struct Abs {
    template <class T>
    static T lane(T a) {
        return as<T>(as<Slot<T>>(a) & ~(Slot<T>{1} << (sizeof(T) * 8 - 1)));
    }
};
// The sign of a on the magnitude of b.
struct Copysign {
    template <class T>
    static T lane(T a, T b) {
        constexpr Slot<T> kSign = Slot<T>{1} << (sizeof(T) * 8 - 1);
        return as<T>((as<Slot<T>>(a) & kSign) | (as<Slot<T>>(b) & ~kSign));
    }
};

template <class F>
struct Canonical {
    template <class... T>
    static auto lane(T... x) {
        return canonical(F::lane(x...));
    }
};
template <class F>
struct PassingNan {
    static double lane(double a) { return a != a ? a : F::lane(a); }
};
template <class F>
struct Flushed {
    template <class... T>
    static float lane(T... x) {
        return flush(canonical(F::lane(flush(x)...)));
    }
};
// Modifiers read at run time; the rounding direction is the scope's.
template <class F>
struct Modified {
    template <class... T>
    static float lane(uint32_t modifiers, T... x) {
        const bool flushing = (modifiers & kFtz) != 0;
        const float result = flush_if(flushing, canonical(F::lane(flush_if(flushing, x)...)));
        return (modifiers & kSat) != 0 ? saturate(result) : result;
    }
};
struct ModifiedFma {
    static float lane(uint32_t modifiers, float a, float b, float c) {
        const bool flushing = (modifiers & kFtz) != 0;
        const float x = flush_if(flushing, a), y = flush_if(flushing, b), z = flush_if(flushing, c);
        // fma32's fallback rounds to nearest; the C library's follows the rounding direction.
        const float result = flush_if(flushing, canonical(__builtin_fmaf(x, y, z)));
        return (modifiers & kSat) != 0 ? saturate(result) : result;
    }
};
template <class F>
struct Directed {
    template <class... T>
    static double lane(uint32_t, T... x) {
        return canonical(F::lane(x...));
    }
};

// min and max with .NaN or .xorsign.abs
template <class F>
struct ModifiedExtremum {
    static float lane(uint32_t modifiers, float a, float b) {
        if ((modifiers & kFtz) != 0) {
            a = flush(a);
            b = flush(b);
        }
        const uint32_t sign = (as<uint32_t>(a) ^ as<uint32_t>(b)) & 0x80000000u;
        if ((modifiers & kXorsign) != 0) {
            a = Abs::lane(a);
            b = Abs::lane(b);
        }
        if ((modifiers & kNan) != 0 && (is_nan(a) || is_nan(b))) return nan32();
        const float result = F::lane(a, b);
        return (modifiers & kXorsign) != 0 && !is_nan(result) ? as<float>(as<uint32_t>(result) | sign) : result;
    }
};

template <class F>
struct Two {
    Fn plain = hot2<Canonical<F>, float, float>;
    Fn flushed = hot2<Flushed<F>, float, float>;
    Fn modified = directed2<Modified<F>, float, float>;
    Fn wide = hot2<Canonical<F>, double, double>;
    Fn wide_directed = directed2<Directed<F>, double, double>;
};
struct Three {
    Fn plain = hot3<Canonical<Fma>, float, float>;
    Fn flushed = hot3<Flushed<Fma>, float, float>;
    Fn modified = directed3<ModifiedFma, float, float>;
    Fn wide = hot3<Canonical<Fma>, double, double>;
    Fn wide_directed = directed3<Directed<Fma>, double, double>;
};

template <class Family>
Pick choose(const Form& form) {
    constexpr Family kFamily;
    const bool directed = form.rounding() != Round::kRn;
    if (form.type() == ptx::Type::kF64) return {directed ? kFamily.wide_directed : kFamily.wide, form.pack()};
    if (directed || form.has(kSat)) return {kFamily.modified, form.pack()};
    return {form.has(kFtz) ? kFamily.flushed : kFamily.plain, form.pack()};
}

template <class F>
Pick choose_extremum(const Form& form) {
    if (form.type() == ptx::Type::kF64) return {hot2<F, double, double>};
    if (form.has(kNan | kXorsign)) return {cold2<ModifiedExtremum<F>, float, float>, form.pack()};
    return {form.has(kFtz) ? hot2<Flushed<F>, float, float> : hot2<F, float, float>};
}

// div.approx: a times the flushed reciprocal, so that divisors beyond 2^126 give zero (NaN for an infinite a), as the ISA says.
struct DivApprox {
    static float lane(uint32_t modifiers, float a, float b) {
        const bool flushing = (modifiers & kFtz) != 0;
        const float x = flush_if(flushing, a), y = flush_if(flushing, b);
        const float magnitude = Abs::lane(y);
        const bool is_beyond = magnitude > 0x1p126f && magnitude < as<float>(0x7f800000u);
        const float beyond = x * (as<uint32_t>(y) >> 31 != 0 ? -0.0f : 0.0f);
        return flush_if(flushing, canonical(is_beyond ? beyond : x / y));
    }
};

}  // namespace

Pick pick_float(const Form& form) {
    const std::string_view name = form.opcode;
    const bool is_wide = form.type() == ptx::Type::kF64;
    if (name == "add") return choose<Two<Add>>(form);
    if (name == "sub") return choose<Two<Sub>>(form);
    if (name == "mul") return choose<Two<Mul>>(form);
    if (name == "fma" || name == "mad") return choose<Three>(form);
    if (name == "div" && form.has(kApprox)) return {cold2<DivApprox, float, float>, form.pack()};
    if (name == "div") return choose<Two<Div>>(form);
    if (name == "min") return choose_extremum<Min>(form);
    if (name == "max") return choose_extremum<Max>(form);
    if (name == "neg" && is_wide) return {hot1<PassingNan<Neg>, double, double>};
    if (name == "neg") return {form.has(kFtz) ? hot1<Flushed<Neg>, float, float> : hot1<Canonical<Neg>, float, float>};
    if (name == "abs" && is_wide) return {hot1<PassingNan<Abs>, double, double>};
    if (name == "abs") return {form.has(kFtz) ? hot1<Flushed<Abs>, float, float> : hot1<Canonical<Abs>, float, float>};
    if (name == "copysign") return {is_wide ? hot2<Copysign, double, double> : hot2<Copysign, float, float>};
    return {};
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

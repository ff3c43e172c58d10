// Reciprocals, roots and the approximate functions: PTX ISA, "Floating Point Instructions" (rcp sqrt rsqrt sin cos lg2 ex2 tanh).
//
// Approximate forms are evaluated in double precision and rounded once, so they are at least as accurate as the bounds that the ISA gives;
// the hardware differs from them by ulps. ex2, lg2 and tanh are series on an interval short enough for a relative error below 1e-12.
#include "values.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {
namespace {

// 2^x for |x| <= 2000, NaN for NaN.
[[gnu::always_inline]] inline double exp2_of(double x) {
    constexpr double kRounder = 0x1.8p52;  // adding it leaves the nearest integer in the low bits
    const double shifted = x + kRounder;
    const double whole = shifted - kRounder;
    const double t = (x - whole) * 0.6931471805599453094;  // |t| <= 0.3466
    double p = 1.0 / 39916800;
    p = p * t + 1.0 / 3628800;
    p = p * t + 1.0 / 362880;
    p = p * t + 1.0 / 40320;
    p = p * t + 1.0 / 5040;
    p = p * t + 1.0 / 720;
    p = p * t + 1.0 / 120;
    p = p * t + 1.0 / 24;
    p = p * t + 1.0 / 6;
    p = p * t + 0.5;
    p = p * t + 1.0;
    p = p * t + 1.0;
    // Two factors, so that the exponent of neither leaves the range of normal doubles.
    const int64_t n = as<int64_t>(shifted) - as<int64_t>(kRounder);
    return p * as<double>(static_cast<uint64_t>(n + 1023) << 52);
}

// Beyond these ends the result is infinite, or rounds to zero.
[[gnu::always_inline]] inline float exp2_f32(float x) {
    const float low = x < -200.0f ? -200.0f : x;
    const float inside = low > 200.0f ? 200.0f : low;  // NaN passes
    return canonical(static_cast<float>(exp2_of(static_cast<double>(inside))));
}

// log2 of a positive finite double.
[[gnu::always_inline]] inline double log2_of(double x) {
    const auto bits = as<uint64_t>(x);
    // m in [sqrt(1/2), sqrt(2)), x = m * 2^n
    const uint64_t offset = bits - 0x3fe6a09e667f3bcd;
    const auto n = static_cast<int64_t>(offset) >> 52;
    const double m = as<double>(bits - (static_cast<uint64_t>(n) << 52));
    const double s = (m - 1.0) / (m + 1.0), z = s * s;  // ln m = 2 atanh s, |s| <= 0.1716
    double p = 1.0 / 17;
    p = p * z + 1.0 / 15;
    p = p * z + 1.0 / 13;
    p = p * z + 1.0 / 11;
    p = p * z + 1.0 / 9;
    p = p * z + 1.0 / 7;
    p = p * z + 1.0 / 5;
    p = p * z + 1.0 / 3;
    p = p * z + 1.0;
    const double whole = as<double>(static_cast<uint64_t>(n + 0x4338000000000000)) - 0x1.8p52;  // n as a double, by bits
    return whole + 2.8853900817779268147 * s * p;
}

struct Ex2 {
    static float lane(float x) { return exp2_f32(x); }
};
struct Lg2 {
    static float lane(float x) {
        const auto bits = as<uint32_t>(x);
        const float finite = bits - 1 < 0x7f7fffffu ? x : 1.0f;
        const auto value = static_cast<float>(log2_of(static_cast<double>(finite)));
        const float infinity = as<float>(0x7f800000u);
        const float positive = x == infinity ? infinity : value;
        const float number = x == 0 ? -infinity : positive;
        return !(x >= 0) ? nan32() : number;
    }
};
// Large arguments cancel nothing here; small ones would in 1 - 2 / (e^2x + 1), and take the series.
struct Tanh {
    static float lane(float x) {
        const double value = static_cast<double>(x);
        const double magnitude = value < 0 ? -value : value;
        const double capped = magnitude > 20.0 ? 20.0 : magnitude;  // NaN passes
        const double large = 1.0 - 2.0 / (exp2_of(capped * 2.8853900817779268147) + 1.0);
        const double z = value * value;
        const double series = magnitude * (1.0 + z * (-1.0 / 3 + z * (2.0 / 15 + z * (-17.0 / 315))));
        const double result = magnitude < 0.01 ? series : large;
        return canonical(static_cast<float>(value < 0 ? -result : result));
    }
};
// The hardware scales the argument to turns in single precision, rounded toward zero, and takes the sine of the fraction of a turn: large
// arguments lose the bits that this drops. The same is done here, so that the loss is the same. Series: |t| <= pi, absolute error below
// 1e-10.
[[gnu::always_inline]] inline double angle_of(float x) {  // x >= 0
    const double exact = static_cast<double>(x) * static_cast<double>(0.15915494309189533577f);
    const auto nearest = static_cast<float>(exact);
    const bool is_beyond = static_cast<double>(nearest) > exact;
    const auto turns = static_cast<double>(as<float>(as<uint32_t>(nearest) - (is_beyond ? 1 : 0)));
    return (turns - __builtin_rint(turns)) * 6.2831853071795864769;  // NaN for an infinite x
}
struct Sin {
    static float lane(float x) {
        const uint32_t sign = as<uint32_t>(x) & 0x80000000u;  // of the result too; apart, so that sin(-0) is -0
        const double t = angle_of(as<float>(as<uint32_t>(x) ^ sign)), z = t * t;
        double p = 1.0 / 51090942171709440000.0;
        p = p * z - 1.0 / 121645100408832000.0;
        p = p * z + 1.0 / 355687428096000.0;
        p = p * z - 1.0 / 1307674368000.0;
        p = p * z + 1.0 / 6227020800.0;
        p = p * z - 1.0 / 39916800;
        p = p * z + 1.0 / 362880;
        p = p * z - 1.0 / 5040;
        p = p * z + 1.0 / 120;
        p = p * z - 1.0 / 6;
        p = p * z + 1.0;
        return canonical(as<float>(as<uint32_t>(static_cast<float>(t * p)) ^ sign));
    }
};
struct Cos {
    static float lane(float x) {
        const double t = angle_of(as<float>(as<uint32_t>(x) & 0x7fffffffu)), z = t * t;
        double p = 1.0 / 1124000727777607680000.0;
        p = 1.0 / 2432902008176640000.0 - p * z;
        p = p * z - 1.0 / 6402373705728000.0;
        p = p * z + 1.0 / 20922789888000.0;
        p = p * z - 1.0 / 87178291200.0;
        p = p * z + 1.0 / 479001600;
        p = p * z - 1.0 / 3628800;
        p = p * z + 1.0 / 40320;
        p = p * z - 1.0 / 720;
        p = p * z + 1.0 / 24;
        p = p * z - 0.5;
        p = p * z + 1.0;
        return canonical(static_cast<float>(p));
    }
};
struct Rcp {
    template <class T>
    static T lane(T x) {
        return canonical(T{1} / x);
    }
};
struct Sqrt {
    static float lane(float x) { return canonical(__builtin_sqrtf(x)); }
    static double lane(double x) { return canonical(__builtin_sqrt(x)); }
};
struct Rsqrt {
    static float lane(float x) { return canonical(static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(x)))); }
    static double lane(double x) { return canonical(1.0 / __builtin_sqrt(x)); }
};
// The sign of a zero survives the round trip through double that -x * 0 would not; tanh(-0) = -0.
struct SignedTanh {
    static float lane(float x) { return as<float>(as<uint32_t>(Tanh::lane(x)) | (x == 0 ? as<uint32_t>(x) & 0x80000000u : 0)); }
};

template <class F>
struct Flushed {
    static float lane(float x) { return flush(F::lane(flush(x))); }
};
template <class F>
struct Modified {
    static float lane(uint32_t modifiers, float x) {
        const bool flushing = (modifiers & kFtz) != 0;
        return flush_if(flushing, F::lane(flush_if(flushing, x)));
    }
};
template <class F>
struct Directed {
    static double lane(uint32_t, double x) { return F::lane(x); }
};
// rcp.approx.ftz.f64, rsqrt.approx.ftz.f64: only the upper word takes part, subnormals are zeros, and the lower word of the result is zero.
template <class F>
struct UpperWord {
    static double lane(uint32_t, double x) {
        constexpr uint64_t kUpper = 0xffffffff00000000, kExponent = 0x7ff0000000000000, kSign = 0x8000000000000000;
        const auto flush_wide = [](uint64_t bits) { return (bits & kExponent) == 0 ? bits & kSign : bits; };
        const auto input = as<double>(flush_wide(as<uint64_t>(x) & kUpper));
        const double result = is_nan(x) ? x : F::lane(input);
        return as<double>(is_nan(result) ? uint64_t{kNan32} << 32 : flush_wide(as<uint64_t>(result) & kUpper));
    }
};

// One function of a half: evaluated in single precision, rounded to the half.
template <class F, class H>
struct OfHalf {
    static H lane(H x) {
        if constexpr (std::is_same_v<H, F16>) {
            return to_f16(F::lane(widen(x)));
        } else {
            return to_bf16(F::lane(widen(x)));
        }
    }
};
template <class F, class H>
struct OfPair {
    static uint32_t lane(uint32_t x) {
        const H low = OfHalf<F, H>::lane(take<H>(x & 0xffff)), high = OfHalf<F, H>::lane(take<H>(x >> 16));
        return low.bits | static_cast<uint32_t>(high.bits) << 16;
    }
};
// ex2.approx.ftz.bf16 flushes subnormal inputs and results; a bf16's subnormals are those of the f32 with the same upper bits.
template <class F>
struct FlushedBF16 {
    static float lane(float x) { return flush(F::lane(flush(x))); }
};

template <class F, class G>
Fn pick_half_function(const Form& form) {
    switch (form.type()) {
        case ptx::Type::kF16: return hot1<OfHalf<F, F16>, F16, F16>;
        case ptx::Type::kF16x2: return hot1<OfPair<F, F16>, uint32_t, uint32_t>;
        case ptx::Type::kBF16: return hot1<OfHalf<G, BF16>, BF16, BF16>;
        case ptx::Type::kBF16x2: return hot1<OfPair<G, BF16>, uint32_t, uint32_t>;
        default: return nullptr;
    }
}

template <class F>
Fn approximate(const Form& form) {
    return form.has(kFtz) ? hot1<Flushed<F>, float, float> : hot1<F, float, float>;
}

template <class F>
Pick pick_root(const Form& form) {
    const bool directed = form.rounding() != Round::kRn;
    if (form.type() == ptx::Type::kF64) {
        if (form.has(kApprox) && form.has(kFtz)) return {cold1<UpperWord<F>, double, double>};
        return {directed ? directed1<Directed<F>, double, double> : hot1<F, double, double>, form.pack()};
    }
    return {directed ? directed1<Modified<F>, float, float> : approximate<F>(form), form.pack()};
}

}  // namespace

Pick pick_special(const Form& form) {
    const std::string_view name = form.opcode;
    const bool is_single = form.type() == ptx::Type::kF32;
    if (name == "rcp") return pick_root<Rcp>(form);
    if (name == "sqrt") return pick_root<Sqrt>(form);
    if (name == "rsqrt") return pick_root<Rsqrt>(form);
    if (name == "ex2") return {is_single ? approximate<Ex2>(form) : pick_half_function<Ex2, FlushedBF16<Ex2>>(form)};
    if (name == "tanh") return {is_single ? hot1<SignedTanh, float, float> : pick_half_function<SignedTanh, SignedTanh>(form)};
    if (name == "lg2") return {approximate<Lg2>(form)};
    if (name == "sin") return {approximate<Sin>(form)};
    if (name == "cos") return {approximate<Cos>(form)};
    return {};
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

// Comparison and selection: PTX ISA, "Comparison and Selection Instructions", their half precision forms, and testp.
#include "values.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {
namespace {

// kOutcomes: the set of Outcome bits that satisfy the comparison.
template <uint8_t kOutcomes>
struct Is {
    template <class T>
    static bool lane(T a, T b) {
        if constexpr (kOutcomes == kLess) return a < b;
        if constexpr (kOutcomes == (kLess | kEqual)) return a <= b;
        if constexpr (kOutcomes == kGreater) return a > b;
        if constexpr (kOutcomes == (kGreater | kEqual)) return a >= b;
        if constexpr (kOutcomes == kEqual) return a == b;
        if constexpr (kOutcomes == (kLess | kGreater) && std::is_floating_point_v<T>) return a < b || a > b;
        if constexpr (kOutcomes == (kLess | kGreater) && !std::is_floating_point_v<T>) return a != b;
        if constexpr (kOutcomes == (kEqual | kUnordered)) return !(a < b) && !(a > b);
        if constexpr (kOutcomes == (kLess | kGreater | kUnordered)) return !(a == b);
        if constexpr (kOutcomes == (kLess | kUnordered)) return !(a >= b);
        if constexpr (kOutcomes == (kLess | kEqual | kUnordered)) return !(a > b);
        if constexpr (kOutcomes == (kGreater | kUnordered)) return !(a <= b);
        if constexpr (kOutcomes == (kGreater | kEqual | kUnordered)) return !(a < b);
        if constexpr (kOutcomes == (kLess | kEqual | kGreater)) return !(a != a) && !(b != b);
        if constexpr (kOutcomes == kUnordered) return a != a || b != b;
    }
};

// Args::immediate: Bool in bits 0-1, kFtz's place (bit 8), the set of outcomes in bits 4-7.
constexpr uint32_t kFlushBit = 1u << 8;

uint32_t condition_of(const Form& form) {
    return static_cast<uint32_t>(form.boolean) | static_cast<uint32_t>(form.compare) << 4 | (form.has(kFtz) ? kFlushBit : 0);
}
Bool boolean_of(const Args& args) { return static_cast<Bool>(args.immediate & 3); }

// p = t op c, q = !t op c
void write_pair(const Args& args, uint32_t truth) {
    write_predicate(args.pd, combine(boolean_of(args), truth, args.pa), args.mask);
    write_predicate(args.qd, combine(boolean_of(args), ~truth, args.pa), args.mask);
}

template <uint8_t kOutcomes, class T>
void setp(const Args& args) {
    write_pair(args, compare_lanes<Is<kOutcomes>, T>(args));
}

template <class T>
Fn pick_integer_setp(uint8_t outcomes) {
    switch (outcomes) {
        case kEqual: return setp<kEqual, std::make_unsigned_t<T>>;
        case kLess | kGreater: return setp<kLess | kGreater, std::make_unsigned_t<T>>;
        case kLess: return setp<kLess, T>;
        case kLess | kEqual: return setp<kLess | kEqual, T>;
        case kGreater: return setp<kGreater, T>;
        case kGreater | kEqual: return setp<kGreater | kEqual, T>;
        default: return nullptr;
    }
}

template <class T>
Fn pick_float_setp(uint8_t outcomes) {
    switch (outcomes) {
        case kEqual: return setp<kEqual, T>;
        case kLess | kGreater: return setp<kLess | kGreater, T>;
        case kLess: return setp<kLess, T>;
        case kLess | kEqual: return setp<kLess | kEqual, T>;
        case kGreater: return setp<kGreater, T>;
        case kGreater | kEqual: return setp<kGreater | kEqual, T>;
        case kEqual | kUnordered: return setp<kEqual | kUnordered, T>;
        case kLess | kGreater | kUnordered: return setp<kLess | kGreater | kUnordered, T>;
        case kLess | kUnordered: return setp<kLess | kUnordered, T>;
        case kLess | kEqual | kUnordered: return setp<kLess | kEqual | kUnordered, T>;
        case kGreater | kUnordered: return setp<kGreater | kUnordered, T>;
        case kGreater | kEqual | kUnordered: return setp<kGreater | kEqual | kUnordered, T>;
        case kLess | kEqual | kGreater: return setp<kLess | kEqual | kGreater, T>;
        case kUnordered: return setp<kUnordered, T>;
        default: return nullptr;
    }
}

// Any comparison at run time: bit i of the result for each lane.
template <class T>
uint32_t compare_any(uint32_t condition, T a, T b) {
    const uint32_t outcome = a < b ? kLess : a == b ? kEqual : a > b ? kGreater : kUnordered;
    return (condition >> 4 & outcome) != 0 ? 1 : 0;
}

// Kinds of source that the general comparison reads.
enum class Kind : uint8_t {
    kFloat,
    kDouble,
    kHalf,
    kBrain,
    kHalfPair,
    kBrainPair,
    kSigned16,
    kUnsigned16,
    kSigned32,
    kUnsigned32,
    kSigned64,
    kUnsigned64
};

Kind kind_of(ptx::Type type) {
    using enum ptx::Type;
    switch (type) {
        case kF32: return Kind::kFloat;
        case kF64: return Kind::kDouble;
        case kF16: return Kind::kHalf;
        case kBF16: return Kind::kBrain;
        case kF16x2: return Kind::kHalfPair;
        case kBF16x2: return Kind::kBrainPair;
        case kS16: return Kind::kSigned16;
        case kB16:
        case kU16: return Kind::kUnsigned16;
        case kS32: return Kind::kSigned32;
        case kS64: return Kind::kSigned64;
        case kB64:
        case kU64: return Kind::kUnsigned64;
        default: return Kind::kUnsigned32;
    }
}

struct Truth {
    uint32_t low = 0, high = 0;  // lane masks; high: of the upper halves of pairs
};

// Compares all lanes; condition as in Args::immediate.
Truth compare_rows(Kind kind, const Args& args) {
    Truth truth;
    const uint32_t condition = args.immediate;
    const bool flushing = (condition & kFlushBit) != 0;
    const auto *a = source<uint32_t>(args.a), *b = source<uint32_t>(args.b);
    const auto *a_wide = source<uint64_t>(args.a), *b_wide = source<uint64_t>(args.b);
    // Half precision .ftz flushes subnormal inputs of f16.
    const auto half = [&](uint32_t bits) {
        const auto h = static_cast<uint16_t>(bits);
        return widen(F16{static_cast<uint16_t>(flushing && (h & 0x7c00) == 0 ? h & 0x8000 : h)});
    };
    const auto brain = [](uint32_t bits) { return widen(BF16{static_cast<uint16_t>(bits)}); };
    const auto is = [&](auto x, auto y) { return compare_any(condition, x, y); };
    for_lanes(args.mask, [&](uint32_t i) {
        uint32_t low = 0, high = 0;
        switch (kind) {
            case Kind::kFloat: low = is(flush_if(flushing, take<float>(a[i])), flush_if(flushing, take<float>(b[i]))); break;
            case Kind::kDouble: low = is(take<double>(a_wide[i]), take<double>(b_wide[i])); break;
            case Kind::kHalf: low = is(half(a[i]), half(b[i])); break;
            case Kind::kBrain: low = is(brain(a[i]), brain(b[i])); break;
            case Kind::kHalfPair: low = is(half(a[i]), half(b[i])), high = is(half(a[i] >> 16), half(b[i] >> 16)); break;
            case Kind::kBrainPair: low = is(brain(a[i]), brain(b[i])), high = is(brain(a[i] >> 16), brain(b[i] >> 16)); break;
            case Kind::kSigned16: low = is(take<int16_t>(a[i]), take<int16_t>(b[i])); break;
            case Kind::kUnsigned16: low = is(take<uint16_t>(a[i]), take<uint16_t>(b[i])); break;
            case Kind::kSigned32: low = is(take<int32_t>(a[i]), take<int32_t>(b[i])); break;
            case Kind::kUnsigned32: low = is(a[i], b[i]); break;
            case Kind::kSigned64: low = is(take<int64_t>(a_wide[i]), take<int64_t>(b_wide[i])); break;
            case Kind::kUnsigned64: low = is(a_wide[i], b_wide[i]); break;
        }
        truth.low |= low << i;
        truth.high |= high << i;
    });
    return truth;
}

template <Kind kKind>
void setp_any(const Args& args) {
    write_pair(args, compare_rows(kKind, args).low);
}
// Pairs: p of the lower halves, q of the upper ones.
template <Kind kKind>
void setp_halves(const Args& args) {
    const Truth truth = compare_rows(kKind, args);
    write_predicate(args.pd, combine(boolean_of(args), truth.low, args.pa), args.mask);
    write_predicate(args.qd, combine(boolean_of(args), truth.high, args.pa), args.mask);
}

// set: the immediate holds the source kind in bits 12-15 and the value of "true" as an index in bits 16-19.
constexpr uint32_t kTrueValues[] = {0xffffffff, 0x3f800000, 0x3c00, 0x3f80, 0xffff, 0x3c003c00, 0x3f803f80};

uint32_t true_index(ptx::Type type) {
    using enum ptx::Type;
    switch (type) {
        case kF32: return 1;
        case kF16: return 2;
        case kBF16: return 3;
        case kU16:
        case kS16: return 4;
        case kF16x2: return 5;
        case kBF16x2: return 6;
        default: return 0;
    }
}

void set_any(const Args& args) {
    const auto kind = static_cast<Kind>(args.immediate >> 12 & 15);
    const uint32_t true_value = kTrueValues[args.immediate >> 16 & 15];
    const bool is_pair = kind == Kind::kHalfPair || kind == Kind::kBrainPair;
    const Truth truth = compare_rows(kind, args);
    const uint32_t low = combine(boolean_of(args), truth.low, args.pa), high = combine(boolean_of(args), truth.high, args.pa);
    auto* d = destination<uint32_t>(args.d);
    for_lanes(args.mask, [&](uint32_t i) {
        const uint32_t low_value = (low >> i & 1) != 0 ? true_value : 0;
        const uint32_t high_value = (high >> i & 1) != 0 ? true_value : 0;
        d[i] = is_pair ? (low_value & 0xffff) | (high_value & 0xffff0000) : low_value;
    });
}

template <class T>
void selp(const Args& args) {
    auto* d = destination<T>(args.d);
    const auto *a = source<T>(args.a), *b = source<T>(args.b);
    const uint32_t chosen = args.pa, mask = args.mask;
#pragma GCC ivdep
    for (uint32_t i = 0; i < kLanes; ++i) {
        const T value = (chosen & kLaneBit[i]) != 0 ? a[i] : b[i];
        d[i] = (mask & kLaneBit[i]) != 0 ? value : d[i];
    }
}

struct SlctInteger {
    template <class T>
    static T lane(T a, T b, int32_t c) {
        return c >= 0 ? a : b;
    }
};
struct SlctFloat {
    template <class T>
    static T lane(uint32_t modifiers, T a, T b, float c) {
        return flush_if((modifiers & kFtz) != 0, c) >= 0.0f ? a : b;
    }
};

enum class Test : uint8_t { kFinite, kInfinite, kNumber, kNotANumber, kNormal, kSubnormal };
struct NamedTest {
    std::string_view name;
    Test test;
};
constexpr NamedTest kTests[] = {{"finite", Test::kFinite},         {"infinite", Test::kInfinite}, {"number", Test::kNumber},
                                {"notanumber", Test::kNotANumber}, {"normal", Test::kNormal},     {"subnormal", Test::kSubnormal}};

// The ISA counts zeros as normal.
template <class T>
void testp(const Args& args) {
    const auto* a = source<T>(args.a);
    constexpr int kMantissaBits = sizeof(T) == 8 ? 52 : 23;
    constexpr auto kInfinity = static_cast<Slot<T>>(sizeof(T) == 8 ? 0x7ff0000000000000 : 0x7f800000);
    uint32_t result = 0;
    for_lanes(args.mask, [&](uint32_t i) {
        const Slot<T> magnitude = a[i] & ~(Slot<T>{1} << (sizeof(T) * 8 - 1));
        const bool is_normal = magnitude == 0 || (magnitude >= Slot<T>{1} << kMantissaBits && magnitude < kInfinity);
        bool truth = false;
        switch (static_cast<Test>(args.immediate)) {
            case Test::kFinite: truth = magnitude < kInfinity; break;
            case Test::kInfinite: truth = magnitude == kInfinity; break;
            case Test::kNumber: truth = magnitude <= kInfinity; break;
            case Test::kNotANumber: truth = magnitude > kInfinity; break;
            case Test::kNormal: truth = is_normal; break;
            case Test::kSubnormal: truth = magnitude != 0 && magnitude < Slot<T>{1} << kMantissaBits; break;
        }
        result |= truth ? kLaneBit[i] : 0;
    });
    write_predicate(args.pd, result, args.mask);
}

}  // namespace

Pick pick_setp(const Form& form) {
    using enum ptx::Type;
    const uint32_t immediate = condition_of(form);
    Fn fn = nullptr;
    switch (form.type()) {
        case kB16:
        case kU16: fn = pick_integer_setp<uint16_t>(form.compare); break;
        case kB32:
        case kU32: fn = pick_integer_setp<uint32_t>(form.compare); break;
        case kB64:
        case kU64: fn = pick_integer_setp<uint64_t>(form.compare); break;
        case kS16: fn = pick_integer_setp<int16_t>(form.compare); break;
        case kS32: fn = pick_integer_setp<int32_t>(form.compare); break;
        case kS64: fn = pick_integer_setp<int64_t>(form.compare); break;
        case kF32: fn = form.has(kFtz) ? setp_any<Kind::kFloat> : pick_float_setp<float>(form.compare); break;
        case kF64: fn = pick_float_setp<double>(form.compare); break;
        case kF16x2: return {setp_halves<Kind::kHalfPair>, immediate};
        case kBF16x2: return {setp_halves<Kind::kBrainPair>, immediate};
        case kF16: return {setp_any<Kind::kHalf>, immediate};
        case kBF16: return {setp_any<Kind::kBrain>, immediate};
        default: break;
    }
    return {fn, immediate};
}

Pick pick_set(const Form& form) {
    const auto kind = static_cast<uint32_t>(kind_of(form.types[1]));
    return {set_any, condition_of(form) | kind << 12 | true_index(form.types[0]) << 16};
}

Pick pick_select(const Form& form) {
    const uint32_t bits = bits_of(form.type());
    if (form.opcode == "selp") return {bits == 64 ? selp<uint64_t> : selp<uint32_t>};
    if (form.types[1] == ptx::Type::kS32) {
        return {bits == 64   ? hot3<SlctInteger, uint64_t, uint64_t, uint64_t, int32_t>
                : bits == 32 ? hot3<SlctInteger, uint32_t, uint32_t, uint32_t, int32_t>
                             : hot3<SlctInteger, uint16_t, uint16_t, uint16_t, int32_t>};
    }
    return {bits == 64   ? cold3<SlctFloat, uint64_t, uint64_t, uint64_t, float>
            : bits == 32 ? cold3<SlctFloat, uint32_t, uint32_t, uint32_t, float>
                         : cold3<SlctFloat, uint16_t, uint16_t, uint16_t, float>,
            form.pack()};
}

Pick pick_testp(const Form& form) {
    for (const NamedTest& test : kTests) {
        if (test.name == form.mode)
            return {form.type() == ptx::Type::kF64 ? testp<double> : testp<float>, static_cast<uint32_t>(test.test)};
    }
    return {};
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

// Loops over the 32 lanes of a warp, and the values that rows hold.
//
// Two kinds of loop: `hot` ones are written for the vectoriser (a full-mask path, and a blend under the mask), one instantiation for each
// operation; `cold` ones visit the active lanes one by one and read their modifiers at run time, so that rare forms cost no code.
#pragma once

#include <cstdint>
#include <type_traits>

#include <xmmintrin.h>

#include "form.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {

inline constexpr uint32_t kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;
inline constexpr size_t kRowAlignment = 16;  // bytes a row is sure to have, as from operator new; loops are fastest at 64

alignas(64) inline constexpr uint32_t kLaneBit[kLanes] = {
    1u << 0,  1u << 1,  1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,  1u << 8,  1u << 9,  1u << 10,
    1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15, 1u << 16, 1u << 17, 1u << 18, 1u << 19, 1u << 20, 1u << 21,
    1u << 22, 1u << 23, 1u << 24, 1u << 25, 1u << 26, 1u << 27, 1u << 28, 1u << 29, 1u << 30, 1u << 31,
};

struct F16 {
    uint16_t bits;
};
struct BF16 {
    uint16_t bits;
};

template <class T>
using Slot = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class To, class From>
[[gnu::always_inline]] inline To as(From from) {
    return __builtin_bit_cast(To, from);
}

template <class T>
[[gnu::always_inline]] inline T take(Slot<T> slot) {
    if constexpr (std::is_floating_point_v<T>) {
        return as<T>(slot);
    } else if constexpr (std::is_class_v<T>) {
        return T{static_cast<uint16_t>(slot)};
    } else {
        return static_cast<T>(slot);
    }
}

template <class T>
[[gnu::always_inline]] inline Slot<T> give(T value) {
    if constexpr (std::is_floating_point_v<T>) {
        return as<Slot<T>>(value);
    } else if constexpr (std::is_class_v<T>) {
        return value.bits;
    } else {
        return static_cast<std::make_unsigned_t<T>>(value);
    }
}

template <class T>
[[gnu::always_inline]] inline const Slot<T>* source(const void* row) {
    return static_cast<const Slot<T>*>(__builtin_assume_aligned(row, kRowAlignment));
}

template <class T>
[[gnu::always_inline]] inline Slot<T>* destination(void* row) {
    return static_cast<Slot<T>*>(__builtin_assume_aligned(row, kRowAlignment));
}

// F::lane(a[, b[, c]]) for each lane, into destination type D from source types A, B, C.
template <class F, class D, class A>
void hot1(const Args& args) {
    auto* d = destination<D>(args.d);
    const auto* a = source<A>(args.a);
    const uint32_t mask = args.mask;
    if (mask == kAllLanes) {
#pragma GCC ivdep
        for (uint32_t i = 0; i < kLanes; ++i) d[i] = give<D>(F::lane(take<A>(a[i])));
    } else {
#pragma GCC ivdep
        for (uint32_t i = 0; i < kLanes; ++i) {
            const auto value = give<D>(F::lane(take<A>(a[i])));
            d[i] = (mask & kLaneBit[i]) != 0 ? value : d[i];
        }
    }
}

template <class F, class D, class A, class B = A>
void hot2(const Args& args) {
    auto* d = destination<D>(args.d);
    const auto* a = source<A>(args.a);
    const auto* b = source<B>(args.b);
    const uint32_t mask = args.mask;
    if (mask == kAllLanes) {
#pragma GCC ivdep
        for (uint32_t i = 0; i < kLanes; ++i) d[i] = give<D>(F::lane(take<A>(a[i]), take<B>(b[i])));
    } else {
#pragma GCC ivdep
        for (uint32_t i = 0; i < kLanes; ++i) {
            const auto value = give<D>(F::lane(take<A>(a[i]), take<B>(b[i])));
            d[i] = (mask & kLaneBit[i]) != 0 ? value : d[i];
        }
    }
}

template <class F, class D, class A, class B = A, class C = D>
void hot3(const Args& args) {
    auto* d = destination<D>(args.d);
    const auto* a = source<A>(args.a);
    const auto* b = source<B>(args.b);
    const auto* c = source<C>(args.c);
    const uint32_t mask = args.mask;
    if (mask == kAllLanes) {
#pragma GCC ivdep
        for (uint32_t i = 0; i < kLanes; ++i) d[i] = give<D>(F::lane(take<A>(a[i]), take<B>(b[i]), take<C>(c[i])));
    } else {
#pragma GCC ivdep
        for (uint32_t i = 0; i < kLanes; ++i) {
            const auto value = give<D>(F::lane(take<A>(a[i]), take<B>(b[i]), take<C>(c[i])));
            d[i] = (mask & kLaneBit[i]) != 0 ? value : d[i];
        }
    }
}

// Sets the host's rounding direction for the statements in its scope. The clobbers keep loads and stores of rows, and so the arithmetic
// between them, inside the scope.
class RoundingScope {
public:
    explicit RoundingScope(Round round) : saved_(_mm_getcsr()) {
        uint32_t control = 0;
        if (round == Round::kRm) control = _MM_ROUND_DOWN;
        if (round == Round::kRp) control = _MM_ROUND_UP;
        if (round == Round::kRz) control = _MM_ROUND_TOWARD_ZERO;
        _mm_setcsr((saved_ & ~static_cast<uint32_t>(_MM_ROUND_MASK)) | control);
        asm volatile("" ::: "memory");
    }
    ~RoundingScope() {
        asm volatile("" ::: "memory");
        _mm_setcsr(saved_);
    }
    RoundingScope(const RoundingScope&) = delete;
    RoundingScope& operator=(const RoundingScope&) = delete;

private:
    uint32_t saved_;
};

// Calls visit(lane) for each active lane.
template <class Visit>
[[gnu::always_inline]] inline void for_lanes(uint32_t mask, Visit visit) {
    for (; mask != 0; mask &= mask - 1) visit(static_cast<uint32_t>(__builtin_ctz(mask)));
}

// F::lane(modifiers, a[, b[, c]]), modifiers being Args::immediate.
template <class F, class D, class A>
void cold1(const Args& args) {
    auto* d = destination<D>(args.d);
    const auto* a = source<A>(args.a);
    for_lanes(args.mask, [&](uint32_t i) { d[i] = give<D>(F::lane(args.immediate, take<A>(a[i]))); });
}

template <class F, class D, class A, class B = A>
void cold2(const Args& args) {
    auto* d = destination<D>(args.d);
    const auto* a = source<A>(args.a);
    const auto* b = source<B>(args.b);
    for_lanes(args.mask, [&](uint32_t i) { d[i] = give<D>(F::lane(args.immediate, take<A>(a[i]), take<B>(b[i]))); });
}

template <class F, class D, class A, class B = A, class C = D>
void cold3(const Args& args) {
    auto* d = destination<D>(args.d);
    const auto* a = source<A>(args.a);
    const auto* b = source<B>(args.b);
    const auto* c = source<C>(args.c);
    for_lanes(args.mask, [&](uint32_t i) { d[i] = give<D>(F::lane(args.immediate, take<A>(a[i]), take<B>(b[i]), take<C>(c[i]))); });
}

// The same under the rounding direction that the modifiers name.
template <class F, class D, class A>
void directed1(const Args& args) {
    RoundingScope scope(round_of(args.immediate));
    cold1<F, D, A>(args);
}

template <class F, class D, class A, class B = A>
void directed2(const Args& args) {
    RoundingScope scope(round_of(args.immediate));
    cold2<F, D, A, B>(args);
}

template <class F, class D, class A, class B = A, class C = D>
void directed3(const Args& args) {
    RoundingScope scope(round_of(args.immediate));
    cold3<F, D, A, B, C>(args);
}

// Bit i of the result: F::lane(a[i], b[i]), for all lanes.
template <class F, class A>
[[gnu::always_inline]] inline uint32_t compare_lanes(const Args& args) {
    const auto* a = source<A>(args.a);
    const auto* b = source<A>(args.b);
    uint32_t result = 0;
    for (uint32_t i = 0; i < kLanes; ++i) result |= F::lane(take<A>(a[i]), take<A>(b[i])) ? kLaneBit[i] : 0;
    return result;
}

inline void write_predicate(uint32_t* predicate, uint32_t value, uint32_t mask) {
    if (predicate != nullptr) *predicate = (*predicate & ~mask) | (value & mask);
}

inline uint32_t combine(Bool operation, uint32_t a, uint32_t b) {
    switch (operation) {
        case Bool::kAnd: return a & b;
        case Bool::kOr: return a | b;
        case Bool::kXor: return a ^ b;
        case Bool::kNone: break;
    }
    return a;
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

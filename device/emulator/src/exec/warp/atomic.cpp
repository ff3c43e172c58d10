// Atomics. In global memory they are atomic between the host threads that run other blocks; in shared memory a block has one host thread.
#include <algorithm>
#include <bit>
#include <cmath>

#include "../../memory/footprint.hpp"
#include "../race/race.hpp"
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

float half_to_float(uint16_t bits) {
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    const uint32_t exponent = bits >> 10 & 31;
    const uint32_t fraction = bits & 0x3FF;
    if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | fraction << 13);
    if (exponent == 0) {
        const float value = static_cast<float>(fraction) * 0x1p-24f;
        return sign ? -value : value;
    }
    return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

// Round to nearest even, from a double that holds the sum of two halves exactly.
uint16_t double_to_half(double value) {
    const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    if (std::isnan(value)) return 0x7FFF;
    if (magnitude >= 65520.0) return sign | 0x7C00;
    if (magnitude < 0x1p-14) return sign | static_cast<uint16_t>(std::nearbyint(magnitude * 0x1p24));
    int exponent = 0;
    std::frexp(magnitude, &exponent);
    const double scaled = std::nearbyint(std::ldexp(magnitude, 11 - exponent));  // 11 significant bits
    return sign | static_cast<uint16_t>(static_cast<uint32_t>((exponent + 13) << 10) + static_cast<uint32_t>(scaled));
}

float bfloat_to_float(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

uint16_t float_to_bfloat(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if (std::isnan(value)) return 0x7FFF;
    return static_cast<uint16_t>((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

uint16_t add_half(uint16_t a, uint16_t b) { return double_to_half(static_cast<double>(half_to_float(a)) + half_to_float(b)); }

// A float sum of two bfloats is exact unless their exponents lie far apart, and then the smaller one is below the rounding point by far.
uint16_t add_bfloat(uint16_t a, uint16_t b) {
    const double sum = static_cast<double>(bfloat_to_float(a)) + bfloat_to_float(b);
    float rounded = static_cast<float>(sum);
    // Round to odd, so that the second rounding is right.
    if (std::isfinite(rounded) && static_cast<double>(rounded) != sum) {
        uint32_t bits = std::bit_cast<uint32_t>(rounded);
        const bool away = std::fabs(static_cast<double>(rounded)) > std::fabs(sum);
        if (away) --bits;
        rounded = std::bit_cast<float>(bits | 1);
    }
    return float_to_bfloat(rounded);
}

// min and max of two halves: a NaN gives way to a number, and -0 is below +0.
template <typename ToFloat>
uint16_t extreme(uint16_t a, uint16_t b, bool is_max, ToFloat to_float) {
    const float x = to_float(a), y = to_float(b);
    if (std::isnan(x)) return std::isnan(y) ? 0x7FFF : b;
    if (std::isnan(y)) return a;
    if (x == y) return ((a & 0x8000) != 0) == is_max ? b : a;
    return (x < y) == is_max ? b : a;
}

float add_flushed(float a, float b, bool flush) {
    // atom.add.f32 on global memory flushes subnormal inputs and results to zero with the sign kept; on shared memory it does not.
    // A NaN comes out as the canonical one.
    const auto squash = [flush](float x) { return flush && std::fabs(x) < 0x1p-126f ? std::copysign(0.0f, x) : x; };
    const float sum = squash(squash(a) + squash(b));
    return std::isnan(sum) ? std::bit_cast<float>(0x7fffffffu) : sum;
}

// atom.add.f64 on global memory passes the added NaN on as it is, signalling ones too.
double add_double(double a, double b, bool global) { return global && std::isnan(b) ? b : a + b; }

uint16_t half(const Inst& inst, uint16_t a, uint16_t b) {
    const AtomOp op = static_cast<AtomOp>(inst.mode);
    return op == AtomOp::kAdd ? add_half(a, b) : extreme(a, b, op == AtomOp::kMax, half_to_float);
}

uint16_t bfloat(const Inst& inst, uint16_t a, uint16_t b) {
    const AtomOp op = static_cast<AtomOp>(inst.mode);
    return op == AtomOp::kAdd ? add_bfloat(a, b) : extreme(a, b, op == AtomOp::kMax, bfloat_to_float);
}

template <typename T>
T combine(const Inst& inst, T old, T value, T swap, bool shared) {
    const AtomType type = static_cast<AtomType>(inst.mode2);
    using S = std::make_signed_t<T>;
    const bool is_signed = type == AtomType::kS32 || type == AtomType::kS64;
    switch (static_cast<AtomOp>(inst.mode)) {
        case AtomOp::kExch: return value;
        case AtomOp::kCas: return old == value ? swap : old;
        case AtomOp::kAnd: return old & value;
        case AtomOp::kOr: return old | value;
        case AtomOp::kXor: return old ^ value;
        case AtomOp::kInc: return old >= value ? 0 : old + 1;
        case AtomOp::kDec: return old == 0 || old > value ? value : old - 1;
        case AtomOp::kMin:
            if (type >= AtomType::kF16) break;
            return is_signed ? static_cast<T>(std::min<S>(old, value)) : std::min(old, value);
        case AtomOp::kMax:
            if (type >= AtomType::kF16) break;
            return is_signed ? static_cast<T>(std::max<S>(old, value)) : std::max(old, value);
        case AtomOp::kAdd: break;
    }
    if constexpr (sizeof(T) == 8) {
        if (type == AtomType::kF64)
            return std::bit_cast<uint64_t>(add_double(std::bit_cast<double>(old), std::bit_cast<double>(value), !shared));
    } else if constexpr (sizeof(T) == 4) {
        if (type == AtomType::kF32)
            return std::bit_cast<uint32_t>(add_flushed(std::bit_cast<float>(old), std::bit_cast<float>(value), !shared));
        const auto halves = [&](auto add) {
            return static_cast<uint32_t>(add(static_cast<uint16_t>(old), static_cast<uint16_t>(value))) |
                   static_cast<uint32_t>(add(static_cast<uint16_t>(old >> 16), static_cast<uint16_t>(value >> 16))) << 16;
        };
        if (type == AtomType::kF16x2) return halves([&](uint16_t a, uint16_t b) { return half(inst, a, b); });
        if (type == AtomType::kBF16x2) return halves([&](uint16_t a, uint16_t b) { return bfloat(inst, a, b); });
    } else {
        if (type == AtomType::kF16) return half(inst, old, value);
        if (type == AtomType::kBF16) return bfloat(inst, old, value);
    }
    return old + value;
}

// Returns whether memory has changed.
template <typename T, typename Row>
bool run_lanes(const Inst& inst, uint32_t mask, const uint64_t* address, uint8_t* base, bool shared, const Row* b, const Row* c,
               Row* results) {
    bool changed = false;
    for_lanes(mask, [&](uint32_t lane) {
        T* cell = reinterpret_cast<T*>(byte_at(base, address[lane]));
        const T value = static_cast<T>(b[lane]);
        const T swap = static_cast<T>(c[lane]);
        T old = __atomic_load_n(cell, __ATOMIC_RELAXED);
        if (shared) {
            *cell = combine<T>(inst, old, value, swap, true);
            changed |= *cell != old;
        } else {
            T next = combine<T>(inst, old, value, swap, false);
            while (!__atomic_compare_exchange_n(cell, &old, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
                next = combine<T>(inst, old, value, swap, false);
            changed |= next != old;
        }
        results[lane] = old;
    });
    return changed;
}

}  // namespace

template <Mode M>
bool Interpreter<M>::atomic_lanes(const Inst& inst, uint32_t mask, const uint64_t* address, uint8_t* base, bool shared) {
    const bool returns = inst.flags & kFlagReturnsValue;
    bool changed = false;
    if (inst.vec > 1) {  // each element is an atomic operation of its own
        alignas(64) uint64_t at[kWarpLanes];
        std::copy(address, address + kWarpLanes, at);
        for (uint32_t i = 0; i < inst.vec; ++i) {
            Inst part = inst;
            part.vec = 1;
            part.b = listed(inst, i);
            if (returns) part.d = listed(inst, inst.vec + i);
            changed |= atomic_lanes(part, mask, at, base, shared);
            for_lanes(mask, [&](uint32_t lane) { at[lane] += inst.bytes; });
        }
        return changed;
    }
    if (inst.bytes == 16) {  // exch and cas; listed: value (and swap), result, each low half first
        using Wide = unsigned __int128;
        const auto wide = [&](uint32_t first, uint32_t lane) {
            return static_cast<Wide>(row64(listed(inst, first + 1))[lane]) << 64 | row64(listed(inst, first))[lane];
        };
        for_lanes(mask, [&](uint32_t lane) {
            Wide* cell = reinterpret_cast<Wide*>(byte_at(base, address[lane]));
            const bool is_cas = static_cast<AtomOp>(inst.mode) == AtomOp::kCas;
            const Wide value = wide(0, lane);
            Wide old = is_cas ? value : *cell;
            for (;;) {
                const Wide next = is_cas ? wide(2, lane) : value;
                const Wide seen = __sync_val_compare_and_swap(cell, old, next);
                const bool done = seen == old;
                changed |= done && next != old;
                old = seen;
                if (done || is_cas) break;
            }
            if (!returns) return;
            row64(listed(inst, 4))[lane] = static_cast<uint64_t>(old);
            row64(listed(inst, 5))[lane] = static_cast<uint64_t>(old >> 64);
        });
        return changed;
    }
    if (inst.dbytes == 8) {
        uint64_t old[kWarpLanes];
        changed = run_lanes<uint64_t, uint64_t>(inst, mask, address, base, shared, row64(inst.b), row64(inst.c), old);
        if (returns) for_lanes(mask, [&, to = row64(inst.d)](uint32_t lane) { to[lane] = old[lane]; });
        return changed;
    }
    uint32_t old[kWarpLanes];
    if (inst.bytes == 2)
        changed = run_lanes<uint16_t, uint32_t>(inst, mask, address, base, shared, row32(inst.b), row32(inst.c), old);
    else
        changed = run_lanes<uint32_t, uint32_t>(inst, mask, address, base, shared, row32(inst.b), row32(inst.c), old);
    if (returns) for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) { to[lane] = old[lane]; });
    return changed;
}

template <Mode M>
void Interpreter<M>::atomic(const Inst& inst, uint32_t mask) {
    const uint32_t size = inst.bytes * inst.vec;
    alignas(64) uint64_t address[kWarpLanes];
    const uint64_t offset = static_cast<uint64_t>(inst.offset);
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        if (!(inst.flags & kFlagHasBase))
            address[lane] = offset;
        else if (inst.flags & kFlagBase64)
            address[lane] = row64(inst.a)[lane] + offset;
        else
            address[lane] = row32(inst.a)[lane] + static_cast<uint32_t>(offset);
    }
    uint32_t in_shared = inst.space == MemSpace::kShared ? mask : 0;
    if (inst.space == MemSpace::kGeneric) {
        for_lanes(mask, [&](uint32_t lane) {
            if ((address[lane] & kWindowMask) != kSharedWindow) return;
            in_shared |= 1u << lane;
            address[lane] &= ~kWindowMask;
        });
    }
    uint32_t in_global = mask & ~in_shared;
    if (in_global) {
        uint64_t lo = ~0ull, hi = 0, bits = 0;
        for_lanes(in_global, [&](uint32_t lane) {
            lo = std::min(lo, address[lane]);
            hi = std::max(hi, address[lane]);
            bits |= address[lane];
        });
        in_global = check_global(in_global, address, size, true, true, lo, hi, bits);
        if (const uint32_t on_host = lanes_on_host(in_global, address)) [[unlikely]] {
            if constexpr (kCount) count_global(on_host, address, size, false, true);
            note_atomic(atomic_lanes(inst, on_host, address, nullptr, false), address[std::countr_zero(on_host)]);
            in_global &= ~on_host;
        }
        if (in_global) {
            if (checking(kInitcheck) && static_cast<AtomOp>(inst.mode) != AtomOp::kExch) {
                for_lanes(in_global, [&](uint32_t lane) { check_global_init(1u << lane, address, size, address[lane], address[lane]); });
            }
            if (checking(kDependence)) {
                const bool reads = static_cast<AtomOp>(inst.mode) != AtomOp::kExch;
                const bool returns = (inst.flags & (kFlagReturnsValue | kFlagUnread)) == kFlagReturnsValue;
                follow_updates(in_global, address, size, reads, returns);
            } else {
                mark_global(in_global, address, size, lo, hi, false);
            }
            if (checking(kStreamcheck)) memory_.footprints().mark_lanes(Touch::kStrongWrite, in_global, address, size, lo, hi, false);
            // The order in which the race check sees atomics on a word has to be that of their values.
            const SpinLock turn(checking(kRacecheck) && !block_.launch->single_worker ? &block_.launch->atomic_turn : nullptr);
            if (checking(kRacecheck)) {
                const AccessKind kind = inst.order & kOrderBlock ? AccessKind::kStrongBlock : AccessKind::kStrong;
                race_global(in_global, address, size, true, kind, nullptr);
                order_words(inst, in_global, address, true, true, OrderKind::kGlobalWord);
            }
            if constexpr (kCount) count_global(in_global, address, size, false, true);
            const bool changed = atomic_lanes(inst, in_global, address, reinterpret_cast<uint8_t*>(memory_.alias(0)), false);
            // Others may have handed over something between the above and the operation itself.
            if (checking(kRacecheck)) order_words(inst, in_global, address, true, false, OrderKind::kGlobalWord);
            note_atomic(changed, address[std::countr_zero(in_global)]);
        }
    }
    if (in_shared == 0) return;
    uint64_t high = 0;
    for_lanes(in_shared, [&](uint32_t lane) { high |= address[lane]; });
    if (high >> kSharedRankShift == 0 || !((inst.flags & kFlagCluster) || inst.space == MemSpace::kGeneric))
        return atomic_shared(block_, inst, in_shared, address);
    Block* owners[kWarpLanes] = {};
    for_lanes(in_shared, [&](uint32_t lane) {
        uint32_t at = 0;
        owners[lane] = address[lane] >> 32 ? nullptr : shared_of(static_cast<uint32_t>(address[lane]), at);
        if (owners[lane]) address[lane] = at;
    });
    for (uint32_t rest = in_shared; rest && !fatal_;) {
        Block* owner = owners[std::countr_zero(rest)];
        uint32_t group = 0;
        for_lanes(rest, [&](uint32_t lane) { group |= owners[lane] == owner ? 1u << lane : 0; });
        rest &= ~group;
        if (owner)
            atomic_shared(*owner, inst, group, address);
        else
            check_shared(group, address, size, true, true);  // reports all of them
    }
}

template <Mode M>
void Interpreter<M>::note_atomic(bool changed, uint64_t address) {
    if (changed)
        ++warp_.changes;
    else
        note_poll(address);
}

template <Mode M>
void Interpreter<M>::atomic_shared(Block& owner, const Inst& inst, uint32_t mask, const uint64_t* address) {
    const uint32_t size = inst.bytes * inst.vec;
    const bool is_peer = &owner != &block_;
    if (is_peer && !peer_alive(owner, mask, address, true, size)) return;
    mask = check_shared(mask, address, size, true, true);
    if (mask == 0) return;
    if (checking(kRacecheck)) {
        if (is_peer) {
            race_peer(owner, mask, address, size, true, true);
            order_words(inst, mask, address, true, true, OrderKind::kSharedWord, &owner);
        } else {
            race_write(mask, address, size, true, nullptr);
            order_words(inst, mask, address, true, true, OrderKind::kSharedWord, &owner);
        }
    }
    if (checking(kInitcheck)) {
        for_lanes(mask, [&](uint32_t lane) {
            uint8_t* state = owner.shared_state + address[lane];
            bool unwritten = false, in_flight = false;
            for (uint32_t i = 0; i < size; ++i) {
                unwritten |= state[i] == 0;
                in_flight |= (state[i] & 2) != 0;
            }
            if (in_flight || (unwritten && static_cast<AtomOp>(inst.mode) != AtomOp::kExch)) {
                report_access(
                    worker_, block_, warp_, pc_, lane,
                    {in_flight ? Finding::kAsyncInFlight : Finding::kUninitialized, MemSpace::kShared, false, true, address[lane], size});
            }
            std::memset(state, 1, size);
        });
    }
    if constexpr (kCount) {
        if (is_peer)
            count().cluster_atomics++;
        else
            count_shared(mask, address, size, false, true);
    }
    note_atomic(atomic_lanes(inst, mask, address, owner.shared, true), address[std::countr_zero(mask)]);
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

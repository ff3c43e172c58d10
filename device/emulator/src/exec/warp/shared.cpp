// Loads and stores of shared memory by a whole warp with nothing to check or count: the addresses are handled as 32 bits, and those that
// form a run, or are all one, are not looked at one by one.
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

#pragma GCC diagnostic ignored "-Wpsabi"  // every function here is inlined: no calling convention is at stake

// 8 lanes. Compilers make two halves of it where the level has no such registers.
typedef uint32_t Lanes __attribute__((vector_size(32)));
typedef long long Quads __attribute__((vector_size(32)));

AICF_INLINE Lanes load_lanes(const uint32_t* from) {
    Lanes value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

AICF_INLINE bool is_zero(const Lanes& value) {
#ifdef __AVX__
    return __builtin_ia32_ptestz256(reinterpret_cast<Quads>(value), reinterpret_cast<Quads>(value));
#else
    uint64_t parts[4];
    std::memcpy(parts, &value, sizeof parts);
    return (parts[0] | parts[1] | parts[2] | parts[3]) == 0;
#endif
}

// Whether the state of all bytes is "written", and nothing else.
AICF_INLINE bool all_written(const uint8_t* state, uint32_t bytes) {
    constexpr uint64_t kOnes = 0x0101010101010101ull;
    uint64_t other = 0;
    if (bytes % 8 != 0) {  // 4
        uint32_t word;
        std::memcpy(&word, state, 4);
        return word == static_cast<uint32_t>(kOnes);
    }
    for (uint32_t i = 0; i < bytes; i += 8) {
        uint64_t word;
        std::memcpy(&word, state + i, 8);
        other |= word ^ kOnes;
    }
    return other == 0;
}

struct Plan {
    bool good = false;  // all lanes are inside shared memory, and aligned
    Shape shape = Shape::kScattered;
    uint32_t low = 0, high = 0;  // addresses of lanes 0 and 16
    alignas(32) uint32_t address[kWarpLanes];
};

AICF_INLINE void plan_access(Plan& plan, const uint32_t* base, uint32_t offset, uint32_t size, uint32_t end) {
    const Lanes a = load_lanes(base), b = load_lanes(base + 8), c = load_lanes(base + 16), d = load_lanes(base + 24);
    const uint32_t first = base[0], middle = base[16];
    const Lanes from_a = a - first, from_b = b - first, from_c = c - middle, from_d = d - middle;
    constexpr Lanes kLow = {0, 1, 2, 3, 4, 5, 6, 7}, kHigh = {8, 9, 10, 11, 12, 13, 14, 15};
    const Lanes step_low = kLow * size, step_high = kHigh * size;
    plan.low = first + offset;
    plan.high = middle + offset;
    uint32_t run;
    if (is_zero((from_a ^ step_low) | (from_b ^ step_high) | (from_c ^ step_low) | (from_d ^ step_high))) {
        plan.shape = Shape::kContiguousHalves;
        run = 16 * size;
    } else if (is_zero(from_a | from_b | from_c | from_d)) {
        plan.shape = Shape::kUniformHalves;
        run = size;
    } else {
        const uint32_t most = end - kSharedStart - size;  // an address below kSharedStart wraps around to a large one
        const uint32_t shift = offset - kSharedStart;
        const auto over = ((a + shift) > most) | ((b + shift) > most) | ((c + shift) > most) | ((d + shift) > most);
        const Lanes loose = ((a + offset) | (b + offset) | (c + offset) | (d + offset)) & (size - 1);
        plan.good = end - kSharedStart >= size && is_zero(reinterpret_cast<Lanes>(over) | loose);
        const Lanes at[4] = {a + offset, b + offset, c + offset, d + offset};
        std::memcpy(plan.address, at, sizeof at);
        return;
    }
    const auto inside = [&](uint32_t at) { return at >= kSharedStart && static_cast<uint64_t>(at) + run <= end; };
    plan.good = inside(plan.low) && inside(plan.high) && ((plan.low | plan.high) & (size - 1)) == 0;
}

template <typename T>
AICF_INLINE void load_element(const Plan& plan, T* to, const uint8_t* memory, uint32_t element) {
    if (plan.shape == Shape::kUniformHalves) {
        T first, second;
        std::memcpy(&first, memory + plan.low + element * sizeof(T), sizeof(T));
        std::memcpy(&second, memory + plan.high + element * sizeof(T), sizeof(T));
        for (uint32_t lane = 0; lane < 16; ++lane) to[lane] = first;
        for (uint32_t lane = 16; lane < 32; ++lane) to[lane] = second;
        return;
    }
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) std::memcpy(to + lane, memory + plan.address[lane] + element * sizeof(T), sizeof(T));
}

// Elements of a vector lie apart, so a run of vectors is walked through lane by lane.
AICF_INLINE void spread(Plan& plan, uint32_t size) {
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) plan.address[lane] = (lane < 16 ? plan.low : plan.high) + lane % 16 * size;
    plan.shape = Shape::kScattered;
}

}  // namespace

// The checks of such an access: those of initialised bytes and of races. False: it needs a closer look.
template <Mode M>
template <bool kStore>
AICF_INLINE bool Interpreter<M>::check_shared_simply(uint32_t low, uint32_t high, uint32_t run, uint32_t size, bool uniform) {
    if (kStore && uniform) return false;
    if (image_.crosses_shared_gap(low, low + run) || image_.crosses_shared_gap(high, high + run)) return false;
    uint8_t* const state = block_.shared_state;
    if (!kStore && checking(kInitcheck) && !(all_written(state + low, run) && all_written(state + high, run))) return false;
    if (checking(kRacecheck) && !(kStore ? race_write_halves(low, high, size) : race_read_halves(low, high, run, size, uniform)))
        return false;
    if (kStore && checking(kInitcheck)) {
        std::memset(state + low, 1, run);
        std::memset(state + high, 1, run);
    }
    return true;
}

// False: the access is not as simple as that, and nothing was done.
template <Mode M>
template <bool kStore>
bool Interpreter<M>::access_shared_simply(const Inst& inst) {
    if constexpr (kCount) return false;
    if (kChecks && !warp_.undefined.empty()) return false;
    constexpr uint8_t kForm = kFlagHasBase | kFlagBase64;
    if ((inst.flags & kForm) != kFlagHasBase || inst.mode2 != 0 || inst.dbytes != inst.bytes) return false;
    if ((inst.bytes != 4 && inst.bytes != 8) || inst.vec > 4) return false;
    if (inst.order & kOrderStrong) return false;  // may be a poll, which gives way to others
    const uint32_t size = inst.bytes * inst.vec;
    Plan plan;
    plan_access(plan, row32(inst.a), static_cast<uint32_t>(inst.offset), size, block_.shared_end);
    if (!plan.good) return false;
    if constexpr (kChecks) {
        const bool uniform = plan.shape == Shape::kUniformHalves;
        if (plan.shape == Shape::kScattered || !check_shared_simply<kStore>(plan.low, plan.high, uniform ? size : 16 * size, size, uniform))
            return false;
    }
    uint8_t* const memory = block_.shared;
    if (plan.shape == Shape::kContiguousHalves && inst.vec == 1) {
        uint8_t* const own = row(inst.d);
        const uint32_t half = 16 * size;
        for (uint32_t at = 0; at < half; at += 64) {
            std::memcpy(kStore ? memory + plan.low + at : own + at, kStore ? own + at : memory + plan.low + at, 64);
            std::memcpy(kStore ? memory + plan.high + at : own + half + at, kStore ? own + half + at : memory + plan.high + at, 64);
        }
        return true;
    }
    if (plan.shape == Shape::kContiguousHalves || (kStore && plan.shape == Shape::kUniformHalves))
        spread(plan, plan.shape == Shape::kUniformHalves ? 0 : size);
    const uint32_t operands[4] = {inst.d, inst.b, inst.c, inst.e};
    for (uint32_t i = 0; i < inst.vec; ++i) {
        if constexpr (kStore) {
            const uint8_t* from = row(operands[i]);
            if (inst.bytes == 4) {
                for (uint32_t lane = 0; lane < kWarpLanes; ++lane) std::memcpy(memory + plan.address[lane] + 4 * i, from + 4 * lane, 4);
            } else {
                for (uint32_t lane = 0; lane < kWarpLanes; ++lane) std::memcpy(memory + plan.address[lane] + 8 * i, from + 8 * lane, 8);
            }
        } else if (inst.bytes == 4) {
            load_element<uint32_t>(plan, row32(operands[i]), memory, i);
        } else {
            load_element<uint64_t>(plan, row64(operands[i]), memory, i);
        }
    }
    return true;
}

#define AICF_INSTANTIATE(MODE)                                                 \
    template bool Interpreter<MODE>::access_shared_simply<false>(const Inst&); \
    template bool Interpreter<MODE>::access_shared_simply<true>(const Inst&);
AICF_INSTANTIATE(Mode::kPlain)
AICF_INSTANTIATE(Mode::kChecked)
AICF_INSTANTIATE(Mode::kCounted)

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

// Moves that are not lane arithmetic: packing, clocks, state-space queries.
#include <chrono>
#include <cstring>
#include <string>

#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::pack(const Inst& inst, uint32_t mask) {
    const uint32_t* parts[4] = {row32(inst.a), row32(inst.b), row32(inst.c), row32(inst.e)};
    const uint32_t bits = inst.bytes * 8u;
    const uint64_t part_mask = (1ull << bits) - 1;
    alignas(64) uint64_t value[kWarpLanes];
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        value[lane] = 0;
        for (uint32_t i = 0; i < inst.vec; ++i) value[lane] |= (parts[i][lane] & part_mask) << (bits * i);
    }
    if (inst.dbytes == 8) {
        for_lanes(mask, [&, to = row64(inst.d)](uint32_t lane) { to[lane] = value[lane]; });
    } else {
        for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) { to[lane] = static_cast<uint32_t>(value[lane]); });
    }
}

template <Mode M>
void Interpreter<M>::unpack(const Inst& inst, uint32_t mask) {
    alignas(64) uint64_t value[kWarpLanes];
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) value[lane] = inst.dbytes == 8 ? row64(inst.a)[lane] : row32(inst.a)[lane];
    uint32_t* parts[4] = {row32(inst.d), row32(inst.b), row32(inst.c), row32(inst.e)};
    const uint32_t bits = inst.bytes * 8u;
    const uint64_t part_mask = (1ull << bits) - 1;
    for (uint32_t i = 0; i < inst.vec; ++i) {
        for_lanes(mask, [&, to = parts[i]](uint32_t lane) { to[lane] = static_cast<uint32_t>(value[lane] >> (bits * i) & part_mask); });
    }
}

template <Mode M>
void Interpreter<M>::read_clock(const Inst& inst, uint32_t mask) {
    // Clocks count in nanoseconds of the host: they advance, and mean nothing else.
    const uint64_t now = static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    uint64_t value = now;
    switch (static_cast<ClockKind>(inst.mode)) {
        case ClockKind::kClockHigh:
        case ClockKind::kGlobalTimerHigh: value = now >> 32; break;
        default: break;
    }
    if (inst.dbytes == 8) {
        for_lanes(mask, [&, to = row64(inst.d)](uint32_t lane) { to[lane] = value; });
    } else {
        for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) { to[lane] = static_cast<uint32_t>(value); });
    }
}

// A stack of its own for each thread, behind the frames of its functions. Addresses are those of local memory.
template <Mode M>
void Interpreter<M>::alloca_stack(const Inst& inst, uint32_t mask) {
    const AllocaMode mode = static_cast<AllocaMode>(inst.mode);
    const uint64_t base = image_.stack_local;
    const auto get = [&](uint32_t operand, uint32_t lane) { return inst.dbytes == 8 ? row64(operand)[lane] : row32(operand)[lane]; };
    const auto put = [&](uint32_t lane, uint64_t value) {
        if (inst.dbytes == 8)
            row64(inst.d)[lane] = value;
        else
            row32(inst.d)[lane] = static_cast<uint32_t>(value);
    };
    for_lanes(mask, [&](uint32_t lane) {
        uint32_t& used = warp_.alloca_used[lane];
        if (fatal_) return;
        if (mode == AllocaMode::kSave) return put(lane, base + used);
        if (mode == AllocaMode::kRestore) {
            const uint64_t to = get(inst.a, lane);
            if (to >= base && to <= base + used)
                used = static_cast<uint32_t>(to - base);
            else
                report_event(worker_, block_, warp_, pc_, lane, Finding::kStackOverflow, "stackrestore of what no stacksave gave");
            return;
        }
        const uint64_t align = inst.imm, size = get(inst.a, lane);
        const uint64_t start = (base + used + align - 1) / align * align;
        if (size > image_.alloca_bytes || start + size > base + image_.alloca_bytes) {
            report_event(worker_, block_, warp_, pc_, lane, Finding::kStackOverflow,
                         "alloca of " + std::to_string(size) + " bytes, when " + std::to_string(used) + " of the stack's " +
                             std::to_string(image_.alloca_bytes) + " are in use");
            return stop_launch(kErrorLaunchFailure);
        }
        used = static_cast<uint32_t>(start + size - base);
        if (block_.local_state)
            std::memset(block_.local_state + thread_of(lane) * static_cast<uint64_t>(block_.local_stride) + start, 0, size);
        put(lane, start);
    });
    if (!fatal_) ++pc_;
}

template <Mode M>
void Interpreter<M>::is_space(const Inst& inst, uint32_t mask) {
    const uint64_t* address = row64(inst.a);
    uint32_t result = 0;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t window = address[lane] & kWindowMask;
        bool inside = false;
        switch (inst.space) {
            case MemSpace::kShared: {
                inside = window == kSharedWindow;
                uint32_t offset = 0;
                if (!inst.mode) inside = inside && shared_of(static_cast<uint32_t>(address[lane]), offset) == &block_;
                break;
            }
            case MemSpace::kLocal: inside = window == kLocalWindow; break;
            case MemSpace::kParam: inside = window == kParamWindow; break;
            case MemSpace::kGlobal: inside = window == 0; break;
            default: {
                const Allocation* allocation = window == 0 ? memory_.find(address[lane]) : nullptr;
                inside = allocation && allocation->kind == MemoryKind::kModule &&
                         block_.launch->program->variables.contains(allocation->label) &&
                         block_.launch->program->variables.at(allocation->label).is_const;
            }
        }
        result |= inside ? 1u << lane : 0;
    });
    uint32_t& to = predicate_slot(inst.pd);
    to = (to & ~mask) | result;
}

#define AICF_INSTANTIATE(MODE)                                            \
    template void Interpreter<MODE>::pack(const Inst&, uint32_t);         \
    template void Interpreter<MODE>::unpack(const Inst&, uint32_t);       \
    template void Interpreter<MODE>::read_clock(const Inst&, uint32_t);   \
    template void Interpreter<MODE>::alloca_stack(const Inst&, uint32_t); \
    template void Interpreter<MODE>::is_space(const Inst&, uint32_t);
AICF_INSTANTIATE(Mode::kPlain)
AICF_INSTANTIATE(Mode::kChecked)
AICF_INSTANTIATE(Mode::kCounted)

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

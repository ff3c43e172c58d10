// The race check of global memory: blocks against blocks, threads against threads. See ../memory/race_shadow.hpp for what is kept.
#include <algorithm>
#include <atomic>
#include <thread>

#include "../../memory/race_shadow.hpp"
#include "../warp/warp.hpp"
#include "race.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

struct LaneRuns {
    // Lane of each unit when lane i has units [i << shift, (i + 1) << shift).
    uint8_t lane[5][2 * kGranuleUnits];
    constexpr LaneRuns() : lane() {
        for (uint32_t shift = 0; shift < 5; ++shift)
            for (uint32_t u = 0; u < 2 * kGranuleUnits; ++u) lane[shift][u] = static_cast<uint8_t>(u >> shift);
    }
};
constexpr LaneRuns kLaneRuns;

AICF_INLINE uint64_t unit_mask(uint32_t first, uint32_t count) { return (count >= 64 ? ~0ull : (1ull << count) - 1) << first; }

}  // namespace

// Whether an access noted as `epoch` is ordered before the lane's next one.
template <Mode M>
bool Interpreter<M>::epoch_ordered(uint64_t epoch, uint32_t thread, uint32_t lane) const {
    return thread_ordered(epoch_block(epoch), thread, epoch_clock(epoch), lane);
}

// A read by the lanes of one warp of `units` of the granule; by_unit: the lane of each of them.
template <Mode M>
void Interpreter<M>::granule_read(Granule& granule, uint64_t units, const uint8_t* by_unit, AccessKind kind, uint64_t base) {
    const SpinLock lock(block_.launch->single_worker ? nullptr : &granule.lock);
    granule.enter(block_.launch->shadow_epoch, block_.launch->primary);
    if (units & granule.before_written) [[unlikely]]
        check_primary(granule, units & granule.before_written, 0, by_unit, false, base);
    const uint32_t shift = block_.launch->global_shift;
    if (uint64_t look = units & granule.written) [[unlikely]] {
        uint64_t judged = 0;
        uint32_t judged_lane = ~0u;
        for (; look; look &= look - 1) {
            const uint32_t u = std::countr_zero(look);
            const uint64_t epoch = granule.write[u];
            const uint32_t lane = by_unit[u] & (kWarpLanes - 1);
            if (epoch == judged && lane == judged_lane) continue;
            const AccessKind written = epoch_kind(epoch);
            if (epoch_block(epoch) == block_.linear && epoch_clock(epoch) < block_.floor && kind != AccessKind::kAsync) continue;
            if (!strong_together(kind, epoch) && !epoch_ordered(epoch, epoch_thread(epoch), lane)) {
                report_global(base + (static_cast<uint64_t>(u) << shift), lane, epoch, epoch_thread(epoch), granule.write_pc[u], false,
                              true, Finding::kGlobalRace);
            } else if (kind == AccessKind::kAsync && written != AccessKind::kAsync &&
                       !order::knows(block_, warp_, lane, epoch_block(epoch), epoch_thread(epoch), epoch_clock(epoch), kProxyKey)) {
                report_global(base + (static_cast<uint64_t>(u) << shift), lane, epoch, epoch_thread(epoch), granule.write_pc[u], false,
                              true, Finding::kMissingProxyFence);
            }
            judged = epoch;
            judged_lane = lane;
        }
    }
    const uint64_t epoch = make_epoch(block_.linear, block_.clock, kind, warp_.id);
    ReadEntry* entry = nullptr;
    for (uint32_t i = 0; i < granule.num_reads; ++i) {
        ReadEntry& old = granule.reads[i];
        if (old.epoch == epoch) {  // the same warp, and nothing in between: add to it
            for (uint64_t rest = units; rest; rest &= rest - 1) {
                const uint32_t u = std::countr_zero(rest);
                old.lane[u] = (old.units >> u & 1) && old.lane[u] != by_unit[u] ? static_cast<uint8_t>(kManyLanes) : by_unit[u];
            }
            old.units |= units;
            old.pc = pc_;
            return;
        }
        if ((old.units & ~units) == 0 && epoch_block(old.epoch) == block_.linear && epoch_thread(old.epoch) == warp_.id) entry = &old;
    }
    if (!entry) {
        if (granule.num_reads < Granule::kReads)
            entry = &granule.reads[granule.num_reads++];
        else
            entry = &granule.reads[granule.next_read++ % Granule::kReads];
    }
    entry->epoch = epoch;
    entry->units = units;
    entry->pc = pc_;
    std::memcpy(entry->lane, by_unit, kGranuleUnits);
}

template <Mode M>
bool Interpreter<M>::strong_together(AccessKind kind, uint64_t epoch) const {
    const AccessKind other = epoch_kind(epoch);
    const auto strong = [&](AccessKind k) {
        return k == AccessKind::kStrong || (k == AccessKind::kStrongBlock && epoch_block(epoch) == block_.linear);
    };
    return strong(kind) && strong(other);
}

template <Mode M>
bool Interpreter<M>::is_there(const Stored& stored) const {
    bool same = true;
    for (uint32_t i = 0; i < stored.count && same; ++i)
        same = writes_same_value(*stored.inst, stored.first + i, stored.address, stored.memory);
    return same;
}

// Another worker notes a write before it makes it: one that was noted a moment ago may still be on its way. It is given some time, in the
// first races of a launch, lest a program with millions of them waits for each.
template <Mode M>
bool Interpreter<M>::comes_to_be_there(const Stored& stored) const {
    constexpr uint32_t kMaxWaits = 64, kMaxLooks = 200;
    if (is_there(stored)) return true;
    LaunchState& state = *block_.launch;
    if (state.single_worker || state.num_race_waits.fetch_add(1, std::memory_order_relaxed) >= kMaxWaits) return false;
    for (uint32_t look = 0; look < kMaxLooks; ++look) {
        std::this_thread::yield();
        std::atomic_thread_fence(std::memory_order_acquire);
        if (is_there(stored)) return true;
    }
    return false;
}

template <Mode M>
void Interpreter<M>::granule_write(Granule& granule, uint64_t units, const uint8_t* by_unit, AccessKind kind, uint64_t base,
                                   const Stored* stored) {
    const SpinLock lock(block_.launch->single_worker ? nullptr : &granule.lock);
    const LaunchState& state = *block_.launch;
    granule.enter(state.shadow_epoch, state.primary);
    if (units & (granule.before_written | granule.before_read)) [[unlikely]] {
        check_primary(granule, units & granule.before_written, units & granule.before_read, by_unit, true, base);
        granule.before_written &= ~units;
    }
    const uint32_t shift = state.global_shift;
    for (uint64_t look = units & granule.written; look; look &= look - 1) {
        const uint32_t u = std::countr_zero(look);
        const uint64_t epoch = granule.write[u];
        if (epoch_block(epoch) == block_.linear && (epoch_clock(epoch) < block_.floor || epoch_thread(epoch) == thread_of(by_unit[u])))
            continue;
        if (strong_together(kind, epoch) || epoch_ordered(epoch, epoch_thread(epoch), by_unit[u])) continue;
        report_global(base + (static_cast<uint64_t>(u) << shift), by_unit[u], epoch, epoch_thread(epoch), granule.write_pc[u], true, true,
                      stored && comes_to_be_there(*stored) ? Finding::kGlobalRaceSameValue : Finding::kGlobalRace);
    }
    for (uint32_t i = 0; i < granule.num_reads; ++i) {
        ReadEntry& read = granule.reads[i];
        const uint64_t both = read.units & units;
        if (both == 0) continue;
        read.units &= ~units;
        if (epoch_block(read.epoch) == block_.linear && epoch_clock(read.epoch) < block_.floor) continue;
        if (strong_together(kind, read.epoch)) continue;
        const uint32_t reader_warp = epoch_thread(read.epoch);
        for (uint64_t look = both; look; look &= look - 1) {
            const uint32_t u = std::countr_zero(look);
            const uint32_t thread = read.lane[u] == kManyLanes ? kIdWarp + reader_warp : reader_warp * kWarpLanes + read.lane[u];
            if (epoch_ordered(read.epoch, thread, by_unit[u])) continue;
            if (order::knows_read(block_, warp_, by_unit[u], epoch_block(read.epoch), thread, epoch_clock(read.epoch))) continue;
            report_global(base + (static_cast<uint64_t>(u) << shift), by_unit[u], read.epoch, thread, read.pc, true, false,
                          Finding::kGlobalRace);
        }
    }
    const uint64_t epoch = make_epoch(block_.linear, block_.clock, kind, 0);
    for (uint64_t rest = units; rest; rest &= rest - 1) {
        const uint32_t u = std::countr_zero(rest);
        granule.write[u] = epoch | thread_of(by_unit[u]);
        granule.write_pc[u] = pc_;
    }
    granule.written |= units;
}

// The units of the granule that the launch before wrote or read, and that this access reads or writes: by lanes that know it to be over?
template <Mode M>
void Interpreter<M>::check_primary(const Granule& granule, uint64_t written, uint64_t read, const uint8_t* by_unit, bool is_write,
                                   uint64_t base) {
    for (uint64_t look = written | read; look; look &= look - 1) {
        const uint32_t u = std::countr_zero(look);
        const uint32_t lane = by_unit[u] & (kWarpLanes - 1);
        if (order::knows(block_, warp_, lane, kPrimaryBlock, 0, 0)) continue;
        const bool was_written = written >> u & 1;
        const uint64_t epoch = was_written ? granule.write[u] : granule.before_read_epoch;
        RaceFinding race;
        race.finding = Finding::kGridDependencyMissing;
        race.address = base + (static_cast<uint64_t>(u) << block_.launch->global_shift);
        race.is_write = is_write;
        race.other_is_write = was_written;
        race.other_is_primary = true;
        race.by_agent = image_.code[pc_].op == Op::kBulk;
        race.other_by_agent = epoch_kind(epoch) == AccessKind::kAsync;
        race.other_block = epoch_block(epoch);
        race.other_thread = was_written ? epoch_thread(epoch) : kIdWarp + epoch_thread(epoch);
        race.other_pc = was_written ? granule.write_pc[u] : granule.before_read_pc;
        report_race(worker_, block_, warp_, pc_, lane, race);
        return;  // one is enough of an instruction
    }
}

template <Mode M>
void Interpreter<M>::report_global(uint64_t address, uint32_t lane, uint64_t epoch, uint32_t thread, uint32_t other_pc, bool is_write,
                                   bool other_is_write, Finding finding) {
    RaceFinding race;
    race.finding = finding;
    race.address = address;
    race.is_write = is_write;
    race.other_is_write = other_is_write;
    race.by_agent = image_.code[pc_].op == Op::kBulk;
    race.other_by_agent = epoch_kind(epoch) == AccessKind::kAsync;
    race.other_block = epoch_block(epoch);
    race.other_thread = thread;
    race.other_pc = other_pc;
    report_race(worker_, block_, warp_, pc_, lane, race);
}

// `store`: as for race_write.
template <Mode M>
void Interpreter<M>::race_global(uint32_t mask, const uint64_t* address, uint32_t size, bool is_write, AccessKind kind, const Inst* store) {
    RaceShadow* shadow = block_.launch->shadow;
    if (!shadow) return;
    const uint32_t shift = block_.launch->global_shift;
    const uint32_t granule_shift = shift + 6;
    const uint32_t units = std::max(1u, size >> shift);
    const uint64_t arena = memory_.base();
    const auto memory = reinterpret_cast<uint64_t>(memory_.alias(0));
    uint8_t by_unit[kGranuleUnits];
    uint32_t rest = mask;
    while (rest) {
        const uint32_t first = std::countr_zero(rest);
        const uint64_t index = (address[first] - arena) >> granule_shift;
        const uint64_t base = arena + (index << granule_shift);
        Granule* granule = shadow->granule(index);
        if (!granule) return;
        // Lanes in a row from here, as far as the granule goes.
        const uint32_t first_unit = static_cast<uint32_t>((address[first] - base) >> shift);
        uint32_t count = 0;
        if (size >= 1u << shift) {
            const uint32_t fit = std::min<uint32_t>((kGranuleUnits - first_unit) / units, kWarpLanes - first);
            while (count < fit && (rest >> (first + count) & 1) &&
                   address[first + count] == address[first] + static_cast<uint64_t>(count) * size)
                ++count;
        }
        if (count >= 4) {
            const uint32_t log_units = std::countr_zero(units);
            if (first == 0 && first_unit == 0 && log_units < 5) {
                std::memcpy(by_unit, kLaneRuns.lane[log_units], kGranuleUnits);
            } else {
                for (uint32_t i = 0; i < count * units; ++i) by_unit[first_unit + i] = static_cast<uint8_t>(first + i / units);
            }
            rest &= count == kWarpLanes ? 0 : ~(((1u << count) - 1) << first);
            const uint64_t touched = unit_mask(first_unit, count * units);
            if (is_write) {
                const Stored stored = {store, first, count, address, memory};
                granule_write(*granule, touched, by_unit, kind, base, store ? &stored : nullptr);
            } else {
                granule_read(*granule, touched, by_unit, kind, base);
            }
            continue;
        }
        if (is_write) {  // one lane at a time: those of one instruction may race with each other
            rest &= rest - 1;
            for (uint32_t i = 0; i < units; ++i) by_unit[first_unit + i] = static_cast<uint8_t>(first);
            const uint64_t touched = unit_mask(first_unit, units);
            const Stored stored = {store, first, 1, address, memory};
            granule_write(*granule, touched, by_unit, kind, base, store ? &stored : nullptr);
            continue;
        }
        // Where something was written, each lane is judged by itself.
        if (block_.launch->primary != 0 || (granule->written != 0 && granule->launch == block_.launch->shadow_epoch)) {
            rest &= rest - 1;
            for (uint32_t i = 0; i < units; ++i) by_unit[first_unit + i] = static_cast<uint8_t>(first);
            granule_read(*granule, unit_mask(first_unit, units), by_unit, kind, base);
            continue;
        }
        uint64_t touched = 0;
        for_lanes(rest, [&](uint32_t lane) {
            if ((address[lane] - arena) >> granule_shift != index) return;
            rest &= ~(1u << lane);
            const uint32_t unit = static_cast<uint32_t>((address[lane] - base) >> shift);
            for (uint32_t u = unit; u < unit + units; ++u) {
                by_unit[u] = touched >> u & 1 ? static_cast<uint8_t>(kManyLanes) : static_cast<uint8_t>(lane);
                touched |= 1ull << u;
            }
        });
        granule_read(*granule, touched, by_unit, kind, base);
    }
}

// A plain read of one address by the whole warp. False: it needs a closer look.
template <Mode M>
bool Interpreter<M>::race_read_uniform(uint64_t address, uint32_t size) {
    const LaunchState& state = *block_.launch;
    if (!state.shadow || state.primary != 0) return state.shadow == nullptr;
    const uint32_t shift = state.global_shift;
    const uint64_t offset = address - memory_.base(), index = offset >> (shift + 6);
    Granule* granule = state.shadow->granule(index);
    if (!granule || (granule->written != 0 && granule->launch == state.shadow_epoch)) return false;
    const uint32_t first = offset >> shift & (kGranuleUnits - 1), count = std::max(1u, size >> shift);
    uint8_t by_unit[kGranuleUnits];
    std::memset(by_unit, kManyLanes, sizeof by_unit);
    granule_read(*granule, unit_mask(first, count), by_unit, AccessKind::kWeak, memory_.base() + (index << (shift + 6)));
    return true;
}

// Plain reads that the shadow is told of later (PendingReads). False: it has to be told now.
template <Mode M>
bool Interpreter<M>::defer_reads(uint32_t mask, const uint64_t* address, uint32_t size) {
    const LaunchState& state = *block_.launch;
    if (!state.shadow || state.primary != 0) return state.shadow == nullptr;
    const uint32_t shift = state.global_shift, granule_shift = shift + 6;
    const uint32_t count = std::max(1u, size >> shift);
    if (count >= kGranuleUnits) return false;
    const uint64_t run = (1ull << count) - 1, arena = memory_.base();
    uint32_t index = 0;
    while (index < worker_.pending && worker_.pending_pc[index] != pc_) ++index;
    if (index == worker_.pending && index == PendingReads::kSlots) return false;
    PendingReads& slot = worker_.pending_reads[index];
    const bool is_new = index == worker_.pending;
    uint64_t moved = is_new || slot.mask != mask;
    if (!moved) {
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
            const uint64_t lane_moved = ((address[lane] - arena) >> granule_shift) ^ slot.granule[lane];
            moved |= mask >> lane & 1 ? lane_moved : 0;
        }
    }
    if (moved) {
        if (!is_new) note_pending_slot(index);
        worker_.pending += is_new;
        worker_.pending_pc[index] = pc_;
        slot.mask = mask;
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
            slot.granule[lane] = (address[lane] - arena) >> granule_shift;
            slot.units[lane] = 0;
        }
    }
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) slot.units[lane] |= run << ((address[lane] - arena) >> shift & (kGranuleUnits - 1));
    return true;
}

template <Mode M>
void Interpreter<M>::note_pending_slot(uint32_t index) {
    const LaunchState& state = *block_.launch;
    const PendingReads& slot = worker_.pending_reads[index];
    const uint32_t now = pc_;
    pc_ = worker_.pending_pc[index];
    for (uint32_t rest = slot.mask; rest;) {
        const uint32_t first = std::countr_zero(rest);
        const uint64_t number = slot.granule[first];
        rest &= rest - 1;
        Granule* granule = state.shadow->granule(number);
        if (!granule) continue;
        const uint64_t base = memory_.base() + (number << (state.global_shift + 6));
        uint8_t by_unit[kGranuleUnits];
        std::memset(by_unit, static_cast<int>(first), sizeof by_unit);
        uint64_t units = slot.units[first];
        // Where something was written, each lane is judged by itself.
        const bool is_written = granule->written != 0 && granule->launch == state.shadow_epoch;
        for (uint32_t others = is_written ? 0 : rest; others; others &= others - 1) {
            const uint32_t lane = std::countr_zero(others);
            if (slot.granule[lane] != number) continue;
            rest &= ~(1u << lane);
            for (uint64_t more = slot.units[lane]; more; more &= more - 1) {
                const uint32_t u = std::countr_zero(more);
                by_unit[u] = units >> u & 1 ? static_cast<uint8_t>(kManyLanes) : static_cast<uint8_t>(lane);
            }
            units |= slot.units[lane];
        }
        granule_read(*granule, units, by_unit, AccessKind::kWeak, base);
    }
    pc_ = now;
}

template <Mode M>
void Interpreter<M>::note_pending_reads() {
    for (uint32_t index = 0; index < worker_.pending; ++index) note_pending_slot(index);
    worker_.pending = 0;
}

// An asynchronous operation's access, by the lane that issued it.
template <Mode M>
void Interpreter<M>::global_range(uint32_t lane, uint64_t address, uint64_t bytes, bool is_write, bool async_proxy) {
    RaceShadow* shadow = block_.launch->shadow;
    if (!shadow || bytes == 0 || !memory_.contains(address) || !memory_.contains(address + bytes - 1)) return;
    const uint32_t shift = block_.launch->global_shift;
    const uint32_t granule_shift = shift + 6;
    const uint64_t arena = memory_.base();
    uint8_t by_unit[kGranuleUnits];
    std::memset(by_unit, static_cast<int>(lane), sizeof by_unit);
    const AccessKind kind = async_proxy ? AccessKind::kAsync : AccessKind::kWeak;
    const uint64_t end = address + bytes;
    for (uint64_t at = address; at < end;) {
        const uint64_t index = (at - arena) >> granule_shift;
        const uint64_t base = arena + (index << granule_shift);
        const uint64_t stop = std::min(end, base + (uint64_t{kGranuleUnits} << shift));
        const uint32_t first = static_cast<uint32_t>((at - base) >> shift), last = static_cast<uint32_t>((stop - 1 - base) >> shift);
        Granule* granule = shadow->granule(index);
        if (!granule) return;
        const uint64_t touched = unit_mask(first, last - first + 1);
        if (is_write)
            granule_write(*granule, touched, by_unit, kind, base, nullptr);
        else
            granule_read(*granule, touched, by_unit, kind, base);
        at = stop;
    }
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

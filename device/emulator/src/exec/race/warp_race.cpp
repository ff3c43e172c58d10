// The race check of shared memory: happens-before, by the clocks of order.hpp.
//
// For each unit of memory are kept: the last write, the latest read, the warps that have read since, and the latest read by an asynchronous
// operation or another block. An access is stamped with clock, thread, and whether it is strong (atomic, volatile, relaxed and above; two
// of those do not race). Several readers: of the latest one is known when it read; of the others that it was after the last write, and they
// are given the benefit of the doubt where that does not decide.
#include "race.hpp"

#include <algorithm>
#include <bit>

#include "../warp/warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

AICF_INLINE uint32_t floor_stamp(const Block& block) {
    return make_stamp(block.floor > block.clock_base ? block.floor - block.clock_base : 1, false, 0);
}

// After a write: what comes later is ordered after these readers if it is ordered after the write.
AICF_INLINE void forget_readers(Block& owner, uint32_t unit) {
    owner.last_read[unit] = 0;
    owner.read_warps[unit] = 0;
}

AICF_INLINE uint32_t clock_stamp(const Block& block, bool strong, uint32_t thread) {
    return make_stamp(block.clock - block.clock_base, strong, thread);
}

// Smaller are the stamps of what a warp's threads did before its last barrier that all of them came to.
AICF_INLINE uint32_t warp_floor_stamp(const Block& block, uint32_t warp_floor) {
    return make_stamp(std::max(warp_floor, block.clock_base) - block.clock_base, false, 0);
}

}  // namespace

template <Mode M>
bool Interpreter<M>::record_ordered(const AccessRecord& record, uint32_t lane) const {
    if (record.state == AccessRecord::kFree) return true;
    if (record.state == AccessRecord::kInFlight) return false;
    if (record.is_agent) return order::knows_key(block_, warp_, lane, record.key, record.clock);
    return thread_ordered(record.block, record.thread, record.clock, lane);
}

// Whether the lane's next access comes after what a thread did at `clock` of its block. 1024 + w: several threads of warp w.
template <Mode M>
bool Interpreter<M>::thread_ordered(uint64_t block, uint32_t thread, uint32_t clock, uint32_t lane) const {
    const uint32_t warp = thread >= kIdWarp ? thread - kIdWarp : thread / kWarpLanes;
    if (block == block_.linear) {
        if (clock < block_.floor || thread == thread_of(lane)) return true;
        if (warp != warp_.id) {
            if (warp < kMaxWarps && clock < warp_.order[warp]) return true;
        } else {
            if (clock < warp_.warp_floor) return true;
            if (const LaneOrder* own = warp_.lane_order.get(); own && own->floors_used) {
                if (thread < kIdWarp) {
                    if (own->floor[lane][thread % kWarpLanes] > clock) return true;
                } else if (*std::max_element(own->floor[lane], own->floor[lane] + kWarpLanes) > clock) {
                    return true;
                }
            }
        }
    }
    return order::knows(block_, warp_, lane, block, thread, clock);
}

template <Mode M>
bool Interpreter<M>::ordered_before(uint32_t stamp, uint32_t lane) const {
    if (stamp < floor_stamp(block_)) return true;
    if (is_special(stamp)) return record_ordered(order::records(block_).slots[stamp & 0xFFF], lane);
    return thread_ordered(block_.linear, stamp_thread(stamp), stamp_clock(stamp) + block_.clock_base, lane);
}

// Whether all reads of the unit by threads of the block are ordered before the lane's next access; else one that is not. `owner` is
// the block whose memory it is.
template <Mode M>
bool Interpreter<M>::readers_ordered(const Block& owner, uint32_t unit, uint32_t lane, uint32_t& other) const {
    const uint32_t stamp = owner.last_read[unit];
    const uint32_t floor = floor_stamp(owner);
    const bool own = &owner == &block_;
    if (stamp < floor && own) return true;
    other = stamp_thread(stamp);
    const uint32_t clock = stamp_clock(stamp) + owner.clock_base;
    if (stamp == 0 || clock < owner.start_clock) return true;
    if (!thread_ordered(owner.linear, other, clock, lane)) return false;
    const uint32_t latest = other >= kIdWarp ? other - kIdWarp : other / kWarpLanes;
    const uint32_t warps = owner.read_warps[unit] & ~(latest < kMaxWarps ? 1u << latest : 0);
    if (warps == 0 || !own) return true;
    // The other readers came after the last write.
    const uint32_t written = owner.last_write[unit];
    uint32_t since = owner.floor;
    if (is_special(written)) {
        const AccessRecord& record = order::records(block_).slots[written & 0xFFF];
        if (record.state == AccessRecord::kDone && key_block(record.key) == owner.linear) since = std::max(since, record.clock);
    } else {
        since = std::max(since, stamp_clock(written) + owner.clock_base);
    }
    for (uint32_t rest = warps; rest; rest &= rest - 1) {
        const uint32_t w = std::countr_zero(rest);
        if (thread_ordered(owner.linear, kIdWarp + w, since, lane)) continue;
        bool some = false;
        for (uint32_t l = 0; l < kWarpLanes && !some; ++l)
            some = order::knows(block_, warp_, lane, owner.linear, w * kWarpLanes + l, since);
        if (some) continue;
        other = kIdWarp + w;
        return false;
    }
    return true;
}

template <Mode M>
void Interpreter<M>::report_unordered(const Block& owner, uint32_t unit, uint32_t lane, uint32_t stamp, uint32_t other_pc, bool is_write,
                                      bool other_is_write, bool same_value, bool by_agent) {
    RaceFinding race;
    race.address = static_cast<uint64_t>(unit) << image_.race_shift;
    race.finding = same_value ? Finding::kRaceSameValue : Finding::kRace;
    race.is_write = is_write;
    race.other_is_write = other_is_write;
    race.by_agent = by_agent;
    race.other_block = owner.linear;
    race.other_thread = stamp_thread(stamp);
    race.other_pc = other_pc;
    if (&owner != &block_) race.owner_block = owner.linear;
    if (is_special(stamp)) {
        const AccessRecord& record = order::records(block_).slots[stamp & 0xFFF];
        race.other_by_agent = record.is_agent;
        race.in_flight = record.state == AccessRecord::kInFlight;
        race.other_block = record.block;
        race.other_thread = record.thread;
        race.other_pc = record.pc;
        if (record.is_agent && is_write && !other_is_write) {
            race.finding = image_.code[record.pc].op == Op::kWgmma ? Finding::kWgmmaOperandOverwritten : Finding::kAsyncSourceOverwritten;
        }
    }
    report_race(worker_, block_, warp_, pc_, lane, race);
}

template <Mode M>
void Interpreter<M>::race_read_unit(uint32_t unit, uint32_t lane, bool strong) {
    const uint32_t written = block_.last_write[unit];
    if (!ordered_before(written, lane) && !(strong && strong_access(written)))
        report_unordered(block_, unit, lane, written, block_.write_pc[unit], false, true, false, false);
    const uint32_t stamp = clock_stamp(block_, strong, thread_of(lane));
    const uint32_t old = block_.last_read[unit];
    const uint32_t bit = 1u << warp_.id;
    block_.read_pc[unit] = pc_;
    const uint32_t old_thread = stamp_thread(old);
    const uint32_t old_warp = old_thread >= kWarpThreads ? old_thread - kWarpThreads : old_thread / kWarpLanes;
    if (old < floor_stamp(block_) || ((block_.read_warps[unit] & ~(1u << (old_warp % 32))) == 0 && ordered_before(old, lane))) {
        block_.last_read[unit] = stamp;
        block_.read_warps[unit] = bit;
        return;
    }
    // Of the own warp: a read that is over, or the same thread's, gives way to this one.
    const bool gives_way = old_thread == stamp_thread(stamp) || ordered_before(old, lane);
    const uint32_t thread = old_warp == warp_.id && !gives_way ? kWarpThreads + warp_.id : stamp_thread(stamp);
    block_.last_read[unit] = clock_stamp(block_, strong && stamp_strong(old), thread);
    block_.read_warps[unit] |= bit;
}

template <Mode M>
void Interpreter<M>::race_write_unit(uint32_t unit, uint32_t lane, bool strong, bool same_value) {
    const uint32_t written = block_.last_write[unit];
    if (!ordered_before(written, lane) && !(strong && strong_access(written)))
        report_unordered(block_, unit, lane, written, block_.write_pc[unit], true, true, same_value, false);
    if (!(strong && stamp_strong(block_.last_read[unit]))) {
        uint32_t other = 0;
        if (!readers_ordered(block_, unit, lane, other))
            report_unordered(block_, unit, lane, make_stamp(0, false, other), block_.read_pc[unit], true, false, false, false);
        forget_readers(block_, unit);
    }
    if (!block_.agent_read.empty() && block_.agent_read[unit] != 0) {
        const bool both_strong = strong && strong_access(block_.agent_read[unit]);
        if (!both_strong && !ordered_before(block_.agent_read[unit], lane))
            report_unordered(block_, unit, lane, block_.agent_read[unit], 0, true, false, false, false);
        else
            block_.agent_read[unit] = 0;
    }
    block_.last_write[unit] = clock_stamp(block_, strong, thread_of(lane));
    block_.write_pc[unit] = pc_;
}

namespace {

// Units [first, first + count) read by threads thread0, thread0 + 1, ... of one warp, `1 << per_thread_shift` units each. A read of the
// same warp before its last barrier gives way: whoever comes after this one comes after that one.
AICF_INLINE void note_run(Block& block, uint32_t first, uint32_t count, uint32_t stamp0, uint32_t per_thread_shift, uint32_t warp,
                          uint32_t warp_floor, uint32_t pc) {
    const uint32_t floor = floor_stamp(block), own_floor = warp_floor_stamp(block, warp_floor);
    const uint32_t warp_bit = 1u << warp;
    const uint32_t several = (stamp0 & ~0x7FFu) | (kWarpThreads + warp);
    uint32_t* __restrict reads = block.last_read + first;
    uint32_t* __restrict warps = block.read_warps + first;
    uint32_t* __restrict pcs = block.read_pc.data() + first;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t stamp = stamp0 + (i >> per_thread_shift);
        const uint32_t old = reads[i];
        const bool before = old < floor, before_in_warp = old < own_floor;
        const bool same = stamp_thread(old) == stamp_thread(stamp);
        const bool same_warp = (stamp_thread(old) >> 5 == warp) | (stamp_thread(old) == kWarpThreads + warp);
        // Strong bits are both 0 here or the run is not taken.
        reads[i] = before | before_in_warp | same | !same_warp ? stamp : several;
        warps[i] = before ? warp_bit : warps[i] | warp_bit;
        pcs[i] = pc;
    }
}

// True: no write among the units can be unordered, and the reads are noted.
AICF_INLINE bool read_run(Block& block, uint32_t first, uint32_t count, uint32_t stamp0, uint32_t per_thread_shift, const Warp& by,
                          uint32_t pc) {
    const uint32_t warp = by.id;
    const uint32_t floor = floor_stamp(block);
    const uint32_t warp_bit = 1u << warp;
    const uint32_t several = (stamp0 & ~0x7FFu) | (kWarpThreads + warp);
    const uint32_t* __restrict writes = block.last_write + first;
    const uint32_t* __restrict reads = block.last_read + first;
    const uint32_t* __restrict warps = block.read_warps + first;
    uint32_t bad = 0;
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t stamp = stamp0 + (i >> per_thread_shift);
        bad |= (writes[i] >= floor) & ((stamp_thread(writes[i]) != stamp_thread(stamp)) | (writes[i] >= kSpecialClock << 12));
        fresh |= ((reads[i] != several) & (reads[i] != stamp)) | ((warps[i] & warp_bit) == 0);
    }
    if (bad) return false;
    if (fresh) note_run(block, first, count, stamp0, per_thread_shift, warp, by.warp_floor, pc);
    return true;
}

// A unit read by all threads of half a warp.
AICF_INLINE void note_uniform(Block& block, uint32_t unit, uint32_t stamp, uint32_t warp, uint32_t pc) {
    const uint32_t bit = 1u << warp;
    block.read_warps[unit] = block.last_read[unit] < floor_stamp(block) ? bit : block.read_warps[unit] | bit;
    block.last_read[unit] = stamp;
    block.read_pc[unit] = pc;
}

// Brings what was logged into the shadow: before anything else looks there, or comes there.
void settle_reads(Block& block) {
    if (block.read_log.entries.empty()) return;
    const uint32_t shift = block.launch->image->race_shift;
    for (const ReadLog::Entry& e : block.read_log.entries) {
        const uint32_t clock = e.clock - block.clock_base, units = std::max(1u, static_cast<uint32_t>(e.run) >> shift);
        for (uint32_t half = 0; half < 2; ++half) {
            const uint32_t first = (half ? e.high : e.low) >> shift;
            if (e.uniform) {
                for (uint32_t u = first; u < first + units; ++u)
                    note_uniform(block, u, make_stamp(clock, false, kWarpThreads + e.warp), e.warp, e.pc);
            } else {
                const uint32_t stamp = make_stamp(clock, false, e.warp * kWarpLanes + 16 * half);
                note_run(block, first, units, stamp, std::countr_zero(units) - 4, e.warp, e.warp_floor, e.pc);
            }
        }
    }
    block.read_log.entries.clear();
}

AICF_INLINE bool write_run(Block& block, uint32_t first, uint32_t count, uint32_t stamp0, uint32_t per_thread_shift, uint32_t warp,
                           uint32_t pc) {
    const uint32_t floor = floor_stamp(block);
    uint32_t* __restrict writes = block.last_write + first;
    const uint32_t* __restrict reads = block.last_read + first;
    const uint32_t* __restrict warps = block.read_warps + first;
    const uint32_t others = ~(1u << warp);
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t thread = stamp_thread(stamp0 + (i >> per_thread_shift));
        bad |= (writes[i] >= floor) & ((stamp_thread(writes[i]) != thread) | (writes[i] >= kSpecialClock << 12));
        bad |= (reads[i] >= floor) & ((stamp_thread(reads[i]) != thread) | ((warps[i] & others) != 0));
    }
    if (!block.agent_read.empty()) {
        for (uint32_t i = 0; i < count; ++i) bad |= block.agent_read[first + i];
    }
    if (bad) return false;
    uint32_t* __restrict pcs = block.write_pc.data() + first;
    for (uint32_t i = 0; i < count; ++i) {
        writes[i] = stamp0 + (i >> per_thread_shift);
        pcs[i] = pc;
    }
    return true;
}

enum class HalfPattern { kScattered, kUniform, kContiguous };

AICF_INLINE HalfPattern half_pattern(const uint64_t* address, uint32_t size) {
    uint64_t differs = 0;
    uint64_t strided = 0;
    for (uint32_t i = 0; i < 16; ++i) {
        differs |= address[i] ^ address[0];
        strided |= address[i] ^ (address[0] + static_cast<uint64_t>(i) * size);
    }
    return differs == 0 ? HalfPattern::kUniform : strided == 0 ? HalfPattern::kContiguous : HalfPattern::kScattered;
}

}  // namespace

template <Mode M>
void Interpreter<M>::race_read(uint32_t mask, const uint64_t* address, uint32_t size, bool strong) {
    settle_reads(block_);
    const uint32_t shift = image_.race_shift;
    const uint32_t units = std::max(1u, size >> shift);
    const bool wide = size >= 1u << shift;  // else several threads share a unit: no runs
    const uint32_t per_thread = std::countr_zero(units);
    const uint32_t warp_bit = 1u << warp_.id;
    const uint32_t floor = floor_stamp(block_);
    for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t half_mask = mask >> (16 * half) & 0xFFFF;
        if (half_mask == 0) continue;
        const uint64_t* at = address + 16 * half;
        const uint32_t first_lane = 16 * half;
        if (half_mask == 0xFFFF && !strong && wide) {
            const HalfPattern pattern = half_pattern(at, size);
            const uint32_t unit = static_cast<uint32_t>(at[0] >> shift);
            if (pattern == HalfPattern::kContiguous &&
                read_run(block_, unit, 16 * units, clock_stamp(block_, false, thread_of(first_lane)), per_thread, warp_, pc_)) {
                continue;
            }
            if (pattern == HalfPattern::kUniform) {
                const uint32_t stamp = clock_stamp(block_, false, kWarpThreads + warp_.id);
                bool fine = true;
                for (uint32_t u = unit; u < unit + units; ++u) fine &= block_.last_write[u] < floor;
                if (fine) {
                    for (uint32_t u = unit; u < unit + units; ++u) note_uniform(block_, u, stamp, warp_.id, pc_);
                    continue;
                }
            }
        }
        const uint32_t several = clock_stamp(block_, false, kWarpThreads + warp_.id);
        for (uint32_t rest = half_mask; rest; rest &= rest - 1) {
            const uint32_t lane = first_lane + std::countr_zero(rest);
            const uint32_t unit = static_cast<uint32_t>(address[lane] >> shift);
            const uint32_t stamp = clock_stamp(block_, strong, thread_of(lane));
            for (uint32_t u = unit; u < unit + units; ++u) {
                if (block_.last_write[u] < floor && block_.last_read[u] < floor) {
                    block_.last_read[u] = stamp;
                    block_.read_warps[u] = warp_bit;
                    block_.read_pc[u] = pc_;
                } else if (block_.last_write[u] < floor && block_.last_read[u] == several && (block_.read_warps[u] & warp_bit)) {
                    continue;
                } else {
                    race_read_unit(u, lane, strong);
                }
            }
        }
    }
}

// Reads by all lanes of the warp, as ReadLog::Entry says; `size` by each lane. False: they need a closer look, and nothing was done.
template <Mode M>
bool Interpreter<M>::race_read_halves(uint32_t low, uint32_t high, uint32_t run, uint32_t size, bool uniform) {
    ReadLog& log = block_.read_log;
    if (!log.active || size < 1u << image_.race_shift) return false;
    if (std::max(ReadLog::latest(log.page_write, low, run), ReadLog::latest(log.page_write, high, run)) >= block_.floor) return false;
    if (log.entries.size() >= ReadLog::kMost) settle_reads(block_);
    ReadLog::mark(log.page_read, low, run, block_.clock);
    ReadLog::mark(log.page_read, high, run, block_.clock);
    log.entries.push_back(
        {low, high, block_.clock, warp_.warp_floor, pc_, static_cast<uint16_t>(run), static_cast<uint8_t>(warp_.id), uniform});
    return true;
}

// Writes by all lanes of the warp, those of each half in a row. False: they need a closer look.
template <Mode M>
bool Interpreter<M>::race_write_halves(uint32_t low, uint32_t high, uint32_t size) {
    ReadLog& log = block_.read_log;
    const uint32_t shift = image_.race_shift, run = 16 * size;
    if (!log.active || size < 1u << shift) return false;
    if (std::max(ReadLog::latest(log.page_read, low, run), ReadLog::latest(log.page_read, high, run)) >= block_.floor) settle_reads(block_);
    ReadLog::mark(log.page_write, low, run, block_.clock);
    ReadLog::mark(log.page_write, high, run, block_.clock);
    const uint32_t units = size >> shift;
    return write_run(block_, low >> shift, 16 * units, clock_stamp(block_, false, thread_of(0)), std::countr_zero(units), warp_.id, pc_) &&
           write_run(block_, high >> shift, 16 * units, clock_stamp(block_, false, thread_of(16)), std::countr_zero(units), warp_.id, pc_);
}

// `store`: the instruction whose data rows tell whether a race writes the value that is there already; null when that is not known.
// The caller writes after this; lanes of one instruction that write one unit are seen to race with each other.
template <Mode M>
void Interpreter<M>::race_write(uint32_t mask, const uint64_t* address, uint32_t size, bool strong, const Inst* store) {
    settle_reads(block_);
    if (block_.read_log.active)
        for_lanes(mask, [&](uint32_t lane) {
            ReadLog::mark(block_.read_log.page_write, static_cast<uint32_t>(address[lane]), size, block_.clock);
        });
    const uint32_t shift = image_.race_shift;
    const uint32_t units = std::max(1u, size >> shift);
    const uint32_t per_thread = std::countr_zero(units);
    const uint32_t floor = floor_stamp(block_);
    const bool agents = !block_.agent_read.empty();
    for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t half_mask = mask >> (16 * half) & 0xFFFF;
        if (half_mask == 0) continue;
        const uint32_t first_lane = 16 * half;
        const uint64_t* at = address + first_lane;
        if (half_mask == 0xFFFF && !strong && half_pattern(at, size) == HalfPattern::kContiguous &&
            write_run(block_, static_cast<uint32_t>(at[0] >> shift), 16 * units, clock_stamp(block_, false, thread_of(first_lane)),
                      per_thread, warp_.id, pc_)) {
            continue;
        }
        for (uint32_t rest = half_mask; rest; rest &= rest - 1) {
            const uint32_t lane = first_lane + std::countr_zero(rest);
            const uint32_t unit = static_cast<uint32_t>(address[lane] >> shift);
            for (uint32_t u = unit; u < unit + units; ++u) {
                if (block_.last_write[u] < floor && block_.last_read[u] < floor && !(agents && block_.agent_read[u])) {
                    block_.last_write[u] = clock_stamp(block_, strong, thread_of(lane));
                    block_.write_pc[u] = pc_;
                } else {
                    race_write_unit(u, lane, strong,
                                    store && writes_same_value(*store, lane, address, reinterpret_cast<uint64_t>(block_.shared)));
                }
            }
        }
    }
}

// Whether the lane stores what is in memory already, or what another lane of the same instruction stores to the same address. The host sees
// the device's address x at memory + x, modulo 2^64.
template <Mode M>
bool Interpreter<M>::writes_same_value(const Inst& inst, uint32_t lane, const uint64_t* address, uint64_t memory) const {
    const uint32_t operands[4] = {inst.d, inst.b, inst.c, inst.e};
    const auto value = [&](uint32_t l, uint32_t i) {
        const uint64_t bits = inst.dbytes == 8 ? row64(operands[i])[l] : row32(operands[i])[l];
        return inst.bytes == 8 ? bits : bits & ((1ull << (8 * inst.bytes)) - 1);
    };
    bool in_memory = true;
    for (uint32_t i = 0; i < inst.vec; ++i) {
        uint64_t old = 0;
        std::memcpy(&old, reinterpret_cast<const uint8_t*>(memory + address[lane]) + i * inst.bytes, inst.bytes);
        in_memory &= old == value(lane, i);
    }
    if (in_memory) return true;
    for (uint32_t other = 0; other < lane; ++other) {
        if (!(mask_ >> other & 1) || address[other] != address[lane]) continue;
        bool same = true;
        for (uint32_t i = 0; i < inst.vec; ++i) same &= value(other, i) == value(lane, i);
        if (same) return true;
    }
    return false;
}

template <Mode M>
bool Interpreter<M>::strong_access(uint32_t stamp) const {
    return is_special(stamp) ? order::records(block_).slots[stamp & 0xFFF].strong : stamp_strong(stamp);
}

// Accesses to the shared memory of another block of the cluster: each unit by itself.
template <Mode M>
void Interpreter<M>::race_peer(Block& owner, uint32_t mask, const uint64_t* offset, uint32_t size, bool is_write, bool strong) {
    for_lanes(mask, [&](uint32_t lane) { race_peer_lane(owner, lane, offset[lane], size, is_write, strong); });
}

template <Mode M>
void Interpreter<M>::race_peer_lane(Block& owner, uint32_t lane, uint64_t address, uint32_t size, bool is_write, bool strong) {
    if (owner.agent_read.empty()) owner.agent_read.assign((owner.shared_end >> image_.race_shift) + 64, 0);
    AccessRecord self;
    self.state = AccessRecord::kDone;
    self.strong = strong;
    self.block = block_.linear;
    self.thread = thread_of(lane);
    self.pc = pc_;
    self.clock = block_.clock;
    uint32_t slot = ~0u;
    const uint32_t first = static_cast<uint32_t>(address >> image_.race_shift);
    const uint32_t last = static_cast<uint32_t>((address + size - 1) >> image_.race_shift);
    const auto stamp_ordered = [&](uint32_t stamp) {
        if (stamp == 0) return true;
        if (is_special(stamp)) return record_ordered(order::records(block_).slots[stamp & 0xFFF], lane);
        const uint32_t clock = stamp_clock(stamp) + owner.clock_base;
        return clock < owner.start_clock || thread_ordered(owner.linear, stamp_thread(stamp), clock, lane);
    };
    for (uint32_t u = first; u <= last; ++u) {
        const uint32_t written = owner.last_write[u];
        if (!stamp_ordered(written) && !(strong && strong_access(written)))
            report_unordered(owner, u, lane, written, owner.write_pc[u], is_write, true, false, false);
        if (is_write) {
            uint32_t other = 0;
            const bool both_strong = strong && stamp_strong(owner.last_read[u]);
            if (!both_strong && !readers_ordered(owner, u, lane, other))
                report_unordered(owner, u, lane, make_stamp(0, false, other), owner.read_pc[u], true, false, false, false);
            if (!both_strong) forget_readers(owner, u);
            if (!stamp_ordered(owner.agent_read[u]) && !(strong && strong_access(owner.agent_read[u])))
                report_unordered(owner, u, lane, owner.agent_read[u], 0, true, false, false, false);
        }
        if (slot == ~0u) slot = order::add_record(block_, self);
        if (slot == ~0u) return;
        (is_write ? owner.last_write[u] : owner.agent_read[u]) = special_stamp(slot);
    }
}

// Makes the accesses of an asynchronous operation, which the lane has issued, known to the shadow of shared memory.
template <Mode M>
void Interpreter<M>::race_agent(Block& owner, uint32_t slot, uint32_t lane, uint64_t address, uint32_t bytes, bool is_write) {
    if (bytes == 0) return;
    settle_reads(owner);
    if (is_write) ReadLog::mark(owner.read_log.page_write, static_cast<uint32_t>(address), bytes, ReadLog::kNeverClean);
    if (owner.agent_read.empty()) owner.agent_read.assign((owner.shared_end >> image_.race_shift) + 64, 0);
    const bool async_proxy = order::records(block_).slots[slot].async_proxy;
    const uint32_t mine = special_stamp(slot);
    const uint32_t first = static_cast<uint32_t>(address >> image_.race_shift);
    const uint32_t last = static_cast<uint32_t>((address + bytes - 1) >> image_.race_shift);
    uint32_t seen_write = 0, seen_read = 0, seen_agent = 0;  // judged already
    for (uint32_t u = first; u <= last; ++u) {
        const uint32_t written = owner.last_write[u];
        if (written != seen_write && written != 0 && written != mine) {
            seen_write = written;
            const bool special = is_special(written);
            const uint32_t clock = stamp_clock(written) + owner.clock_base;
            const bool old = !special && clock < owner.start_clock;
            const bool ordered = old || (special ? record_ordered(order::records(block_).slots[written & 0xFFF], lane)
                                                 : thread_ordered(owner.linear, stamp_thread(written), clock, lane));
            if (!ordered) {
                report_unordered(owner, u, lane, written, owner.write_pc[u], is_write, true, false, true);
            } else if (!is_write && async_proxy && !special && !old &&
                       !order::knows(block_, warp_, lane, owner.linear, stamp_thread(written), clock, kProxyKey)) {
                RaceFinding race;
                race.finding = Finding::kMissingProxyFence;
                race.address = static_cast<uint64_t>(u) << image_.race_shift;
                race.by_agent = race.other_is_write = true;
                race.other_block = owner.linear;
                race.other_thread = stamp_thread(written);
                race.other_pc = owner.write_pc[u];
                report_race(worker_, block_, warp_, pc_, lane, race);
            }
        }
        if (is_write) {
            const uint32_t read = owner.last_read[u];
            if (read != seen_read && read != 0) {
                seen_read = read;
                uint32_t other = 0;
                if (!readers_ordered(owner, u, lane, other))
                    report_unordered(owner, u, lane, make_stamp(0, false, other), owner.read_pc[u], true, false, false, true);
            }
            const uint32_t agent = owner.agent_read[u];
            if (agent != seen_agent && agent != 0 && agent != mine) {
                seen_agent = agent;
                if (!record_ordered(order::records(block_).slots[agent & 0xFFF], lane))
                    report_unordered(owner, u, lane, agent, 0, true, false, false, true);
            }
            forget_readers(owner, u);
            owner.agent_read[u] = 0;
            owner.last_write[u] = mine;
            owner.write_pc[u] = pc_;
        } else {
            owner.agent_read[u] = mine;
        }
    }
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

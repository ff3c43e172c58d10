// The race check of shared memory: happens-before on the block's clock.
//
// The clock counts synchronisations of the block. An access is stamped with the clock, its thread, and whether it is strong (atomic,
// volatile, ordered). An earlier access is ordered before a thread's next one when its stamp lies before the floor that the two have in
// common: the block's (bar.sync of all threads), the warp's (bar.warp.sync), that of a pair of warps (named barriers; fences with strong
// accesses to one address), or when both are the same thread's, or both are strong. For each unit of memory the last write, the last read
// and the warps that read since are kept.
#include <algorithm>

#include "race.hpp"
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
uint32_t Interpreter<M>::next_clock() {
    if (++block_.clock < kMaxStampClock) return block_.clock;
    // Out of clock: forget what was seen. Races across this point are missed; it takes a million synchronisations in one block to come
    // here.
    const uint32_t units = (block_.shared_end >> image_.race_shift) + 1;
    std::memset(block_.last_write, 0, 4ull * units);
    std::memset(block_.last_read, 0, 4ull * units);
    block_.clock = 2;
    block_.floor = 1;
    for (Warp& warp : block_.warps) {
        warp.warp_floor = warp.fence_clock = 0;
        std::fill(std::begin(warp.order), std::end(warp.order), 0u);
        std::fill(std::begin(warp.lane_order), std::end(warp.lane_order), 0u);
    }
    block_.sync_points.clear();
    return block_.clock;
}

template <Mode M>
bool Interpreter<M>::ordered_before(uint32_t stamp, uint32_t lane) const {
    const uint32_t clock = stamp_clock(stamp);
    if (clock < block_.floor) return true;
    const uint32_t other = stamp_thread(stamp);
    if (other == thread_of(lane)) return true;
    const uint32_t other_warp = other / kWarpLanes;
    if (other_warp != warp_.id) return clock < warp_.order[other_warp];
    if (clock < warp_.warp_floor) return true;
    return warp_.lane_order_used && clock < warp_.lane_order[lane] && (warp_.lane_sync_mask[lane] >> (other % kWarpLanes) & 1);
}

// Whether all reads of the unit are ordered before the lane's next access; else a thread of the others (~0u: not known which one).
template <Mode M>
bool Interpreter<M>::readers_ordered(uint32_t unit, uint32_t lane, uint32_t& other) const {
    const uint32_t stamp = block_.last_read[unit];
    const uint32_t clock = stamp_clock(stamp);
    if (clock < block_.floor) return true;
    if (stamp_thread(stamp) != kManyThreads) {
        other = stamp_thread(stamp);
        return ordered_before(stamp, lane);
    }
    for (uint32_t warps = block_.read_warps[unit]; warps; warps &= warps - 1) {
        const uint32_t w = std::countr_zero(warps);
        const uint32_t before = w == warp_.id ? warp_.warp_floor : warp_.order[w];
        if (clock < before) continue;
        if (w == warp_.id && warp_.lane_order_used && clock < warp_.lane_order[lane]) continue;
        other = ~0u;
        return false;
    }
    return true;
}

template <Mode M>
void Interpreter<M>::race_read_unit(uint32_t unit, uint32_t lane, bool strong) {
    const uint32_t written = block_.last_write[unit];
    if (!ordered_before(written, lane) && !(strong && stamp_strong(written))) {
        report_race(worker_, block_, warp_, pc_, lane,
                    {static_cast<uint64_t>(unit) << image_.race_shift, false, true, false, stamp_thread(written), block_.write_pc[unit]});
    }
    const uint32_t stamp = make_stamp(block_.clock, strong, thread_of(lane));
    const uint32_t old = block_.last_read[unit];
    const uint32_t bit = 1u << warp_.id;
    block_.read_pc[unit] = pc_;
    if (stamp_clock(old) < block_.floor || ordered_before_all(old, lane)) {
        block_.last_read[unit] = stamp;
        block_.read_warps[unit] = bit;
        return;
    }
    const bool same = stamp_thread(old) == stamp_thread(stamp);
    block_.last_read[unit] = make_stamp(block_.clock, strong && stamp_strong(old), same ? stamp_thread(stamp) : kManyThreads);
    block_.read_warps[unit] |= bit;
}

template <Mode M>
void Interpreter<M>::race_write_unit(uint32_t unit, uint32_t lane, bool strong, bool same_value) {
    const uint32_t written = block_.last_write[unit];
    const uint64_t address = static_cast<uint64_t>(unit) << image_.race_shift;
    if (!ordered_before(written, lane) && !(strong && stamp_strong(written))) {
        report_race(worker_, block_, warp_, pc_, lane, {address, true, true, same_value, stamp_thread(written), block_.write_pc[unit]});
    }
    uint32_t other = 0;
    if (!(strong && stamp_strong(block_.last_read[unit])) && !readers_ordered(unit, lane, other)) {
        report_race(worker_, block_, warp_, pc_, lane, {address, true, false, false, other, block_.read_pc[unit]});
    }
    block_.last_write[unit] = make_stamp(block_.clock, strong, thread_of(lane));
    block_.write_pc[unit] = pc_;
}

namespace {

// Units [first, first + count) read by threads thread0, thread0 + 1, ... of one warp, `1 << per_thread_shift` units each.
// True: no write among them can be unordered, and the reads are noted.
AICF_INLINE bool read_run(Block& block, uint32_t first, uint32_t count, uint32_t stamp0, uint32_t per_thread_shift, uint32_t warp_bit,
                          uint32_t pc) {
    const uint32_t floor = make_stamp(block.floor, false, 0);
    const uint32_t* __restrict writes = block.last_write + first;
    uint32_t* __restrict reads = block.last_read + first;
    uint32_t* __restrict warps = block.read_warps + first;
    uint32_t bad = 0;
    uint32_t fresh = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t stamp = stamp0 + (i >> per_thread_shift);
        bad |= (writes[i] >= floor) & (stamp_thread(writes[i]) != stamp_thread(stamp));
        fresh |= (reads[i] != (stamp | kManyThreads)) | ((warps[i] & warp_bit) == 0);
    }
    if (bad) return false;
    if (!fresh) return true;
    uint32_t* __restrict pcs = block.read_pc.data() + first;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t stamp = stamp0 + (i >> per_thread_shift);
        const uint32_t old = reads[i];
        const bool before = old < floor;
        const bool same = stamp_thread(old) == stamp_thread(stamp);
        // Strong bits are both 0 here or the run is not taken.
        reads[i] = before | same ? stamp : stamp | kManyThreads;
        warps[i] = before ? warp_bit : warps[i] | warp_bit;
        pcs[i] = pc;
    }
    return true;
}

AICF_INLINE bool write_run(Block& block, uint32_t first, uint32_t count, uint32_t stamp0, uint32_t per_thread_shift, uint32_t pc) {
    const uint32_t floor = make_stamp(block.floor, false, 0);
    uint32_t* __restrict writes = block.last_write + first;
    const uint32_t* __restrict reads = block.last_read + first;
    uint32_t bad = 0;
    for (uint32_t i = 0; i < count; ++i) {
        const uint32_t thread = stamp_thread(stamp0 + (i >> per_thread_shift));
        bad |= (writes[i] >= floor) & (stamp_thread(writes[i]) != thread);
        bad |= (reads[i] >= floor) & (stamp_thread(reads[i]) != thread);
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

// A read that others do earlier is covered by this one when it is ordered before it.
template <Mode M>
bool Interpreter<M>::ordered_before_all(uint32_t stamp, uint32_t lane) const {
    if (stamp_thread(stamp) == kManyThreads) return false;
    return ordered_before(stamp, lane);
}

template <Mode M>
void Interpreter<M>::race_read(uint32_t mask, const uint64_t* address, uint32_t size, bool strong) {
    const uint32_t shift = image_.race_shift;
    const uint32_t units = std::max(1u, size >> shift);
    const uint32_t per_thread = std::countr_zero(units);
    const uint32_t warp_bit = 1u << warp_.id;
    for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t half_mask = mask >> (16 * half) & 0xFFFF;
        if (half_mask == 0) continue;
        const uint64_t* at = address + 16 * half;
        const uint32_t first_lane = 16 * half;
        if (half_mask == 0xFFFF && !strong) {
            const HalfPattern pattern = half_pattern(at, size);
            const uint32_t unit = static_cast<uint32_t>(at[0] >> shift);
            if (pattern == HalfPattern::kContiguous &&
                read_run(block_, unit, 16 * units, make_stamp(block_.clock, false, thread_of(first_lane)), per_thread, warp_bit, pc_)) {
                continue;
            }
            if (pattern == HalfPattern::kUniform) {
                const uint32_t stamp = make_stamp(block_.clock, false, kManyThreads);
                const uint32_t floor = make_stamp(block_.floor, false, 0);
                bool fine = true;
                for (uint32_t u = unit; u < unit + units; ++u) fine &= block_.last_write[u] < floor;
                if (fine) {
                    for (uint32_t u = unit; u < unit + units; ++u) {
                        const bool before = block_.last_read[u] < floor;
                        block_.last_read[u] = stamp;
                        block_.read_warps[u] = before ? warp_bit : block_.read_warps[u] | warp_bit;
                        block_.read_pc[u] = pc_;
                    }
                    continue;
                }
            }
        }
        for (uint32_t rest = half_mask; rest; rest &= rest - 1) {
            const uint32_t lane = first_lane + std::countr_zero(rest);
            const uint32_t unit = static_cast<uint32_t>(address[lane] >> shift);
            const uint32_t floor = make_stamp(block_.floor, false, 0);
            const uint32_t stamp = make_stamp(block_.clock, strong, thread_of(lane));
            for (uint32_t u = unit; u < unit + units; ++u) {
                if (block_.last_write[u] < floor && block_.last_read[u] < floor) {
                    block_.last_read[u] = stamp;
                    block_.read_warps[u] = warp_bit;
                    block_.read_pc[u] = pc_;
                } else if (block_.last_write[u] < floor && block_.last_read[u] == (stamp | kManyThreads) &&
                           (block_.read_warps[u] & warp_bit)) {
                    continue;
                } else {
                    race_read_unit(u, lane, strong);
                }
            }
        }
    }
}

// `store`: the instruction whose data rows tell whether a race writes the value that is there already; null when that is not known.
// The caller writes after this; lanes of one instruction that write one unit are seen to race with each other.
template <Mode M>
void Interpreter<M>::race_write(uint32_t mask, const uint64_t* address, uint32_t size, bool strong, const Inst* store) {
    const uint32_t shift = image_.race_shift;
    const uint32_t units = std::max(1u, size >> shift);
    const uint32_t per_thread = std::countr_zero(units);
    for (uint32_t half = 0; half < 2; ++half) {
        const uint32_t half_mask = mask >> (16 * half) & 0xFFFF;
        if (half_mask == 0) continue;
        const uint32_t first_lane = 16 * half;
        const uint64_t* at = address + first_lane;
        if (half_mask == 0xFFFF && !strong && half_pattern(at, size) == HalfPattern::kContiguous &&
            write_run(block_, static_cast<uint32_t>(at[0] >> shift), 16 * units, make_stamp(block_.clock, false, thread_of(first_lane)),
                      per_thread, pc_)) {
            continue;
        }
        for (uint32_t rest = half_mask; rest; rest &= rest - 1) {
            const uint32_t lane = first_lane + std::countr_zero(rest);
            const uint32_t unit = static_cast<uint32_t>(address[lane] >> shift);
            const uint32_t floor = make_stamp(block_.floor, false, 0);
            for (uint32_t u = unit; u < unit + units; ++u) {
                if (block_.last_write[u] < floor && block_.last_read[u] < floor) {
                    block_.last_write[u] = make_stamp(block_.clock, strong, thread_of(lane));
                    block_.write_pc[u] = pc_;
                } else {
                    race_write_unit(u, lane, strong, store && writes_same_value(*store, lane, address));
                }
            }
        }
    }
}

// Whether the lane stores what is in memory already, or what another lane of the same instruction stores to the same address.
template <Mode M>
bool Interpreter<M>::writes_same_value(const Inst& inst, uint32_t lane, const uint64_t* address) const {
    const uint32_t operands[4] = {inst.d, inst.b, inst.c, inst.e};
    const auto value = [&](uint32_t l, uint32_t i) {
        const uint64_t bits = inst.dbytes == 8 ? row64(operands[i])[l] : row32(operands[i])[l];
        return inst.bytes == 8 ? bits : bits & ((1ull << (8 * inst.bytes)) - 1);
    };
    bool in_memory = true;
    for (uint32_t i = 0; i < inst.vec; ++i) {
        uint64_t old = 0;
        std::memcpy(&old, block_.shared + address[lane] + i * inst.bytes, inst.bytes);
        in_memory &= old == value(lane, i);
    }
    if (in_memory) return true;
    for (uint32_t other = 0; other < lane; ++other) {
        if (address[other] != address[lane]) continue;
        bool same = true;
        for (uint32_t i = 0; i < inst.vec; ++i) same &= value(other, i) == value(lane, i);
        if (same) return true;
    }
    return false;
}

// Strong accesses to one address pass on what was ordered before a fence (or the access itself, where it releases).
template <Mode M>
void Interpreter<M>::release_acquire(uint32_t mask, const uint64_t* address, bool release, bool acquire, uint64_t window) {
    if (warp_.fence_clock == 0 && block_.sync_points.empty()) return;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t key = address[lane] | window;
        if (acquire) {
            if (auto it = block_.sync_points.find(key); it != block_.sync_points.end()) {
                for (uint32_t w = 0; w < kMaxWarps; ++w) warp_.order[w] = std::max(warp_.order[w], it->second.order[w]);
                warp_.warp_floor = std::max(warp_.warp_floor, it->second.order[warp_.id]);
            }
        }
        if (release && warp_.fence_clock != 0) {
            SyncPoint& point = block_.sync_points[key];
            for (uint32_t w = 0; w < kMaxWarps; ++w) point.order[w] = std::max(point.order[w], warp_.order[w]);
            point.order[warp_.id] = std::max(point.order[warp_.id], warp_.fence_clock);
        }
    });
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

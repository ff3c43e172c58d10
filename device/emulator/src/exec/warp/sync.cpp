// Barriers and warp-wide instructions.
#include <algorithm>
#include <string>

#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

std::string hex(uint32_t value) {
    char text[16];
    std::snprintf(text, sizeof text, "0x%08x", value);
    return text;
}

bool is_uniform(const uint32_t* values, uint32_t mask) {
    const uint32_t first = values[std::countr_zero(mask)];
    bool same = true;
    for_lanes(mask, [&](uint32_t lane) { same &= values[lane] == first; });
    return same;
}

// Removes from `rest` the lanes whose named mask is that of its lowest lane, and returns them: those take part together. `rest` is not
// empty.
uint32_t take_group(uint32_t& rest, const uint32_t* named) {
    const uint32_t first = std::countr_zero(rest);
    uint32_t group = 0;
    for_lanes(rest, [&](uint32_t lane) { group |= named[lane] == named[first] ? 1u << lane : 0; });
    rest &= ~group;
    return group;
}

}  // namespace

// Brings the threads together that a .sync instruction names. True: execute now for `mask` (perhaps fewer threads than came; the rest
// waits). False: nobody executes now, and the current group has changed.
template <Mode M>
bool Interpreter<M>::together(const Inst& inst, uint32_t& mask) {
    const uint32_t* named = row32(inst.c);
    const bool forced = warp_.forced_pc == pc_;
    if (checking(kSynccheck) && inst.op != Op::kBarWarpSync) {
        // Allowed, as long as nobody needs the threads that have left; often a sign that a whole warp was expected.
        const uint32_t lane = std::countr_zero(mask);
        const uint32_t exited = named[lane] & warp_.initial & ~warp_.live;
        if (exited) {
            report_event(worker_, block_, warp_, pc_, lane, Finding::kExitedLanes,
                         "the mask " + hex(named[lane]) + " names threads " + hex(exited) + " that have exited");
        }
    }
    if (mask == warp_.live && is_uniform(named, mask) && (named[std::countr_zero(mask)] & warp_.live) == mask && !forced) return true;
    for (size_t i = 0; i < warp_.entries.size();) {
        Entry& entry = warp_.entries[i];
        const bool waits_here =
            entry.pc == pc_ && entry.frame == frame_ && (entry.state == EntryState::kGather || entry.state == EntryState::kYielded);
        if (!waits_here) {
            ++i;
            continue;
        }
        mask_ |= entry.mask;
        warp_.entries.erase(warp_.entries.begin() + i);
        drop(frame_);
    }
    mask = mask_ & predicate(inst.guard);
    uint32_t ready = 0;
    uint32_t rest = mask;
    while (rest) {
        const uint32_t lane = std::countr_zero(rest);
        const uint32_t group = take_group(rest, named);
        const uint32_t missing = named[lane] & warp_.live & ~group;
        if (missing && forced && checking(kSynccheck)) {
            report_event(
                worker_, block_, warp_, pc_, lane, Finding::kMissingLanes,
                "the mask " + hex(named[lane]) + " names threads " + hex(missing) + " that do not execute this instruction with it");
        }
        if (!missing || forced) ready |= group;
        if (checking(kSynccheck)) {
            const uint32_t outside = group & ~named[lane];
            if (outside) {
                report_event(worker_, block_, warp_, pc_, std::countr_zero(outside), Finding::kExcludesCaller,
                             "the mask " + hex(named[lane]) + " does not name the thread that executes the instruction");
            }
        }
    }
    if (forced) warp_.forced_pc = ~0u;
    const uint32_t waiting = mask & ~ready;
    if (waiting) {
        push_entry(pc_, waiting, EntryState::kGather);
        mask_ &= ~waiting;
        if (mask_ == 0) {
            drop(frame_);
            pick();
            return false;
        }
        if (ready == 0) {
            ++pc_;
            return false;
        }
    }
    mask = ready;
    return true;
}

// For the race check: see order::exchange. `named`: the masks of the instruction by lane.
template <Mode M>
void Interpreter<M>::exchange_known(const uint32_t* named, uint32_t mask) {
    if (!warp_.lane_order) return;
    while (mask) order::exchange(block_, warp_, take_group(mask, named));
}

template <Mode M>
void Interpreter<M>::bar_warp_sync(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    if (checking(kRacecheck)) {
        const uint32_t* named = row32(inst.c);
        uint32_t rest = mask;
        while (rest) {
            const uint32_t group = take_group(rest, named);
            order::warp_barrier(block_, warp_, group);
        }
    }
    if constexpr (kCount) count().barriers++;
    ++pc_;
}

// Brings all threads of the warp together at an .aligned barrier. False: nobody executes it now, and the current group has changed.
template <Mode M>
bool Interpreter<M>::come_together(uint32_t& mask, const Inst& inst) {
    const bool forced = warp_.forced_pc == pc_;
    if ((inst.flags & kFlagAligned) && mask != warp_.live) {
        for (size_t i = 0; i < warp_.entries.size();) {
            Entry& entry = warp_.entries[i];
            if (entry.pc == pc_ && entry.frame == frame_ && (entry.state == EntryState::kGather || entry.state == EntryState::kYielded)) {
                mask_ |= entry.mask;
                warp_.entries.erase(warp_.entries.begin() + i);
                drop(frame_);
            } else {
                ++i;
            }
        }
        mask = mask_ & predicate(inst.guard);
        if (mask != warp_.live && !forced) {
            push_entry(pc_, mask, EntryState::kGather);
            mask_ &= ~mask;
            if (mask_) {
                ++pc_;
                update_merge();
            } else {
                drop(frame_);
                pick();
            }
            return false;
        }
        if (mask != warp_.live && checking(kSynccheck)) {
            report_event(worker_, block_, warp_, pc_, std::countr_zero(mask), Finding::kDivergentBarrier,
                         "threads " + hex(mask) + " of the warp are at the barrier, threads " + hex(warp_.live & ~mask) + " are elsewhere");
        }
    }
    if (forced) warp_.forced_pc = ~0u;
    return true;
}

template <Mode M>
void Interpreter<M>::barrier(const Inst& inst, uint32_t mask) {
    if (!come_together(mask, inst)) return;
    const uint32_t lane = std::countr_zero(mask);
    const uint32_t id = row32(inst.a)[lane];
    const uint32_t expected = inst.flags & kFlagHasCount ? row32(inst.b)[lane] : 0;
    if (id >= 16 || !is_uniform(row32(inst.a), mask)) {
        report_event(worker_, block_, warp_, pc_, lane, Finding::kInvalidBarrier,
                     "barrier " + std::to_string(id) + " is not one of 0 to 15, or differs between threads");
        return stop_launch(kErrorIllegalInstruction);
    }
    if ((inst.flags & kFlagHasCount) && (expected == 0 || expected % kWarpLanes != 0)) {
        report_event(worker_, block_, warp_, pc_, lane, Finding::kBarrierCount,
                     "a thread count of " + std::to_string(expected) + " is not a multiple of 32");
        return stop_launch(kErrorIllegalInstruction);
    }
    if constexpr (kCount) count().barriers++;
    arrive(id, inst, mask, expected);
}

template <Mode M>
void Interpreter<M>::arrive(uint32_t id, const Inst& inst, uint32_t mask, uint32_t expected) {
    Barrier& barrier = block_.barriers[id];
    if (!barrier.active) {
        barrier.active = true;
        barrier.expected = expected;
    } else if (barrier.expected != expected && checking(kSynccheck)) {
        report_event(worker_, block_, warp_, pc_, std::countr_zero(mask), Finding::kBarrierCount,
                     "barrier " + std::to_string(id) + " is awaited with " + std::to_string(expected) + " threads here and " +
                         std::to_string(barrier.expected) + " elsewhere");
    }
    // __syncthreads(): PTX counts arrivals only, CUDA asks for the same one. A part of a warp is a divergent barrier already.
    if (checking(kSynccheck) && expected == 0 && mask == warp_.live) {
        if (barrier.first_pc == ~0u)
            barrier.first_pc = pc_;
        else if (barrier.first_pc != pc_)
            check_barrier_place(barrier.first_pc, mask);
    }
    // A counted barrier counts whole warps: threads that have exited stand for themselves.
    const bool whole_warp = expected != 0 && mask == warp_.live;
    barrier.arrived += whole_warp ? kWarpLanes : static_cast<uint32_t>(std::popcount(mask));
    if (expected != 0 && checking(kRacecheck)) {
        order::acquire_pending(block_, warp_, mask);
        order::publish(block_, warp_, mask, order::tick(block_), nullptr, barrier.handed);
    }
    const BarrierMode mode = static_cast<BarrierMode>(inst.mode);
    if (mode == BarrierMode::kArrive) {
        barrier.arrive_only = true;
        ++warp_.changes;
        ++pc_;
        if (barrier.arrived >= (barrier.expected ? barrier.expected : block_.live_threads)) {
            complete_barrier(id);
            update_merge();
        }
        return;
    }
    if (mode != BarrierMode::kSync) {
        const uint32_t votes = predicate(inst.pa) & mask;
        barrier.count += std::popcount(votes);
        barrier.all &= votes == mask;
        barrier.any |= votes != 0;
    }
    if constexpr (kCount) count().barrier_waits += barrier.arrived < (barrier.expected ? barrier.expected : block_.live_threads);
    push_entry(pc_, mask, EntryState::kBarrier, static_cast<uint8_t>(id));
    mask_ &= ~mask;
    if (mask_) {
        ++pc_;
    } else {
        drop(frame_);
        running_ = false;
    }
    if (barrier.arrived >= (barrier.expected ? barrier.expected : block_.live_threads)) complete_barrier(id);
    if (running_)
        update_merge();
    else
        pick();
}

// Copies of one barrier of the source, which compilers make, are no two barriers; without lines nobody can tell.
template <Mode M>
void Interpreter<M>::check_barrier_place(uint32_t other_pc, uint32_t mask) {
    const ptx::Location& here = image_.info[pc_].where;
    const ptx::Location& there = image_.info[other_pc].where;
    if (here.line == 0 || there.line == 0 || (here.line == there.line && here.file == there.file)) return;
    report_barrier_places(worker_, block_, warp_, pc_, static_cast<uint32_t>(std::countr_zero(mask)), other_pc);
}

template <Mode M>
void Interpreter<M>::complete_barrier(uint32_t id) {
    Barrier& barrier = block_.barriers[id];
    const bool whole_block = barrier.expected == 0 || (barrier.arrived >= block_.num_warps * kWarpLanes && !barrier.arrive_only);
    if (checking(kRacecheck) && whole_block) order::block_barrier(block_);
    const Barrier done = std::move(barrier);
    barrier = Barrier{};
    for (Warp& warp : block_.warps) {
        for (Entry& entry : warp.entries) {
            if (entry.state != EntryState::kBarrier || entry.barrier != id) continue;
            warp.depends |= block_.has_dependent;
            if (!whole_block) order::acquire(block_, warp, entry.mask, done.handed);
            const Inst& inst = image_.code[entry.pc];
            const Frame& frame = warp.frames[entry.frame];
            switch (static_cast<BarrierMode>(inst.mode)) {
                case BarrierMode::kRedPopc: {
                    uint32_t* to = reinterpret_cast<uint32_t*>(warp.rows32 + frame.offset32 + (inst.d & 0x3FFFFFFFu));
                    for_lanes(entry.mask, [&](uint32_t lane) { to[lane] = done.count; });
                    break;
                }
                case BarrierMode::kRedAnd:
                case BarrierMode::kRedOr: {
                    const bool value = static_cast<BarrierMode>(inst.mode) == BarrierMode::kRedAnd ? done.all : done.any;
                    uint32_t& to = warp.predicates[frame.offset_predicates + (inst.pd >> 1)];
                    to = value ? to | entry.mask : to & ~entry.mask;
                    break;
                }
                default: break;
            }
            entry.pc++;
            entry.state = EntryState::kRunnable;
        }
    }
}

template <Mode M>
void Interpreter<M>::check_barriers_after_exit() {
    if (block_.live_threads == 0) return;
    for (uint32_t id = 0; id < 16; ++id) {
        const Barrier& barrier = block_.barriers[id];
        if (barrier.active && barrier.expected == 0 && barrier.arrived >= block_.live_threads) complete_barrier(id);
    }
}

template <Mode M>
void Interpreter<M>::shuffle(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    if (checking(kRacecheck)) exchange_known(row32(inst.c), mask);
    if constexpr (kCount) count().shuffles++;
    alignas(64) uint32_t values[kWarpLanes];
    std::memcpy(values, row(inst.a), sizeof values);
    const uint32_t* shifts = row32(inst.b);
    const uint32_t* clamps = row32(inst.e);
    uint32_t inside_mask = 0;
    uint32_t inactive = 0;
    uint8_t sources[kWarpLanes];
    alignas(64) uint32_t result[kWarpLanes];
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        const int32_t segment = static_cast<int32_t>(clamps[lane] >> 8 & 31);
        const int32_t clamp = static_cast<int32_t>(clamps[lane] & 31);
        const int32_t shift = static_cast<int32_t>(shifts[lane] & 31);
        const int32_t me = static_cast<int32_t>(lane);
        const int32_t most = (me & segment) | (clamp & ~segment);
        const int32_t least = me & segment;
        int32_t from = 0;
        bool inside = false;
        switch (static_cast<ShflMode>(inst.mode)) {
            case ShflMode::kUp: from = me - shift, inside = from >= most; break;
            case ShflMode::kDown: from = me + shift, inside = from <= most; break;
            case ShflMode::kBfly: from = me ^ shift, inside = from <= most; break;
            case ShflMode::kIdx: from = least | (shift & ~segment & 31), inside = from <= most; break;
        }
        if (!inside) from = me;
        inside_mask |= inside ? 1u << lane : 0;
        inactive |= (mask >> from & 1) ? 0 : 1u << lane;
        sources[lane] = static_cast<uint8_t>(from);
        result[lane] = values[from];
    }
    if (kChecks && !warp_.undefined.empty()) shuffle_undefined(inst, mask, sources);
    if ((inactive & mask) && checking(kSynccheck)) {
        report_event(worker_, block_, warp_, pc_, std::countr_zero(inactive & mask), Finding::kShuffleInactive,
                     "it reads from a thread that does not take part (threads " + hex(mask) + " do), so the value is undefined");
    }
    for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) { to[lane] = result[lane]; });
    uint32_t& to = predicate_slot(inst.pd);
    to = (to & ~mask) | (inside_mask & mask);
    ++pc_;
}

template <Mode M>
void Interpreter<M>::vote(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    if (checking(kRacecheck)) exchange_known(row32(inst.c), mask);
    if constexpr (kCount) count().votes++;
    const uint32_t* named = row32(inst.c);
    const uint32_t votes = predicate(inst.pa);
    uint32_t rest = mask;
    uint32_t yes = 0;
    while (rest) {
        const uint32_t group = take_group(rest, named);
        const uint32_t ballot = votes & group;
        switch (static_cast<VoteMode>(inst.mode)) {
            case VoteMode::kAll: yes |= ballot == group ? group : 0; break;
            case VoteMode::kAny: yes |= ballot ? group : 0; break;
            case VoteMode::kUni: yes |= ballot == group || ballot == 0 ? group : 0; break;
            case VoteMode::kBallot: for_lanes(group, [&, to = row32(inst.d)](uint32_t l) { to[l] = ballot; }); break;
        }
    }
    if (static_cast<VoteMode>(inst.mode) != VoteMode::kBallot) {
        uint32_t& to = predicate_slot(inst.pd);
        to = (to & ~mask) | yes;
    }
    ++pc_;
}

template <Mode M>
void Interpreter<M>::match(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    const uint32_t* named = row32(inst.c);
    if (checking(kRacecheck)) {
        // One of the lanes that match then acts for all of them: cuda::pipeline counts its threads down so.
        for (uint32_t rest = mask; rest;) order::warp_barrier(block_, warp_, take_group(rest, named));
    }
    if constexpr (kCount) count().votes++;
    uint64_t values[kWarpLanes];
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) values[lane] = inst.bytes == 8 ? row64(inst.a)[lane] : row32(inst.a)[lane];
    uint32_t result[kWarpLanes] = {};
    uint32_t all = 0;
    for_lanes(mask, [&](uint32_t lane) {
        uint32_t group = 0;
        uint32_t equal = 0;
        for_lanes(mask, [&](uint32_t l) {
            if (named[l] != named[lane]) return;
            group |= 1u << l;
            equal |= values[l] == values[lane] ? 1u << l : 0;
        });
        const bool match_all = equal == group;
        all |= match_all ? 1u << lane : 0;
        result[lane] = inst.mode == 0 ? equal : match_all ? group : 0;
    });
    for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) { to[lane] = result[lane]; });
    uint32_t& to = predicate_slot(inst.pd);
    to = (to & ~mask) | all;
    ++pc_;
}

template <Mode M>
void Interpreter<M>::reduce(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    if (checking(kRacecheck)) exchange_known(row32(inst.c), mask);
    if constexpr (kCount) count().shuffles++;
    const uint32_t* named = row32(inst.c);
    const uint32_t* values = row32(inst.a);
    uint32_t result[kWarpLanes] = {};
    uint32_t rest = mask;
    while (rest) {
        const uint32_t first = std::countr_zero(rest);
        const uint32_t group = take_group(rest, named);
        uint32_t total = values[first];
        for_lanes(group & (group - 1), [&](uint32_t l) {
            const uint32_t value = values[l];
            switch (static_cast<ReduxOp>(inst.mode)) {
                case ReduxOp::kAddU: total += value; break;
                case ReduxOp::kMinS:
                    total = static_cast<uint32_t>(std::min(static_cast<int32_t>(total), static_cast<int32_t>(value)));
                    break;
                case ReduxOp::kMinU: total = std::min(total, value); break;
                case ReduxOp::kMaxS:
                    total = static_cast<uint32_t>(std::max(static_cast<int32_t>(total), static_cast<int32_t>(value)));
                    break;
                case ReduxOp::kMaxU: total = std::max(total, value); break;
                case ReduxOp::kAnd: total &= value; break;
                case ReduxOp::kOr: total |= value; break;
                case ReduxOp::kXor: total ^= value; break;
                default: break;
            }
        });
        for_lanes(group, [&](uint32_t l) { result[l] = total; });
    }
    for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) { to[lane] = result[lane]; });
    ++pc_;
}

template <Mode M>
void Interpreter<M>::elect(const Inst& inst, uint32_t mask) {
    if (!together(inst, mask)) return;
    if constexpr (kCount) count().votes++;
    const uint32_t* named = row32(inst.c);
    uint32_t elected = 0;
    for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) {
        const uint32_t group = named[lane] & mask;
        const uint32_t leader = group ? std::countr_zero(group) : lane;
        elected |= leader == lane ? 1u << lane : 0;
        to[lane] = leader;
    });
    uint32_t& to = predicate_slot(inst.pd);
    to = (to & ~mask) | elected;
    ++pc_;
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

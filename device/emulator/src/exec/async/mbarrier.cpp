// mbarrier objects. PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
//
// Copies that count on an mbarrier are made when a thread polls it and nothing but their bytes is missing: the latest moment at which
// a correct program can tell. Until then their destinations keep the old bytes and are marked as in flight.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "../warp/warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

constexpr uint32_t kWordBytes = 8;
constexpr uint8_t kStateMbarrier = 1 | 4;
constexpr uint32_t kTokenMagic = 0xB5;

std::string hex(uint64_t value) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

// The opaque state that an arrival returns: the phase it belongs to, the pending count before it, and which mbarrier it is of.
uint64_t make_token(const Mbarrier& barrier, uint32_t address) {
    return static_cast<uint64_t>(kTokenMagic) << 56 | static_cast<uint64_t>(address / kWordBytes & 0xFFFF) << 40 |
           static_cast<uint64_t>(barrier.phase & 0xFFFFF) << 20 | barrier.pending;
}

}  // namespace

template <Mode M>
void Interpreter<M>::shared_addresses(const Inst& inst, uint64_t* out) const {
    const uint64_t offset = static_cast<uint64_t>(inst.offset);
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        if (!(inst.flags & kFlagHasBase))
            out[lane] = offset;
        else if (inst.flags & kFlagBase64)
            out[lane] = row64(inst.a)[lane] + offset;
        else
            out[lane] = static_cast<uint32_t>(row32(inst.a)[lane] + static_cast<uint32_t>(offset));
    }
}

// An access to the words of mbarriers, for the race check.
template <Mode M>
void Interpreter<M>::race_word(uint32_t lanes, const uint64_t* address, bool is_write, bool strong) {
    alignas(64) uint64_t own[kWarpLanes] = {};
    uint32_t here = 0;
    for_lanes(lanes, [&](uint32_t lane) {
        uint32_t offset = 0;
        if (shared_of(static_cast<uint32_t>(address[lane]), offset) != &block_) return;  // a peer's
        if (offset % kWordBytes != 0 || offset < kSharedStart || offset + kWordBytes > block_.shared_end) return;
        own[lane] = offset;
        here |= 1u << lane;
    });
    if (here == 0) return;
    if (is_write)
        race_write(here, own, kWordBytes, strong, nullptr);
    else
        race_read(here, own, kWordBytes, strong);
}

template <Mode M>
void Interpreter<M>::misuse(uint32_t lane, Finding finding, const std::string& detail) {
    report_event(worker_, block_, warp_, pc_, lane, finding, detail);
    if (finding_info(finding).severity != Severity::kError) return;
    const bool is_illegal = finding == Finding::kTensorMapInvalid || finding == Finding::kNoCluster;
    const int status = is_illegal ? kErrorIllegalInstruction : kErrorLaunchFailure;
    if (!checking(kMemcheck)) return stop_launch(status);
    std::lock_guard lock(block_.launch->mutex);  // go on, to collect all findings; the launch fails at its end
    if (block_.launch->status == kSuccess) block_.launch->status = status;
}

template <Mode M>
void Interpreter<M>::mbarrier_write_back(Block& owner, uint32_t address, const Mbarrier& barrier) {
    const uint64_t word = barrier.pack();
    if (std::memcmp(owner.shared + address, &word, kWordBytes) != 0) ++worker_.progress;
    std::memcpy(owner.shared + address, &word, kWordBytes);
    if (owner.shared_state) std::memset(owner.shared_state + address, kStateMbarrier, kWordBytes);
}

// The mbarrier at an address; its `owner` is null after a report. With `needs_valid` there must be one, as it was left.
template <Mode M>
typename Interpreter<M>::MbarrierRef Interpreter<M>::mbarrier_at(uint32_t lane, uint64_t address, bool generic, bool needs_valid) {
    MbarrierRef ref;
    const auto bad = [&](Finding finding, MemSpace space, int status) {
        report_access(worker_, block_, warp_, pc_, lane, {finding, space, true, true, address, kWordBytes});
        if (!checking(kMemcheck)) return stop_launch(status);
        std::lock_guard lock(block_.launch->mutex);
        if (block_.launch->status == kSuccess) block_.launch->status = status;
    };
    if (generic && (address & kWindowMask) != kSharedWindow) {
        bad(Finding::kInvalidSpace, MemSpace::kGeneric, kErrorInvalidAddressSpace);
        return ref;
    }
    address &= 0xFFFFFFFFull;
    Block* owner = shared_of(static_cast<uint32_t>(address), ref.address);
    if (ref.address % kWordBytes != 0) {
        bad(Finding::kMisaligned, MemSpace::kShared, kErrorMisalignedAddress);
        return ref;
    }
    if (!owner || !owner->has_shared(ref.address, kWordBytes)) {
        bad(Finding::kOutOfBoundsWrite, MemSpace::kShared, kErrorIllegalAddress);
        return ref;
    }
    auto found = owner->mbarriers.find(ref.address);
    if (found != owner->mbarriers.end()) {
        const uint64_t word = found->second.pack();
        const bool intact = std::memcmp(owner->shared + ref.address, &word, kWordBytes) == 0;
        if (!intact) {
            if (needs_valid)
                misuse(lane, Finding::kMbarrierInvalid,
                       "the mbarrier at shared address " + hex(ref.address) + " was overwritten by ordinary stores");
            owner->mbarriers.erase(found);
            if (needs_valid) return ref;
        } else {
            ref.barrier = &found->second;
        }
    }
    if (!ref.barrier && needs_valid) {
        misuse(lane, Finding::kMbarrierInvalid,
               "no mbarrier was initialized at shared address " + hex(ref.address) +
                   ", or it was invalidated, or its initialization is not ordered before this");
        return ref;
    }
    ref.owner = owner;
    return ref;
}

template <Mode M>
typename Interpreter<M>::MbarrierRef Interpreter<M>::mbarrier_place(uint32_t lane, uint64_t address) {
    MbarrierRef ref = mbarrier_at(lane, address, false, true);
    if (ref.barrier) ref.object = order_object(OrderKind::kMbarrier, *ref.owner, ref.address | (ref.barrier->phase & 7));
    return ref;
}

// Ends the phase when nothing is missing any more. `deliver`: what is under way and would end it, arrives now.
template <Mode M>
void Interpreter<M>::mbarrier_settle(Block& owner, uint32_t address, Mbarrier& barrier, bool deliver) {
    const auto object = [&] { return order_object(OrderKind::kMbarrier, owner, address | (barrier.phase & 7)); };
    if (deliver && barrier.pending != 0 && barrier.pending <= barrier.deferred.size()) {
        while (barrier.pending != 0) {
            const DeferredArrival arrival = barrier.deferred.front();
            barrier.deferred.erase(barrier.deferred.begin());
            finish_async_of(*arrival.warp, arrival.lane, arrival.serial, object());
            --barrier.pending;
        }
    }
    if (deliver && barrier.pending == 0) {
        while (barrier.tx > 0 && !barrier.copies.empty()) {
            const size_t next = block_.launch->options.schedule == Schedule::kRandom ? draw(barrier.copies.size()) : 0;
            BulkCopy copy = std::move(barrier.copies[next]);
            barrier.copies.erase(barrier.copies.begin() + static_cast<ptrdiff_t>(next));
            deliver_bulk(copy);
            agent_release({copy.agent}, object());
            barrier.tx -= copy.bytes;
            barrier.delivered_bytes += copy.bytes;
        }
        if (barrier.tx < 0) {
            misuse(static_cast<uint32_t>(std::countr_zero(mask_)), Finding::kMbarrierOverflow,
                   "the mbarrier at shared address " + hex(address) + " has got " + std::to_string(barrier.delivered_bytes) +
                       " bytes in phase " + std::to_string(barrier.phase) + ", and " + std::to_string(barrier.announced_bytes) +
                       " were announced: its phase cannot end");
            barrier.tx = 0;
        }
    }
    if (barrier.pending == 0 && barrier.tx == 0) {
        ++barrier.phase;
        barrier.pending = barrier.expected;
        barrier.announced_bytes = barrier.delivered_bytes = 0;
    }
    mbarrier_write_back(owner, address, barrier);
}

template <Mode M>
void Interpreter<M>::mbarrier_arrive(const Inst& inst, uint32_t lane, MbarrierRef ref) {
    Mbarrier& barrier = *ref.barrier;
    const MbarrierOp op = static_cast<MbarrierOp>(inst.mode);
    const uint32_t count = row32(inst.b)[lane];
    const uint64_t token = make_token(barrier, ref.address);
    const bool drops = op == MbarrierOp::kArriveDrop || op == MbarrierOp::kArriveDropNoComplete;
    const bool no_complete = op == MbarrierOp::kArriveNoComplete || op == MbarrierOp::kArriveDropNoComplete;
    const auto out_of_range = [&](const std::string& what) {
        misuse(lane, Finding::kMbarrierOverflow, "the mbarrier at shared address " + hex(ref.address) + what);
        mbarrier_write_back(*ref.owner, ref.address, barrier);
    };
    if (count == 0 || count > barrier.pending || (no_complete && count == barrier.pending)) {
        return out_of_range(" gets " + std::to_string(count) + " arrivals, and phase " + std::to_string(barrier.phase) + " lacks " +
                            std::to_string(barrier.pending) + " of " + std::to_string(barrier.expected) +
                            (no_complete && count == barrier.pending ? "; .noComplete must not end the phase" : ""));
    }
    if (inst.mode2 & kMbarrierExpectTx) {
        const uint32_t bytes = row32(inst.c)[lane];
        if (barrier.tx + bytes > kMbarrierMaxTx)
            return out_of_range(" awaits " + std::to_string(barrier.tx + bytes) + " bytes; 2^20 - 1 is the most");
        barrier.tx += bytes;
        barrier.announced_bytes += bytes;
    }
    if (drops) barrier.expected -= std::min(count, barrier.expected);
    barrier.pending -= count;
    if constexpr (kCount) this->count().mbarrier_arrivals++;
    if (inst.dbytes == 8) row64(inst.d)[lane] = token;
    if (!(inst.mode2 & kMbarrierRelaxed) && checking(kRacecheck))
        release_to(1u << lane, order_object(OrderKind::kMbarrier, *ref.owner, ref.address | (barrier.phase & 7)));
    mbarrier_settle(*ref.owner, ref.address, barrier, false);
}

// After a poll that found nothing: other threads of the warp, then other warps, have their turn.
template <Mode M>
void Interpreter<M>::give_way() {
    bool others = false;
    for (const Entry& entry : warp_.entries) others |= entry.state == EntryState::kRunnable || entry.state == EntryState::kYielded;
    if (!others || ++polls_ > 2 * warp_.entries.size() + 2) {
        polled_ = true;
        return;
    }
    push_entry(pc_, mask_, EntryState::kYielded);
    leave(mask_);
}

template <Mode M>
void Interpreter<M>::mbarrier_wait(const Inst& inst, uint32_t mask) {
    alignas(64) uint64_t address[kWarpLanes];
    shared_addresses(inst, address);
    uint32_t done = 0;
    uint32_t failed_at = 0;
    Block* failed_block = nullptr;
    MbarrierRef ref;
    uint64_t last = ~0ull;
    // Lanes that wait for the same phase learn the same.
    uint32_t learning = 0;
    uint64_t object = 0;
    const auto learn = [&] { acquire_from(std::exchange(learning, 0), object); };
    for_lanes(mask, [&](uint32_t lane) {
        if (fatal_) return;
        const bool same = address[lane] == last;
        if (!same) {
            learn();
            ref = mbarrier_at(lane, address[lane], inst.mode2 & kMbarrierGeneric, true);
            last = address[lane];
        }
        if (!ref.barrier) {  // reported; waiting for it would only add a deadlock
            done |= 1u << lane;
            return;
        }
        Mbarrier& barrier = *ref.barrier;
        const auto is_over = [&] {
            if (inst.mode2 & kMbarrierParity) return (barrier.phase & 1) != (row32(inst.b)[lane] & 1);
            return (barrier.phase & 0xFFFFF) != (row64(inst.b)[lane] >> 20 & 0xFFFFF);
        };
        if (!(inst.mode2 & kMbarrierParity) && checking(kSynccheck)) {
            const uint64_t token = row64(inst.b)[lane];
            if (token >> 56 != kTokenMagic || (token >> 40 & 0xFFFF) != (ref.address / kWordBytes & 0xFFFF)) {
                misuse(lane, Finding::kMbarrierInvalid, "the state is not one that an arrival on this mbarrier returned");
            }
        }
        if (!is_over()) {
            if (!same) mbarrier_settle(*ref.owner, ref.address, barrier, true);
            if (!is_over()) {
                failed_at = ref.address;
                failed_block = ref.owner;
                return;
            }
        }
        done |= 1u << lane;
        if (!(inst.mode2 & kMbarrierRelaxed) && checking(kRacecheck)) {
            object = order_object(OrderKind::kMbarrier, *ref.owner, ref.address | ((barrier.phase - 1) & 7));
            learning |= 1u << lane;
        }
    });
    learn();
    if (checking(kRacecheck) && done != 0) race_word(done, address, false, true);
    uint32_t& to = predicate_slot(inst.pd);
    to = (to & ~mask) | done;
    if constexpr (kCount) {
        count().mbarrier_tests++;
        count().mbarrier_waits += done == 0;
    }
    ++pc_;
    if (done != 0) return;
    warp_.polled_block = failed_block;
    warp_.polled_address = failed_at;
    warp_.polled_pc = pc_ - 1;
    warp_.polled_mask = mask;
    give_way();
}

template <Mode M>
void Interpreter<M>::mbarrier(const Inst& inst, uint32_t mask) {
    const MbarrierOp op = static_cast<MbarrierOp>(inst.mode);
    if (op == MbarrierOp::kTestWait) return mbarrier_wait(inst, mask);
    ++warp_.changes;
    ++pc_;
    if (op == MbarrierOp::kFenceInit) {
        warp_.init_fenced |= mask;
        return;
    }
    if (op == MbarrierOp::kPendingCount) {
        for_lanes(mask, [&, to = row32(inst.d), from = row64(inst.b)](uint32_t lane) { to[lane] = from[lane] & kMbarrierMaxCount; });
        return;
    }
    --pc_;  // reports and counters want the instruction's own
    alignas(64) uint64_t address[kWarpLanes];
    shared_addresses(inst, address);
    const bool needs_valid = op != MbarrierOp::kInit;
    // To the race check, an mbarrier's life begins and ends with a write, and all that is done with it in between is a read: none of it may
    // come before the beginning or after the end, and it is no race among itself.
    const bool is_end = op == MbarrierOp::kInit || op == MbarrierOp::kInval;
    if (checking(kRacecheck)) race_word(mask, address, is_end, !is_end);
    for_lanes(mask, [&](uint32_t lane) {
        if (fatal_) return;
        const MbarrierRef ref = mbarrier_at(lane, address[lane], inst.mode2 & kMbarrierGeneric, needs_valid);
        if (!ref.owner) return;
        const std::string name = "the mbarrier at shared address " + hex(ref.address);
        switch (op) {
            case MbarrierOp::kInit: {
                const uint32_t count = row32(inst.b)[lane];
                if (count == 0 || count > kMbarrierMaxCount)
                    return misuse(lane, Finding::kMbarrierOverflow, "a count of " + std::to_string(count) + " is not in 1 to 2^20 - 1");
                if (ref.barrier && (!ref.barrier->copies.empty() || ref.barrier->pending != ref.barrier->expected) && checking(kSynccheck))
                    misuse(lane, Finding::kMbarrierReinit, name + " is in the middle of phase " + std::to_string(ref.barrier->phase));
                Mbarrier barrier;
                barrier.expected = barrier.pending = count;
                barrier.init_pc = pc_;
                ref.owner->mbarriers[ref.address] = barrier;
                mbarrier_write_back(*ref.owner, ref.address, barrier);
                return;
            }
            case MbarrierOp::kInval:
                if (!ref.barrier->copies.empty())
                    misuse(lane, Finding::kMbarrierInvalid, name + " is invalidated while copies that count on it are in flight");
                ref.owner->mbarriers.erase(ref.address);
                if (ref.owner->shared_state) std::memset(ref.owner->shared_state + ref.address, 0, kWordBytes);
                return;
            case MbarrierOp::kExpectTx:
            case MbarrierOp::kCompleteTx: {
                const int64_t bytes = row32(inst.b)[lane];
                Mbarrier& barrier = *ref.barrier;
                const int64_t tx = barrier.tx + (op == MbarrierOp::kExpectTx ? bytes : -bytes);
                if (tx > kMbarrierMaxTx || tx < -kMbarrierMaxTx)
                    return misuse(lane, Finding::kMbarrierOverflow,
                                  name + " awaits " + std::to_string(tx) + " bytes; 2^20 - 1 is the most");
                barrier.tx = tx;
                (op == MbarrierOp::kExpectTx ? barrier.announced_bytes : barrier.delivered_bytes) += static_cast<uint64_t>(bytes);
                return mbarrier_settle(*ref.owner, ref.address, barrier, false);
            }
            case MbarrierOp::kArriveAsync:
            case MbarrierOp::kArriveAsyncNoInc: {
                Mbarrier& barrier = *ref.barrier;
                if (ref.owner != &block_)
                    return misuse(lane, Finding::kMbarrierInvalid, name + " is of another block: cp.async arrives on one of its own");
                if (op == MbarrierOp::kArriveAsync && barrier.pending == kMbarrierMaxCount)
                    return misuse(lane, Finding::kMbarrierOverflow, name + " awaits more than 2^20 - 1 arrivals");
                barrier.pending += op == MbarrierOp::kArriveAsync;
                // When it is complete, what the thread did before is known to those who wait.
                if (checking(kRacecheck))
                    release_to(1u << lane, order_object(OrderKind::kMbarrier, *ref.owner, ref.address | (barrier.phase & 7)));
                barrier.deferred.push_back({&warp_, lane, warp_.async_serial, 0});
                warp_.async_handed[lane] = warp_.async_serial;
                return mbarrier_write_back(*ref.owner, ref.address, barrier);
            }
            default: return mbarrier_arrive(inst, lane, ref);
        }
    });
    ++pc_;
}

template void Interpreter<Mode::kPlain>::mbarrier(const Inst&, uint32_t);
template typename Interpreter<Mode::kPlain>::MbarrierRef Interpreter<Mode::kPlain>::mbarrier_place(uint32_t, uint64_t);
template void Interpreter<Mode::kPlain>::mbarrier_settle(Block&, uint32_t, Mbarrier&, bool);
template void Interpreter<Mode::kPlain>::misuse(uint32_t, Finding, const std::string&);
template void Interpreter<Mode::kChecked>::mbarrier(const Inst&, uint32_t);
template typename Interpreter<Mode::kChecked>::MbarrierRef Interpreter<Mode::kChecked>::mbarrier_place(uint32_t, uint64_t);
template void Interpreter<Mode::kChecked>::mbarrier_settle(Block&, uint32_t, Mbarrier&, bool);
template void Interpreter<Mode::kChecked>::misuse(uint32_t, Finding, const std::string&);
template void Interpreter<Mode::kCounted>::mbarrier(const Inst&, uint32_t);
template typename Interpreter<Mode::kCounted>::MbarrierRef Interpreter<Mode::kCounted>::mbarrier_place(uint32_t, uint64_t);
template void Interpreter<Mode::kCounted>::mbarrier_settle(Block&, uint32_t, Mbarrier&, bool);
template void Interpreter<Mode::kCounted>::misuse(uint32_t, Finding, const std::string&);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

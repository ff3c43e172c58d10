// Clusters, and what belongs to a whole grid. PTX ISA, "mapa", "getctarank", "barrier.cluster", "griddepcontrol", "setmaxnreg", and the
// state space .shared::cluster.
#include <algorithm>

#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

constexpr uint32_t kMostRegisters = 64 * 1024;  // of a multiprocessor
constexpr uint32_t kMostRegistersPerThread = 255;
constexpr uint32_t kWarpsPerGroup = 4;
constexpr uint32_t kPollsOfTurn = 8;  // reads of one address in a loop before another warp has its turn

}  // namespace

// A read that others may be waited for with: one address, or a few in turn, read again and again at one instruction each.
template <Mode M>
void Interpreter<M>::note_poll(uint64_t address) {
    warp_.polled_block = nullptr;  // what it waits for, if anything, is no mbarrier
    uint32_t known = warp_.last_poll;
    while (warp_.polls[known].pc != pc_ || warp_.polls[known].address != address) {
        known = (known + 1) % kMostPolls;
        if (known != warp_.last_poll) continue;
        warp_.last_poll = (known + 1) % kMostPolls;
        warp_.polls[warp_.last_poll] = {address, pc_};
        warp_.is_vain = false;
        poll_repeats_ = 0;
        return;
    }
    warp_.last_poll = known;
    warp_.is_vain = true;
    if (++poll_repeats_ < kPollsOfTurn) return;
    poll_repeats_ = 0;
    polled_ = true;
}

template <Mode M>
void Interpreter<M>::map_shared(const Inst& inst, uint32_t mask) {
    if (inst.mode == 2) {  // %is_explicit_cluster
        uint32_t& to = predicate_slot(inst.pd);
        for_lanes(mask, [&](uint32_t lane) { to = (to & ~(1u << lane)) | (row32(inst.a)[lane] ? 1u << lane : 0); });
        ++pc_;
        return;
    }
    const bool generic = inst.space == MemSpace::kGeneric;
    const uint32_t size = static_cast<uint32_t>(block_.cluster->blocks.size());
    const auto address_of = [&](uint32_t lane) -> uint64_t { return inst.bytes == 8 ? row64(inst.a)[lane] : row32(inst.a)[lane]; };
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t address = address_of(lane);
        const uint64_t in_window = generic ? address - kSharedWindow : address;
        if (in_window >> 32) {
            report_event(worker_, block_, warp_, pc_, lane, Finding::kClusterRank, "the address is not in shared memory");
            stop_launch(kErrorIllegalAddress);
            return;
        }
        const uint32_t offset = static_cast<uint32_t>(in_window) & kSharedOffsetMask;
        if (inst.mode == 1) {  // getctarank
            const uint32_t rank = static_cast<uint32_t>(in_window) >> kSharedRankShift;
            row32(inst.d)[lane] = rank == 0 ? block_.cluster_rank : rank - 1;
            return;
        }
        const uint32_t rank = row32(inst.b)[lane];
        if (rank >= size) {
            report_event(worker_, block_, warp_, pc_, lane, Finding::kClusterRank,
                         "rank " + std::to_string(rank) + " of a cluster of " + std::to_string(size) + " blocks");
            stop_launch(kErrorIllegalAddress);
            return;
        }
        const uint32_t mapped = (rank + 1) << kSharedRankShift | offset;
        if (inst.dbytes == 8)
            row64(inst.d)[lane] = generic ? kSharedWindow | mapped : mapped;
        else
            row32(inst.d)[lane] = mapped;
    });
    ++pc_;
}

// Ends the phase of the cluster's barrier when all threads that have not exited are there.
template <Mode M>
void Interpreter<M>::settle_cluster_barrier() {
    Cluster& cluster = *block_.cluster;
    if (cluster.arrived == 0 || cluster.arrived < cluster.live_threads) return;
    cluster.arrived = 0;
    ++cluster.phase;
    ++worker_.progress;
    for (Block* block : cluster.blocks) {
        for (Warp& warp : block->warps) {
            warp.cluster_passed |= warp.cluster_arrived;
            warp.cluster_arrived = 0;
            for (Entry& entry : warp.entries) {
                if (entry.state == EntryState::kCluster) entry.state = EntryState::kRunnable;  // at the wait, which now lets it through
            }
        }
    }
}

template <Mode M>
void Interpreter<M>::leave_cluster(uint32_t mask) {
    Cluster& cluster = *block_.cluster;
    cluster.live_threads -= static_cast<uint32_t>(std::popcount(mask));
    cluster.arrived -= static_cast<uint32_t>(std::popcount(mask & warp_.cluster_arrived));
    warp_.cluster_arrived &= ~mask;
    warp_.cluster_passed &= ~mask;
    settle_cluster_barrier();
}

template <Mode M>
void Interpreter<M>::cluster_barrier(const Inst& inst, uint32_t mask) {
    if (!come_together(mask, inst)) return;
    Cluster& cluster = *block_.cluster;
    const auto object = [&](uint32_t phase) { return order_object(OrderKind::kClusterBarrier, *cluster.blocks[0], phase & 1); };
    if (inst.mode == 0) {
        const uint32_t again = mask & (warp_.cluster_arrived | warp_.cluster_passed);
        if (again) {
            report_event(worker_, block_, warp_, pc_, std::countr_zero(again), Finding::kClusterBarrier,
                         "the thread arrives a second time without a wait between the two");
            if (!checking(kSynccheck)) return stop_launch(kErrorIllegalInstruction);
        }
        const uint32_t arriving = mask & ~again;
        if constexpr (kCount) count().barriers++;
        if (inst.mode2) {
            release_to(arriving & warp_.init_fenced, object(cluster.phase));
            release_fenced(arriving, object(cluster.phase));
        } else {
            release_to(arriving, object(cluster.phase));
        }
        warp_.init_fenced &= ~arriving;
        warp_.cluster_arrived |= arriving;
        cluster.arrived += static_cast<uint32_t>(std::popcount(arriving));
        ++pc_;
        settle_cluster_barrier();
        return update_merge();
    }
    const uint32_t stray = mask & ~(warp_.cluster_arrived | warp_.cluster_passed);
    if (stray) {
        report_event(worker_, block_, warp_, pc_, std::countr_zero(stray), Finding::kClusterBarrier,
                     "the thread waits without having arrived");
        if (!checking(kSynccheck)) return stop_launch(kErrorIllegalInstruction);
    }
    const uint32_t passing = mask & warp_.cluster_passed;
    if (passing) acquire_from(passing, object(cluster.phase - 1));
    warp_.cluster_passed &= ~passing;
    const uint32_t waiting = mask & warp_.cluster_arrived;
    if (waiting) {
        if constexpr (kCount) count().barrier_waits++;
        push_entry(pc_, waiting, EntryState::kCluster);
        mask_ &= ~waiting;
        if (mask_ == 0) {
            drop(frame_);
            pick();
            return;
        }
    }
    ++pc_;
    update_merge();
}

// Whether another block's shared memory may be touched now; else the first lane is reported.
template <Mode M>
bool Interpreter<M>::peer_alive(const Block& owner, uint32_t mask, const uint64_t* address, bool is_write, uint32_t size) {
    const uint32_t lane = std::countr_zero(mask);
    const std::string what = std::string(is_write ? "a write" : "a read") + " of " + std::to_string(size) + " bytes at shared address " +
                             std::to_string(address[lane]) + " of the block of rank " + std::to_string(owner.cluster_rank);
    if (owner.live_threads == 0) {
        report_event(worker_, block_, warp_, pc_, lane, Finding::kClusterExited,
                     what + ": a barrier of the cluster before that block's end keeps its shared memory alive");
    } else if (!owner.has_begun) {
        report_event(worker_, block_, warp_, pc_, lane, Finding::kClusterNotBegun,
                     what + ": a barrier of the cluster makes sure that all its blocks have started");
    } else {
        return true;
    }
    if (checking(kMemcheck)) {
        std::lock_guard lock(block_.launch->mutex);
        if (block_.launch->status == kSuccess) block_.launch->status = kErrorIllegalAddress;
    } else {
        stop_launch(kErrorIllegalAddress);
    }
    return false;
}

// An access to shared memory through addresses some of which name a block by its rank.
template <Mode M>
template <bool kStore>
void Interpreter<M>::access_cluster(const Inst& inst, uint32_t mask, const uint64_t* address) {
    alignas(64) uint64_t offsets[kWarpLanes] = {};
    Block* owners[kWarpLanes] = {};
    for_lanes(mask, [&](uint32_t lane) {
        uint32_t offset = 0;
        owners[lane] = address[lane] >> 32 ? nullptr : shared_of(static_cast<uint32_t>(address[lane]), offset);
        offsets[lane] = owners[lane] ? offset : address[lane];
    });
    for (uint32_t rest = mask; rest && !fatal_;) {
        Block* owner = owners[std::countr_zero(rest)];
        uint32_t group = 0;
        for_lanes(rest, [&](uint32_t lane) { group |= owners[lane] == owner ? 1u << lane : 0; });
        rest &= ~group;
        if (!owner)
            check_shared(group, address, inst.bytes * inst.vec, kStore, false);  // reports all of them
        else if (owner == &block_)
            access_shared<kStore>(inst, group, offsets);
        else
            access_peer<kStore>(*owner, inst, group, offsets);
    }
}

template <Mode M>
template <bool kStore>
void Interpreter<M>::access_peer(Block& owner, const Inst& inst, uint32_t mask, const uint64_t* offset) {
    const uint32_t size = inst.bytes * inst.vec;
    if (!peer_alive(owner, mask, offset, kStore, size)) return;
    mask = check_shared(mask, offset, size, kStore, false);
    if (mask == 0) return;
    if (checking(kRacecheck)) {
        const bool strong = inst.order & kOrderStrong;
        race_peer(owner, mask, offset, size, kStore, strong);
        if (strong) order_words(inst, mask, offset, !kStore, kStore, OrderKind::kSharedWord, &owner);
    }
    if (checking(kInitcheck)) {
        for_lanes(mask, [&](uint32_t lane) {
            uint8_t* state = owner.shared_state + offset[lane];
            if constexpr (kStore) {
                std::memset(state, 1, size);
            } else {
                bool in_flight = false, unwritten = false;
                for (uint32_t i = 0; i < size; ++i) {
                    in_flight |= (state[i] & 2) != 0;
                    unwritten |= state[i] == 0;
                }
                if (in_flight || unwritten) {
                    report_access(worker_, block_, warp_, pc_, lane,
                                  {in_flight ? Finding::kAsyncInFlight : Finding::kUninitialized, MemSpace::kShared, false, false,
                                   offset[lane], size});
                }
            }
        });
    }
    if constexpr (kCount) {
        const uint64_t bytes = static_cast<uint64_t>(std::popcount(mask)) * size;
        if constexpr (kStore) {
            count().cluster_stores++;
            count().cluster_store_bytes += bytes;
        } else {
            count().cluster_loads++;
            count().cluster_load_bytes += bytes;
        }
    }
    move_elements<kStore>(inst, mask, owner.shared, offset, Shape::kScattered);
}

template <Mode M>
void Interpreter<M>::grid_dependency(const Inst& inst, uint32_t mask) {
    // Kernels of a stream run one after another, so what is waited for is complete: only who may count on that is to be known.
    LaunchState& state = *block_.launch;
    const bool waits = inst.mode == 1;
    if (!waits) {
        state.lets_dependents_start.store(true, std::memory_order_relaxed);
    } else if (checking(kRacecheck) && state.primary != 0) {
        Clocks all;
        all.raise(clock_key(kPrimaryBlock, kIdWhole), 1);
        order::acquire(block_, warp_, mask, all);
    }
    ++pc_;
}

// setmaxnreg moves registers between the warps of a block and a pool of the block; `inc` waits for what it needs. What cannot work: warps
// of one warpgroup that ask for different numbers, and a block that asks for more than it was started with.
template <Mode M>
void Interpreter<M>::set_max_registers(const Inst& inst, uint32_t mask) {
    if (!come_together(mask, inst)) return;
    warp_.registers = inst.imm;
    ++warp_.register_changes;
    const uint32_t lane = std::countr_zero(mask);
    if (checking(kSynccheck)) {
        uint32_t total = 0;
        for (const Warp& other : block_.warps) {
            if (other.live == 0) continue;
            total += other.registers * kWarpLanes;
            if (other.id / kWarpsPerGroup == warp_.id / kWarpsPerGroup && other.register_changes == warp_.register_changes &&
                other.registers != warp_.registers) {
                report_event(worker_, block_, warp_, pc_, lane, Finding::kRegisterBudget,
                             "warps " + std::to_string(other.id) + " and " + std::to_string(warp_.id) + " of one warpgroup ask for " +
                                 std::to_string(other.registers) + " and " + std::to_string(warp_.registers) + " registers");
            }
        }
        const uint32_t most_threads = image_.most_threads;
        if (most_threads != 0) {
            const uint32_t per_thread =
                image_.most_registers ? image_.most_registers
                                      : std::min(kMostRegistersPerThread, kMostRegisters / image_.least_blocks / most_threads / 8 * 8);
            const uint32_t pool = per_thread * static_cast<uint32_t>(block_.warps.size()) * kWarpLanes;
            if (total > pool) {
                report_event(worker_, block_, warp_, pc_, lane, Finding::kRegisterBudget,
                             "the block's warps ask for " + std::to_string(total) + " registers, and the block is started with at most " +
                                 std::to_string(pool) + " (" + std::to_string(per_thread) + " for each thread): setmaxnreg.inc never ends");
            }
        }
    }
    ++pc_;
}

#define AICF_INSTANTIATE(MODE)                                                                           \
    template class Interpreter<MODE>;                                                                    \
    template void Interpreter<MODE>::access_cluster<false>(const Inst&, uint32_t, const uint64_t*);      \
    template void Interpreter<MODE>::access_cluster<true>(const Inst&, uint32_t, const uint64_t*);       \
    template void Interpreter<MODE>::access_peer<false>(Block&, const Inst&, uint32_t, const uint64_t*); \
    template void Interpreter<MODE>::access_peer<true>(Block&, const Inst&, uint32_t, const uint64_t*);
AICF_INSTANTIATE(Mode::kPlain)
AICF_INSTANTIATE(Mode::kChecked)
AICF_INSTANTIATE(Mode::kCounted)

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

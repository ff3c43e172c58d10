// The interpreter's loop, and the scheduling of a warp's threads: divergence, reconvergence, calls.
//
// Threads of a warp that are at the same instruction form an entry. The entry that is deepest in calls, and among those the one with the
// lowest pc, runs first, and entries merge where they meet: with the layouts that compilers emit this reconverges at the latest at the
// immediate post-dominator. An entry that takes many backward branches while others wait gives way, so that threads of one warp can wait
// for each other.
#include <algorithm>

#include "../launch/conditional.hpp"
#include "../launch/level.hpp"
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {
constexpr uint32_t kMaxBackEdges = 256;
constexpr uint64_t kMovingLoops = 64;  // a loop that stores may take so many times as many turns as one that does not

// Nothing that it does can come before or after what another thread does, nor be seen by one outside of the block.
bool is_unordered(const Inst& inst) {
    switch (inst.op) {
        case Op::kLoad: return !(inst.order & kOrderStrong);
        case Op::kStore: return !(inst.order & kOrderStrong) && (inst.space == MemSpace::kShared || inst.space == MemSpace::kLocal);
        case Op::kLocalAddress:
        case Op::kNarrow:
        case Op::kWiden:
        case Op::kCvtaTo:
        case Op::kCvtaFrom:
        case Op::kPack:
        case Op::kUnpack:
        case Op::kIsspacep:
        case Op::kPrefetch:
        case Op::kNop:
        case Op::kBra: return true;
        default: return inst.op <= Op::kLoadParam64;
    }
}

bool same_group(const Entry& entry, uint32_t pc, int32_t frame) { return entry.pc == pc && entry.frame == frame; }
}  // namespace

template <Mode M>
void Interpreter<M>::bind_frame() {
    const Frame& frame = warp_.frames[frame_];
    bases_[kBase32] = warp_.rows32 + frame.offset32;
    bases_[kBase64] = warp_.rows64 + frame.offset64;
    predicates_ = warp_.predicates + frame.offset_predicates;
    local_base_ = frame.local_base;
}

template <Mode M>
void Interpreter<M>::update_merge() {
    merge_pc_ = ~0u;
    for (const Entry& entry : warp_.entries) {
        if (entry.state == EntryState::kRunnable && entry.frame == frame_) merge_pc_ = std::min(merge_pc_, entry.pc);
    }
}

template <Mode M>
void Interpreter<M>::push_entry(uint32_t pc, uint32_t mask, EntryState state, uint8_t barrier_id) {
    for (Entry& entry : warp_.entries) {
        if (same_group(entry, pc, frame_) && entry.state == state && entry.barrier == barrier_id) {
            entry.mask |= mask;
            return;
        }
    }
    warp_.entries.push_back({pc, mask, frame_, state, barrier_id});
    retain(frame_);
}

template <Mode M>
void Interpreter<M>::drop(int32_t frame) {
    while (frame >= 0 && --warp_.frames[frame].refs == 0) {
        warp_.free_frames.push_back(frame);
        frame = warp_.frames[frame].parent;
    }
}

// Makes an entry current. False: none can run now.
template <Mode M>
bool Interpreter<M>::pick() {
    running_ = false;
    for (int attempt = 0; attempt < 3; ++attempt) {
        int best = -1;
        for (size_t i = 0; i < warp_.entries.size(); ++i) {
            const Entry& entry = warp_.entries[i];
            if (entry.state != EntryState::kRunnable) continue;
            if (best < 0) {
                best = static_cast<int>(i);
                continue;
            }
            const uint32_t depth = warp_.frames[entry.frame].depth;
            const uint32_t best_depth = warp_.frames[warp_.entries[best].frame].depth;
            if (depth > best_depth || (depth == best_depth && entry.pc < warp_.entries[best].pc)) best = static_cast<int>(i);
        }
        if (best >= 0) {
            const Entry entry = warp_.entries[best];
            warp_.entries.erase(warp_.entries.begin() + best);
            pc_ = entry.pc;
            mask_ = entry.mask;
            frame_ = entry.frame;  // the entry's reference passes to the current group
            back_edges_ = 0;
            running_ = true;
            bind_frame();
            update_merge();
            return true;
        }
        bool woken = false;
        bool at_barrier = false;
        for (Entry& entry : warp_.entries) {
            if (entry.state == EntryState::kYielded) {
                entry.state = EntryState::kRunnable;
                woken = true;
            }
            at_barrier |=
                entry.state == EntryState::kBarrier || entry.state == EntryState::kCluster || entry.state == EntryState::kWarpgroup;
        }
        if (woken) continue;
        // Nobody of this warp can come to where the others wait any more: an aligned barrier that was reached apart, or threads named in a
        // mask that are elsewhere for good.
        Entry* stuck = nullptr;
        for (Entry& entry : warp_.entries) {
            if (entry.state != EntryState::kGather) continue;
            const Op op = image_.code[entry.pc].op;
            const bool is_barrier = op == Op::kBarrier || op == Op::kClusterBarrier;
            if (!is_barrier && at_barrier) continue;
            if (!stuck || entry.pc < stuck->pc) stuck = &entry;
        }
        if (!stuck) return false;
        stuck->state = EntryState::kRunnable;
        warp_.forced_pc = stuck->pc;
    }
    return false;
}

template <Mode M>
void Interpreter<M>::reconverge() {
    // Called with pc_ >= merge_pc_: another runnable entry of this frame is at or before the current group.
    for (size_t i = 0; i < warp_.entries.size(); ++i) {
        Entry& entry = warp_.entries[i];
        if (entry.state != EntryState::kRunnable || entry.frame != frame_ || entry.pc != merge_pc_) continue;
        if (entry.pc == pc_) {
            mask_ |= entry.mask;
            warp_.entries.erase(warp_.entries.begin() + i);
            drop(frame_);
        } else {
            std::swap(entry.pc, pc_);
            std::swap(entry.mask, mask_);
            back_edges_ = 0;
        }
        break;
    }
    update_merge();
}

template <Mode M>
void Interpreter<M>::leave(uint32_t lanes) {
    mask_ &= ~lanes;
    if (mask_) return;
    drop(frame_);
    pick();
}

// A backward branch of some lanes: ends the launch where it was one too many.
template <Mode M>
AICF_INLINE void Interpreter<M>::count_loop(uint32_t from, uint32_t to, uint32_t lanes) {
    ++warp_.loops;
    warp_.loop_low = std::min(warp_.loop_low, to);
    warp_.loop_high = std::max(warp_.loop_high, from);
    if (const uint64_t limit = block_.launch->options.loop_limit)
        if (warp_.loops - warp_.moved_at > limit || warp_.loops / kMovingLoops > limit) [[unlikely]]
            stop_loop(from, lanes);
}

template <Mode M>
void Interpreter<M>::stop_loop(uint32_t from, uint32_t lanes) {
    const uint64_t limit = block_.launch->options.loop_limit;
    const uint64_t quiet = warp_.loops - warp_.moved_at;
    const std::string turns = quiet > limit ? std::to_string(quiet) + " turns of loops without a store, an atomic or a barrier"
                                            : std::to_string(warp_.loops) + " turns of loops";
    report_event(worker_, block_, warp_, from, std::countr_zero(lanes), Finding::kEndlessLoop,
                 "the warp took " + turns + " (loop_limit = " + std::to_string(limit) + ")");
    stop_launch(kErrorLaunchTimeout);
}

template <Mode M>
void Interpreter<M>::branch(const Inst& inst, uint32_t taken, uint32_t target) {
    const uint32_t stay = mask_ & ~taken;
    if (target <= pc_) count_loop(pc_, target, taken);
    if constexpr (kCount) {
        count().branches++;
        count().divergent_branches += taken && stay;
    }
    if (stay == 0) {
        const bool backward = target <= pc_;
        pc_ = target;
        if (backward && !warp_.entries.empty() && ++back_edges_ > kMaxBackEdges) {
            bool others = false;
            for (const Entry& entry : warp_.entries) others |= entry.state == EntryState::kRunnable || entry.state == EntryState::kYielded;
            back_edges_ = 0;
            if (others) {
                push_entry(pc_, mask_, EntryState::kYielded);
                leave(mask_);
            }
        }
        return;
    }
    const bool backward = target <= pc_;
    const uint32_t low_mask = backward ? taken : stay;
    const uint32_t low_pc = backward ? target : pc_ + 1;
    const uint32_t high_mask = mask_ & ~low_mask;
    const uint32_t high_pc = backward ? pc_ + 1 : target;
    push_entry(high_pc, high_mask, EntryState::kRunnable);
    pc_ = low_pc;
    mask_ = low_mask;
    if (backward && ++back_edges_ > kMaxBackEdges) {
        back_edges_ = 0;
        push_entry(pc_, mask_, EntryState::kYielded);
        leave(mask_);
        return;
    }
    update_merge();
}

template <Mode M>
void Interpreter<M>::branch_indexed(const Inst& inst, uint32_t mask) {
    const std::vector<uint32_t>& table = image_.branch_tables[inst.imm];
    const uint32_t* index = row32(inst.a);
    const uint32_t rest = mask_ & ~mask;
    if constexpr (kCount) count().branches++;
    uint32_t todo = mask;
    bool first = true;
    while (todo) {
        const uint32_t lane = std::countr_zero(todo);
        uint32_t group = 0;
        for_lanes(todo, [&](uint32_t l) { group |= index[l] == index[lane] ? 1u << l : 0; });
        todo &= ~group;
        if (index[lane] >= table.size()) {
            report_event(worker_, block_, warp_, pc_, lane, Finding::kInvalidPc,
                         "index " + std::to_string(index[lane]) + " of brx.idx is past the list of targets");
            return stop_launch(kErrorInvalidPc);
        }
        if constexpr (kCount) count().divergent_branches += first && (todo || rest);
        first = false;
        if (table[index[lane]] <= pc_) count_loop(pc_, table[index[lane]], group);
        push_entry(table[index[lane]], group, EntryState::kRunnable);
    }
    if (rest) push_entry(pc_ + 1, rest, EntryState::kRunnable);
    leave(mask_);
}

template <Mode M>
void Interpreter<M>::stop_launch(int status) {
    fatal_ = true;
    block_.launch->end_with(status);
}

namespace {

template <typename T>
AICF_INLINE void move_row(T* to, const T* from, uint32_t mask) {
    if (mask == ~0u) {
        std::memmove(to, from, sizeof(T) * kWarpLanes);
        return;
    }
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) to[lane] = mask >> lane & 1 ? from[lane] : to[lane];
}

}  // namespace

template <Mode M>
AICF_INLINE void Interpreter<M>::count_execution(const Inst& inst, uint32_t pc, uint32_t mask) {
    if (inst.flags & kFlagHidden && inst.op != Op::kLoad && inst.op != Op::kStore) return;
    Counters& counters = worker_.lines[pc];
    counters.warp_instructions++;
    counters.thread_instructions += std::popcount(mask);
    counters.active_threads += std::popcount(mask_);
}

// Lane arithmetic and moves, from the current instruction as far as they go on: nothing here changes the warp's mask, or reads pc_.
template <Mode M>
AICF_INLINE void Interpreter<M>::run_straight(const Inst& first, uint32_t mask, uint64_t& left) {
    arith::Args args;
    args.carry = &warp_.carry;
    const uint32_t active = mask_, merge = merge_pc_;
    const bool singly = kChecks && !warp_.undefined.empty();  // run() looks at each instruction
    const Inst* inst = &first;
    uint32_t pc = pc_;
    for (;;) {
        if (mask != 0) [[likely]] {
            if (inst->op == Op::kArith) [[likely]] {
                args.d = row(inst->d);
                args.a = row(inst->a);
                args.b = row(inst->b);
                args.c = row(inst->c);
                if (inst->flags & (kFlagPredicates | kFlagFourth)) {
                    args.e = row(inst->e);
                    args.pd = &predicate_slot(inst->pd);
                    args.qd = &predicate_slot(inst->qd);
                    args.pa = predicate(inst->pa);
                    args.pb = predicate(inst->pb);
                }
                args.mask = mask;
                args.immediate = inst->imm;
                inst->fn(args);
            } else if (inst->op == Op::kMov32 || inst->op == Op::kLoadParam32) {
                move_row(row32(inst->d), row32(inst->a), mask);
            } else {
                move_row(row64(inst->d), row64(inst->a), mask);
            }
        }
        ++inst;
        ++pc;
        if (inst->op > Op::kLoadParam64 || pc >= merge || left == 0 || singly) break;
        --left;
        mask = active & predicate(inst->guard);
        if constexpr (kCount) count_execution(*inst, pc, mask);
    }
    pc_ = pc;
}

template <Mode M>
StopReason Interpreter<M>::run_turn(uint64_t budget) {
    bases_[kBaseConst] = reinterpret_cast<uint8_t*>(block_.launch->constants);
    bases_[kBaseSpecial] = warp_.specials;
    const Inst* const code = image_.code.data();
    uint64_t left = budget;
    if (!pick()) return warp_.live ? StopReason::kBlocked : StopReason::kDone;
    while (running_) {
        if (pc_ >= merge_pc_) [[unlikely]]
            reconverge();
        const Inst& inst = code[pc_];
        const uint32_t mask = mask_ & predicate(inst.guard);
        if (left-- == 0) [[unlikely]] {
            push_entry(pc_, mask_, EntryState::kRunnable);
            drop(frame_);
            worker_.instructions += budget;
            return StopReason::kQuantum;
        }
        if constexpr (kCount) count_execution(inst, pc_, mask);
        if constexpr (kChecks) {
            if (!warp_.undefined.empty()) [[unlikely]]
                track_undefined(inst, mask);
        }
        if constexpr (kChecks) {
            if (worker_.pending && !is_unordered(inst)) [[unlikely]]
                note_pending_reads();
        }
        if (mask == 0) {
            if constexpr (kCount) count().branches += inst.op == Op::kBra;
            ++pc_;
            continue;
        }
        switch (inst.op) {
            case Op::kArith:
            case Op::kMov32:
            case Op::kMov64:
            case Op::kLoadParam32:
            case Op::kLoadParam64: run_straight(inst, mask, left); break;
            case Op::kLocalAddress: {
                const uint64_t value = static_cast<uint64_t>(inst.offset) + local_base_;
                if (inst.dbytes == 8) {
                    for_lanes(mask, [&, to = row64(inst.d)](uint32_t lane) { to[lane] = value; });
                } else {
                    for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) { to[lane] = static_cast<uint32_t>(value); });
                }
                ++pc_;
                break;
            }
            case Op::kNarrow:
                for_lanes(mask,
                          [to = row32(inst.d), from = row64(inst.a)](uint32_t lane) { to[lane] = static_cast<uint32_t>(from[lane]); });
                ++pc_;
                break;
            case Op::kWiden:
                if (inst.flags & kFlagSignExtend) {
                    for_lanes(mask, [to = row64(inst.d), from = row32(inst.a)](uint32_t lane) {
                        to[lane] = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int32_t>(from[lane])));
                    });
                } else {
                    for_lanes(mask, [to = row64(inst.d), from = row32(inst.a)](uint32_t lane) { to[lane] = from[lane]; });
                }
                ++pc_;
                break;
            case Op::kCvtaTo:
                for_lanes(mask, [&, to = row64(inst.d), from = row64(inst.a)](uint32_t lane) {
                    to[lane] = from[lane] - static_cast<uint64_t>(inst.offset);
                });
                ++pc_;
                break;
            case Op::kCvtaFrom:
                for_lanes(mask, [&, to = row64(inst.d), from = row64(inst.a)](uint32_t lane) {
                    to[lane] = from[lane] + static_cast<uint64_t>(inst.offset);
                });
                ++pc_;
                break;
            case Op::kClock:
                read_clock(inst, mask);
                ++pc_;
                break;
            case Op::kPack:
                pack(inst, mask);
                ++pc_;
                break;
            case Op::kUnpack:
                unpack(inst, mask);
                ++pc_;
                break;
            case Op::kAlloca:
                ++warp_.changes;
                alloca_stack(inst, mask);
                break;
            case Op::kIsspacep:
                is_space(inst, mask);
                ++pc_;
                break;
            case Op::kLoad:
                inherit_dependence(inst.space);
                if (!kCount && inst.space == MemSpace::kShared && mask == ~0u && access_shared_simply<false>(inst)) {
                    ++pc_;
                    break;
                }
                load(inst, mask);
                if (fatal_) [[unlikely]]
                    break;
                ++pc_;
                if (polled_) [[unlikely]]
                    goto polled;
                break;
            case Op::kStore:
                warp_.moved_at = warp_.loops;
                warp_.changes += inst.space != MemSpace::kLocal && inst.space != MemSpace::kFrame;
                if (!kCount && inst.space == MemSpace::kShared && mask == ~0u && access_shared_simply<true>(inst)) {
                    ++pc_;
                    break;
                }
                store(inst, mask);
                if (fatal_) [[unlikely]]
                    break;
                ++pc_;
                break;
            case Op::kAtomic:
                warp_.moved_at = warp_.loops;
                inherit_dependence(inst.space);
                atomic(inst, mask);
                ++pc_;
                if (polled_) [[unlikely]]
                    goto polled;
                break;
            case Op::kFence:
                // The host lets a load overtake an earlier store; a fence of the device does not, for blocks on other host threads.
                if (!block_.launch->single_worker) std::atomic_thread_fence(std::memory_order_seq_cst);
                memory_fence(inst, mask);
                ++pc_;
                break;
            case Op::kNanosleep: ++pc_; goto polled;
            case Op::kPrefetch:
            case Op::kNop: ++pc_; break;
            case Op::kBra: branch(inst, mask, inst.imm); break;
            case Op::kBrx: branch_indexed(inst, mask); break;
            case Op::kCall: call(inst, mask, image_.calls[inst.imm].callee); break;
            case Op::kCallIndirect: call_indirect(inst, mask); break;
            case Op::kBuiltin:
                warp_.moved_at = warp_.loops;
                ++warp_.changes;
                call_builtin(inst, mask);
                break;
            case Op::kRet: return_from(mask); break;
            case Op::kExit:
            case Op::kEnd: exit_threads(mask); break;
            case Op::kTrap:
                report_event(worker_, block_, warp_, pc_, std::countr_zero(mask), Finding::kTrap, "a trap instruction was executed");
                stop_launch(kErrorIllegalInstruction);
                break;
            case Op::kBreakpoint:
                report_event(worker_, block_, warp_, pc_, std::countr_zero(mask), Finding::kBreakpoint,
                             "a breakpoint was reached, and no debugger is attached");
                stop_launch(kErrorIllegalInstruction);
                break;
            case Op::kBarrier:
                warp_.moved_at = warp_.loops;
                barrier(inst, mask);
                break;
            case Op::kBarWarpSync: bar_warp_sync(inst, mask); break;
            case Op::kShfl: shuffle(inst, mask); break;
            case Op::kVote: vote(inst, mask); break;
            case Op::kMatch: match(inst, mask); break;
            case Op::kRedux: reduce(inst, mask); break;
            case Op::kElect: elect(inst, mask); break;
            case Op::kActivemask:
                for_lanes(mask, [&, to = row32(inst.d)](uint32_t lane) { to[lane] = mask; });
                ++pc_;
                break;
            case Op::kAsyncCopy:
                warp_.moved_at = warp_.loops;
                ++warp_.changes;
                async_copy(inst, mask);
                ++pc_;
                break;
            case Op::kAsyncCommit:
                ++warp_.changes;
                async_commit(mask);
                ++pc_;
                break;
            case Op::kAsyncWait:
                async_wait(inst, mask);
                ++pc_;
                break;
            case Op::kMma: mma(inst, mask); break;
            case Op::kLoadMatrix:
                inherit_dependence(MemSpace::kShared);
                load_matrix(inst, mask);
                break;
            case Op::kStoreMatrix:
                warp_.moved_at = warp_.loops;
                ++warp_.changes;
                store_matrix(inst, mask);
                break;
            case Op::kMoveMatrix: move_matrix(inst, mask); break;
            case Op::kWgmma:
                ++warp_.changes;
                inherit_dependence(MemSpace::kShared);
                wgmma(inst, mask);
                break;
            case Op::kMbarrier:
                warp_.moved_at = warp_.loops;
                mbarrier(inst, mask);
                if (polled_ && !fatal_) [[unlikely]] {
                    push_entry(pc_, mask_, EntryState::kRunnable);
                    drop(frame_);
                    worker_.instructions += budget - left;
                    return StopReason::kPolled;
                }
                break;
            case Op::kBulk:
                warp_.moved_at = warp_.loops;
                ++warp_.changes;
                bulk(inst, mask);
                break;
            case Op::kProxyFence: fence_proxy(inst, mask); break;
            case Op::kMapShared: map_shared(inst, mask); break;
            case Op::kClusterBarrier:
                warp_.moved_at = warp_.loops;
                ++warp_.changes;
                cluster_barrier(inst, mask);
                break;
            case Op::kGridDependency:
                ++warp_.changes;
                grid_dependency(inst, mask);
                break;
            case Op::kSetMaxRegisters:
                ++warp_.changes;
                set_max_registers(inst, mask);
                break;
            case Op::kTexture:  // surfaces are stored to
                warp_.moved_at = warp_.loops;
                ++warp_.changes;
                texture(inst, mask);
                break;
        }
        if (fatal_) [[unlikely]] {
            worker_.instructions += budget - left;
            return StopReason::kFatal;
        }
        continue;
    polled:
        // Other threads of the warp first; the turn ends when there are none.
        polled_ = false;
        warp_.moved_at = warp_.loops;
        if (!running_) break;
        push_entry(pc_, mask_, EntryState::kYielded);
        drop(frame_);
        bool others = false;
        for (const Entry& entry : warp_.entries) others |= entry.state == EntryState::kRunnable;
        if (others && pick()) continue;
        worker_.instructions += budget - left;
        return StopReason::kPolled;
    }
    worker_.instructions += budget - left;
    return warp_.live ? StopReason::kBlocked : StopReason::kDone;
}

namespace {

template <Mode M>
StopReason run_warp(Worker& worker, Block& block, Warp& warp, uint64_t budget) {
    return Interpreter<M>(worker, block, warp).run(budget);
}

constexpr char kLevelTail[] = {
#if defined(__AVX512F__)
    '4',
#elif defined(__AVX2__)
    '3',
#else
    '2',
#endif
    '\0'};

}  // namespace

const Level& level() {
    static const Level table{kLevelTail[0] == '4'   ? "x86-64-v4"
                             : kLevelTail[0] == '3' ? "x86-64-v3"
                                                    : "x86-64-v2",
                             &arith::find,
                             {run_warp<Mode::kPlain>, run_warp<Mode::kChecked>, run_warp<Mode::kCounted>}};
    return table;
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

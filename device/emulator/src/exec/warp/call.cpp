// Calls and returns, the built-in functions, and the end of threads.
#include <algorithm>

#include "../launch/conditional.hpp"
#include "warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::copy_frame_bytes(uint32_t mask, uint32_t from, uint32_t to, uint32_t bytes) {
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t base = static_cast<uint64_t>(thread_of(lane)) * block_.local_stride;
        std::memmove(block_.local + base + to, block_.local + base + from, bytes);
        if (block_.local_state) std::memmove(block_.local_state + base + to, block_.local_state + base + from, bytes);
    });
}

template <Mode M>
void Interpreter<M>::call(const Inst& inst, uint32_t mask, uint32_t function) {
    const CallInfo& call = image_.calls[inst.imm];
    const ImageFunction& callee = image_.functions[function];
    const ImageFunction& caller = image_.functions[warp_.frames[frame_].function];
    const Frame& from = warp_.frames[frame_];
    Frame to;
    to.return_pc = pc_ + 1;
    to.parent = frame_;
    to.depth = from.depth + 1;
    to.offset32 = from.offset32 + caller.bytes32;
    to.offset64 = from.offset64 + caller.bytes64;
    to.offset_predicates = from.offset_predicates + caller.predicates;
    to.local_base = from.local_base + caller.local_bytes;
    to.call = inst.imm;
    to.function = function;
    if (to.offset32 + callee.bytes32 > image_.stack32 || to.offset64 + callee.bytes64 > image_.stack64 ||
        to.offset_predicates + callee.predicates > image_.stack_predicates || to.local_base + callee.local_bytes > image_.stack_local) {
        report_event(worker_, block_, warp_, pc_, std::countr_zero(mask), Finding::kStackOverflow,
                     "the call of " + callee.name + " at depth " + std::to_string(to.depth) + " has no room on the stack");
        return stop_launch(kErrorLaunchFailure);
    }
    const uint32_t arguments = static_cast<uint32_t>(std::min(call.argument_offsets.size(), callee.param_offsets.size()));
    for (uint32_t i = 0; i < arguments; ++i) {
        copy_frame_bytes(mask, from.local_base + call.argument_offsets[i], to.local_base + callee.param_offsets[i],
                         std::min(call.argument_bytes[i], callee.param_bytes[i]));
    }
    // Threads that called before from the same place share the frame, so that they can merge in the callee.
    int32_t index = -1;
    for (const Entry& entry : warp_.entries) {
        const Frame& frame = warp_.frames[entry.frame];
        if (frame.parent == frame_ && frame.return_pc == to.return_pc && frame.function == function) index = entry.frame;
    }
    if (index < 0) {
        if (warp_.free_frames.empty()) {
            index = static_cast<int32_t>(warp_.frames.size());
            warp_.frames.push_back(to);
        } else {
            index = warp_.free_frames.back();
            warp_.free_frames.pop_back();
            warp_.frames[index] = to;
        }
        retain(frame_);  // held by the callee's frame
        uint32_t* predicates = warp_.predicates + to.offset_predicates;
        predicates[0] = ~0u;
    }
    const uint32_t rest = mask_ & ~mask;
    if (rest) push_entry(pc_ + 1, rest, EntryState::kRunnable);
    retain(index);
    drop(frame_);
    frame_ = index;
    mask_ = mask;
    pc_ = callee.entry_pc;
    warp_.loop_low = 0;  // its loop is in several functions
    warp_.loop_high = ~0u;
    bind_frame();
    update_merge();
}

template <Mode M>
void Interpreter<M>::call_indirect(const Inst& inst, uint32_t mask) {
    const uint64_t* targets = row64(inst.a);
    const uint32_t lane = std::countr_zero(mask);
    const uint64_t target = targets[lane];
    uint32_t group = 0;
    for_lanes(mask, [&](uint32_t l) { group |= targets[l] == target ? 1u << l : 0; });
    auto it = image_.function_by_address.find(target);
    if (it == image_.function_by_address.end() || it->second == 0) {
        report_event(worker_, block_, warp_, pc_, lane, Finding::kInvalidPc, "an indirect call to an address that is no function");
        return stop_launch(kErrorInvalidPc);
    }
    if (group != mask) {  // the others call after these: they stay at this instruction
        push_entry(pc_, mask & ~group, EntryState::kRunnable);
        mask_ &= ~(mask & ~group);
    }
    call(inst, group, it->second);
}

template <Mode M>
void Interpreter<M>::return_from(uint32_t mask) {
    finish_wgmma(warp_.wgmma.pending.size());  // the registers go
    const Frame frame = warp_.frames[frame_];
    const CallInfo& call = image_.calls[frame.call];
    const ImageFunction& callee = image_.functions[frame.function];
    const uint32_t caller_base = warp_.frames[frame.parent].local_base;
    const uint32_t results = static_cast<uint32_t>(std::min(call.result_offsets.size(), callee.return_offsets.size()));
    for (uint32_t i = 0; i < results; ++i) {
        copy_frame_bytes(mask, frame.local_base + callee.return_offsets[i], caller_base + call.result_offsets[i],
                         std::min(call.result_bytes[i], callee.return_bytes[i]));
    }
    const uint32_t rest = mask_ & ~mask;
    if (rest) push_entry(pc_ + 1, rest, EntryState::kRunnable);
    const int32_t old = frame_;
    frame_ = frame.parent;
    push_entry(frame.return_pc, mask, EntryState::kRunnable);
    drop(old);
    pick();
}

template <Mode M>
void Interpreter<M>::exit_threads(uint32_t mask) {
    if (!warp_.async.empty()) finish_async(mask, 0, true);
    if (!warp_.bulk_stores.empty() || !block_.mbarriers.empty()) exit_bulk(mask);
    warp_.live &= ~mask;
    block_.live_threads -= std::popcount(mask);
    leave_cluster(mask);
    if (!warp_.live && !block_.wgmma_logs.empty()) check_warpgroup_after_exit();
    if (!warp_.live) wake_warpgroup();
    if (mask_ & ~mask) ++pc_;
    leave(mask);
    check_barriers_after_exit();
    if (!running_)
        pick();
    else
        update_merge();
}

template <Mode M>
void Interpreter<M>::heap_free(uint32_t lane, uint64_t address) {
    if (address == 0) return;
    const FreeResult freed = memory_.release(address, true);
    // What is known of allocations from earlier accesses does not hold any more.
    std::fill(worker_.ranges.begin(), worker_.ranges.end(), Range{});
    if (freed == FreeResult::kOk) return;
    char text[64];
    std::snprintf(text, sizeof text, "free(0x%llx)", static_cast<unsigned long long>(address));
    report_event(worker_, block_, warp_, pc_, lane, freed == FreeResult::kDoubleFree ? Finding::kDoubleFree : Finding::kInvalidFree, text);
    if (!checking(kMemcheck)) return stop_launch(kErrorLaunchFailure);
    std::lock_guard lock(block_.launch->mutex);
    if (block_.launch->status == kSuccess) block_.launch->status = kErrorLaunchFailure;
}

template <Mode M>
void Interpreter<M>::call_builtin(const Inst& inst, uint32_t mask) {
    const CallInfo& call = image_.calls[inst.imm];
    const auto argument = [&](uint32_t lane, size_t i) {
        uint64_t value = 0;
        const uint64_t at = static_cast<uint64_t>(thread_of(lane)) * block_.local_stride + local_base_ + call.argument_offsets[i];
        std::memcpy(&value, block_.local + at, std::min<uint32_t>(call.argument_bytes[i], 8));
        return value;
    };
    if (static_cast<Builtin>(inst.mode) == Builtin::kAssertFail) {
        for_lanes(mask, [&](uint32_t lane) {
            run_assert(worker_, block_, warp_, pc_, lane, argument(lane, 0), argument(lane, 1), static_cast<uint32_t>(argument(lane, 2)),
                       argument(lane, 3));
        });
        return stop_launch(kErrorAssert);
    }
    for_lanes(mask, [&](uint32_t lane) {
        uint64_t result = 0;
        switch (static_cast<Builtin>(inst.mode)) {
            case Builtin::kMalloc: {
                const uint64_t bytes = argument(lane, 0);
                result = bytes ? memory_.allocate(bytes, MemoryKind::kHeap) : 0;
                break;
            }
            case Builtin::kFree: heap_free(lane, argument(lane, 0)); break;
            case Builtin::kSetConditional:
                if (!set_conditional(argument(lane, 0), static_cast<uint32_t>(argument(lane, 1))))
                    report_event(worker_, block_, warp_, pc_, lane, Finding::kConditionalHandle,
                                 "handle " + std::to_string(argument(lane, 0)));
                break;
            default: {
                uint32_t printed = 0;
                run_printf(worker_, block_, warp_, pc_, lane, argument(lane, 0), argument(lane, 1), &printed);
                result = printed;
            }
        }
        if (call.result_offsets.empty()) return;
        const uint64_t at = static_cast<uint64_t>(thread_of(lane)) * block_.local_stride + local_base_ + call.result_offsets[0];
        std::memcpy(block_.local + at, &result, call.result_bytes[0] < 8 ? call.result_bytes[0] : 8);
        if (block_.local_state) std::memset(block_.local_state + at, 1, call.result_bytes[0]);
    });
    ++pc_;
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

// The registers that a loop depends on: a backward slice from its branches, addresses and stored values. A count of turns that only what
// follows the loop reads is not among them.
#include <algorithm>
#include <set>

#include "analysis.hpp"

namespace aicf::emu {
namespace {

using Place = std::pair<RegClass, uint32_t>;

Place place_of_operand(const OperandPlace& operand) { return {operand.kind, operand.offset}; }

}  // namespace

LoopState find_loop_state(const Image& image, uint32_t low, uint32_t high) {
    const auto by_pc = [](const OperandPlace& operand, uint32_t pc) { return operand.pc < pc; };
    const auto first = std::lower_bound(image.operands.begin(), image.operands.end(), low, by_pc);
    const auto last = std::lower_bound(first, image.operands.end(), high + 1, by_pc);
    LoopState state;
    std::set<Place> places;
    for (uint32_t pc = low; pc <= high && pc < image.code.size(); ++pc) {
        const Inst& inst = image.code[pc];
        const bool stores = inst.op == Op::kStore || inst.op == Op::kAsyncCopy || inst.op == Op::kCall || inst.op == Op::kCallIndirect;
        state.stores_local |= stores && inst.space != MemSpace::kGlobal && inst.space != MemSpace::kShared;
    }
    for (auto operand = first; operand != last; ++operand) {
        if (!operand->is_def && !only_computes(image.code[operand->pc].op)) places.insert(place_of_operand(*operand));
    }
    for (bool grows = true; grows;) {
        grows = false;
        for (auto begin = first; begin != last;) {
            auto end = begin;
            bool sets = false;
            for (; end != last && end->pc == begin->pc; ++end) sets |= end->is_def && places.contains(place_of_operand(*end));
            for (auto operand = begin; sets && operand != end; ++operand) {
                if (!operand->is_def) grows |= places.insert(place_of_operand(*operand)).second;
            }
            state.reads_time |= sets && image.code[begin->pc].op == Op::kClock;
            begin = end;
        }
    }
    for (const auto& [kind, offset] : places)
        (kind == RegClass::k32 ? state.rows32 : kind == RegClass::k64 ? state.rows64 : state.predicates).push_back(offset);
    return state;
}

}  // namespace aicf::emu

#include <algorithm>
#include <limits>
#include <set>

#include "program.hpp"

namespace aicf::emu {
namespace {

struct Interval {
    uint32_t reg = 0;
    uint32_t begin = std::numeric_limits<uint32_t>::max();
    uint32_t end = 0;
    void include(uint32_t position) {
        begin = std::min(begin, position);
        end = std::max(end, position);
    }
};

struct BasicBlock {
    uint32_t first = 0, last = 0;  // instructions, inclusive
    std::vector<uint32_t> successors;
    std::vector<uint64_t> use, def, in, out;  // bit sets of registers
};

bool test(const std::vector<uint64_t>& set, uint32_t bit) { return set[bit / 64] >> (bit % 64) & 1; }
void add(std::vector<uint64_t>& set, uint32_t bit) { set[bit / 64] |= 1ull << (bit % 64); }

std::vector<BasicBlock> find_blocks(size_t num_insts, const std::vector<std::vector<uint32_t>>& successors) {
    std::vector<uint8_t> leader(num_insts + 1, 0);
    leader[0] = 1;
    for (uint32_t i = 0; i < num_insts; ++i) {
        const bool falls_through = successors[i].size() == 1 && successors[i][0] == i + 1;
        if (falls_through) continue;
        leader[i + 1] = 1;
        for (uint32_t target : successors[i]) leader[target] = 1;
    }
    std::vector<BasicBlock> blocks;
    std::vector<uint32_t> block_of(num_insts, 0);
    for (uint32_t i = 0; i < num_insts; ++i) {
        if (leader[i]) {
            blocks.emplace_back();
            blocks.back().first = i;
        }
        blocks.back().last = i;
        block_of[i] = static_cast<uint32_t>(blocks.size() - 1);
    }
    for (BasicBlock& block : blocks) {
        for (uint32_t target : successors[block.last]) {
            if (target < num_insts) block.successors.push_back(block_of[target]);
        }
    }
    return blocks;
}

}  // namespace

FrameSizes allot_registers(std::vector<Inst>& code, std::vector<uint32_t>& operand_lists,
                           const std::vector<std::vector<uint32_t>>& successors, const std::vector<Ref>& refs,
                           const std::vector<RegClass>& classes) {
    const uint32_t num_registers = static_cast<uint32_t>(classes.size());
    const size_t words = (num_registers + 63) / 64;
    std::vector<BasicBlock> blocks = code.empty() ? std::vector<BasicBlock>{} : find_blocks(code.size(), successors);
    std::vector<uint32_t> first_ref(code.size() + 1, static_cast<uint32_t>(refs.size()));
    for (uint32_t i = static_cast<uint32_t>(refs.size()); i-- > 0;) first_ref[refs[i].inst] = i;
    for (size_t i = code.size(); i-- > 0;) first_ref[i] = std::min(first_ref[i], first_ref[i + 1]);

    // A definition under a guard keeps the other lanes' old value: it counts as a use as well.
    for (BasicBlock& block : blocks) {
        block.use.assign(words, 0);
        block.def.assign(words, 0);
        block.in.assign(words, 0);
        block.out.assign(words, 0);
        for (uint32_t i = block.first; i <= block.last; ++i) {
            const bool guarded = code[i].guard != kPredTrue;
            for (uint32_t k = first_ref[i]; k < first_ref[i + 1]; ++k) {
                if ((!refs[k].is_def || guarded) && !test(block.def, refs[k].reg)) add(block.use, refs[k].reg);
            }
            if (guarded) continue;
            for (uint32_t k = first_ref[i]; k < first_ref[i + 1]; ++k) {
                if (refs[k].is_def) add(block.def, refs[k].reg);
            }
        }
    }
    for (bool changed = true; changed;) {
        changed = false;
        for (size_t index = blocks.size(); index-- > 0;) {
            BasicBlock& block = blocks[index];
            for (uint32_t successor : block.successors) {
                for (size_t w = 0; w < words; ++w) block.out[w] |= blocks[successor].in[w];
            }
            for (size_t w = 0; w < words; ++w) {
                const uint64_t in = block.use[w] | (block.out[w] & ~block.def[w]);
                changed |= in != block.in[w];
                block.in[w] = in;
            }
        }
    }

    // Positions: 2i reads of instruction i, 2i + 1 its writes. A source that dies at i may share its row with a destination of i.
    std::vector<Interval> intervals(num_registers);
    for (const Ref& ref : refs) intervals[ref.reg].include(2 * ref.inst + (ref.is_def ? 1 : 0));
    for (const BasicBlock& block : blocks) {
        for (uint32_t reg = 0; reg < num_registers; ++reg) {
            if (test(block.in, reg)) intervals[reg].include(2 * block.first);
            if (test(block.out, reg)) intervals[reg].include(2 * block.last + 1);
        }
    }
    std::vector<Interval> order;
    for (uint32_t reg = 0; reg < num_registers; ++reg) {
        intervals[reg].reg = reg;
        if (intervals[reg].begin <= intervals[reg].end) order.push_back(intervals[reg]);
    }
    std::sort(order.begin(), order.end(), [](const Interval& x, const Interval& y) { return x.begin < y.begin; });

    std::vector<uint32_t> place(num_registers, 0);
    uint32_t high[3] = {0, 0, kPredFirstFree};
    std::set<uint32_t> free_places[3];
    std::multimap<uint32_t, uint32_t> active;  // end -> register
    for (const Interval& interval : order) {
        while (!active.empty() && active.begin()->first < interval.begin) {
            const uint32_t dead = active.begin()->second;
            free_places[static_cast<int>(classes[dead])].insert(place[dead]);
            active.erase(active.begin());
        }
        const int kind = static_cast<int>(classes[interval.reg]);
        if (free_places[kind].empty()) {
            place[interval.reg] = high[kind]++;
        } else {
            place[interval.reg] = *free_places[kind].begin();
            free_places[kind].erase(free_places[kind].begin());
        }
        active.emplace(interval.end, interval.reg);
    }

    std::vector<uint64_t> read(words, 0);
    for (const Ref& ref : refs)
        if (!ref.is_def) add(read, ref.reg);
    for (const Ref& ref : refs) {
        Inst& inst = code[ref.inst];
        if (inst.op == Op::kAtomic && inst.vec == 1 && inst.bytes != 16 && ref.is_def && !test(read, ref.reg)) inst.flags |= kFlagUnread;
        const uint32_t at = place[ref.reg];
        const uint32_t operand =
            classes[ref.reg] == RegClass::k64 ? make_operand(kBase64, at * kRow64Bytes) : make_operand(kBase32, at * kRow32Bytes);
        const auto predicate = [&](uint16_t old) { return static_cast<uint16_t>((at << 1) | (old & 1)); };
        switch (ref.field) {
            case Field::kD: inst.d = operand; break;
            case Field::kA: inst.a = operand; break;
            case Field::kB: inst.b = operand; break;
            case Field::kC: inst.c = operand; break;
            case Field::kE: inst.e = operand; break;
            case Field::kPd: inst.pd = predicate(0); break;
            case Field::kQd: inst.qd = predicate(0); break;
            case Field::kPa: inst.pa = predicate(inst.pa); break;
            case Field::kPb: inst.pb = predicate(inst.pb); break;
            case Field::kGuard: inst.guard = predicate(inst.guard); break;
            case Field::kListed: operand_lists[ref.slot] = operand; break;
        }
    }
    return {high[0] * kRow32Bytes, high[1] * kRow64Bytes, high[2], std::move(place)};
}

}  // namespace aicf::emu

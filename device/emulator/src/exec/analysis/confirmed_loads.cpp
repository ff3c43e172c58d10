// Plain loads whose value a compare-and-swap of the same word confirms before anything comes of it: the first read of the loop that makes
// an atomic operation of one's own (CUDA Programming Guide, "Atomic Functions"). A race of such a load cannot change what the loop does.
// And plain loads whose value nothing comes of: no branch, address, store or the like depends on it.
#include <algorithm>
#include <set>

#include "analysis.hpp"

namespace aicf::emu {
namespace {

using Registers = std::set<uint32_t>;

class ConfirmedLoads {
public:
    ConfirmedLoads(const std::vector<Inst>& code, const std::vector<InstInfo>& info, const std::vector<std::vector<uint32_t>>& successors,
                   const std::vector<Ref>& refs)
        : code_(code), info_(info), successors_(successors), refs_(refs), first_ref_(code.size() + 1, static_cast<uint32_t>(refs.size())) {
        for (uint32_t i = static_cast<uint32_t>(refs.size()); i-- > 0;) first_ref_[refs[i].inst] = i;
        for (size_t i = code.size(); i-- > 0;) first_ref_[i] = std::min(first_ref_[i], first_ref_[i + 1]);
        for (const Ref& ref : refs) {
            if (!ref.is_def) continue;
            if (ref.reg >= definitions_.size()) definitions_.resize(ref.reg + 1, kNone);
            definitions_[ref.reg] = definitions_[ref.reg] == kNone ? ref.inst : kSeveral;
        }
    }

    // The instruction that confirms what `load` reads; ~0: none does, or the value goes somewhere before.
    uint32_t find(uint32_t load) const {
        const Inst& inst = code_[load];
        const bool is_plain = inst.op == Op::kLoad && inst.vec == 1 && !(inst.order & kOrderStrong);
        if (!is_plain || inst.space == MemSpace::kParam || inst.space == MemSpace::kConst) return kNone;
        for (uint32_t i = 0; i < code_.size(); ++i) {
            if (swaps_word_of(load, i)) return follow(load);
        }
        return kNone;
    }

private:
    static constexpr uint32_t kNone = ~0u, kSeveral = ~0u - 1;

    // Where an instruction accesses memory: a register that is set once, and a distance from it.
    struct Word {
        uint32_t base = kNone;  // kNone: an address that is known, kSeveral: it cannot be compared
        int64_t offset = 0;
        bool operator==(const Word&) const = default;
    };

    Word word_of(uint32_t at) const {
        Word word{kNone, code_[at].offset};
        if (!(code_[at].flags & kFlagHasBase)) return word;
        for (uint32_t k = first_ref_[at]; k < first_ref_[at + 1]; ++k) {
            if (refs_[k].field == Field::kA && !refs_[k].is_def) word.base = refs_[k].reg;
        }
        // Through sums with constants.
        for (uint32_t from = definition(word.base); from < code_.size(); from = definition(word.base)) {
            const ptx::Instruction* instruction = info_[from].instruction;
            if (!instruction || instruction->opcode != "add" || code_[from].guard != kPredTrue) break;
            if (instruction->operands.size() != 3 || instruction->operands[2].kind != ptx::Operand::Kind::kImmediate) break;
            uint32_t source = kNone;
            for (uint32_t k = first_ref_[from]; k < first_ref_[from + 1]; ++k) {
                if (!refs_[k].is_def) source = refs_[k].reg;
            }
            if (source == kNone) break;
            word.offset += static_cast<int64_t>(instruction->operands[2].bits);
            word.base = source;
        }
        if (definition(word.base) == kSeveral) word.base = kSeveral;
        return word;
    }

    uint32_t definition(uint32_t reg) const { return reg < definitions_.size() ? definitions_[reg] : kNone; }

    bool swaps_word_of(uint32_t load, uint32_t at) const {
        const Inst& other = code_[at];
        if (other.op != Op::kAtomic || static_cast<AtomOp>(other.mode) != AtomOp::kCas || other.bytes != code_[load].bytes) return false;
        const Word word = word_of(load);
        return word.base != kSeveral && word == word_of(at) && (word.base != kNone || other.space == code_[load].space);
    }

    // Follows the value, and all that is computed from it, to the compare-and-swap.
    uint32_t follow(uint32_t load) const {
        std::vector<Registers> held(code_.size());  // before each instruction: registers that depend on the value
        Registers loaded;
        for (uint32_t k = first_ref_[load]; k < first_ref_[load + 1]; ++k) {
            if (refs_[k].is_def) loaded.insert(refs_[k].reg);
        }
        uint32_t confirmed_by = kNone;
        std::vector<uint32_t> todo;
        const auto pass_on = [&](uint32_t from, const Registers& registers) {
            for (const uint32_t next : successors_[from]) {
                const size_t before = held[next].size();
                held[next].insert(registers.begin(), registers.end());
                if (held[next].size() != before) todo.push_back(next);
            }
        };
        pass_on(load, loaded);
        while (!todo.empty()) {
            const uint32_t at = todo.back();
            todo.pop_back();
            const Inst& inst = code_[at];
            Registers registers = held[at];
            bool uses = false, compares = false;
            for (uint32_t k = first_ref_[at]; k < first_ref_[at + 1]; ++k) {
                const Ref& ref = refs_[k];
                if (ref.is_def || !registers.contains(ref.reg)) continue;
                if (ref.field == Field::kGuard && !only_computes(inst.op)) continue;  // where it goes on, not what it does
                uses = true;
                compares |= ref.field == Field::kB;
            }
            if (uses && compares && swaps_word_of(load, at)) {
                confirmed_by = at;
                continue;  // past this it is what was there
            }
            if (uses && !only_computes(inst.op)) return kNone;
            for (uint32_t k = first_ref_[at]; k < first_ref_[at + 1]; ++k) {
                if (!refs_[k].is_def) continue;
                if (uses)
                    registers.insert(refs_[k].reg);
                else if (inst.guard == kPredTrue)
                    registers.erase(refs_[k].reg);
            }
            pass_on(at, registers);
        }
        return confirmed_by;
    }

    const std::vector<Inst>& code_;
    const std::vector<InstInfo>& info_;
    const std::vector<std::vector<uint32_t>>& successors_;
    const std::vector<Ref>& refs_;
    std::vector<uint32_t> first_ref_;
    std::vector<uint32_t> definitions_;  // by register: the instruction that sets it; kSeveral: more than one does
};

bool is_plain_load(const Inst& inst) {
    if (inst.op != Op::kLoad || (inst.order & kOrderStrong)) return false;
    return inst.space == MemSpace::kGlobal || inst.space == MemSpace::kShared || inst.space == MemSpace::kGeneric;
}

// By register: whether anything but arithmetic depends on it, at any place of the function.
std::vector<bool> find_registers_that_matter(const std::vector<Inst>& code, const std::vector<Ref>& refs) {
    std::vector<bool> matters;
    for (const Ref& ref : refs) matters.resize(std::max<size_t>(matters.size(), ref.reg + 1));
    for (const Ref& ref : refs) {
        if (!ref.is_def && !only_computes(code[ref.inst].op)) matters[ref.reg] = true;
    }
    for (bool grows = true; grows;) {
        grows = false;
        for (size_t end = refs.size(); end != 0;) {  // backwards: most values are used after they are made
            size_t begin = end;
            bool makes = false;
            while (begin != 0 && refs[begin - 1].inst == refs[end - 1].inst) {
                --begin;
                makes |= refs[begin].is_def && matters[refs[begin].reg];
            }
            for (size_t k = begin; makes && k != end; ++k) {
                if (refs[k].is_def || matters[refs[k].reg]) continue;
                matters[refs[k].reg] = true;
                grows = true;
            }
            end = begin;
        }
    }
    return matters;
}

void add_discarded_loads(std::vector<std::pair<uint32_t, uint32_t>>& found, const std::vector<Inst>& code, const std::vector<Ref>& refs) {
    const std::vector<bool> matters = find_registers_that_matter(code, refs);
    std::vector<bool> is_used(code.size());
    for (const Ref& ref : refs) {
        if (ref.is_def && matters[ref.reg]) is_used[ref.inst] = true;
    }
    for (uint32_t i = 0; i < code.size(); ++i) {
        if (is_plain_load(code[i]) && !is_used[i]) found.emplace_back(i, kValueDiscarded);
    }
}

}  // namespace

std::vector<std::pair<uint32_t, uint32_t>> find_confirmed_loads(const std::vector<Inst>& code, const std::vector<InstInfo>& info,
                                                                const std::vector<std::vector<uint32_t>>& successors,
                                                                const std::vector<Ref>& refs) {
    std::vector<std::pair<uint32_t, uint32_t>> found;
    const bool has_swap = std::any_of(code.begin(), code.end(), [](const Inst& inst) {
        return inst.op == Op::kAtomic && static_cast<AtomOp>(inst.mode) == AtomOp::kCas;
    });
    add_discarded_loads(found, code, refs);
    if (!has_swap) return found;
    const ConfirmedLoads loads(code, info, successors, refs);
    for (uint32_t i = 0; i < code.size(); ++i) {
        if (const uint32_t by = loads.find(i); by != ~0u) found.emplace_back(i, by);
    }
    return found;
}

}  // namespace aicf::emu

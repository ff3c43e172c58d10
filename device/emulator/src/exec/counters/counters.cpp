// Counters of a launch from those of its instructions.
#include "counters.hpp"

#include <algorithm>

#include "../launch/engine.hpp"

namespace aicf::emu {

void Counters::add(const Counters& other) {
#define AICF_COUNTER_ADD(name) name += other.name;
    AICF_COUNTERS(AICF_COUNTER_ADD)
#undef AICF_COUNTER_ADD
}

std::map<std::string, uint64_t> Counters::to_map(bool with_zeros) const {
    std::map<std::string, uint64_t> values;
#define AICF_COUNTER_ENTRY(name) \
    if (with_zeros || name != 0) values.emplace(#name, name);
    AICF_COUNTERS(AICF_COUNTER_ENTRY)
#undef AICF_COUNTER_ENTRY
    return values;
}

namespace {

// The class of an instruction is known beforehand, so only its executions are counted while it runs.
void count_class(Counters& counters, const Inst& inst) {
    const uint64_t executed = counters.warp_instructions;
    switch (inst.counter) {
        case arith::Class::kFp32:
            counters.fp32 += executed;
            counters.fp32_fma += inst.is_fma ? executed : 0;
            break;
        case arith::Class::kFp64: counters.fp64 += executed; break;
        case arith::Class::kFp16: counters.fp16 += executed; break;
        case arith::Class::kInteger: counters.integer += executed; break;
        case arith::Class::kSpecial: counters.special += executed; break;
        case arith::Class::kConversion: counters.conversion += executed; break;
        case arith::Class::kControl: counters.control += executed; break;
        case arith::Class::kMove:
            if (inst.op <= Op::kWiden || inst.op == Op::kCvtaTo || inst.op == Op::kCvtaFrom) counters.move += executed;
            break;
    }
    if (inst.op == Op::kLoadParam32 || inst.op == Op::kLoadParam64) counters.param_loads += executed;
}

}  // namespace

std::vector<LineCounters> collect_lines(const LaunchState& state, const std::vector<Worker>& workers) {
    const Image& image = *state.image;
    std::vector<LineCounters> lines;
    std::map<std::pair<uint32_t, uint32_t>, size_t> index;  // (function, PTX line) -> lines: the decoder may make several of one
    for (size_t pc = 0; pc < image.code.size(); ++pc) {
        Counters counters;
        for (const Worker& worker : workers) counters.add(worker.lines[pc]);
        count_class(counters, image.code[pc]);
        if (counters.to_map(false).empty()) continue;
        const InstInfo& info = image.info[pc];
        const auto [found, is_new] = index.try_emplace({info.function, info.where.ptx_line}, lines.size());
        if (is_new) {
            const std::string& function = image.functions[info.function].name;
            lines.push_back({info.where.ptx_line,
                             state.program->module.source_of(info.where),
                             function,
                             info.instruction ? info.instruction->spelling() : "",
                             {}});
        }
        lines[found->second].counts.add(counters);
    }
    std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.ptx_line < b.ptx_line; });
    return lines;
}

uint32_t SectorSet::insert(uint64_t sector, uint32_t kinds) {
    if (used_ * 2 >= slots_.size()) grow();
    const uint64_t mask = slots_.size() - 1;
    for (uint64_t at = (sector * 0x9E3779B97F4A7C15ull) >> 32 & mask;; at = (at + 1) & mask) {
        Slot& slot = slots_[at];
        if (slot.epoch != epoch_) {
            slot = {sector, epoch_, kinds};
            ++used_;
            return kinds;
        }
        if (slot.sector != sector) continue;
        const uint32_t news = kinds & ~slot.kinds;
        slot.kinds |= kinds;
        return news;
    }
}

bool SectorSet::holds(uint64_t sector, uint32_t kind) const {
    if (slots_.empty()) return false;
    const uint64_t mask = slots_.size() - 1;
    for (uint64_t at = (sector * 0x9E3779B97F4A7C15ull) >> 32 & mask; slots_[at].epoch == epoch_; at = (at + 1) & mask) {
        if (slots_[at].sector == sector) return slots_[at].kinds & kind;
    }
    return false;
}

void SectorSet::clear() {
    used_ = 0;
    if (++epoch_ != 0) return;
    slots_.assign(slots_.size(), Slot{});
    epoch_ = 1;
}

void SectorSet::grow() {
    std::vector<Slot> old(std::max<size_t>(256, slots_.size() * 2));
    old.swap(slots_);
    used_ = 0;
    for (const Slot& slot : old) {
        if (slot.epoch == epoch_) insert(slot.sector, slot.kinds);
    }
}

}  // namespace aicf::emu

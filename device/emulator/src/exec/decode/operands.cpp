// Operands of instructions: registers, immediates, symbols, addresses.
#include <bit>

#include "decode.hpp"

namespace aicf::emu {
namespace {

using ptx::Operand;
using ptx::Type;

// The bits of an immediate as an operand of `type` reads it: integers by their low bits, floating-point types by value.
uint64_t immediate_bits(const Operand& operand, Type type) {
    const bool to_float = type == Type::kF32 || type == Type::kF64;
    if (!to_float) return operand.bits;
    double value = 0;
    switch (operand.immediate_type) {
        case Type::kF32:
            if (type == Type::kF32) return operand.bits;
            value = std::bit_cast<float>(static_cast<uint32_t>(operand.bits));
            break;
        case Type::kF64:
            if (type == Type::kF64) return operand.bits;
            value = std::bit_cast<double>(operand.bits);
            break;
        case Type::kU64: value = static_cast<double>(operand.bits); break;
        default: value = static_cast<double>(static_cast<int64_t>(operand.bits)); break;
    }
    if (type == Type::kF64) return std::bit_cast<uint64_t>(value);
    return std::bit_cast<uint32_t>(static_cast<float>(value));
}

struct SpecialName {
    const char* name;
    Special special;
    bool row64;
};

constexpr SpecialName kSpecialNames[] = {
    {"%laneid", Special::kLaneid, false},
    {"%warpid", Special::kWarpid, false},
    {"%nwarpid", Special::kNwarpid, false},
    {"%smid", Special::kSmid, false},
    {"%nsmid", Special::kNsmid, false},
    {"%gridid", Special::kGridid64, true},
    {"%lanemask_eq", Special::kLanemaskEq, false},
    {"%lanemask_lt", Special::kLanemaskLt, false},
    {"%lanemask_le", Special::kLanemaskLe, false},
    {"%lanemask_gt", Special::kLanemaskGt, false},
    {"%lanemask_ge", Special::kLanemaskGe, false},
    {"%dynamic_smem_size", Special::kDynamicSmem, false},
    {"%total_smem_size", Special::kTotalSmem, false},
    {"%aggr_smem_size", Special::kTotalSmem, false},
    {"%cluster_ctarank", Special::kClusterCtarank, false},
    {"%cluster_nctarank", Special::kClusterNctarank, false},
    {"%current_graph_exec", Special::kZero64, true},
};

Special offset_special(Special first, int member) { return static_cast<Special>(static_cast<int>(first) + member); }

}  // namespace

const Operand& FunctionDecoder::operand(size_t index) const {
    if (index >= current_->operands.size()) fail("operand " + std::to_string(index + 1) + " is missing");
    return current_->operands[index];
}

void FunctionDecoder::expect_operands(size_t least, size_t most) const {
    const size_t count = current_->operands.size();
    if (count < least || count > most) fail("it has " + std::to_string(count) + " operands");
}

uint32_t FunctionDecoder::register_id(const std::string& name) const {
    auto it = registers_.find(name);
    if (it == registers_.end()) fail("register '" + name + "' is not declared");
    return it->second;
}

uint32_t FunctionDecoder::new_temporary(RegClass kind) {
    classes_.push_back(kind);
    return static_cast<uint32_t>(classes_.size() - 1);
}

void FunctionDecoder::reference(Field field, uint32_t reg, bool is_def) { pending_.push_back({0, field, is_def, reg}); }

void FunctionDecoder::emit_hidden(Inst inst, const std::vector<Ref>& refs) {
    inst.flags |= kFlagHidden;
    const uint32_t at = static_cast<uint32_t>(code_.size());
    for (Ref ref : refs) {
        ref.inst = at;
        refs_.push_back(ref);
    }
    code_.push_back(inst);
    info_.push_back({current_->where, index_, current_});
}

namespace {

// The instruction's place in the memory model, from its qualifiers; those of one family mean the same in all its instructions.
uint8_t order_flags(const ptx::Instruction& instruction) {
    uint8_t flags = 0;
    const std::string& opcode = instruction.opcode;
    const bool fence = opcode == "fence" || opcode == "membar";
    if (fence || opcode == "atom" || opcode == "red") flags |= kOrderStrong;
    if (opcode == "membar" && !instruction.modifiers.empty() && instruction.modifiers[0] == "cta") flags |= kOrderBlock;
    for (const std::string& word : instruction.modifiers) {
        if (word == "volatile" || word == "relaxed" || word == "mmio") flags |= kOrderStrong;
        if (word == "acquire") flags |= kOrderStrong | kOrderAcquire;
        if (word == "release") flags |= kOrderStrong | kOrderRelease;
        if (word == "acq_rel" || word == "sc") flags |= kOrderStrong | kOrderAcquire | kOrderRelease;
        if (word == "cta") flags |= kOrderBlock;
    }
    return flags;
}

}  // namespace

void FunctionDecoder::emit(Inst inst) {
    apply_guard(inst);
    inst.order = order_flags(*current_);
    const uint32_t at = static_cast<uint32_t>(code_.size());
    for (Ref ref : pending_) {
        ref.inst = at;
        refs_.push_back(ref);
    }
    std::vector<Ref> guard_refs;
    for (const Ref& ref : pending_) {
        if (ref.field == Field::kGuard) guard_refs.push_back(ref);
    }
    code_.push_back(inst);
    info_.push_back({current_->where, index_, current_});
    for (auto& [hidden, refs] : after_) {
        hidden.guard = inst.guard;
        std::vector<Ref> all = refs;
        all.insert(all.end(), guard_refs.begin(), guard_refs.end());
        emit_hidden(hidden, all);
    }
    pending_.clear();
    after_.clear();
}

void FunctionDecoder::apply_guard(Inst& inst) {
    if (current_->guard.empty()) return;
    inst.guard = kPredPending | (current_->guard_negated ? 1 : 0);
    const uint32_t reg = register_id(current_->guard);
    if (class_of(reg) != RegClass::kPred) fail("the guard is not a predicate");
    reference(Field::kGuard, reg, false);
}

namespace {
void set_field(Inst& inst, Field field, uint32_t value) {
    switch (field) {
        case Field::kD: inst.d = value; break;
        case Field::kA: inst.a = value; break;
        case Field::kB: inst.b = value; break;
        case Field::kC: inst.c = value; break;
        case Field::kE: inst.e = value; break;
        default: break;
    }
}
}  // namespace

uint32_t FunctionDecoder::listed_source(const Operand& operand, uint8_t row_bytes, Type immediate_type) {
    // As an operand of a field, then moved to the list: constants are known now, registers are patched when they get a place.
    const uint32_t slot = static_cast<uint32_t>(builder_.image->operand_lists.size());
    Inst holder;
    const size_t before = pending_.size();
    source(holder, Field::kA, operand, row_bytes, immediate_type);
    builder_.image->operand_lists.push_back(holder.a);
    for (size_t i = before; i < pending_.size(); ++i) {
        pending_[i].field = Field::kListed;
        pending_[i].slot = slot;
    }
    return slot;
}

uint32_t FunctionDecoder::listed_destination(const Operand& operand, uint8_t row_bytes) {
    const uint32_t slot = static_cast<uint32_t>(builder_.image->operand_lists.size());
    Inst holder;
    const size_t before = pending_.size();
    destination(holder, Field::kD, operand, row_bytes);
    builder_.image->operand_lists.push_back(0);
    for (size_t i = before; i < pending_.size(); ++i) {
        pending_[i].field = Field::kListed;
        pending_[i].slot = slot;
    }
    return slot;
}

void FunctionDecoder::source(Inst& inst, Field field, const Operand& operand, uint8_t row_bytes, Type immediate_type) {
    const bool row64 = row_bytes == 8;
    const auto fixed = [&](uint32_t encoded) { set_field(inst, field, encoded); };
    switch (operand.kind) {
        case Operand::Kind::kImmediate: return fixed(builder_.constant_row(immediate_bits(operand, immediate_type), row64));
        case Operand::Kind::kSymbol: {
            uint64_t value = 0;
            if (!symbol_value(operand.name, value)) fail("symbol '" + operand.name + "' cannot be used here");
            return fixed(builder_.constant_row(value + static_cast<uint64_t>(operand.offset), row64));
        }
        case Operand::Kind::kRegister: break;
        default: fail("an operand of this kind is not expected here");
    }
    if (operand.negated) fail("unary minus on a register");
    if (is_declared(operand.name) && operand.member < 0) {
        const uint32_t reg = register_id(operand.name);
        const RegClass kind = class_of(reg);
        if (kind == RegClass::kPred) fail("operand '" + operand.name + "' is a predicate");
        if ((kind == RegClass::k64) == row64) return reference(field, reg, false);
        Inst convert;
        convert.op = row64 ? Op::kWiden : Op::kNarrow;
        const uint32_t temporary = new_temporary(row64 ? RegClass::k64 : RegClass::k32);
        emit_hidden(convert, {{0, Field::kA, false, reg}, {0, Field::kD, true, temporary}});
        return reference(field, temporary, false);
    }
    struct Vector {
        const char* name;
        Special first;
    };
    constexpr Vector kVectors[] = {{"%tid", Special::kTidX},
                                   {"%ntid", Special::kNtidX},
                                   {"%ctaid", Special::kCtaidX},
                                   {"%nctaid", Special::kNctaidX},
                                   {"%clusterid", Special::kClusteridX},
                                   {"%nclusterid", Special::kNclusteridX},
                                   {"%cluster_ctaid", Special::kClusterCtaidX},
                                   {"%cluster_nctaid", Special::kClusterNctaidX}};
    for (const Vector& vector : kVectors) {
        if (operand.name == vector.name && operand.member >= 0) {
            if (row64) fail("special register '" + operand.name + "' has 32 bits");
            return fixed(builder_.special_row(offset_special(vector.first, operand.member), false));
        }
    }
    if (operand.name == "%envreg1" || operand.name == "%envreg2") {  // where cooperative groups find the grid's barrier
        builder_.image->uses_workspace = true;
        return fixed(builder_.special_row(operand.name == "%envreg1" ? Special::kEnvironment1 : Special::kEnvironment2, false));
    }
    if (operand.name.rfind("%envreg", 0) == 0) return fixed(builder_.special_row(Special::kZero32, false));
    if (operand.name == "%reserved_smem_offset_1") return fixed(builder_.constant_row(builder_.shared_symbols.at(operand.name), row64));
    if (operand.name == "WARP_SZ") return fixed(builder_.constant_row(32, row64));
    for (const SpecialName& entry : kSpecialNames) {
        if (operand.name != entry.name) continue;
        if (entry.special == Special::kGridid64 && !row64) return fixed(builder_.special_row(Special::kGridid32, false));
        if (entry.row64 != row64) fail("special register '" + operand.name + "' has another width");
        return fixed(builder_.special_row(entry.special, row64));
    }
    fail("register '" + operand.name + "' is not known");
}

void FunctionDecoder::source_predicate(Inst& inst, Field field, const Operand& operand) {
    uint16_t& slot = field == Field::kPa ? inst.pa : inst.pb;
    if (operand.kind == Operand::Kind::kImmediate) {
        slot = (operand.bits != 0) != operand.negated ? kPredTrue : kPredFalse;
        return;
    }
    if (operand.kind != Operand::Kind::kRegister) fail("a predicate is expected");
    const uint32_t reg = register_id(operand.name);
    if (class_of(reg) != RegClass::kPred) fail("operand '" + operand.name + "' is not a predicate");
    slot = operand.negated ? 1 : 0;
    reference(field, reg, false);
}

void FunctionDecoder::destination([[maybe_unused]] Inst& inst, Field field, const Operand& operand, uint8_t row_bytes, bool sign_extend) {
    const RegClass wanted = row_bytes == 8 ? RegClass::k64 : RegClass::k32;
    if (operand.kind == Operand::Kind::kSink) return reference(field, new_temporary(wanted), true);
    if (operand.kind != Operand::Kind::kRegister) fail("a destination register is expected");
    const uint32_t reg = register_id(operand.name);
    const RegClass kind = class_of(reg);
    if (kind == RegClass::kPred) fail("destination '" + operand.name + "' is a predicate");
    if (kind == wanted) return reference(field, reg, true);
    if (kind == RegClass::k32) fail("destination '" + operand.name + "' is narrower than the result");
    const uint32_t temporary = new_temporary(RegClass::k32);
    reference(field, temporary, true);
    Inst widen;
    widen.op = Op::kWiden;
    widen.flags = sign_extend ? kFlagSignExtend : 0;
    after_.push_back({widen, {{0, Field::kA, false, temporary}, {0, Field::kD, true, reg}}});
}

void FunctionDecoder::destination_predicate(Inst& inst, Field field, const Operand& operand) {
    if (operand.kind == Operand::Kind::kSink) {
        (field == Field::kPd ? inst.pd : inst.qd) = kPredSlotTrash << 1;
        return;
    }
    if (operand.kind != Operand::Kind::kRegister) fail("a destination predicate is expected");
    const uint32_t reg = register_id(operand.name);
    if (class_of(reg) != RegClass::kPred) fail("destination '" + operand.name + "' is not a predicate");
    reference(field, reg, true);
}

bool FunctionDecoder::symbol_value(const std::string& name, uint64_t& value) const {
    if (auto it = builder_.shared_symbols.find(name); it != builder_.shared_symbols.end()) {
        value = it->second;
        return true;
    }
    if (auto it = kernel_params_.find(name); it != kernel_params_.end()) {
        value = it->second;
        return true;
    }
    if (auto it = builder_.program.variables.find(name); it != builder_.program.variables.end()) {
        value = it->second.address;
        return true;
    }
    value = function_address(builder_.program.module, name);
    return value != 0;
}

FunctionDecoder::Address FunctionDecoder::address_of(const Operand& operand) const {
    if (operand.kind != Operand::Kind::kAddress) fail("an address in brackets is expected");
    Address address;
    address.offset = operand.offset;
    if (operand.base_is_register) {
        address.base_register = register_id(operand.name);
        if (class_of(address.base_register) == RegClass::kPred) fail("the address is a predicate");
        address.base64 = class_of(address.base_register) == RegClass::k64;
        return address;
    }
    if (operand.name.empty()) return address;
    address.is_symbol = true;
    if (auto it = frame_.find(operand.name); it != frame_.end()) {
        address.offset += it->second;
        address.space = MemSpace::kFrame;
        return address;
    }
    uint64_t value = 0;
    if (!symbol_value(operand.name, value)) fail("symbol '" + operand.name + "' is not defined");
    address.offset += static_cast<int64_t>(value);
    if (builder_.shared_symbols.contains(operand.name)) address.space = MemSpace::kShared;
    if (kernel_params_.contains(operand.name)) address.space = MemSpace::kParam;
    return address;
}

void FunctionDecoder::apply_address(Inst& inst, const Address& address) {
    inst.offset = address.offset;
    if (address.base_register == ~0u) return;
    inst.flags |= kFlagHasBase | (address.base64 ? kFlagBase64 : 0);
    reference(Field::kA, address.base_register, false);
}

void FunctionDecoder::narrow_access(uint32_t bytes, MemSpace space) {
    const uint32_t shift = bytes >= 4 ? 2 : bytes == 2 ? 1 : 0;
    Image& image = *builder_.image;
    if (space == MemSpace::kShared || space == MemSpace::kGeneric) image.race_shift = std::min(image.race_shift, shift);
    if (space == MemSpace::kGlobal || space == MemSpace::kGeneric) image.global_shift = std::min(image.global_shift, shift);
}

}  // namespace aicf::emu

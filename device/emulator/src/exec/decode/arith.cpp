// Lane arithmetic and moves.
#include <cstring>

#include "decode.hpp"

namespace aicf::emu {

using ptx::Operand;
using ptx::Type;

void FunctionDecoder::decode_arith() {
    const arith::Operation operation = builder_.find_arith(*current_);
    if (!operation.fn) fail(operation.reason.empty() ? "it is not known" : operation.reason);
    Inst inst;
    inst.op = Op::kArith;
    inst.fn = operation.fn;
    inst.counter = operation.counter;
    inst.is_fma = operation.is_fma;
    inst.imm = operation.immediate;
    inst.pd = inst.qd = kPredSlotTrash << 1;
    inst.d = builder_.constant_row(0, true);
    inst.a = inst.b = inst.c = inst.e = inst.d;
    size_t index = 0;
    for (const char* letter = operation.operands; *letter; ++letter, ++index) {
        const Operand& op = operand(index);
        if (std::strchr("PDpq", *letter)) inst.flags |= kFlagPredicates;
        if (*letter == 'e') inst.flags |= kFlagFourth;
        switch (*letter) {
            case 'd': destination(inst, Field::kD, op, operation.d_bytes); break;
            case 'a': source(inst, Field::kA, op, operation.a_bytes, operation.a_type); break;
            case 'b': source(inst, Field::kB, op, operation.b_bytes, operation.b_type); break;
            case 'c': source(inst, Field::kC, op, operation.c_bytes, operation.c_type); break;
            case 'e': source(inst, Field::kE, op, operation.e_bytes, operation.e_bytes == 8 ? Type::kB64 : Type::kB32); break;
            case 'P':
                if (op.kind == Operand::Kind::kPair) {
                    destination_predicate(inst, Field::kPd, op.elements.at(0));
                    destination_predicate(inst, Field::kQd, op.elements.at(1));
                } else {
                    destination_predicate(inst, Field::kPd, op);
                }
                break;
            case 'D':
                if (op.kind == Operand::Kind::kPair) {
                    destination(inst, Field::kD, op.elements.at(0), operation.d_bytes);
                    destination_predicate(inst, Field::kPd, op.elements.at(1));
                } else {
                    destination(inst, Field::kD, op, operation.d_bytes);
                }
                break;
            case 'p': source_predicate(inst, Field::kPa, op); break;
            case 'q': source_predicate(inst, Field::kPb, op); break;
            case 'i':
                if (op.kind != Operand::Kind::kImmediate) fail("operand " + std::to_string(index + 1) + " must be a constant");
                inst.imm = static_cast<uint32_t>(op.bits);
                break;
            default: fail("operand kind unknown to the decoder");
        }
    }
    expect_operands(index, index);
    emit(inst);
}

bool FunctionDecoder::decode_move() {
    const std::string& opcode = current_->opcode;
    if (opcode == "mov") {
        if (has("pred")) return false;
        decode_mov();
        return true;
    }
    if (opcode == "cvta") {
        decode_cvta();
        return true;
    }
    if (opcode == "isspacep") {
        decode_isspacep();
        return true;
    }
    if (opcode == "createpolicy") {  // a hint to the cache: any value will do
        Inst inst;
        inst.op = Op::kMov64;
        destination(inst, Field::kD, operand(0), 8);
        inst.a = builder_.constant_row(0, true);
        emit(inst);
        return true;
    }
    return false;
}

void FunctionDecoder::decode_mov() {
    expect_operands(2, 2);
    if (current_->modifiers.size() != 1) fail("it has modifiers unknown here");
    const Type type = ptx::type_from_name(current_->modifiers[0]);
    const uint32_t bytes = ptx::size_of(type);
    const Operand& to = operand(0);
    const Operand& from = operand(1);
    if (type == Type::kB128) {
        // Through temporaries: {a, b} may be made of what is written.
        const std::vector<Operand> into = halves(to), parts = halves(from);
        uint32_t temporary[2];
        for (int i = 0; i < 2; ++i) {
            Inst read;
            read.op = Op::kMov64;
            read.flags = i == 0 ? 0 : kFlagHidden;
            temporary[i] = new_temporary(RegClass::k64);
            reference(Field::kD, temporary[i], true);
            source(read, Field::kA, parts[i], 8, Type::kB64);
            emit(read);
        }
        for (int i = 0; i < 2; ++i) {
            Inst write;
            write.op = Op::kMov64;
            write.flags = kFlagHidden;
            destination(write, Field::kD, into[i], 8);
            reference(Field::kA, temporary[i], false);
            emit(write);
        }
        return;
    }
    if (type == Type::kNone || bytes > 8) fail("its type is not supported");
    if (to.kind == Operand::Kind::kVector || from.kind == Operand::Kind::kVector) return decode_vector_mov();
    const uint8_t row = bytes == 8 ? 8 : 4;
    Inst inst;
    if (from.kind == Operand::Kind::kSymbol && frame_.contains(from.name)) {
        inst.op = Op::kLocalAddress;
        inst.offset = frame_.at(from.name) + from.offset;
        inst.dbytes = row;
        destination(inst, Field::kD, to, row);
        return emit(inst);
    }
    struct ClockName {
        const char* name;
        ClockKind kind;
        uint8_t row;
    };
    constexpr ClockName kClocks[] = {{"%clock", ClockKind::kClock32, 4},
                                     {"%clock_hi", ClockKind::kClockHigh, 4},
                                     {"%clock64", ClockKind::kClock64, 8},
                                     {"%globaltimer", ClockKind::kGlobalTimer, 8},
                                     {"%globaltimer_lo", ClockKind::kGlobalTimerLow, 4},
                                     {"%globaltimer_hi", ClockKind::kGlobalTimerHigh, 4}};
    if (from.kind == Operand::Kind::kRegister) {
        for (const ClockName& clock : kClocks) {
            if (from.name != clock.name) continue;
            if (clock.row != row) fail("special register '" + from.name + "' has another width");
            inst.op = Op::kClock;
            inst.mode = static_cast<uint8_t>(clock.kind);
            inst.dbytes = row;
            destination(inst, Field::kD, to, row);
            return emit(inst);
        }
    }
    inst.op = row == 8 ? Op::kMov64 : Op::kMov32;
    destination(inst, Field::kD, to, row);
    source(inst, Field::kA, from, row, type);
    emit(inst);
}

// mov.b64 %rd, {%r1, %r2} and its inverse; parts of 1, 2 or 4 bytes.
void FunctionDecoder::decode_vector_mov() {
    const uint32_t bytes = ptx::size_of(ptx::type_from_name(current_->modifiers[0]));
    const bool packs = operand(1).kind == Operand::Kind::kVector;
    const Operand& vector = packs ? operand(1) : operand(0);
    const Operand& scalar = packs ? operand(0) : operand(1);
    const uint32_t parts = static_cast<uint32_t>(vector.elements.size());
    if (parts != 2 && parts != 4) fail("a vector of " + std::to_string(parts) + " elements");
    Inst inst;
    inst.op = packs ? Op::kPack : Op::kUnpack;
    inst.vec = static_cast<uint8_t>(parts);
    inst.bytes = static_cast<uint8_t>(bytes / parts);
    const uint8_t row = bytes == 8 ? 8 : 4;
    inst.dbytes = row;
    if (inst.bytes == 0 || inst.bytes == 8) fail("parts of this size");
    const Type part_type = inst.bytes == 4 ? Type::kB32 : inst.bytes == 2 ? Type::kB16 : Type::kB8;
    if (packs) {
        constexpr Field kFields[] = {Field::kA, Field::kB, Field::kC, Field::kE};
        destination(inst, Field::kD, scalar, row);
        for (uint32_t i = 0; i < parts; ++i) source(inst, kFields[i], vector.elements[i], 4, part_type);
    } else {
        constexpr Field kFields[] = {Field::kD, Field::kB, Field::kC, Field::kE};
        source(inst, Field::kA, scalar, row, row == 8 ? Type::kB64 : Type::kB32);
        for (uint32_t i = 0; i < parts; ++i) destination(inst, kFields[i], vector.elements[i], 4);
    }
    emit(inst);
}

void FunctionDecoder::decode_cvta() {
    expect_operands(2, 2);
    const bool to = has("to");
    if (!has("u64")) fail("only 64-bit addresses are supported");
    uint64_t window = 0;
    if (has("shared") || has("shared::cta") || has("shared::cluster"))
        window = kSharedWindow;
    else if (has("local"))
        window = kLocalWindow;
    else if (has("param") || has("param::entry"))
        window = kParamWindow;
    else if (!has("global") && !has("const"))
        fail("its state space is not known");
    Inst inst;
    const Operand& from = operand(1);
    if (from.kind == Operand::Kind::kSymbol && frame_.contains(from.name)) {
        inst.op = Op::kLocalAddress;
        inst.offset = frame_.at(from.name) + from.offset + (to ? 0 : static_cast<int64_t>(window));
        inst.dbytes = 8;
        destination(inst, Field::kD, operand(0), 8);
        return emit(inst);
    }
    inst.op = window == 0 ? Op::kMov64 : to ? Op::kCvtaTo : Op::kCvtaFrom;
    inst.offset = static_cast<int64_t>(window);
    destination(inst, Field::kD, operand(0), 8);
    source(inst, Field::kA, from, 8, Type::kU64);
    emit(inst);
}

void FunctionDecoder::decode_isspacep() {
    expect_operands(2, 2);
    Inst inst;
    inst.op = Op::kIsspacep;
    inst.mode = has("shared::cluster") ? 1 : 0;  // any block's of the cluster, or one's own only
    if (has("global"))
        inst.space = MemSpace::kGlobal;
    else if (has("const"))
        inst.space = MemSpace::kConst;
    else if (has("shared") || has("shared::cta") || has("shared::cluster"))
        inst.space = MemSpace::kShared;
    else if (has("local"))
        inst.space = MemSpace::kLocal;
    else if (has("param") || has("param::entry"))
        inst.space = MemSpace::kParam;
    else
        fail("its state space is not known");
    destination_predicate(inst, Field::kPd, operand(0));
    source(inst, Field::kA, operand(1), 8, Type::kU64);
    emit(inst);
}

}  // namespace aicf::emu

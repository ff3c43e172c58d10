// Clusters and grids: mapa, getctarank, barrier.cluster, griddepcontrol, setmaxnreg.
#include "decode.hpp"

namespace aicf::emu {

using ptx::Operand;
using ptx::Type;

bool FunctionDecoder::decode_cluster() {
    const std::string& opcode = current_->opcode;
    Inst inst;
    if (opcode == "mov" && has("pred") && operand(1).name == "%is_explicit_cluster") {  // the one special register that is a predicate
        inst.op = Op::kMapShared;
        inst.mode = 2;
        destination_predicate(inst, Field::kPd, operand(0));
        inst.a = builder_.special_row(Special::kIsExplicitCluster, false);
        emit(inst);
        return true;
    }
    if (opcode == "mapa" || opcode == "getctarank") {
        // mapa{.shared::cluster}.u32|u64 d, a, b; getctarank the same without b. a: a register, or (with the space) a variable.
        const bool is_mapa = opcode == "mapa";
        expect_operands(is_mapa ? 3 : 2, is_mapa ? 3 : 2);
        const bool wide = has("u64");
        if (!wide && !has("u32")) fail("its type is not supported");
        inst.op = Op::kMapShared;
        inst.mode = is_mapa ? 0 : 1;
        inst.space = has("shared::cluster") ? MemSpace::kShared : MemSpace::kGeneric;
        inst.bytes = wide ? 8 : 4;
        inst.dbytes = is_mapa ? inst.bytes : 4;
        if (inst.space == MemSpace::kGeneric && !wide) fail("generic addresses have 64 bits");
        destination(inst, Field::kD, operand(0), inst.dbytes);
        source(inst, Field::kA, operand(1), inst.bytes, wide ? Type::kU64 : Type::kU32);
        if (is_mapa) source(inst, Field::kB, operand(2), 4, Type::kU32);
        emit(inst);
        return true;
    }
    if (opcode == "barrier" && has("cluster")) {
        inst.op = Op::kClusterBarrier;
        inst.counter = arith::Class::kControl;
        expect_operands(0, 0);
        for (const std::string& word : current_->modifiers) {
            if (word == "wait")
                inst.mode = 1;
            else if (word == "relaxed")
                inst.mode2 = 1;
            else if (word == "aligned")
                inst.flags |= kFlagAligned;
            else if (word != "cluster" && word != "arrive" && word != "release" && word != "acquire")
                fail("modifier '." + word + "' is not supported");
        }
        emit(inst);
        return true;
    }
    if (opcode == "griddepcontrol") {
        if (!has("wait") && !has("launch_dependents")) fail("it is not supported");
        inst.op = Op::kGridDependency;
        inst.counter = arith::Class::kControl;
        inst.mode = has("wait") ? 1 : 0;
        emit(inst);
        return true;
    }
    if (opcode == "setmaxnreg") {
        expect_operands(1, 1);
        if (operand(0).kind != Operand::Kind::kImmediate) fail("the number of registers must be a constant");
        const uint64_t count = operand(0).bits;
        if (count < 24 || count > 256 || count % 8 != 0) fail("the number of registers must be a multiple of 8 from 24 to 256");
        inst.op = Op::kSetMaxRegisters;
        inst.counter = arith::Class::kControl;
        inst.flags |= kFlagAligned;
        inst.mode = has("inc") ? 1 : 0;
        inst.imm = static_cast<uint32_t>(count);
        emit(inst);
        return true;
    }
    return false;
}

}  // namespace aicf::emu

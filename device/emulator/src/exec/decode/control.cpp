// Branches, calls, barriers, warp-wide instructions.
#include <algorithm>

#include "decode.hpp"

namespace aicf::emu {

using ptx::Operand;
using ptx::Type;

namespace {
constexpr uint32_t kAllocaBytes = 16384;  // of each thread
}

bool FunctionDecoder::decode_control() {
    const std::string& opcode = current_->opcode;
    const auto simple = [&](Op op) {
        Inst inst;
        inst.op = op;
        inst.counter = arith::Class::kControl;
        emit(inst);
        return true;
    };
    if (opcode == "bra" || opcode == "brx") return decode_branch(), true;
    if (opcode == "call") return decode_call(), true;
    if (opcode == "alloca" || opcode == "stacksave" || opcode == "stackrestore") return decode_alloca(), true;
    if (opcode == "ret") restore_stack();
    if (opcode == "ret") return simple(function_.is_entry ? Op::kExit : Op::kRet);
    if (opcode == "exit") return simple(Op::kExit);
    if (opcode == "trap") return simple(Op::kTrap);
    if (opcode == "brkpt") return simple(Op::kBreakpoint);
    if (opcode == "nanosleep") return simple(Op::kNanosleep);
    if (opcode == "pmevent") return simple(Op::kNop);
    if (opcode == "membar" && (has("cta") || has("gl") || has("sys"))) return simple(Op::kFence);
    if (opcode == "fence" && !has("proxy") && !has("mbarrier_init")) {
        for (const std::string& word : current_->modifiers) {
            if (word != "sc" && word != "acq_rel" && word != "cta" && word != "gpu" && word != "sys" && word != "cluster" &&
                word != "acquire" && word != "release" && word != "sync_restrict::shared::cta" &&
                word != "sync_restrict::shared::cluster") {
                fail("fences of this kind are not supported yet");
            }
        }
        if (!has("cta") && !has("cluster") && !has("gpu") && !has("sys")) fail("its scope is missing");
        return simple(Op::kFence);
    }
    return false;
}

// alloca.u64 d, size{, align}; stacksave.u64 d; stackrestore.u64 a.
void FunctionDecoder::decode_alloca() {
    Inst inst;
    inst.op = Op::kAlloca;
    inst.counter = arith::Class::kMove;
    builder_.image->alloca_bytes = kAllocaBytes;
    const bool wide = has("u64");
    if (!wide && !has("u32")) fail("its type is not supported");
    inst.dbytes = wide ? 8 : 4;
    const Type type = wide ? Type::kU64 : Type::kU32;
    if (current_->opcode == "alloca") {
        expect_operands(2, 3);
        inst.mode = static_cast<uint8_t>(AllocaMode::kAllocate);
        inst.imm = 8;
        if (current_->operands.size() == 3) {
            const Operand& align = operand(2);
            const bool is_power = align.kind == Operand::Kind::kImmediate && align.bits != 0 && (align.bits & (align.bits - 1)) == 0;
            if (!is_power || align.bits > 16384) fail("the alignment must be a power of two");
            inst.imm = static_cast<uint32_t>(align.bits);
        }
        destination(inst, Field::kD, operand(0), inst.dbytes);
        source(inst, Field::kA, operand(1), inst.dbytes, type);
    } else if (current_->opcode == "stacksave") {
        expect_operands(1, 1);
        inst.mode = static_cast<uint8_t>(AllocaMode::kSave);
        destination(inst, Field::kD, operand(0), inst.dbytes);
    } else {
        expect_operands(1, 1);
        inst.mode = static_cast<uint8_t>(AllocaMode::kRestore);
        source(inst, Field::kA, operand(0), inst.dbytes, type);
    }
    emit(inst);
}

// What a function took from the stack of `alloca` is free again when it returns.
void FunctionDecoder::save_stack() {
    const auto takes = [](const ptx::Instruction& each) { return each.opcode == "alloca"; };
    const auto found = std::find_if(function_.instructions.begin(), function_.instructions.end(), takes);
    if (function_.is_entry || found == function_.instructions.end()) return;
    current_ = &function_.instructions.front();
    Inst inst;
    inst.op = Op::kAlloca;
    inst.mode = static_cast<uint8_t>(AllocaMode::kSave);
    inst.dbytes = 8;
    saved_stack_ = new_temporary(RegClass::k64);
    emit_hidden(inst, {{0, Field::kD, true, saved_stack_}});
}

void FunctionDecoder::restore_stack() {
    if (saved_stack_ == ~0u) return;
    Inst inst;
    inst.op = Op::kAlloca;
    inst.mode = static_cast<uint8_t>(AllocaMode::kRestore);
    inst.flags = kFlagHidden;
    inst.dbytes = 8;
    reference(Field::kA, saved_stack_, false);
    emit(inst);
}

void FunctionDecoder::decode_branch() {
    Inst inst;
    inst.counter = arith::Class::kControl;
    if (current_->opcode == "bra") {
        inst.op = Op::kBra;
        if (operand(0).kind != Operand::Kind::kSymbol) fail("a label is expected");
        branches_.emplace_back(static_cast<uint32_t>(code_.size()), operand(0).name);
        return emit(inst);
    }
    if (!has("idx")) fail("only brx.idx exists");
    expect_operands(2, 2);
    inst.op = Op::kBrx;
    source(inst, Field::kA, operand(0), 4, Type::kU32);
    const ptx::BranchTargets* targets = nullptr;
    for (const ptx::BranchTargets& list : function_.branch_targets) {
        if (list.name == operand(1).name) targets = &list;
    }
    if (!targets) fail("the list of targets '" + operand(1).name + "' is not defined");
    tables_.emplace_back(static_cast<uint32_t>(code_.size()), targets->targets);
    emit(inst);
}

void FunctionDecoder::decode_call() {
    const auto& operands = current_->operands;
    size_t at = 0;
    const auto take_list = [&]() {
        std::vector<std::string> names;
        if (at < operands.size() && operands[at].kind == Operand::Kind::kList) {
            for (const Operand& element : operands[at].elements) {
                if (element.kind != Operand::Kind::kSymbol || !frame_.contains(element.name)) fail("arguments must be .param variables");
                names.push_back(element.name);
            }
            ++at;
        }
        return names;
    };
    const bool returns_first = !operands.empty() && operands[0].kind == Operand::Kind::kList;
    const std::vector<std::string> returns = returns_first ? take_list() : std::vector<std::string>{};
    if (at >= operands.size()) fail("the function is missing");
    const Operand& target = operands[at++];
    const std::vector<std::string> arguments = take_list();

    CallInfo call;
    for (const std::string& name : arguments) {
        call.argument_offsets.push_back(frame_.at(name));
        call.argument_bytes.push_back(frame_sizes_.at(name));
    }
    for (const std::string& name : returns) {
        call.result_offsets.push_back(frame_.at(name));
        call.result_bytes.push_back(frame_sizes_.at(name));
    }
    Inst inst;
    inst.counter = arith::Class::kControl;
    if (target.kind == Operand::Kind::kRegister) {
        inst.op = Op::kCallIndirect;
        source(inst, Field::kA, target, 8, Type::kU64);
        inst.imm = builder_.add_call(std::move(call));
        return emit(inst);
    }
    if (target.kind != Operand::Kind::kSymbol) fail("a function is expected");
    if (auto it = builder_.function_indices.find(target.name); it != builder_.function_indices.end()) {
        call.callee = it->second;
        const ImageFunction& callee = builder_.image->functions[it->second];
        if (callee.param_offsets.size() != call.argument_offsets.size() || callee.return_offsets.size() != call.result_offsets.size()) {
            fail("the arguments do not match the function '" + target.name + "'");
        }
        inst.op = Op::kCall;
        inst.imm = builder_.add_call(std::move(call));
        return emit(inst);
    }
    inst.op = Op::kBuiltin;
    if (target.name == "vprintf") {
        if (call.argument_offsets.size() != 2) fail("vprintf takes two arguments");
        inst.mode = static_cast<uint8_t>(Builtin::kVprintf);
    } else if (target.name == "__assertfail") {
        if (call.argument_offsets.size() != 5) fail("__assertfail takes five arguments");
        inst.mode = static_cast<uint8_t>(Builtin::kAssertFail);
    } else if (target.name == "malloc" || target.name == "free") {
        const bool is_malloc = target.name == "malloc";
        if (call.argument_offsets.size() != 1 || call.result_offsets.size() != (is_malloc ? 1 : 0))
            fail("malloc and free take one argument");
        inst.mode = static_cast<uint8_t>(is_malloc ? Builtin::kMalloc : Builtin::kFree);
        builder_.image->uses_heap = true;
    } else if (target.name == "cudaGraphSetConditional") {
        if (call.argument_offsets.size() != 2) fail("cudaGraphSetConditional takes two arguments");
        inst.mode = static_cast<uint8_t>(Builtin::kSetConditional);
    } else if (target.name.rfind("__cudaCDP", 0) == 0 || target.name.rfind("cudaLaunchDevice", 0) == 0 ||
               target.name.rfind("cudaGetParameterBuffer", 0) == 0 || target.name.rfind("cudaStream", 0) == 0 ||
               target.name == "cudaGraphLaunch") {
        fail("'" + target.name + "' starts kernels from a kernel (dynamic parallelism), which this device does not do");
    } else {
        fail("the external function '" + target.name + "' is not available on this device");
    }
    inst.imm = builder_.add_call(std::move(call));
    emit(inst);
}

bool FunctionDecoder::decode_collective() {
    const std::string& opcode = current_->opcode;
    if (opcode == "bar" || (opcode == "barrier" && !has("cluster"))) return decode_barrier(), true;
    if (opcode == "vote") return decode_vote(), true;
    if (opcode == "shfl") return decode_shfl(), true;
    if (opcode == "match") return decode_match(), true;
    if (opcode == "redux") return decode_redux(), true;
    if (opcode == "activemask") {
        Inst inst;
        inst.op = Op::kActivemask;
        destination(inst, Field::kD, operand(0), 4);
        emit(inst);
        return true;
    }
    if (opcode == "elect") {
        Inst inst;
        inst.op = Op::kElect;
        const Operand& to = operand(0);
        if (to.kind != Operand::Kind::kPair) fail("d|p is expected");
        destination(inst, Field::kD, to.elements[0], 4);
        destination_predicate(inst, Field::kPd, to.elements[1]);
        source(inst, Field::kC, operand(1), 4, Type::kB32);
        emit(inst);
        return true;
    }
    return false;
}

void FunctionDecoder::decode_barrier() {
    Inst inst;
    inst.counter = arith::Class::kControl;
    if (has("warp")) {
        inst.op = Op::kBarWarpSync;
        expect_operands(1, 1);
        source(inst, Field::kC, operand(0), 4, Type::kB32);
        return emit(inst);
    }
    inst.op = Op::kBarrier;
    const bool old_form = current_->opcode == "bar";
    if (old_form || has("aligned")) inst.flags |= kFlagAligned;
    size_t at = 0;
    if (has("sync")) {
        inst.mode = static_cast<uint8_t>(BarrierMode::kSync);
        expect_operands(1, 2);
    } else if (has("arrive")) {
        inst.mode = static_cast<uint8_t>(BarrierMode::kArrive);
        expect_operands(2, 2);
    } else if (has("red")) {
        expect_operands(3, 4);
        const bool popc = has("popc");
        inst.mode = static_cast<uint8_t>(popc ? BarrierMode::kRedPopc : has("and") ? BarrierMode::kRedAnd : BarrierMode::kRedOr);
        if (popc) {
            destination(inst, Field::kD, operand(0), 4);
        } else {
            destination_predicate(inst, Field::kPd, operand(0));
        }
        source_predicate(inst, Field::kPa, current_->operands.back());
        at = 1;
    } else {
        fail("it is not supported");
    }
    source(inst, Field::kA, operand(at++), 4, Type::kU32);
    const size_t end = current_->operands.size() - (has("red") ? 1 : 0);
    if (at < end) {
        inst.flags |= kFlagHasCount;
        source(inst, Field::kB, operand(at), 4, Type::kU32);
    }
    emit(inst);
}

void FunctionDecoder::decode_vote() {
    if (!has("sync")) fail("only the .sync forms exist on this target");
    expect_operands(3, 3);
    Inst inst;
    inst.op = Op::kVote;
    if (has("ballot")) {
        inst.mode = static_cast<uint8_t>(VoteMode::kBallot);
        destination(inst, Field::kD, operand(0), 4);
    } else {
        inst.mode = static_cast<uint8_t>(has("all") ? VoteMode::kAll : has("any") ? VoteMode::kAny : VoteMode::kUni);
        destination_predicate(inst, Field::kPd, operand(0));
    }
    source_predicate(inst, Field::kPa, operand(1));
    source(inst, Field::kC, operand(2), 4, Type::kB32);
    emit(inst);
}

void FunctionDecoder::decode_shfl() {
    if (!has("sync")) fail("only the .sync forms exist on this target");
    expect_operands(5, 5);
    Inst inst;
    inst.op = Op::kShfl;
    inst.mode = static_cast<uint8_t>(has("up")     ? ShflMode::kUp
                                     : has("down") ? ShflMode::kDown
                                     : has("bfly") ? ShflMode::kBfly
                                                   : ShflMode::kIdx);
    inst.pd = kPredSlotTrash << 1;
    const Operand& to = operand(0);
    if (to.kind == Operand::Kind::kPair) {
        destination(inst, Field::kD, to.elements[0], 4);
        destination_predicate(inst, Field::kPd, to.elements[1]);
    } else {
        destination(inst, Field::kD, to, 4);
    }
    source(inst, Field::kA, operand(1), 4, Type::kB32);
    source(inst, Field::kB, operand(2), 4, Type::kB32);
    source(inst, Field::kE, operand(3), 4, Type::kB32);
    source(inst, Field::kC, operand(4), 4, Type::kB32);
    emit(inst);
}

void FunctionDecoder::decode_match() {
    if (!has("sync")) fail("only the .sync forms exist on this target");
    expect_operands(3, 3);
    Inst inst;
    inst.op = Op::kMatch;
    inst.mode = has("all") ? 1 : 0;
    inst.bytes = has("b64") ? 8 : 4;
    inst.pd = kPredSlotTrash << 1;
    const Operand& to = operand(0);
    if (to.kind == Operand::Kind::kPair) {
        destination(inst, Field::kD, to.elements[0], 4);
        destination_predicate(inst, Field::kPd, to.elements[1]);
    } else {
        destination(inst, Field::kD, to, 4);
    }
    source(inst, Field::kA, operand(1), inst.bytes, inst.bytes == 8 ? Type::kB64 : Type::kB32);
    source(inst, Field::kC, operand(2), 4, Type::kB32);
    emit(inst);
}

void FunctionDecoder::decode_redux() {
    if (!has("sync")) fail("only the .sync forms exist");
    expect_operands(3, 3);
    if (has("f32")) fail("floating-point reductions need a newer target");
    const bool is_signed = has("s32");
    Inst inst;
    inst.op = Op::kRedux;
    ReduxOp op = ReduxOp::kAddU;
    if (has("min"))
        op = is_signed ? ReduxOp::kMinS : ReduxOp::kMinU;
    else if (has("max"))
        op = is_signed ? ReduxOp::kMaxS : ReduxOp::kMaxU;
    else if (has("and"))
        op = ReduxOp::kAnd;
    else if (has("or"))
        op = ReduxOp::kOr;
    else if (has("xor"))
        op = ReduxOp::kXor;
    else if (!has("add"))
        fail("its operation is not supported");
    inst.mode = static_cast<uint8_t>(op);
    destination(inst, Field::kD, operand(0), 4);
    source(inst, Field::kA, operand(1), 4, Type::kB32);
    source(inst, Field::kC, operand(2), 4, Type::kB32);
    emit(inst);
}

}  // namespace aicf::emu

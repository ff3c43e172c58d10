// mbarrier. PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
#include "../async/async_state.hpp"
#include "decode.hpp"

namespace aicf::emu {

using ptx::Operand;
using ptx::Type;

namespace {

bool parse_mbarrier_op(const std::string& word, MbarrierOp& op) {
    constexpr std::pair<const char*, MbarrierOp> kOps[] = {
        {"init", MbarrierOp::kInit},
        {"inval", MbarrierOp::kInval},
        {"expect_tx", MbarrierOp::kExpectTx},
        {"complete_tx", MbarrierOp::kCompleteTx},
        {"arrive", MbarrierOp::kArrive},
        {"arrive_drop", MbarrierOp::kArriveDrop},
        {"test_wait", MbarrierOp::kTestWait},
        {"try_wait", MbarrierOp::kTestWait},
        {"pending_count", MbarrierOp::kPendingCount},
    };
    for (const auto& [name, value] : kOps) {
        if (word != name) continue;
        op = value;
        return true;
    }
    return false;
}

}  // namespace

bool FunctionDecoder::decode_mbarrier() {
    const std::vector<std::string>& words = current_->modifiers;
    if (current_->opcode == "fence" && has("mbarrier_init")) {
        Inst inst;
        inst.op = Op::kMbarrier;
        inst.mode = static_cast<uint8_t>(MbarrierOp::kFenceInit);
        inst.counter = arith::Class::kControl;
        expect_operands(0, 0);
        return emit(inst), true;
    }
    const bool after_copies = current_->opcode == "cp" && words.size() > 1 && words[0] == "async" && words[1] == "mbarrier";
    if (current_->opcode != "mbarrier" && !after_copies) return false;
    Inst inst;
    inst.op = Op::kMbarrier;
    inst.counter = arith::Class::kControl;
    inst.mode2 = kMbarrierGeneric;
    MbarrierOp op{};
    if (after_copies) {
        if (words.size() < 3 || words[2] != "arrive") fail("it is not supported");
        op = has("noinc") ? MbarrierOp::kArriveAsyncNoInc : MbarrierOp::kArriveAsync;
        inst.mode2 |= kMbarrierRelaxed;
    } else if (words.empty() || !parse_mbarrier_op(words[0], op)) {
        fail("it is not supported");
    }
    for (size_t i = after_copies ? 3 : 1; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word == "shared" || word == "shared::cta")
            inst.mode2 &= ~kMbarrierGeneric;
        else if (word == "shared::cluster")
            inst.mode2 = static_cast<uint8_t>((inst.mode2 & ~kMbarrierGeneric) | kMbarrierRemote);
        else if (word == "relaxed")
            inst.mode2 |= kMbarrierRelaxed;
        else if (word == "parity" && op == MbarrierOp::kTestWait)
            inst.mode2 |= kMbarrierParity;
        else if (word == "expect_tx" && (op == MbarrierOp::kArrive || op == MbarrierOp::kArriveDrop))
            inst.mode2 |= kMbarrierExpectTx;
        else if (word == "noComplete" && op == MbarrierOp::kArrive)
            op = MbarrierOp::kArriveNoComplete;
        else if (word == "noComplete" && op == MbarrierOp::kArriveDrop)
            op = MbarrierOp::kArriveDropNoComplete;
        else if (word != "b64" && word != "release" && word != "acquire" && word != "cta" && word != "cluster" && word != "noinc")
            fail("modifier '." + word + "' is not supported");
    }
    inst.mode = static_cast<uint8_t>(op);
    builder_.image->uses_async = true;
    if (op == MbarrierOp::kPendingCount) {
        expect_operands(2, 2);
        destination(inst, Field::kD, operand(0), 4);
        source(inst, Field::kB, operand(1), 8, Type::kB64);
        return emit(inst), true;
    }
    const bool waits = op == MbarrierOp::kTestWait;
    const bool arrives = op == MbarrierOp::kArrive || op == MbarrierOp::kArriveDrop || op == MbarrierOp::kArriveNoComplete ||
                         op == MbarrierOp::kArriveDropNoComplete;
    size_t at = 0;
    if (waits) destination_predicate(inst, Field::kPd, operand(at++));
    // An arrival returns a state, but for the older spelling of remote ones, which has no such operand.
    const bool has_state = arrives && operand(0).kind != Operand::Kind::kAddress;
    if (arrives) {
        inst.dbytes = has_state && operand(0).kind != Operand::Kind::kSink ? 8 : 0;
        if (has_state) destination(inst, Field::kD, operand(at++), 8);
    }
    const Address address = address_of(operand(at++));
    if (address.space == MemSpace::kShared) inst.mode2 &= ~kMbarrierGeneric;
    inst.b = builder_.constant_row(1, false);
    switch (op) {
        case MbarrierOp::kInit:
        case MbarrierOp::kExpectTx:
        case MbarrierOp::kCompleteTx:
            expect_operands(2, 2);
            source(inst, Field::kB, operand(at), 4, Type::kU32);
            break;
        case MbarrierOp::kTestWait:
            expect_operands(3, words[0] == "try_wait" ? 4 : 3);
            if (inst.mode2 & kMbarrierParity)
                source(inst, Field::kB, operand(at), 4, Type::kU32);
            else
                source(inst, Field::kB, operand(at), 8, Type::kB64);
            break;  // try_wait: the hint of a time says nothing here
        case MbarrierOp::kArrive:
        case MbarrierOp::kArriveDrop:
            expect_operands(at, at + 1);
            if (inst.mode2 & kMbarrierExpectTx)
                source(inst, Field::kC, operand(at), 4, Type::kU32);
            else if (current_->operands.size() > at)
                source(inst, Field::kB, operand(at), 4, Type::kU32);
            break;
        case MbarrierOp::kArriveNoComplete:
        case MbarrierOp::kArriveDropNoComplete:
            expect_operands(at + 1, at + 1);
            source(inst, Field::kB, operand(at), 4, Type::kU32);
            break;
        default: expect_operands(1, 1); break;
    }
    narrow_access(8, MemSpace::kShared);
    apply_address(inst, address);
    return emit(inst), true;
}

}  // namespace aicf::emu

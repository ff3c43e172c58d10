// The lane-arithmetic library behind a C function, for tests: performs one spelling on any number of warps.
#include <cstring>
#include <string>

#include "arith.hpp"

namespace arith = aicf::emu::arith;
namespace ptx = aicf::emu::ptx;

namespace {

thread_local std::string text;

ptx::Instruction instruction_of(const char* spelling, int num_operands) {
    ptx::Instruction instruction;
    const std::string whole = spelling;
    size_t begin = 0;
    for (bool is_first = true; begin <= whole.size(); is_first = false) {
        const size_t end = std::min(whole.find('.', begin), whole.size());
        const std::string part = whole.substr(begin, end - begin);
        if (is_first) {
            instruction.opcode = part;
        } else {
            instruction.modifiers.push_back(part);
        }
        begin = end + 1;
    }
    instruction.operands.resize(static_cast<size_t>(num_operands));
    return instruction;
}

struct alignas(64) Row {
    std::byte bytes[256];
};

}  // namespace

extern "C" {

// Rows and predicates of `num_warps` warps, one after the other; null where the instruction has none. `d`, `pd`, `qd` and `carry` keep what
// lanes outside of `masks` held.
struct Batch {
    void* d;
    const void *a, *b, *c, *e;
    uint32_t *pd, *qd, *carry;
    const uint32_t *pa, *pb, *masks;
    uint32_t num_warps;
    uint32_t immediate;
    uint32_t in_place;  // 1: d takes the row of a
};

// "operands d_bytes a_bytes b_bytes c_bytes e_bytes class is_fma writes_predicate reads_predicate uses_carry", or "!reason".
const char* arith_describe(const char* spelling, int num_operands) {
    const arith::Operation op = arith::find(instruction_of(spelling, num_operands));
    if (op.fn == nullptr) {
        text = op.reason;
        text.insert(text.begin(), '!');
    } else {
        text = op.operands;
        for (const int value :
             {int{op.d_bytes}, int{op.a_bytes}, int{op.b_bytes}, int{op.c_bytes}, int{op.e_bytes}, static_cast<int>(op.counter),
              int{op.is_fma}, int{op.writes_predicate}, int{op.reads_predicate}, int{op.uses_carry}}) {
            text += " " + std::to_string(value);
        }
    }
    return text.c_str();
}

int arith_run(const char* spelling, int num_operands, const Batch* batch) {
    const arith::Operation op = arith::find(instruction_of(spelling, num_operands));
    if (op.fn == nullptr) return 1;
    const bool has_immediate = std::strchr(op.operands, 'i') != nullptr;
    Row d, a, b, c, e;
    for (uint32_t warp = 0; warp < batch->num_warps; ++warp) {
        const auto load = [warp](Row& row, const void* rows, size_t bytes) {
            if (rows != nullptr && bytes != 0) std::memcpy(row.bytes, static_cast<const std::byte*>(rows) + warp * bytes * 32, bytes * 32);
        };
        load(a, batch->a, op.a_bytes);
        load(b, batch->b, op.b_bytes);
        load(c, batch->c, op.c_bytes);
        load(e, batch->e, op.e_bytes);
        load(d, batch->d, op.d_bytes);
        arith::Args args;
        args.d = op.d_bytes == 0 || batch->d == nullptr ? nullptr : batch->in_place != 0 ? &a : &d;
        args.a = &a, args.b = &b, args.c = &c, args.e = &e;
        args.pd = batch->pd == nullptr ? nullptr : batch->pd + warp;
        args.qd = batch->qd == nullptr ? nullptr : batch->qd + warp;
        args.carry = batch->carry == nullptr ? nullptr : batch->carry + warp;
        args.pa = batch->pa == nullptr ? 0 : batch->pa[warp];
        args.pb = batch->pb == nullptr ? 0 : batch->pb[warp];
        args.mask = batch->masks[warp];
        args.immediate = has_immediate ? batch->immediate : op.immediate;
        op.fn(args);
        if (args.d != nullptr) std::memcpy(static_cast<std::byte*>(batch->d) + warp * op.d_bytes * 32, args.d, op.d_bytes * 32);
    }
    return 0;
}

}  // extern "C"

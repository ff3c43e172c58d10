// Lane arithmetic: every PTX instruction that only reads registers and writes registers of the same lane.
//
// The decoder asks find() once per instruction; the interpreter then calls the function it got for a whole warp.
//
// Register layout: a value of at most 32 bits takes a row of 32 uint32_t slots (narrower types in the low bits, the upper bits
// unspecified on read and zeroed on write); a 64-bit value takes a row of 32 uint64_t; a predicate is one 32-bit mask, bit i = lane i.
// Packed types (f16x2, bf16x2, ...) are one 32-bit slot. Immediates arrive as rows with the value in every lane.
// Rows are at least 16-byte aligned, better 64. Source and destination rows may be the same row.
//
// The library is compiled once for each instruction-set level of the engine, into the inline namespace AICF_ENGINE_NAMESPACE, so that no
// two levels share a symbol. Flags its sources (arith*.cpp) are written for: -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math.
// They do not use fast-math, and need no -frounding-math: a directed rounding sets MXCSR around loops that load and store in memory.
#pragma once

#include <cstdint>
#include <string>

#include "../../ptx/module.hpp"

#ifndef AICF_ENGINE_NAMESPACE
#define AICF_ENGINE_NAMESPACE engine_native
#endif

namespace aicf::emu::arith {

struct Args {
    void* d = nullptr;             // destination row (setp/testp: unused)
    const void* a = nullptr;       // source rows, in operand order
    const void* b = nullptr;
    const void* c = nullptr;
    const void* e = nullptr;       // fourth source (bfi)
    uint32_t* pd = nullptr;  // destination predicate (setp: p of p|q; also and.pred, testp, lop3.BoolOp's d|p ...); null where written _
    uint32_t* qd = nullptr;  // second destination predicate (setp: q), may be null
    uint32_t pa = 0;  // source predicate mask, already negated where written !p (selp, setp.BoolOp, lop3.BoolOp, and.pred's first ...)
    uint32_t pb = 0;  // second source predicate mask, likewise (and.pred, or.pred, xor.pred)
    uint32_t* carry = nullptr;  // condition code CC.CF of the warp, one bit a lane (add.cc, addc, sub.cc, subc, mad.cc, madc)
    uint32_t mask = 0;  // lanes to write; other lanes keep their values, also in *pd, *qd and *carry
    uint32_t immediate = 0;  // the constant operand marked 'i' in Operation::operands (lop3's table), else Operation::immediate
};

using Fn = void (*)(const Args&);

enum class Class : uint8_t { kFp32, kFp64, kFp16, kInteger, kSpecial, kConversion, kMove, kControl };

struct Operation {
    Fn fn = nullptr;  // null: this library does not know the spelling; `reason` says what about it
    Class counter = Class::kMove;
    bool is_fma = false;  // fp32 fma/mad

    // One letter for each operand as written, so ops with predicates, pairs and constants need no case of their own in the decoder:
    //   d          destination row                                a b c e    source rows (registers or immediates)
    //   P          destination predicate `p` -> pd, or `p|q` -> pd, qd; a sink _ gives a null pointer
    //   D          `d` or `d|p`: destination row (null for a sink), p -> pd
    //   p q        source predicate -> pa, pb (mask already negated for !p; a predicate immediate 0/1 gives all-zeros/all-ones)
    //   i          integer constant -> Args::immediate
    // Examples: add "dab", setp.lt.and.s32 "Pabp", selp "dabp", lop3.b32 "dabci", lop3.or.b32 "Dabcip", and.pred "Ppq", mov.pred "Pp".
    const char* operands = "";
    uint32_t immediate = 0;  // to hand over in Args::immediate when `operands` has no 'i'

    uint8_t d_bytes = 0;  // 4 or 8: row kind of the destination (0: none or predicate only); 4 also stands for narrower types
    uint8_t a_bytes = 0, b_bytes = 0, c_bytes = 0, e_bytes = 0;  // row kind of each source, 0 = operand not used
    // How to read an immediate operand there: integer types take the low bits of the constant, kF32/kF64 its IEEE value (0f/0d constants
    // convert), kF16 and kBF16 kinds take raw bits. e is always kB32-like or kB64-like by e_bytes.
    ptx::Type a_type = ptx::Type::kNone, b_type = ptx::Type::kNone, c_type = ptx::Type::kNone;
    bool writes_predicate = false, reads_predicate = false, uses_carry = false;
    std::string reason;
};

// The types above are common to all levels (the decoder is compiled once); everything that is compiled per level is in the inline
// namespace.
inline namespace AICF_ENGINE_NAMESPACE {

// Covers: add sub mul mad mul24 mad24 sad div rem abs neg min max (two inputs) popc clz bfind fns brev bfe bfi bmsk
// szext dp4a dp2a vabsdiff4 add/addc/sub/subc/mad/madc with .cc, fma, rcp sqrt rsqrt sin cos lg2 ex2 tanh testp copysign, set setp selp
// slct, and or xor not cnot lop3 shf shl shr, prmt, cvt (all of PTX ISA's table: rounding .rn .rna .rz .rm .rp .rs excepted, .rni .rzi .rmi
// .rpi, .ftz .sat .relu .satfinite, packed forms f16x2 bf16x2 e4m3x2 e5m2x2), cvt.pack, mov of registers (pack and unpack are the
// decoder's), f16/f16x2/bf16/bf16x2 arithmetic.
//
// Modifiers unknown here, modifiers in an order that the ISA's syntax lines do not give, wrong operand counts, and forms that sm_90 lacks
// are refused with a reason. A cvt to .s8 or .s16 writes its result sign-extended to 32 bits, since its destination register may be wider.
// Types of the operand registers are the decoder's to check (`mov.b32 %f1, %r1` is legal: only widths matter here).
Operation find(const ptx::Instruction& instruction);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

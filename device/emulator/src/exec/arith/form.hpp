// An instruction's modifiers, understood: what the resolvers of arith_*.cpp choose a function by.
#pragma once

#include <cstdint>
#include <string_view>

#include "arith.hpp"

namespace aicf::emu::arith {
inline namespace AICF_ENGINE_NAMESPACE {

enum class Round : uint8_t { kNone, kRn, kRz, kRm, kRp, kRna, kRni, kRzi, kRmi, kRpi };

// Comparisons as the set of outcomes that make them true.
enum Outcome : uint8_t { kLess = 1, kEqual = 2, kGreater = 4, kUnordered = 8 };

enum class Bool : uint8_t { kNone, kAnd, kOr, kXor };

// Modifiers that are neither type, rounding, comparison nor Boolean operator. A form's flags travel to cold functions in Args::immediate,
// together with the rounding (bits 24-27); see Form::pack.
enum Flag : uint32_t {
    kFtz = 1u << 0,
    kSat = 1u << 1,
    kRelu = 1u << 2,
    kSatfinite = 1u << 3,
    kNan = 1u << 4,
    kXorsign = 1u << 5,
    kAbs = 1u << 6,
    kLo = 1u << 7,
    kHi = 1u << 8,
    kWide = 1u << 9,
    kCc = 1u << 10,
    kClamp = 1u << 11,
    kWrap = 1u << 12,
    kShiftamt = 1u << 13,
    kApprox = 1u << 14,
    kFull = 1u << 15,
    kLeft = 1u << 16,
    kRight = 1u << 17,
    kPack = 1u << 18,
    kSum = 1u << 19,
};

struct Form {
    std::string_view opcode;
    ptx::Type types[3] = {ptx::Type::kNone, ptx::Type::kNone, ptx::Type::kNone};  // as written: destination first where there are several
    uint32_t num_types = 0;
    uint32_t flags = 0;
    Round round = Round::kNone;
    uint8_t compare = 0;  // of Outcome
    Bool boolean = Bool::kNone;
    std::string_view mode;  // prmt's, testp's

    bool has(uint32_t flag) const { return (flags & flag) != 0; }
    ptx::Type type() const { return types[0]; }
    Round rounding() const { return round == Round::kNone ? Round::kRn : round; }
    uint32_t pack() const { return flags | static_cast<uint32_t>(rounding()) << 24; }
};

inline Round round_of(uint32_t packed) { return static_cast<Round>(packed >> 24 & 15); }

struct Pick {
    Fn fn = nullptr;
    uint32_t immediate = 0;
};

inline uint32_t bits_of(ptx::Type type) { return ptx::size_of(type) * 8; }

inline bool is_signed(ptx::Type type) {
    using enum ptx::Type;
    return type == kS8 || type == kS16 || type == kS32 || type == kS64;
}

// Resolvers, by subject. Each is called only for forms that a row of the syntax table (arith/find.cpp) admits.
Pick pick_integer(const Form&);
Pick pick_carry(const Form&);
Pick pick_dot(const Form&);
Pick pick_video(const Form&);
Pick pick_logic(const Form&);
Pick pick_shift(const Form&);
Pick pick_bits(const Form&);
Pick pick_move(const Form&);
Pick pick_predicate(const Form&);
Pick pick_setp(const Form&);
Pick pick_set(const Form&);
Pick pick_select(const Form&);
Pick pick_testp(const Form&);
Pick pick_float(const Form&);
Pick pick_special(const Form&);
Pick pick_half(const Form&);
Pick pick_convert(const Form&);
Pick pick_convert_pair(const Form&);
Pick pick_convert_pack(const Form&);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu::arith

// What a decoded function says of itself, without being run.
#pragma once

#include <cstdint>
#include <vector>

#include "../decode/program.hpp"

namespace aicf::emu {

// Whether all that an instruction does is to set registers from registers and constants.
inline bool only_computes(Op op) {
    switch (op) {
        case Op::kArith:
        case Op::kMov32:
        case Op::kMov64:
        case Op::kLoadParam32:
        case Op::kLoadParam64:
        case Op::kLocalAddress:
        case Op::kClock:
        case Op::kPack:
        case Op::kUnpack:
        case Op::kNarrow:
        case Op::kWiden:
        case Op::kCvtaTo:
        case Op::kCvtaFrom:
        case Op::kIsspacep:
        case Op::kActivemask:
        case Op::kNanosleep:
        case Op::kNop: return true;
        default: return false;
    }
}

// Registers that decide what a loop does: where it goes, which memory it touches, and what it stores. Bytes from the start of a frame's
// rows, and slots of predicates.
struct LoopState {
    std::vector<uint32_t> rows32, rows64, predicates;
    bool reads_time = false;     // what it does depends on a clock
    bool stores_local = false;
};

// Of a loop whose instructions are all in [low, high].
LoopState find_loop_state(const Image& image, uint32_t low, uint32_t high);

}  // namespace aicf::emu

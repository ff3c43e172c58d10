// The interpreter as one of its builds: each x86-64 level fills in a table like this.
#pragma once

#include "engine.hpp"

namespace aicf::emu {

struct Level {
    const char* name;
    ArithFind find_arith;
    // Runs a warp of the block for at most `budget` warp instructions.
    StopReason (*run_warp[kNumModes])(Worker& worker, Block& block, Warp& warp, uint64_t budget);
};

// The best level that was built and that this host has.
const Level& engine();

}  // namespace aicf::emu

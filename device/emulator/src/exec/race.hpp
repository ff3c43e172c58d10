// Stamps of the race check: clock (20 bits) | strong (1 bit) | thread of the block (11 bits, all ones: several threads).
#pragma once

#include <cstdint>

namespace aicf::emu {

constexpr uint32_t kManyThreads = 0x7FF;
constexpr uint32_t kMaxStampClock = (1u << 20) - 2;

constexpr uint32_t make_stamp(uint32_t clock, bool strong, uint32_t thread) { return clock << 12 | (strong ? 1u << 11 : 0) | thread; }
constexpr uint32_t stamp_clock(uint32_t stamp) { return stamp >> 12; }
constexpr bool stamp_strong(uint32_t stamp) { return stamp >> 11 & 1; }
constexpr uint32_t stamp_thread(uint32_t stamp) { return stamp & kManyThreads; }

}  // namespace aicf::emu

// Stamps of accesses to shared memory: clock since Block::clock_base (20 bits) | strong (1 bit) | thread of the block (11 bits). In place
// of a thread: 1024 + w, several threads of warp w. A clock of all ones: the lower 12 bits are a slot of the RecordTable.
#pragma once

#include <atomic>
#include <cstdint>

namespace aicf::emu {

constexpr uint32_t kWarpThreads = 1024;
constexpr uint32_t kSpecialClock = (1u << 20) - 1;
constexpr uint32_t kMaxStampClock = kSpecialClock - 16;

constexpr uint32_t make_stamp(uint32_t clock, bool strong, uint32_t thread) { return clock << 12 | (strong ? 1u << 11 : 0) | thread; }
constexpr uint32_t special_stamp(uint32_t slot) { return kSpecialClock << 12 | slot; }
constexpr uint32_t stamp_clock(uint32_t stamp) { return stamp >> 12; }
constexpr bool is_special(uint32_t stamp) { return stamp_clock(stamp) == kSpecialClock; }
constexpr bool stamp_strong(uint32_t stamp) { return (stamp >> 11 & 1) && !is_special(stamp); }
constexpr uint32_t stamp_thread(uint32_t stamp) { return stamp & 0x7FF; }

// Held for a few operations at most, so waiting is spinning. Null: there is nobody to wait for.
class SpinLock {
public:
    explicit SpinLock(std::atomic<uint32_t>* word) : word_(word) {
        if (!word_) return;
        while (word_->exchange(1, std::memory_order_acquire) != 0) {
            while (word_->load(std::memory_order_relaxed) != 0) __builtin_ia32_pause();
        }
    }
    ~SpinLock() {
        if (word_) word_->store(0, std::memory_order_release);
    }
    SpinLock(const SpinLock&) = delete;
    SpinLock& operator=(const SpinLock&) = delete;

private:
    std::atomic<uint32_t>* word_;
};

}  // namespace aicf::emu

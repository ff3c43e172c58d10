// Which bytes of the arena a launch touches, and how: a bit for each byte and kind, set while the launch runs, read and cleared after it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <vector>

namespace aicf::emu {

// Strong: volatile, relaxed, acquire, release, and atomics, which are writes. Two strong accesses do not race.
enum class Touch : uint8_t { kRead, kWrite, kStrongRead, kStrongWrite };
constexpr size_t kNumTouches = 4;

struct Interval {
    uint64_t begin = 0, end = 0;  // addresses
};

// Ascending, disjoint, not adjacent; by kind of access.
using Footprint = std::array<std::vector<Interval>, kNumTouches>;

class FootprintMap {
public:
    FootprintMap(uint64_t base, uint64_t capacity_bytes);
    ~FootprintMap();
    FootprintMap(const FootprintMap&) = delete;
    FootprintMap& operator=(const FootprintMap&) = delete;

    // Thread-safe. [address, address + bytes) lies in the arena.
    void mark(Touch touch, uint64_t address, uint64_t bytes) {
        const uint64_t first = address - base_, last = first + bytes - 1;
        const auto kind = static_cast<size_t>(touch);
        for (uint64_t chunk = first >> kChunkShift; chunk <= last >> kChunkShift; ++chunk)
            if ((dirty_[chunk] >> kind & 1) == 0) note_dirty(chunk, kind);
        uint8_t* bits = bits_[kind];
        const uint32_t head = 0xFFu << (first % 8), tail = 0xFFu >> (7 - last % 8);
        if (first / 8 == last / 8) return set(bits + first / 8, head & tail);
        set(bits + first / 8, head);
        std::memset(bits + first / 8 + 1, 0xFF, last / 8 - first / 8 - 1);
        set(bits + last / 8, tail);
    }

    // The accesses of a warp's lanes in `mask`, of `size` bytes each, between `lo` and `hi` + size.
    void mark_lanes(Touch touch, uint32_t mask, const uint64_t* address, uint32_t size, uint64_t lo, uint64_t hi, bool contiguous) {
        if (contiguous || lo == hi) return mark(touch, lo, hi + size - lo);
        for (; mask != 0; mask &= mask - 1) mark(touch, address[std::countr_zero(mask)], size);
    }

    // What was marked, which is forgotten; nothing marks meanwhile. Of each kind the lowest kMostIntervals: what is left out is not found,
    // but nothing is found that is not there.
    Footprint take();

private:
    static constexpr uint64_t kChunkShift = 15;  // bytes of the arena
    static constexpr size_t kMostIntervals = 4096;

    static void set(uint8_t* at, uint32_t bits) {
        if ((*at & bits) != bits) __atomic_fetch_or(at, static_cast<uint8_t>(bits), __ATOMIC_RELAXED);
    }
    void note_dirty(uint64_t chunk, size_t kind);
    void take_chunk(uint64_t chunk, size_t kind, std::vector<Interval>& out);

    uint64_t base_, capacity_;
    std::array<uint8_t*, kNumTouches> bits_{};
    uint8_t* dirty_ = nullptr;  // by chunk: a bit for each kind
    std::atomic<uint64_t> first_dirty_{~0ull}, last_dirty_{0};
};

}  // namespace aicf::emu

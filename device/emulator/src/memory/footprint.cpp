#include "footprint.hpp"

#include <sys/mman.h>

#include <algorithm>

#include "map_zeros.hpp"

namespace aicf::emu {
namespace {

void add_run(std::vector<Interval>& out, uint64_t begin, uint64_t end, size_t most) {
    if (!out.empty() && out.back().end == begin)
        out.back().end = end;
    else if (out.size() < most)
        out.push_back({begin, end});
}

}  // namespace

FootprintMap::FootprintMap(uint64_t base, uint64_t capacity_bytes) : base_(base), capacity_(capacity_bytes) {
    for (uint8_t*& bits : bits_) bits = static_cast<uint8_t*>(map_zeros(capacity_ / 8 + 8));
    dirty_ = static_cast<uint8_t*>(map_zeros((capacity_ >> kChunkShift) + 1));
}

FootprintMap::~FootprintMap() {
    for (uint8_t* bits : bits_) munmap(bits, capacity_ / 8 + 8);
    munmap(dirty_, (capacity_ >> kChunkShift) + 1);
}

void FootprintMap::take_chunk(uint64_t chunk, size_t kind, std::vector<Interval>& out) {
    constexpr uint64_t kWords = (1ull << kChunkShift) / 64;
    uint8_t* bits = bits_[kind] + chunk * kWords * 8;
    const uint64_t start = base_ + (chunk << kChunkShift);
    for (uint64_t i = 0; i < kWords; ++i) {
        uint64_t word;
        std::memcpy(&word, bits + i * 8, 8);
        const uint64_t at = start + i * 64;
        while (word != 0) {
            const auto first = static_cast<uint64_t>(std::countr_zero(word));
            const auto count = static_cast<uint64_t>(std::countr_one(word >> first));
            add_run(out, at + first, at + first + count, kMostIntervals);
            if (first + count == 64) break;
            word &= ~0ull << (first + count);
        }
    }
    std::memset(bits, 0, kWords * 8);
}

void FootprintMap::note_dirty(uint64_t chunk, size_t kind) {
    set(dirty_ + chunk, 1u << kind);
    uint64_t first = first_dirty_.load(std::memory_order_relaxed);
    while (chunk < first && !first_dirty_.compare_exchange_weak(first, chunk, std::memory_order_relaxed)) continue;
    uint64_t last = last_dirty_.load(std::memory_order_relaxed);
    while (chunk > last && !last_dirty_.compare_exchange_weak(last, chunk, std::memory_order_relaxed)) continue;
}

Footprint FootprintMap::take() {
    Footprint all;
    const uint64_t begin = first_dirty_.exchange(~0ull), chunks = last_dirty_.exchange(0);
    for (uint64_t chunk = begin; chunk <= chunks; ++chunk) {
        uint64_t eight;
        if (chunk % 8 == 0 && chunk + 8 <= chunks && (std::memcpy(&eight, dirty_ + chunk, 8), eight == 0)) {
            chunk += 7;
            continue;
        }
        if (dirty_[chunk] == 0) continue;
        for (size_t kind = 0; kind < kNumTouches; ++kind)
            if (dirty_[chunk] >> kind & 1) take_chunk(chunk, kind, all[kind]);
        dirty_[chunk] = 0;
    }
    return all;
}

}  // namespace aicf::emu

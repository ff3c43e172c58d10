// A model of the L1 cache, for one counter: which sectors of a block's loads an L1 of a given size would not hold.
#pragma once

#include <cstdint>
#include <vector>

namespace aicf::emu {

// Lines of 128 bytes in four sectors, 8 ways, least recently used line out first; loads allocate, stores go by. The geometry of the
// hardware's L1 is not public: this holds what a cache of its size can hold, and is no claim about single hits.
class LoadCache {
public:
    // Forgets everything; 0 bytes switch it off.
    void reset(uint32_t bytes) {
        const uint32_t lines = bytes / kLineBytes;
        num_sets_ = lines == 0 ? 0 : lines < kWays ? 1 : lines / kWays;
        lines_.assign(static_cast<size_t>(num_sets_) * kWays, Line{});
        now_ = 0;
    }
    bool enabled() const { return num_sets_ != 0; }

    // Loads sectors (addresses / 32); returns how many were not there.
    uint32_t load(const uint64_t* sectors, uint32_t count) {
        uint32_t misses = 0;
        for (uint32_t i = 0; i < count; ++i) misses += !touch(sectors[i]);
        return misses;
    }

private:
    static constexpr uint32_t kLineBytes = 128, kWays = 8, kSectorsPerLine = 4;
    struct Line {
        uint64_t tag = ~0ull;
        uint64_t used = 0;
        uint32_t sectors = 0;
    };

    bool touch(uint64_t sector) {
        const uint64_t tag = sector / kSectorsPerLine;
        const uint32_t bit = 1u << (sector % kSectorsPerLine);
        // A hash, so that strides of a power of two do not all meet in one set.
        Line* set = &lines_[(tag * 0x9E3779B97F4A7C15ull >> 32) % num_sets_ * kWays];
        Line* oldest = set;
        for (Line* line = set; line != set + kWays; ++line) {
            if (line->tag == tag) {
                const bool hit = line->sectors & bit;
                line->sectors |= bit;
                line->used = ++now_;
                return hit;
            }
            if (line->used < oldest->used) oldest = line;
        }
        *oldest = {tag, ++now_, bit};
        return false;
    }

    uint32_t num_sets_ = 0;
    uint64_t now_ = 0;
    std::vector<Line> lines_;
};

}  // namespace aicf::emu

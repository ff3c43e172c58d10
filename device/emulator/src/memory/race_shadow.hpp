// What the race check remembers of accesses to global memory, by granules of 64 units; a unit is 4 bytes, or less where a kernel writes
// less at a time. A granule belongs to one launch: what an earlier one left in it counts as nothing, as launches follow each other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace aicf::emu {

constexpr uint32_t kGranuleUnits = 64;
constexpr uint32_t kManyLanes = 0xFF;

// Who and when: block (24 bits) | clock of the block (27) | kind (2) | thread of the block (11; reads: its warp).
enum class AccessKind : uint8_t { kWeak, kStrongBlock, kStrong, kAsync /* through the async proxy */ };
constexpr uint64_t make_epoch(uint64_t block, uint32_t clock, AccessKind kind, uint32_t thread) {
    return block << 40 | static_cast<uint64_t>(clock & 0x7FFFFFF) << 13 | static_cast<uint64_t>(kind) << 11 | thread;
}
constexpr uint64_t epoch_block(uint64_t epoch) { return epoch >> 40; }
constexpr uint32_t epoch_clock(uint64_t epoch) { return static_cast<uint32_t>(epoch >> 13) & 0x7FFFFFF; }
constexpr AccessKind epoch_kind(uint64_t epoch) { return static_cast<AccessKind>(epoch >> 11 & 3); }
constexpr uint32_t epoch_thread(uint64_t epoch) { return epoch & 0x7FF; }
constexpr uint64_t kMostRaceBlocks = 1ull << 24;

// Reads of one warp: which units, and by which lane each (kManyLanes: by several).
struct ReadEntry {
    uint64_t epoch;
    uint64_t units;
    uint32_t pc;
    uint8_t lane[kGranuleUnits];
};

struct Granule {
    static constexpr uint32_t kReads = 6;
    std::atomic<uint32_t> lock;
    uint32_t launch;
    uint64_t written;  // units whose last write is noted below
    uint32_t num_reads, next_read;
    ReadEntry reads[kReads];  // the latest ones
    uint64_t write[kGranuleUnits];
    uint32_t write_pc[kGranuleUnits];
    // Of the launch before, where this one may start before its end: units that it wrote (the fields above tell by whom, as long as
    // this launch does not write there), and read; the last of those reads.
    uint64_t before_written, before_read, before_read_epoch;
    uint32_t before_read_pc;

    // To be called under the lock, before anything else is read: what an earlier launch left is forgotten, but for `primary`'s.
    void enter(uint32_t epoch, uint32_t primary) {
        if (launch == epoch) return;
        before_written = before_read = 0;
        if (launch == primary && primary != 0) {
            before_written = written;
            for (uint32_t i = 0; i < num_reads; ++i) {
                before_read |= reads[i].units;
                before_read_epoch = reads[i].epoch;
                before_read_pc = reads[i].pc;
            }
        }
        launch = epoch;
        written = 0;
        num_reads = next_read = 0;
    }
};

// What a finding needs to know of a launch that lets its dependents start before its end.
struct PrimaryLaunch {
    uint32_t epoch = 0;  // 0: the last launch is none
    uint32_t global_shift = 0;
    std::string kernel;
    uint64_t grid[2] = {}, block[2] = {};  // extents in x and y
    std::shared_ptr<const std::vector<std::string>> places;  // of the instructions
};

class RaceShadow {
public:
    explicit RaceShadow(uint64_t capacity_bytes);
    ~RaceShadow();
    RaceShadow(const RaceShadow&) = delete;
    RaceShadow& operator=(const RaceShadow&) = delete;

    // Starts a launch; returns its epoch.
    uint32_t begin_launch() { return ++launch_; }
    PrimaryLaunch primary;
    // The granule by number (arena offset / (units x unit bytes)); null when the host has no memory left.
    Granule* granule(uint64_t index) {
        Granule* chunk = chunks_[index / kChunkGranules].load(std::memory_order_acquire);
        if (!chunk) [[unlikely]]
            chunk = make_chunk(index / kChunkGranules);
        return chunk ? chunk + index % kChunkGranules : nullptr;
    }

private:
    static constexpr uint64_t kChunkGranules = 256;
    Granule* make_chunk(uint64_t chunk);

    std::mutex mutex_;
    std::atomic<Granule*>* chunks_ = nullptr;
    uint64_t num_chunks_ = 0;
    uint32_t launch_ = 0;
};

}  // namespace aicf::emu

// What wgmma has under way in a warp and a warpgroup.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

namespace aicf::emu {

// A wgmma.mma_async between issue and completion. It is carried out at the latest legal moment, so that operands in shared memory that are
// overwritten too early show.
struct PendingWgmma {
    uint32_t pc = 0;
    uint32_t group = 0;  // commit_groups of the warp before it
    uint32_t mask = 0;
    uint32_t agent = 0;
    uint32_t serial = 0;        // of the warp's
    bool is_done = false;       // carried out, when another warp of the warpgroup waited for it; this one has not yet
    uint64_t a = 0, b = 0;      // descriptors
    bool accumulates = true;    // scale-d
    bool is_valid = true;       // its operands lie in shared memory
    const uint32_t* list = nullptr;  // form and operands
    uint8_t* rows = nullptr;         // of the frame that issued it
    uint32_t a_fragment[4][32];
    uint32_t metadata[32];  // of sparse A
};

struct WarpWgmma {
    std::vector<PendingWgmma> pending;
    uint32_t commits = 0;
    uint32_t issued = 0;
    uint32_t waited = 0;           // of the issued ones, how many a wgmma.wait_group of this warp has covered
    std::deque<std::pair<uint32_t, uint32_t>> readers;  // race check: serial and agent, until all warps of the warpgroup have waited
    bool fenced = false;           // a wgmma.fence was executed
    std::vector<uint64_t> dirty;   // registers of wgmma that were written since the last fence: a bit for each row of the warp
    void reset() {
        pending.clear();
        commits = issued = waited = 0;
        readers.clear();
        fenced = false;
        dirty.clear();
    }
};

// The instructions of a warpgroup, as the first of its warps executes them; `at[0]` is number `first`.
struct WarpgroupLog {
    uint32_t first = 0;
    std::vector<uint32_t> at;
};

}  // namespace aicf::emu

// What a thread knows of the others: vector clocks, sparse, because a launch may have thousands of blocks.
//
// Every block counts its synchronisations: that count is its clock. An access is stamped with the clock of its block; a release takes a new
// tick, so the accesses before it are those with a smaller stamp. To know "id -> c" is to be ordered after what id did before c.
//
// A thread's knowledge lies in four places, from common to special: Block::floor (everybody of the block, before this), Warp::order and
// Warp::warp_floor (by warp), Warp::lane_order (by lane, after partial __syncwarp and after releases of single threads), and sparse Clocks
// of the block, the warp and the lane: threads of other blocks, asynchronous operations, and what a proxy fence has made visible.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace aicf::emu {

// Ids within a block: its threads; whole warps; asynchronous operations by where they complete; the whole block.
constexpr uint32_t kIdWarp = 1024, kIdChannel = 1056, kIdWhole = 4095;
constexpr uint64_t kProxyKey = 1ull << 63;  // what is known through the async proxy
constexpr uint64_t kReadKey = 1ull << 62;  // the reads only: they are over, the writes need not have arrived
constexpr uint64_t kPrimaryBlock = (1ull << 24) - 1;  // stands for the launch before; known of after griddepcontrol.wait
constexpr uint64_t clock_key(uint64_t block, uint32_t id) { return block << 12 | id; }
constexpr bool is_plain(uint64_t key) { return (key & (kProxyKey | kReadKey)) == 0; }
constexpr uint64_t key_block(uint64_t key) { return (key & ~(kProxyKey | kReadKey)) >> 12; }
constexpr uint32_t key_id(uint64_t key) { return key & 0xFFF; }

class Clocks {
public:
    struct Entry {
        uint64_t key;
        uint32_t clock;
        bool operator==(const Entry&) const = default;
    };
    bool empty() const { return entries_.empty(); }
    void clear() { entries_.clear(); }
    uint32_t get(uint64_t key) const;  // 0: nothing is known
    void raise(uint64_t key, uint32_t clock);
    void join(const Clocks& other);
    Clocks reads() const;  // of what is known, the order of the reads alone
    const std::vector<Entry>& entries() const { return entries_; }
    template <typename F>
    void drop_if(F&& useless) {
        std::erase_if(entries_, useless);
    }

private:
    std::vector<Entry> entries_;  // by key
};

// What threads have handed to the objects of a launch. Blocks run on several host threads.
class OrderTable {
public:
    void release(uint64_t object, const Clocks& clocks);
    // False: nobody has released to the object.
    bool acquire(uint64_t object, Clocks& to);
    bool may_hold(uint64_t object) const {
        const uint64_t hash = mix(object);
        return filter_[hash / 64 % kFilterWords].load(std::memory_order_acquire) >> (hash % 64) & 1;
    }
    void forget_block(uint64_t block);  // objects in a block's shared memory, when it ends

    // Of other blocks' reads, what the thread `by` knew when it stored to a word at `clock` of its block. Kept here rather than handed on
    // with the word: in a chain of blocks each would carry all those before it.
    void log_reads(uint64_t by, uint32_t clock, const Clocks& foreign);
    // Whether one who knows `from` knows, by such steps, that what `key` (or a warp or block it belongs to) read at `clock` is over;
    // `found`: what says so.
    bool finds_reads(const Clocks& from, uint64_t key, uint32_t clock, Clocks::Entry& found);

private:
    static constexpr size_t kShards = 64, kFilterWords = 256;
    static uint64_t mix(uint64_t x) {
        x *= 0x9E3779B97F4A7C15ull;
        return x ^ x >> 29;
    }
    struct Shard {
        std::mutex mutex;
        std::unordered_map<uint64_t, Clocks> objects;
    };
    Shard shards_[kShards];
    struct ReadLog {
        uint32_t id, clock;
        Clocks foreign;
    };
    std::mutex logs_mutex_;
    std::unordered_map<uint64_t, std::vector<ReadLog>> logs_;  // by block
    std::atomic<uint64_t> filter_[kFilterWords] = {};
};

// An access that a stamp of shared memory cannot say itself: by an asynchronous operation, or by a thread of another block of the cluster.
struct AccessRecord {
    enum State : uint8_t { kFree, kInFlight, kDone };
    State state = kFree;
    bool async_proxy = false;
    bool is_agent = false;
    bool strong = false;
    uint64_t block = 0;  // who: for agents, the thread that issued it
    uint32_t thread = 0;
    uint32_t pc = 0;
    uint64_t key = 0;  // done: ordered after it are those who know of key -> clock + 1
    uint32_t clock = 0;
    uint32_t generation = 0;
};

struct RecordTable {
    static constexpr uint32_t kSlots = 4096;
    std::vector<AccessRecord> slots;
    uint32_t next = 0;
    uint32_t generation = 0;
    std::unordered_map<uint64_t, uint32_t> channels;  // object -> channel
};

// Reads of shared memory by whole warps since the last barrier of the block, not yet in the shadow. Where threads only read between two
// barriers, as most do, they need never go there. For that, pages of shared memory know when they were last read and written.
struct ReadLog {
    static constexpr uint32_t kPageShift = 8, kMost = 8192;
    static constexpr uint32_t kNeverClean = ~0u;  // written by an asynchronous operation or another block
    struct Entry {
        uint32_t low, high;  // addresses of lanes 0 and 16
        uint32_t clock, warp_floor, pc;
        uint16_t run;  // bytes that each half of the warp reads from there
        uint8_t warp;
        bool uniform;  // each lane of a half reads all of them; else each its own part, in the order of lanes
    };
    bool active = false;
    std::vector<Entry> entries;
    std::vector<uint32_t> page_read, page_write;  // clock of the block

    // The latest of the pages that hold [address, address + bytes), which is no more than a page.
    static uint32_t latest(const std::vector<uint32_t>& pages, uint32_t address, uint32_t bytes) {
        return std::max(pages[address >> kPageShift], pages[(address + bytes - 1) >> kPageShift]);
    }
    static void mark(std::vector<uint32_t>& pages, uint32_t address, uint32_t bytes, uint32_t clock) {
        for (uint32_t page = address >> kPageShift; page <= (address + bytes - 1) >> kPageShift; ++page)
            pages[page] = std::max(pages[page], clock);
    }
};

// Knowledge of single lanes, made when it is first needed.
struct LaneOrder {
    bool floors_used = false, clocks_used = false, pending_used = false;
    uint32_t floor[32][32] = {};  // [lane][other lane of the warp]
    Clocks known[32];
    Clocks pending[32];  // read by relaxed accesses: known after the next fence or barrier
};

struct Block;
struct Warp;
struct LaunchState;

namespace order {

uint32_t tick(Block& block);
// Whether the lane knows what (block, thread) did up to `clock`. Threads of the own block are asked for here only when the quick tests
// failed.
bool knows(const Block& block, const Warp& warp, uint32_t lane, uint64_t other_block, uint32_t other_id, uint32_t clock, uint64_t flag = 0);
bool knows_key(const Block& block, const Warp& warp, uint32_t lane, uint64_t key, uint32_t clock);
// Everything that the lanes know, with their own accesses up to own_clock (by lane, if given).
// The same of reads alone, by another block's thread (or 1024 + w: several of its warp w).
bool knows_read(Block& block, Warp& warp, uint32_t lane, uint64_t other_block, uint32_t other_id, uint32_t clock);
void publish(const Block& block, const Warp& warp, uint32_t lanes, uint32_t own_clock, const uint32_t* own_by_lane, Clocks& out);
// What a store to a word of global memory by one lane hands on of the order of reads alone; and what others may ask for later.
void publish_reads(const Block& block, const Warp& warp, uint32_t lane, uint32_t own_clock, Clocks& out);
void acquire(Block& block, Warp& warp, uint32_t lanes, const Clocks& clocks);
void acquire_pending(Block& block, Warp& warp, uint32_t lanes);
void warp_barrier(Block& block, Warp& warp, uint32_t lanes);
// A shuffle, vote or match: the lanes learn what any of them has acquired from other warps, but nothing of each other's own accesses.
void exchange(Block& block, Warp& warp, uint32_t lanes);
void block_barrier(Block& block);
void fence(Block& block, Warp& warp, uint32_t lanes, bool whole_device);
void proxy_fence(Block& block, Warp& warp, uint32_t lanes);

RecordTable& records(Block& block);
uint32_t add_record(Block& block, const AccessRecord& record);  // slot
void forget_shared(Block& block);  // clears the shadow of shared memory

}  // namespace order
}  // namespace aicf::emu

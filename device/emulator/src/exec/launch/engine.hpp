// State of a launch in flight: plain data, common to all levels of the interpreter.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../../memory/round_up.hpp"
#include "../async/async_state.hpp"
#include "../counters/cache.hpp"
#include "../decode/program.hpp"
#include "../exec.hpp"
#include "../race/order.hpp"
#include "../tensor/wgmma_state.hpp"
#include "livelock.hpp"

namespace aicf::emu {

class RaceShadow;

enum class Mode : uint8_t { kPlain, kChecked, kCounted /* counters, and checks where asked */ };
constexpr int kNumModes = 3;

enum class StopReason : uint8_t { kDone, kBlocked, kQuantum, kPolled /* waits for others by polling */, kFatal };

enum class EntryState : uint8_t {
    kRunnable,
    kYielded,  // spun for long: waits for the other threads of the warp to have a turn
    kGather,   // at an instruction that threads must execute together, waiting for the rest of them
    kBarrier,  // arrived at a barrier of the block
    kCluster,  // waits for the barrier of the cluster
    kWarpgroup,  // waits for a wgmma that other warps of the warpgroup have not issued yet
};

// Threads of a warp that are at the same instruction.
struct Entry {
    uint32_t pc = 0;
    uint32_t mask = 0;
    int32_t frame = 0;
    EntryState state = EntryState::kRunnable;
    uint8_t barrier = 0;
};

struct Frame {
    uint32_t return_pc = 0;
    int32_t parent = -1;
    uint32_t refs = 0;
    uint32_t depth = 0;
    uint32_t offset32 = 0, offset64 = 0, offset_predicates = 0;
    uint32_t local_base = kLocalStart;
    uint32_t call = 0;      // index into Image::calls: how to return
    uint32_t function = 0;  // index into Image::functions
};

// A read at an instruction that may be one of many of the same address.
struct Poll {
    uint64_t address = 0;
    uint32_t pc = ~0u;
};
constexpr uint32_t kMostPolls = 4;  // that a warp remembers

// cp.async between issue and wait.
struct AsyncCopy {
    uint32_t mask = 0;
    uint32_t pc = 0;
    uint32_t bytes = 0;
    uint32_t destination[kWarpLanes];
    uint64_t source[kWarpLanes];
    uint8_t source_bytes[kWarpLanes];
    uint32_t group[kWarpLanes];
    uint32_t serial = 0;
};

// Of a register or predicate: for each byte, the lanes in which it holds what nothing wrote (warp/undefined.cpp), and which load that was.
struct Undefined {
    std::array<uint32_t, 8> bytes{};
    uint32_t origin = 0;  // index into Warp::undefined_origins
    uint32_t lanes() const { return bytes[0] | bytes[1] | bytes[2] | bytes[3] | bytes[4] | bytes[5] | bytes[6] | bytes[7]; }
    void spread() { bytes.fill(lanes()); }
    void merge(const Undefined& other) {
        if (lanes() == 0) origin = other.origin;
        for (size_t i = 0; i < bytes.size(); ++i) bytes[i] |= other.bytes[i];
    }
};
struct UndefinedOrigin {
    uint32_t pc = 0, lane = 0;
    MemSpace space = MemSpace::kGlobal;
    uint64_t address = 0;
    uint32_t size = 0;
};
struct Warp {
    uint32_t id = 0;
    uint32_t live = 0;       // threads that have not exited
    uint32_t initial = 0;    // threads it started with
    uint32_t forced_pc = ~0u;  // a gathering instruction to execute although threads are missing
    uint32_t carry = 0;
    uint8_t* rows32 = nullptr;
    uint8_t* rows64 = nullptr;
    uint32_t* predicates = nullptr;
    uint8_t* specials = nullptr;
    std::vector<Entry> entries;
    std::vector<Frame> frames;
    std::vector<int32_t> free_frames;
    std::vector<AsyncCopy> async;
    WarpWgmma wgmma;
    uint32_t async_serial = 0;
    uint32_t async_handed[kWarpLanes] = {};  // copies of a lane before this serial: an mbarrier tells of them
    std::vector<BulkCopy> bulk_stores;  // `thread`: the lane
    uint32_t bulk_commits[kWarpLanes] = {};
    uint32_t commits[kWarpLanes] = {};
    uint32_t alloca_used[kWarpLanes] = {};  // bytes of Image::alloca_bytes
    // What the warp's last poll that found nothing was about, for the report of a deadlock.
    const Block* polled_block = nullptr;
    uint32_t polled_address = 0, polled_pc = 0, polled_mask = 0;
    // The reads and atomics that may be polls: the last few, which of them was the last, and whether it was repeated; of memory other than
    // an mbarrier.
    Poll polls[kMostPolls];
    uint32_t last_poll = 0;
    bool is_vain = false;
    // It has read what blocks that do not run may have a part in, or shared memory that a warp may have written that has: what it writes
    // from now on counts as unwritten, and what goes wrong in it is no finding.
    bool depends = false;
    WarpCycle cycle;
    uint64_t changes = 0;                     // times that it did what others can see
    uint32_t loop_low = ~0u, loop_high = 0;   // first and last instruction of the loops that it took since somebody looked
    uint32_t init_fenced = 0;  // threads whose next relaxed arrival at the cluster barrier publishes mbarriers (fence.mbarrier_init)
    uint32_t cluster_arrived = 0;  // threads that arrived at the cluster's barrier in its current phase
    uint32_t cluster_passed = 0;   // threads whose phase is complete, and who have not waited yet
    uint32_t registers = 0;        // as the last setmaxnreg of the warp set them; 0: none was executed
    uint32_t register_changes = 0;
    uint64_t instructions = 0;
    uint64_t loops = 0;     // backward branches taken, where ExecOptions::loop_limit asks for them
    uint64_t moved_at = 0;  // `loops` when the warp last did what others can see, or waited for them
    std::unordered_map<const void*, Undefined> undefined;  // by the place of the row; empty but for a few warps
    std::vector<UndefinedOrigin> undefined_origins;
    // Happens-before, on the block's clock (order.hpp): accesses stamped before these are ordered before what the warp does now.
    uint32_t warp_floor = 0;         // accesses of this warp's own threads
    uint32_t order[kMaxWarps] = {};  // accesses of another warp
    uint32_t fence_device[kWarpLanes] = {}, fence_block[kWarpLanes] = {};  // last fence of each lane, by what it reaches
    uint32_t last_fence_device = 0, last_fence_block = 0;
    Clocks known;
    std::unique_ptr<LaneOrder> lane_order;
};

struct Barrier {
    uint32_t arrived = 0;    // threads
    uint32_t expected = 0;   // threads; 0: all that are alive
    bool active = false;
    bool all = true, any = false;
    uint32_t count = 0;      // of true predicates
    bool arrive_only = false;  // a thread arrived and did not wait
    uint32_t first_pc = ~0u;   // of the first thread that waits
    Clocks handed;             // race check: by those that arrived
};

struct LaunchState;
struct Block;

// Blocks of one cluster: they run on one worker, so that they may touch each other's shared memory. A launch without clusters has clusters
// of one block.
struct Cluster {
    std::vector<Block*> blocks;  // by rank
    uint32_t live_threads = 0;
    // Its barrier.
    uint32_t arrived = 0;  // threads, in the current phase
    uint32_t phase = 0;
};

// The sectors of global memory that a block has touched; for counters.
class SectorSet {
public:
    uint32_t insert(uint64_t sector, uint32_t kinds);  // returns those of `kinds` (bits: 1 read, 2 written) that are new
    bool holds(uint64_t sector, uint32_t kind) const;
    void clear();

private:
    struct Slot {
        uint64_t sector = 0;
        uint32_t epoch = 0, kinds = 0;
    };
    void grow();
    std::vector<Slot> slots_;
    size_t used_ = 0;
    uint32_t epoch_ = 1;
};

struct Block {
    LaunchState* launch = nullptr;
    uint64_t linear = 0;
    Cluster* cluster = nullptr;  // null: a cluster of this block alone
    uint32_t cluster_rank = 0;
    uint32_t ctaid[3] = {0, 0, 0};
    bool has_dependent = false;  // one of its warps, or of its cluster's, depends on other blocks
    bool has_begun = false;  // one of its threads has executed an instruction
    uint32_t num_warps = 0, num_threads = 0, live_threads = 0;
    uint32_t next_warp = 0;
    std::vector<Warp> warps;
    Barrier barriers[16];
    std::unordered_map<uint32_t, Mbarrier> mbarriers;  // by address in shared memory
    // Shared memory by address (from 0, so the first kSharedStart bytes are unused), and one state byte for each byte of it.
    uint8_t* shared = nullptr;
    uint8_t* shared_state = nullptr;  // bits: 1 written, 2 a copy is in flight, 4 part of an mbarrier
    uint32_t shared_end = 0;
    bool has_shared(uint64_t offset, uint32_t bytes) const;  // all of them inside of variables
    uint8_t* local = nullptr;         // num_threads x local_stride
    uint8_t* local_state = nullptr;
    uint32_t local_stride = 0;
    // Race check: stamps of unit accesses (see race.hpp).
    uint32_t* last_write = nullptr;
    uint32_t* last_read = nullptr;
    uint32_t* read_warps = nullptr;
    ReadLog read_log;
    uint32_t clock = 1, clock_base = 0 /* of stamps of shared memory */, start_clock = 1;
    uint32_t floor = 1;  // accesses stamped before this are ordered before every thread's next one
    std::vector<WarpgroupLog> wgmma_logs;  // by warpgroup, when wgmma is checked
    uint32_t fence_floor_device = 0, fence_floor_block = 0;  // a fence before a barrier of the block serves all its threads
    Clocks known;                                            // by every thread of the block
    RecordTable records;
    std::vector<uint32_t> write_pc, read_pc;  // instruction of the last write and read of each unit
    std::vector<uint32_t> agent_read;         // special stamps: reads by asynchronous operations and by other blocks; made when needed
    void* region = nullptr;
    size_t region_bytes = 0;
    uint32_t quanta = 0;
    uint64_t random = 1;
    SectorSet sectors;
    LoadCache l1;

    Block() = default;
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    void allocate(LaunchState& state);
    // As the block of that rank in the cluster of that number.
    void start(uint64_t cluster_index, uint32_t rank);
};

enum class Finding : uint8_t {
    kOutOfBoundsRead,
    kOutOfBoundsWrite,
    kUseAfterFree,
    kPeerAccess,
    kMisaligned,
    kInvalidSpace,
    kUninitialized,
    kAsyncInFlight,
    kMbarrierInvalid,
    kMbarrierOverflow,
    kMbarrierReinit,
    kTensorMapInvalid,
    kInvalidMulticast,
    kBulkStoreUnfinished,
    kDivergentBarrier,
    kBarrierCount,
    kMissingLanes,
    kExcludesCaller,
    kExitedLanes,
    kShuffleInactive,
    kRace,
    kRaceSameValue,
    kRaceBenign,
    kWgmmaRegisterHazard,
    kWgmmaMissingFence,
    kWgmmaWarpgroup,
    kGlobalRace,
    kGlobalRaceSameValue,
    kGlobalRaceBenign,
    kMissingProxyFence,
    kWgmmaOperandOverwritten,
    kAsyncSourceOverwritten,
    kDeadlock,
    kInstructionLimit,
    kEndlessLoop,
    kAssert,
    kTrap,
    kBreakpoint,
    kStackOverflow,
    kInvalidPc,
    kInvalidBarrier,
    kClusterRank,
    kClusterExited,
    kClusterNotBegun,
    kClusterBarrier,
    kNoCluster,
    kTextureObject,
    kInvalidFree,
    kDoubleFree,
    kRegisterBudget,
    kConditionalHandle,
    kGridDependencyMissing,
    kReadOnlyWrite,
    kBarrierPlaces,
    kInterrupted,
    kFreshRead,
};

struct FindingInfo {
    const char* kind;
    Severity severity;
    const char* title;
};
const FindingInfo& finding_info(Finding finding);

struct Worker;

struct LaunchState {
    const Launch* launch = nullptr;
    const ProgramImpl* program = nullptr;
    const Image* image = nullptr;
    DeviceMemory* memory = nullptr;
    ExecOptions options;
    Mode mode = Mode::kPlain;
    std::byte* constants = nullptr;  // rows, 64-byte aligned; with this launch's parameters
    uint64_t grid_blocks = 0;
    uint32_t block_threads = 0;
    uint32_t cluster_blocks = 1;
    uint64_t grid_workspace = 0;  // of a cooperative launch, 0: none
    uint64_t grid_clusters = 0;
    uint32_t shared_bytes = 0;  // static + dynamic
    uint64_t launch_serial = 0;
    std::atomic<bool> stop{false};
    std::atomic<uint64_t> instructions{0};
    std::atomic<uint64_t> next_cluster{0};
    std::atomic<uint64_t> finished_blocks{0};
    WaitBoard waits;
    uint64_t run_clusters = 0;            // of the grid's that run: all, or a sample
    std::vector<uint64_t> cluster_order;  // empty: in order
    bool is_part() const { return run_clusters < grid_clusters; }
    std::atomic<uint64_t>* read_sectors = nullptr;  // counters: one bit for each 32-byte sector of the arena
    std::atomic<uint64_t>* write_sectors = nullptr;
    uint32_t co_resident = 1;  // blocks
    OrderTable* order = nullptr;    // race check: what threads have handed to each other
    RaceShadow* shadow = nullptr;   // race check of global memory
    uint32_t shadow_epoch = 0, global_shift = 2;
    uint32_t primary = 0;  // race check: epoch of the launch before, while this one may have to wait for it (griddepcontrol.wait)
    std::atomic<bool> lets_dependents_start{false};
    bool single_worker = false;
    std::atomic<uint32_t> num_race_waits{0};  // for a write of another worker that was noted and not yet made
    std::atomic<uint32_t> atomic_turn{0};   // race check: one warp at a time does atomics on global memory

    std::mutex mutex;  // of all below
    int status = kSuccess;
    std::vector<Report> reports;
    std::unordered_map<uint64_t, size_t> report_index;
    struct Output {
        uint64_t block;
        bool is_error;
        std::string text;
    };
    std::vector<Output> output;
    Counters counters;

    void end_with(int launch_status);
};

// What the hardware has room for.
constexpr uint32_t kBlocksPerMultiprocessor = 32, kThreadsPerMultiprocessor = 2048, kMultiprocessors = 132;

inline uint64_t next_random(uint64_t& state) {  // SplitMix64
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

inline bool Block::has_shared(uint64_t offset, uint32_t bytes) const {
    return offset >= kSharedStart && offset + bytes <= shared_end && !launch->image->crosses_shared_gap(offset, offset + bytes);
}

struct Range {
    uint64_t begin = 1, end = 0;
    bool given = false;      // as the allocation is
    bool is_shared = false;  // blocks of an earlier launch that were left out may have stored to it
};

// Race check: plain reads of global memory by one warp at one instruction that the shadow has not been told of yet. They are noted before
// the warp does anything that orders it with others, or writes: until then it is the same when they happened. A loop in which each thread
// walks along a row of its own touches 32 granules at each turn, and so tells each of them once and not 64 times.
struct PendingReads {
    static constexpr uint32_t kSlots = 16;  // instructions
    uint32_t mask = 0;                      // lanes that have read
    alignas(64) uint64_t granule[kWarpLanes];
    alignas(64) uint64_t units[kWarpLanes];
};

struct Worker {
    LaunchState* launch = nullptr;
    uint32_t id = 0;
    uint32_t checks = 0;
    std::vector<Range> ranges;  // by pc: the allocation that the instruction's last access was in
    std::unordered_map<uint64_t, uint64_t> folded;  // (finding, pc) -> count
    std::unordered_set<uint64_t> stored;            // kDependence: addresses of the allocations that were stored to
    Counters counters;            // what belongs to no instruction
    std::vector<Counters> lines;  // by pc, when counters are on
    uint32_t pending = 0;  // of these that are in use, for the warp that runs
    std::array<uint32_t, PendingReads::kSlots> pending_pc;
    std::array<PendingReads, PendingReads::kSlots> pending_reads;
    uint64_t instructions = 0;
    uint64_t matrix_products = 0;  // multiply-adds of instructions on matrices
    uint64_t progress = 0;  // changes of what warps poll for: without any, blocks that only poll are in a deadlock
};
void run_workers(LaunchState& state, std::vector<Worker>& workers);  // until the launch ends
std::vector<LineCounters> collect_lines(const LaunchState& state, const std::vector<Worker>& workers);

// Reports. `lane` is of the warp; addresses are in the space named. All fold by (finding, pc).
struct AccessFinding {
    Finding finding;
    MemSpace space;
    bool is_write = false, is_atomic = false;
    uint64_t address = 0;
    uint32_t size_bytes = 0;
    uint32_t used_pc = ~0u;  // uninitialised reads: where the value mattered
};
void report_access(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, const AccessFinding& access);
struct RaceFinding {
    Finding finding = Finding::kRace;
    uint64_t address = 0;  // in shared memory, or global
    bool is_write = false, other_is_write = false;
    bool by_agent = false, other_by_agent = false;  // an asynchronous operation that the thread issued
    bool in_flight = false;                         // ... which may not be over
    bool other_is_primary = false;                  // a thread of the launch before
    uint64_t other_block = 0;
    uint32_t other_thread = 0;  // linear; 1024 + w: several of warp w; else several of the block
    uint32_t other_pc = 0;
    uint64_t owner_block = ~0ull;  // of the shared memory; ~0: one's own
};
void report_race(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, const RaceFinding& race);
void report_event(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, Finding finding, const std::string& detail);
void report_barrier_places(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, uint32_t other_pc);
std::vector<std::string> describe_places(const LaunchState& state);  // of the image's instructions
void merge_copies(std::vector<Report>& reports);  // of one place in the source, which unrolling has made
void report_deadlock(Worker& worker, Block& block);
// What the warps of these blocks wait for, or are at, as one finding.
void report_waits(Worker& worker, const std::vector<Block*>& blocks, Finding finding, const std::string& head);

void run_printf(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, uint64_t format, uint64_t arguments,
                uint32_t* result);
void run_assert(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, uint64_t message, uint64_t file, uint32_t line,
                uint64_t function);

// Reads `bytes` at a generic address for the thread; false when it is not readable there.
bool read_generic(const Block& block, const Warp& warp, uint32_t lane, uint64_t address, void* to, uint32_t bytes);

void thread_index(const LaunchState& state, uint32_t linear, uint32_t out[3]);

}  // namespace aicf::emu

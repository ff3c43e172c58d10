// Launches: blocks, the threads that run them, and the end of a launch.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <numeric>
#include <thread>

#include "../memory/race_shadow.hpp"
#include "level.hpp"
#include "race.hpp"

namespace aicf::emu {
namespace {

constexpr uint64_t kWarpQuantum = 4096;         // warp instructions before another warp of the block has its turn
constexpr size_t kMostPause = 1000;  // microseconds that a worker rests when all its blocks only poll
constexpr uint64_t kGreedyQuantum = 1 << 20;
constexpr uint32_t kBlockQuanta = 64;            // turns of warps before another block has its turn
constexpr uint32_t kCooperativeBlockQuanta = 4; // the same where blocks are likely to wait for each other
constexpr uint32_t kMaxStuckRounds = 64;        // turns in a row in which blocks only poll mbarriers: then they are in a deadlock
constexpr uint32_t kClusterBlockQuanta = 4;     // turns of warps before another block of the cluster has its turn
constexpr uint32_t kBlocksPerMultiprocessor = 32, kThreadsPerMultiprocessor = 2048, kMultiprocessors = 132;
constexpr uint32_t kMostClusterBlocks = 16;  // beyond 8 the kernel has to allow it; the runtime sees to that
constexpr uint32_t kSharedPerMultiprocessor = 228 * 1024, kSharedPerBlock = 227 * 1024;

uint64_t next_random(uint64_t& state) {  // SplitMix64
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

size_t round_up(size_t value, size_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

Block::~Block() {
    if (region) munmap(region, region_bytes);
}

void Block::allocate(LaunchState& state) {
    launch = &state;
    const Image& image = *state.image;
    num_threads = state.block_threads;
    num_warps = (num_threads + kWarpLanes - 1) / kWarpLanes;
    shared_end = kSharedStart + state.shared_bytes;
    local_stride = image.stack_local + image.alloca_bytes;
    const bool init = state.options.checks & kInitcheck;
    const bool race = state.options.checks & kRacecheck;
    const size_t units = (shared_end >> image.race_shift) + 64;
    const size_t per_warp32 = round_up(image.stack32, 256), per_warp64 = round_up(image.stack64, 256);
    const size_t per_warp_predicates = round_up(4ull * image.stack_predicates + 64, 256),
                 per_warp_specials = round_up(image.special_bytes, 256);
    const size_t threads = static_cast<size_t>(num_warps) * kWarpLanes;

    size_t at = 0;
    const auto reserve = [&](size_t bytes) {
        const size_t offset = at;
        at = round_up(at + bytes, 256);
        return offset;
    };
    const size_t rows_at = reserve(num_warps * (per_warp32 + per_warp64 + per_warp_predicates + per_warp_specials));
    const size_t shared_at = reserve(shared_end + 64);
    const size_t shared_state_at = reserve(init ? shared_end + 64 : 0);
    const size_t local_at = reserve(threads * local_stride + 64);
    const size_t local_state_at = reserve(init ? threads * local_stride + 64 : 0);
    const size_t writes_at = reserve(race ? 4 * units : 0), reads_at = reserve(race ? 4 * units : 0),
                 warps_at = reserve(race ? 4 * units : 0);
    region_bytes = round_up(at, 4096);
    region = mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED) {
        region = nullptr;
        throw std::bad_alloc();
    }
    uint8_t* base = static_cast<uint8_t*>(region);
    shared = base + shared_at;
    shared_state = init ? base + shared_state_at : nullptr;
    local = base + local_at;
    local_state = init ? base + local_state_at : nullptr;
    if (race) {
        last_write = reinterpret_cast<uint32_t*>(base + writes_at);
        last_read = reinterpret_cast<uint32_t*>(base + reads_at);
        read_warps = reinterpret_cast<uint32_t*>(base + warps_at);
        write_pc.assign(units, 0);
        read_pc.assign(units, 0);
        // Blocks of a cluster ask for reads that are older than the last barrier.
        read_log.active = state.cluster_blocks == 1;
        read_log.page_read.assign((shared_end >> ReadLog::kPageShift) + 2, 0);
        read_log.page_write.assign((shared_end >> ReadLog::kPageShift) + 2, 0);
    }
    warps.resize(num_warps);
    uint8_t* rows = base + rows_at;
    for (uint32_t w = 0; w < num_warps; ++w) {
        Warp& warp = warps[w];
        warp.id = w;
        warp.rows32 = rows;
        warp.rows64 = rows + per_warp32;
        warp.predicates = reinterpret_cast<uint32_t*>(rows + per_warp32 + per_warp64);
        warp.specials = rows + per_warp32 + per_warp64 + per_warp_predicates;
        rows += per_warp32 + per_warp64 + per_warp_predicates + per_warp_specials;
        const uint32_t first = w * kWarpLanes;
        const uint32_t lanes = std::min(kWarpLanes, num_threads - first);
        warp.initial = lanes == kWarpLanes ? ~0u : (1u << lanes) - 1;
    }
}

namespace {

uint32_t extent(const Dim3& dim, int member) { return member == 0 ? dim.x : member == 1 ? dim.y : dim.z; }

uint64_t special_value(const LaunchState& state, const Block& block, const Warp& warp, uint32_t lane, Special kind) {
    const Dim3& grid = state.launch->grid;
    const Dim3& size = state.launch->block;
    const Dim3& cluster = state.launch->cluster;
    const auto member = [&](Special first) { return static_cast<int>(kind) - static_cast<int>(first); };
    uint32_t thread[3];
    thread_index(state, std::min(warp.id * kWarpLanes + lane, state.block_threads - 1), thread);
    switch (kind) {
        case Special::kTidX: return thread[0];
        case Special::kTidY: return thread[1];
        case Special::kTidZ: return thread[2];
        case Special::kNtidX: return size.x;
        case Special::kNtidY: return size.y;
        case Special::kNtidZ: return size.z;
        case Special::kCtaidX: return block.ctaid[0];
        case Special::kCtaidY: return block.ctaid[1];
        case Special::kCtaidZ: return block.ctaid[2];
        case Special::kNctaidX: return grid.x;
        case Special::kNctaidY: return grid.y;
        case Special::kNctaidZ: return grid.z;
        case Special::kLaneid: return lane;
        case Special::kWarpid: return warp.id;
        case Special::kNwarpid: return kThreadsPerMultiprocessor / kWarpLanes;
        case Special::kSmid: return block.linear % kMultiprocessors;
        case Special::kNsmid: return kMultiprocessors;
        case Special::kGridid32:
        case Special::kGridid64: return state.launch_serial;
        case Special::kLanemaskEq: return 1u << lane;
        case Special::kLanemaskLt: return (1u << lane) - 1;
        case Special::kLanemaskLe: return (2ull << lane) - 1;
        case Special::kLanemaskGt: return ~static_cast<uint32_t>((2ull << lane) - 1);
        case Special::kLanemaskGe: return ~((1u << lane) - 1);
        case Special::kClusteridX:
        case Special::kClusteridY:
        case Special::kClusteridZ: return block.ctaid[member(Special::kClusteridX)] / extent(cluster, member(Special::kClusteridX));
        case Special::kNclusteridX:
        case Special::kNclusteridY:
        case Special::kNclusteridZ: return extent(grid, member(Special::kNclusteridX)) / extent(cluster, member(Special::kNclusteridX));
        case Special::kClusterCtaidX:
        case Special::kClusterCtaidY:
        case Special::kClusterCtaidZ:
            return block.ctaid[member(Special::kClusterCtaidX)] % extent(cluster, member(Special::kClusterCtaidX));
        case Special::kClusterNctaidX:
        case Special::kClusterNctaidY:
        case Special::kClusterNctaidZ: return extent(cluster, member(Special::kClusterNctaidX));
        case Special::kClusterCtarank: return block.cluster_rank;
        case Special::kClusterNctarank: return state.cluster_blocks;
        case Special::kIsExplicitCluster: return state.cluster_blocks > 1 || state.image->kernel.required_cluster.x != 0;
        case Special::kEnvironment1: return state.grid_workspace >> 32;
        case Special::kEnvironment2: return state.grid_workspace & 0xFFFFFFFFu;
        case Special::kDynamicSmem: return state.launch->dynamic_shared_bytes;
        case Special::kTotalSmem: return state.shared_bytes;
        case Special::kOne32: return 1;
        case Special::kMinusOne32: return 0xFFFFFFFFu;
        default: return 0;
    }
}

bool is_row64(Special kind) { return kind == Special::kGridid64 || kind == Special::kZero64; }

bool changes_with_block(Special kind) {
    return kind == Special::kCtaidX || kind == Special::kCtaidY || kind == Special::kCtaidZ || kind == Special::kSmid ||
           (kind >= Special::kClusteridX && kind <= Special::kClusterCtarank);
}

}  // namespace

void Block::start(uint64_t cluster_index, uint32_t rank) {
    const LaunchState& state = *launch;
    const bool first_time = linear == ~0ull;
    const Dim3& grid = state.launch->grid;
    const Dim3& size = state.launch->cluster;
    const uint64_t across = grid.x / size.x, down = grid.y / size.y;
    ctaid[0] = static_cast<uint32_t>(cluster_index % across) * size.x + rank % size.x;
    ctaid[1] = static_cast<uint32_t>(cluster_index / across % down) * size.y + rank / size.x % size.y;
    ctaid[2] = static_cast<uint32_t>(cluster_index / (across * down)) * size.z + rank / (size.x * size.y);
    linear = (static_cast<uint64_t>(ctaid[2]) * grid.y + ctaid[1]) * grid.x + ctaid[0];
    cluster_rank = rank;
    has_begun = false;
    live_threads = num_threads;
    next_warp = 0;
    quanta = 0;
    random = state.options.seed * 0x9E3779B97F4A7C15ull + linear;
    for (Barrier& barrier : barriers) barrier = Barrier{};
    mbarriers.clear();
    // What earlier blocks left in the shadow counts as ordered before this one.
    if (++clock > 1u << 26) clock = 2, clock_base = 0;
    // ... but for special stamps, whose records go with the block.
    if (last_write && (clock == 2 || clock - clock_base >= kMaxStampClock / 2 || !agent_read.empty())) order::forget_shared(*this);
    floor = start_clock = clock;
    read_log.entries.clear();
    fence_floor_device = fence_floor_block = 0;
    known.clear();
    records = RecordTable{};
    if (!agent_read.empty()) agent_read.clear();
    sectors.clear();
    if (state.options.counters) l1.reset(state.options.l1_bytes);
    if (shared_state) std::fill(shared_state, shared_state + shared_end, uint8_t{0});
    if (local_state) std::fill(local_state, local_state + static_cast<size_t>(num_warps) * kWarpLanes * local_stride, uint8_t{0});
    if (state.options.checks) std::fill(shared + kSharedStart, shared + shared_end, uint8_t{0xCB});
    wgmma_logs.clear();
    if (const Image& image = *state.image; image.reserved_shared_bytes != 0) {
        std::fill_n(shared + image.reserved_shared, image.reserved_shared_bytes, uint8_t{0});
        if (shared_state) std::fill_n(shared_state + image.reserved_shared, image.reserved_shared_bytes, uint8_t{1});
    }
    for (Warp& warp : warps) {
        warp.live = warp.initial;
        warp.forced_pc = ~0u;
        warp.carry = 0;
        warp.entries.clear();
        warp.undefined.clear();
        warp.undefined_origins.clear();
        warp.frames.assign(1, Frame{});
        warp.frames[0].refs = 1;
        warp.free_frames.clear();
        warp.async.clear();
        warp.wgmma.reset();
        warp.async_serial = 0;
        std::fill(std::begin(warp.async_handed), std::end(warp.async_handed), 0u);
        warp.init_fenced = 0;
        warp.bulk_stores.clear();
        std::fill(std::begin(warp.bulk_commits), std::end(warp.bulk_commits), 0u);
        warp.polled_block = nullptr;
        std::fill(std::begin(warp.commits), std::end(warp.commits), 0u);
        std::fill(std::begin(warp.alloca_used), std::end(warp.alloca_used), 0u);
        warp.cluster_arrived = warp.cluster_passed = 0;
        warp.registers = warp.register_changes = 0;
        warp.warp_floor = 0;
        std::fill(std::begin(warp.order), std::end(warp.order), 0u);
        std::fill(std::begin(warp.fence_device), std::end(warp.fence_device), 0u);
        std::fill(std::begin(warp.fence_block), std::end(warp.fence_block), 0u);
        warp.last_fence_device = warp.last_fence_block = 0;
        warp.known.clear();
        warp.lane_order.reset();
        warp.entries.push_back({state.image->functions[0].entry_pc, warp.initial, 0, EntryState::kRunnable, 0});
        warp.predicates[0] = ~0u;
        for (const SpecialRow& row : state.image->specials) {
            if (!first_time && !changes_with_block(row.kind)) continue;
            for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
                const uint64_t value = special_value(state, *this, warp, lane, row.kind);
                if (is_row64(row.kind)) {
                    reinterpret_cast<uint64_t*>(warp.specials + row.offset_bytes)[lane] = value;
                } else {
                    reinterpret_cast<uint32_t*>(warp.specials + row.offset_bytes)[lane] = static_cast<uint32_t>(value);
                }
            }
        }
    }
}

namespace {

enum class BlockStop {
    kDone,
    kTurn,     // its turn is over
    kWaiting,  // all its warps wait
    kPolling,  // all its warps wait, some by polling memory
    kStuck,    // all its warps wait, some by polling mbarriers, which nothing has changed
    kStopped,
};

// Lets the warps of a block run in turn until the block ends, its turn does, or none can go on. `moved`: something was done but for polls.
BlockStop run_block(Worker& worker, Block& block, uint32_t most_turns, bool& moved) {
    LaunchState& state = *worker.launch;
    const auto run_warp = engine().run_warp[static_cast<int>(state.mode)];
    const Schedule schedule = state.options.schedule;
    uint32_t turns = 0;
    uint32_t idle = 0;  // warps in a row that could not go on, or only polled
    bool polled = false;
    block.has_begun = true;
    uint64_t progress = worker.progress;
    while (block.live_threads != 0) {
        if (state.stop.load(std::memory_order_relaxed)) return BlockStop::kStopped;
        uint32_t index = block.next_warp++ % block.num_warps;
        uint64_t budget = state.options.warp_quantum ? state.options.warp_quantum : kWarpQuantum;
        switch (schedule) {
            case Schedule::kDefault: break;
            case Schedule::kReversed: index = block.num_warps - 1 - index; break;
            case Schedule::kGreedy: budget = kGreedyQuantum; break;
            case Schedule::kRandom:
                // The turn order still covers every warp, so that `idle` means what it says; the draw changes who is first and for how
                // long.
                if (next_random(block.random) & 1) block.next_warp += static_cast<uint32_t>(next_random(block.random) % block.num_warps);
                index = block.next_warp % block.num_warps;
                budget = 1 + next_random(block.random) % 256;
                break;
        }
        Warp& warp = block.warps[index];
        const uint64_t before = worker.instructions;
        StopReason reason = StopReason::kBlocked;
        if (warp.live != 0 && !warp.entries.empty()) reason = run_warp(worker, block, warp, budget);
        const uint64_t done = worker.instructions - before;
        if (reason == StopReason::kFatal) return BlockStop::kStopped;
        if (worker.progress != progress || (done != 0 && reason != StopReason::kPolled)) {
            progress = worker.progress;
            idle = 0;
            polled = false;
            moved = true;
        } else {
            ++idle;
            polled |= reason == StopReason::kPolled;
        }
        if (done != 0) {
            if (state.options.instruction_limit != 0) {
                if (state.instructions.fetch_add(done, std::memory_order_relaxed) + done > state.options.instruction_limit) {
                    const uint32_t pc = warp.entries.empty() ? 0 : warp.entries[0].pc;
                    report_event(worker, block, warp, pc, 0, Finding::kInstructionLimit,
                                 "instruction_limit = " + std::to_string(state.options.instruction_limit) +
                                     " warp instructions; a loop that does not end, or raise the limit");
                    state.end_with(kErrorLaunchTimeout);
                    return BlockStop::kStopped;
                }
            }
        }
        if (idle >= block.num_warps * (schedule == Schedule::kRandom ? 16 : 2)) {
            if (polled) {
                for (const Warp& other : block.warps) {
                    for (const Entry& entry : other.entries) {
                        if ((entry.state == EntryState::kRunnable || entry.state == EntryState::kYielded) && !other.polled_block)
                            return BlockStop::kPolling;
                    }
                }
                return BlockStop::kStuck;
            }
            bool can_run = false;
            for (const Warp& other : block.warps) {
                for (const Entry& entry : other.entries)
                    can_run |= entry.state == EntryState::kRunnable || entry.state == EntryState::kYielded;
            }
            if (can_run) {
                idle = 0;
                continue;
            }
            // All wait. Threads that were named in a mask and wait elsewhere will not come: let the lowest gathering instruction go on
            // without them.
            Entry* stuck = nullptr;
            Warp* owner = nullptr;
            for (Warp& other : block.warps) {
                for (Entry& entry : other.entries) {
                    const bool gathers = entry.state == EntryState::kGather || entry.state == EntryState::kWarpgroup;
                    if (gathers && !stuck) {
                        stuck = &entry;
                        owner = &other;
                    }
                }
            }
            if (!stuck) return BlockStop::kWaiting;
            stuck->state = EntryState::kRunnable;
            owner->forced_pc = stuck->pc;
            idle = 0;
        }
        if (reason == StopReason::kQuantum && ++turns >= most_turns) return BlockStop::kTurn;
    }
    return BlockStop::kDone;
}

// The blocks of a cluster, at work together. Without clusters: one block.
struct Unit {
    Cluster cluster;
    std::vector<std::unique_ptr<Block>> blocks;  // by rank
    uint64_t random = 1;
    uint32_t stuck_rounds = 0;  // in a row

    void start(uint64_t cluster_index) {
        cluster.live_threads = 0;
        cluster.arrived = cluster.phase = 0;
        stuck_rounds = 0;
        for (uint32_t rank = 0; rank < blocks.size(); ++rank) {
            blocks[rank]->start(cluster_index, rank);
            cluster.live_threads += blocks[rank]->live_threads;
        }
        random = blocks[0]->random;
    }
};

std::unique_ptr<Unit> make_unit(LaunchState& state) {
    auto unit = std::make_unique<Unit>();
    for (uint32_t rank = 0; rank < state.cluster_blocks; ++rank) {
        auto block = std::make_unique<Block>();
        block->linear = ~0ull;
        block->allocate(state);
        block->cluster = &unit->cluster;
        unit->cluster.blocks.push_back(block.get());
        unit->blocks.push_back(std::move(block));
    }
    return unit;
}

BlockStop deadlock(Worker& worker, Block& block) {
    report_deadlock(worker, block);
    worker.launch->end_with(kErrorLaunchTimeout);
    return BlockStop::kStopped;
}

// Lets the blocks of a unit run in turn until all have ended, the unit's turn does, or none can go on.
BlockStop run_unit(Worker& worker, Unit& unit) {
    const LaunchState& state = *worker.launch;
    const uint32_t most_turns = state.launch->cooperative ? kCooperativeBlockQuanta : kBlockQuanta;
    const uint32_t size = static_cast<uint32_t>(unit.blocks.size());
    bool moved = false;
    if (size == 1) {
        const BlockStop stop = run_block(worker, *unit.blocks[0], most_turns, moved);
        if (stop != BlockStop::kStuck || moved) unit.stuck_rounds = 0;
        const bool in_vain = stop == BlockStop::kStuck && ++unit.stuck_rounds >= kMaxStuckRounds;
        return stop == BlockStop::kWaiting || in_vain ? deadlock(worker, *unit.blocks[0]) : stop;
    }
    uint32_t turns = 0;
    for (;;) {
        bool any_moved = false, any_polled = false, any_stuck = false;
        Block* waiting = nullptr;
        const uint32_t first = state.options.schedule == Schedule::kRandom ? static_cast<uint32_t>(next_random(unit.random) % size) : 0;
        for (uint32_t i = 0; i < size; ++i) {
            const uint32_t rank = state.options.schedule == Schedule::kReversed ? size - 1 - i : (first + i) % size;
            Block& block = *unit.blocks[rank];
            if (block.live_threads == 0) continue;
            moved = false;
            const uint32_t most = state.options.schedule == Schedule::kRandom ? 1 + static_cast<uint32_t>(next_random(unit.random) % 16)
                                                                              : kClusterBlockQuanta;
            const BlockStop stop = run_block(worker, block, most, moved);
            if (stop == BlockStop::kStopped) return stop;
            any_moved |= moved || stop == BlockStop::kDone;
            any_polled |= stop == BlockStop::kPolling;
            any_stuck |= stop == BlockStop::kStuck;
            if (stop == BlockStop::kWaiting || stop == BlockStop::kStuck) waiting = &block;
        }
        if (unit.cluster.live_threads == 0) return BlockStop::kDone;
        if (any_moved) {
            unit.stuck_rounds = 0;
        } else if (any_polled) {
            return BlockStop::kPolling;
        } else if (waiting && (!any_stuck || ++unit.stuck_rounds >= kMaxStuckRounds)) {
            return deadlock(worker, *waiting);
        }
        if (++turns >= most_turns) return BlockStop::kTurn;
    }
}

// Units of one worker: normally one at a time, each to its end. One that uses up its turn, or waits by polling, is set aside for another
// one, so that blocks that wait for each other all come to run; how many are set aside grows while none of them ends.
void run_worker(Worker& worker) {
    LaunchState& state = *worker.launch;
    std::vector<std::unique_ptr<Unit>> idle_units;
    std::deque<std::unique_ptr<Unit>> resident;
    const size_t most_resident = std::max<size_t>(2, state.co_resident / state.cluster_blocks);
    size_t resident_limit = state.launch->cooperative ? most_resident : 2;
    size_t turns_without_end = 0, polling = 0, rounds_in_vain = 0;
    const auto take_unit = [&]() -> std::unique_ptr<Unit> {
        const uint64_t next = state.next_cluster.fetch_add(1, std::memory_order_relaxed);
        if (next >= state.run_clusters) return nullptr;
        std::unique_ptr<Unit> unit;
        if (idle_units.empty()) {
            unit = make_unit(state);
        } else {
            unit = std::move(idle_units.back());
            idle_units.pop_back();
        }
        const bool reversed = state.options.schedule == Schedule::kReversed;
        unit->start(!state.cluster_order.empty() ? state.cluster_order[next] : reversed ? state.grid_clusters - 1 - next : next);
        return unit;
    };
    bool more = true;
    while (!state.stop.load(std::memory_order_relaxed)) {
        std::unique_ptr<Unit> unit;
        if (more && resident.size() < resident_limit) {
            unit = take_unit();
            more = unit != nullptr;
        }
        if (!unit) {
            if (resident.empty()) break;
            unit = std::move(resident.front());
            resident.pop_front();
        }
        const BlockStop stop = run_unit(worker, *unit);
        if (stop == BlockStop::kStopped) break;
        if (stop == BlockStop::kDone) {
            turns_without_end = polling = rounds_in_vain = 0;
            worker.counters.blocks += unit->blocks.size();
            for (const auto& block : unit->blocks) worker.counters.warps += block->num_warps;
            idle_units.push_back(std::move(unit));
            continue;
        }
        resident.push_back(std::move(unit));
        if (stop == BlockStop::kTurn) rounds_in_vain = 0;
        polling = stop == BlockStop::kPolling || stop == BlockStop::kStuck ? polling + 1 : 0;
        if (polling > resident.size() && (!more || resident.size() >= most_resident)) {
            // What all wait for is up to another worker.
            std::this_thread::sleep_for(std::chrono::microseconds(std::min<size_t>(++rounds_in_vain, kMostPause)));
            polling = 0;
        }
        if (++turns_without_end > 2 * resident.size() && resident.size() >= resident_limit) {
            resident_limit = std::min(resident_limit * 2, most_resident);
            turns_without_end = 0;
        }
    }
}

// Host threads that live from launch to launch.
class Pool {
public:
    static Pool& instance() {
        static Pool* pool = new Pool;  // never destroyed: its threads may outlive static destructors
        return *pool;
    }

    // Calls work(i) for i in [0, count), work(0) on this thread.
    void run(uint32_t count, const std::function<void(uint32_t)>& work) {
        std::lock_guard serial(launch_mutex_);
        {
            std::lock_guard lock(mutex_);
            while (threads_ + 1 < count) {
                const uint32_t index = ++threads_;
                std::thread([this, index, seen = round_] { loop(index, seen); }).detach();
            }
            work_ = &work;
            count_ = count;
            pending_ = count - 1;
            ++round_;
        }
        if (count > 1) wake_.notify_all();
        work(0);
        std::unique_lock lock(mutex_);
        done_.wait(lock, [&] { return pending_ == 0; });
        work_ = nullptr;
    }

private:
    void loop(uint32_t index, uint64_t seen) {
        for (;;) {
            const std::function<void(uint32_t)>* work = nullptr;
            {
                std::unique_lock lock(mutex_);
                wake_.wait(lock, [&] { return round_ != seen; });
                seen = round_;
                if (index >= count_) continue;
                work = work_;
            }
            (*work)(index);
            {
                std::lock_guard lock(mutex_);
                --pending_;
            }
            done_.notify_one();
        }
    }

    std::mutex launch_mutex_, mutex_;
    std::condition_variable wake_, done_;
    const std::function<void(uint32_t)>* work_ = nullptr;
    uint32_t threads_ = 0, count_ = 0, pending_ = 0;
    uint64_t round_ = 0;
};

// One bit for each 32-byte sector of the arena up to its high-water mark.
struct SectorMap {
    std::atomic<uint64_t>* bits = nullptr;
    size_t bytes = 0;
    explicit SectorMap(const DeviceMemory& memory) {
        bytes = round_up((memory.high_water_address() - memory.base()) / 256 + 64, 4096);
        void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED) throw std::bad_alloc();
        bits = static_cast<std::atomic<uint64_t>*>(map);
    }
    ~SectorMap() { munmap(bits, bytes); }
    SectorMap(const SectorMap&) = delete;
    SectorMap& operator=(const SectorMap&) = delete;
    uint64_t count_bytes() const {
        uint64_t sectors = 0;
        for (size_t i = 0; i < bytes / 8; ++i)
            sectors += static_cast<uint64_t>(__builtin_popcountll(bits[i].load(std::memory_order_relaxed)));
        return sectors * 32;
    }
};

int validate(const Launch& launch, const Image& image) {
    const uint64_t threads = static_cast<uint64_t>(launch.block.x) * launch.block.y * launch.block.z;
    if (threads == 0 || threads > kMaxThreads || launch.block.z > 64) return kErrorInvalidConfiguration;
    if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0) return kErrorInvalidConfiguration;
    if (launch.grid.x > 0x7FFFFFFFu || launch.grid.y > 65535 || launch.grid.z > 65535) return kErrorInvalidConfiguration;
    if (static_cast<uint64_t>(image.shared_static_bytes) + launch.dynamic_shared_bytes > kSharedPerBlock) return kErrorInvalidValue;
    const Dim3& most = image.kernel.max_threads;
    if (most.x != 0 && threads > static_cast<uint64_t>(most.x) * std::max(most.y, 1u) * std::max(most.z, 1u))
        return kErrorLaunchOutOfResources;
    const Dim3& required = image.kernel.required_threads;
    if (required.x != 0 &&
        (required.x != launch.block.x || std::max(required.y, 1u) != launch.block.y || std::max(required.z, 1u) != launch.block.z)) {
        return kErrorInvalidConfiguration;
    }
    const Dim3& cluster = launch.cluster;
    const uint64_t blocks = static_cast<uint64_t>(cluster.x) * cluster.y * cluster.z;
    if (blocks == 0 || blocks > kMostClusterBlocks || launch.grid.x % cluster.x || launch.grid.y % cluster.y || launch.grid.z % cluster.z)
        return kErrorInvalidClusterSize;
    const Dim3& wanted = image.kernel.required_cluster;
    if (wanted.x != 0 && (wanted.x != cluster.x || std::max(wanted.y, 1u) != cluster.y || std::max(wanted.z, 1u) != cluster.z)) {
        return kErrorInvalidClusterSize;
    }
    if (launch.params.size() < image.kernel.param_bytes) return kErrorInvalidValue;
    return kSuccess;
}

struct AlignedFree {
    void operator()(std::byte* p) const { std::free(p); }
};
using AlignedBytes = std::unique_ptr<std::byte[], AlignedFree>;

AlignedBytes make_constants(LaunchState& state) {
    const std::vector<std::byte>& rows = state.image->constants;
    AlignedBytes constants(static_cast<std::byte*>(std::aligned_alloc(64, round_up(rows.size() + 64, 64))));
    if (!constants) throw std::bad_alloc();
    std::memcpy(constants.get(), rows.data(), rows.size());
    for (const ParamRow& row : state.image->param_rows) {
        uint64_t value = 0;
        std::memcpy(&value, state.launch->params.data() + row.param_offset, row.bytes);
        if (row.sign_extend && row.bytes < 8) {
            const uint32_t shift = 64 - 8 * row.bytes;
            value = static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
        }
        for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
            std::memcpy(constants.get() + row.offset_bytes + lane * (row.row64 ? 8 : 4), &value, row.row64 ? 8 : 4);
        }
    }
    state.constants = constants.get();
    return constants;
}

// What the registers %envreg1 and %envreg2 of a cooperative launch point to: two words, the size and the grid's barrier.
void make_workspace(const ProgramImpl& program, DeviceMemory& memory, LaunchState& state) {
    constexpr uint32_t kWords[2] = {8, 0};
    if (!program.grid_workspace) program.grid_workspace = memory.allocate(sizeof kWords, MemoryKind::kModule, "grid workspace");
    if (!program.grid_workspace) throw std::bad_alloc();
    std::memcpy(memory.alias(program.grid_workspace), kWords, sizeof kWords);
    memory.mark_initialized(program.grid_workspace, sizeof kWords);
    state.grid_workspace = program.grid_workspace;
}

// For a launch after this one that may start before its end: what findings about the two have to say.
void note_primary(const LaunchState& state) {
    PrimaryLaunch& primary = state.shadow->primary;
    primary.epoch = state.lets_dependents_start ? state.shadow_epoch : 0;
    primary.global_shift = state.global_shift;
    if (primary.epoch == 0) return;
    const Launch& launch = *state.launch;
    primary.kernel = state.image->kernel.name;
    primary.grid[0] = launch.grid.x, primary.grid[1] = launch.grid.y;
    primary.block[0] = launch.block.x, primary.block[1] = launch.block.y;
    if (!state.image->places) state.image->places = std::make_shared<const std::vector<std::string>>(describe_places(state));
    primary.places = state.image->places;  // which outlive the module
}

void print_output(LaunchState& state) {
    std::stable_sort(state.output.begin(), state.output.end(), [](const auto& x, const auto& y) { return x.block < y.block; });
    for (const LaunchState::Output& line : state.output) std::fputs(line.text.c_str(), line.is_error ? stderr : stdout);
    if (!state.output.empty()) std::fflush(stdout);
}

}  // namespace

LaunchResult run(const Launch& launch, DeviceMemory& memory, const ExecOptions& options) {
    LaunchResult result;
    const auto* program = static_cast<const ProgramImpl*>(launch.program);
    const auto found = program ? program->images.find(launch.kernel) : std::map<std::string, std::unique_ptr<Image>>::const_iterator{};
    if (!program || found == program->images.end()) {
        result.status = kErrorInvalidValue;
        return result;
    }
    LaunchState state;
    state.launch = &launch;
    state.program = program;
    state.image = found->second.get();
    state.memory = &memory;
    state.options = options;
    result.status = validate(launch, *state.image);
    if (result.status != kSuccess) return result;

    static std::atomic<uint64_t> serial{0};
    state.launch_serial = ++serial;
    state.block_threads = launch.block.x * launch.block.y * launch.block.z;
    state.grid_blocks = static_cast<uint64_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
    state.cluster_blocks = launch.cluster.x * launch.cluster.y * launch.cluster.z;
    state.grid_clusters = state.grid_blocks / state.cluster_blocks;
    state.shared_bytes = state.image->shared_static_bytes + launch.dynamic_shared_bytes;
    state.mode = options.counters ? Mode::kCounted : options.checks ? Mode::kChecked : Mode::kPlain;
    const AlignedBytes constants = make_constants(state);
    if (options.schedule == Schedule::kRandom) {
        state.cluster_order.resize(state.grid_clusters);
        std::iota(state.cluster_order.begin(), state.cluster_order.end(), uint64_t{0});
        uint64_t random = options.seed;
        for (uint64_t i = state.grid_clusters; i > 1; --i)
            std::swap(state.cluster_order[i - 1], state.cluster_order[next_random(random) % i]);
    }
    state.run_clusters = state.grid_clusters;
    const uint64_t sampled = (options.sample_blocks + state.cluster_blocks - 1) / state.cluster_blocks;
    if (sampled != 0 && sampled < state.grid_clusters && !launch.cooperative) {  // blocks that wait for each other need all of them
        state.run_clusters = sampled;
        state.cluster_order.resize(sampled);
        for (uint64_t i = 0; i < sampled; ++i)
            state.cluster_order[i] = static_cast<uint64_t>((static_cast<double>(i) + 0.5) * state.grid_clusters / sampled);
    }
    const uint32_t per_sm = std::max(1u, std::min({kBlocksPerMultiprocessor, kThreadsPerMultiprocessor / std::max(32u, state.block_threads),
                                                   kSharedPerMultiprocessor / (state.shared_bytes + 1024)}));
    uint32_t workers = options.workers ? options.workers : std::max(1u, std::thread::hardware_concurrency());
    workers = static_cast<uint32_t>(std::min<uint64_t>(workers, state.grid_clusters));
    const uint64_t on_device = static_cast<uint64_t>(per_sm) * kMultiprocessors;
    if (launch.cooperative && state.grid_blocks > on_device) {
        result.status = 720;  // cudaErrorCooperativeLaunchTooLarge
        return result;
    }
    state.co_resident = static_cast<uint32_t>((std::min(on_device, state.grid_blocks) + workers - 1) / workers);

    if (launch.cooperative && state.image->uses_workspace) make_workspace(*program, memory, state);

    if (state.image->uses_heap) memory.open_heap();

    std::unique_ptr<OrderTable> order;
    state.single_worker = workers == 1;
    state.global_shift = state.image->global_shift;
    if (options.checks & kRacecheck) {
        order = std::make_unique<OrderTable>();
        state.order = order.get();
        if (state.grid_blocks < kMostRaceBlocks) {
            state.shadow = &memory.race_shadow();
            state.shadow_epoch = state.shadow->begin_launch();
            if (launch.primary != 0 && launch.primary == state.shadow->primary.epoch && launch.primary + 1 == state.shadow_epoch &&
                state.global_shift == state.shadow->primary.global_shift)  // else granules hold other ranges
                state.primary = launch.primary;
        }
    }
    std::unique_ptr<SectorMap> reads, writes;
    if (options.counters) {
        reads = std::make_unique<SectorMap>(memory);
        writes = std::make_unique<SectorMap>(memory);
        state.read_sectors = reads->bits;
        state.write_sectors = writes->bits;
    }
    std::vector<Worker> pool(workers);
    for (uint32_t i = 0; i < workers; ++i) {
        pool[i].launch = &state;
        pool[i].id = i;
        pool[i].checks = options.checks;
        pool[i].ranges.assign(state.image->code.size(), Range{});
        if (options.counters) pool[i].lines.assign(state.image->code.size(), Counters{});
    }
    Pool::instance().run(workers, [&](uint32_t i) {
        try {
            run_worker(pool[i]);
        } catch (const std::bad_alloc&) {  // no host memory for a block's state
            state.end_with(kErrorLaunchOutOfResources);
        }
    });

    for (Worker& worker : pool) {
        if (options.counters) state.counters.add(worker.counters);
        for (const auto& [key, count] : worker.folded) {
            const size_t index = state.report_index[key];
            if (index < state.reports.size()) state.reports[index].count += count;
        }
    }
    if (options.counters) {
        result.lines = collect_lines(state, pool);
        for (const LineCounters& line : result.lines) state.counters.add(line.counts);
        state.counters.global_unique_bytes_read = reads->count_bytes();
        state.counters.global_unique_bytes_written = writes->count_bytes();
    }
    print_output(state);
    if (state.shadow) {
        result.race_launch = state.shadow_epoch;
        note_primary(state);
    }
    result.status = state.status;
    result.reports = std::move(state.reports);
    result.counters = state.counters;
    return result;
}

}  // namespace aicf::emu

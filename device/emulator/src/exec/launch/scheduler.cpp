// Which block and which warp runs next, on which host thread.
#include <algorithm>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <memory>
#include <thread>
#include <utility>

#include "level.hpp"

namespace aicf::emu {
namespace {

constexpr uint64_t kWarpQuantum = 4096;         // warp instructions before another warp of the block has its turn
constexpr size_t kMostPause = 1000;  // microseconds that a worker rests when all its blocks only poll
constexpr std::chrono::milliseconds kPatience{500};  // with blocks that only repeat themselves: another host thread may write
constexpr uint64_t kGreedyQuantum = 1 << 20;
constexpr uint32_t kBlockQuanta = 64;            // turns of warps before another block has its turn
constexpr uint32_t kCooperativeBlockQuanta = 4; // the same where blocks are likely to wait for each other
constexpr uint32_t kClusterBlockQuanta = 4;     // turns of warps before another block of the cluster has its turn
constexpr uint32_t kWatchedBlockQuanta = 16;    // the same where nothing that others see has changed for several turns
constexpr uint64_t kMostRandomQuantum = 256;
constexpr size_t kMostIdleBytes = 256 << 20;     // of a worker's blocks that are set aside, as long as none of them waits

enum class BlockStop {
    kDone,
    kTurn,     // its turn is over
    kIdle,     // its turn is over, and in it nothing has changed that anybody sees
    kWaiting,  // all its warps wait
    kPolling,  // all its warps wait, some by polling memory
    kStuck,    // all its warps wait, some by polling mbarriers, which nothing has changed
    kStopped,
};

std::atomic<bool> interrupted{false};  // the process was told to end

// Warp instructions of a warp's turn.
uint64_t quantum_of(const ExecOptions& options) {
    switch (options.schedule) {
        case Schedule::kGreedy: return kGreedyQuantum;
        case Schedule::kRandom: return kMostRandomQuantum / 2;  // on average
        default: return options.warp_quantum ? options.warp_quantum : kWarpQuantum;
    }
}

// Lets the warps of a block run in turn until the block ends, its turn does, or none can go on. `moved`: something was done but for polls.
// Its turn ends after as many instructions as `most_turns` of a warp have, also where barriers end the turns of the warps sooner.
BlockStop run_block(Worker& worker, Block& block, uint32_t most_turns, bool& moved) {
    LaunchState& state = *worker.launch;
    const auto run_warp = engine().run_warp[static_cast<int>(state.mode)];
    const Schedule schedule = state.options.schedule;
    uint32_t turns = 0;
    uint64_t spent = 0;
    const uint64_t most_spent = most_turns * quantum_of(state.options);
    uint32_t idle = 0;  // warps in a row that could not go on, or only polled
    bool polled = false;
    block.has_begun = true;
    uint64_t progress = worker.progress;
    while (block.live_threads != 0) {
        if (state.stop.load(std::memory_order_relaxed)) return BlockStop::kStopped;
        uint32_t index = block.next_warp++ % block.num_warps;
        uint64_t budget = quantum_of(state.options);
        switch (schedule) {
            case Schedule::kDefault: break;
            case Schedule::kReversed: index = block.num_warps - 1 - index; break;
            case Schedule::kGreedy: break;
            case Schedule::kRandom:
                // The turn order still covers every warp, so that `idle` means what it says; the draw changes who is first and for how
                // long.
                if (next_random(block.random) & 1) block.next_warp += static_cast<uint32_t>(next_random(block.random) % block.num_warps);
                index = block.next_warp % block.num_warps;
                budget = 1 + next_random(block.random) % kMostRandomQuantum;
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
        turns += reason == StopReason::kQuantum;
        spent += done;
        const bool is_over = turns >= most_turns || spent >= most_spent || interrupted.load(std::memory_order_relaxed);
        if (is_over && block.live_threads != 0) return BlockStop::kTurn;
    }
    return BlockStop::kDone;
}

// The blocks of a cluster, at work together. Without clusters: one block.
struct Unit {
    Cluster cluster;
    std::vector<std::unique_ptr<Block>> blocks;  // by rank
    uint64_t random = 1;
    LivelockWatch watch;
    bool in_lap = false;  // all its warps repeat themselves, and are to do so once more

    void start(uint64_t cluster_index) {
        cluster.live_threads = 0;
        cluster.arrived = cluster.phase = 0;
        watch.stop();
        in_lap = false;
        for (uint32_t rank = 0; rank < blocks.size(); ++rank) {
            blocks[rank]->start(cluster_index, rank);
            cluster.live_threads += blocks[rank]->live_threads;
        }
        random = blocks[0]->random;
    }

    size_t bytes() const { return blocks.size() * blocks[0]->region_bytes; }

    // Changes whenever a thread does what others can see, or ends.
    uint64_t changes() const {
        uint64_t sum = 0;
        for (const auto& block : blocks) {
            sum -= block->live_threads;
            for (const Warp& warp : block->warps) sum += warp.changes;
        }
        return sum;
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

// A turn of a unit: its blocks run in turn.
BlockStop take_turn(Worker& worker, Unit& unit, uint32_t most_turns) {
    const LaunchState& state = *worker.launch;
    const uint32_t size = static_cast<uint32_t>(unit.blocks.size());
    bool moved = false;
    if (size == 1) {
        const BlockStop stop = run_block(worker, *unit.blocks[0], most_turns, moved);
        return stop == BlockStop::kWaiting ? deadlock(worker, *unit.blocks[0]) : stop;
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
            if (stop == BlockStop::kWaiting) waiting = &block;
        }
        if (unit.cluster.live_threads == 0) return BlockStop::kDone;
        if (!any_moved) {
            if (any_polled) return BlockStop::kPolling;
            if (any_stuck) return BlockStop::kStuck;
            if (waiting) return deadlock(worker, *waiting);
        }
        if (++turns >= most_turns) return BlockStop::kTurn;
    }
}

std::atomic<uint32_t> num_running{0};  // launches

std::vector<Block*> blocks_of(const std::deque<std::unique_ptr<Unit>>& units) {
    std::vector<Block*> blocks;
    for (const auto& unit : units) {
        for (const auto& block : unit->blocks) {
            if (block->live_threads != 0) blocks.push_back(block.get());
        }
    }
    return blocks;
}

bool can_go_on(const Warp& warp) {
    return std::any_of(warp.entries.begin(), warp.entries.end(),
                       [](const Entry& entry) { return entry.state == EntryState::kRunnable || entry.state == EntryState::kYielded; });
}

// Whether somebody who is not of the launch may change what a warp waits for: memory that the host writes too.
bool waits_for_host(const LaunchState& state, const std::vector<Block*>& blocks) {
    const bool may_share = state.memory->has_host_visible() || state.memory->has_host_ranges();
    for (const Block* block : blocks) {
        for (const Warp& warp : block->warps) {
            if (warp.live == 0 || warp.polled_block) continue;
            if (!warp.is_vain && can_go_on(warp) && may_share) return true;  // what it reads is not known
            for (const Poll& poll : warp.polls) {
                if (poll.pc == ~0u || !warp.is_vain) continue;
                if ((poll.address & kWindowMask) == kSharedWindow || poll.address <= kSharedOffsetMask) continue;
                const Allocation* allocation = state.memory->contains(poll.address) ? state.memory->find(poll.address) : nullptr;
                if (!allocation || is_host_visible(allocation->kind)) return true;
            }
        }
    }
    return false;
}

// Lets the blocks of a unit run in turn until all have ended, the unit's turn does, or none can go on.
BlockStop run_unit(Worker& worker, Unit& unit) {
    const uint32_t most_turns = worker.launch->launch->cooperative ? kCooperativeBlockQuanta
                                : unit.watch.searches()            ? kWatchedBlockQuanta
                                                                   : kBlockQuanta;
    const uint64_t changes = unit.changes(), progress = worker.progress;
    const BlockStop stop = take_turn(worker, unit, most_turns);
    return stop == BlockStop::kTurn && unit.changes() == changes && worker.progress == progress ? BlockStop::kIdle : stop;
}

// All warps wait for what nothing will change. False: that cannot be said.
bool report_vain_wait(Worker& worker, const std::deque<std::unique_ptr<Unit>>& units) {
    const std::vector<Block*> blocks = blocks_of(units);
    const bool is_limited = worker.launch->options.loop_limit != 0;
    if (!is_limited && waits_for_host(*worker.launch, blocks)) return false;
    report_waits(worker, blocks, is_limited ? Finding::kEndlessLoop : Finding::kDeadlock,
                 "every warp that is left repeats what it did, and no warp is left that changes what they read:");
    worker.launch->end_with(kErrorLaunchTimeout);
    return true;
}

void report_interruption(Worker& worker, const std::deque<std::unique_ptr<Unit>>& units) {
    const LaunchState& state = *worker.launch;
    const uint64_t begun = std::min(state.next_cluster.load(std::memory_order_relaxed), state.run_clusters);
    report_waits(worker, blocks_of(units), Finding::kInterrupted,
                 "the process was told to end, with " + std::to_string(begun * state.cluster_blocks) + " of " +
                     std::to_string(state.run_clusters * state.cluster_blocks) +
                     " blocks begun; the warps of a host thread's blocks at that time:");
    worker.launch->end_with(kErrorLaunchTimeout);
}

// A unit that polls mbarriers alone waits for itself: it is in a deadlock once all its warps have repeated themselves.
bool is_stuck_for_good(Unit& unit, BlockStop stop) {
    if (stop != BlockStop::kStuck || !unit.watch.repeats()) {
        unit.in_lap = false;
        return false;
    }
    if (!unit.in_lap) unit.watch.begin_lap();
    unit.in_lap = true;
    return unit.watch.lap_is_over();
}

// A worker while all its units only poll.
class WorkerWait {
public:
    explicit WorkerWait(LaunchState& state) : state_(state) {}

    // Something was done.
    void end() {
        rests_ = 0;
        leave();
    }

    // After a round of all units, in which none did anything but poll if it `may_rest`. True: every unit of the launch does nothing but to
    // repeat itself, and this worker is the one to say so.
    bool go_on(const std::deque<std::unique_ptr<Unit>>& units, bool may_rest) {
        bool repeats = true, searches = true;
        for (const auto& unit : units) {
            repeats &= unit->watch.repeats();
            searches &= unit->watch.searches();
        }
        const auto now = std::chrono::steady_clock::now();
        if (!repeats) {
            if (searches) rests_ = 0;
            leave();
        } else if (!waits_) {
            state_.waits.enter();
            waits_ = true;
            since_ = now;
            lap_ = confirmed_ = 0;
        }
        const bool found = waits_ && now - since_ >= kPatience && has_gone_around(units);
        // What all wait for is up to another worker; what counts its turns goes on, and to its end.
        if (!found && (repeats || (!searches && may_rest)))
            std::this_thread::sleep_for(std::chrono::microseconds(std::min<size_t>(++rests_, kMostPause)));
        return found;
    }

private:
    void leave() {
        if (waits_) state_.waits.leave();
        waits_ = false;
    }

    bool has_gone_around(const std::deque<std::unique_ptr<Unit>>& units) {
        const std::optional<uint64_t> round = state_.waits.round();
        if (!round || *round == confirmed_) return false;
        if (*round != lap_) {
            lap_ = *round;
            for (const auto& unit : units) unit->watch.begin_lap();
            return false;
        }
        if (!std::all_of(units.begin(), units.end(), [](const auto& unit) { return unit->watch.lap_is_over(); })) return false;
        confirmed_ = *round;
        return state_.waits.confirm(*round);
    }

    LaunchState& state_;
    size_t rests_ = 0;
    bool waits_ = false;
    std::chrono::steady_clock::time_point since_;
    uint64_t lap_ = 0, confirmed_ = 0;  // rounds of the board
};

// Units of one worker: normally one at a time, each to its end. One that uses up its turn, or waits by polling, is set aside for another
// one, so that blocks that wait for each other all come to run; how many are set aside grows while none of them ends, but large ones
// that only compute do not fill the host's memory.
void run_worker(Worker& worker) {
    LaunchState& state = *worker.launch;
    WorkerWait wait(state);
    std::vector<std::unique_ptr<Unit>> idle_units;
    std::deque<std::unique_ptr<Unit>> resident;
    const size_t most_resident = std::max<size_t>(2, state.co_resident / state.cluster_blocks);
    size_t resident_limit = state.launch->cooperative ? most_resident : 2;
    size_t turns_without_end = 0, polling = 0;
    bool may_rest = true;
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
        if (interrupted.load(std::memory_order_relaxed)) {
            if (resident.empty() && (unit = take_unit())) resident.push_back(std::move(unit));  // says where the next one would begin
            if (!resident.empty()) report_interruption(worker, resident);
            break;
        }
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
            turns_without_end = polling = 0;
            may_rest = true;
            wait.end();
            worker.counters.blocks += unit->blocks.size();
            for (const auto& block : unit->blocks) worker.counters.warps += block->num_warps;
            idle_units.push_back(std::move(unit));
            continue;
        }
        const bool changes_nothing = stop != BlockStop::kTurn;
        if (changes_nothing) {
            unit->watch.observe(worker, unit->blocks, stop == BlockStop::kIdle);
            may_rest &= stop != BlockStop::kIdle;
            if (is_stuck_for_good(*unit, stop)) {
                deadlock(worker, *unit->blocks[0]);
                break;
            }
        } else {
            unit->watch.stop();
            wait.end();
        }
        polling = changes_nothing ? polling + 1 : 0;
        const bool waits = changes_nothing && (stop != BlockStop::kIdle || unit->watch.repeats());
        const bool may_grow = waits || unit->bytes() * resident_limit < kMostIdleBytes;
        resident.push_back(std::move(unit));
        if (polling > resident.size() && (!more || resident.size() >= most_resident)) {
            polling = 0;
            if (wait.go_on(resident, std::exchange(may_rest, true)) && report_vain_wait(worker, resident)) break;
        }
        if (++turns_without_end > 2 * resident.size() && resident.size() >= resident_limit && may_grow) {
            resident_limit = std::min(resident_limit * 2, most_resident);
            turns_without_end = 0;
        }
    }
    wait.end();
    state.waits.finish();
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

}  // namespace

void interrupt_launches() { interrupted.store(true); }
bool launches_are_interrupted() { return interrupted.load(); }
bool launches_are_running() { return num_running.load() != 0; }

void run_workers(LaunchState& state, std::vector<Worker>& workers) {
    num_running.fetch_add(1);
    state.waits.start(static_cast<uint32_t>(workers.size()));
    Pool::instance().run(static_cast<uint32_t>(workers.size()), [&](uint32_t i) {
        try {
            run_worker(workers[i]);
        } catch (const std::bad_alloc&) {  // no host memory for a block's state
            state.end_with(kErrorLaunchOutOfResources);
        }
    });
    num_running.fetch_sub(1);
}

}  // namespace aicf::emu

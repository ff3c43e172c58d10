// Livelocks: warps that read memory again and again, that nobody is left to change. A warp in such a wait comes back to a state that it was
// in, and would for ever; one that counts its turns and ends after the last does not, however long it takes.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "../analysis/analysis.hpp"

namespace aicf::emu {

struct Block;
struct Warp;
struct Worker;

// Of one warp that only polls: the state it was in, and whether it has come back to it.
struct WarpCycle {
    bool is_found = false;
    uint64_t reference = 0;  // the state, hashed
    uint64_t steps = 0, period = 0;  // observations since it was in that state; of the cycle
    uint64_t most_steps = 1;  // before another state is the one to come back to
    uint64_t laps = 0;  // times it came back
    uint32_t low = ~0u, high = 0;  // the instructions of the cycle

    void observe(uint64_t state);
};

using LoopStates = std::map<std::pair<uint32_t, uint32_t>, LoopState>;  // by first and last instruction

// The blocks of a unit, while they only poll, or compute and change nothing that others see.
class LivelockWatch {
public:
    void stop() {
        rounds_ = 0;
        warps_.clear();
    }
    // After a round in which they only polled, or (`computes`) a longer turn in which they changed nothing.
    void observe(const Worker& worker, const std::vector<std::unique_ptr<Block>>& blocks, bool computes);
    // Every warp has come back to a state it was in.
    bool repeats() const { return repeats_ && searches(); }
    bool searches() const { return !warps_.empty(); }
    // Since begin_lap() every warp has gone once around.
    void begin_lap();
    bool lap_is_over() const;

private:
    static constexpr uint32_t kQuietRounds = 64;  // not looked at: most waits are over by then
    static constexpr uint32_t kRoundsOfTurn = 16;  // that a turn counts as
    uint32_t rounds_ = 0;
    bool repeats_ = false;
    LoopStates loops_;  // of the launch's code, whichever blocks they were found in
    std::vector<const Warp*> warps_;
    std::vector<uint64_t> laps_;
};

// Which workers' blocks all repeat themselves. A livelock is one where all do and each, after the last came in, has seen them go once
// around: whoever still changed something did so before that.
class WaitBoard {
public:
    void start(uint32_t workers);
    void enter();
    void leave();
    void finish();  // a worker that is not in has no more blocks
    std::optional<uint64_t> round() const;  // changes with each of the above; none: somebody works
    bool confirm(uint64_t round);  // to be called once by each that is in; true: by the last of them

private:
    mutable std::mutex mutex_;
    uint64_t round_ = 0;
    uint32_t working_ = 0, waiting_ = 0, confirmed_ = 0;
};

}  // namespace aicf::emu

#include "livelock.hpp"

#include <algorithm>

#include "engine.hpp"

namespace aicf::emu {

// Brent's algorithm: the state to come back to is replaced after 1, 2, 4, ... observations.
void WarpCycle::observe(uint64_t state) {
    ++steps;
    if (state == reference) {
        period = is_found ? period : steps;
        is_found = true;
        steps = 0;
        ++laps;
    } else if (is_found && steps < period) {
        return;
    } else if (is_found || steps >= most_steps) {
        most_steps = is_found ? 1 : 2 * most_steps;
        is_found = false;
        reference = state;
        steps = laps = 0;
    }
}

namespace {

class Hash {
public:
    void add(uint64_t word) {
        value_ = (value_ ^ word) * 0x9E3779B97F4A7C15ull;
        value_ ^= value_ >> 29;
    }
    void add(const uint8_t* bytes, size_t count) {
        uint64_t word = 0;
        for (; count >= sizeof word; bytes += sizeof word, count -= sizeof word) {
            std::memcpy(&word, bytes, sizeof word);
            add(word);
        }
        word = 0;
        std::memcpy(&word, bytes, count);
        add(word);
    }
    uint64_t value() const { return value_; }

private:
    uint64_t value_ = 1;
};

bool can_go_on(const Entry& entry) { return entry.state == EntryState::kRunnable || entry.state == EntryState::kYielded; }

// The function that all threads that go on are in, and that their loop does not leave; ~0: there is none.
uint32_t function_of_loop(const Image& image, const Warp& warp) {
    const uint32_t function = warp.cycle.high < image.info.size() ? image.info[warp.cycle.high].function : ~0u;
    if (function == ~0u || image.info[warp.cycle.low].function != function) return ~0u;
    for (const Entry& entry : warp.entries) {
        if (can_go_on(entry) && warp.frames[entry.frame].function != function) return ~0u;
    }
    return function;
}

void add_frames(Hash& hash, const Image& image, const Warp& warp, const LoopState& loop) {
    for (const Entry& entry : warp.entries) {
        if (!can_go_on(entry)) continue;
        const Frame& frame = warp.frames[entry.frame];
        for (const uint32_t row : loop.rows32) hash.add(warp.rows32 + frame.offset32 + row, kRow32Bytes);
        for (const uint32_t row : loop.rows64) hash.add(warp.rows64 + frame.offset64 + row, kRow64Bytes);
        for (const uint32_t slot : loop.predicates) hash.add(warp.predicates[frame.offset_predicates + slot]);
    }
}

void add_local(Hash& hash, const Block& block, const Warp& warp) {
    hash.add(block.local + static_cast<size_t>(warp.id) * kWarpLanes * block.local_stride,
             static_cast<size_t>(kWarpLanes) * block.local_stride);
}

// All that decides what the warp does next, but for the memory that others see; nothing: it depends on the time.
std::optional<uint64_t> hash_state(const Worker& worker, const Block& block, const Warp& warp, LoopStates& loops) {
    const Image& image = *block.launch->image;
    Hash hash;
    hash.add(warp.changes);
    hash.add(worker.progress);
    hash.add(warp.carry);
    for (const Entry& entry : warp.entries) {
        hash.add(entry.pc | static_cast<uint64_t>(entry.mask) << 32);
        hash.add(static_cast<uint64_t>(entry.frame) << 16 | static_cast<uint64_t>(entry.state) << 8 | entry.barrier);
    }
    if (std::none_of(warp.entries.begin(), warp.entries.end(), can_go_on)) return hash.value();
    if (function_of_loop(image, warp) != ~0u) {
        const std::pair<uint32_t, uint32_t> span{warp.cycle.low, warp.cycle.high};
        auto found = loops.find(span);
        if (found == loops.end()) found = loops.emplace(span, find_loop_state(image, span.first, span.second)).first;
        if (found->second.reads_time) return std::nullopt;
        add_frames(hash, image, warp, found->second);
        if (found->second.stores_local) add_local(hash, block, warp);
        return hash.value();
    }
    // It calls functions: all its registers count.
    if (std::any_of(image.code.begin(), image.code.end(), [](const Inst& inst) { return inst.op == Op::kClock; })) return std::nullopt;
    for (const Frame& frame : warp.frames) {
        if (frame.refs == 0) continue;
        hash.add(frame.return_pc | static_cast<uint64_t>(frame.function) << 32);
        const ImageFunction& function = image.functions[frame.function];
        hash.add(warp.rows32 + frame.offset32, function.bytes32);
        hash.add(warp.rows64 + frame.offset64, function.bytes64);
        hash.add(reinterpret_cast<const uint8_t*>(warp.predicates + frame.offset_predicates), 4ull * function.predicates);
    }
    add_local(hash, block, warp);
    return hash.value();
}

// Takes the branches since the last observation into the loop. True: it is larger now.
bool extend_loop(Warp& warp, bool first) {
    WarpCycle& cycle = warp.cycle;
    const uint32_t low = cycle.low, high = cycle.high;
    if (!first) {
        cycle.low = std::min(cycle.low, warp.loop_low);
        cycle.high = std::max(cycle.high, warp.loop_high);
    }
    warp.loop_low = ~0u;
    warp.loop_high = 0;
    for (const Entry& entry : warp.entries) {
        if (!can_go_on(entry)) continue;
        cycle.low = std::min(cycle.low, entry.pc);
        cycle.high = std::max(cycle.high, entry.pc);
    }
    return low != cycle.low || high != cycle.high;
}

}  // namespace

void LivelockWatch::observe(const Worker& worker, const std::vector<std::unique_ptr<Block>>& blocks, bool computes) {
    if (rounds_ < kQuietRounds) {
        rounds_ += computes ? kRoundsOfTurn : 1;
        return;
    }
    const std::vector<const Warp*> before = std::move(warps_);
    const bool first = before.empty();
    warps_.clear();
    repeats_ = true;
    for (const auto& block : blocks) {
        for (Warp& warp : block->warps) {
            if (warp.live == 0) continue;
            warps_.push_back(&warp);
            if (first) warp.cycle = WarpCycle{};
            if (extend_loop(warp, first)) warp.cycle = WarpCycle{.low = warp.cycle.low, .high = warp.cycle.high};
            if (const auto state = hash_state(worker, *block, warp, loops_))
                warp.cycle.observe(*state);
            else
                warp.cycle.is_found = false;
            repeats_ &= warp.cycle.is_found;
        }
    }
    repeats_ &= warps_ == before;
}

void LivelockWatch::begin_lap() {
    laps_.clear();
    for (const Warp* warp : warps_) laps_.push_back(warp->cycle.laps);
}

// The lap that was under way when it began does not count.
bool LivelockWatch::lap_is_over() const {
    if (!repeats() || laps_.size() != warps_.size()) return false;
    for (size_t i = 0; i < warps_.size(); ++i) {
        if (warps_[i]->cycle.laps < laps_[i] + 2) return false;
    }
    return true;
}

void WaitBoard::start(uint32_t workers) {
    const std::lock_guard lock(mutex_);
    round_ = 0;
    working_ = workers;
    waiting_ = confirmed_ = 0;
}

void WaitBoard::enter() {
    const std::lock_guard lock(mutex_);
    ++round_, ++waiting_, --working_, confirmed_ = 0;
}

void WaitBoard::leave() {
    const std::lock_guard lock(mutex_);
    ++round_, --waiting_, ++working_, confirmed_ = 0;
}

void WaitBoard::finish() {
    const std::lock_guard lock(mutex_);
    ++round_, --working_, confirmed_ = 0;
}

std::optional<uint64_t> WaitBoard::round() const {
    const std::lock_guard lock(mutex_);
    return working_ == 0 ? std::optional(round_) : std::nullopt;
}

bool WaitBoard::confirm(uint64_t round) {
    const std::lock_guard lock(mutex_);
    return working_ == 0 && round == round_ && ++confirmed_ == waiting_;
}

}  // namespace aicf::emu

// Vector clocks. A component is a stream or a chain of a graph's nodes: work that runs in one order. A clock says of each component how
// much of it has ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace aicf::emu {

class Clock {
public:
    void join(const Clock& other) {
        if (latest_.size() < other.latest_.size()) latest_.resize(other.latest_.size());
        for (size_t i = 0; i < other.latest_.size(); ++i) latest_[i] = std::max(latest_[i], other.latest_[i]);
    }
    void set(uint32_t component, uint64_t number) {
        if (latest_.size() <= component) latest_.resize(component + 1);
        latest_[component] = number;
    }
    uint64_t at(uint32_t component) const { return component < latest_.size() ? latest_[component] : 0; }

private:
    std::vector<uint64_t> latest_;
};

// An event, as it was last recorded.
struct EventOrder {
    Clock clock;
    uint32_t component = 0;
    uint64_t number = 0;  // of the record, in its component; 0: never recorded
    uint64_t call = 0;
};

}  // namespace aicf::emu

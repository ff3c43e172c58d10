// What was said about ranges of managed memory: a state for each stretch of addresses.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime.hpp"

namespace aicf::emu {

// The state of [address, address + size) is changed, stretch by stretch.
template <class Change>
void change_ranges(Runtime& runtime, uint64_t address, uint64_t size_bytes, Change&& change) {
    auto& states = runtime.managed_ranges;  // each holds up to the next one's address
    const auto split = [&](uint64_t at) {
        const auto next = states.lower_bound(at);
        if (next != states.end() && next->first == at) return;
        states.emplace(at, next == states.begin() ? RangeState{} : std::prev(next)->second);
    };
    split(address);
    split(address + size_bytes);
    for (auto it = states.find(address); it->first < address + size_bytes; ++it) change(it->second);
}

inline std::vector<RangeState> ranges_of(Runtime& runtime, uint64_t address, uint64_t size_bytes) {
    std::vector<RangeState> found;
    change_ranges(runtime, address, size_bytes, [&](const RangeState& state) { found.push_back(state); });
    return found;
}

inline void forget_ranges(Runtime& runtime, uint64_t address, uint64_t size_bytes) {
    change_ranges(runtime, address, size_bytes, [](RangeState& state) { state = {}; });
}

}  // namespace aicf::emu

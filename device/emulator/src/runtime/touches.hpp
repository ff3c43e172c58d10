// What queued work reads and writes, by allocation, until the host has waited for it; and the findings: two pieces of work, or the host and
// one, on the same bytes with nothing that orders them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "../memory/footprint.hpp"
#include "order.hpp"

namespace aicf::emu {

struct Access {
    std::shared_ptr<const Work> work;
    Footprint of;  // within the allocation
    Interval hull;
};

// Pages that are protected (host_watch.hpp): from writes, or from reads as well.
struct WatchedPages {
    Interval pages;
    bool from_reads = false;
};

// Of an allocation: the accesses that the host has not waited for, by component, in order.
struct History {
    uint64_t serial = 0;  // Allocation::serial
    Interval range;
    MemoryKind kind = MemoryKind::kDevice;
    std::map<uint32_t, std::deque<Access>> accesses;
    std::vector<WatchedPages> watched;
};

// Copies, fills, allocations and releases touch what they name, known when they are queued; a kernel what it has touched when it ran.
void note_operands(Runtime& runtime, const std::shared_ptr<Work>& work, const Operation& operation);
void note_footprint(Runtime& runtime, const std::shared_ptr<Work>& work, const Footprint& footprint);

std::map<uint64_t, History>& histories();  // by the address where the allocation begins
History* find_history(uint64_t address);
void forget_touches(Runtime& runtime);
bool prune(History& history);  // of what the host has waited for; false where there was nothing

// A finding, where the host's access of a byte is one; `place`: of the code.
void note_host_access(Runtime& runtime, History& history, uint64_t address, bool is_write, const HostPlace& place);

}  // namespace aicf::emu

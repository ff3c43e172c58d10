// Vector clocks of threads and synchronisation objects.
#include "order.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "../launch/engine.hpp"
#include "race.hpp"

namespace aicf::emu {

namespace {
auto find_key(const std::vector<Clocks::Entry>& entries, uint64_t key) {
    return std::lower_bound(entries.begin(), entries.end(), key, [](const Clocks::Entry& e, uint64_t k) { return e.key < k; });
}
}  // namespace

uint32_t Clocks::get(uint64_t key) const {
    const auto it = find_key(entries_, key);
    return it != entries_.end() && it->key == key ? it->clock : 0;
}

void Clocks::raise(uint64_t key, uint32_t clock) {
    const auto at = find_key(entries_, key);
    if (at != entries_.end() && at->key == key)
        entries_[static_cast<size_t>(at - entries_.begin())].clock = std::max(at->clock, clock);
    else
        entries_.insert(at, {key, clock});
}

void Clocks::join(const Clocks& other) {
    if (other.entries_.empty() || this == &other) return;
    if (entries_.empty()) {
        entries_ = other.entries_;
        return;
    }
    // Mostly nothing is new: what both know is raised in place.
    size_t num_new = 0;
    auto at = entries_.begin();
    for (const Entry& e : other.entries_) {
        while (at != entries_.end() && at->key < e.key) ++at;
        if (at != entries_.end() && at->key == e.key)
            at->clock = std::max(at->clock, e.clock);
        else
            ++num_new;
    }
    if (num_new == 0) return;
    // The rest moves in from behind.
    size_t from = entries_.size(), rest = other.entries_.size();
    entries_.resize(from + num_new);
    for (size_t to = entries_.size(); to != from;) {
        const Entry& e = other.entries_[rest - 1];
        if (from != 0 && entries_[from - 1].key >= e.key) {
            if (entries_[from - 1].key == e.key) --rest;
            entries_[--to] = entries_[--from];
        } else {
            entries_[--to] = e;
            --rest;
        }
    }
}

Clocks Clocks::reads() const {
    Clocks found;
    for (const Entry& e : entries_) {
        if (!(e.key & kProxyKey)) found.raise(e.key | kReadKey, e.clock);
    }
    return found;
}

void OrderTable::release(uint64_t object, const Clocks& clocks) {
    const uint64_t hash = mix(object);
    {
        Shard& shard = shards_[hash >> 32 & (kShards - 1)];
        std::lock_guard lock(shard.mutex);
        shard.objects[object].join(clocks);
    }
    std::atomic<uint64_t>& word = filter_[hash / 64 % kFilterWords];
    const uint64_t bit = 1ull << (hash % 64);
    if (!(word.load(std::memory_order_relaxed) & bit)) word.fetch_or(bit, std::memory_order_release);
}

bool OrderTable::acquire(uint64_t object, Clocks& to) {
    if (!may_hold(object)) return false;
    Shard& shard = shards_[mix(object) >> 32 & (kShards - 1)];
    std::lock_guard lock(shard.mutex);
    const auto it = shard.objects.find(object);
    if (it == shard.objects.end()) return false;
    to.join(it->second);
    return true;
}

void OrderTable::log_reads(uint64_t by, uint32_t clock, const Clocks& foreign) {
    std::lock_guard lock(logs_mutex_);
    std::vector<ReadLog>& log = logs_[key_block(by)];
    if (!log.empty() && log.back().id == key_id(by) && log.back().foreign.entries() == foreign.entries()) return;
    log.push_back({key_id(by), clock, foreign});
}

bool OrderTable::finds_reads(const Clocks& from, uint64_t key, uint32_t clock, Clocks::Entry& found) {
    std::lock_guard lock(logs_mutex_);
    if (logs_.empty()) return false;
    const uint64_t block = key_block(key);
    const auto covers = [](uint32_t whole, uint32_t part) {
        return whole == part || whole == kIdWhole || (part < kIdWarp && whole == kIdWarp + part / kWarpLanes);
    };
    // The nearest block first: chains of blocks are mostly in their order.
    const auto farther = [block](const Clocks::Entry& a, const Clocks::Entry& b) {
        const auto distance = [block](const Clocks::Entry& e) {
            const uint64_t other = key_block(e.key);
            return other > block ? other - block : block - other;
        };
        return distance(a) > distance(b);
    };
    std::vector<Clocks::Entry> todo;
    std::unordered_map<uint64_t, uint32_t> seen;
    const auto add = [&](const Clocks& clocks) {
        for (const Clocks::Entry& e : clocks.entries()) {
            if (e.key & kProxyKey) continue;
            uint32_t& best = seen[e.key & ~kReadKey];
            if (best >= e.clock) continue;
            best = e.clock;
            todo.push_back(e);
            std::push_heap(todo.begin(), todo.end(), farther);
        }
    };
    add(from);
    while (!todo.empty()) {
        const Clocks::Entry e = todo.front();
        if (key_block(e.key) == block && covers(key_id(e.key), key_id(key)) && e.clock > clock) {
            found = e;
            return true;
        }
        std::pop_heap(todo.begin(), todo.end(), farther);
        todo.pop_back();
        const auto log = logs_.find(key_block(e.key));
        if (log == logs_.end()) continue;
        for (const ReadLog& each : log->second) {
            if (each.clock <= e.clock && covers(key_id(e.key), each.id)) add(each.foreign);
        }
    }
    return false;
}

namespace order {

RecordTable& records(Block& block) {
    return block.cluster && !block.cluster->blocks.empty() ? block.cluster->blocks[0]->records : block.records;
}

void forget_shared(Block& block) {
    const size_t units = (block.shared_end >> block.launch->image->race_shift) + 1;
    std::memset(block.last_write, 0, 4 * units);
    std::memset(block.last_read, 0, 4 * units);
    if (!block.agent_read.empty()) std::fill(block.agent_read.begin(), block.agent_read.end(), 0u);
    block.read_log.entries.clear();
    std::fill(block.read_log.page_read.begin(), block.read_log.page_read.end(), 0u);
    std::fill(block.read_log.page_write.begin(), block.read_log.page_write.end(), 0u);
    block.clock_base = block.clock - 1;
}

uint32_t tick(Block& block) {
    ++block.clock;
    // Out of the bits that a stamp has: forget what was seen. Races across this point are missed; it takes a million synchronisations in
    // one block to come here.
    if (block.clock - block.clock_base >= kMaxStampClock && block.last_write) forget_shared(block);
    return block.clock;
}

bool knows_key(const Block& block, const Warp& warp, uint32_t lane, uint64_t key, uint32_t clock) {
    return block.known.get(key) > clock || warp.known.get(key) > clock ||
           (warp.lane_order && warp.lane_order->clocks_used && warp.lane_order->known[lane].get(key) > clock);
}

bool knows(const Block& block, const Warp& warp, uint32_t lane, uint64_t other_block, uint32_t other_id, uint32_t clock, uint64_t flag) {
    const bool by_lane = warp.lane_order && warp.lane_order->clocks_used;
    if (block.known.empty() && warp.known.empty() && !by_lane) return false;
    const uint64_t who = flag | clock_key(other_block, other_id);
    if (knows_key(block, warp, lane, who, clock)) return true;
    if (other_id < kIdWarp && knows_key(block, warp, lane, flag | clock_key(other_block, kIdWarp + other_id / kWarpLanes), clock))
        return true;
    return other_id < kIdChannel && knows_key(block, warp, lane, flag | clock_key(other_block, kIdWhole), clock);
}

void publish(const Block& block, const Warp& warp, uint32_t lanes, uint32_t own_clock, const uint32_t* own_by_lane, Clocks& out) {
    const uint64_t b = block.linear;
    const LaneOrder* lane_order = warp.lane_order.get();
    out.join(block.known);
    out.join(warp.known);
    if (lane_order && lane_order->clocks_used) {
        for (uint32_t rest = lanes; rest; rest &= rest - 1) out.join(lane_order->known[std::countr_zero(rest)]);
    }
    // Own accesses.
    bool together = lanes == warp.live;
    if (own_by_lane) {
        own_clock = own_by_lane[std::countr_zero(lanes)];
        for (uint32_t rest = lanes; rest; rest &= rest - 1) together &= own_by_lane[std::countr_zero(rest)] == own_clock;
    }
    if (together) {
        if (own_clock != 0) out.raise(clock_key(b, kIdWarp + warp.id), std::max(own_clock, warp.warp_floor));
    } else {
        for (uint32_t rest = lanes; rest; rest &= rest - 1) {
            const uint32_t lane = std::countr_zero(rest);
            const uint32_t clock = own_by_lane ? own_by_lane[lane] : own_clock;
            if (clock != 0) out.raise(clock_key(b, warp.id * kWarpLanes + lane), clock);
            if (!lane_order || !lane_order->floors_used) continue;
            for (uint32_t other = 0; other < kWarpLanes; ++other) {
                if (lane_order->floor[lane][other] > warp.warp_floor)
                    out.raise(clock_key(b, warp.id * kWarpLanes + other), lane_order->floor[lane][other]);
            }
        }
        if (warp.warp_floor > block.floor) out.raise(clock_key(b, kIdWarp + warp.id), warp.warp_floor);
    }
    for (uint32_t w = 0; w < block.num_warps; ++w) {
        if (w != warp.id && warp.order[w] > block.floor) out.raise(clock_key(b, kIdWarp + w), warp.order[w]);
    }
    if (block.floor > block.start_clock) out.raise(clock_key(b, kIdWhole), block.floor);
}

bool knows_read(Block& block, Warp& warp, uint32_t lane, uint64_t other_block, uint32_t other_id, uint32_t clock) {
    if (knows(block, warp, lane, other_block, other_id, clock, kReadKey)) return true;
    // Whoever learns it keeps it, so that the search is not made again.
    LaneOrder* lane_order = warp.lane_order.get();
    Clocks* const holders[] = {&block.known, &warp.known, lane_order && lane_order->clocks_used ? &lane_order->known[lane] : nullptr};
    for (Clocks* known : holders) {
        Clocks::Entry found;
        if (!known || known->empty() || !block.launch->order->finds_reads(*known, clock_key(other_block, other_id), clock, found)) continue;
        known->raise(found.key | kReadKey, found.clock);
        return true;
    }
    return false;
}

void publish_reads(const Block& block, const Warp& warp, uint32_t lane, uint32_t own_clock, Clocks& out) {
    Clocks known;
    publish(block, warp, 1u << lane, own_clock, nullptr, known);
    known = known.reads();
    Clocks foreign = known;
    const auto is_own = [&](const Clocks::Entry& e) { return key_block(e.key) == block.linear; };
    foreign.drop_if(is_own);
    known.drop_if([&](const Clocks::Entry& e) { return !is_own(e); });
    if (!foreign.empty()) block.launch->order->log_reads(clock_key(block.linear, warp.id * kWarpLanes + lane), own_clock, foreign);
    out.join(known);
}

namespace {

LaneOrder& lane_order_of(Warp& warp) {
    if (!warp.lane_order) warp.lane_order = std::make_unique<LaneOrder>();
    return *warp.lane_order;
}

// Takes entries about the own block's warps into the warp's floors, and leaves out what the block knows anyway.
void settle_warp(const Block& block, Warp& warp) {
    warp.known.drop_if([&](const Clocks::Entry& e) {
        if (!is_plain(e.key) || key_block(e.key) != block.linear) return false;
        const uint32_t id = key_id(e.key);
        if (id >= kIdWarp && id < kIdChannel) {
            const uint32_t w = id - kIdWarp;
            if (w == warp.id)
                warp.warp_floor = std::max(warp.warp_floor, e.clock);
            else
                warp.order[w] = std::max(warp.order[w], e.clock);
            return true;
        }
        if (id == kIdWhole) return e.clock <= block.floor;
        if (id < kIdWarp) return e.clock <= block.floor || (id / kWarpLanes != warp.id && e.clock <= warp.order[id / kWarpLanes]);
        return false;
    });
}

}  // namespace

void acquire(Block& block, Warp& warp, uint32_t lanes, const Clocks& clocks) {
    if (clocks.empty()) return;
    if (lanes == warp.live) {
        warp.known.join(clocks);
        settle_warp(block, warp);
        return;
    }
    LaneOrder& lane_order = lane_order_of(warp);
    lane_order.clocks_used = true;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        Clocks& known = lane_order.known[std::countr_zero(rest)];
        known.join(clocks);
        known.drop_if([&](const Clocks::Entry& e) {
            return is_plain(e.key) && key_block(e.key) == block.linear && key_id(e.key) < kIdChannel && e.clock <= block.floor;
        });
    }
}

void acquire_pending(Block& block, Warp& warp, uint32_t lanes) {
    LaneOrder* lane_order = warp.lane_order.get();
    if (!lane_order || !lane_order->pending_used) return;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t lane = std::countr_zero(rest);
        if (lane_order->pending[lane].empty()) continue;
        acquire(block, warp, 1u << lane, lane_order->pending[lane]);
        lane_order->pending[lane].clear();
    }
}

void warp_barrier(Block& block, Warp& warp, uint32_t lanes) {
    acquire_pending(block, warp, lanes);
    const uint32_t now = tick(block);
    // A fence of one thread serves the threads that meet it at the barrier.
    for (uint32_t* fence : {warp.fence_device, warp.fence_block}) {
        uint32_t latest = 0;
        for (uint32_t rest = lanes; rest; rest &= rest - 1) latest = std::max(latest, fence[std::countr_zero(rest)]);
        if (latest > warp.warp_floor && latest > block.floor) {
            for (uint32_t rest = lanes; rest; rest &= rest - 1) fence[std::countr_zero(rest)] = now;
        }
    }
    LaneOrder* lane_order = warp.lane_order.get();
    if (lane_order && lane_order->clocks_used) {
        Clocks all;
        for (uint32_t rest = lanes; rest; rest &= rest - 1) all.join(lane_order->known[std::countr_zero(rest)]);
        if (!all.empty()) {
            acquire(block, warp, lanes, all);
            if (lanes == warp.live) {
                for (Clocks& known : lane_order->known) known.clear();
                lane_order->clocks_used = false;
            }
        }
    }
    if (lanes == warp.live) {
        warp.warp_floor = now;
        if (lane_order) lane_order->floors_used = false;
        return;
    }
    LaneOrder& floors = lane_order_of(warp);
    if (!floors.floors_used) {
        std::memset(floors.floor, 0, sizeof floors.floor);
        floors.floors_used = true;
    }
    uint32_t most[kWarpLanes] = {};
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t lane = std::countr_zero(rest);
        for (uint32_t i = 0; i < kWarpLanes; ++i) most[i] = std::max(most[i], floors.floor[lane][i]);
    }
    for (uint32_t rest = lanes; rest; rest &= rest - 1) most[std::countr_zero(rest)] = now;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) std::memcpy(floors.floor[std::countr_zero(rest)], most, sizeof most);
}

void exchange(Block& block, Warp& warp, uint32_t lanes) {
    LaneOrder* lane_order = warp.lane_order.get();
    if (!lane_order || !lane_order->clocks_used) return;
    const auto is_of_warp = [&](const Clocks::Entry& e) {
        const uint32_t id = key_id(e.key);
        return key_block(e.key) == block.linear && (id == kIdWarp + warp.id || (id < kIdWarp && id / kWarpLanes == warp.id));
    };
    Clocks all;
    for (uint32_t rest = lanes; rest; rest &= rest - 1) all.join(lane_order->known[std::countr_zero(rest)]);
    all.drop_if(is_of_warp);
    acquire(block, warp, lanes, all);
    if (lanes != warp.live) return;
    lane_order->clocks_used = false;  // now known by the warp, but for what lanes know of each other
    for (Clocks& known : lane_order->known) {
        known.drop_if([&](const Clocks::Entry& e) { return !is_of_warp(e); });
        lane_order->clocks_used |= !known.empty();
    }
}

void block_barrier(Block& block) {
    bool fenced_device = false, fenced_block = false;
    for (Warp& warp : block.warps) {
        acquire_pending(block, warp, ~0u);
        if (!warp.known.empty()) {
            block.known.join(warp.known);
            warp.known.clear();
        }
        if (warp.lane_order) {
            if (warp.lane_order->clocks_used) {
                for (Clocks& known : warp.lane_order->known) {
                    block.known.join(known);
                    known.clear();
                }
            }
            warp.lane_order->clocks_used = warp.lane_order->floors_used = false;
        }
        if (warp.last_fence_device > block.floor) fenced_device = true;
        if (warp.last_fence_block > block.floor) fenced_block = true;
    }
    const uint32_t now = tick(block);
    block.floor = now;
    block.read_log.entries.clear();  // ordered before all that comes
    if (fenced_device) block.fence_floor_device = now;
    if (fenced_block) block.fence_floor_block = now;
    if (!block.known.empty()) {
        // The floor says more than what was known of single threads.
        block.known.drop_if([&](const Clocks::Entry& e) {
            return is_plain(e.key) && key_block(e.key) == block.linear && (key_id(e.key) < kIdChannel || key_id(e.key) == kIdWhole);
        });
    }
}

void fence(Block& block, Warp& warp, uint32_t lanes, bool whole_device) {
    acquire_pending(block, warp, lanes);
    const uint32_t now = tick(block);
    for (uint32_t rest = lanes; rest; rest &= rest - 1) {
        const uint32_t lane = std::countr_zero(rest);
        warp.fence_block[lane] = now;
        if (whole_device) warp.fence_device[lane] = now;
    }
    warp.last_fence_block = now;
    if (whole_device) warp.last_fence_device = now;
}

void proxy_fence(Block& block, Warp& warp, uint32_t lanes) {
    const uint32_t now = tick(block);
    const auto visible = [&](uint32_t group) {
        Clocks known, proxy;
        publish(block, warp, group, now, nullptr, known);
        for (const Clocks::Entry& e : known.entries()) {
            const uint32_t id = key_id(e.key);
            if (!(e.key & kReadKey) && (id < kIdChannel || id == kIdWhole)) proxy.raise(e.key | kProxyKey, e.clock);
        }
        acquire(block, warp, group, proxy);
    };
    if (lanes == warp.live) return visible(lanes);
    for (uint32_t rest = lanes; rest; rest &= rest - 1) visible(rest & -rest);
}

uint32_t add_record(Block& block, const AccessRecord& record) {
    RecordTable& table = records(block);
    if (table.slots.empty()) table.slots.resize(RecordTable::kSlots);
    for (uint32_t tried = 0; tried < RecordTable::kSlots; ++tried) {
        const uint32_t slot = table.next++ % RecordTable::kSlots;
        if (slot == 0) {
            // All slots have been used since: accesses that are over are forgotten, so that their slots can be.
            const auto sweep = [&](Block& each) {
                const size_t units = (each.shared_end >> each.launch->image->race_shift) + 1;
                const auto clear = [&](uint32_t* stamps) {
                    for (size_t i = 0; i < units; ++i) {
                        if (is_special(stamps[i]) && table.slots[stamps[i] & 0xFFF].state != AccessRecord::kInFlight) stamps[i] = 0;
                    }
                };
                clear(each.last_write);
                clear(each.last_read);
                if (!each.agent_read.empty()) clear(each.agent_read.data());
            };
            if (block.cluster)
                for (Block* each : block.cluster->blocks) sweep(*each);
            else
                sweep(block);
            for (AccessRecord& each : table.slots)
                if (each.state == AccessRecord::kDone) each.state = AccessRecord::kFree;
        }
        if (table.slots[slot].state != AccessRecord::kFree) continue;
        table.slots[slot] = record;
        table.slots[slot].generation = ++table.generation & 0xFFFFF;
        if (table.slots[slot].generation == 0) table.slots[slot].generation = ++table.generation & 0xFFFFF;
        return slot;
    }
    return ~0u;  // thousands of operations in flight: this one is not tracked
}

}  // namespace order
}  // namespace aicf::emu

// Order of memory accesses: what synchronises with what. The bookkeeping is in order.cpp.
#include "../warp/warp.hpp"
#include "race.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
uint64_t Interpreter<M>::order_object(OrderKind kind, const Block& owner, uint64_t address) const {
    const uint64_t tag = static_cast<uint64_t>(kind) << 60;
    // A word of global memory is the same to all blocks.
    if (kind == OrderKind::kGlobalWord) return tag | address;
    return tag | (owner.linear << 24 ^ address);
}

template <Mode M>
void Interpreter<M>::release_to(uint32_t lanes, uint64_t object) {
    if (!checking(kRacecheck) || lanes == 0) return;
    Clocks handed;
    order::publish(block_, warp_, lanes, order::tick(block_), nullptr, handed);
    block_.launch->order->release(object, handed);
}

template <Mode M>
void Interpreter<M>::release_fenced(uint32_t lanes, uint64_t object) {
    if (!checking(kRacecheck)) return;
    uint32_t fences[kWarpLanes];
    uint32_t fenced = 0;
    for_lanes(lanes, [&](uint32_t lane) {
        fences[lane] = std::max(warp_.fence_device[lane], block_.fence_floor_device);
        if (fences[lane] != 0) fenced |= 1u << lane;
    });
    if (fenced == 0) return;
    Clocks handed;
    order::publish(block_, warp_, fenced, 0, fences, handed);
    block_.launch->order->release(object, handed);
}

template <Mode M>
void Interpreter<M>::acquire_from(uint32_t lanes, uint64_t object) {
    if (!checking(kRacecheck) || lanes == 0) return;
    Clocks held;
    if (block_.launch->order->acquire(object, held)) order::acquire(block_, warp_, lanes, held);
}

// Strong accesses to a word pass on what was ordered before a fence, or before the access itself where it releases. What a relaxed read
// finds is known after the next fence or barrier; at once, only that the reads before the store are over: a relaxed store whose value or
// whose being made depends on them cannot overtake them, and overwriting what they read needs no more than having seen it. (Decoupled
// look-back in place counts on this.)
template <Mode M>
void Interpreter<M>::order_words(const Inst& inst, uint32_t mask, const uint64_t* address, bool is_read, bool is_write, OrderKind kind,
                                 const Block* owner) {
    OrderTable& table = *block_.launch->order;
    const bool by_block = inst.order & kOrderBlock;
    const uint32_t floor_fence = by_block ? block_.fence_floor_block : block_.fence_floor_device;
    const uint32_t* fences = by_block ? warp_.fence_block : warp_.fence_device;
    const bool releases = inst.order & kOrderRelease;
    const auto object_of = [&](uint64_t at, bool in_block) {
        const uint64_t object = order_object(kind, owner ? *owner : block_, at);
        // What is handed on within the block only is kept apart.
        return in_block ? object ^ (block_.linear + 1) * 0x9E3779B97F4A7C15ull >> 5 : object;
    };
    uint64_t last = ~0ull;
    for_lanes(mask, [&](uint32_t lane) {
        const uint64_t at = address[lane];
        if (is_read && at != last) {
            Clocks held;
            bool found = table.acquire(object_of(at, true), held);
            if (!by_block) found |= table.acquire(object_of(at, false), held);
            if (found) {
                uint32_t same = 0;
                for_lanes(mask, [&](uint32_t l) { same |= address[l] == at ? 1u << l : 0; });
                if (inst.order & kOrderAcquire) {
                    order::acquire(block_, warp_, same, held);
                } else {
                    if (kind == OrderKind::kGlobalWord) order::acquire(block_, warp_, same, held.reads());
                    if (!warp_.lane_order) warp_.lane_order = std::make_unique<LaneOrder>();
                    warp_.lane_order->pending_used = true;
                    for_lanes(same, [&](uint32_t l) { warp_.lane_order->pending[l].join(held); });
                }
            }
            last = at;
        }
        if (is_write) {
            const uint32_t fence = std::max(fences[lane], floor_fence);
            const bool hands_reads = kind == OrderKind::kGlobalWord && (releases || fence != 0 || !is_read);
            if (!releases && fence == 0 && !hands_reads) return;
            Clocks handed;
            const uint32_t now = releases || hands_reads ? order::tick(block_) : 0;
            if (releases || fence != 0) order::publish(block_, warp_, 1u << lane, releases ? now : fence, nullptr, handed);
            if (hands_reads) {
                handed.drop_if([](const Clocks::Entry& e) { return (e.key & kReadKey) != 0; });
                order::publish_reads(block_, warp_, lane, now, handed);
            }
            table.release(object_of(at, true), handed);
            if (!by_block) table.release(object_of(at, false), handed);
            last = ~0ull;
        }
    });
}

template <Mode M>
void Interpreter<M>::memory_fence(const Inst& inst, uint32_t mask) {
    if (checking(kRacecheck)) order::fence(block_, warp_, mask, !(inst.order & kOrderBlock));
}

template <Mode M>
void Interpreter<M>::proxy_fence(uint32_t lanes, ProxyFence kind) {
    if (!checking(kRacecheck) || lanes == 0) return;
    if (kind == ProxyFence::kAlias || kind == ProxyFence::kTensormap) return;
    order::proxy_fence(block_, warp_, lanes);
}

template <Mode M>
Agent Interpreter<M>::agent_start(uint32_t lane, Proxy proxy) {
    if (!checking(kRacecheck)) return {};
    AccessRecord record;
    record.state = AccessRecord::kInFlight;
    record.is_agent = true;
    record.async_proxy = proxy == Proxy::kAsync;
    record.block = block_.linear;
    record.thread = thread_of(lane);
    record.pc = pc_;
    const uint32_t slot = order::add_record(block_, record);
    if (slot == ~0u) return {};
    return {order::records(block_).slots[slot].generation << 12 | slot};
}

namespace {
AccessRecord* find_record(RecordTable& table, Agent agent) {
    if (agent.id == 0 || table.slots.empty()) return nullptr;
    AccessRecord& record = table.slots[agent.id & 0xFFF];
    return record.generation == agent.id >> 12 && record.state != AccessRecord::kFree ? &record : nullptr;
}
}  // namespace

template <Mode M>
void Interpreter<M>::agent_access(Agent agent, MemSpace space, Block* owner, uint64_t address, uint32_t bytes, bool is_write) {
    if (!checking(kRacecheck)) return;
    const AccessRecord* record = find_record(order::records(block_), agent);
    if (!record || bytes == 0) return;
    const uint32_t lane = record->thread % kWarpLanes;
    if (space == MemSpace::kGlobal)
        global_range(lane, address, bytes, is_write, record->async_proxy);
    else
        race_agent(owner ? *owner : block_, agent.id & 0xFFF, lane, address & kSharedOffsetMask, bytes, is_write);
}

template <Mode M>
void Interpreter<M>::agent_release(Agent agent, uint64_t object) {
    if (!checking(kRacecheck)) return;
    RecordTable& table = order::records(block_);
    AccessRecord* record = find_record(table, agent);
    if (!record) return;
    if (record->state == AccessRecord::kInFlight) {
        // Operations that complete at one object share an id, as those who wait there know of all that completed so far.
        constexpr uint32_t kFirst = kIdChannel + kMaxWarps, kCount = kIdWhole - kFirst;
        const auto [it, fresh] = table.channels.try_emplace(object, kFirst + static_cast<uint32_t>(table.channels.size()) % kCount);
        Block& home = block_.cluster && !block_.cluster->blocks.empty() ? *block_.cluster->blocks[0] : block_;
        record->key = clock_key(home.linear, it->second);
        record->clock = order::tick(home);
        record->state = AccessRecord::kDone;
    }
    Clocks handed;
    handed.raise(record->key, record->clock + 1);
    block_.launch->order->release(object, handed);
}

template <Mode M>
void Interpreter<M>::agent_join(Agent agent, uint32_t lanes) {
    if (!checking(kRacecheck) || lanes == 0) return;
    AccessRecord* record = find_record(order::records(block_), agent);
    if (!record) return;
    if (record->state == AccessRecord::kInFlight) {
        record->key = clock_key(block_.linear, kIdChannel + warp_.id);
        record->clock = order::tick(block_);
        record->state = AccessRecord::kDone;
    }
    Clocks held;
    held.raise(record->key, record->clock + 1);
    order::acquire(block_, warp_, lanes, held);
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

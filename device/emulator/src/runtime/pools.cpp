#include "pools.hpp"

#include <algorithm>

#include "order.hpp"
#include "ranges.hpp"

namespace aicf::emu {
namespace {

constexpr uint64_t kChunkBytes = 32 << 20;  // by which pools grow and shrink

uint64_t whole_chunks(uint64_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes * kChunkBytes; }

void take(MemoryCounts& counts, uint64_t bytes) {
    counts.used += bytes;
    counts.used_high = std::max(counts.used_high, counts.used);
    counts.reserved = std::max(counts.reserved, whole_chunks(counts.used));
    counts.reserved_high = std::max(counts.reserved_high, counts.reserved);
}

std::string place_of(const Allocation* allocation) {
    if (allocation == nullptr) return "";
    return " (allocation #" + std::to_string(allocation->serial) + " of " + std::to_string(allocation->size_bytes) + " bytes)";
}

[[noreturn]] void refuse(Runtime& runtime, const char* kind, uint64_t address, const std::string& text) {
    runtime.add_report(kind, Severity::kError, text, address);
    throw Failure{kErrInvalidValue, text};
}

std::shared_ptr<GraphMemory> find_graph_memory(Runtime& runtime, uint64_t address) {
    const auto found = runtime.graph_memory.find(address);
    return found == runtime.graph_memory.end() ? nullptr : found->second.lock();
}

// Misuse that shows without looking at queued work.
void check_release(Runtime& runtime, uint64_t address, bool host) {
    if (!runtime.is_device_address(reinterpret_cast<void*>(address)))
        refuse(runtime, "invalid_free", address, hex(address) + " is freed, and was not allocated by CUDA");
    const Allocation* allocation = runtime.memory().find(address);
    const std::string place = place_of(allocation);
    if (allocation == nullptr) refuse(runtime, "invalid_free", address, hex(address) + " is freed, and is no allocation");
    if (allocation->kind == MemoryKind::kModule || allocation->kind == MemoryKind::kManagedVariable)
        refuse(runtime, "invalid_free", address, hex(address) + " is freed, and belongs to a device variable" + place);
    if (allocation->address != address)
        refuse(runtime, "invalid_free", address, hex(address) + " is freed, and lies inside an allocation, not at its start" + place);
    if (!allocation->live || runtime.releases.contains(address))
        refuse(runtime, "double_free", address, hex(address) + " is freed a second time" + place);
    if ((allocation->kind == MemoryKind::kPinned) != host)
        refuse(runtime, "invalid_free", address,
               hex(address) + " is freed with the wrong function: pinned memory with cudaFreeHost, device memory with cudaFree" + place);
}

void ask_for_memory(Runtime& runtime, const Graph& graph, bool auto_free) {
    for (const auto& node : graph.nodes) {
        if (const auto* alloc = std::get_if<AllocOp>(&node->operation)) {
            if (alloc->memory->outstanding && !auto_free)
                throw Failure{
                    kErrInvalidValue,
                    "the graph's memory of an earlier launch was not freed (cudaGraphInstantiateFlagAutoFreeOnLaunch would free it)"};
            alloc->memory->outstanding = !alloc->memory->freed_in_graph;
        }
        if (const auto* release = std::get_if<FreeOp>(&node->operation)) {
            const auto memory = find_graph_memory(runtime, release->address);
            if (memory == nullptr || memory->freed_in_graph) continue;
            if (!memory->outstanding)
                refuse(runtime, "double_free", release->address,
                       "a graph frees " + hex(release->address) + " of another graph, and no launch of that has left it allocated");
            memory->outstanding = false;
        }
    }
    for (const auto& inner : graph.inner_graphs()) ask_for_memory(runtime, *inner, auto_free);
}

// What the allocation nodes of a graph hold, by device.
void add_memory(const Graph& graph, std::map<int, uint64_t>& bytes) {
    for (const auto& node : graph.nodes)
        if (const auto* alloc = std::get_if<AllocOp>(&node->operation)) bytes[alloc->memory->device] += alloc->memory->size_bytes;
    for (const auto& inner : graph.inner_graphs()) add_memory(*inner, bytes);
}

}  // namespace

GraphMemory::~GraphMemory() {
    Runtime& runtime = Runtime::get();
    runtime.graph_memory.erase(address);
    // What a launch left to the user goes on without its graph, until it is freed.
    if (address == 0 || outstanding || runtime.memory_if_made() == nullptr) return;
    runtime.memory().set_live(address, true);
    runtime.memory().release(address);
}

std::shared_ptr<MemoryPool> find_pool(Runtime& runtime, void* handle) {
    for (const Device& device : runtime.devices)
        if (device.default_pool.get() == handle) return device.default_pool;
    const auto found = runtime.pools.find(handle);
    require(found != runtime.pools.end(), kErrInvalidValue, "the handle is no memory pool (or the pool was destroyed)");
    return found->second;
}

uint64_t allocate_memory(Runtime& runtime, uint64_t size_bytes, MemoryKind kind, const char* label) {
    const int device = thread_state().device;
    runtime.use_device(device);
    const uint64_t address = runtime.memory().allocate(size_bytes, kind, label);
    if (address == 0)
        throw Failure{kErrMemoryAllocation, std::to_string(size_bytes) + " bytes asked for; " +
                                                std::to_string(runtime.memory().used_bytes(static_cast<uint32_t>(device))) + " of " +
                                                std::to_string(runtime.memory().device_bytes()) + " are in use (option memory_bytes)"};
    return address;
}

uint64_t allocate_from(Runtime& runtime, const std::shared_ptr<MemoryPool>& pool, uint64_t size_bytes) {
    if (pool->max_bytes != 0 && pool->counts.used + size_bytes > pool->max_bytes)
        throw Failure{kErrMemoryAllocation, std::to_string(size_bytes) + " bytes asked for of a pool of at most " +
                                                std::to_string(pool->max_bytes) + ", of which " + std::to_string(pool->counts.used) +
                                                " are in use"};
    const DeviceScope scope(pool->device);
    const uint64_t address = allocate_memory(runtime, size_bytes, MemoryKind::kAsync);
    runtime.memory().set_granted(address, pool->granted);
    take(pool->counts, size_bytes);
    runtime.pool_of[address] = pool;
    return address;
}

void end_release(Runtime& runtime, uint64_t address) {
    runtime.releases.erase(address);
    const Allocation* allocation = runtime.memory().find(address);
    const uint64_t bytes = allocation == nullptr ? 0 : allocation->size_bytes;
    if (allocation != nullptr && allocation->kind == MemoryKind::kManaged) forget_ranges(runtime, address, bytes);
    if (find_graph_memory(runtime, address) != nullptr) {
        runtime.memory().set_live(address, false);
        return;
    }
    if (const auto pool = runtime.pool_of.find(address); pool != runtime.pool_of.end()) {
        pool->second->counts.used -= bytes;
        runtime.pool_of.erase(pool);
    }
    runtime.memory().release(address);
}

void begin_release(Runtime& runtime, uint64_t address) {
    if (const auto graph_memory = find_graph_memory(runtime, address)) {  // its launch may still be queued
        if (!graph_memory->outstanding)
            refuse(runtime, "double_free", address, hex(address) + " of a graph is freed, and no launch has left it allocated");
        graph_memory->outstanding = false;
    } else {
        check_release(runtime, address, false);
    }
    runtime.releases.insert(address);
}

void release_memory(Runtime& runtime, uint64_t address, bool host) {
    if (host)
        check_release(runtime, address, true);
    else
        begin_release(runtime, address);
    end_release(runtime, address);
}

void trim_counts(MemoryCounts& counts, uint64_t least_bytes) {
    counts.reserved = std::max(whole_chunks(counts.used), std::min(counts.reserved, whole_chunks(std::min(counts.reserved, least_bytes))));
}

void trim_pools(Runtime& runtime) {
    for (Device& device : runtime.devices) trim_counts(device.default_pool->counts, device.default_pool->release_threshold);
    for (const auto& [handle, pool] : runtime.pools) trim_counts(pool->counts, pool->release_threshold);
}

AllocOp make_alloc(Runtime& runtime, abi::MemAllocNodeParams* params) {
    require(params != nullptr && params->bytesize != 0, kErrInvalidValue, "the parameters are null or ask for 0 bytes");
    const abi::MemLocation& place = params->poolProps.location;
    require(params->poolProps.allocType == 1 && place.type == 1, kErrInvalidValue, "graphs allocate pinned memory of a device only");
    require(place.id >= 0 && place.id < static_cast<int>(runtime.devices.size()), kErrInvalidDevice, "there is no such device");
    uint32_t granted = 0;
    for (size_t i = 0; i < params->accessDescCount; ++i) {
        const int other = params->accessDescs[i].location.id;
        require(other >= 0 && other < static_cast<int>(runtime.devices.size()), kErrInvalidDevice, "there is no such device");
        granted |= 1u << other;
    }
    AllocOp operation;
    operation.memory = std::make_shared<GraphMemory>();
    const DeviceScope scope(place.id);
    const uint64_t address = allocate_memory(runtime, params->bytesize, MemoryKind::kAsync, "graph memory");
    runtime.memory().set_granted(address, granted);
    runtime.memory().set_live(address, false);
    operation.memory->address = address;
    operation.memory->size_bytes = params->bytesize;
    operation.memory->device = place.id;
    runtime.graph_memory[address] = operation.memory;
    params->dptr = reinterpret_cast<void*>(address);
    operation.params = *params;
    operation.params.accessDescs = nullptr;
    operation.params.accessDescCount = 0;
    return operation;
}

FreeOp make_free(Runtime& runtime, Graph& graph, uint64_t address) {
    const auto memory = find_graph_memory(runtime, address);
    require(memory != nullptr, kErrInvalidValue, "a free node takes an address that an allocation node gave");
    for (const auto& node : graph.nodes) {
        if (const auto* other = std::get_if<FreeOp>(&node->operation); other != nullptr && other->address == address)
            throw Failure{kErrInvalidValue, "the graph frees " + hex(address) + " already"};
        if (const auto* alloc = std::get_if<AllocOp>(&node->operation); alloc != nullptr && alloc->memory == memory)
            memory->freed_in_graph = true;
    }
    return {address};
}

void begin_graph_memory(Runtime& runtime, GraphExec& exec) {
    ask_for_memory(runtime, *exec.graph, (exec.flags & abi::kInstantiateAutoFree) != 0);
    if (!exec.memory_bytes.empty()) return;
    add_memory(*exec.graph, exec.memory_bytes);
    for (auto& [device, bytes] : exec.memory_bytes) {
        bytes = whole_chunks(bytes);
        take(runtime.devices[static_cast<size_t>(device)].graph_memory, bytes);
    }
}

GraphExec::~GraphExec() {
    give_components(components);
    for (const auto& [device, bytes] : memory_bytes) Runtime::get().devices[static_cast<size_t>(device)].graph_memory.used -= bytes;
}

void run_alloc(Runtime& runtime, const AllocOp& operation) { runtime.memory().set_live(operation.memory->address, true); }

}  // namespace aicf::emu

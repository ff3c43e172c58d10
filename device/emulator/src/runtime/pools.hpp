// Memory pools (cudaMallocAsync) and the memory of graphs. Addresses come from the one arena; a pool counts what it would hold.
// CUDA C++ programming guide, "Stream ordered memory allocator" and "Graph memory nodes".
#pragma once

#include <cstdint>
#include <memory>

#include "graph.hpp"

namespace aicf::emu {

struct MemoryPool {
    int device = 0;
    bool is_default = false;
    uint64_t max_bytes = 0;  // 0: none
    uint64_t release_threshold = 0;
    int reuse_flags[4] = {0, 1, 1, 1};  // by cudaMemPoolAttr
    uint32_t granted = 0;               // a bit for each other device that may touch its memory
    MemoryCounts counts;
};

// Memory of a graph: the address is fixed when the node is made. Between the launch of its node and its release it is live.
struct GraphMemory {
    uint64_t address = 0;
    uint64_t size_bytes = 0;
    int device = 0;
    bool freed_in_graph = false;  // by a node of the graph that allocates it
    bool outstanding = false;     // the host has launched the graph, and has not asked for the release
    ~GraphMemory();
};

std::shared_ptr<MemoryPool> find_pool(Runtime& runtime, void* handle);

// An address of the device's memory; throws Failure 2 when it is full.
uint64_t allocate_memory(Runtime& runtime, uint64_t size_bytes, MemoryKind kind, const char* label = "");
uint64_t allocate_from(Runtime& runtime, const std::shared_ptr<MemoryPool>& pool, uint64_t size_bytes);

// Frees what the user frees; `host`: with cudaFreeHost. Misuse throws Failure 1 after a report.
void release_memory(Runtime& runtime, uint64_t address, bool host);
// The same in stream order: what can be said when the call is made, and the release itself.
void begin_release(Runtime& runtime, uint64_t address);
void end_release(Runtime& runtime, uint64_t address);

// Gives back what is free, but for `least_bytes`.
void trim_counts(MemoryCounts& counts, uint64_t least_bytes);
// A synchronisation: all pools give back what is beyond their thresholds.
void trim_pools(Runtime& runtime);

// Nodes of graphs.
AllocOp make_alloc(Runtime& runtime, abi::MemAllocNodeParams* params);
FreeOp make_free(Runtime& runtime, Graph& graph, uint64_t address);
// What a launch asks for, when the call is made; throws Failure 1 where memory of an earlier launch was not freed.
void begin_graph_memory(Runtime& runtime, GraphExec& exec);
void run_alloc(Runtime& runtime, const AllocOp& operation);

}  // namespace aicf::emu

// Work as data: the operations that a stream executes, a capture records and a graph replays; streams, events, captures and graphs.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "clock.hpp"
#include "cuda_abi.hpp"
#include "host_place.hpp"
#include "registry.hpp"
#include "runtime.hpp"

namespace aicf::emu {

struct Node;

struct EmptyOp {};

struct KernelOp {
    std::shared_ptr<Kernel> kernel;
    Dim3 grid, block, cluster{0, 0, 0};
    uint32_t dynamic_shared_bytes = 0;
    bool cooperative = false;
    uint32_t primary = 0;  // Launch::primary
    int device = 0;
    std::vector<std::byte> params;               // packed by KernelInfo::params
    std::vector<void*> param_pointers;           // into params, for cudaGraphKernelNodeGetParams
    std::map<int, abi::LaunchAttributeValue> attributes;
};

// A copy of `extent.depth` slices of `extent.height` rows of `extent.width` bytes; a plain copy is one row.
struct CopyOp {
    abi::Memcpy3DParms params{};
};

struct FillOp {
    abi::MemsetParams params{};
    size_t depth = 1;
    size_t slice_pitch = 0;  // bytes
};

struct HostOp {
    abi::HostFn function = nullptr;
    void* user_data = nullptr;
    void* stream = nullptr;  // cudaStreamAddCallback's: the function then takes (stream, status, user data)
    bool is_stream_callback = false;
};

struct RecordOp {
    std::shared_ptr<Event> event;
};

struct WaitOp {
    std::shared_ptr<Event> event;
};

struct ChildOp {
    std::shared_ptr<Graph> graph;
};

// A value that device code sets (cudaGraphSetConditional) and conditional nodes read.
struct ConditionalHandle {
    ConditionalHandle(uint32_t default_value, bool assigns_default);
    ~ConditionalHandle();
    ConditionalHandle(const ConditionalHandle&) = delete;
    ConditionalHandle& operator=(const ConditionalHandle&) = delete;
    uint64_t id;
    uint32_t default_value;
    bool assigns_default;  // at the beginning of each launch
    bool is_used = false;  // by a node
};

struct ConditionalOp {
    std::shared_ptr<ConditionalHandle> handle;
    int type = abi::kConditionalIf;
    std::vector<std::shared_ptr<Graph>> bodies;
    std::shared_ptr<std::vector<void*>> body_handles;  // what phGraph_out points to
};

struct AllocOp {
    abi::MemAllocNodeParams params{};
    std::shared_ptr<GraphMemory> memory;
};

struct FreeOp {  // a graph's node, or cudaFreeAsync
    uint64_t address = 0;
};

using Operation = std::variant<EmptyOp, KernelOp, CopyOp, FillOp, HostOp, RecordOp, WaitOp, ChildOp, AllocOp, FreeOp, ConditionalOp>;

int node_type(const Operation& operation);         // abi::NodeType
const char* node_type_name(const Operation& operation);

// Executes now, on the calling thread. Kernel faults go to Runtime::fail_context; wrong arguments throw Failure.
void execute(Runtime& runtime, const Operation& operation);

struct Edge {
    Node* from = nullptr;
    abi::GraphEdgeData data{};
};

struct Node {
    Node(Graph* owner, Operation what, uint64_t node_id);
    ~Node();
    Graph* graph;
    Operation operation;
    std::vector<Edge> dependencies;
    bool enabled = true;
    uint64_t id;
    const Node* cloned_from = nullptr;
    CallSite site;  // where it was made, captured or added
    static bool is_live(const void* handle);
};

struct UserObject {
    void* pointer = nullptr;
    abi::HostFn destroy = nullptr;
    uint32_t references = 0;
};

struct Graph {
    explicit Graph(uint64_t graph_id) : id(graph_id) {}
    ~Graph();
    Graph(const Graph&) = delete;
    Graph& operator=(const Graph&) = delete;

    uint64_t id;
    std::vector<std::unique_ptr<Node>> nodes;
    std::map<UserObject*, uint32_t> user_objects;
    std::vector<std::shared_ptr<ConditionalHandle>> conditionals;
    bool has_child_parent = false;  // owned by a child-graph or conditional node: not to be destroyed by handle
    bool is_body = false;           // of a conditional node
    std::weak_ptr<GraphExec> instantiated;  // the latest

    Node* add(Runtime& runtime, Operation operation, const std::vector<Node*>& dependencies);
    void add_edge(Node* from, Node* to, const abi::GraphEdgeData& data);
    std::vector<Node*> dependents(const Node* node) const;
    // Deep copy; `mapping` gets original node -> copy, of inner graphs too.
    std::shared_ptr<Graph> clone(Runtime& runtime, std::unordered_map<const Node*, Node*>* mapping) const;
    // Whether it holds conditional, allocation or free nodes: such a graph has one copy only.
    bool is_unique() const;
    // Graphs that belong to nodes of this one.
    std::vector<std::shared_ptr<Graph>> inner_graphs() const;
    // Nodes in an order that keeps every dependency, by creation where free, or as `pick` chooses among so many. Throws Failure(1) on a
    // cycle.
    std::vector<Node*> topological_order(const std::function<size_t(size_t)>& pick = {}) const;
};

struct GraphExec {
    ~GraphExec();
    std::shared_ptr<Graph> graph;                         // private copy
    std::unordered_map<const Node*, Node*> by_original;   // node handle of the source graph -> node of the copy, of inner graphs too
    unsigned long long flags = 0;
    std::weak_ptr<Task> last_launch;
    std::map<int, uint64_t> memory_bytes;  // by device: what its allocation nodes hold from the first launch on
    Clock clock;                           // of its last launch (order.hpp)
    std::vector<uint32_t> components;      // of the clocks: one for each chain of its nodes
};

// Before a launch's first node runs: defaults of conditional values.
void begin_graph(const Graph& graph);

struct Event {
    uint32_t flags = 0;
    int device = 0;
    std::shared_ptr<Task> task;         // the latest record, in deferred mode
    EventOrder order;                   // the latest record
    bool recorded = false;
    std::chrono::steady_clock::time_point time;
    std::weak_ptr<Capture> capture;     // last recorded in this capture
    bool captured = false;
    std::vector<Node*> captured_nodes;  // what a wait then depends on
};

struct Capture {
    uint64_t id = 0;
    int mode = abi::kCaptureGlobal;
    std::thread::id owner;
    Stream* origin = nullptr;
    std::shared_ptr<Graph> graph;
    bool graph_is_users = false;        // cudaStreamBeginCaptureToGraph
    bool invalidated = false;
    std::set<Stream*> streams;          // the origin, and those joined to it by waits
};

struct Stream {
    enum class Kind : uint8_t { kCreated, kLegacy, kPerThread };
    Kind kind = Kind::kCreated;
    uint64_t id = 0;
    uint32_t flags = 0;  // 1: non-blocking
    int priority = 0;
    int device = 0;
    uint64_t ordinal = 0;               // counts those that were created, from 1
    uint32_t component = 0;             // of the clocks; 0: none yet
    Clock clock;                        // of the latest work, and of what was waited for since (order.hpp)
    uint32_t last_race_launch = 0;      // LaunchResult::race_launch of the latest work, if that was a kernel; in eager mode
    std::shared_ptr<Task> tail;         // the latest work, in deferred mode
    std::shared_ptr<Capture> capture;
    std::vector<Node*> capture_tail;    // what the next captured operation depends on
    std::vector<abi::GraphEdgeData> tail_edges;
    std::map<int, abi::LaunchAttributeValue> attributes;
    bool is_blocking() const { return kind == Kind::kLegacy || (flags & 1) == 0; }
};

// 0, cudaStreamLegacy and cudaStreamPerThread are understood; a handle that is no stream throws Failure(400).
Stream& find_stream(Runtime& runtime, void* handle, bool per_thread);
std::shared_ptr<Event> find_event(Runtime& runtime, void* handle);
std::shared_ptr<Graph> find_graph(Runtime& runtime, void* handle);
std::shared_ptr<GraphExec> find_graph_exec(Runtime& runtime, void* handle);
Node* find_node(void* handle);
std::shared_ptr<ConditionalHandle> find_conditional(Runtime& runtime, uint64_t handle);

// Executes, or, where the stream captures, records.
Node* submit(Runtime& runtime, Stream& stream, Operation operation);

// capture.cpp
// Throws 900 where an ongoing capture forbids calls that may synchronise or allocate (see cudaThreadExchangeStreamCaptureMode).
void forbid_during_capture(Runtime& runtime, const char* what);
// Throws when the stream captures (900 or 901), for calls that ask about or wait for executed work.
void forbid_on_capturing_stream(Runtime& runtime, Stream& stream, const char* what);
// Throws 900 where any capture is in progress, whatever its mode: device-wide synchronisation.
void forbid_during_any_capture(Runtime& runtime, const char* what);
// Throws 906 when `stream` is the legacy stream and a blocking stream captures; a mere question (`keep_capture`) does no harm to the
// capture.
void forbid_implicit_dependency(Runtime& runtime, Stream& stream, bool keep_capture = false);
// Throws 907 for an event last recorded in a capture.
void forbid_captured_event(Event& event, const char* what);
void invalidate(Capture& capture);
// For a stream that goes away: harmless to the capture where its work has been joined.
void leave_capture(Runtime& runtime, Stream& stream);
void capture_event_record(Runtime& runtime, Stream& stream, const std::shared_ptr<Event>& event, bool external);
// True when the wait was absorbed by a capture.
bool capture_event_wait(Runtime& runtime, Stream& stream, const std::shared_ptr<Event>& event, bool external);
Node* capture_operation(Runtime& runtime, Stream& stream, Operation operation);

}  // namespace aicf::emu

#include "graph.hpp"

#include <algorithm>
#include <unordered_set>

#include "launch.hpp"
#include "memory_ops.hpp"

namespace aicf::emu {
namespace {

std::unordered_set<const void*>& live_nodes() {
    static auto* nodes = new std::unordered_set<const void*>;
    return *nodes;
}

void run_kernel(Runtime& runtime, const KernelOp& operation) {
    // Module and limits are looked at again: a graph may be launched long after it was made.
    runtime.registry->load(runtime, *operation.kernel);
    const Kernel& kernel = *operation.kernel;
    Launch launch;
    launch.program = kernel.module->program.get();
    launch.kernel = kernel.name;
    launch.grid = operation.grid;
    launch.block = operation.block;
    launch.cluster = operation.cluster.x != 0               ? operation.cluster
                     : kernel.info->required_cluster.x != 0 ? kernel.info->required_cluster
                                                            : Dim3{1, 1, 1};
    launch.dynamic_shared_bytes = operation.dynamic_shared_bytes;
    launch.params = operation.params;
    launch.cooperative = operation.cooperative;
    LaunchResult result = run(launch, runtime.memory(), runtime.options);
    std::string text;
    for (Report& report : result.reports) {
        if (text.empty() && report.severity == Severity::kError) text = report.text;
        runtime.add_report(std::move(report));
    }
    if (runtime.options.counters) {
        runtime.add_counters({kernel.name, operation.grid, operation.block, result.counters});
        runtime.add_lines(launch.program, kernel.name, std::move(result.lines));
    }
    if (result.status == kSuccess) return;
    std::string message = "kernel " + kernel.name + ": " + error_text(result.status) + " (" + error_name(result.status) + ", " +
                          std::to_string(result.status) + ")";
    if (!text.empty()) message += "\n" + text;
    if (!is_sticky(result.status)) throw Failure{result.status, message};
    runtime.fail_context(result.status, std::move(message));
}

void run_host_function(Runtime& runtime, const HostOp& operation) {
    using StreamCallback = void (*)(void* stream, int status, void* user_data);
    run_unlocked(runtime, [&] {
        if (operation.is_stream_callback)
            reinterpret_cast<StreamCallback>(reinterpret_cast<void*>(operation.function))(operation.stream, kNoError, operation.user_data);
        else
            operation.function(operation.user_data);
    });
}

void run_graph_nodes(Runtime& runtime, const std::vector<Node*>& order) {
    for (Node* node : order) {
        if (runtime.sticky_error != 0) return;
        if (node->enabled) execute(runtime, node->operation);
    }
}

void run_free(Runtime& runtime, const FreeOp& operation) {
    if (const Allocation* allocation = runtime.memory().find(operation.address);
        allocation != nullptr && allocation->label == "graph memory")
        return;
    require(runtime.memory().release(operation.address) == FreeResult::kOk, kErrInvalidValue,
            "a graph frees an address that is not allocated");
}

struct Executor {
    Runtime& runtime;
    void operator()(const EmptyOp&) const {}
    void operator()(const KernelOp& op) const { run_kernel(runtime, op); }
    void operator()(const CopyOp& op) const { run_copy(runtime, op.params); }
    void operator()(const FillOp& op) const { run_fill(runtime, op.params, op.depth, op.slice_pitch); }
    void operator()(const HostOp& op) const { run_host_function(runtime, op); }
    void operator()(const RecordOp& op) const {
        op.event->recorded = true;
        op.event->captured = false;
        op.event->time = std::chrono::steady_clock::now();
    }
    void operator()(const WaitOp&) const {}  // everything enqueued before has run
    void operator()(const ChildOp& op) const { run_graph_nodes(runtime, op.graph->topological_order()); }
    void operator()(const AllocOp& op) const { op.memory->live = true; }
    void operator()(const FreeOp& op) const { run_free(runtime, op); }
};

struct TypeRow {
    int type;
    const char* name;
};
// In the order of the alternatives of Operation.
constexpr TypeRow kTypes[] = {
    {abi::kNodeEmpty, "empty"},          {abi::kNodeKernel, "kernel"},     {abi::kNodeMemcpy, "memcpy"},
    {abi::kNodeMemset, "memset"},        {abi::kNodeHost, "host"},         {abi::kNodeEventRecord, "event record"},
    {abi::kNodeWaitEvent, "event wait"}, {abi::kNodeGraph, "child graph"}, {abi::kNodeMemAlloc, "mem alloc"},
    {abi::kNodeMemFree, "mem free"}};
static_assert(std::size(kTypes) == std::variant_size_v<Operation>);

Operation copy_operation(Runtime& runtime, const Operation& operation) {
    Operation copy = operation;
    if (auto* child = std::get_if<ChildOp>(&copy)) {
        child->graph = child->graph->clone(runtime, nullptr);
        child->graph->has_child_parent = true;
    }
    if (auto* kernel = std::get_if<KernelOp>(&copy)) kernel->param_pointers.clear();
    return copy;
}

void begin_allocs(const Graph& graph, bool auto_free) {
    for (const auto& node : graph.nodes) {
        if (const auto* alloc = std::get_if<AllocOp>(&node->operation)) {
            if (alloc->memory->live && !auto_free)
                throw Failure{
                    kErrInvalidValue,
                    "the graph's memory of an earlier launch was not freed (cudaGraphInstantiateFlagAutoFreeOnLaunch would free it)"};
        }
    }
}

void end_frees(const Graph& graph) {
    for (const auto& node : graph.nodes) {
        const auto* release = std::get_if<FreeOp>(&node->operation);
        if (release == nullptr) continue;
        for (const auto& other : graph.nodes)
            if (const auto* alloc = std::get_if<AllocOp>(&other->operation); alloc != nullptr && alloc->memory->address == release->address)
                alloc->memory->live = false;
    }
}

}  // namespace

GraphMemory::~GraphMemory() {
    Runtime& runtime = Runtime::get();
    if (address != 0 && runtime.memory_if_made() != nullptr) runtime.memory_if_made()->release(address);
}

int node_type(const Operation& operation) { return kTypes[operation.index()].type; }
const char* node_type_name(const Operation& operation) { return kTypes[operation.index()].name; }

void execute(Runtime& runtime, const Operation& operation) { std::visit(Executor{runtime}, operation); }

Node::Node(Graph* owner, Operation what, uint64_t node_id) : graph(owner), operation(std::move(what)), id(node_id) {
    live_nodes().insert(this);
}
Node::~Node() { live_nodes().erase(this); }
bool Node::is_live(const void* handle) { return live_nodes().contains(handle); }

Graph::~Graph() {
    for (const auto& [object, count] : user_objects) {
        object->references -= std::min(object->references, count);
        if (object->references == 0) {
            object->destroy(object->pointer);
            delete object;
        }
    }
}

Node* Graph::add(Runtime& runtime, Operation operation, const std::vector<Node*>& dependencies) {
    for (const Node* each : dependencies) require(each->graph == this, kErrInvalidValue, "a dependency is a node of another graph");
    nodes.push_back(std::make_unique<Node>(this, std::move(operation), runtime.next_id()));
    Node* node = nodes.back().get();
    for (Node* each : dependencies) node->dependencies.push_back({each, {}});
    return node;
}

void Graph::add_edge(Node* from, Node* to, const abi::GraphEdgeData& data) {
    require(from->graph == this && to->graph == this && from != to, kErrInvalidValue, "an edge joins two different nodes of one graph");
    const bool known = std::any_of(to->dependencies.begin(), to->dependencies.end(), [&](const Edge& e) { return e.from == from; });
    require(!known, kErrInvalidValue, "the edge is already in the graph");
    to->dependencies.push_back({from, data});
}

std::vector<Node*> Graph::dependents(const Node* node) const {
    std::vector<Node*> found;
    for (const auto& each : nodes)
        for (const Edge& edge : each->dependencies)
            if (edge.from == node) found.push_back(each.get());
    return found;
}

std::shared_ptr<Graph> Graph::clone(Runtime& runtime, std::unordered_map<const Node*, Node*>* mapping) const {
    auto copy = std::make_shared<Graph>(runtime.next_id());
    std::unordered_map<const Node*, Node*> own;
    for (const auto& node : nodes) {
        Node* twin = copy->add(runtime, copy_operation(runtime, node->operation), {});
        twin->enabled = node->enabled;
        twin->cloned_from = node.get();
        own[node.get()] = twin;
    }
    for (const auto& node : nodes)
        for (const Edge& edge : node->dependencies) own[node.get()]->dependencies.push_back({own[edge.from], edge.data});
    for (const auto& [object, count] : user_objects) {
        copy->user_objects[object] = count;
        object->references += count;
    }
    if (mapping != nullptr) *mapping = std::move(own);
    return copy;
}

std::vector<Node*> Graph::topological_order() const {
    std::vector<Node*> order;
    std::unordered_set<const Node*> done;
    std::vector<Node*> waiting;
    for (const auto& node : nodes) waiting.push_back(node.get());
    while (!waiting.empty()) {
        std::vector<Node*> later;
        for (Node* node : waiting) {
            const bool ready =
                std::all_of(node->dependencies.begin(), node->dependencies.end(), [&](const Edge& e) { return done.contains(e.from); });
            if (ready) {
                done.insert(node);
                order.push_back(node);
            } else {
                later.push_back(node);
            }
        }
        require(later.size() < waiting.size(), kErrInvalidValue, "the graph has a cycle");
        waiting = std::move(later);
    }
    return order;
}

void launch_graph(Runtime& runtime, const std::shared_ptr<GraphExec>& exec) {
    begin_allocs(*exec->graph, (exec->flags & abi::kInstantiateAutoFree) != 0);
    const auto keep_alive = exec;
    run_graph_nodes(runtime, keep_alive->order);
    end_frees(*keep_alive->graph);
}

Stream& find_stream(Runtime& runtime, void* handle, bool per_thread) {
    constexpr uint64_t kLegacyHandle = 1, kPerThreadHandle = 2;
    const uint64_t value = to_address(handle);
    if (value == kLegacyHandle || (value == 0 && !per_thread)) return *runtime.legacy_stream;
    if (value == kPerThreadHandle || value == 0) {
        std::shared_ptr<Stream>& own = runtime.thread_streams[std::this_thread::get_id()];
        if (own == nullptr) {
            own = std::make_shared<Stream>();
            own->kind = Stream::Kind::kPerThread;
            own->id = runtime.next_id();
        }
        return *own;
    }
    const auto found = runtime.streams.find(handle);
    require(found != runtime.streams.end(), kErrInvalidResourceHandle, "the handle is no stream (or the stream was destroyed)");
    return *found->second;
}

std::shared_ptr<Event> find_event(Runtime& runtime, void* handle) {
    const auto found = runtime.events.find(handle);
    require(found != runtime.events.end(), kErrInvalidResourceHandle, "the handle is no event (or the event was destroyed)");
    return found->second;
}

std::shared_ptr<Graph> find_graph(Runtime& runtime, void* handle) {
    const auto found = runtime.graphs.find(handle);
    if (found != runtime.graphs.end()) return found->second;
    for (const auto& [key, graph] : runtime.graphs)  // a child graph, by the handle that cudaGraphChildGraphNodeGetGraph gave
        for (const auto& node : graph->nodes)
            if (const auto* child = std::get_if<ChildOp>(&node->operation); child != nullptr && child->graph.get() == handle)
                return child->graph;
    throw Failure{kErrInvalidValue, "the handle is no graph (or the graph was destroyed)"};
}

std::shared_ptr<GraphExec> find_graph_exec(Runtime& runtime, void* handle) {
    const auto found = runtime.graph_execs.find(handle);
    require(found != runtime.graph_execs.end(), kErrInvalidValue, "the handle is no executable graph (or it was destroyed)");
    return found->second;
}

Node* find_node(void* handle) {
    require(Node::is_live(handle), kErrInvalidValue, "the handle is no graph node (or it was destroyed)");
    return static_cast<Node*>(handle);
}

Node* submit(Runtime& runtime, Stream& stream, Operation operation) {
    if (stream.capture != nullptr) return capture_operation(runtime, stream, std::move(operation));
    forbid_implicit_dependency(runtime, stream);
    execute(runtime, operation);
    return nullptr;
}

}  // namespace aicf::emu

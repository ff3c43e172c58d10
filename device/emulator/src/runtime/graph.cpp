#include "graph.hpp"

#include <algorithm>
#include <unordered_set>

#include "../exec/launch/conditional.hpp"
#include "host_fault.hpp"
#include "host_watch.hpp"
#include "launch.hpp"
#include "memory_ops.hpp"
#include "pools.hpp"
#include "queue.hpp"
#include "touches.hpp"

namespace aicf::emu {
namespace {

std::unordered_set<const void*>& live_nodes() {
    static auto* nodes = new std::unordered_set<const void*>;
    return *nodes;
}

// The call that queued what runs now: in eager mode the current one.
std::string describe_launch_place(const std::string& kernel) {
    const HostPlace* queued_at = thread_state().queued_at;
    return describe_host_place(queued_at != nullptr ? *queued_at : capture_host_place(), kernel);
}

void run_kernel(Runtime& runtime, const KernelOp& operation) {
    // Module and limits are looked at again: a graph may be launched long after it was made.
    runtime.use_device(operation.device);
    runtime.registry->load(runtime, *operation.kernel);
    const Kernel& kernel = *operation.kernel;
    Launch launch;
    launch.program = &runtime.registry->load(runtime, *kernel.module, operation.device);
    launch.kernel = kernel.name;
    launch.grid = operation.grid;
    launch.block = operation.block;
    const Dim3& asked = operation.cluster.x != 0 ? operation.cluster : kernel.info->required_cluster;
    launch.has_cluster = asked.x != 0;
    launch.cluster = launch.has_cluster ? asked : Dim3{1, 1, 1};
    launch.dynamic_shared_bytes = operation.dynamic_shared_bytes;
    launch.params = operation.params;
    launch.cooperative = operation.cooperative;
    launch.primary = operation.primary;
    ExecOptions options = runtime.options;
    const std::shared_ptr<Work>& work = thread_state().current_work;
    const bool notes_footprint = work != nullptr && needs_footprints(runtime);
    if (notes_footprint) {
        runtime.memory().make_footprints();
        runtime.memory().footprints().take();  // of a launch that could not be made
    } else {
        options.checks &= ~static_cast<uint32_t>(kStreamcheck);
    }
    LaunchResult result = run(launch, runtime.memory(), options);
    if (notes_footprint) note_footprint(runtime, work, runtime.memory().footprints().take());
    runtime.last_race_launch = result.race_launch;
    runtime.limited_instructions += result.instructions;
    runtime.limited_matrix_work += result.matrix_work;
    std::string text;
    bool is_interrupted = false;
    for (Report& report : result.reports) {
        is_interrupted |= report.kind == "interrupted";
        report.launched_at = describe_launch_place(kernel.name);
        if (!report.launched_at.empty()) report.text += "    launched by " + report.launched_at + "\n";
        if (text.empty() && report.severity == Severity::kError) text = report.text;
        runtime.add_report(std::move(report));
    }
    end_if_interrupted(kernel.name, is_interrupted);
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
    const HostFunctionScope scope;
    run_unlocked(runtime, [&] {
        if (operation.is_stream_callback)
            reinterpret_cast<StreamCallback>(reinterpret_cast<void*>(operation.function))(operation.stream, kNoError, operation.user_data);
        else
            operation.function(operation.user_data);
    });
    const std::shared_ptr<Work>& work = thread_state().current_work;
    // The function may have told the rest of the host.
    if (work != nullptr) host_waited_for(runtime, work->clock);
}

void run_graph_nodes(Runtime& runtime, const std::vector<Node*>& order) {
    for (Node* node : order) {
        if (runtime.sticky_error != 0) return;
        if (node->enabled) execute(runtime, node->operation);
    }
}

void run_conditional(Runtime& runtime, const ConditionalOp& operation) {
    const uint64_t handle = operation.handle->id;
    const auto run_body = [&](size_t index) { run_graph_nodes(runtime, execution_order(runtime, *operation.bodies[index])); };
    switch (operation.type) {
        case abi::kConditionalIf:
            if (conditional_value(handle) != 0)
                run_body(0);
            else if (operation.bodies.size() == 2)
                run_body(1);
            break;
        case abi::kConditionalWhile:
            while (conditional_value(handle) != 0 && runtime.sticky_error == 0) run_body(0);
            break;
        default:
            if (const uint32_t value = conditional_value(handle); value < operation.bodies.size()) run_body(value);
    }
}

std::shared_ptr<Graph> find_inner_graph(const Graph& graph, const void* handle) {
    for (const auto& inner : graph.inner_graphs()) {
        if (inner.get() == handle) return inner;
        if (auto found = find_inner_graph(*inner, handle)) return found;
    }
    return nullptr;
}

std::shared_ptr<ConditionalHandle> find_conditional(const Graph& graph, uint64_t id) {
    for (const auto& handle : graph.conditionals)
        if (handle->id == id) return handle;
    for (const auto& inner : graph.inner_graphs())
        if (auto found = find_conditional(*inner, id)) return found;
    return nullptr;
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
    void operator()(const ChildOp& op) const { run_graph_nodes(runtime, execution_order(runtime, *op.graph)); }
    void operator()(const AllocOp& op) const { run_alloc(runtime, op); }
    void operator()(const FreeOp& op) const { end_release(runtime, op.address); }
    void operator()(const ConditionalOp& op) const { run_conditional(runtime, op); }
};

struct TypeRow {
    int type;
    const char* name;
};
// In the order of the alternatives of Operation.
constexpr TypeRow kTypes[] = {{abi::kNodeEmpty, "empty"},
                              {abi::kNodeKernel, "kernel"},
                              {abi::kNodeMemcpy, "memcpy"},
                              {abi::kNodeMemset, "memset"},
                              {abi::kNodeHost, "host"},
                              {abi::kNodeEventRecord, "event record"},
                              {abi::kNodeWaitEvent, "event wait"},
                              {abi::kNodeGraph, "child graph"},
                              {abi::kNodeMemAlloc, "mem alloc"},
                              {abi::kNodeMemFree, "mem free"},
                              {abi::kNodeConditional, "conditional"}};
static_assert(std::size(kTypes) == std::variant_size_v<Operation>);

Operation copy_operation(Runtime& runtime, const Operation& operation, std::unordered_map<const Node*, Node*>* mapping) {
    Operation copy = operation;
    if (auto* child = std::get_if<ChildOp>(&copy)) {
        child->graph = child->graph->clone(runtime, mapping);
        child->graph->has_child_parent = true;
    }
    if (auto* conditional = std::get_if<ConditionalOp>(&copy)) {
        for (std::shared_ptr<Graph>& body : conditional->bodies) {
            body = body->clone(runtime, mapping);
            body->has_child_parent = body->is_body = true;
        }
        conditional->body_handles.reset();
    }
    if (auto* kernel = std::get_if<KernelOp>(&copy)) kernel->param_pointers.clear();
    return copy;
}

}  // namespace

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

ConditionalHandle::ConditionalHandle(uint32_t value, bool assigns)
    : id(add_conditional(value)), default_value(value), assigns_default(assigns) {}
ConditionalHandle::~ConditionalHandle() { remove_conditional(id); }

bool Graph::is_unique() const {
    const auto is_one_only = [](const auto& node) {
        return std::holds_alternative<ConditionalOp>(node->operation) || std::holds_alternative<AllocOp>(node->operation) ||
               std::holds_alternative<FreeOp>(node->operation);
    };
    if (std::any_of(nodes.begin(), nodes.end(), is_one_only)) return true;
    const auto inner = inner_graphs();
    return std::any_of(inner.begin(), inner.end(), [](const auto& each) { return each->is_unique(); });
}

std::vector<std::shared_ptr<Graph>> Graph::inner_graphs() const {
    std::vector<std::shared_ptr<Graph>> found;
    for (const auto& node : nodes) {
        if (const auto* child = std::get_if<ChildOp>(&node->operation)) found.push_back(child->graph);
        if (const auto* conditional = std::get_if<ConditionalOp>(&node->operation))
            found.insert(found.end(), conditional->bodies.begin(), conditional->bodies.end());
    }
    return found;
}

Node* Graph::add(Runtime& runtime, Operation operation, const std::vector<Node*>& dependencies) {
    for (const Node* each : dependencies) require(each->graph == this, kErrInvalidValue, "a dependency is a node of another graph");
    nodes.push_back(std::make_unique<Node>(this, std::move(operation), runtime.next_id()));
    Node* node = nodes.back().get();
    node->site = current_site(runtime);
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
        Node* twin = copy->add(runtime, copy_operation(runtime, node->operation, mapping), {});
        twin->enabled = node->enabled;
        twin->cloned_from = node.get();
        twin->site = node->site;
        own[node.get()] = twin;
    }
    for (const auto& node : nodes)
        for (const Edge& edge : node->dependencies) own[node.get()]->dependencies.push_back({own[edge.from], edge.data});
    for (const auto& [object, count] : user_objects) {
        copy->user_objects[object] = count;
        object->references += count;
    }
    copy->conditionals = conditionals;
    if (mapping != nullptr) mapping->insert(own.begin(), own.end());
    return copy;
}

std::vector<Node*> Graph::topological_order(const std::function<size_t(size_t)>& pick) const {
    std::vector<Node*> order, waiting;
    std::unordered_set<const Node*> done;
    for (const auto& node : nodes) waiting.push_back(node.get());
    const auto is_ready = [&](const Node* node) {
        return std::all_of(node->dependencies.begin(), node->dependencies.end(),
                           [&](const Edge& edge) { return done.contains(edge.from); });
    };
    while (!waiting.empty()) {
        std::vector<Node*> ready;
        std::copy_if(waiting.begin(), waiting.end(), std::back_inserter(ready), is_ready);
        require(!ready.empty(), kErrInvalidValue, "the graph has a cycle");
        if (pick) ready = {ready[pick(ready.size())]};
        for (Node* node : ready) {
            done.insert(node);
            order.push_back(node);
        }
        std::erase_if(waiting, [&](const Node* node) { return done.contains(node); });
    }
    return order;
}

void begin_graph(const Graph& graph) {
    for (const auto& handle : graph.conditionals)
        if (handle->assigns_default) set_conditional(handle->id, handle->default_value);
    for (const auto& inner : graph.inner_graphs()) begin_graph(*inner);
}

Stream& find_stream(Runtime& runtime, void* handle, bool per_thread) {
    constexpr uint64_t kLegacyHandle = 1, kPerThreadHandle = 2;
    const uint64_t value = to_address(handle);
    Device& device = runtime.devices[static_cast<size_t>(thread_state().device)];
    if (value == kLegacyHandle || (value == 0 && !per_thread)) return *device.legacy_stream;
    if (value == kPerThreadHandle || value == 0) {
        std::shared_ptr<Stream>& own = device.thread_streams[std::this_thread::get_id()];
        if (own == nullptr) {
            own = std::make_shared<Stream>();
            own->kind = Stream::Kind::kPerThread;
            own->device = thread_state().device;
            own->id = runtime.next_id();
        }
        return *own;
    }
    const auto found = runtime.streams.find(handle);
    if (found == runtime.streams.end()) runtime.note_if_destroyed(handle);
    require(found != runtime.streams.end(), kErrInvalidResourceHandle, "the handle is no stream (or the stream was destroyed)");
    return *found->second;
}

std::shared_ptr<Event> find_event(Runtime& runtime, void* handle) {
    const auto found = runtime.events.find(handle);
    if (found == runtime.events.end()) runtime.note_if_destroyed(handle);
    require(found != runtime.events.end(), kErrInvalidResourceHandle, "the handle is no event (or the event was destroyed)");
    return found->second;
}

std::shared_ptr<Graph> find_graph(Runtime& runtime, void* handle) {
    const auto found = runtime.graphs.find(handle);
    if (found != runtime.graphs.end()) return found->second;
    for (const auto& [key, graph] : runtime.graphs)  // a child graph or a body, by the handle that its node gave
        if (auto inner = find_inner_graph(*graph, handle)) return inner;
    runtime.note_if_destroyed(handle);
    throw Failure{kErrInvalidValue, "the handle is no graph (or the graph was destroyed)"};
}

std::shared_ptr<GraphExec> find_graph_exec(Runtime& runtime, void* handle) {
    const auto found = runtime.graph_execs.find(handle);
    if (found == runtime.graph_execs.end()) runtime.note_if_destroyed(handle);
    require(found != runtime.graph_execs.end(), kErrInvalidValue, "the handle is no executable graph (or it was destroyed)");
    return found->second;
}

std::shared_ptr<ConditionalHandle> find_conditional(Runtime& runtime, uint64_t handle) {
    for (const auto& [key, graph] : runtime.graphs)
        if (auto found = find_conditional(*graph, handle)) return found;
    throw Failure{kErrInvalidValue, "the handle is not that of a conditional value (or its graph was destroyed)"};
}

Node* find_node(void* handle) {
    require(Node::is_live(handle), kErrInvalidValue, "the handle is no graph node (or it was destroyed)");
    return static_cast<Node*>(handle);
}

Node* submit(Runtime& runtime, Stream& stream, Operation operation) {
    if (stream.capture != nullptr) return capture_operation(runtime, stream, std::move(operation));
    forbid_implicit_dependency(runtime, stream);
    enqueue(runtime, stream, std::move(operation));
    return nullptr;
}

}  // namespace aicf::emu

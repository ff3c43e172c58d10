// Graphs: making and changing them, reading them, instantiating, updating and launching them.
#include <algorithm>
#include <cstring>
#include <fstream>

#include "launch.hpp"
#include "memory_ops.hpp"

using namespace aicf::emu;

namespace {

std::vector<Node*> read_nodes(void* const* handles, size_t count) {
    require(count == 0 || handles != nullptr, kErrInvalidValue, "the list of dependencies is null");
    std::vector<Node*> nodes;
    for (size_t i = 0; i < count; ++i) nodes.push_back(find_node(handles[i]));
    return nodes;
}

void add_node(Runtime& runtime, void** out, void* graph, void* const* dependencies, size_t count, Operation operation) {
    require(out != nullptr, kErrInvalidValue, "the result pointer is null");
    *out = find_graph(runtime, graph)->add(runtime, std::move(operation), read_nodes(dependencies, count));
}

// The operation of a node, which must be of the wanted kind.
template <class Op>
Op& operation_of(void* handle) {
    auto* operation = std::get_if<Op>(&find_node(handle)->operation);
    if (operation == nullptr) throw Failure{kErrInvalidValue, std::string("the node is a ") + node_type_name(find_node(handle)->operation) + " node"};
    return *operation;
}

// The same node in an executable graph.
template <class Op>
Op& operation_in(Runtime& runtime, void* exec, void* handle) {
    const auto graph = find_graph_exec(runtime, exec);
    const auto found = graph->by_original.find(find_node(handle));
    require(found != graph->by_original.end(), kErrInvalidValue, "the node is not of the graph that was instantiated");
    auto* operation = std::get_if<Op>(&found->second->operation);
    require(operation != nullptr, kErrInvalidValue, "the node is of another kind");
    return *operation;
}

KernelOp read_kernel(Runtime& runtime, const abi::KernelNodeParams* params) {
    require(params != nullptr, kErrInvalidValue, "the parameters are null");
    require(params->extra == nullptr, kErrNotSupported, "kernel parameters by `extra` are not supported; use kernelParams");
    KernelOp operation = make_launch(runtime, require_kernel(runtime, params->func), params->gridDim, params->blockDim, params->kernelParams, params->sharedMemBytes);
    check_launch(runtime, operation);
    return operation;
}

void write_kernel(KernelOp& operation, abi::KernelNodeParams* out) {
    require(out != nullptr, kErrInvalidValue, "the result pointer is null");
    const Kernel& kernel = *operation.kernel;
    operation.param_pointers.clear();
    for (const ParamInfo& param : kernel.info->params) operation.param_pointers.push_back(operation.params.data() + param.offset);
    out->func = kernel.host_function != nullptr ? const_cast<void*>(kernel.host_function) : operation.kernel.get();
    out->gridDim = operation.grid;
    out->blockDim = operation.block;
    out->sharedMemBytes = operation.dynamic_shared_bytes;
    out->kernelParams = operation.param_pointers.data();
    out->extra = nullptr;
}

CopyOp read_copy(Runtime& runtime, const abi::Memcpy3DParms* params) {
    require(params != nullptr, kErrInvalidValue, "the parameters are null");
    check_copy(runtime, *params);
    return {*params};
}

CopyOp read_linear(Runtime& runtime, void* dst, const void* src, size_t count, int kind) {
    const auto params = linear_copy(dst, src, count, kind);
    return read_copy(runtime, &params);
}

CopyOp read_symbol(Runtime& runtime, void* dst, const void* src, const void* symbol, size_t count, size_t offset, int kind) {
    const DeviceVariable* variable = runtime.registry->find_variable(symbol);
    require(variable != nullptr, kErrInvalidSymbol, "the symbol is no registered device variable");
    const VariableInfo& info = runtime.registry->resolve(runtime, *variable);
    require(offset <= info.size_bytes && count <= info.size_bytes - offset, kErrInvalidValue, "the range is not within the variable");
    auto* place = reinterpret_cast<void*>(info.address + offset);
    return read_linear(runtime, dst == nullptr ? place : dst, dst == nullptr ? src : place, count, kind);
}

FillOp read_fill(Runtime& runtime, const abi::MemsetParams* params) {
    require(params != nullptr, kErrInvalidValue, "the parameters are null");
    check_fill(runtime, *params, 1, 0);
    return {*params, 1, 0};
}

HostOp read_host(const abi::HostNodeParams* params) {
    require(params != nullptr && params->fn != nullptr, kErrInvalidValue, "the parameters or the function are null");
    return {params->fn, params->userData, nullptr, false};
}

ChildOp read_child(Runtime& runtime, void* graph) {
    ChildOp operation{find_graph(runtime, graph)->clone(runtime, nullptr)};
    operation.graph->has_child_parent = true;
    return operation;
}

AllocOp make_alloc(Runtime& runtime, abi::MemAllocNodeParams* params) {
    require(params != nullptr && params->bytesize != 0, kErrInvalidValue, "the parameters are null or ask for 0 bytes");
    AllocOp operation;
    operation.memory = std::make_shared<GraphMemory>();
    operation.memory->address = runtime.memory().allocate(params->bytesize, MemoryKind::kAsync, "graph memory");
    require(operation.memory->address != 0, kErrMemoryAllocation, "the device's memory is full");
    operation.memory->size_bytes = params->bytesize;
    params->dptr = reinterpret_cast<void*>(operation.memory->address);
    operation.params = *params;
    return operation;
}

// The operation that a cudaGraphNodeParams describes.
Operation read_any(Runtime& runtime, abi::GraphNodeParams* params) {
    require(params != nullptr, kErrInvalidValue, "the parameters are null");
    switch (params->type) {
        case abi::kNodeKernel: return read_kernel(runtime, &params->kernel);
        case abi::kNodeMemcpy: return read_copy(runtime, &params->memcpy.copyParams);
        case abi::kNodeMemset: return read_fill(runtime, &params->memset);
        case abi::kNodeHost: return read_host(&params->host);
        case abi::kNodeGraph: return read_child(runtime, params->graph.graph);
        case abi::kNodeEmpty: return EmptyOp{};
        case abi::kNodeWaitEvent: return WaitOp{find_event(runtime, params->eventWait)};
        case abi::kNodeEventRecord: return RecordOp{find_event(runtime, params->eventRecord)};
        case abi::kNodeMemAlloc: return make_alloc(runtime, &params->alloc);
        case abi::kNodeMemFree: return FreeOp{to_address(params->free)};
        default: throw Failure{kErrNotSupported, "graph nodes of type " + std::to_string(params->type) + " are not supported by the emulated device"};
    }
}

void instantiate(Runtime& runtime, void** out, void* graph, unsigned long long flags) {
    require(out != nullptr, kErrInvalidValue, "the result pointer is null");
    require(flags <= 15, kErrInvalidValue, "unknown instantiation flags");
    require((flags & abi::kInstantiateDeviceLaunch) == 0, kErrNotSupported, "graphs that device code launches are not supported by the emulated device");
    const auto source = find_graph(runtime, graph);
    auto exec = std::make_shared<GraphExec>();
    exec->graph = source->clone(runtime, &exec->by_original);
    exec->order = exec->graph->topological_order();
    exec->flags = flags;
    *out = exec.get();
    runtime.graph_execs[exec.get()] = std::move(exec);
}

int instantiate(const char* function, void** out, void* graph, unsigned long long flags) {
    return api(function, [&](Runtime& runtime) {
        forbid_during_capture(runtime, function);
        instantiate(runtime, out, graph, flags);
    });
}

// CUDA's rule for lists: with a null array the count is asked for; else at most that many are written and the rest is filled with null.
void write_nodes(const std::vector<Node*>& nodes, void** out, size_t* count) {
    require(count != nullptr, kErrInvalidValue, "the count pointer is null");
    if (out == nullptr) {
        *count = nodes.size();
        return;
    }
    for (size_t i = 0; i < *count; ++i) out[i] = i < nodes.size() ? nodes[i] : nullptr;
    *count = std::min(*count, nodes.size());
}

// Whether an executable graph's node can take the operation of the same node in a changed graph; abi::GraphUpdateResult.
int compare_for_update(const Operation& now, const Operation& wanted) {
    if (now.index() != wanted.index()) return abi::kUpdateNodeTypeChanged;
    if (const auto* copy = std::get_if<CopyOp>(&now)) {
        if (copy->params.kind != std::get<CopyOp>(wanted).params.kind) return abi::kUpdateParametersChanged;
    }
    if (std::holds_alternative<AllocOp>(now) || std::holds_alternative<FreeOp>(now)) return abi::kUpdateNotSupported;
    return abi::kUpdateSuccess;
}

struct UpdateProblem {
    int result = abi::kUpdateSuccess;
    Node* node = nullptr;
};

UpdateProblem find_update_problem(const GraphExec& exec, const Graph& wanted) {
    const auto& own = exec.graph->nodes;
    if (own.size() != wanted.nodes.size()) return {abi::kUpdateTopologyChanged, wanted.nodes.empty() ? nullptr : wanted.nodes.back().get()};
    std::unordered_map<const Node*, size_t> index;
    for (size_t i = 0; i < own.size(); ++i) index[own[i].get()] = i, index[wanted.nodes[i].get()] = i;
    for (size_t i = 0; i < own.size(); ++i) {
        Node* node = wanted.nodes[i].get();
        const auto positions = [&](const Node& of) {
            std::vector<size_t> found;
            for (const Edge& edge : of.dependencies) found.push_back(index[edge.from]);
            std::sort(found.begin(), found.end());
            return found;
        };
        if (positions(*own[i]) != positions(*node)) return {abi::kUpdateTopologyChanged, node};
        if (const int result = compare_for_update(own[i]->operation, node->operation); result != abi::kUpdateSuccess) return {result, node};
    }
    return {};
}

std::string dot_label(const Node& node) {
    std::string label = std::to_string(node.id) + "\\n" + node_type_name(node.operation);
    if (const auto* kernel = std::get_if<KernelOp>(&node.operation))
        label += "\\n" + kernel->kernel->name + "\\n" + to_text(kernel->grid) + " x " + to_text(kernel->block);
    if (const auto* copy = std::get_if<CopyOp>(&node.operation))
        label += "\\n" + hex(to_address(copy->params.dstPtr.ptr)) + " <- " + hex(to_address(copy->params.srcPtr.ptr)) + ", " +
                 std::to_string(copy->params.extent.width * copy->params.extent.height * copy->params.extent.depth) + " bytes";
    if (const auto* fill = std::get_if<FillOp>(&node.operation)) label += "\\n" + hex(to_address(fill->params.dst)) + " = " + std::to_string(fill->params.value);
    return label;
}

}  // namespace

// Graphs and nodes.

AICF_API cudaGraphCreate(void** out, unsigned flags) {
    return api("cudaGraphCreate", [&](Runtime& runtime) {
        require(out != nullptr && flags == 0, kErrInvalidValue, "a null result pointer, or flags that are not 0");
        auto graph = std::make_shared<Graph>(runtime.next_id());
        *out = graph.get();
        runtime.graphs[graph.get()] = std::move(graph);
    });
}

AICF_API cudaGraphDestroy(void* graph) {
    return api("cudaGraphDestroy", [&](Runtime& runtime) {
        require(runtime.graphs.contains(graph), kErrInvalidValue, "the handle is no graph of the user's (or it was destroyed)");
        runtime.graphs.erase(graph);
    });
}

AICF_API cudaGraphClone(void** out, void* graph) {
    return api("cudaGraphClone", [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        auto copy = find_graph(runtime, graph)->clone(runtime, nullptr);
        *out = copy.get();
        runtime.graphs[copy.get()] = std::move(copy);
    });
}

AICF_API cudaGraphNodeFindInClone(void** out, void* original, void* clone) {
    return api("cudaGraphNodeFindInClone", [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        const auto& nodes = find_graph(runtime, clone)->nodes;
        const auto found = std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) { return node->cloned_from == original; });
        require(found != nodes.end(), kErrInvalidValue, "the graph is no clone that has this node");
        *out = found->get();
    });
}

AICF_API cudaGraphAddKernelNode(void** out, void* graph, void* const* dependencies, size_t count, const abi::KernelNodeParams* params) {
    return api("cudaGraphAddKernelNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_kernel(runtime, params)); });
}

AICF_API cudaGraphAddMemcpyNode(void** out, void* graph, void* const* dependencies, size_t count, const abi::Memcpy3DParms* params) {
    return api("cudaGraphAddMemcpyNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_copy(runtime, params)); });
}

AICF_API cudaGraphAddMemcpyNode1D(void** out, void* graph, void* const* dependencies, size_t count, void* dst, const void* src, size_t bytes, int kind) {
    return api("cudaGraphAddMemcpyNode1D", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_linear(runtime, dst, src, bytes, kind)); });
}

AICF_API cudaGraphAddMemcpyNodeToSymbol(void** out, void* graph, void* const* dependencies, size_t count, const void* symbol, const void* src, size_t bytes, size_t offset,
                                        int kind) {
    return api("cudaGraphAddMemcpyNodeToSymbol",
               [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_symbol(runtime, nullptr, src, symbol, bytes, offset, kind)); });
}

AICF_API cudaGraphAddMemcpyNodeFromSymbol(void** out, void* graph, void* const* dependencies, size_t count, void* dst, const void* symbol, size_t bytes, size_t offset,
                                          int kind) {
    return api("cudaGraphAddMemcpyNodeFromSymbol", [&](Runtime& runtime) {
        require(dst != nullptr, kErrInvalidValue, "the destination is null");
        add_node(runtime, out, graph, dependencies, count, read_symbol(runtime, dst, nullptr, symbol, bytes, offset, kind));
    });
}

AICF_API cudaGraphAddMemsetNode(void** out, void* graph, void* const* dependencies, size_t count, const abi::MemsetParams* params) {
    return api("cudaGraphAddMemsetNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_fill(runtime, params)); });
}

AICF_API cudaGraphAddHostNode(void** out, void* graph, void* const* dependencies, size_t count, const abi::HostNodeParams* params) {
    return api("cudaGraphAddHostNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_host(params)); });
}

AICF_API cudaGraphAddChildGraphNode(void** out, void* graph, void* const* dependencies, size_t count, void* child) {
    return api("cudaGraphAddChildGraphNode", [&](Runtime& runtime) {
        require(graph != child, kErrInvalidValue, "a graph cannot be its own child");
        add_node(runtime, out, graph, dependencies, count, read_child(runtime, child));
    });
}

AICF_API cudaGraphAddEmptyNode(void** out, void* graph, void* const* dependencies, size_t count) {
    return api("cudaGraphAddEmptyNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, EmptyOp{}); });
}

AICF_API cudaGraphAddEventRecordNode(void** out, void* graph, void* const* dependencies, size_t count, void* event) {
    return api("cudaGraphAddEventRecordNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, RecordOp{find_event(runtime, event)}); });
}

AICF_API cudaGraphAddEventWaitNode(void** out, void* graph, void* const* dependencies, size_t count, void* event) {
    return api("cudaGraphAddEventWaitNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, WaitOp{find_event(runtime, event)}); });
}

AICF_API cudaGraphAddMemAllocNode(void** out, void* graph, void* const* dependencies, size_t count, abi::MemAllocNodeParams* params) {
    return api("cudaGraphAddMemAllocNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, make_alloc(runtime, params)); });
}

AICF_API cudaGraphAddMemFreeNode(void** out, void* graph, void* const* dependencies, size_t count, void* pointer) {
    return api("cudaGraphAddMemFreeNode", [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, FreeOp{to_address(pointer)}); });
}

AICF_API cudaGraphAddNode(void** out, void* graph, void* const* dependencies, const abi::GraphEdgeData* data, size_t count, abi::GraphNodeParams* params) {
    return api("cudaGraphAddNode", [&](Runtime& runtime) {
        add_node(runtime, out, graph, dependencies, count, read_any(runtime, params));
        for (size_t i = 0; data != nullptr && i < count; ++i) static_cast<Node*>(*out)->dependencies[i].data = data[i];
    });
}

AICF_API cudaGraphNodeSetParams(void* node, abi::GraphNodeParams* params) {
    return api("cudaGraphNodeSetParams", [&](Runtime& runtime) {
        Node* target = find_node(node);
        require(params != nullptr && params->type == node_type(target->operation), kErrInvalidValue, "the parameters are of another kind of node");
        target->operation = read_any(runtime, params);
    });
}

AICF_API cudaGraphExecNodeSetParams(void* exec, void* node, abi::GraphNodeParams* params) {
    return api("cudaGraphExecNodeSetParams", [&](Runtime& runtime) {
        const auto graph = find_graph_exec(runtime, exec);
        const auto found = graph->by_original.find(find_node(node));
        require(found != graph->by_original.end(), kErrInvalidValue, "the node is not of the graph that was instantiated");
        require(params != nullptr && params->type == node_type(found->second->operation), kErrInvalidValue, "the parameters are of another kind of node");
        found->second->operation = read_any(runtime, params);
    });
}

AICF_API cudaGraphDestroyNode(void* node) {
    return api("cudaGraphDestroyNode", [&](Runtime&) {
        Node* target = find_node(node);
        Graph* graph = target->graph;
        for (const auto& each : graph->nodes) std::erase_if(each->dependencies, [&](const Edge& edge) { return edge.from == target; });
        std::erase_if(graph->nodes, [&](const auto& each) { return each.get() == target; });
    });
}

// Edges and lists.

AICF_API cudaGraphAddDependencies(void* graph, void* const* from, void* const* to, const abi::GraphEdgeData* data, size_t count) {
    return api("cudaGraphAddDependencies", [&](Runtime& runtime) {
        const auto target = find_graph(runtime, graph);
        require(count == 0 || (from != nullptr && to != nullptr), kErrInvalidValue, "a list of nodes is null");
        for (size_t i = 0; i < count; ++i) target->add_edge(find_node(from[i]), find_node(to[i]), data == nullptr ? abi::GraphEdgeData{} : data[i]);
    });
}

AICF_API cudaGraphRemoveDependencies(void* graph, void* const* from, void* const* to, const abi::GraphEdgeData*, size_t count) {
    return api("cudaGraphRemoveDependencies", [&](Runtime& runtime) {
        find_graph(runtime, graph);
        require(count == 0 || (from != nullptr && to != nullptr), kErrInvalidValue, "a list of nodes is null");
        for (size_t i = 0; i < count; ++i) {
            const Node* source = find_node(from[i]);
            const size_t removed = std::erase_if(find_node(to[i])->dependencies, [&](const Edge& edge) { return edge.from == source; });
            require(removed == 1, kErrInvalidValue, "the graph has no such edge");
        }
    });
}

AICF_API cudaGraphGetNodes(void* graph, void** nodes, size_t* count) {
    return api("cudaGraphGetNodes", [&](Runtime& runtime) {
        std::vector<Node*> all;
        for (const auto& node : find_graph(runtime, graph)->nodes) all.push_back(node.get());
        write_nodes(all, nodes, count);
    });
}

AICF_API cudaGraphGetRootNodes(void* graph, void** nodes, size_t* count) {
    return api("cudaGraphGetRootNodes", [&](Runtime& runtime) {
        std::vector<Node*> roots;
        for (const auto& node : find_graph(runtime, graph)->nodes)
            if (node->dependencies.empty()) roots.push_back(node.get());
        write_nodes(roots, nodes, count);
    });
}

AICF_API cudaGraphGetEdges(void* graph, void** from, void** to, abi::GraphEdgeData* data, size_t* count) {
    return api("cudaGraphGetEdges", [&](Runtime& runtime) {
        require(count != nullptr && (from == nullptr) == (to == nullptr), kErrInvalidValue, "the count, or one of the two lists, is null");
        size_t index = 0;
        for (const auto& node : find_graph(runtime, graph)->nodes) {
            for (const Edge& edge : node->dependencies) {
                if (from != nullptr && index < *count) {
                    from[index] = edge.from;
                    to[index] = node.get();
                    if (data != nullptr) data[index] = edge.data;
                }
                ++index;
            }
        }
        *count = from == nullptr ? index : std::min(*count, index);
    });
}

AICF_API cudaGraphNodeGetDependencies(void* node, void** nodes, abi::GraphEdgeData* data, size_t* count) {
    return api("cudaGraphNodeGetDependencies", [&](Runtime&) {
        const Node* target = find_node(node);
        std::vector<Node*> from;
        for (const Edge& edge : target->dependencies) from.push_back(edge.from);
        if (data != nullptr && nodes != nullptr && count != nullptr)
            for (size_t i = 0; i < std::min(*count, from.size()); ++i) data[i] = target->dependencies[i].data;
        write_nodes(from, nodes, count);
    });
}

AICF_API cudaGraphNodeGetDependentNodes(void* node, void** nodes, abi::GraphEdgeData* data, size_t* count) {
    return api("cudaGraphNodeGetDependentNodes", [&](Runtime&) {
        const Node* source = find_node(node);
        const std::vector<Node*> to = source->graph->dependents(source);
        if (data != nullptr && nodes != nullptr && count != nullptr) {
            for (size_t i = 0; i < std::min(*count, to.size()); ++i) {
                const auto edge = std::find_if(to[i]->dependencies.begin(), to[i]->dependencies.end(), [&](const Edge& e) { return e.from == source; });
                data[i] = edge->data;
            }
        }
        write_nodes(to, nodes, count);
    });
}

AICF_API cudaGraphNodeGetType(void* node, int* type) {
    return api("cudaGraphNodeGetType", [&](Runtime&) {
        require(type != nullptr, kErrInvalidValue, "the result pointer is null");
        *type = node_type(find_node(node)->operation);
    });
}

// Parameters of nodes.

AICF_API cudaGraphKernelNodeGetParams(void* node, abi::KernelNodeParams* params) {
    return api("cudaGraphKernelNodeGetParams", [&](Runtime& runtime) {
        KernelOp& operation = operation_of<KernelOp>(node);
        runtime.registry->load(runtime, *operation.kernel);
        write_kernel(operation, params);
    });
}

AICF_API cudaGraphKernelNodeSetParams(void* node, const abi::KernelNodeParams* params) {
    return api("cudaGraphKernelNodeSetParams", [&](Runtime& runtime) { operation_of<KernelOp>(node) = read_kernel(runtime, params); });
}

AICF_API cudaGraphKernelNodeGetAttribute(void* node, int id, abi::LaunchAttributeValue* value) {
    return api("cudaGraphKernelNodeGetAttribute", [&](Runtime&) {
        require(value != nullptr, kErrInvalidValue, "the result pointer is null");
        const KernelOp& operation = operation_of<KernelOp>(node);
        const auto found = operation.attributes.find(id);
        *value = found == operation.attributes.end() ? abi::LaunchAttributeValue{} : found->second;
    });
}

AICF_API cudaGraphKernelNodeSetAttribute(void* node, int id, const abi::LaunchAttributeValue* value) {
    return api("cudaGraphKernelNodeSetAttribute", [&](Runtime&) {
        require(value != nullptr, kErrInvalidValue, "the value is null");
        apply_attribute(operation_of<KernelOp>(node), id, *value);
    });
}

AICF_API cudaGraphKernelNodeCopyAttributes(void* dst, void* src) {
    return api("cudaGraphKernelNodeCopyAttributes", [&](Runtime&) {
        KernelOp& target = operation_of<KernelOp>(dst);
        for (const auto& [id, value] : operation_of<KernelOp>(src).attributes) apply_attribute(target, id, value);
    });
}

AICF_API cudaGraphMemcpyNodeGetParams(void* node, abi::Memcpy3DParms* params) {
    return api("cudaGraphMemcpyNodeGetParams", [&](Runtime&) {
        require(params != nullptr, kErrInvalidValue, "the result pointer is null");
        *params = operation_of<CopyOp>(node).params;
    });
}

AICF_API cudaGraphMemcpyNodeSetParams(void* node, const abi::Memcpy3DParms* params) {
    return api("cudaGraphMemcpyNodeSetParams", [&](Runtime& runtime) { operation_of<CopyOp>(node) = read_copy(runtime, params); });
}

AICF_API cudaGraphMemcpyNodeSetParams1D(void* node, void* dst, const void* src, size_t bytes, int kind) {
    return api("cudaGraphMemcpyNodeSetParams1D", [&](Runtime& runtime) { operation_of<CopyOp>(node) = read_linear(runtime, dst, src, bytes, kind); });
}

AICF_API cudaGraphMemcpyNodeSetParamsToSymbol(void* node, const void* symbol, const void* src, size_t bytes, size_t offset, int kind) {
    return api("cudaGraphMemcpyNodeSetParamsToSymbol",
               [&](Runtime& runtime) { operation_of<CopyOp>(node) = read_symbol(runtime, nullptr, src, symbol, bytes, offset, kind); });
}

AICF_API cudaGraphMemcpyNodeSetParamsFromSymbol(void* node, void* dst, const void* symbol, size_t bytes, size_t offset, int kind) {
    return api("cudaGraphMemcpyNodeSetParamsFromSymbol",
               [&](Runtime& runtime) { operation_of<CopyOp>(node) = read_symbol(runtime, dst, nullptr, symbol, bytes, offset, kind); });
}

AICF_API cudaGraphMemsetNodeGetParams(void* node, abi::MemsetParams* params) {
    return api("cudaGraphMemsetNodeGetParams", [&](Runtime&) {
        require(params != nullptr, kErrInvalidValue, "the result pointer is null");
        *params = operation_of<FillOp>(node).params;
    });
}

AICF_API cudaGraphMemsetNodeSetParams(void* node, const abi::MemsetParams* params) {
    return api("cudaGraphMemsetNodeSetParams", [&](Runtime& runtime) { operation_of<FillOp>(node) = read_fill(runtime, params); });
}

AICF_API cudaGraphHostNodeGetParams(void* node, abi::HostNodeParams* params) {
    return api("cudaGraphHostNodeGetParams", [&](Runtime&) {
        require(params != nullptr, kErrInvalidValue, "the result pointer is null");
        const HostOp& operation = operation_of<HostOp>(node);
        *params = {operation.function, operation.user_data};
    });
}

AICF_API cudaGraphHostNodeSetParams(void* node, const abi::HostNodeParams* params) {
    return api("cudaGraphHostNodeSetParams", [&](Runtime&) { operation_of<HostOp>(node) = read_host(params); });
}

AICF_API cudaGraphChildGraphNodeGetGraph(void* node, void** graph) {
    return api("cudaGraphChildGraphNodeGetGraph", [&](Runtime&) {
        require(graph != nullptr, kErrInvalidValue, "the result pointer is null");
        *graph = operation_of<ChildOp>(node).graph.get();
    });
}

AICF_API cudaGraphEventRecordNodeGetEvent(void* node, void** event) {
    return api("cudaGraphEventRecordNodeGetEvent", [&](Runtime&) {
        require(event != nullptr, kErrInvalidValue, "the result pointer is null");
        *event = operation_of<RecordOp>(node).event.get();
    });
}

AICF_API cudaGraphEventRecordNodeSetEvent(void* node, void* event) {
    return api("cudaGraphEventRecordNodeSetEvent", [&](Runtime& runtime) { operation_of<RecordOp>(node).event = find_event(runtime, event); });
}

AICF_API cudaGraphEventWaitNodeGetEvent(void* node, void** event) {
    return api("cudaGraphEventWaitNodeGetEvent", [&](Runtime&) {
        require(event != nullptr, kErrInvalidValue, "the result pointer is null");
        *event = operation_of<WaitOp>(node).event.get();
    });
}

AICF_API cudaGraphEventWaitNodeSetEvent(void* node, void* event) {
    return api("cudaGraphEventWaitNodeSetEvent", [&](Runtime& runtime) { operation_of<WaitOp>(node).event = find_event(runtime, event); });
}

AICF_API cudaGraphMemAllocNodeGetParams(void* node, abi::MemAllocNodeParams* params) {
    return api("cudaGraphMemAllocNodeGetParams", [&](Runtime&) {
        require(params != nullptr, kErrInvalidValue, "the result pointer is null");
        *params = operation_of<AllocOp>(node).params;
    });
}

AICF_API cudaGraphMemFreeNodeGetParams(void* node, void* pointer) {
    return api("cudaGraphMemFreeNodeGetParams", [&](Runtime&) {
        require(pointer != nullptr, kErrInvalidValue, "the result pointer is null");
        *static_cast<uint64_t*>(pointer) = operation_of<FreeOp>(node).address;
    });
}

// Executable graphs.

AICF_API cudaGraphInstantiate(void** exec, void* graph, unsigned long long flags) { return instantiate("cudaGraphInstantiate", exec, graph, flags); }
AICF_API cudaGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags) {
    return instantiate("cudaGraphInstantiateWithFlags", exec, graph, flags);
}

AICF_TWIN_API(cudaGraphInstantiateWithParams, _ptsz, (void** exec, void* graph, abi::GraphInstantiateParams* params), (exec, graph, params)) {
    return api("cudaGraphInstantiateWithParams", [&](Runtime& runtime) {
        require(params != nullptr, kErrInvalidValue, "the parameters are null");
        params->errNode_out = nullptr;
        params->result_out = 1;
        instantiate(runtime, exec, graph, params->flags);
        params->result_out = 0;
    });
}

AICF_API cudaGraphExecGetFlags(void* exec, unsigned long long* flags) {
    return api("cudaGraphExecGetFlags", [&](Runtime& runtime) {
        require(flags != nullptr, kErrInvalidValue, "the result pointer is null");
        *flags = find_graph_exec(runtime, exec)->flags;
    });
}

AICF_TWIN_API(cudaGraphLaunch, _ptsz, (void* exec, void* stream), (exec, stream)) {
    return api("cudaGraphLaunch", [&](Runtime& runtime) {
        Stream& target = find_stream(runtime, stream, per_thread);
        const auto graph = find_graph_exec(runtime, exec);
        if (target.capture != nullptr) {  // a launch in a capturing stream becomes a child graph
            ChildOp operation{graph->graph->clone(runtime, nullptr)};
            operation.graph->has_child_parent = true;
            submit(runtime, target, std::move(operation));
            return;
        }
        forbid_implicit_dependency(runtime, target);
        launch_graph(runtime, graph);
    });
}

AICF_TWIN_API(cudaGraphUpload, _ptsz, (void* exec, void* stream), (exec, stream)) {
    return api("cudaGraphUpload", [&](Runtime& runtime) {
        find_stream(runtime, stream, per_thread);
        find_graph_exec(runtime, exec);
    });
}

AICF_API cudaGraphExecDestroy(void* exec) {
    return api("cudaGraphExecDestroy", [&](Runtime& runtime) {
        find_graph_exec(runtime, exec);
        runtime.graph_execs.erase(exec);
    });
}

AICF_API cudaGraphExecUpdate(void* exec, void* graph, abi::GraphExecUpdateResultInfo* info) {
    return api("cudaGraphExecUpdate", [&](Runtime& runtime) {
        require(info != nullptr, kErrInvalidValue, "the result pointer is null");
        const auto target = find_graph_exec(runtime, exec);
        const auto wanted = find_graph(runtime, graph);
        const UpdateProblem problem = find_update_problem(*target, *wanted);
        *info = {problem.result, problem.node, nullptr};
        require(problem.result == abi::kUpdateSuccess, kErrGraphExecUpdateFailure, "the graphs differ in more than parameters; see the result's code and node");
        std::unordered_map<const Node*, Node*> mapping;
        auto copy = wanted->clone(runtime, &mapping);
        target->order = copy->topological_order();
        // Handles of the graph that was instantiated go on naming their nodes, beside those of the new graph.
        for (auto& [original, node] : target->by_original) {
            const auto& old = target->graph->nodes;
            const auto index = std::find_if(old.begin(), old.end(), [&](const auto& each) { return each.get() == node; }) - old.begin();
            node = copy->nodes[static_cast<size_t>(index)].get();
        }
        target->by_original.insert(mapping.begin(), mapping.end());
        target->graph = std::move(copy);
    });
}

AICF_API cudaGraphExecKernelNodeSetParams(void* exec, void* node, const abi::KernelNodeParams* params) {
    return api("cudaGraphExecKernelNodeSetParams", [&](Runtime& runtime) { operation_in<KernelOp>(runtime, exec, node) = read_kernel(runtime, params); });
}

AICF_API cudaGraphExecMemcpyNodeSetParams(void* exec, void* node, const abi::Memcpy3DParms* params) {
    return api("cudaGraphExecMemcpyNodeSetParams", [&](Runtime& runtime) { operation_in<CopyOp>(runtime, exec, node) = read_copy(runtime, params); });
}

AICF_API cudaGraphExecMemcpyNodeSetParams1D(void* exec, void* node, void* dst, const void* src, size_t bytes, int kind) {
    return api("cudaGraphExecMemcpyNodeSetParams1D", [&](Runtime& runtime) { operation_in<CopyOp>(runtime, exec, node) = read_linear(runtime, dst, src, bytes, kind); });
}

AICF_API cudaGraphExecMemcpyNodeSetParamsToSymbol(void* exec, void* node, const void* symbol, const void* src, size_t bytes, size_t offset, int kind) {
    return api("cudaGraphExecMemcpyNodeSetParamsToSymbol",
               [&](Runtime& runtime) { operation_in<CopyOp>(runtime, exec, node) = read_symbol(runtime, nullptr, src, symbol, bytes, offset, kind); });
}

AICF_API cudaGraphExecMemcpyNodeSetParamsFromSymbol(void* exec, void* node, void* dst, const void* symbol, size_t bytes, size_t offset, int kind) {
    return api("cudaGraphExecMemcpyNodeSetParamsFromSymbol",
               [&](Runtime& runtime) { operation_in<CopyOp>(runtime, exec, node) = read_symbol(runtime, dst, nullptr, symbol, bytes, offset, kind); });
}

AICF_API cudaGraphExecMemsetNodeSetParams(void* exec, void* node, const abi::MemsetParams* params) {
    return api("cudaGraphExecMemsetNodeSetParams", [&](Runtime& runtime) { operation_in<FillOp>(runtime, exec, node) = read_fill(runtime, params); });
}

AICF_API cudaGraphExecHostNodeSetParams(void* exec, void* node, const abi::HostNodeParams* params) {
    return api("cudaGraphExecHostNodeSetParams", [&](Runtime& runtime) { operation_in<HostOp>(runtime, exec, node) = read_host(params); });
}

AICF_API cudaGraphExecChildGraphNodeSetParams(void* exec, void* node, void* child) {
    return api("cudaGraphExecChildGraphNodeSetParams", [&](Runtime& runtime) { operation_in<ChildOp>(runtime, exec, node) = read_child(runtime, child); });
}

AICF_API cudaGraphExecEventRecordNodeSetEvent(void* exec, void* node, void* event) {
    return api("cudaGraphExecEventRecordNodeSetEvent", [&](Runtime& runtime) { operation_in<RecordOp>(runtime, exec, node).event = find_event(runtime, event); });
}

AICF_API cudaGraphExecEventWaitNodeSetEvent(void* exec, void* node, void* event) {
    return api("cudaGraphExecEventWaitNodeSetEvent", [&](Runtime& runtime) { operation_in<WaitOp>(runtime, exec, node).event = find_event(runtime, event); });
}

AICF_API cudaGraphNodeSetEnabled(void* exec, void* node, unsigned enabled) {
    return api("cudaGraphNodeSetEnabled", [&](Runtime& runtime) {
        const auto graph = find_graph_exec(runtime, exec);
        const auto found = graph->by_original.find(find_node(node));
        require(found != graph->by_original.end(), kErrInvalidValue, "the node is not of the graph that was instantiated");
        const int type = node_type(found->second->operation);
        require(type <= abi::kNodeMemset, kErrInvalidValue, "kernel, memcpy and memset nodes only can be disabled");
        found->second->enabled = enabled != 0;
    });
}

AICF_API cudaGraphNodeGetEnabled(void* exec, void* node, unsigned* enabled) {
    return api("cudaGraphNodeGetEnabled", [&](Runtime& runtime) {
        require(enabled != nullptr, kErrInvalidValue, "the result pointer is null");
        const auto graph = find_graph_exec(runtime, exec);
        const auto found = graph->by_original.find(find_node(node));
        require(found != graph->by_original.end(), kErrInvalidValue, "the node is not of the graph that was instantiated");
        *enabled = found->second->enabled ? 1 : 0;
    });
}

AICF_API cudaGraphDebugDotPrint(void* graph, const char* path, unsigned) {
    return api("cudaGraphDebugDotPrint", [&](Runtime& runtime) {
        require(path != nullptr, kErrInvalidValue, "the path is null");
        const auto source = find_graph(runtime, graph);
        std::ofstream out(path);
        out << "digraph graph_" << source->id << " {\n";
        for (const auto& node : source->nodes) out << "  n" << node->id << " [shape=box, label=\"" << dot_label(*node) << "\"];\n";
        for (const auto& node : source->nodes)
            for (const Edge& edge : node->dependencies) out << "  n" << edge.from->id << " -> n" << node->id << ";\n";
        out << "}\n";
        if (!out.flush()) throw Failure{kErrOperatingSystem, std::string("cannot write ") + path};
    });
}

// User objects: things that live as long as a graph.

AICF_API cudaUserObjectCreate(void** out, void* pointer, abi::HostFn destroy, unsigned references, unsigned) {
    return api("cudaUserObjectCreate", [&](Runtime&) {
        require(out != nullptr && destroy != nullptr && references != 0, kErrInvalidValue, "a null pointer, or no references");
        *out = new UserObject{pointer, destroy, references};
    });
}

AICF_API cudaUserObjectRetain(void* object, unsigned count) {
    return api("cudaUserObjectRetain", [&](Runtime&) {
        require(object != nullptr && count != 0, kErrInvalidValue, "a null pointer, or a count of 0");
        static_cast<UserObject*>(object)->references += count;
    });
}

AICF_API cudaUserObjectRelease(void* object, unsigned count) {
    return api("cudaUserObjectRelease", [&](Runtime&) {
        auto* target = static_cast<UserObject*>(object);
        require(target != nullptr && count != 0 && count <= target->references, kErrInvalidValue, "a null pointer, or more references than there are");
        target->references -= count;
        if (target->references != 0) return;
        target->destroy(target->pointer);
        delete target;
    });
}

AICF_API cudaGraphRetainUserObject(void* graph, void* object, unsigned count, unsigned flags) {
    return api("cudaGraphRetainUserObject", [&](Runtime& runtime) {
        auto* target = static_cast<UserObject*>(object);
        constexpr unsigned kMove = 1;
        require(target != nullptr && count != 0 && flags <= kMove, kErrInvalidValue, "a null pointer, a count of 0 or unknown flags");
        find_graph(runtime, graph)->user_objects[target] += count;
        if (flags != kMove) target->references += count;
    });
}

AICF_API cudaGraphReleaseUserObject(void* graph, void* object, unsigned count) {
    return api("cudaGraphReleaseUserObject", [&](Runtime& runtime) {
        auto* target = static_cast<UserObject*>(object);
        const auto source = find_graph(runtime, graph);
        const auto found = source->user_objects.find(target);
        require(found != source->user_objects.end() && count != 0 && count <= found->second, kErrInvalidValue, "the graph does not hold so many references");
        found->second -= count;
        if (found->second == 0) source->user_objects.erase(found);
        target->references -= count;
        if (target->references != 0) return;
        target->destroy(target->pointer);
        delete target;
    });
}

AICF_API cudaDeviceGraphMemTrim(int device) {
    return api("cudaDeviceGraphMemTrim", [&](Runtime&) { require(device == 0, kErrInvalidDevice, "there is device 0 only"); });
}

// Executable graphs: instantiating, changing, updating and launching them.
#include <algorithm>

#include "graph_params.hpp"
#include "pools.hpp"
#include "queue.hpp"

using namespace aicf::emu;

namespace {

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

bool has_unused_handle(const Graph& graph) {
    const auto inner = graph.inner_graphs();
    return std::any_of(graph.conditionals.begin(), graph.conditionals.end(), [](const auto& handle) { return !handle->is_used; }) ||
           std::any_of(inner.begin(), inner.end(), [](const auto& each) { return has_unused_handle(*each); });
}

// Bodies of conditional nodes hold kernels, copies, fills, empty nodes, child graphs and conditional nodes only.
void check_bodies(const Graph& graph, bool in_body = false) {
    for (const auto& node : graph.nodes) {
        const int type = node_type(node->operation);
        const bool allowed = type == abi::kNodeKernel || type == abi::kNodeMemcpy || type == abi::kNodeMemset || type == abi::kNodeEmpty ||
                             type == abi::kNodeGraph || type == abi::kNodeConditional;
        if (in_body && !allowed)
            throw Failure{kErrInvalidValue,
                          std::string("a ") + node_type_name(node->operation) + " node in the body of a conditional node"};
    }
    for (const auto& inner : graph.inner_graphs()) check_bodies(*inner, in_body || inner->is_body);
}

void instantiate(Runtime& runtime, void** out, void* graph, unsigned long long flags) {
    require(out != nullptr, kErrInvalidValue, "the result pointer is null");
    require(flags <= 15, kErrInvalidValue, "unknown instantiation flags");
    require((flags & abi::kInstantiateDeviceLaunch) == 0, kErrNotSupported,
            "graphs that device code launches are not supported by the emulated device");
    const auto source = find_graph(runtime, graph);
    require(!source->has_child_parent, kErrInvalidValue, "the graph belongs to a node; instantiate the whole graph");
    require(!source->is_unique() || source->instantiated.expired(), kErrNotSupported,
            "a graph with conditional or memory nodes can be instantiated once at a time");
    require(!has_unused_handle(*source), kErrInvalidValue, "a conditional handle of the graph belongs to no conditional node");
    check_bodies(*source);
    auto exec = std::make_shared<GraphExec>();
    exec->graph = source->clone(runtime, &exec->by_original);
    exec->graph->topological_order();  // throws where there is a cycle
    exec->flags = flags;
    source->instantiated = exec;
    *out = exec.get();
    runtime.graph_execs[exec.get()] = std::move(exec);
}

int instantiate(const char* function, void** out, void* graph, unsigned long long flags) {
    return api(function, [&](Runtime& runtime) {
        forbid_during_capture(runtime, function);
        instantiate(runtime, out, graph, flags);
    });
}

// Whether an executable graph's node can take the operation of the same node in a changed graph; abi::GraphUpdateResult.
int compare_for_update(const Operation& now, const Operation& wanted) {
    if (now.index() != wanted.index()) return abi::kUpdateNodeTypeChanged;
    if (const auto* copy = std::get_if<CopyOp>(&now)) {
        if (copy->params.kind != std::get<CopyOp>(wanted).params.kind) return abi::kUpdateParametersChanged;
    }
    if (const auto* conditional = std::get_if<ConditionalOp>(&now)) {
        const auto& other = std::get<ConditionalOp>(wanted);
        if (conditional->type != other.type || conditional->bodies.size() != other.bodies.size()) return abi::kUpdateParametersChanged;
    }
    if (std::holds_alternative<AllocOp>(now) || std::holds_alternative<FreeOp>(now)) return abi::kUpdateNotSupported;
    return abi::kUpdateSuccess;
}

struct UpdateProblem {
    int result = abi::kUpdateSuccess;
    Node* node = nullptr;
};

UpdateProblem find_update_problem(const Graph& now, const Graph& wanted) {
    const auto& own = now.nodes;
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
    const auto inner = now.inner_graphs(), wanted_inner = wanted.inner_graphs();
    for (size_t i = 0; i < inner.size(); ++i)
        if (const UpdateProblem problem = find_update_problem(*inner[i], *wanted_inner[i]); problem.result != abi::kUpdateSuccess)
            return problem;
    return {};
}

// Nodes at the same place of two graphs of one shape.
void pair_nodes(const Graph& one, const Graph& other, std::unordered_map<const Node*, Node*>& pairs) {
    for (size_t i = 0; i < one.nodes.size(); ++i) pairs[one.nodes[i].get()] = other.nodes[i].get();
    const auto inner = one.inner_graphs(), other_inner = other.inner_graphs();
    for (size_t i = 0; i < inner.size(); ++i) pair_nodes(*inner[i], *other_inner[i], pairs);
}

}  // namespace

AICF_API cudaGraphExecNodeSetParams(void* exec, void* node, abi::GraphNodeParams* params) {
    return api("cudaGraphExecNodeSetParams", [&](Runtime& runtime) {
        const auto graph = find_graph_exec(runtime, exec);
        const auto found = graph->by_original.find(find_node(node));
        require(found != graph->by_original.end(), kErrInvalidValue, "the node is not of the graph that was instantiated");
        require(params != nullptr && params->type == node_type(found->second->operation), kErrInvalidValue,
                "the parameters are of another kind of node");
        require(params->type != abi::kNodeConditional && params->type != abi::kNodeMemAlloc && params->type != abi::kNodeMemFree,
                kErrNotSupported, "conditional and memory nodes cannot be changed");
        found->second->operation = read_any(runtime, *found->second->graph, params);
    });
}

AICF_API cudaGraphInstantiate(void** exec, void* graph, unsigned long long flags) {
    return instantiate("cudaGraphInstantiate", exec, graph, flags);
}
AICF_API cudaGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long flags) {
    return instantiate("cudaGraphInstantiateWithFlags", exec, graph, flags);
}

AICF_TWIN_API(cudaGraphInstantiateWithParams, _ptsz, (void** exec, void* graph, abi::GraphInstantiateParams* params),
              (exec, graph, params)) {
    return api("cudaGraphInstantiateWithParams", [&](Runtime& runtime) {
        require(params != nullptr, kErrInvalidValue, "the parameters are null");
        params->errNode_out = nullptr;
        params->result_out = abi::kInstantiateError;
        if (has_unused_handle(*find_graph(runtime, graph))) params->result_out = abi::kInstantiateConditionalHandleUnused;
        instantiate(runtime, exec, graph, params->flags);
        params->result_out = abi::kInstantiateSuccess;
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
            require(!graph->graph->is_unique(), kErrNotSupported,
                    "a graph with conditional or memory nodes cannot be launched into a capturing stream");
            ChildOp operation{graph->graph->clone(runtime, nullptr)};
            operation.graph->has_child_parent = true;
            submit(runtime, target, std::move(operation));
            return;
        }
        forbid_implicit_dependency(runtime, target);
        begin_graph_memory(runtime, *graph);
        enqueue_graph(runtime, target, graph);
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
        runtime.bury("executable graph", exec, nullptr);
    });
}

AICF_API cudaGraphExecUpdate(void* exec, void* graph, abi::GraphExecUpdateResultInfo* info) {
    return api("cudaGraphExecUpdate", [&](Runtime& runtime) {
        require(info != nullptr, kErrInvalidValue, "the result pointer is null");
        const auto target = find_graph_exec(runtime, exec);
        const auto wanted = find_graph(runtime, graph);
        const UpdateProblem problem = find_update_problem(*target->graph, *wanted);
        *info = {problem.result, problem.node, nullptr};
        require(problem.result == abi::kUpdateSuccess, kErrGraphExecUpdateFailure,
                "the graphs differ in more than parameters; see the result's code and node");
        std::unordered_map<const Node*, Node*> mapping;
        auto copy = wanted->clone(runtime, &mapping);
        copy->topological_order();
        // Handles of the graph that was instantiated go on naming their nodes, beside those of the new graph.
        std::unordered_map<const Node*, Node*> pairs;
        pair_nodes(*target->graph, *copy, pairs);
        for (auto& [original, node] : target->by_original) node = pairs.at(node);
        target->by_original.insert(mapping.begin(), mapping.end());
        target->graph = std::move(copy);
    });
}

AICF_API cudaGraphExecKernelNodeSetParams(void* exec, void* node, const abi::KernelNodeParams* params) {
    return api("cudaGraphExecKernelNodeSetParams",
               [&](Runtime& runtime) { operation_in<KernelOp>(runtime, exec, node) = read_kernel(runtime, params); });
}

AICF_API cudaGraphExecMemcpyNodeSetParams(void* exec, void* node, const abi::Memcpy3DParms* params) {
    return api("cudaGraphExecMemcpyNodeSetParams",
               [&](Runtime& runtime) { operation_in<CopyOp>(runtime, exec, node) = read_copy(runtime, params); });
}

AICF_API cudaGraphExecMemcpyNodeSetParams1D(void* exec, void* node, void* dst, const void* src, size_t bytes, int kind) {
    return api("cudaGraphExecMemcpyNodeSetParams1D",
               [&](Runtime& runtime) { operation_in<CopyOp>(runtime, exec, node) = read_linear(runtime, dst, src, bytes, kind); });
}

AICF_API cudaGraphExecMemcpyNodeSetParamsToSymbol(void* exec, void* node, const void* symbol, const void* src, size_t bytes, size_t offset,
                                                  int kind) {
    return api("cudaGraphExecMemcpyNodeSetParamsToSymbol", [&](Runtime& runtime) {
        operation_in<CopyOp>(runtime, exec, node) = read_symbol(runtime, nullptr, src, symbol, bytes, offset, kind);
    });
}

AICF_API cudaGraphExecMemcpyNodeSetParamsFromSymbol(void* exec, void* node, void* dst, const void* symbol, size_t bytes, size_t offset,
                                                    int kind) {
    return api("cudaGraphExecMemcpyNodeSetParamsFromSymbol", [&](Runtime& runtime) {
        operation_in<CopyOp>(runtime, exec, node) = read_symbol(runtime, dst, nullptr, symbol, bytes, offset, kind);
    });
}

AICF_API cudaGraphExecMemsetNodeSetParams(void* exec, void* node, const abi::MemsetParams* params) {
    return api("cudaGraphExecMemsetNodeSetParams",
               [&](Runtime& runtime) { operation_in<FillOp>(runtime, exec, node) = read_fill(runtime, params); });
}

AICF_API cudaGraphExecHostNodeSetParams(void* exec, void* node, const abi::HostNodeParams* params) {
    return api("cudaGraphExecHostNodeSetParams", [&](Runtime& runtime) { operation_in<HostOp>(runtime, exec, node) = read_host(params); });
}

AICF_API cudaGraphExecChildGraphNodeSetParams(void* exec, void* node, void* child) {
    return api("cudaGraphExecChildGraphNodeSetParams",
               [&](Runtime& runtime) { operation_in<ChildOp>(runtime, exec, node) = read_child(runtime, child); });
}

AICF_API cudaGraphExecEventRecordNodeSetEvent(void* exec, void* node, void* event) {
    return api("cudaGraphExecEventRecordNodeSetEvent",
               [&](Runtime& runtime) { operation_in<RecordOp>(runtime, exec, node).event = find_event(runtime, event); });
}

AICF_API cudaGraphExecEventWaitNodeSetEvent(void* exec, void* node, void* event) {
    return api("cudaGraphExecEventWaitNodeSetEvent",
               [&](Runtime& runtime) { operation_in<WaitOp>(runtime, exec, node).event = find_event(runtime, event); });
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

// Graphs: making and changing them, and reading what is in them.
#include <algorithm>
#include <fstream>

#include "graph_params.hpp"
#include "launch.hpp"
#include "pools.hpp"

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
    if (operation == nullptr)
        throw Failure{kErrInvalidValue, std::string("the node is a ") + node_type_name(find_node(handle)->operation) + " node"};
    return *operation;
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

constexpr const char* kConditionalNames[] = {"if", "while", "switch"};  // in the order of abi::ConditionalType

std::string dot_label(const Node& node) {
    std::string label = std::to_string(node.id) + "\\n" + node_type_name(node.operation);
    if (const auto* kernel = std::get_if<KernelOp>(&node.operation))
        label += "\\n" + kernel->kernel->name + "\\n" + to_text(kernel->grid) + " x " + to_text(kernel->block);
    if (const auto* copy = std::get_if<CopyOp>(&node.operation))
        label += "\\n" + hex(to_address(copy->params.dstPtr.ptr)) + " <- " + hex(to_address(copy->params.srcPtr.ptr)) + ", " +
                 std::to_string(copy->params.extent.width * copy->params.extent.height * copy->params.extent.depth) + " bytes";
    if (const auto* fill = std::get_if<FillOp>(&node.operation))
        label += "\\n" + hex(to_address(fill->params.dst)) + " = " + std::to_string(fill->params.value);
    if (const auto* conditional = std::get_if<ConditionalOp>(&node.operation))
        label += std::string("\\n") + kConditionalNames[conditional->type] + " handle " + std::to_string(conditional->handle->id);
    return label;
}

// Nodes and edges; graphs that belong to nodes are clusters beside them, pointed to by their node.
void write_dot(std::ostream& out, const Graph& graph, const std::string& indent) {
    for (const auto& node : graph.nodes) out << indent << "n" << node->id << " [shape=box, label=\"" << dot_label(*node) << "\"];\n";
    for (const auto& node : graph.nodes)
        for (const Edge& edge : node->dependencies) out << indent << "n" << edge.from->id << " -> n" << node->id << ";\n";
    for (const auto& node : graph.nodes) {
        std::vector<std::shared_ptr<Graph>> inner;
        if (const auto* child = std::get_if<ChildOp>(&node->operation)) inner = {child->graph};
        if (const auto* conditional = std::get_if<ConditionalOp>(&node->operation)) inner = conditional->bodies;
        for (size_t i = 0; i < inner.size(); ++i) {
            out << indent << "subgraph cluster_" << inner[i]->id << " {\n"
                << indent << "  label=\"" << node_type_name(node->operation) << " " << node->id << " body " << i << "\";\n";
            write_dot(out, *inner[i], indent + "  ");
            out << indent << "}\n";
            if (!inner[i]->nodes.empty())
                out << indent << "n" << node->id << " -> n" << inner[i]->nodes.front()->id << " [style=dashed];\n";
        }
    }
}

bool has_memory_nodes(const Graph& graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const auto& node) {
        return std::holds_alternative<AllocOp>(node->operation) || std::holds_alternative<FreeOp>(node->operation);
    });
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
        if (!runtime.graphs.contains(graph)) runtime.note_if_destroyed(graph);
        require(runtime.graphs.contains(graph), kErrInvalidValue, "the handle is no graph of the user's (or it was destroyed)");
        runtime.graphs.erase(graph);
        runtime.bury("graph", graph, nullptr);
    });
}

AICF_API cudaGraphClone(void** out, void* graph) {
    return api("cudaGraphClone", [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        const auto source = find_graph(runtime, graph);
        require(!source->is_unique(), kErrNotSupported, "a graph with conditional or memory nodes cannot be cloned");
        auto copy = source->clone(runtime, nullptr);
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
    return api("cudaGraphAddKernelNode",
               [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_kernel(runtime, params)); });
}

AICF_API cudaGraphAddMemcpyNode(void** out, void* graph, void* const* dependencies, size_t count, const abi::Memcpy3DParms* params) {
    return api("cudaGraphAddMemcpyNode",
               [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_copy(runtime, params)); });
}

AICF_API cudaGraphAddMemcpyNode1D(void** out, void* graph, void* const* dependencies, size_t count, void* dst, const void* src,
                                  size_t bytes, int kind) {
    return api("cudaGraphAddMemcpyNode1D",
               [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_linear(runtime, dst, src, bytes, kind)); });
}

AICF_API cudaGraphAddMemcpyNodeToSymbol(void** out, void* graph, void* const* dependencies, size_t count, const void* symbol,
                                        const void* src, size_t bytes, size_t offset, int kind) {
    return api("cudaGraphAddMemcpyNodeToSymbol", [&](Runtime& runtime) {
        add_node(runtime, out, graph, dependencies, count, read_symbol(runtime, nullptr, src, symbol, bytes, offset, kind));
    });
}

AICF_API cudaGraphAddMemcpyNodeFromSymbol(void** out, void* graph, void* const* dependencies, size_t count, void* dst, const void* symbol,
                                          size_t bytes, size_t offset, int kind) {
    return api("cudaGraphAddMemcpyNodeFromSymbol", [&](Runtime& runtime) {
        require(dst != nullptr, kErrInvalidValue, "the destination is null");
        add_node(runtime, out, graph, dependencies, count, read_symbol(runtime, dst, nullptr, symbol, bytes, offset, kind));
    });
}

AICF_API cudaGraphAddMemsetNode(void** out, void* graph, void* const* dependencies, size_t count, const abi::MemsetParams* params) {
    return api("cudaGraphAddMemsetNode",
               [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, read_fill(runtime, params)); });
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
    return api("cudaGraphAddEventRecordNode",
               [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, RecordOp{find_event(runtime, event)}); });
}

AICF_API cudaGraphAddEventWaitNode(void** out, void* graph, void* const* dependencies, size_t count, void* event) {
    return api("cudaGraphAddEventWaitNode",
               [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, WaitOp{find_event(runtime, event)}); });
}

AICF_API cudaGraphAddMemAllocNode(void** out, void* graph, void* const* dependencies, size_t count, abi::MemAllocNodeParams* params) {
    return api("cudaGraphAddMemAllocNode",
               [&](Runtime& runtime) { add_node(runtime, out, graph, dependencies, count, make_alloc(runtime, params)); });
}

AICF_API cudaGraphAddMemFreeNode(void** out, void* graph, void* const* dependencies, size_t count, void* pointer) {
    return api("cudaGraphAddMemFreeNode", [&](Runtime& runtime) {
        add_node(runtime, out, graph, dependencies, count, make_free(runtime, *find_graph(runtime, graph), to_address(pointer)));
    });
}

AICF_API cudaGraphAddNode(void** out, void* graph, void* const* dependencies, const abi::GraphEdgeData* data, size_t count,
                          abi::GraphNodeParams* params) {
    return api("cudaGraphAddNode", [&](Runtime& runtime) {
        add_node(runtime, out, graph, dependencies, count, read_any(runtime, *find_graph(runtime, graph), params));
        for (size_t i = 0; data != nullptr && i < count; ++i) static_cast<Node*>(*out)->dependencies[i].data = data[i];
    });
}

AICF_API cudaGraphNodeSetParams(void* node, abi::GraphNodeParams* params) {
    return api("cudaGraphNodeSetParams", [&](Runtime& runtime) {
        Node* target = find_node(node);
        require(params != nullptr && params->type == node_type(target->operation), kErrInvalidValue,
                "the parameters are of another kind of node");
        require(!std::holds_alternative<ConditionalOp>(target->operation), kErrNotSupported, "a conditional node cannot be changed");
        target->operation = read_any(runtime, *target->graph, params);
    });
}

AICF_API cudaGraphDestroyNode(void* node) {
    return api("cudaGraphDestroyNode", [&](Runtime&) {
        Node* target = find_node(node);
        Graph* graph = target->graph;
        require(!has_memory_nodes(*graph), kErrNotSupported, "a graph with memory nodes cannot lose nodes or edges");
        for (const auto& each : graph->nodes) std::erase_if(each->dependencies, [&](const Edge& edge) { return edge.from == target; });
        std::erase_if(graph->nodes, [&](const auto& each) { return each.get() == target; });
    });
}

AICF_API cudaGraphConditionalHandleCreate(unsigned long long* handle, void* graph, unsigned default_value, unsigned flags) {
    return api("cudaGraphConditionalHandleCreate", [&](Runtime& runtime) {
        constexpr unsigned kAssignDefault = 1;
        require(handle != nullptr && flags <= kAssignDefault, kErrInvalidValue, "the result pointer is null, or unknown flags");
        auto made = std::make_shared<ConditionalHandle>(default_value, flags == kAssignDefault);
        *handle = made->id;
        find_graph(runtime, graph)->conditionals.push_back(std::move(made));
    });
}

// Edges and lists.

AICF_API cudaGraphAddDependencies(void* graph, void* const* from, void* const* to, const abi::GraphEdgeData* data, size_t count) {
    return api("cudaGraphAddDependencies", [&](Runtime& runtime) {
        const auto target = find_graph(runtime, graph);
        require(count == 0 || (from != nullptr && to != nullptr), kErrInvalidValue, "a list of nodes is null");
        for (size_t i = 0; i < count; ++i)
            target->add_edge(find_node(from[i]), find_node(to[i]), data == nullptr ? abi::GraphEdgeData{} : data[i]);
    });
}

AICF_API cudaGraphRemoveDependencies(void* graph, void* const* from, void* const* to, const abi::GraphEdgeData*, size_t count) {
    return api("cudaGraphRemoveDependencies", [&](Runtime& runtime) {
        require(!has_memory_nodes(*find_graph(runtime, graph)), kErrNotSupported, "a graph with memory nodes cannot lose nodes or edges");
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
                const auto edge =
                    std::find_if(to[i]->dependencies.begin(), to[i]->dependencies.end(), [&](const Edge& e) { return e.from == source; });
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
    return api("cudaGraphMemcpyNodeSetParams1D",
               [&](Runtime& runtime) { operation_of<CopyOp>(node) = read_linear(runtime, dst, src, bytes, kind); });
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
    return api("cudaGraphEventRecordNodeSetEvent",
               [&](Runtime& runtime) { operation_of<RecordOp>(node).event = find_event(runtime, event); });
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

AICF_API cudaGraphDebugDotPrint(void* graph, const char* path, unsigned) {
    return api("cudaGraphDebugDotPrint", [&](Runtime& runtime) {
        require(path != nullptr, kErrInvalidValue, "the path is null");
        const auto source = find_graph(runtime, graph);
        std::ofstream out(path);
        out << "digraph graph_" << source->id << " {\n";
        write_dot(out, *source, "  ");
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
        require(target != nullptr && count != 0 && count <= target->references, kErrInvalidValue,
                "a null pointer, or more references than there are");
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
        require(found != source->user_objects.end() && count != 0 && count <= found->second, kErrInvalidValue,
                "the graph does not hold so many references");
        found->second -= count;
        if (found->second == 0) source->user_objects.erase(found);
        target->references -= count;
        if (target->references != 0) return;
        target->destroy(target->pointer);
        delete target;
    });
}

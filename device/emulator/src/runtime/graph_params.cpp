#include "graph_params.hpp"

#include "launch.hpp"
#include "memory_ops.hpp"
#include "pools.hpp"

namespace aicf::emu {

KernelOp read_kernel(Runtime& runtime, const abi::KernelNodeParams* params) {
    require(params != nullptr, kErrInvalidValue, "the parameters are null");
    require(params->extra == nullptr || params->kernelParams == nullptr, kErrInvalidValue, "the arguments are given twice");
    const auto kernel = require_kernel(runtime, params->func);
    std::vector<void*> unpacked;
    if (params->extra != nullptr) unpacked = unpack_arguments(runtime.registry->load(runtime, *kernel), params->extra);
    KernelOp operation = make_launch(runtime, kernel, params->gridDim, params->blockDim,
                                     params->extra != nullptr ? unpacked.data() : params->kernelParams, params->sharedMemBytes);
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

ChildOp read_child(Runtime& runtime, void* graph, int ownership) {
    constexpr int kClone = 0, kMove = 1;
    const auto source = find_graph(runtime, graph);
    require(ownership == kClone || ownership == kMove, kErrInvalidValue, "the ownership of a child graph is 0 (clone) or 1 (move)");
    if (ownership == kMove) {
        require(!source->has_child_parent, kErrInvalidValue, "the graph belongs to a node already");
        source->has_child_parent = true;
        runtime.graphs.erase(graph);
        return {source};
    }
    require(!source->is_unique(), kErrNotSupported, "a graph with conditional or memory nodes cannot be cloned into a child node");
    ChildOp operation{source->clone(runtime, nullptr)};
    operation.graph->has_child_parent = true;
    return operation;
}

ConditionalOp make_conditional(Runtime& runtime, abi::ConditionalNodeParams* params) {
    ConditionalOp operation;
    operation.handle = find_conditional(runtime, params->handle);
    operation.type = params->type;
    require(!operation.handle->is_used, kErrInvalidValue, "the conditional handle belongs to another node");
    const bool fits = params->type == abi::kConditionalIf      ? params->size == 1 || params->size == 2
                      : params->type == abi::kConditionalWhile ? params->size == 1
                                                               : params->type == abi::kConditionalSwitch && params->size >= 1;
    if (!fits)
        throw Failure{kErrInvalidValue, "a conditional node of type " + std::to_string(params->type) + " with " +
                                            std::to_string(params->size) + " bodies (IF has 1 or 2, WHILE 1, SWITCH any number)"};
    operation.handle->is_used = true;
    operation.body_handles = std::make_shared<std::vector<void*>>();
    for (uint32_t i = 0; i < params->size; ++i) {
        auto body = std::make_shared<Graph>(runtime.next_id());
        body->has_child_parent = body->is_body = true;
        operation.body_handles->push_back(body.get());
        operation.bodies.push_back(std::move(body));
    }
    params->phGraph_out = operation.body_handles->data();
    return operation;
}

// The operation that a cudaGraphNodeParams describes.
Operation read_any(Runtime& runtime, Graph& graph, abi::GraphNodeParams* params) {
    require(params != nullptr, kErrInvalidValue, "the parameters are null");
    switch (params->type) {
        case abi::kNodeKernel: return read_kernel(runtime, &params->kernel);
        case abi::kNodeMemcpy: return read_copy(runtime, &params->memcpy.copyParams);
        case abi::kNodeMemset: return read_fill(runtime, &params->memset);
        case abi::kNodeHost: return read_host(&params->host);
        case abi::kNodeGraph: return read_child(runtime, params->graph.graph, params->graph.ownership);
        case abi::kNodeEmpty: return EmptyOp{};
        case abi::kNodeWaitEvent: return WaitOp{find_event(runtime, params->eventWait)};
        case abi::kNodeEventRecord: return RecordOp{find_event(runtime, params->eventRecord)};
        case abi::kNodeMemAlloc: return make_alloc(runtime, &params->alloc);
        case abi::kNodeMemFree: return make_free(runtime, graph, to_address(params->free));
        case abi::kNodeConditional: return make_conditional(runtime, &params->conditional);
        default:
            throw Failure{kErrNotSupported,
                          "graph nodes of type " + std::to_string(params->type) + " are not supported by the emulated device"};
    }
}

}  // namespace aicf::emu

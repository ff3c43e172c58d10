// The parameters of graph nodes as users give them, checked and turned into operations.
#pragma once

#include "graph.hpp"

namespace aicf::emu {

KernelOp read_kernel(Runtime& runtime, const abi::KernelNodeParams* params);
// The other way; the pointers in `out` stay valid until the operation changes.
void write_kernel(KernelOp& operation, abi::KernelNodeParams* out);
CopyOp read_copy(Runtime& runtime, const abi::Memcpy3DParms* params);
CopyOp read_linear(Runtime& runtime, void* dst, const void* src, size_t count, int kind);
// Copies from `src` to the symbol where `dst` is null, else from the symbol to `dst`.
CopyOp read_symbol(Runtime& runtime, void* dst, const void* src, const void* symbol, size_t count, size_t offset, int kind);
FillOp read_fill(Runtime& runtime, const abi::MemsetParams* params);
HostOp read_host(const abi::HostNodeParams* params);
ChildOp read_child(Runtime& runtime, void* graph, int ownership = 0);
// What becomes a node of `graph`; allocation and conditional nodes write their results into the parameters.
Operation read_any(Runtime& runtime, Graph& graph, abi::GraphNodeParams* params);

}  // namespace aicf::emu

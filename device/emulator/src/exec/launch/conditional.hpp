// Values of conditional graph nodes: device code writes them (cudaGraphSetConditional, an extern function of the device runtime), and the
// graph reads them when it comes to the node. CUDA C++ programming guide, "Conditional graph nodes".
#pragma once

#include <cstdint>

namespace aicf::emu {

// False: the handle is none that cudaGraphConditionalHandleCreate gave (or its graph is gone). Thread-safe.
bool set_conditional(uint64_t handle, uint32_t value);

// The runtime's side. Handles are never 0, and a number is not given twice.
uint64_t add_conditional(uint32_t value);
void remove_conditional(uint64_t handle);
uint32_t conditional_value(uint64_t handle);

}  // namespace aicf::emu

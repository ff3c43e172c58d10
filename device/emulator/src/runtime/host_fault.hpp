// Host code that dereferences a device address gets a message that says so, before the fault takes its usual course.
#pragma once

#include "../memory/device_memory.hpp"

namespace aicf::emu {

// Installs the SIGSEGV handler once; `memory` must live as long as the process.
void watch_host_faults(const DeviceMemory& memory);

}  // namespace aicf::emu

// Host code that dereferences a device address gets a message that says so, before the fault takes its usual course.
#pragma once

#include "../memory/device_memory.hpp"

namespace aicf::emu {

// Installs the SIGSEGV handler once; `memory` must live as long as the process.
void watch_host_faults(const DeviceMemory& memory);
// Whether it is still the one: a program may have put its own in its place.
bool host_faults_are_ours();

// Has SIGTERM and SIGINT end the launches that are running, with a report of what they are at, before they end the process. Where the
// program sees to such a signal itself, it is left alone.
void watch_interrupts();
// After a launch that was ended so: ends the process by that signal.
void end_if_interrupted();

}  // namespace aicf::emu

// Host code that dereferences a device address gets a message that says so, before the fault takes its usual course.
#pragma once

#include <string>

#include "../memory/device_memory.hpp"

namespace aicf::emu {

// Installs the SIGSEGV handler once; `memory` must live as long as the process.
void watch_host_faults(const DeviceMemory& memory);
// Whether it is still the one: a program may have put its own in its place.
bool host_faults_are_ours();

// Has SIGTERM and SIGINT end the launches that are running, or one that begins in the next quarter of a second, with a report of what they
// are at, before they end the process. Where the program sees to such a signal itself, it is left alone.
void watch_interrupts();
// After a launch of `kernel` that was ended so, or ended by itself meanwhile and has nothing to report: ends the process by that signal.
void end_if_interrupted(const std::string& kernel, bool is_reported);

}  // namespace aicf::emu

#include "host_fault.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "exit_report.hpp"
#include "memory_ops.hpp"
#include "runtime.hpp"

namespace aicf::emu {
namespace {

const DeviceMemory* watched = nullptr;
struct sigaction previous_action;

void print(const char* text) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// A report where that is possible: the fault is the program's own, at an instruction of its own, and not in one of our calls.
void describe(uint64_t address) {
    Runtime& runtime = Runtime::get();
    const Allocation* allocation = watched->find(address);
    std::string text = "host code dereferenced device address " + hex(address) + ", which is " + describe_place(runtime, address) + "\n";
    if (allocation == nullptr || allocation->live)
        text += "copy it with cudaMemcpy, or allocate it with cudaMallocManaged or cudaMallocHost\n";
    if (runtime.mutex.try_lock()) {
        runtime.add_report("host_access", Severity::kError, text, address);
        runtime.mutex.unlock();
        if (exit_options().print_reports) return;
    }
    print(("aicf emulator: " + text).c_str());
}

// The former handler is put back and the instruction runs again, so that whoever handled faults before sees this one too.
void on_fault(int, siginfo_t* info, void*) {
    sigaction(SIGSEGV, &previous_action, nullptr);
    const auto address = reinterpret_cast<uint64_t>(info->si_addr);
    if (watched->contains(address)) describe(address);
}

}  // namespace

void watch_host_faults(const DeviceMemory& memory) {
    if (watched != nullptr) return;
    watched = &memory;
    struct sigaction action{};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &previous_action);
}

}  // namespace aicf::emu

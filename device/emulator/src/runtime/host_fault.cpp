#include "host_fault.hpp"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace aicf::emu {
namespace {

const DeviceMemory* watched = nullptr;
struct sigaction previous_action;

void print(const char* text) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

void describe(uint64_t address) {
    char text[256];
    const Allocation* allocation = watched->find(address);
    if (allocation == nullptr) {
        std::snprintf(text, sizeof text, "aicf emulator: host code dereferenced device address 0x%llx, which is in no allocation\n",
                      static_cast<unsigned long long>(address));
    } else {
        std::snprintf(
            text, sizeof text,
            "aicf emulator: host code dereferenced device address 0x%llx, %lld bytes into %sallocation #%llu of %llu bytes%s%.64s\n",
            static_cast<unsigned long long>(address), static_cast<long long>(address - allocation->address),
            allocation->live ? "" : "the freed ", static_cast<unsigned long long>(allocation->serial),
            static_cast<unsigned long long>(allocation->size_bytes), allocation->label.empty() ? "" : ", ", allocation->label.c_str());
    }
    print(text);
    print("aicf emulator: copy it with cudaMemcpy, or allocate it with cudaMallocManaged or cudaMallocHost\n");
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

// Host accesses to pinned and managed memory that queued work uses (option `host_accesses`): while the work has not been waited for, the
// pages of which it touches every byte are protected, and an access by the host faults. The fault is a finding; the page is opened and the
// access goes on. Memory of the program's own (cudaHostRegister) is not watched, nor are accesses from within system calls, which give
// EFAULT.
#pragma once

#include "touches.hpp"

namespace aicf::emu {

bool is_watching_host();
void set_watching_host(bool watches);

void watch_host_pages(History& history, const Access& access);
void release_host_pages();  // of work that the host has waited for
void open_host_pages(History& history);
void open_host_pages();  // all of them

// A fault of the host's at an address of the arena: true when the access may go on.
bool handle_host_access(uint64_t address, bool is_write);

// While a function of the user's runs in a stream: it is ordered as that stream is, not as the host's other code.
class HostFunctionScope {
public:
    HostFunctionScope();
    ~HostFunctionScope();
    HostFunctionScope(const HostFunctionScope&) = delete;
    HostFunctionScope& operator=(const HostFunctionScope&) = delete;
};

}  // namespace aicf::emu

#include "host_fault.hpp"

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "../exec/exec.hpp"
#include "exit_report.hpp"
#include "host_watch.hpp"
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
void on_fault(int, siginfo_t* info, void* context) {
    constexpr greg_t kWriteBit = 2;  // of the page fault's error code
    const auto address = reinterpret_cast<uint64_t>(info->si_addr);
    const int saved = errno;
    const bool is_write = (static_cast<const ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & kWriteBit) != 0;
    if (watched->contains(address) && handle_host_access(address, is_write)) {
        errno = saved;
        return;
    }
    sigaction(SIGSEGV, &previous_action, nullptr);
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

bool host_faults_are_ours() {
    struct sigaction action{};
    return watched != nullptr && sigaction(SIGSEGV, nullptr, &action) == 0 && (action.sa_flags & SA_SIGINFO) != 0 &&
           action.sa_sigaction == on_fault;
}

namespace {

constexpr long kGraceNanoseconds = 250'000'000;  // for a program that launches again and again to begin the next launch

volatile sig_atomic_t interrupted_by = 0;
timespec interrupted_at;
timer_t grace;
volatile sig_atomic_t has_grace = 0;

void end_by(int number) {
    signal(number, SIG_DFL);
    raise(number);
}

bool start_grace() {
    itimerspec once{};
    once.it_value.tv_nsec = kGraceNanoseconds;
    return has_grace != 0 && timer_settime(grace, 0, &once, nullptr) == 0;
}

// timeout(1) signals its child, and then the group that the child is in: a second signal that soon is no second wish.
bool is_the_same_wish() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec - interrupted_at.tv_sec <= 1;
}

void on_interrupt(int number, siginfo_t* info, void*) {
    const bool is_grace_over = info->si_code == SI_TIMER;
    if (is_grace_over && launches_are_running()) return;  // that one reports, and ends us
    if (interrupted_by != 0) {
        if (is_grace_over || !is_the_same_wish()) end_by(interrupted_by);
        return;
    }
    if (is_grace_over) return;
    interrupted_by = number;
    clock_gettime(CLOCK_MONOTONIC, &interrupted_at);
    interrupt_launches();
    if (!launches_are_running() && !start_grace()) end_by(number);
}

}  // namespace

void watch_interrupts() {
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGTERM;
    for (const int number : {SIGTERM, SIGINT}) {
        struct sigaction action{};
        if (sigaction(number, nullptr, &action) != 0 || (action.sa_flags & SA_SIGINFO) || action.sa_handler != SIG_DFL) continue;
        action.sa_sigaction = on_interrupt;
        action.sa_flags = SA_ONSTACK | SA_SIGINFO;
        sigaction(number, &action, nullptr);
        if (number == SIGTERM) has_grace = timer_create(CLOCK_MONOTONIC, &event, &grace) == 0;
    }
}

void end_if_interrupted(const std::string& kernel, bool is_reported) {
    if (interrupted_by == 0) return;
    if (!is_reported)
        Runtime::get().add_report("interrupted", Severity::kError,
                                  "the process was told to end while kernel " + kernel + " ended by itself\n", 0);
    std::fflush(nullptr);
    end_by(interrupted_by);
}

}  // namespace aicf::emu

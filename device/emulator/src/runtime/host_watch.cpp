#include "host_watch.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <mutex>

#include "../memory/round_up.hpp"
#include "host_fault.hpp"

namespace aicf::emu {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr size_t kMostWatched = 1024;  // ranges of pages at a time: the host's kernel has a limit too

struct Watch {
    bool is_on = false;
    int open = 0;  // host functions that run
    size_t num_ranges = 0;
};

Watch& watch() {
    static auto* all = new Watch;
    return *all;
}

void protect(const Interval& pages, int protection) {
    if (pages.begin < pages.end) mprotect(reinterpret_cast<void*>(pages.begin), pages.end - pages.begin, protection);
}

// Whole pages of which the interval has every byte that the allocation has there. Allocations that the host sees begin at a page of their
// own.
Interval whole_pages(const Interval& part, const Interval& allocation) {
    const uint64_t begin = round_up(part.begin, kPageBytes);
    const uint64_t end = part.end == allocation.end ? round_up(part.end, kPageBytes) : part.end / kPageBytes * kPageBytes;
    return {begin, std::max(begin, end)};
}

bool is_watchable(const History& history) { return is_host_visible(history.kind) && history.kind != MemoryKind::kRegistered; }

bool has_writes(const Access& access) { return !access.of[static_cast<size_t>(Touch::kWrite)].empty(); }

void protect_access(History& history, const Access& access) {
    for (const auto& [touch, protection] : {std::pair{Touch::kRead, PROT_READ}, std::pair{Touch::kWrite, PROT_NONE}}) {
        for (const Interval& part : access.of[static_cast<size_t>(touch)]) {
            const Interval pages = whole_pages(part, history.range);
            if (pages.begin == pages.end || watch().num_ranges == kMostWatched) continue;
            protect(pages, protection);
            history.is_watched = true;
            ++watch().num_ranges;
        }
    }
}

void open_pages(History& history) {
    if (!history.is_watched) return;
    protect({history.range.begin, round_up(history.range.end, kPageBytes)}, PROT_READ | PROT_WRITE);
    history.is_watched = false;
}

// Reads first, as a page that is written as well must not be read.
void protect_all(History& history) {
    for (const bool writes : {false, true})
        for (const auto& [component, accesses] : history.accesses)
            for (const Access& access : accesses)
                if (has_writes(access) == writes) protect_access(history, access);
}

}  // namespace

bool is_watching_host() { return watch().is_on; }

void set_watching_host(Runtime& runtime, bool watches) {
    open_host_pages(runtime);
    watch().is_on = watches;
}

void watch_host_pages(Runtime&, History& history, const Access& access) {
    if (!watch().is_on || watch().open != 0 || !is_watchable(history) || !host_faults_are_ours()) return;
    const bool others_write = !has_writes(access) && history.is_watched;
    if (others_write)
        protect_all(history);
    else
        protect_access(history, access);
}

void release_host_pages(Runtime&) {
    if (watch().num_ranges == 0) return;
    watch().num_ranges = 0;
    for (auto& [address, history] : histories()) {
        if (!history.is_watched) continue;
        prune(history);
        open_pages(history);
        protect_all(history);
    }
}

void open_host_pages(Runtime&) {
    for (auto& [address, history] : histories()) open_pages(history);
    watch().num_ranges = 0;
}

bool handle_host_access(uint64_t address, bool is_write) {
    const HostPlace place = capture_interrupted_place();
    const Interval page{address / kPageBytes * kPageBytes, address / kPageBytes * kPageBytes + kPageBytes};
    Runtime& runtime = Runtime::get();
    if (thread_state().in_call) {  // a call of CUDA's reads its arguments there
        History* history = find_history(address);
        if (history == nullptr || !is_watchable(*history)) return false;
        protect(page, PROT_READ | PROT_WRITE);
        return true;
    }
    std::lock_guard lock(runtime.mutex);
    History* history = find_history(address);
    if (history == nullptr || !is_watchable(*history)) return false;
    if (!history->is_watched) return runtime.memory().accessible(address, 1);  // another thread has opened it meanwhile
    note_host_access(runtime, *history, address, is_write, place);
    open_pages(*history);
    return true;
}

HostFunctionScope::HostFunctionScope(Runtime& runtime) : runtime_(runtime) {
    if (watch().open++ == 0) open_host_pages(runtime_);
}

HostFunctionScope::~HostFunctionScope() {
    if (--watch().open != 0 || !watch().is_on) return;
    for (auto& [address, history] : histories()) {
        prune(history);
        if (is_watchable(history)) protect_all(history);
    }
}

}  // namespace aicf::emu

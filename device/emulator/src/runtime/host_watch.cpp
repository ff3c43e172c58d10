#include "host_watch.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <mutex>

#include "../memory/round_up.hpp"
#include "host_fault.hpp"

namespace aicf::emu {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kSmallBytes = 256;  // of an allocation: system calls into another part of it, which would fail, are rare
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
// own. A small one has all of its page protected for any part: several results, say, that are copied one by one.
Interval whole_pages(const Interval& part, const Interval& allocation) {
    if (allocation.end - allocation.begin <= kSmallBytes) return {allocation.begin, allocation.begin + kPageBytes};
    const uint64_t begin = round_up(part.begin, kPageBytes);
    const uint64_t end = part.end == allocation.end ? round_up(part.end, kPageBytes) : part.end / kPageBytes * kPageBytes;
    return {begin, std::max(begin, end)};
}

bool is_watchable(const History& history) { return is_host_visible(history.kind) && history.kind != MemoryKind::kRegistered; }

bool has_writes(const Access& access) { return !access.of[static_cast<size_t>(Touch::kWrite)].empty(); }

void protect_access(History& history, const Access& access) {
    for (const bool from_reads : {false, true}) {
        for (const Interval& part : access.of[static_cast<size_t>(from_reads ? Touch::kWrite : Touch::kRead)]) {
            const Interval pages = whole_pages(part, history.range);
            if (pages.begin == pages.end || watch().num_ranges == kMostWatched) continue;
            protect(pages, from_reads ? PROT_NONE : PROT_READ);
            history.watched.push_back({pages, from_reads});
            ++watch().num_ranges;
        }
    }
}

// As they are when the access is protected as well.
bool are_protected(const History& history, const Access& access) {
    const auto is_covered = [&](const Interval& part, bool from_reads) {
        const Interval pages = whole_pages(part, history.range);
        return pages.begin == pages.end || std::any_of(history.watched.begin(), history.watched.end(), [&](const WatchedPages& old) {
                   return old.pages.begin <= pages.begin && old.pages.end >= pages.end && old.from_reads >= from_reads;
               });
    };
    const auto all_covered = [&](Touch touch) {
        const std::vector<Interval>& parts = access.of[static_cast<size_t>(touch)];
        return std::all_of(parts.begin(), parts.end(), [&](const Interval& part) { return is_covered(part, touch == Touch::kWrite); });
    };
    return all_covered(Touch::kRead) && all_covered(Touch::kWrite);
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

void set_watching_host(bool watches) {
    open_host_pages();
    watch().is_on = watches;
}

void watch_host_pages(History& history, const Access& access) {
    if (!watch().is_on || watch().open != 0 || !is_watchable(history) || !host_faults_are_ours()) return;
    if (are_protected(history, access)) return;
    if (has_writes(access))
        protect_access(history, access);
    else
        protect_all(history);
}

void release_host_pages() {
    if (watch().num_ranges == 0) return;
    for (auto& [address, history] : histories()) {
        if (history.watched.empty() || !prune(history)) continue;
        open_host_pages(history);
        protect_all(history);
    }
}

void open_host_pages(History& history) {
    if (history.watched.empty()) return;
    protect({history.range.begin, round_up(history.range.end, kPageBytes)}, PROT_READ | PROT_WRITE);
    watch().num_ranges -= history.watched.size();
    history.watched.clear();
}

void open_host_pages() {
    for (auto& [address, history] : histories()) open_host_pages(history);
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
    if (history->watched.empty()) return runtime.memory().accessible(address, 1);  // another thread has opened it meanwhile
    note_host_access(runtime, *history, address, is_write, place);
    open_host_pages(*history);
    return true;
}

HostFunctionScope::HostFunctionScope() {
    if (watch().open++ == 0) open_host_pages();
}

HostFunctionScope::~HostFunctionScope() {
    if (--watch().open != 0 || !watch().is_on) return;
    for (auto& [address, history] : histories()) {
        prune(history);
        open_host_pages(history);
        if (is_watchable(history)) protect_all(history);
    }
}

}  // namespace aicf::emu

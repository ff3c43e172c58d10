#include "touches.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "host_watch.hpp"
#include "memory_ops.hpp"

namespace aicf::emu {
namespace {

constexpr size_t kMostAccesses = 32;  // of a component to an allocation that nobody has waited for; older ones are dropped: less is found
constexpr size_t kMostHistories = 4096;

constexpr size_t index_of(Touch touch) { return static_cast<size_t>(touch); }

// By kinds of access: whether two of them race. Two strong ones do not, two reads do not.
constexpr bool kConflicts[kNumTouches][kNumTouches] = {
    {false, true, false, true},  // read
    {true, true, true, true},  // write
    {false, true, false, false},  // strong read
    {true, true, false, false},  // strong write
};

constexpr const char* kVerbs[] = {"reads", "writes", "reads (volatile or atomic)", "writes (volatile or atomic)"};

struct Overlap {
    Interval range;  // the first one
    uint64_t bytes = 0;
    Touch first{}, then{};
};

std::optional<Overlap> intersect(const std::vector<Interval>& a, const std::vector<Interval>& b) {
    Overlap found;
    for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
        const Interval common{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
        if (common.begin < common.end) {
            if (found.bytes == 0) found.range = common;
            found.bytes += common.end - common.begin;
        }
        a[i].end < b[j].end ? ++i : ++j;
    }
    return found.bytes == 0 ? std::nullopt : std::optional(found);
}

std::optional<Overlap> find_conflict(const Access& first, const Access& then) {
    if (first.hull.end <= then.hull.begin || then.hull.end <= first.hull.begin) return std::nullopt;
    for (size_t i = 0; i < kNumTouches; ++i) {
        for (size_t j = 0; j < kNumTouches; ++j) {
            if (!kConflicts[i][j] || first.of[i].empty() || then.of[j].empty()) continue;
            if (auto overlap = intersect(first.of[i], then.of[j])) {
                overlap->first = static_cast<Touch>(i);
                overlap->then = static_cast<Touch>(j);
                return overlap;
            }
        }
    }
    return std::nullopt;
}

std::string describe_call(const Work& work) {
    const std::string place = describe_host_place(work.site.place, work.kernel);
    return describe_work(work) + ", " + work.site.function + " (call " + std::to_string(work.site.call) + ") in " + describe_queue(work) +
           (place.empty() ? "" : ", " + place);
}

// Each pair of places is told once.
bool is_new(const std::string& first_line, const Work& first, uint64_t then_place) {
    static auto* told = new std::set<std::tuple<std::string, uint64_t, uint64_t>>;
    return told->emplace(first_line, first.site.place[0], then_place).second;
}

std::string early_event_hint(const Work& first, const Work* then) {
    const EventWait* wait = find_early_event(first, then);
    if (wait == nullptr) return "";
    return std::string("the event that ") + wait->function + " (call " + std::to_string(wait->call) +
           ") waits for was recorded too early: by call " + std::to_string(wait->event.call) + ", before call " +
           std::to_string(first.queued) + " queued this work\n";
}

void report_work(Runtime& runtime, const Access& first, const Access& then, const Overlap& overlap) {
    const std::string head = "unordered work on the same memory: " + describe_work(*first.work) + " " + kVerbs[index_of(overlap.first)] +
                             ", " + describe_work(*then.work) + " " + kVerbs[index_of(overlap.then)] + "\n";
    if (!is_new(head, *first.work, then.work->site.place[0])) return;
    const std::string hint = early_event_hint(*first.work, then.work.get());
    std::string text = head + std::to_string(overlap.bytes) + " bytes, the first at " + hex(overlap.range.begin) + ", " +
                       describe_place(runtime, overlap.range.begin) + "\n    one:   " + describe_call(*first.work) +
                       "\n    other: " + describe_call(*then.work) + "\n";
    text += hint.empty() ? "nothing makes the one wait for the other: record an event after the one and wait for it (cudaStreamWaitEvent) "
                           "before the other, or use one stream\n"
                         : hint;
    runtime.add_report("stream_race", Severity::kError, text, overlap.range.begin);
}

void add(Runtime& runtime, History& history, Access access) {
    prune(history);
    const Work& work = *access.work;
    for (const auto& [component, others] : history.accesses) {
        if (component == work.component) continue;
        for (auto other = others.rbegin(); other != others.rend() && !comes_before(*other->work, work); ++other) {
            if (comes_before(work, *other->work)) continue;
            const auto overlap = find_conflict(*other, access);
            if (!overlap) continue;
            report_work(runtime, *other, access, *overlap);
            break;  // those before it come before it
        }
    }
    std::deque<Access>& own = history.accesses[work.component];
    const auto equal = [](const std::vector<Interval>& a, const std::vector<Interval>& b) {
        return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                          [](const Interval& x, const Interval& y) { return x.begin == y.begin && x.end == y.end; });
    };
    // What races with an earlier one of the same bytes races with this one too.
    std::erase_if(own, [&](const Access& old) {
        return std::equal(old.of.begin(), old.of.end(), access.of.begin(), equal) && !comes_before(work, *old.work);
    });
    if (own.size() == kMostAccesses) own.pop_front();
    own.push_back(std::move(access));
    watch_host_pages(history, own.back());
}

History& history_of(Runtime& runtime, const Allocation& allocation) {
    if (histories().size() > kMostHistories) {
        for (auto entry = histories().begin(); entry != histories().end();) {
            prune(entry->second);
            const bool is_over = entry->second.accesses.empty() && entry->second.watched.empty();
            entry = is_over ? histories().erase(entry) : std::next(entry);
        }
    }
    History& history = histories()[allocation.address];
    if (history.serial != allocation.serial) {
        open_host_pages(history);
        history = {};
        history.serial = allocation.serial;
        history.range = {allocation.address, allocation.address + allocation.size_bytes};
        history.kind = allocation.kind;
    }
    return history;
}

// The rows of one side of a copy or fill, within an allocation; many rows are cut off as a launch's intervals are.
std::vector<Interval> list_rows(const MemoryRows& rows) {
    constexpr size_t kMostRows = 4096;
    std::vector<Interval> list;
    for (size_t z = 0; z < rows.depth; ++z) {
        for (size_t y = 0; y < rows.height; ++y) {
            const uint64_t begin = rows.base + z * rows.slice + y * rows.pitch;
            if (!list.empty() && list.back().end == begin)
                list.back().end += rows.width;
            else if (list.size() == kMostRows || (!list.empty() && begin < list.back().end))
                return list;
            else
                list.push_back({begin, begin + rows.width});
        }
    }
    return list;
}

void note_rows(Runtime& runtime, const std::shared_ptr<Work>& work, const MemoryRows& rows, Touch touch) {
    if (rows.width == 0 || rows.height == 0 || rows.depth == 0) return;
    const Allocation* allocation = runtime.memory().find(rows.base);
    if (allocation == nullptr || rows.base < allocation->address) return;
    Access access{work, {}, {}};
    std::vector<Interval>& list = access.of[index_of(touch)];
    list = list_rows(rows);
    access.hull = {list.front().begin, list.back().end};
    add(runtime, history_of(runtime, *allocation), std::move(access));
}

void note_whole(Runtime& runtime, const std::shared_ptr<Work>& work, uint64_t address) {
    const Allocation* allocation = runtime.memory().find(address);
    if (allocation != nullptr && allocation->address == address)
        note_rows(runtime, work, {address, 0, 0, allocation->size_bytes, 1, 1}, Touch::kWrite);
}

}  // namespace

std::map<uint64_t, History>& histories() {
    static auto* all = new std::map<uint64_t, History>;
    return *all;
}

History* find_history(uint64_t address) {
    auto found = histories().upper_bound(address);
    if (found == histories().begin()) return nullptr;
    History& history = std::prev(found)->second;
    return address < history.range.end ? &history : nullptr;
}

bool prune(History& history) {
    bool has_ended = false;
    for (auto entry = history.accesses.begin(); entry != history.accesses.end();) {
        std::deque<Access>& accesses = entry->second;
        const uint64_t waited = host_clock().at(entry->first);
        has_ended |= std::erase_if(accesses, [&](const Access& access) { return access.work->number <= waited; }) != 0;
        entry = accesses.empty() ? history.accesses.erase(entry) : std::next(entry);
    }
    return has_ended;
}

void forget_touches(Runtime& runtime) {
    open_host_pages();
    histories().clear();
}

void note_operands(Runtime& runtime, const std::shared_ptr<Work>& work, const Operation& operation) {
    if (work == nullptr) return;
    if (const auto* copy = std::get_if<CopyOp>(&operation)) {
        const auto [dst, src] = rows_of_copy(runtime, copy->params);
        note_rows(runtime, work, src, Touch::kRead);
        note_rows(runtime, work, dst, Touch::kWrite);
    } else if (const auto* fill = std::get_if<FillOp>(&operation)) {
        note_rows(runtime, work, rows_of_fill(fill->params, fill->depth, fill->slice_pitch), Touch::kWrite);
    } else if (const auto* release = std::get_if<FreeOp>(&operation)) {
        note_whole(runtime, work, release->address);
    } else if (const auto* alloc = std::get_if<AllocOp>(&operation)) {
        note_whole(runtime, work, to_address(alloc->params.dptr));
    }
}

void note_footprint(Runtime& runtime, const std::shared_ptr<Work>& work, const Footprint& footprint) {
    if (work == nullptr) return;
    std::map<uint64_t, Access> parts;  // by allocation
    std::map<uint64_t, const Allocation*> allocations;
    bool signals_host = false;
    for (size_t kind = 0; kind < kNumTouches; ++kind) {
        for (Interval rest : footprint[kind]) {
            while (rest.begin < rest.end) {
                const Allocation* allocation = runtime.memory().find(rest.begin);
                if (allocation == nullptr || rest.begin < allocation->address) break;
                const uint64_t end = std::min(rest.end, allocation->address + allocation->size_bytes);
                if (end <= rest.begin) break;
                if (allocation->kind != MemoryKind::kHeap) {
                    Access& access = parts[allocation->address];
                    allocations[allocation->address] = allocation;
                    access.of[kind].push_back({rest.begin, end});
                    access.hull.begin = access.work == nullptr ? rest.begin : std::min(access.hull.begin, rest.begin);
                    access.hull.end = std::max(access.hull.end, end);
                    access.work = work;
                    signals_host |= kind == index_of(Touch::kStrongWrite) && is_host_visible(allocation->kind);
                }
                rest.begin = end;
            }
        }
    }
    for (auto& [address, access] : parts) add(runtime, history_of(runtime, *allocations[address]), std::move(access));
    // The host may learn from that word that the work is done.
    if (signals_host) host_waited_for(runtime, work->clock);
}

void note_host_access(Runtime& runtime, History& history, uint64_t address, bool is_write, const HostPlace& place) {
    prune(history);
    for (const auto& [component, accesses] : history.accesses) {
        for (auto access = accesses.rbegin(); access != accesses.rend(); ++access) {
            for (const Touch touch : {Touch::kWrite, Touch::kRead}) {
                if (touch == Touch::kRead && !is_write) continue;
                const std::vector<Interval>& list = access->of[index_of(touch)];
                const bool inside =
                    std::any_of(list.begin(), list.end(), [&](const Interval& i) { return address >= i.begin && address < i.end; });
                if (!inside) continue;
                const Work& work = *access->work;
                const std::string head = std::string("the host ") + (is_write ? "writes" : "reads") + " memory that " +
                                         describe_work(work) + (touch == Touch::kWrite ? " writes" : " reads") +
                                         ", and has not waited for it\n";
                if (!is_new(head, work, place[0])) return;
                const std::string hint = early_event_hint(work, nullptr);
                const std::string where = describe_host_place(place);
                runtime.add_report(
                    is_write ? "host_write_in_flight" : "host_read_in_flight", Severity::kError,
                    head + "byte at " + hex(address) + ", " + describe_place(runtime, address) + "\n    work: " + describe_call(work) +
                        "\n    host: " + (where.empty() ? "unknown code" : where) + "\n" +
                        (hint.empty()
                             ? "wait before that: cudaStreamSynchronize, cudaDeviceSynchronize, or cudaEventSynchronize for an event "
                               "that is recorded after the work\n"
                             : hint),
                    address);
                return;
            }
        }
    }
}

}  // namespace aicf::emu

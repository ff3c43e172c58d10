// Which queued work comes before which: vector clocks over streams, the chains of graphs, and the host, kept in both modes and independent
// of when the work runs. All threads of the host are one, which knows what any of its calls has waited for: how threads wait for each other
// is not seen, so nothing is found that they may have ordered.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "clock.hpp"
#include "graph.hpp"
#include "host_place.hpp"

namespace aicf::emu {

// One operation of a stream, or node of a graph's launch. It is described when it is reported: every launch makes one.
struct Work {
    const char* kind = "";  // "kernel", "a copy"
    std::string kernel;  // its mangled name, "" for other work
    Stream::Kind stream = Stream::Kind::kCreated;
    bool is_blocking = true;
    uint64_t ordinal = 0;  // Stream::ordinal
    int node = -1;  // of a graph, in the order of its launch
    CallSite site;  // of the host's call; of a graph's node: the one that made it
    uint64_t queued = 0;  // number of the call that queued it: of a graph's node, the launch
    uint32_t component = 0;
    uint64_t number = 0;  // in its component, from 1
    Clock clock;  // what has ended when it ends
};

std::string describe_work(const Work& work);  // "kernel saxpy"
std::string describe_queue(const Work& work);  // "stream #2 (non-blocking)"

inline bool comes_before(const Work& first, const Work& then) { return then.clock.at(first.component) >= first.number; }

// A wait for an event, for the hint that it had been recorded too early.
struct EventWait {
    EventOrder event;
    bool by_host = false;
    uint32_t component = 0;  // of the stream that waits
    const char* function = "";
    uint64_t call = 0;
};

// The call that the current thread is in; the place only where work is ordered.
CallSite current_site(const Runtime& runtime);

bool is_ordering(const Runtime& runtime);  // the check `streamcheck` is on
// Whether kernels have to note what they touch: not in a program that has the legacy default stream alone.
bool needs_footprints(const Runtime& runtime);
void note_concurrency();  // there is a second stream
void forget_order(Runtime& runtime);

// The stream's next work; null when nothing is ordered.
std::shared_ptr<Work> begin_work(Runtime& runtime, Stream& stream, const Operation& operation);
using GraphWork = std::unordered_map<const Node*, std::shared_ptr<Work>>;
GraphWork begin_graph_work(Runtime& runtime, Stream& stream, GraphExec& exec, const std::vector<Node*>& order);
void stream_waits(Runtime& runtime, Stream& stream, const Event& event);
void end_stream_order(Runtime& runtime, Stream& stream);  // the stream is destroyed
void give_components(const std::vector<uint32_t>& components);

// The host has waited for this.
const Clock& host_clock();
void host_waited_for(Runtime& runtime, const Clock& clock);
void host_waited_for_stream(Runtime& runtime, Stream& stream);
void host_waited_for_event(Runtime& runtime, const Event& event);
void host_waited_for_device(Runtime& runtime, int device);  // -1: all

// The latest wait by the host, or by `then`'s stream, for an event of `first`'s component that was recorded before `first`; null for none.
const EventWait* find_early_event(const Work& first, const Work* then);

}  // namespace aicf::emu

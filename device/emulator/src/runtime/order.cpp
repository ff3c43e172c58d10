#include "order.hpp"

#include <deque>

#include "host_watch.hpp"
#include "queue.hpp"
#include "touches.hpp"

namespace aicf::emu {
namespace {

constexpr size_t kMostChains = 32;      // of a graph; further ones share these: less is found
constexpr size_t kMostEventWaits = 256;  // the latest

struct State {
    std::vector<uint64_t> numbers{0};  // by component: of its latest work; component 0 is nobody's
    std::vector<uint32_t> free_components;
    Clock host;
    std::deque<EventWait> event_waits;
    bool is_concurrent = false;
};

State& state() {
    static auto* all = new State;
    return *all;
}

uint32_t take_component() {
    State& s = state();
    if (!s.free_components.empty()) {
        const uint32_t component = s.free_components.back();
        s.free_components.pop_back();
        return component;
    }
    s.numbers.push_back(0);
    return static_cast<uint32_t>(s.numbers.size() - 1);
}

// As queue.cpp's work_before().
Clock clock_before(Runtime& runtime, Stream& stream) {
    Clock clock = stream.clock;
    Device& device = runtime.devices[static_cast<size_t>(stream.device)];
    if (stream.kind == Stream::Kind::kLegacy) {
        for (const auto& [handle, other] : runtime.streams)
            if (other->device == stream.device && other->is_blocking()) clock.join(other->clock);
        for (const auto& [thread, other] : device.thread_streams) clock.join(other->clock);
        clock.join(device.detached_clock);
    } else if (stream.is_blocking()) {
        clock.join(device.legacy_stream->clock);
    }
    clock.join(state().host);
    return clock;
}

const char* kind_of(const Operation& operation) {
    if (std::holds_alternative<KernelOp>(operation)) return "kernel";
    if (std::holds_alternative<CopyOp>(operation)) return "a copy";
    if (std::holds_alternative<FillOp>(operation)) return "a memset";
    if (std::holds_alternative<HostOp>(operation)) return "a host function";
    if (std::holds_alternative<AllocOp>(operation)) return "an allocation";
    if (std::holds_alternative<FreeOp>(operation)) return "a release";
    if (std::holds_alternative<ChildOp>(operation)) return "a child graph";
    return node_type_name(operation);
}

std::shared_ptr<Work> make_work(const Operation& operation, const Stream& stream, const CallSite& site, uint32_t component, Clock clock) {
    auto work = std::make_shared<Work>();
    work->kind = kind_of(operation);
    if (const auto* kernel = std::get_if<KernelOp>(&operation)) work->kernel = kernel->kernel->name;
    work->stream = stream.kind;
    work->is_blocking = stream.is_blocking();
    work->ordinal = stream.ordinal;
    work->site = site;
    work->queued = thread_state().call;
    work->component = component;
    work->number = ++state().numbers[component];
    work->clock = std::move(clock);
    work->clock.set(component, work->number);
    return work;
}

void note_record(const Operation& operation, const Work& work) {
    if (const auto* record = std::get_if<RecordOp>(&operation))
        record->event->order = {work.clock, work.component, work.number, thread_state().call};
}

void note_wait(EventWait wait) {
    if (wait.event.number == 0) return;
    wait.function = thread_state().function;
    wait.call = thread_state().call;
    state().event_waits.push_back(std::move(wait));
    if (state().event_waits.size() > kMostEventWaits) state().event_waits.pop_front();
}

}  // namespace

std::string describe_work(const Work& work) { return work.kernel.empty() ? work.kind : "kernel " + short_name(work.kernel); }

std::string describe_queue(const Work& work) {
    const std::string stream = work.stream == Stream::Kind::kLegacy ? "the legacy default stream"
                               : work.stream == Stream::Kind::kPerThread
                                   ? "a per-thread default stream"
                                   : "stream #" + std::to_string(work.ordinal) + (work.is_blocking ? "" : " (non-blocking)");
    if (work.node < 0) return stream;
    return "node " + std::to_string(work.node) + " of a graph that call " + std::to_string(work.queued) + " launched in " + stream;
}

CallSite current_site(const Runtime& runtime) {
    return {thread_state().function, thread_state().call, is_ordering(runtime) ? capture_host_place() : HostPlace{}};
}

bool is_ordering(const Runtime& runtime) { return (runtime.options.checks & kStreamcheck) != 0; }

bool needs_footprints(const Runtime& runtime) {
    if (!is_ordering(runtime)) return false;
    const DeviceMemory* memory = runtime.memory_if_made();
    return state().is_concurrent || (is_watching_host() && memory != nullptr && memory->has_host_visible());
}

void note_concurrency() { state().is_concurrent = true; }

void forget_order(Runtime& runtime) {
    forget_touches(runtime);
    state().event_waits.clear();
    for (size_t component = 1; component < state().numbers.size(); ++component)
        state().host.set(static_cast<uint32_t>(component), state().numbers[component]);
}

std::shared_ptr<Work> begin_work(Runtime& runtime, Stream& stream, const Operation& operation) {
    if (!is_ordering(runtime)) return nullptr;
    if (stream.kind != Stream::Kind::kLegacy || runtime.devices.size() > 1) note_concurrency();
    if (stream.component == 0) stream.component = take_component();
    const CallSite site = needs_footprints(runtime) ? current_site(runtime) : CallSite{thread_state().function, thread_state().call, {}};
    auto work = make_work(operation, stream, site, stream.component, clock_before(runtime, stream));
    stream.clock = work->clock;
    note_record(operation, *work);
    return work;
}

GraphWork begin_graph_work(Runtime& runtime, Stream& stream, GraphExec& exec, const std::vector<Node*>& order) {
    GraphWork all;
    if (!is_ordering(runtime)) return all;
    if (stream.kind != Stream::Kind::kLegacy || runtime.devices.size() > 1) note_concurrency();
    const CallSite site = current_site(runtime);
    Clock begin = clock_before(runtime, stream);
    begin.join(exec.clock);
    Clock end = begin;
    std::unordered_map<const Node*, size_t> chain_of;
    std::vector<const Node*> tails;
    int index = 0;
    for (const Node* node : order) {
        Clock clock = begin;
        size_t chain = tails.size();
        for (const Edge& edge : node->dependencies) {
            clock.join(all.at(edge.from)->clock);
            if (tails[chain_of.at(edge.from)] == edge.from) chain = chain_of.at(edge.from);
        }
        if (chain == tails.size() && chain == kMostChains) chain = 0;
        if (chain == tails.size()) tails.push_back(nullptr);
        tails[chain] = node;
        chain_of[node] = chain;
        if (exec.components.size() <= chain) exec.components.push_back(take_component());
        if (const auto* wait = std::get_if<WaitOp>(&node->operation)) clock.join(wait->event->order.clock);
        const auto work =
            make_work(node->operation, stream, node->site.call != 0 ? node->site : site, exec.components[chain], std::move(clock));
        work->node = index++;
        note_record(node->operation, *work);
        end.join(work->clock);
        all[node] = work;
    }
    if (tails.size() > 1) note_concurrency();
    stream.clock = exec.clock = std::move(end);
    return all;
}

void stream_waits(Runtime& runtime, Stream& stream, const Event& event) {
    if (!is_ordering(runtime)) return;
    if (stream.component == 0) stream.component = take_component();
    stream.clock.join(event.order.clock);
    note_wait({event.order, false, stream.component});
}

void end_stream_order(Runtime& runtime, Stream& stream) {
    if (stream.is_blocking()) runtime.devices[static_cast<size_t>(stream.device)].detached_clock.join(stream.clock);
    if (stream.component != 0) give_components({stream.component});
    stream.component = 0;
}

void give_components(const std::vector<uint32_t>& components) {
    std::vector<uint32_t>& free = state().free_components;
    free.insert(free.end(), components.begin(), components.end());
}

const Clock& host_clock() { return state().host; }

void host_waited_for(Runtime& runtime, const Clock& clock) {
    if (!is_ordering(runtime)) return;
    state().host.join(clock);
    release_host_pages();
}

void host_waited_for_stream(Runtime& runtime, Stream& stream) {
    if (!is_ordering(runtime)) return;
    host_waited_for(runtime, stream.kind == Stream::Kind::kLegacy ? clock_before(runtime, stream) : stream.clock);
}

void host_waited_for_event(Runtime& runtime, const Event& event) {
    if (!is_ordering(runtime)) return;
    note_wait({event.order, true, 0});
    host_waited_for(runtime, event.order.clock);
}

void host_waited_for_device(Runtime& runtime, int device) {
    if (!is_ordering(runtime)) return;
    Clock all;
    for (size_t i = 0; i < runtime.devices.size(); ++i) {
        if (device >= 0 && static_cast<size_t>(device) != i) continue;
        all.join(runtime.devices[i].legacy_stream->clock);
        all.join(runtime.devices[i].detached_clock);
        for (const auto& [thread, stream] : runtime.devices[i].thread_streams) all.join(stream->clock);
    }
    for (const auto& [handle, stream] : runtime.streams)
        if (device < 0 || stream->device == device) all.join(stream->clock);
    host_waited_for(runtime, all);
}

const EventWait* find_early_event(const Work& first, const Work* then) {
    const std::deque<EventWait>& waits = state().event_waits;
    for (auto wait = waits.rbegin(); wait != waits.rend(); ++wait) {
        const bool is_theirs = wait->by_host || (then != nullptr && wait->component == then->component);
        const bool is_early = wait->event.component == first.component && wait->event.number < first.number && wait->call > first.queued;
        if (is_theirs && is_early) return &*wait;
    }
    return nullptr;
}

}  // namespace aicf::emu

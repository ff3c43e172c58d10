// Stream capture: which calls it forbids, how work, records and waits become nodes and edges, and how it begins and ends.
#include <algorithm>

#include "graph.hpp"

namespace aicf::emu {
namespace {

void add_unique(std::vector<Node*>& nodes, Node* node) {
    if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

void require_active(const Capture& capture) {
    require(!capture.invalidated, kErrStreamCaptureInvalidated,
            "an earlier error has invalidated the capture; end it with cudaStreamEndCapture");
}

// Takes the capture away from its streams and from the list of those in progress.
void close_capture(Runtime& runtime, const std::shared_ptr<Capture>& capture) {
    for (Stream* stream : capture->streams) {
        stream->capture.reset();
        stream->capture_tail.clear();
    }
    std::erase(runtime.captures, capture);
}

// The nodes that the origin's next operation comes after.
std::set<const Node*> find_joined(const Capture& capture) {
    std::set<const Node*> reached;
    std::vector<const Node*> open(capture.origin->capture_tail.begin(), capture.origin->capture_tail.end());
    while (!open.empty()) {
        const Node* node = open.back();
        open.pop_back();
        if (!reached.insert(node).second) continue;
        for (const Edge& edge : node->dependencies) open.push_back(edge.from);
    }
    return reached;
}

// True when all that the stream has captured leads to the origin's next operation.
bool is_joined(const Stream& stream, const std::set<const Node*>& joined) {
    return std::ranges::all_of(stream.capture_tail, [&](const Node* node) { return joined.contains(node); });
}

// True when every node of the capture does.
bool all_joined(const Capture& capture) {
    const std::set<const Node*> joined = find_joined(capture);
    return std::ranges::all_of(capture.streams, [&](const Stream* stream) { return is_joined(*stream, joined); });
}

Stream& require_capturable(Runtime& runtime, void* handle, bool per_thread) {
    Stream& stream = find_stream(runtime, handle, per_thread);
    require(stream.kind != Stream::Kind::kLegacy, kErrStreamCaptureUnsupported,
            "the legacy default stream cannot be captured; use a created stream");
    require(stream.capture == nullptr, kErrIllegalState, "the stream is already capturing");
    return stream;
}

std::shared_ptr<Capture> begin_capture(Runtime& runtime, Stream& stream, int mode, std::shared_ptr<Graph> graph) {
    require(mode >= abi::kCaptureGlobal && mode <= abi::kCaptureRelaxed, kErrInvalidValue,
            "the capture mode is not one of 0 (global), 1 (thread-local), 2 (relaxed)");
    auto capture = std::make_shared<Capture>();
    capture->id = runtime.next_id();
    capture->mode = mode;
    capture->owner = std::this_thread::get_id();
    capture->origin = &stream;
    capture->graph = std::move(graph);
    capture->streams.insert(&stream);
    stream.capture = capture;
    stream.capture_tail.clear();
    runtime.captures.push_back(capture);
    return capture;
}

std::shared_ptr<Graph> end_capture(Runtime& runtime, Stream& stream) {
    const std::shared_ptr<Capture> capture = stream.capture;
    require(capture != nullptr, kErrIllegalState, "the stream is not capturing");
    if (capture->origin != &stream) {
        invalidate(*capture);
        throw Failure{kErrStreamCaptureUnmatched, "the capture began in another stream"};
    }
    if (capture->mode != abi::kCaptureRelaxed && capture->owner != std::this_thread::get_id()) {
        close_capture(runtime, capture);
        throw Failure{kErrStreamCaptureWrongThread, "the capture was begun by another thread (only a relaxed one may be ended here)"};
    }
    const bool joined = capture->invalidated || all_joined(*capture);
    close_capture(runtime, capture);
    require(!capture->invalidated, kErrStreamCaptureInvalidated, "an earlier error has invalidated the capture");
    require(joined, kErrStreamCaptureUnjoined,
            "a forked stream was not joined back: record an event in it and wait for that in the origin stream");
    return capture->graph;
}

}  // namespace

void invalidate(Capture& capture) { capture.invalidated = true; }

void leave_capture(Runtime& runtime, Stream& stream) {
    const std::shared_ptr<Capture> capture = stream.capture;
    if (capture == nullptr) return;
    if (capture->origin == &stream) {
        invalidate(*capture);
        close_capture(runtime, capture);
        return;
    }
    if (!is_joined(stream, find_joined(*capture))) invalidate(*capture);
    capture->streams.erase(&stream);
    stream.capture.reset();
}

void forbid_during_capture(Runtime& runtime, const char* what) {
    const int thread_mode = thread_state().capture_mode;
    if (thread_mode == abi::kCaptureRelaxed) return;
    bool forbidden = false;
    for (const auto& capture : runtime.captures) {
        const bool own = capture->owner == std::this_thread::get_id();
        const bool forbids =
            own ? capture->mode != abi::kCaptureRelaxed : thread_mode == abi::kCaptureGlobal && capture->mode == abi::kCaptureGlobal;
        if (!forbids) continue;
        forbidden = true;
        invalidate(*capture);
    }
    if (forbidden) throw Failure{kErrStreamCaptureUnsupported, std::string(what) + " is not permitted while a stream is capturing"};
}

void forbid_on_capturing_stream(Runtime&, Stream& stream, const char* what) {
    if (stream.capture == nullptr) return;
    const bool was_invalidated = stream.capture->invalidated;
    invalidate(*stream.capture);
    if (was_invalidated)
        throw Failure{kErrStreamCaptureInvalidated, "the stream's capture is invalidated; end it with cudaStreamEndCapture"};
    throw Failure{kErrStreamCaptureUnsupported, std::string(what) + " is not permitted on a capturing stream"};
}

void forbid_during_any_capture(Runtime& runtime, const char* what) {
    for (const auto& capture : runtime.captures) invalidate(*capture);
    if (!runtime.captures.empty())
        throw Failure{kErrStreamCaptureUnsupported, std::string(what) + " is not permitted while a stream is capturing, in any mode"};
}

void forbid_implicit_dependency(Runtime& runtime, Stream& stream, bool keep_capture) {
    if (stream.kind != Stream::Kind::kLegacy) return;
    bool forbidden = false;
    for (const auto& capture : runtime.captures) {
        const bool blocking =
            std::any_of(capture->streams.begin(), capture->streams.end(), [](const Stream* s) { return s->is_blocking(); });
        if (!blocking) continue;
        forbidden = true;
        if (!keep_capture) invalidate(*capture);
    }
    if (forbidden)
        throw Failure{kErrStreamCaptureImplicit,
                      "work in the legacy default stream would wait for a capturing stream; use another stream, or make the capturing one "
                      "with cudaStreamNonBlocking"};
}

void forbid_captured_event(Event& event, const char* what) {
    if (!event.captured) return;
    const auto capture = event.capture.lock();
    require(capture != nullptr, kErrInvalidValue, "the event was last recorded in a capture that has ended");
    invalidate(*capture);
    throw Failure{kErrCapturedEvent, std::string(what) + " is not permitted on an event that was last recorded in a capturing stream"};
}

Node* capture_operation(Runtime& runtime, Stream& stream, Operation operation) {
    Capture& capture = *stream.capture;
    require_active(capture);
    Node* node = capture.graph->add(runtime, std::move(operation), stream.capture_tail);
    stream.capture_tail = {node};
    return node;
}

void capture_event_record(Runtime& runtime, Stream& stream, const std::shared_ptr<Event>& event, bool external) {
    require_active(*stream.capture);
    if (external) {
        capture_operation(runtime, stream, RecordOp{event});
        return;
    }
    event->captured = true;
    event->capture = stream.capture;
    event->captured_nodes = stream.capture_tail;
}

bool capture_event_wait(Runtime& runtime, Stream& stream, const std::shared_ptr<Event>& event, bool external) {
    const auto theirs = event->captured ? event->capture.lock() : nullptr;
    require(!event->captured || theirs != nullptr, kErrInvalidValue, "the event was last recorded in a capture that has ended");
    if (stream.capture == nullptr) {
        if (theirs == nullptr) return false;
        require_active(*theirs);
        if (stream.kind == Stream::Kind::kLegacy) {
            invalidate(*theirs);
            throw Failure{kErrStreamCaptureImplicit, "the legacy default stream cannot join a capture"};
        }
        stream.capture = theirs;
        stream.capture_tail = event->captured_nodes;
        theirs->streams.insert(&stream);
        return true;
    }
    require_active(*stream.capture);
    if (external) {
        capture_operation(runtime, stream, WaitOp{event});
        return true;
    }
    if (theirs == nullptr) {
        if (!event->recorded && !event->captured) return true;  // waiting for an event that was never recorded does nothing
        invalidate(*stream.capture);
        throw Failure{kErrStreamCaptureIsolation, "a capturing stream waits for an event that was recorded outside its capture"};
    }
    if (theirs != stream.capture) {
        invalidate(*theirs);
        invalidate(*stream.capture);
        throw Failure{kErrStreamCaptureMerge, "the event belongs to another capture"};
    }
    for (Node* node : event->captured_nodes) add_unique(stream.capture_tail, node);
    return true;
}

}  // namespace aicf::emu

using namespace aicf::emu;

AICF_TWIN_API(cudaStreamBeginCapture, _ptsz, (void* stream, int mode), (stream, mode)) {
    return api("cudaStreamBeginCapture", [&](Runtime& runtime) {
        Stream& target = require_capturable(runtime, stream, per_thread);
        begin_capture(runtime, target, mode, std::make_shared<Graph>(runtime.next_id()));
    });
}

AICF_TWIN_API(cudaStreamBeginCaptureToGraph, _ptsz,
              (void* stream, void* graph, void* const* dependencies, const abi::GraphEdgeData* data, size_t count, int mode),
              (stream, graph, dependencies, data, count, mode)) {
    return api("cudaStreamBeginCaptureToGraph", [&](Runtime& runtime) {
        Stream& target = require_capturable(runtime, stream, per_thread);
        std::vector<Node*> tail;
        for (size_t i = 0; i < count; ++i) tail.push_back(find_node(dependencies[i]));
        auto capture = begin_capture(runtime, target, mode, find_graph(runtime, graph));
        capture->graph_is_users = true;
        target.capture_tail = std::move(tail);
    });
}

AICF_TWIN_API(cudaStreamEndCapture, _ptsz, (void* stream, void** graph), (stream, graph)) {
    return api("cudaStreamEndCapture", [&](Runtime& runtime) {
        if (graph != nullptr) *graph = nullptr;
        Stream& source = find_stream(runtime, stream, per_thread);
        const std::shared_ptr<Capture> capture = source.capture;
        try {
            const std::shared_ptr<Graph> made = end_capture(runtime, source);
            if (!capture->graph_is_users) runtime.graphs[made.get()] = made;
            if (graph != nullptr) *graph = made.get();
        } catch (const Failure&) {
            if (capture != nullptr && source.capture == nullptr && !capture->graph_is_users) runtime.graphs.erase(capture->graph.get());
            throw;
        }
    });
}

AICF_TWIN_API(cudaStreamIsCapturing, _ptsz, (void* stream, int* status), (stream, status)) {
    return api("cudaStreamIsCapturing", [&](Runtime& runtime) {
        require(status != nullptr, kErrInvalidValue, "the status pointer is null");
        Stream& source = find_stream(runtime, stream, per_thread);
        forbid_implicit_dependency(runtime, source, true);
        *status = source.capture == nullptr     ? abi::kCaptureNone
                  : source.capture->invalidated ? abi::kCaptureInvalidated
                                                : abi::kCaptureActive;
    });
}

AICF_TWIN_API(cudaStreamGetCaptureInfo, _ptsz,
              (void* stream, int* status, unsigned long long* id, void** graph, void* const** dependencies,
               const abi::GraphEdgeData** edge_data, size_t* count),
              (stream, status, id, graph, dependencies, edge_data, count)) {
    return api("cudaStreamGetCaptureInfo", [&](Runtime& runtime) {
        require(status != nullptr, kErrInvalidValue, "the status pointer is null");
        Stream& source = find_stream(runtime, stream, per_thread);
        forbid_implicit_dependency(runtime, source, true);
        *status = source.capture == nullptr     ? abi::kCaptureNone
                  : source.capture->invalidated ? abi::kCaptureInvalidated
                                                : abi::kCaptureActive;
        if (*status != abi::kCaptureActive) return;
        source.tail_edges.assign(source.capture_tail.size(), {});
        if (id != nullptr) *id = source.capture->id;
        if (graph != nullptr) {
            if (!source.capture->graph_is_users)  // usable as a handle while the capture goes on
                runtime.graphs[source.capture->graph.get()] = source.capture->graph;
            *graph = source.capture->graph.get();
        }
        if (dependencies != nullptr) *dependencies = reinterpret_cast<void* const*>(source.capture_tail.data());
        if (edge_data != nullptr) *edge_data = source.tail_edges.data();
        if (count != nullptr) *count = source.capture_tail.size();
    });
}

AICF_TWIN_API(cudaStreamUpdateCaptureDependencies, _ptsz,
              (void* stream, void** dependencies, const abi::GraphEdgeData* data, size_t count, unsigned flags),
              (stream, dependencies, data, count, flags)) {
    return api("cudaStreamUpdateCaptureDependencies", [&](Runtime& runtime) {
        constexpr unsigned kAdd = 0, kSet = 1;
        require(flags == kAdd || flags == kSet, kErrInvalidValue, "flags are 0 (add) or 1 (set)");
        Stream& target = find_stream(runtime, stream, per_thread);
        require(target.capture != nullptr, kErrIllegalState, "the stream is not capturing");
        require_active(*target.capture);
        std::vector<Node*> tail = flags == kSet ? std::vector<Node*>{} : target.capture_tail;
        for (size_t i = 0; i < count; ++i) {
            Node* node = find_node(dependencies[i]);
            require(node->graph == target.capture->graph.get(), kErrInvalidValue, "a dependency is a node of another graph");
            add_unique(tail, node);
        }
        target.capture_tail = std::move(tail);
    });
}

AICF_API cudaThreadExchangeStreamCaptureMode(int* mode) {
    return api("cudaThreadExchangeStreamCaptureMode", [&](Runtime&) {
        require(mode != nullptr && *mode >= abi::kCaptureGlobal && *mode <= abi::kCaptureRelaxed, kErrInvalidValue,
                "the capture mode is not one of 0, 1, 2");
        std::swap(*mode, thread_state().capture_mode);
    });
}

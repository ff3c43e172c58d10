// Streams, events, host functions.
#include <algorithm>

#include "order.hpp"
#include "pools.hpp"
#include "queue.hpp"

using namespace aicf::emu;

namespace {

constexpr unsigned kNonBlocking = 1;
constexpr unsigned kDisableTiming = 2;
constexpr unsigned kExternal = 1;
constexpr int kGreatestPriority = -5;

int create_stream(const char* function, void** out, unsigned flags, int priority) {
    return api(function, [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        require(flags <= kNonBlocking, kErrInvalidValue, "flags are 0 or 1 (cudaStreamNonBlocking)");
        auto stream = std::make_shared<Stream>();
        stream->id = runtime.next_id();
        stream->flags = flags;
        stream->priority = std::clamp(priority, kGreatestPriority, 0);
        stream->device = thread_state().device;
        static uint64_t created = 0;
        stream->ordinal = ++created;
        note_concurrency();
        *out = stream.get();
        runtime.streams[stream.get()] = std::move(stream);
    });
}

int create_event(const char* function, void** out, unsigned flags) {
    return api(function, [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        require(flags <= 7, kErrInvalidValue, "flags are a combination of 1 (blocking sync), 2 (disable timing), 4 (interprocess)");
        require((flags & 4) == 0, kErrNotSupported, "events of the emulated device cannot be shared between processes");
        auto event = std::make_shared<Event>();
        event->flags = flags;
        event->device = thread_state().device;
        *out = event.get();
        runtime.events[event.get()] = std::move(event);
    });
}

int record_event(const char* function, void* event, void* stream, unsigned flags, bool per_thread) {
    return api(function, [&](Runtime& runtime) {
        require(flags <= kExternal, kErrInvalidValue, "flags are 0 or 1 (cudaEventRecordExternal)");
        const auto target = find_event(runtime, event);
        Stream& source = find_stream(runtime, stream, per_thread);
        if (source.device != target->device) {
            const std::string text = "an event of device " + std::to_string(target->device) + " is recorded in a stream of device " +
                                     std::to_string(source.device);
            runtime.add_report("wrong_device", Severity::kError, text + "\n");
            throw Failure{kErrInvalidResourceHandle, text};
        }
        if (source.capture != nullptr) {
            capture_event_record(runtime, source, target, flags == kExternal);
            return;
        }
        forbid_implicit_dependency(runtime, source);
        enqueue(runtime, source, RecordOp{target});
    });
}

// Waiting for or asking about executed work.
void check_completion(Runtime& runtime, Stream& stream, const char* what) {
    forbid_on_capturing_stream(runtime, stream, what);
    forbid_implicit_dependency(runtime, stream);
    forbid_during_capture(runtime, what);
}

int submit_host(const char* function, void* stream, const HostOp& operation, bool per_thread) {
    return api(function, [&](Runtime& runtime) {
        require(operation.function != nullptr, kErrInvalidValue, "the function is null");
        submit(runtime, find_stream(runtime, stream, per_thread), operation);
    });
}

}  // namespace

AICF_API cudaStreamCreate(void** stream) { return create_stream("cudaStreamCreate", stream, 0, 0); }
AICF_API cudaStreamCreateWithFlags(void** stream, unsigned flags) { return create_stream("cudaStreamCreateWithFlags", stream, flags, 0); }
AICF_API cudaStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
    return create_stream("cudaStreamCreateWithPriority", stream, flags, priority);
}

AICF_API cudaStreamDestroy(void* stream) {
    return api("cudaStreamDestroy", [&](Runtime& runtime) {
        Stream& target = find_stream(runtime, stream, false);
        require(target.kind == Stream::Kind::kCreated, kErrInvalidResourceHandle, "a default stream cannot be destroyed");
        leave_capture(runtime, target);
        detach_work(runtime, target);
        runtime.bury("stream", stream, runtime.streams.extract(stream).mapped());
    });
}

AICF_TWIN_API(cudaStreamSynchronize, _ptsz, (void* stream), (stream)) {
    return api("cudaStreamSynchronize", [&](Runtime& runtime) {
        Stream& target = find_stream(runtime, stream, per_thread);
        check_completion(runtime, target, "cudaStreamSynchronize");
        finish_stream(runtime, target);
        trim_pools(runtime);
    });
}

AICF_TWIN_API(cudaStreamQuery, _ptsz, (void* stream), (stream)) {
    return api("cudaStreamQuery", [&](Runtime& runtime) {
        Stream& target = find_stream(runtime, stream, per_thread);
        check_completion(runtime, target, "cudaStreamQuery");
        bool is_done = true;
        for (const auto& task : work_of(runtime, target)) is_done = is_done_after_a_step(runtime, task) && is_done;
        if (!is_done) throw Failure{kErrNotReady, ""};
        host_waited_for_stream(runtime, target);
    });
}

AICF_TWIN_API(cudaStreamWaitEvent, _ptsz, (void* stream, void* event, unsigned flags), (stream, event, flags)) {
    return api("cudaStreamWaitEvent", [&](Runtime& runtime) {
        require(flags <= kExternal, kErrInvalidValue, "flags are 0 or 1 (cudaEventWaitExternal)");
        Stream& target = find_stream(runtime, stream, per_thread);
        const auto source = find_event(runtime, event);
        if (capture_event_wait(runtime, target, source, flags == kExternal)) return;
        forbid_implicit_dependency(runtime, target);
        stream_waits(runtime, target, *source);
        if (source->task != nullptr) enqueue(runtime, target, WaitOp{source}, {source->task});
    });
}

AICF_TWIN_API(cudaStreamGetFlags, _ptsz, (void* stream, unsigned* flags), (stream, flags)) {
    return api("cudaStreamGetFlags", [&](Runtime& runtime) {
        require(flags != nullptr, kErrInvalidValue, "the result pointer is null");
        *flags = find_stream(runtime, stream, per_thread).flags;
    });
}

AICF_TWIN_API(cudaStreamGetPriority, _ptsz, (void* stream, int* priority), (stream, priority)) {
    return api("cudaStreamGetPriority", [&](Runtime& runtime) {
        require(priority != nullptr, kErrInvalidValue, "the result pointer is null");
        *priority = find_stream(runtime, stream, per_thread).priority;
    });
}

AICF_TWIN_API(cudaStreamGetId, _ptsz, (void* stream, unsigned long long* id), (stream, id)) {
    return api("cudaStreamGetId", [&](Runtime& runtime) {
        require(id != nullptr, kErrInvalidValue, "the result pointer is null");
        *id = find_stream(runtime, stream, per_thread).id;
    });
}

AICF_TWIN_API(cudaStreamGetDevice, _ptsz, (void* stream, int* device), (stream, device)) {
    return api("cudaStreamGetDevice", [&](Runtime& runtime) {
        require(device != nullptr, kErrInvalidValue, "the result pointer is null");
        *device = find_stream(runtime, stream, per_thread).device;
    });
}

AICF_TWIN_API(cudaStreamGetAttribute, _ptsz, (void* stream, int id, abi::LaunchAttributeValue* value), (stream, id, value)) {
    return api("cudaStreamGetAttribute", [&](Runtime& runtime) {
        require(value != nullptr, kErrInvalidValue, "the result pointer is null");
        const Stream& source = find_stream(runtime, stream, per_thread);
        const auto found = source.attributes.find(id);
        *value = found == source.attributes.end() ? abi::LaunchAttributeValue{} : found->second;
        if (id == abi::kAttributePriority) value->priority = source.priority;
    });
}

AICF_TWIN_API(cudaStreamSetAttribute, _ptsz, (void* stream, int id, const abi::LaunchAttributeValue* value), (stream, id, value)) {
    return api("cudaStreamSetAttribute", [&](Runtime& runtime) {
        require(value != nullptr, kErrInvalidValue, "the value is null");
        const bool known = id == abi::kAttributeAccessPolicyWindow || id == abi::kAttributeSynchronizationPolicy ||
                           id == abi::kAttributePriority || id == abi::kAttributeMemSyncDomainMap || id == abi::kAttributeMemSyncDomain;
        if (!known) throw Failure{kErrInvalidValue, "attribute " + std::to_string(id) + " is none that a stream has"};
        Stream& target = find_stream(runtime, stream, per_thread);
        target.attributes[id] = *value;
        if (id == abi::kAttributePriority) target.priority = std::clamp(value->priority, kGreatestPriority, 0);
    });
}

AICF_TWIN_API(cudaStreamCopyAttributes, _ptsz, (void* dst, void* src), (dst, src)) {
    return api("cudaStreamCopyAttributes", [&](Runtime& runtime) {
        const Stream& source = find_stream(runtime, src, per_thread);
        find_stream(runtime, dst, per_thread).attributes = source.attributes;
    });
}

AICF_TWIN_API(cudaLaunchHostFunc, _ptsz, (void* stream, abi::HostFn function, void* user_data), (stream, function, user_data)) {
    return submit_host("cudaLaunchHostFunc", stream, {function, user_data, nullptr, false}, per_thread);
}

AICF_TWIN_API(cudaStreamAddCallback, _ptsz, (void* stream, void* callback, void* user_data, unsigned flags),
              (stream, callback, user_data, flags)) {
    if (flags != 0) return record_error(kErrInvalidValue, "cudaStreamAddCallback: flags must be 0");
    return submit_host("cudaStreamAddCallback", stream, {reinterpret_cast<abi::HostFn>(callback), user_data, stream, true}, per_thread);
}

// Events.

AICF_API cudaEventCreate(void** event) { return create_event("cudaEventCreate", event, 0); }
AICF_API cudaEventCreateWithFlags(void** event, unsigned flags) { return create_event("cudaEventCreateWithFlags", event, flags); }

AICF_API cudaEventDestroy(void* event) {
    return api("cudaEventDestroy", [&](Runtime& runtime) {
        find_event(runtime, event);
        runtime.bury("event", event, runtime.events.extract(event).mapped());
    });
}

AICF_TWIN_API(cudaEventRecord, _ptsz, (void* event, void* stream), (event, stream)) {
    return record_event("cudaEventRecord", event, stream, 0, per_thread);
}

AICF_TWIN_API(cudaEventRecordWithFlags, _ptsz, (void* event, void* stream, unsigned flags), (event, stream, flags)) {
    return record_event("cudaEventRecordWithFlags", event, stream, flags, per_thread);
}

AICF_API cudaEventQuery(void* event) {
    return api("cudaEventQuery", [&](Runtime& runtime) {
        const auto target = find_event(runtime, event);
        forbid_captured_event(*target, "cudaEventQuery");
        forbid_during_capture(runtime, "cudaEventQuery");
        if (!is_done_after_a_step(runtime, target->task)) throw Failure{kErrNotReady, ""};
        host_waited_for_event(runtime, *target);
    });
}

AICF_API cudaEventSynchronize(void* event) {
    return api("cudaEventSynchronize", [&](Runtime& runtime) {
        const auto target = find_event(runtime, event);
        forbid_captured_event(*target, "cudaEventSynchronize");
        forbid_during_capture(runtime, "cudaEventSynchronize");
        finish_event(runtime, *target);
    });
}

AICF_API cudaEventElapsedTime(float* milliseconds, void* start, void* end) {
    return api("cudaEventElapsedTime", [&](Runtime& runtime) {
        require(milliseconds != nullptr, kErrInvalidValue, "the result pointer is null");
        const auto first = find_event(runtime, start), last = find_event(runtime, end);
        forbid_captured_event(*first, "cudaEventElapsedTime");
        forbid_captured_event(*last, "cudaEventElapsedTime");
        require(((first->flags | last->flags) & kDisableTiming) == 0, kErrInvalidResourceHandle,
                "an event was made with cudaEventDisableTiming");
        require(first->recorded && last->recorded, kErrInvalidResourceHandle, "an event was never recorded");
        require(first->device == last->device, kErrInvalidResourceHandle, "the events are of two devices");
        const auto is_done = [](const Event& each) { return each.task == nullptr || each.task->done; };
        if (!is_done(*first) || !is_done(*last)) throw Failure{kErrNotReady, ""};
        host_waited_for(runtime, first->order.clock);
        host_waited_for(runtime, last->order.clock);
        *milliseconds = std::chrono::duration<float, std::milli>(last->time - first->time).count();
    });
}

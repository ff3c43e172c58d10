#include "queue.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <random>
#include <thread>
#include <unordered_set>

#include "leaks.hpp"
#include "memory_ops.hpp"
#include "order.hpp"
#include "touches.hpp"

namespace aicf::emu {
namespace {

using TaskPtr = std::shared_ptr<Task>;

constexpr size_t kMostPending = 1000;  // about what a GPU's queue holds before a launch waits
constexpr auto kIdle = std::chrono::milliseconds(1000);
constexpr uint64_t kOneInSteps = 4;    // how often a wait also runs work that it does not wait for

struct Queue {
    std::vector<TaskPtr> pending;  // in the order of queueing
    std::mt19937_64 random;
    bool seeded = false;  // at the first draw: the seed may be set late
    std::condition_variable_any ended;  // a task that another thread runs
    int failure = kNoError;             // of a task, for the wait that ran it
    std::string failure_message;
};

Queue& queue() {
    static auto* all = new Queue;
    return *all;
}

uint64_t draw(Runtime& runtime, uint64_t count) {
    Queue& q = queue();
    if (!q.seeded) restart_order(runtime);
    return q.random() % count;
}

bool is_ready(const Task& task) {
    return !task.running && std::all_of(task.waits_for.begin(), task.waits_for.end(), [](const TaskPtr& other) { return other->done; });
}

// Whose work runs, for what it touches, and where it was queued, if that was an earlier call.
class WorkScope {
public:
    explicit WorkScope(std::shared_ptr<Work> work, const HostPlace* queued_at = nullptr)
        : before_(std::exchange(thread_.current_work, std::move(work))), queued_before_(std::exchange(thread_.queued_at, queued_at)) {}
    ~WorkScope() {
        thread_.current_work = std::move(before_);
        thread_.queued_at = queued_before_;
    }
    WorkScope(const WorkScope&) = delete;
    WorkScope& operator=(const WorkScope&) = delete;

private:
    ThreadState& thread_ = thread_state();
    std::shared_ptr<Work> before_;
    const HostPlace* queued_before_;
};

// Runs it now. A copy or fill that is refused has touched nothing; a release is noted while its memory is there.
void execute_as(Runtime& runtime, const std::shared_ptr<Work>& work, const Operation& operation) {
    const WorkScope scope(work);
    const bool may_be_refused = std::holds_alternative<CopyOp>(operation) || std::holds_alternative<FillOp>(operation);
    if (!may_be_refused) note_operands(runtime, work, operation);
    execute(runtime, operation);
    if (may_be_refused) note_operands(runtime, work, operation);
}

void run_task(Runtime& runtime, const TaskPtr& task) {
    Queue& q = queue();
    const WorkScope scope(task->work, &task->place);
    task->running = true;
    try {
        if (runtime.sticky_error == 0) {
            if (task->action)
                task->action(runtime);
            else
                execute(runtime, task->operation);
        }
    } catch (const Failure& failure) {
        if (q.failure == kNoError) q.failure = failure.code, q.failure_message = failure.message;
    }
    task->done = true;
    task->waits_for.clear();
    std::erase(q.pending, task);
    q.ended.notify_all();
}

// Runs one of the ready tasks, drawn; false when there is none, or others have to end first.
bool run_one_of(Runtime& runtime, const std::function<bool(const TaskPtr&)>& is_wanted) {
    std::vector<TaskPtr> ready;
    for (const TaskPtr& task : queue().pending)
        if (is_ready(*task) && is_wanted(task)) ready.push_back(task);
    if (ready.empty()) return false;
    run_task(runtime, ready[draw(runtime, ready.size())]);
    return true;
}

bool run_any(Runtime& runtime) {
    return run_one_of(runtime, [](const TaskPtr&) { return true; });
}

void add_with_ancestors(const TaskPtr& task, std::unordered_set<const Task*>& all) {
    std::vector<const Task*> open{task.get()};
    while (!open.empty()) {
        const Task* each = open.back();
        open.pop_back();
        if (each->done || !all.insert(each).second) continue;
        for (const TaskPtr& other : each->waits_for) open.push_back(other.get());
    }
}

void throw_failure(Runtime& runtime) {
    Queue& q = queue();
    if (runtime.sticky_error != 0) throw Failure{runtime.sticky_error, runtime.sticky_message};
    if (q.failure == kNoError) return;
    const Failure failure{q.failure, std::exchange(q.failure_message, {})};
    q.failure = kNoError;
    throw failure;
}

void add_task(std::vector<TaskPtr>& list, const TaskPtr& task) {
    if (task != nullptr && !task->done && std::find(list.begin(), list.end(), task) == list.end()) list.push_back(task);
}

// A thread of its own for a program that makes no calls any more, and may wait for what its work does.
void watch_idle_queue(Runtime& runtime) {
    static bool begun = false;
    if (std::exchange(begun, true)) return;
    std::thread([&runtime] {
        for (;;) {
            std::this_thread::sleep_for(kIdle / 10);
            std::lock_guard lock(runtime.mutex);
            while (std::chrono::steady_clock::now() - runtime.last_call > kIdle && run_any(runtime)) {
            }
        }
    }).detach();
}

TaskPtr add(Runtime& runtime, Stream& stream, std::vector<TaskPtr> waits_for, Operation operation, std::shared_ptr<Work> work = nullptr) {
    auto task = std::make_shared<Task>();
    task->id = runtime.next_id();
    task->device = stream.device;
    task->operation = std::move(operation);
    task->work = std::move(work);
    task->place = capture_host_place();
    task->waits_for = std::move(waits_for);
    queue().pending.push_back(task);
    return task;
}

void leave_room(Runtime& runtime) {
    while (queue().pending.size() > kMostPending && run_any(runtime)) {
    }
}

// The host side of a copy, where it is ordinary memory that the host may change or free as soon as the call returns.
bool is_pageable(Runtime& runtime, const abi::PitchedPtr& side) {
    return side.ptr != nullptr && !runtime.is_device_address(side.ptr) && runtime.memory().find(to_address(side.ptr)) == nullptr;
}

bool is_recorded_or_waited(const Operation& operation) {
    return std::holds_alternative<RecordOp>(operation) || std::holds_alternative<WaitOp>(operation);
}

// Takes the source of a copy out of pageable memory, and points the copy to it.
void stage(Task& task) {
    abi::Memcpy3DParms& params = std::get<CopyOp>(task.operation).params;
    const abi::Extent& extent = params.extent;
    const size_t height = std::max<size_t>(params.srcPtr.ysize, extent.height), pitch = params.srcPtr.pitch;
    const size_t first = params.srcPos.z * pitch * height + params.srcPos.y * pitch + params.srcPos.x;
    const size_t row = params.dstArray != nullptr ? pitch : extent.width;
    const size_t bytes = ((extent.depth - 1) * height + extent.height - 1) * pitch + row;
    const auto* from = static_cast<const std::byte*>(params.srcPtr.ptr) + first;
    task.staged.assign(from, from + bytes);
    params.srcPtr.ptr = task.staged.data();
    params.srcPtr.ysize = height;
    params.srcPos = {0, 0, 0};
}

bool contains_pointer(const std::vector<std::byte>& params, const Allocation& allocation) {
    for (size_t at = 0; at + 8 <= params.size(); at += 8) {
        uint64_t value;
        std::memcpy(&value, params.data() + at, sizeof value);
        if (value >= allocation.address && value < allocation.address + allocation.size_bytes) return true;
    }
    return false;
}

bool touches(const Operation& operation, const Allocation& allocation) {
    const auto inside = [&](const void* pointer) { return to_address(pointer) - allocation.address < allocation.size_bytes; };
    if (const auto* kernel = std::get_if<KernelOp>(&operation)) return contains_pointer(kernel->params, allocation);
    if (const auto* copy = std::get_if<CopyOp>(&operation)) return inside(copy->params.dstPtr.ptr) || inside(copy->params.srcPtr.ptr);
    if (const auto* fill = std::get_if<FillOp>(&operation)) return inside(fill->params.dst);
    return false;
}

// Programmatic dependent launch: before the end of the kernel before it in the stream.
bool may_start_early(const KernelOp& operation) {
    const auto found = operation.attributes.find(abi::kAttributeProgrammaticSerialization);
    return found != operation.attributes.end() && found->second.programmaticStreamSerializationAllowed != 0;
}

}  // namespace

void restart_order(Runtime& runtime) {
    queue().random.seed(runtime.options.seed);
    queue().seeded = true;
}

std::string describe(const Operation& operation) {
    if (const auto* kernel = std::get_if<KernelOp>(&operation)) return "kernel " + kernel->kernel->name;
    if (const auto* copy = std::get_if<CopyOp>(&operation)) {
        const abi::Extent& extent = copy->params.extent;
        return "a copy of " + std::to_string(extent.width * extent.height * extent.depth) + " bytes";
    }
    return std::string("an operation of kind ") + node_type_name(operation);
}

std::vector<TaskPtr> work_before(Runtime& runtime, Stream& stream) {
    std::vector<TaskPtr> before;
    Device& device = runtime.devices[static_cast<size_t>(stream.device)];
    add_task(before, stream.tail);
    if (stream.kind == Stream::Kind::kLegacy) {
        for (const auto& [handle, other] : runtime.streams)
            if (other->device == stream.device && other->is_blocking()) add_task(before, other->tail);
        for (const auto& [thread, other] : device.thread_streams) add_task(before, other->tail);
        for (const TaskPtr& task : device.detached) add_task(before, task);
    } else if (stream.is_blocking()) {
        add_task(before, device.legacy_stream->tail);
    }
    return before;
}

std::vector<TaskPtr> work_of(Runtime& runtime, Stream& stream) {
    if (stream.kind == Stream::Kind::kLegacy) return work_before(runtime, stream);
    std::vector<TaskPtr> own;
    add_task(own, stream.tail);
    return own;
}

void detach_work(Runtime& runtime, Stream& stream) {
    std::vector<TaskPtr>& detached = runtime.devices[static_cast<size_t>(stream.device)].detached;
    end_stream_order(runtime, stream);
    std::erase_if(detached, [](const TaskPtr& task) { return task->done; });
    if (stream.is_blocking()) add_task(detached, stream.tail);
}

TaskPtr enqueue(Runtime& runtime, Stream& stream, Operation operation, const std::vector<TaskPtr>& also) {
    const std::shared_ptr<Work> work = begin_work(runtime, stream, operation);
    if (!runtime.deferred) {
        auto* kernel = std::get_if<KernelOp>(&operation);
        const uint32_t before = std::exchange(stream.last_race_launch, 0);
        if (kernel && may_start_early(*kernel)) kernel->primary = before;
        execute_as(runtime, work, operation);
        if (kernel) stream.last_race_launch = runtime.last_race_launch;
        const auto* copy = std::get_if<CopyOp>(&operation);
        if (work != nullptr && copy != nullptr && copy->params.dstArray == nullptr && is_pageable(runtime, copy->params.dstPtr))
            host_waited_for(runtime, work->clock);
        return nullptr;
    }
    note_operands(runtime, work, operation);
    watch_idle_queue(runtime);
    leave_room(runtime);
    std::vector<TaskPtr> before = work_before(runtime, stream);
    for (const TaskPtr& task : also) add_task(before, task);
    const TaskPtr task = add(runtime, stream, std::move(before), std::move(operation), work);
    stream.tail = task;
    if (const auto* record = std::get_if<RecordOp>(&task->operation)) {
        record->event->recorded = true;
        record->event->captured = false;
        record->event->task = task;
    }
    if (const auto* copy = std::get_if<CopyOp>(&task->operation)) {
        const abi::Memcpy3DParms& params = copy->params;
        const abi::Extent& extent = params.extent;
        if (extent.width == 0 || extent.height == 0 || extent.depth == 0) return task;
        const bool from_pageable = params.srcArray == nullptr && is_pageable(runtime, params.srcPtr);
        const bool to_pageable = params.dstArray == nullptr && is_pageable(runtime, params.dstPtr);
        if (to_pageable) {
            finish(runtime, {task});
            if (work != nullptr) host_waited_for(runtime, work->clock);
        } else if (from_pageable) {
            stage(*task);
        }
    }
    return task;
}

std::vector<Node*> execution_order(Runtime& runtime, const Graph& graph) {
    if (!runtime.deferred) return graph.topological_order();
    return graph.topological_order([&](size_t count) { return static_cast<size_t>(draw(runtime, count)); });
}

void enqueue_graph(Runtime& runtime, Stream& stream, const std::shared_ptr<GraphExec>& exec) {
    const std::vector<Node*> order = exec->graph->topological_order();
    const GraphWork work = begin_graph_work(runtime, stream, *exec, order);
    const auto work_of_node = [&](const Node* node) { return work.empty() ? nullptr : work.at(node); };
    if (!runtime.deferred) {
        begin_graph(*exec->graph);
        for (Node* node : order) {
            if (runtime.sticky_error != 0) return;
            if (node->enabled) execute_as(runtime, work_of_node(node), node->operation);
        }
        return;
    }
    for (const Node* node : order)
        if (node->enabled) note_operands(runtime, work_of_node(node), node->operation);
    watch_idle_queue(runtime);
    leave_room(runtime);
    std::vector<TaskPtr> before = work_before(runtime, stream);
    add_task(before, exec->last_launch.lock());
    const TaskPtr begin = add(runtime, stream, std::move(before), EmptyOp{});
    begin->action = [graph = exec->graph](Runtime&) { begin_graph(*graph); };
    std::unordered_map<const Node*, TaskPtr> tasks;
    std::vector<TaskPtr> all;
    for (Node* node : order) {
        std::vector<TaskPtr> after{begin};
        for (const Edge& edge : node->dependencies) after.push_back(tasks.at(edge.from));
        if (const auto* wait = std::get_if<WaitOp>(&node->operation)) add_task(after, wait->event->task);
        const TaskPtr task =
            add(runtime, stream, std::move(after), node->enabled ? node->operation : Operation(EmptyOp{}), work_of_node(node));
        if (const auto* record = std::get_if<RecordOp>(&node->operation)) record->event->task = task;
        tasks[node] = task;
        all.push_back(task);
    }
    all.push_back(begin);
    stream.tail = add(runtime, stream, std::move(all), EmptyOp{});
    exec->last_launch = stream.tail;
}

void finish(Runtime& runtime, const std::vector<TaskPtr>& targets) {
    if (!runtime.deferred) return;
    Queue& q = queue();
    std::unordered_set<const Task*> wanted;
    for (const TaskPtr& task : targets)
        if (task != nullptr) add_with_ancestors(task, wanted);
    const auto is_open = [&](const TaskPtr& task) { return task != nullptr && !task->done; };
    while (std::any_of(targets.begin(), targets.end(), is_open)) {
        if (draw(runtime, kOneInSteps) == 0 && run_any(runtime)) continue;
        if (run_one_of(runtime, [&](const TaskPtr& task) { return wanted.contains(task.get()); })) continue;
        // Another thread is at one of them, in a host function; or this one is, and then it would wait for itself.
        if (std::none_of(q.pending.begin(), q.pending.end(), [](const TaskPtr& task) { return task->running; })) break;
        q.ended.wait(runtime.mutex);
    }
    throw_failure(runtime);
}

void finish_stream(Runtime& runtime, Stream& stream) {
    finish(runtime, work_of(runtime, stream));
    host_waited_for_stream(runtime, stream);
}

void finish_event(Runtime& runtime, Event& event) {
    finish(runtime, {event.task});
    host_waited_for_event(runtime, event);
}

void finish_device(Runtime& runtime, int device) {
    std::vector<TaskPtr> targets;
    for (const TaskPtr& task : queue().pending)
        if (task->device == device) targets.push_back(task);
    finish(runtime, targets);
    host_waited_for_device(runtime, device);
}

void finish_all(Runtime& runtime) {
    finish(runtime, std::vector<TaskPtr>(queue().pending));
    host_waited_for_device(runtime, -1);
}

bool is_done_after_a_step(Runtime& runtime, const TaskPtr& task) {
    if (task == nullptr || task->done) return true;
    run_any(runtime);
    throw_failure(runtime);
    return task->done;
}

void note_work_on_freed_memory(Runtime& runtime, uint64_t address, const Stream* stream) {
    if (!runtime.deferred) return;
    const Allocation* allocation = runtime.memory().find(address);
    if (allocation == nullptr || !allocation->live || allocation->address != address) return;
    std::unordered_set<const Task*> ordered;
    if (stream != nullptr)
        for (const TaskPtr& task : work_before(runtime, const_cast<Stream&>(*stream))) add_with_ancestors(task, ordered);
    for (const TaskPtr& task : queue().pending) {
        if (task->done || !touches(task->operation, *allocation) || ordered.contains(task.get())) continue;
        const std::string place = "allocation #" + std::to_string(allocation->serial) + " of " + std::to_string(allocation->size_bytes) +
                                  " bytes at " + hex(address);
        if (stream != nullptr)
            runtime.add_report("free_unordered", Severity::kError,
                               "cudaFreeAsync of " + place + ", which " + describe(task->operation) +
                                   " in another stream uses: nothing makes the one wait for the other\n",
                               address);
        else
            runtime.add_report("free_in_use", Severity::kNote,
                               place + " is freed while " + describe(task->operation) +
                                   " that uses it is queued: the call waits for the device, which CUDA does not promise\n",
                               address);
        return;
    }
}

void note_unfinished_work(Runtime& runtime) {
    const std::vector<TaskPtr>& pending = queue().pending;
    if (pending.empty() || runtime.sticky_error != 0) return;
    const auto first = std::find_if(pending.begin(), pending.end(),
                                    [](const TaskPtr& task) { return !task->action && !is_recorded_or_waited(task->operation); });
    if (first == pending.end()) return;
    runtime.add_report("unfinished_work", Severity::kWarning,
                       "the program ended without waiting for " + std::to_string(pending.size()) +
                           " pieces of queued work, which never ran; the first is " + describe((*first)->operation) + "\n");
}

}  // namespace aicf::emu

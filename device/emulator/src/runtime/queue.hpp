// Queued work. In eager mode it runs when it is queued. In deferred mode it waits for a synchronisation, which runs what it has to wait
// for, in an order drawn from those that streams, events and graph edges allow, and now and then other work as well: what a program
// may not count on without a synchronisation then goes wrong here, too. When no call comes for a second, what is queued begins to run: a
// program may wait for a host function, or for a word in pinned memory, without any call of CUDA's.
//
// The rules: CUDA C++ programming guide, "Streams", "Implicit synchronization"; CUDA runtime API, "Stream synchronization behavior" (the
// legacy default stream waits for all blocking streams of its device, and they for it) and "API synchronization behavior".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph.hpp"

namespace aicf::emu {

struct Work;

struct Task {
    uint64_t id = 0;
    int device = 0;
    Operation operation;
    std::shared_ptr<Work> work;                     // order.hpp; null where nothing is ordered
    HostPlace place{};                              // of the call that queued it
    std::function<void(Runtime&)> action;           // in place of the operation, where there is one
    std::vector<std::shared_ptr<Task>> waits_for;   // emptied when it is done
    std::vector<std::byte> staged;                  // the source of a copy from pageable memory, as it was when it was queued
    bool running = false;
    bool done = false;
};

// Runs the operation (eager), or queues it behind the stream's earlier work and what its kind of stream has to wait for, and returns the
// task. `also`: further tasks to wait for. Copies from or to pageable host memory are staged or waited for, as CUDA does it.
std::shared_ptr<Task> enqueue(Runtime& runtime, Stream& stream, Operation operation, const std::vector<std::shared_ptr<Task>>& also = {});

// The nodes of an executable graph as they are now, behind the stream's earlier work and the graph's own last launch.
void enqueue_graph(Runtime& runtime, Stream& stream, const std::shared_ptr<GraphExec>& exec);

// An order of the nodes that keeps their dependencies: by creation, or drawn in deferred mode.
std::vector<Node*> execution_order(Runtime& runtime, const Graph& graph);

// Draws anew from the seed (option `seed`).
void restart_order(Runtime& runtime);

// Waits: runs what is left of it in deferred mode. They throw what the work that ran failed with.
void finish(Runtime& runtime, const std::vector<std::shared_ptr<Task>>& targets);
void finish_stream(Runtime& runtime, Stream& stream);
void finish_event(Runtime& runtime, Event& event);
void finish_device(Runtime& runtime, int device);
void finish_all(Runtime& runtime);

// For queries: whether the task is done, after a step of the queue.
bool is_done_after_a_step(Runtime& runtime, const std::shared_ptr<Task>& task);

// What a stream's next operation has to wait for.
std::vector<std::shared_ptr<Task>> work_before(Runtime& runtime, Stream& stream);
// What a wait for the stream has to wait for: the legacy stream's takes in the blocking streams, as an operation in it would.
std::vector<std::shared_ptr<Task>> work_of(Runtime& runtime, Stream& stream);

// The stream goes; what it has queued still runs.
void detach_work(Runtime& runtime, Stream& stream);

// Reports queued work that touches an allocation which is about to be freed: `unordered_only`, if nothing makes the stream's next
// operation wait for it.
void note_work_on_freed_memory(Runtime& runtime, uint64_t address, const Stream* stream);

// "kernel add", "copy of 64 bytes".
std::string describe(const Operation& operation);

}  // namespace aicf::emu

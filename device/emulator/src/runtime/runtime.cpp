#include "runtime.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "arrays.hpp"
#include "exit_report.hpp"
#include "graph.hpp"
#include "host_fault.hpp"
#include "options.hpp"
#include "order.hpp"
#include "pools.hpp"
#include "registry.hpp"
#include "report_file.hpp"
#include "suppressions.hpp"

namespace aicf::emu {

ThreadState& thread_state() {
    thread_local ThreadState state;
    return state;
}

bool makes_context_current(std::string_view function) {
    static constexpr std::string_view kQueries[] = {
        "cudaGetDevice",           "cudaGetDeviceCount",
        "cudaGetDeviceProperties", "cudaDeviceGetAttribute",
        "cudaDeviceGetPCIBusId",   "cudaDeviceGetByPCIBusId",
        "cudaChooseDevice",        "cudaDeviceCanAccessPeer",
        "cudaDriverGetVersion",    "cudaRuntimeGetVersion",
        "cudaInitDevice",          "cudaSetDeviceFlags",
        "cudaGetDriverEntryPoint", "cudaThreadExchangeStreamCaptureMode",
    };
    return std::find(std::begin(kQueries), std::end(kQueries), function) == std::end(kQueries);
}

Runtime::Runtime() : registry(std::make_unique<Registry>()) {
    set_device_count(1);
    set_default_options(*this);
    mark_runtime_used();
}

Runtime& Runtime::get() {
    static Runtime* const runtime = new Runtime();
    return *runtime;
}

void Runtime::set_device_count(size_t count) {
    devices.resize(count);
    for (size_t i = 0; i < count; ++i) {
        Device& device = devices[i];
        if (device.legacy_stream != nullptr) continue;
        device.legacy_stream = std::make_shared<Stream>();
        device.legacy_stream->kind = Stream::Kind::kLegacy;
        device.legacy_stream->id = next_id();
        device.legacy_stream->device = static_cast<int>(i);
        device.default_pool = std::make_shared<MemoryPool>();
        device.default_pool->device = static_cast<int>(i);
        device.default_pool->is_default = true;
        device.pool = device.default_pool;
    }
}

void Runtime::use_device(int device) {
    memory().set_current_device(static_cast<uint32_t>(device), 1u << device | devices[static_cast<size_t>(device)].peers);
}

DeviceMemory& Runtime::memory() {
    if (memory_ == nullptr) {
        try {
            memory_ = std::make_unique<DeviceMemory>(memory_bytes, static_cast<uint32_t>(devices.size()));
        } catch (const std::exception& error) {
            throw Failure{kErrMemoryAllocation,
                          std::string("the device's memory could not be reserved (option memory_bytes): ") + error.what()};
        }
        memory_->set_zero_fresh(options.zero_memory);
        watch_host_faults(*memory_);
        watch_interrupts();
    }
    return *memory_;
}

bool Runtime::is_device_address(const void* pointer) const { return memory_ != nullptr && memory_->contains(to_address(pointer)); }

void Runtime::add_report(Report report) {
    if (is_suppressed(report)) return;
    note_finding(report);
    append_to_report_file(report);
    if (exit_options().summary == 0) reports_.push_back(std::move(report));  // else nobody takes them
}

void Runtime::add_lines(const void* program, const std::string& kernel, std::vector<LineCounters> lines) {
    KernelLines* found = nullptr;
    for (KernelLines& known : lines_) {
        if (known.program == program && known.kernel == kernel) found = &known;
    }
    if (found == nullptr) found = &lines_.emplace_back(KernelLines{program, kernel, 0, {}});
    found->launches++;
    std::vector<LineCounters> merged;
    merged.reserve(std::max(found->lines.size(), lines.size()));
    size_t i = 0;
    for (LineCounters& line : lines) {
        while (i < found->lines.size() && found->lines[i].ptx_line < line.ptx_line) merged.push_back(std::move(found->lines[i++]));
        if (i < found->lines.size() && found->lines[i].ptx_line == line.ptx_line) line.counts.add(found->lines[i++].counts);
        merged.push_back(std::move(line));
    }
    while (i < found->lines.size()) merged.push_back(std::move(found->lines[i++]));
    found->lines = std::move(merged);
}

void Runtime::add_report(const std::string& kind, Severity severity, const std::string& text, uint64_t address) {
    Report report;
    report.kind = kind;
    report.severity = severity;
    report.text = text;
    report.address = address;
    add_report(std::move(report));
}

void Runtime::add_counters(LaunchRecord record) {
    note_counters(record);
    if (exit_options().summary == 0) counters_.push_back(std::move(record));  // else nobody takes them
}

void Runtime::bury(const char* what, const void* handle, std::shared_ptr<void> object) {
    constexpr size_t kMostBuried = 1024;
    buried_.push_back({what, handle, std::move(object)});
    if (buried_.size() > kMostBuried) buried_.pop_front();
}

void Runtime::note_if_destroyed(const void* handle) {
    // The latest first: an address may have been that of several.
    for (auto at = buried_.rbegin(); at != buried_.rend(); ++at) {
        const Buried& each = *at;
        if (each.handle != handle) continue;
        add_report("destroyed_handle", Severity::kError,
                   std::string("a call uses ") + each.what + " " + hex(to_address(handle)) + ", which was destroyed\n");
        return;
    }
}

void Runtime::fail_context(int code, std::string message) {
    if (sticky_error != 0) return;
    sticky_error = code;
    sticky_message = std::move(message);
}

void Runtime::reset(int device) {
    const bool is_only = devices.size() == 1;
    forget_order(*this);
    if (is_only) {  // what may lie on several devices stays, where there are several
        images().clear();
        graph_execs.clear();
        captures.clear();
        graphs.clear();
        registered_flags.clear();
        releases.clear();
    }
    std::erase_if(streams, [&](const auto& entry) { return entry.second->device == device; });
    std::erase_if(events, [&](const auto& entry) { return entry.second->device == device; });
    std::erase_if(pools, [&](const auto& entry) { return entry.second->device == device; });
    registry->unload(device);
    if (memory_ != nullptr) {
        for (const Allocation& each : memory_->live_allocations()) {
            if (each.kind == MemoryKind::kRegistered && is_only) memory_->remove_host_range(each.address);
            const bool of_program = each.kind == MemoryKind::kModule || each.kind == MemoryKind::kManagedVariable;
            if (each.device != device || each.kind == MemoryKind::kRegistered || of_program) continue;
            pool_of.erase(each.address);
            memory_->release(each.address);
        }
    }
    Device& own = devices[static_cast<size_t>(device)];
    own.legacy_stream->capture.reset();
    own.legacy_stream->tail.reset();
    own.peers = 0;
    own.pool = own.default_pool;
    own.default_pool->counts = own.graph_memory = {};
    sticky_error = 0;
    sticky_message.clear();
}

int record_error(int code, std::string message) {
    ThreadState& state = thread_state();
    if (code == kErrNotReady || code == kNoError) return code;
    if (code == kErrNotSupported) append_unsupported(message);
    state.last_error = code;
    state.message = std::move(message);
    return code;
}

namespace {

// Calls may call each other. What the compiler calls (__cudaPushCallConfiguration) is not the program's.
class CallScope {
public:
    CallScope(Runtime& runtime, ThreadState& thread, const char* function) : thread_(thread), before_(std::exchange(thread.in_call, true)) {
        if (function[0] == '_') return;
        thread.function = function;
        thread.call = ++runtime.num_calls;
    }
    ~CallScope() { thread_.in_call = before_; }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

private:
    ThreadState& thread_;
    bool before_;
};

// "cudaMalloc: out of memory (2): 4096 bytes asked for, ..."; empty details give the code's text alone.
std::string describe_failure(const char* function, const Failure& failure) {
    std::string text = std::string(function) + ": " + error_text(failure.code) + " (" + error_name(failure.code) + ", " +
                       std::to_string(failure.code) + ")";
    if (!failure.message.empty()) text += ": " + failure.message;
    return text;
}

}  // namespace

int run_api(const char* function, void (*call)(void* body, Runtime& runtime), void* body, AfterError after_error) noexcept {
    try {
        ThreadState& thread = thread_state();
        if (thread.in_host_function && after_error == AfterError::kRefuse)
            return record_error(kErrNotPermitted,
                                std::string(function) + ": CUDA functions may not be called from a host function or stream callback");
        Runtime& runtime = Runtime::get();
        std::lock_guard lock(runtime.mutex);
        const CallScope in_call(runtime, thread, function);
        if (runtime.deferred) runtime.last_call = std::chrono::steady_clock::now();
        if (!runtime.wrong_setting.empty()) throw Failure{kErrInitializationError, runtime.wrong_setting};
        if (runtime.sticky_error != 0 && after_error == AfterError::kRefuse)
            return record_error(runtime.sticky_error, runtime.sticky_message);
        if (!thread.has_context) thread.has_context = makes_context_current(function);
        call(body, runtime);
        return kNoError;
    } catch (const Failure& failure) {
        return record_error(failure.code, describe_failure(function, failure));
    } catch (const std::bad_alloc&) {
        return record_error(kErrMemoryAllocation, std::string(function) + ": the host is out of memory");
    } catch (const std::exception& error) {
        return record_error(kErrUnknown, std::string(function) + ": " + error.what());
    }
}

void throw_failure(int code, const char* message) { throw Failure{code, message}; }

std::string hex(uint64_t value) {
    char buffer[20];
    std::snprintf(buffer, sizeof buffer, "0x%llx", static_cast<unsigned long long>(value));
    return buffer;
}

std::string to_text(const Dim3& dim) {
    return "(" + std::to_string(dim.x) + "," + std::to_string(dim.y) + "," + std::to_string(dim.z) + ")";
}

}  // namespace aicf::emu

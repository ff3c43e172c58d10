// The state of the emulated CUDA runtime, and the frame in which every API function runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "../exec/exec.hpp"
#include "../memory/device_memory.hpp"
#include "clock.hpp"
#include "errors.hpp"
#include "host_place.hpp"
#include "targets.hpp"

namespace aicf::emu {

class Registry;
struct Stream;
struct Event;
struct Graph;
struct GraphExec;
struct Capture;
struct Task;
struct MemoryPool;
struct GraphMemory;
struct Work;

// What CUDA keeps per host thread.
struct ThreadState {
    int last_error = 0;
    int capture_mode = abi::kCaptureGlobal;  // cudaThreadExchangeStreamCaptureMode
    bool in_call = false;                    // holds the runtime's mutex
    const char* function = "";               // of CUDA's that it has called last
    uint64_t call = 0;                       // its number, Runtime::num_calls
    bool in_host_function = false;           // CUDA calls are refused there
    int device = 0;                          // cudaSetDevice
    bool has_context = false;                // whether cuCtxGetCurrent has one: a thread's first call that needs it makes it current
    std::string message;
    std::shared_ptr<Work> current_work;  // that runs (order.hpp); null where nothing is ordered
    const HostPlace* queued_at = nullptr;  // of deferred work that runs
};
ThreadState& thread_state();

// Whether a runtime function makes the device's primary context current on a thread that has none. Queries of devices and versions do not,
// nor does looking up a driver function: a driver function that needs a context fails there with CUDA_ERROR_INVALID_CONTEXT.
bool makes_context_current(std::string_view function);

// Another current device for a while.
class DeviceScope {
public:
    explicit DeviceScope(int device) : before_(std::exchange(thread_state().device, device)) {}
    ~DeviceScope() { thread_state().device = before_; }
    DeviceScope(const DeviceScope&) = delete;
    DeviceScope& operator=(const DeviceScope&) = delete;

private:
    int before_;
};

struct LaunchRecord {  // one entry of aicfEmulatorTakeCounters()
    std::string kernel;
    Dim3 grid, block;
    Counters counters;
};

struct KernelLines {  // one entry of aicfEmulatorTakeLines(): counts by PTX line, summed over launches of a kernel
    const void* program = nullptr;
    std::string kernel;
    uint64_t launches = 0;
    std::vector<LineCounters> lines;  // by PTX line
};

struct RangeState {  // of managed memory (ranges.hpp)
    bool read_mostly = false;
    abi::MemLocation preferred{}, prefetched{};  // type 0: none
    uint32_t accessed_by = 0;                    // a bit for each device, the highest one for the host
};

struct MemoryCounts {  // bytes
    uint64_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
};

struct Device {
    std::shared_ptr<Stream> legacy_stream;
    std::map<std::thread::id, std::shared_ptr<Stream>> thread_streams;  // cudaStreamPerThread
    std::vector<std::shared_ptr<Task>> detached;  // the last work of blocking streams that were destroyed
    Clock detached_clock;                         // of these, and of all that were destroyed before
    uint32_t peers = 0;                           // a bit for each device whose memory its kernels may touch
    std::shared_ptr<MemoryPool> default_pool, pool;
    MemoryCounts graph_memory;
    unsigned flags = 0;
};

// One per process, never destroyed: programs call in from their own atexit handlers. All members are guarded by `mutex`, which api()
// holds; it is released only while a host function of the user runs.
class Runtime {
public:
    static Runtime& get();

    std::mutex mutex;
    ExecOptions options;
    const Target* target = nullptr;
    uint64_t memory_bytes = 0;  // of each device
    bool deferred = false;      // work waits for a synchronisation (queue.hpp)
    std::chrono::steady_clock::time_point last_call;
    std::string wrong_setting;  // a variable of the environment that cannot be obeyed, "": none; every call is refused
    int sticky_error = 0;
    uint32_t last_race_launch = 0;  // LaunchResult::race_launch
    uint64_t limited_instructions = 0, limited_matrix_work = 0;  // of launches since the limit was set
    uint64_t num_calls = 0;         // of CUDA's functions by the program
    std::string sticky_message;

    std::unique_ptr<Registry> registry;
    std::unordered_map<void*, std::shared_ptr<Stream>> streams;
    std::unordered_map<void*, std::shared_ptr<Event>> events;
    std::unordered_map<void*, std::shared_ptr<Graph>> graphs;
    std::unordered_map<void*, std::shared_ptr<GraphExec>> graph_execs;
    std::vector<std::shared_ptr<Capture>> captures;  // in progress, also invalidated ones
    std::vector<Device> devices;
    std::unordered_map<void*, std::shared_ptr<MemoryPool>> pools;                 // made by the user
    std::unordered_map<uint64_t, std::shared_ptr<MemoryPool>> pool_of;            // by address
    std::unordered_map<uint64_t, std::weak_ptr<GraphMemory>> graph_memory;        // by address
    std::map<uint64_t, RangeState> managed_ranges;                                // by the address where they begin
    std::unordered_set<uint64_t> releases;                                        // cudaFreeAsync that has not run
    std::unordered_map<uint64_t, uint32_t> registered_flags;  // cudaHostRegister, by address; DeviceMemory has the ranges

    // The arena; made on first use. Throws Failure(2) when the address space cannot be had.
    DeviceMemory& memory();
    DeviceMemory* memory_if_made() const { return memory_.get(); }
    bool is_device_address(const void* pointer) const;
    // The number of devices; before the first use of memory only.
    void set_device_count(size_t count);
    // What is allocated next belongs to this device, and kernels run there.
    void use_device(int device);

    void add_report(Report report);
    // A finding of the runtime itself: kind, severity and a text of several lines.
    void add_report(const std::string& kind, Severity severity, const std::string& text, uint64_t address = 0);
    std::vector<Report> take_reports() { return std::exchange(reports_, {}); }
    void add_counters(LaunchRecord record);
    std::vector<LaunchRecord> take_counters() { return std::exchange(counters_, {}); }
    void add_lines(const void* program, const std::string& kernel, std::vector<LineCounters> lines);
    std::vector<KernelLines> take_lines() { return std::exchange(lines_, {}); }

    // The context is lost: `code` is what every later call returns.
    void fail_context(int code, std::string message);
    // cudaDeviceReset: every stream, event, graph and allocation of the device goes, modules load again on next use.
    void reset(int device);

    uint64_t next_id() { return ++last_id_; }

    // Remembers what a handle was, and keeps the object, so that its address is not given to another one soon.
    void bury(const char* what, const void* handle, std::shared_ptr<void> object);
    // Reports the use of a handle whose object was destroyed; says nothing about others.
    void note_if_destroyed(const void* handle);

private:
    Runtime();
    std::unique_ptr<DeviceMemory> memory_;
    std::vector<Report> reports_;
    std::vector<LaunchRecord> counters_;
    std::vector<KernelLines> lines_;
    uint64_t last_id_ = 0;
    struct Buried {
        const char* what;
        const void* handle;
        std::shared_ptr<void> object;
    };
    std::deque<Buried> buried_;
};

// Sets this thread's last error and message. cudaErrorNotReady is an answer, not an error, and is not recorded.
int record_error(int code, std::string message);

enum class AfterError : uint8_t { kRefuse, kRun };  // what a call does once the context is lost

// Runs the body of an API function under the mutex and turns a Failure into the returned error code. The frame is compiled once, and not
// for each of some four hundred functions.
int run_api(const char* function, void (*call)(void* body, Runtime& runtime), void* body, AfterError after_error) noexcept;

template <class Body>
int api(const char* function, Body&& body, AfterError after_error = AfterError::kRefuse) noexcept {
    return run_api(
        function, [](void* of, Runtime& runtime) { (*static_cast<std::remove_reference_t<Body>*>(of))(runtime); }, &body, after_error);
}

// Runs a function of the user's with the mutex released.
template <class Call>
void run_unlocked(Runtime& runtime, Call&& call) {
    runtime.mutex.unlock();
    thread_state().in_call = false;
    thread_state().in_host_function = true;
    call();
    thread_state().in_host_function = false;
    runtime.mutex.lock();
    thread_state().in_call = true;
}

[[noreturn]] void throw_failure(int code, const char* message);

inline void require(bool condition, int code, const char* message) {
    if (!condition) throw_failure(code, message);
}

std::string hex(uint64_t value);
std::string to_text(const Dim3& dim);
inline uint64_t to_address(const void* pointer) { return reinterpret_cast<uint64_t>(pointer); }

}  // namespace aicf::emu

#define AICF_EXPORT extern "C" __attribute__((visibility("default")))
#define AICF_API AICF_EXPORT int

// Defines a function and its twin for `--default-stream per-thread` (suffix _ptsz or _ptds); the body sees `per_thread`.
#define AICF_UNWRAP(...) __VA_ARGS__
#define AICF_TWIN_API(name, suffix, parameters, arguments)                                               \
    static int name##_common(bool per_thread, AICF_UNWRAP parameters);                                   \
    AICF_API name(AICF_UNWRAP parameters) { return name##_common(false, AICF_UNWRAP arguments); }        \
    AICF_API name##suffix(AICF_UNWRAP parameters) { return name##_common(true, AICF_UNWRAP arguments); } \
    static int name##_common([[maybe_unused]] bool per_thread, AICF_UNWRAP parameters)

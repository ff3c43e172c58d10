// The functions of aicf_emulator.h.
#include "../../include/aicf_emulator.h"

#include "options.hpp"
#include "report_file.hpp"
#include "runtime.hpp"

using namespace aicf::emu;

namespace {

const char* name_of(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::kDevice: return "device";
        case MemoryKind::kPinned: return "pinned";
        case MemoryKind::kManaged: return "managed";
        case MemoryKind::kModule: return "module";
        case MemoryKind::kAsync: return "async";
        case MemoryKind::kHeap: return "heap";
        case MemoryKind::kManagedVariable: return "managed variable";
        case MemoryKind::kRegistered: return "registered";
    }
    return "unknown";
}

std::string to_json(const Counters& counters, bool with_zeros) {
    std::string counts;
    for (const auto& [name, value] : counters.to_map(with_zeros))
        counts += (counts.empty() ? "" : ",") + quote(name) + ":" + std::to_string(value);
    return "{" + counts + "}";
}

std::string to_json(const LaunchRecord& record) {
    return "{\"kernel\":" + quote(record.kernel) + ",\"grid\":" + to_json(record.grid) + ",\"block\":" + to_json(record.block) +
           ",\"counts\":" + to_json(record.counters, true) + "}";
}

std::string to_json(const LineCounters& line) {
    return "{\"ptx_line\":" + std::to_string(line.ptx_line) + ",\"source\":" + quote(line.source) +
           ",\"function\":" + quote(line.function) + ",\"instruction\":" + quote(line.instruction) +
           ",\"counts\":" + to_json(line.counts, false) + "}";
}

std::string to_json(const Allocation& a) {
    return "{\"address\":" + std::to_string(a.address) + ",\"size_bytes\":" + std::to_string(a.size_bytes) +
           ",\"serial\":" + std::to_string(a.serial) + ",\"kind\":\"" + name_of(a.kind) + "\",\"label\":" + quote(a.label) + "}";
}

template <class List>
std::string to_json_array(const List& list);

std::string to_json(const KernelLines& kernel) {
    return "{\"kernel\":" + quote(kernel.kernel) + ",\"launches\":" + std::to_string(kernel.launches) +
           ",\"lines\":" + to_json_array(kernel.lines) + "}";
}

template <class List>
std::string to_json_array(const List& list) {
    std::string out = "[";
    for (const auto& each : list) out += (out.size() == 1 ? "" : ",") + to_json(each);
    return out + "]";
}

// Keeps the text alive until the thread's next call of the same function.
template <class Make>
const char* answer(std::string& kept, Make&& make) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    kept = make(runtime);
    return kept.c_str();
}

}  // namespace

AICF_EXPORT const char* aicfEmulatorVersion(void) {
    static const std::string version = std::string("1 ") + engine_level();
    return version.c_str();
}

AICF_EXPORT int aicfEmulatorSetOption(const char* name, const char* value) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    try {
        require(name != nullptr && value != nullptr, kErrInvalidValue, "the name or the value is null");
        set_option(runtime, name, value);
        return kNoError;
    } catch (const Failure& failure) {
        thread_state().message = failure.message;
        return failure.code;
    }
}

AICF_EXPORT const char* aicfEmulatorGetOption(const char* name) {
    thread_local std::string kept;
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    return name != nullptr && get_option(runtime, name, &kept) ? kept.c_str() : nullptr;
}

AICF_EXPORT const char* aicfEmulatorOptionNames(void) {
    static const std::string names = option_names();
    return names.c_str();
}

AICF_EXPORT const char* aicfEmulatorTakeReports(void) {
    thread_local std::string kept;
    return answer(kept, [](Runtime& runtime) { return to_json_array(runtime.take_reports()); });
}

AICF_EXPORT const char* aicfEmulatorTakeCounters(void) {
    thread_local std::string kept;
    return answer(kept, [](Runtime& runtime) { return to_json_array(runtime.take_counters()); });
}

AICF_EXPORT const char* aicfEmulatorTakeLines(void) {
    thread_local std::string kept;
    return answer(kept, [](Runtime& runtime) { return to_json_array(runtime.take_lines()); });
}

AICF_EXPORT const char* aicfEmulatorAllocations(void) {
    thread_local std::string kept;
    return answer(kept, [](Runtime& runtime) {
        DeviceMemory* memory = runtime.memory_if_made();
        return to_json_array(memory == nullptr ? std::vector<Allocation>{} : memory->live_allocations());
    });
}

AICF_EXPORT const char* aicfEmulatorWritten(unsigned long long address, unsigned long long size_bytes) {
    thread_local std::string kept;
    return answer(kept, [&](Runtime& runtime) {
        const DeviceMemory* memory = runtime.memory_if_made();
        std::string out = "[";
        if (memory != nullptr)
            for (const auto& [begin, end] : memory->find_initialized(address, size_bytes))
                out += (out.size() == 1 ? "[" : ",[") + std::to_string(begin - address) + "," + std::to_string(end - address) + "]";
        return out + "]";
    });
}

AICF_EXPORT int aicfEmulatorForgetWritten(unsigned long long address) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    DeviceMemory* memory = runtime.memory_if_made();
    return memory != nullptr && memory->forget_written(address) ? 0 : 1;
}

AICF_EXPORT const char* aicfEmulatorMessage(void) {
    thread_local std::string kept;
    kept = thread_state().message;
    return kept.c_str();
}

AICF_EXPORT int aicfEmulatorClearError(void) {
    Runtime& runtime = Runtime::get();
    std::lock_guard lock(runtime.mutex);
    const int cleared = runtime.sticky_error;
    runtime.sticky_error = 0;
    runtime.sticky_message.clear();
    thread_state().last_error = 0;
    thread_state().message.clear();
    return cleared;
}

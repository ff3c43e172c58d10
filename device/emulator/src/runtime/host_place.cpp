#include "host_place.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <pthread.h>
#include <unistd.h>
#include <unwind.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>
#include <vector>

// By the linker: where this library begins and ends.
extern "C" __attribute__((visibility("hidden"))) const char __ehdr_start, _end;

namespace aicf::emu {
namespace {

// How far apart, in bytes of the stack, the slots of a return address and of its caller's lie: known from an unwinding, so that the next
// walk by the same way is a few loads. A frame of changing size leads to a slot that holds no known return address, mostly, and the stack
// is unwound again. 0: the last frame; kUnknown: not unwound yet. Guarded by Runtime::mutex.
constexpr int64_t kUnknown = -1;
constexpr size_t kMostFrames = 4096;
constexpr size_t kLongestName = 160;  // of a function: templates' are longer

std::unordered_map<uint64_t, int64_t>& frame_sizes() {
    static auto* all = new std::unordered_map<uint64_t, int64_t>;
    return *all;
}

// Where this thread's stack ends; 0 while `slot` is not on it, as in a coroutine.
uint64_t stack_end(uint64_t slot) {
    thread_local uint64_t begin = 0, end = 0;
    if (end == 0) {
        pthread_attr_t attributes;
        void* lowest = nullptr;
        size_t bytes = 0;
        if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
        pthread_attr_getstack(&attributes, &lowest, &bytes);
        pthread_attr_destroy(&attributes);
        begin = reinterpret_cast<uint64_t>(lowest);
        end = begin + bytes;
    }
    return slot >= begin && slot < end ? end : 0;
}

bool is_ours(uint64_t address) {
    return address >= reinterpret_cast<uint64_t>(&__ehdr_start) && address < reinterpret_cast<uint64_t>(&_end);
}

bool is_c_library(const char* path) { return path != nullptr && std::strstr(path, "/libc.so") != nullptr; }

struct Walk {
    HostPlace place{};
    size_t count = 0;
    bool is_signal = false;  // passes the C library's frames as well, and remembers nothing
    uint64_t address = 0, slot = 0;  // of the frame before
};

_Unwind_Reason_Code visit(_Unwind_Context* context, void* argument) {
    Walk& walk = *static_cast<Walk*>(argument);
    const uint64_t at = _Unwind_GetIP(context), slot = _Unwind_GetCFA(context) - 8;
    if (at == 0) return _URC_END_OF_STACK;
    if (!walk.is_signal) {
        if (walk.address != 0) frame_sizes()[walk.address] = slot > walk.slot ? static_cast<int64_t>(slot - walk.slot) : kUnknown;
        frame_sizes().emplace(at, kUnknown);
        walk.address = at;
        walk.slot = slot;
    }
    if (walk.count == 0) {
        if (is_ours(at)) return _URC_NO_REASON;
        Dl_info info{};  // takes its time
        if (walk.is_signal && dladdr(reinterpret_cast<void*>(at), &info) != 0 && is_c_library(info.dli_fname)) return _URC_NO_REASON;
    }
    walk.place[walk.count++] = at;
    return walk.count == walk.place.size() ? _URC_NORMAL_STOP : _URC_NO_REASON;
}

// The walk by known frames from the slot of a return address; false where one is not known.
__attribute__((no_sanitize("address"))) bool walk_known_frames(uint64_t slot, HostPlace& place) {
    const uint64_t end = stack_end(slot);
    for (size_t count = 0; slot + 8 <= end;) {
        const uint64_t at = *reinterpret_cast<const uint64_t*>(slot);
        const auto found = frame_sizes().find(at);
        if (found == frame_sizes().end()) return false;
        if (count != 0 || !is_ours(at)) place[count++] = at;
        if (count == place.size() || found->second == 0) return true;
        if (found->second == kUnknown) return false;
        slot += static_cast<uint64_t>(found->second);
    }
    return false;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

struct Frame {
    std::string function;  // mangled
    std::string line;      // "file:line", "" where unknown
};

// nvcc compiles what cudafe++ made of a source: its lines are the source's, the name is not always.
std::string source_name(std::string line) {
    line = base_name(line);
    const size_t generated = line.find(".cudafe1.cpp:"), prefix = line.find('_', line.find('-'));
    if (!line.starts_with("tmpxft_") || generated == std::string::npos || prefix >= generated) return line;
    return line.substr(prefix + 1, generated - prefix - 1) + ".cu" + line.substr(line.find(':', generated));
}

// The functions at an address, those that were inlined first, by binutils, which are there where a compiler is.
std::vector<Frame> ask_addr2line(const std::string& module, uint64_t offset) {
    std::vector<Frame> frames;
    if (module.find('\'') != std::string::npos) return frames;
    char command[4200];
    std::snprintf(command, sizeof command, "addr2line -f -i -e '%s' 0x%llx 2>/dev/null", module.c_str(),
                  static_cast<unsigned long long>(offset));
    std::FILE* pipe = popen(command, "r");
    if (pipe == nullptr) return frames;
    char function[4096], line[4096];
    while (std::fgets(function, sizeof function, pipe) != nullptr && std::fgets(line, sizeof line, pipe) != nullptr) {
        function[std::strcspn(function, "\n")] = line[std::strcspn(line, " \n")] = '\0';
        const bool is_known = line[0] != '?' && std::strstr(line, ":?") == nullptr;
        if (function[0] != '?') frames.push_back({function, is_known ? source_name(line) : ""});
    }
    pclose(pipe);
    return frames;
}

// Python and its foreign-function interface, and what calls main() and threads: their frames say nothing of the program.
bool is_foreign(const std::string& module) {
    const std::string name = base_name(module);
    return name.starts_with("python") || name.starts_with("libpython") || name.starts_with("_ctypes") || name.starts_with("libffi") ||
           name.starts_with("libc.so");
}

std::vector<Frame> resolve(uint64_t return_address) {
    const uint64_t at = return_address - 1;  // in the call
    Dl_info info{};
    if (dladdr(reinterpret_cast<void*>(at), &info) == 0 || info.dli_fname == nullptr || is_foreign(info.dli_fname)) return {};
    const auto* header = static_cast<const Elf64_Ehdr*>(info.dli_fbase);
    const uint64_t offset = header->e_type == ET_EXEC ? at : at - reinterpret_cast<uint64_t>(info.dli_fbase);
    std::string module = info.dli_fname;
    char self[4096];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (module.find('/') == std::string::npos && length > 0) module.assign(self, static_cast<size_t>(length));
    std::vector<Frame> frames = ask_addr2line(module, offset);
    char plain[64];
    std::snprintf(plain, sizeof plain, "+0x%llx", static_cast<unsigned long long>(offset));
    if (frames.empty()) frames.push_back({info.dli_sname != nullptr ? info.dli_sname : base_name(module) + plain, ""});
    return frames;
}

const std::vector<Frame>& resolve_once(uint64_t return_address) {
    static auto* known = new std::map<uint64_t, std::vector<Frame>>;
    const auto found = known->find(return_address);
    return found != known->end() ? found->second : known->emplace(return_address, resolve(return_address)).first->second;
}

// "shop::scale<float>" -> "scale<float>".
std::string unqualified(const std::string& name) {
    int depth = 0;
    size_t begin = 0;
    for (size_t i = 0; i + 1 < name.size(); ++i) {
        if (name[i] == '<') ++depth;
        if (name[i] == '>') --depth;
        if (depth == 0 && name.compare(i, 2, "::") == 0) begin = i + 2;
    }
    return name.substr(begin);
}

// What nvcc and the runtime's headers put between a launch and the runtime: the inline cudaLaunchKernel, the stubs (__device_stub__ of a
// kernel, __wrapper__device_stub_ of a template), and the function of the kernel's own name, which debug information does not always
// qualify.
bool is_stub(const Frame& frame, const std::string& kernel) {
    return unqualified(short_name(frame.function)) == kernel || frame.function.find("device_stub_") != std::string::npos ||
           frame.function.find("cudaLaunchKernel") != std::string::npos || frame.line.find(".stub.c") != std::string::npos ||
           frame.line.starts_with("cuda_runtime");
}

std::string describe(const Frame& frame) {
    std::string name = short_name(frame.function);
    if (name.size() > kLongestName) name.replace(kLongestName, std::string::npos, "...");
    return name + (frame.line.empty() ? "" : " at " + frame.line);
}

}  // namespace

std::string short_name(const std::string& mangled) {
    int status = 0;
    char* text = mangled.starts_with("_Z") ? __cxxabiv1::__cxa_demangle(mangled.c_str(), nullptr, nullptr, &status) : nullptr;
    std::string name = text != nullptr ? text : mangled;
    std::free(text);
    if (name.starts_with("void ")) name.erase(0, 5);
    int depth = 0;
    for (size_t i = 0; i < name.size(); ++i) {
        if (name[i] == '<') ++depth;
        if (name[i] == '>') --depth;
        if (name[i] == '(' && depth == 0 && i != 0 && name.compare(i, 21, "(anonymous namespace)") != 0) {
            name.resize(i);
            break;
        }
    }
    return name;
}

__attribute__((noinline)) HostPlace capture_host_place() {
    HostPlace place{};
    if (walk_known_frames(reinterpret_cast<uint64_t>(__builtin_frame_address(0)) + 8, place)) return place;
    if (frame_sizes().size() > kMostFrames) frame_sizes().clear();
    Walk walk;
    _Unwind_Backtrace(visit, &walk);
    if (walk.count < walk.place.size()) frame_sizes()[walk.address] = 0;
    return walk.place;
}

HostPlace capture_interrupted_place() {
    Walk walk;
    walk.is_signal = true;
    _Unwind_Backtrace(visit, &walk);
    return walk.place;
}

std::string describe_host_place(const HostPlace& place, const std::string& kernel) {
    const std::string stub = unqualified(short_name(kernel));
    std::vector<Frame> frames;
    for (size_t i = 0; i < place.size() && place[i] != 0 && frames.size() < 2; ++i) {
        const std::vector<Frame>& here = resolve_once(place[i]);
        if (here.empty()) break;  // a foreign one
        for (const Frame& frame : here)
            if (!is_stub(frame, stub)) frames.push_back(frame);
    }
    if (frames.empty()) return "";
    const bool has_caller = frames.size() > 1 && !frames[1].line.empty();
    return describe(frames[0]) + (has_caller ? ", called from " + describe(frames[1]) : "");
}

}  // namespace aicf::emu

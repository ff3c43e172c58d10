#include "options.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "exit_report.hpp"
#include "host_watch.hpp"
#include "order.hpp"
#include "queue.hpp"
#include "report_file.hpp"
#include "suppressions.hpp"

extern char** environ;

namespace aicf::emu {
namespace {

struct CheckName {
    const char* name;
    uint32_t bit;
};
constexpr CheckName kCheckNames[] = {{"memcheck", kMemcheck},
                                     {"initcheck", kInitcheck},
                                     {"synccheck", kSynccheck},
                                     {"racecheck", kRacecheck},
                                     {"streamcheck", kStreamcheck}};

constexpr const char* kVariablePrefix = "AICF_EMULATED_";
constexpr const char* kLevelVariable = "AICF_EMULATED_LEVEL";
constexpr const char* kScheduleNames[] = {"default", "reversed", "greedy", "random"};  // in the order of Schedule

uint64_t parse_number(const std::string& name, const std::string& value, uint64_t least, uint64_t most) {
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || number < least || number > most)
        throw Failure{kErrInvalidValue, "option " + name + ": \"" + value + "\" is not a whole number from " + std::to_string(least) +
                                            " to " + std::to_string(most)};
    return number;
}

uint32_t parse_checks(const std::string& value) {
    if (value == "all") return kAllChecks;
    uint32_t bits = 0;
    size_t begin = 0;
    while (begin < value.size() && value != "none") {
        const size_t end = std::min(value.find(',', begin), value.size());
        const std::string word = value.substr(begin, end - begin);
        const auto* check =
            std::find_if(std::begin(kCheckNames), std::end(kCheckNames), [&](const CheckName& c) { return word == c.name; });
        if (check == std::end(kCheckNames))
            throw Failure{kErrInvalidValue, "option checks: \"" + word +
                                                "\" is not one of memcheck, initcheck, synccheck, racecheck, streamcheck, all, none"};
        bits |= check->bit;
        begin = end + 1;
    }
    return bits;
}

std::string format_checks(uint32_t bits) {
    std::string text;
    for (const CheckName& check : kCheckNames)
        if ((bits & check.bit) != 0) text += (text.empty() ? "" : ",") + std::string(check.name);
    return text.empty() ? "none" : text;
}

// Marks allocations by their addresses, comma-separated.
void mark_allocations(Runtime& runtime, const std::string& option, const std::string& value,
                      uint64_t (DeviceMemory::*mark)(const std::vector<uint64_t>&)) {
    std::vector<uint64_t> addresses;
    for (size_t begin = 0; begin < value.size();) {
        const size_t end = std::min(value.find(',', begin), value.size());
        addresses.push_back(parse_number(option, value.substr(begin, end - begin), 1, UINT64_MAX));
        begin = end + 1;
    }
    DeviceMemory* memory = runtime.memory_if_made();
    if (memory == nullptr && addresses.empty()) return;
    const uint64_t unknown = memory == nullptr ? addresses.front() : (memory->*mark)(addresses);
    if (unknown != 0)
        throw Failure{kErrInvalidValue, "option " + option + ": no live allocation begins at " + std::to_string(unknown) +
                                            "; give addresses that cudaMalloc returned"};
}

std::string list_allocations(const Runtime& runtime, bool Allocation::* flag) {
    const DeviceMemory* memory = runtime.memory_if_made();
    std::string text;
    if (memory == nullptr) return text;
    for (const Allocation& allocation : memory->live_allocations())
        if (allocation.*flag) text += (text.empty() ? "" : ",") + std::to_string(allocation.address);
    return text;
}

std::string count_dependence(const Runtime& runtime) {
    const DeviceMemory* memory = runtime.memory_if_made();
    if (memory == nullptr) return "0,0";
    return std::to_string(memory->num_dependent_blocks) + "," + std::to_string(memory->num_shared_updates);
}

[[noreturn]] void refuse_to_set(const std::string& name, const std::string& what) {
    throw Failure{kErrInvalidValue, "option " + name + ": it is " + what + ", and cannot be set"};
}

struct Option {
    const char* name;
    void (*write)(Runtime&, const std::string&);
    std::string (*read)(const Runtime&);
};

constexpr uint64_t kLeastMemory = 1 << 20;
constexpr uint64_t kMostDevices = 16;
constexpr uint64_t kMostMemory = uint64_t{1} << 40;

const Option kOptions[] = {
    {"checks",
     [](Runtime& r, const std::string& v) {
         const uint32_t checks = parse_checks(v);
         if (((checks ^ r.options.checks) & kStreamcheck) != 0) forget_order(r);  // what was not noted cannot be ordered
         r.options.checks = checks;
     },
     [](const Runtime& r) { return format_checks(r.options.checks); }},
    {"counters", [](Runtime& r, const std::string& v) { r.options.counters = parse_number("counters", v, 0, 1) != 0; },
     [](const Runtime& r) { return std::string(r.options.counters ? "1" : "0"); }},
    {"workers", [](Runtime& r, const std::string& v) { r.options.workers = static_cast<uint32_t>(parse_number("workers", v, 0, 1024)); },
     [](const Runtime& r) { return std::to_string(r.options.workers); }},
    {"schedule",
     [](Runtime& r, const std::string& v) {
         const auto* name = std::find(std::begin(kScheduleNames), std::end(kScheduleNames), v);
         if (name == std::end(kScheduleNames))
             throw Failure{kErrInvalidValue, "option schedule: \"" + v + "\" is not one of default, reversed, greedy, random"};
         r.options.schedule = static_cast<Schedule>(name - kScheduleNames);
     },
     [](const Runtime& r) { return std::string(kScheduleNames[static_cast<int>(r.options.schedule)]); }},
    {"seed",
     [](Runtime& r, const std::string& v) {
         r.options.seed = parse_number("seed", v, 0, UINT64_MAX);
         restart_order(r);
     },
     [](const Runtime& r) { return std::to_string(r.options.seed); }},
    {"instruction_limit",
     [](Runtime& r, const std::string& v) {
         r.options.instruction_limit = parse_number("instruction_limit", v, 0, UINT64_MAX);
         r.limited_instructions = r.limited_matrix_work = 0;
     },
     [](const Runtime& r) { return std::to_string(r.options.instruction_limit); }},
    {"instructions", [](Runtime&, const std::string&) { refuse_to_set("instructions", "a count"); },
     [](const Runtime& r) { return std::to_string(r.limited_instructions); }},
    {"matrix_work", [](Runtime&, const std::string&) { refuse_to_set("matrix_work", "a count"); },
     [](const Runtime& r) { return std::to_string(r.limited_matrix_work); }},
    {"loop_limit", [](Runtime& r, const std::string& v) { r.options.loop_limit = parse_number("loop_limit", v, 0, UINT64_MAX); },
     [](const Runtime& r) { return std::to_string(r.options.loop_limit); }},
    {"sample_blocks", [](Runtime& r, const std::string& v) { r.options.sample_blocks = parse_number("sample_blocks", v, 0, UINT64_MAX); },
     [](const Runtime& r) { return std::to_string(r.options.sample_blocks); }},
    {"sample_seed", [](Runtime& r, const std::string& v) { r.options.sample_seed = parse_number("sample_seed", v, 0, UINT64_MAX); },
     [](const Runtime& r) { return std::to_string(r.options.sample_seed); }},
    {"read_only", [](Runtime& r, const std::string& v) { mark_allocations(r, "read_only", v, &DeviceMemory::set_read_only); },
     [](const Runtime& r) { return list_allocations(r, &Allocation::read_only); }},
    {"given", [](Runtime& r, const std::string& v) { mark_allocations(r, "given", v, &DeviceMemory::set_given); },
     [](const Runtime& r) { return list_allocations(r, &Allocation::given); }},
    {"dependence", [](Runtime&, const std::string&) { refuse_to_set("dependence", "two counts"); },
     [](const Runtime& r) { return count_dependence(r); }},
    {"zero_memory",
     [](Runtime& r, const std::string& v) {
         r.options.zero_memory = parse_number("zero_memory", v, 0, 1) != 0;
         if (DeviceMemory* memory = r.memory_if_made()) memory->set_zero_fresh(r.options.zero_memory);
     },
     [](const Runtime& r) { return std::string(r.options.zero_memory ? "1" : "0"); }},
    {"host_accesses", [](Runtime&, const std::string& v) { set_watching_host(parse_number("host_accesses", v, 0, 1) != 0); },
     [](const Runtime&) { return std::string(is_watching_host() ? "1" : "0"); }},
    {"l1_bytes",
     [](Runtime& r, const std::string& v) { r.options.l1_bytes = static_cast<uint32_t>(parse_number("l1_bytes", v, 0, 1 << 20)); },
     [](const Runtime& r) { return std::to_string(r.options.l1_bytes); }},
    {"warp_quantum",
     [](Runtime& r, const std::string& v) { r.options.warp_quantum = static_cast<uint32_t>(parse_number("warp_quantum", v, 0, 1 << 20)); },
     [](const Runtime& r) { return std::to_string(r.options.warp_quantum); }},
    {"max_reports",
     [](Runtime& r, const std::string& v) { r.options.max_reports = static_cast<uint32_t>(parse_number("max_reports", v, 1, 1000000)); },
     [](const Runtime& r) { return std::to_string(r.options.max_reports); }},
    {"memory_bytes",
     [](Runtime& r, const std::string& v) {
         const uint64_t bytes = parse_number("memory_bytes", v, kLeastMemory, kMostMemory);
         if (r.memory_if_made() != nullptr && bytes != r.memory_bytes)
             throw Failure{kErrInvalidValue, "option memory_bytes: the device's memory is in use; set it before the first allocation"};
         r.memory_bytes = bytes;
     },
     [](const Runtime& r) { return std::to_string(r.memory_bytes); }},
    {"devices",
     [](Runtime& r, const std::string& v) {
         const uint64_t count = parse_number("devices", v, 1, kMostDevices);
         if (r.memory_if_made() != nullptr && count != r.devices.size())
             throw Failure{kErrInvalidValue, "option devices: the devices are in use; set it before the first allocation"};
         r.set_device_count(count);
     },
     [](const Runtime& r) { return std::to_string(r.devices.size()); }},
    {"mode",
     [](Runtime& r, const std::string& v) {
         if (v != "eager" && v != "deferred") throw Failure{kErrInvalidValue, "option mode: \"" + v + "\" is not one of eager, deferred"};
         finish_all(r);
         r.deferred = v == "deferred";
     },
     [](const Runtime& r) { return std::string(r.deferred ? "deferred" : "eager"); }},
    {"target",
     [](Runtime& r, const std::string& v) {
         const Target* target = find_target(v);
         if (target == nullptr) throw Failure{kErrInvalidValue, "option target: \"" + v + "\" is not one of h200, h100, a100"};
         r.target = target;
         r.options.target = v;
     },
     [](const Runtime& r) { return r.options.target; }},
    {"print_reports", [](Runtime&, const std::string& v) { exit_options().print_reports = parse_number("print_reports", v, 0, 1) != 0; },
     [](const Runtime&) { return std::string(exit_options().print_reports ? "1" : "0"); }},
    {"print_limit",
     [](Runtime&, const std::string& v) { exit_options().print_limit = static_cast<uint32_t>(parse_number("print_limit", v, 0, 1000000)); },
     [](const Runtime&) { return std::to_string(exit_options().print_limit); }},
    {"summary", [](Runtime&, const std::string& v) { exit_options().summary = static_cast<int>(parse_number("summary", v, 0, 2)); },
     [](const Runtime&) { return std::to_string(exit_options().summary); }},
    {"leak_check", [](Runtime&, const std::string& v) { exit_options().leak_check = parse_number("leak_check", v, 0, 1) != 0; },
     [](const Runtime&) { return std::string(exit_options().leak_check ? "1" : "0"); }},
    {"error_exitcode",
     [](Runtime&, const std::string& v) { exit_options().error_exitcode = static_cast<int>(parse_number("error_exitcode", v, 0, 255)); },
     [](const Runtime&) { return std::to_string(exit_options().error_exitcode); }},
    {"summary_file", [](Runtime&, const std::string& v) { exit_options().summary_file = v; },
     [](const Runtime&) { return exit_options().summary_file; }},
    {"suppressions", [](Runtime&, const std::string& v) { set_suppressions(v); }, [](const Runtime&) { return suppressions_path(); }},
    {"suppressed", [](Runtime&, const std::string&) { refuse_to_set("suppressed", "a count"); },
     [](const Runtime&) { return std::to_string(count_suppressed()); }},
    {"report_file", [](Runtime&, const std::string& v) { set_report_file(v); }, [](const Runtime&) { return report_file(); }},
};

constexpr const char* kLevels[] = {"v2", "v3", "v4"};

std::string name_variable(const char* option) {
    std::string variable = kVariablePrefix;
    for (const char* c = option; *c != '\0'; ++c) variable += static_cast<char>(std::toupper(static_cast<unsigned char>(*c)));
    return variable;
}

// What is wrong with a variable of the environment that has our prefix, "" where nothing is; sets the option that it stands for.
std::string read_variable(Runtime& runtime, const std::string& name, const std::string& value) {
    if (value.empty()) return "";
    if (name == kLevelVariable) {  // level.cpp reads it
        const bool known = std::find(std::begin(kLevels), std::end(kLevels), value) != std::end(kLevels);
        return known ? "" : "\"" + value + "\" is not one of v2, v3, v4";
    }
    for (const Option& option : kOptions) {
        if (name != name_variable(option.name)) continue;
        try {
            option.write(runtime, value);
            return "";
        } catch (const Failure& failure) {
            return failure.message;
        }
    }
    return "there is no such option; options: " + option_names() + ", level";
}

const Option* find_option(const std::string& name) {
    const auto* option = std::find_if(std::begin(kOptions), std::end(kOptions), [&](const Option& o) { return name == o.name; });
    return option == std::end(kOptions) ? nullptr : option;
}

}  // namespace

void set_default_options(Runtime& runtime) {
    runtime.target = find_target("h200");
    runtime.options = ExecOptions{};
    runtime.memory_bytes = uint64_t{8} << 30;
    for (char** each = environ; each != nullptr && *each != nullptr; ++each) {
        const std::string variable = *each;
        const size_t equals = variable.find('=');
        if (!variable.starts_with(kVariablePrefix) || equals == std::string::npos) continue;
        const std::string name = variable.substr(0, equals);
        const std::string fault = read_variable(runtime, name, variable.substr(equals + 1));
        if (fault.empty() || !runtime.wrong_setting.empty()) continue;
        runtime.wrong_setting = variable + ": " + fault;
        std::fprintf(stderr, "aicf emulator: %s; every call fails until it is mended\n", runtime.wrong_setting.c_str());
    }
}

void set_option(Runtime& runtime, const std::string& name, const std::string& value) {
    if (!runtime.wrong_setting.empty()) throw Failure{kErrInitializationError, runtime.wrong_setting};
    const Option* option = find_option(name);
    if (option == nullptr) {
        std::string known;
        for (const Option& each : kOptions) known += (known.empty() ? "" : ", ") + std::string(each.name);
        throw Failure{kErrInvalidValue, "there is no option \"" + name + "\"; options: " + known};
    }
    option->write(runtime, value);
}

std::string option_names() {
    std::string names;
    for (const Option& option : kOptions) names += (names.empty() ? "" : ",") + std::string(option.name);
    return names;
}

bool get_option(const Runtime& runtime, const std::string& name, std::string* value) {
    const Option* option = find_option(name);
    if (option != nullptr) *value = option->read(runtime);
    return option != nullptr;
}

}  // namespace aicf::emu

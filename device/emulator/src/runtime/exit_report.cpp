#include "exit_report.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>
#include <tuple>

#include "graph.hpp"
#include "leaks.hpp"
#include "report_file.hpp"

namespace aicf::emu {
namespace {

constexpr size_t kMostKept = 1000;  // distinct findings in the file

struct KernelCounts {
    uint64_t launches = 0;
    std::map<std::string, uint64_t> counts;
};

using FindingKey = std::tuple<std::string, std::string, uint32_t, std::string>;  // kind, kernel, PTX line, first line of the text

struct Findings {
    uint64_t errors = 0, warnings = 0, notes = 0;  // with repetitions within a launch folded, as reported
    std::vector<Report> kept;
    std::map<FindingKey, size_t> index;  // into kept: the same finding of a later launch is counted, not told again
    uint64_t left_out = 0;
    std::map<std::string, KernelCounts> counters;
    std::vector<std::string> unimplemented;
};

Findings& findings() {
    static auto* all = new Findings;
    return *all;
}

bool runtime_used = false;

// Every line with the mark that sanitizers put before theirs.
std::string marked(const std::string& text) {
    std::istringstream lines(text);
    std::string out;
    for (std::string line; std::getline(lines, line);) out += "========= " + line + "\n";
    return out;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string findings_json() {
    std::string out = "[";
    for (const Report& report : findings().kept) out += (out.size() == 1 ? "" : ",") + to_json(report);
    return out + "]";
}

std::string counters_json() {
    std::string out = "[";
    for (const auto& [kernel, entry] : findings().counters) {
        std::string counts;
        for (const auto& [name, value] : entry.counts) counts += (counts.empty() ? "" : ",") + quote(name) + ":" + std::to_string(value);
        out += (out.size() == 1 ? "" : ",") + ("{\"kernel\":" + quote(kernel)) + ",\"launches\":" + std::to_string(entry.launches) +
               ",\"counts\":{" + counts + "}}";
    }
    return out + "]";
}

void write_file(bool finished) {
    const std::string& path = exit_options().summary_file;
    if (path.empty()) return;
    const Findings& all = findings();
    std::string unimplemented;
    for (const std::string& name : all.unimplemented) unimplemented += (unimplemented.empty() ? "" : ",") + quote(name);
    const std::string text = "{\"version\":1,\"finished\":" + std::string(finished ? "true" : "false") +
                             ",\"errors\":" + std::to_string(all.errors) + ",\"warnings\":" + std::to_string(all.warnings) +
                             ",\"notes\":" + std::to_string(all.notes) + ",\"left_out\":" + std::to_string(all.left_out) +
                             ",\"findings\":" + findings_json() + ",\"counters\":" + counters_json() + ",\"unimplemented\":[" +
                             unimplemented + "]}\n";
    // Written aside and moved into place: a reader never sees half of it.
    const std::string aside = path + ".part";
    std::FILE* file = std::fopen(aside.c_str(), "w");
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool closed = file != nullptr && std::fclose(file) == 0;
    if (!written || !closed || std::rename(aside.c_str(), path.c_str()) != 0)
        std::fprintf(stderr, "aicf emulator: cannot write %s (option summary_file)\n", path.c_str());
}

void print_counters() {
    for (const auto& [kernel, entry] : findings().counters) {
        std::fprintf(stderr, "========= Counters of %s, %llu launch%s\n", kernel.c_str(), static_cast<unsigned long long>(entry.launches),
                     entry.launches == 1 ? "" : "es");
        for (const auto& [name, value] : entry.counts)
            if (value != 0) std::fprintf(stderr, "=========     %-32s %llu\n", name.c_str(), static_cast<unsigned long long>(value));
    }
}

std::string plural(uint64_t count, const char* what) { return std::to_string(count) + " " + what + (count == 1 ? "" : "s"); }

void finish(int status, void*) {
    if (!runtime_used) return;
    Runtime& runtime = Runtime::get();
    // Another thread may be in a call, which is cut off here, as on hardware; a short one is waited for.
    constexpr int kMostTries = 100;
    for (int i = 0; !runtime.mutex.try_lock(); ++i) {
        if (i == kMostTries) return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::fflush(nullptr);
    note_unfinished_work(runtime);
    // Once the context is lost nothing can be given back.
    if (exit_options().leak_check && runtime.sticky_error == 0) note_leaks(runtime);
    const Findings& all = findings();
    const bool has_findings = all.errors + all.warnings + all.notes != 0;
    if (exit_options().summary == 1 || (exit_options().summary == 2 && has_findings)) {
        if (runtime.options.counters) print_counters();
        std::string text = "ERROR SUMMARY: " + plural(all.errors, "error");
        if (all.warnings != 0) text += ", " + plural(all.warnings, "warning");
        if (all.notes != 0) text += ", " + plural(all.notes, "note");
        std::fprintf(stderr, "========= %s\n", text.c_str());
    }
    write_file(true);
    std::fflush(nullptr);
    runtime.mutex.unlock();
    const int code = exit_options().error_exitcode;
    if (code != 0 && all.errors != 0 && code != status) _exit(code);
}

// Before main() and before every atexit() of the program, so that it runs after all of them. The library is linked with -z nodelete.
__attribute__((constructor)) void watch_exit() { on_exit(finish, nullptr); }

}  // namespace

ExitOptions& exit_options() {
    static auto* options = new ExitOptions;
    return *options;
}

void note_finding(const Report& report) {
    runtime_used = true;
    Findings& all = findings();
    (report.severity == Severity::kError ? all.errors : report.severity == Severity::kWarning ? all.warnings : all.notes) += 1;
    const auto [place, is_new] = all.index.emplace(
        FindingKey{report.kind, report.kernel, report.ptx_line, report.kernel.empty() ? first_line(report.text) : ""}, all.kept.size());
    if (!is_new) {
        if (place->second < all.kept.size()) all.kept[place->second].count += report.count;
        return;
    }
    if (all.kept.size() < kMostKept)
        all.kept.push_back(report);
    else
        ++all.left_out;
    if (exit_options().print_reports) {
        const size_t number = all.index.size();
        if (number <= exit_options().print_limit)
            std::fprintf(stderr, "%s=========\n", marked(report.text).c_str());
        else if (number == exit_options().print_limit + 1)
            std::fprintf(stderr, "========= more findings are not printed (option print_limit)\n");
    }
    write_file(false);
}

void note_counters(const LaunchRecord& record) {
    KernelCounts& entry = findings().counters[record.kernel];
    ++entry.launches;
    for (const auto& [name, value] : record.counters.to_map(true)) entry.counts[name] += value;
}

void note_unimplemented(const char* function) { findings().unimplemented.emplace_back(function); }

uint64_t num_error_findings() { return findings().errors; }

void mark_runtime_used() { runtime_used = true; }

}  // namespace aicf::emu

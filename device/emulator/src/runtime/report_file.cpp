// Reports as JSON, and the file that keeps them for whoever started the program.
#include "report_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>

namespace aicf::emu {
namespace {

// Never freed: a program's own end may come after that of static objects.
struct File {
    std::mutex mutex;
    std::string path;
};
File& file() {
    static File* const kept = new File();
    return *kept;
}

const char* name_of(Severity severity) {
    return severity == Severity::kError ? "error" : severity == Severity::kWarning ? "warning" : "note";
}

}  // namespace

std::string quote(const std::string& text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (static_cast<unsigned char>(c) < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(static_cast<unsigned char>(c)));
            out += escape;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

std::string to_json(const Dim3& dim) {
    return "[" + std::to_string(dim.x) + "," + std::to_string(dim.y) + "," + std::to_string(dim.z) + "]";
}

std::string to_json(const Report& r) {
    return "{\"kind\":" + quote(r.kind) + ",\"severity\":\"" + name_of(r.severity) + "\",\"text\":" + quote(r.text) +
           ",\"kernel\":" + quote(r.kernel) + ",\"ptx_line\":" + std::to_string(r.ptx_line) + ",\"source\":" + quote(r.source) +
           ",\"block\":" + to_json(r.block) + ",\"thread\":" + to_json(r.thread) + ",\"address\":" + std::to_string(r.address) +
           ",\"count\":" + std::to_string(r.count) + "}";
}

void set_report_file(const std::string& path) {
    std::lock_guard lock(file().mutex);
    file().path = path;
}

std::string report_file() {
    std::lock_guard lock(file().mutex);
    return file().path;
}

void append_to_report_file(const Report& report) {
    std::lock_guard lock(file().mutex);
    if (file().path.empty()) return;
    const int descriptor = open(file().path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (descriptor < 0) return;
    const std::string line = to_json(report) + "\n";
    if (write(descriptor, line.data(), line.size()) < 0) std::fprintf(stderr, "aicf emulator: %s cannot be written\n", file().path.c_str());
    close(descriptor);
}

void append_unsupported(const std::string& message) {
    Report report;
    report.kind = "unsupported";
    report.text = message;
    append_to_report_file(report);
}

}  // namespace aicf::emu

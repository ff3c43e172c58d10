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

// Bytes of the UTF-8 sequence at `at`: 1 to 4, or 0 where there is none (RFC 3629).
size_t utf8_sequence(const std::string& text, size_t at) {
    const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
    const unsigned first = byte(at);
    const size_t length = first < 0x80                    ? 1
                          : first >= 0xC2 && first < 0xE0 ? 2
                          : first >= 0xE0 && first < 0xF0 ? 3
                          : first >= 0xF0 && first < 0xF5 ? 4
                                                          : 0;
    for (size_t i = 1; i < length; ++i)
        if ((byte(at + i) & 0xC0) != 0x80) return 0;
    if ((first == 0xE0 && byte(at + 1) < 0xA0) || (first == 0xED && byte(at + 1) > 0x9F) || (first == 0xF0 && byte(at + 1) < 0x90) ||
        (first == 0xF4 && byte(at + 1) > 0x8F)) {
        return 0;
    }
    return length;
}

}  // namespace

std::string quote(const std::string& text) {
    std::string out = "\"";
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        const size_t sequence = utf8_sequence(text, i);
        if (sequence > 1) {
            out.append(text, i, sequence);
            i += sequence - 1;
        } else if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (static_cast<unsigned char>(c) < 0x20 || sequence == 0) {  // any byte may stand in damaged PTX: shown as Latin-1
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
    std::string callers, copies;
    for (const std::string& caller : r.inlined_at) callers += (callers.empty() ? "" : ",") + quote(caller);
    for (const uint32_t line : r.copies) copies += (copies.empty() ? "" : ",") + std::to_string(line);
    return "{\"kind\":" + quote(r.kind) + ",\"severity\":\"" + name_of(r.severity) + "\",\"text\":" + quote(r.text) +
           ",\"kernel\":" + quote(r.kernel) + ",\"ptx_line\":" + std::to_string(r.ptx_line) + ",\"source\":" + quote(r.source) +
           ",\"block\":" + to_json(r.block) + ",\"thread\":" + to_json(r.thread) + ",\"address\":" + std::to_string(r.address) +
           ",\"count\":" + std::to_string(r.count) + ",\"kernel_name\":" + quote(r.kernel_name) + ",\"inlined_at\":[" + callers +
           "],\"copies\":[" + copies + "],\"launched_at\":" + quote(r.launched_at) + "}";
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

// What device code prints: vprintf and __assertfail.
#include <cstdio>
#include <cstring>

#include "engine.hpp"

namespace aicf::emu {
namespace {

constexpr size_t kMaxText = 1 << 16;
constexpr size_t kMaxOutputs = 1 << 20;  // of one launch

std::string read_string(const Block& block, const Warp& warp, uint32_t lane, uint64_t address) {
    std::string text;
    char c = 0;
    while (text.size() < kMaxText) {
        if (!read_generic(block, warp, lane, address + text.size(), &c, 1)) return text.empty() ? "(invalid pointer)" : text;
        if (c == 0) break;
        text += c;
    }
    return text;
}

void emit(LaunchState& state, uint64_t block, bool is_error, std::string text) {
    std::lock_guard lock(state.mutex);
    if (state.output.size() < kMaxOutputs) state.output.push_back({block, is_error, std::move(text)});
}

}  // namespace

bool read_generic(const Block& block, const Warp& warp, uint32_t lane, uint64_t address, void* to, uint32_t bytes) {
    const uint64_t window = address & kWindowMask;
    const uint64_t offset = address & ~kWindowMask;
    if (window == kLocalWindow) {
        if (offset + bytes > block.local_stride) return false;
        std::memcpy(to, block.local + static_cast<uint64_t>(warp.id * kWarpLanes + lane) * block.local_stride + offset, bytes);
        return true;
    }
    if (window == kSharedWindow) {
        if (!block.has_shared(offset, bytes)) return false;
        std::memcpy(to, block.shared + offset, bytes);
        return true;
    }
    if (window == kParamWindow) {
        const std::vector<std::byte>& params = block.launch->launch->params;
        if (offset + bytes > params.size()) return false;
        std::memcpy(to, params.data() + offset, bytes);
        return true;
    }
    const DeviceMemory& memory = *block.launch->memory;
    if (window != 0 || !memory.contains(address) || !memory.accessible(address, bytes)) return false;
    std::memcpy(to, memory.alias(address), bytes);
    return true;
}

void run_printf(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, uint64_t format_address, uint64_t arguments,
                uint32_t* result) {
    const std::string format = read_string(block, warp, lane, format_address);
    std::string out;
    uint64_t at = arguments;
    int32_t count = 0;
    const auto argument = [&](uint32_t bytes) {
        uint64_t value = 0;
        at = (at + bytes - 1) / bytes * bytes;
        read_generic(block, warp, lane, at, &value, bytes);
        at += bytes;
        ++count;
        return value;
    };
    char piece[512];
    for (size_t i = 0; i < format.size(); ++i) {
        if (format[i] != '%') {
            out += format[i];
            continue;
        }
        if (i + 1 < format.size() && format[i + 1] == '%') {
            out += '%';
            ++i;
            continue;
        }
        std::string spec = "%";
        size_t j = i + 1;
        while (j < format.size() && std::strchr("-+ #0123456789.*", format[j])) {
            if (format[j] == '*') {
                spec += std::to_string(static_cast<int32_t>(argument(4)));
            } else {
                spec += format[j];
            }
            ++j;
        }
        bool wide = false;
        int halves = 0;
        while (j < format.size() && std::strchr("hljztL", format[j])) {
            if (format[j] == 'h')
                ++halves;
            else if (format[j] != 'L')
                wide = true;
            ++j;
        }
        if (j >= format.size()) {
            out += format.substr(i);
            break;
        }
        const char conversion = format[j];
        int written = 0;
        switch (conversion) {
            case 'd':
            case 'i': {
                const uint64_t bits = argument(wide ? 8 : 4);
                long long value = wide ? static_cast<long long>(bits) : static_cast<long long>(static_cast<int32_t>(bits));
                if (halves == 1) value = static_cast<int16_t>(value);
                if (halves >= 2) value = static_cast<int8_t>(value);
                written = std::snprintf(piece, sizeof piece, (spec + "ll" + conversion).c_str(), value);
                break;
            }
            case 'u':
            case 'x':
            case 'X':
            case 'o': {
                unsigned long long value = argument(wide ? 8 : 4);
                if (halves == 1) value = static_cast<uint16_t>(value);
                if (halves >= 2) value = static_cast<uint8_t>(value);
                written = std::snprintf(piece, sizeof piece, (spec + "ll" + conversion).c_str(), value);
                break;
            }
            case 'c': written = std::snprintf(piece, sizeof piece, (spec + "c").c_str(), static_cast<int>(argument(4))); break;
            case 'p': written = std::snprintf(piece, sizeof piece, (spec + "p").c_str(), reinterpret_cast<void*>(argument(8))); break;
            case 's': {
                const std::string text = read_string(block, warp, lane, argument(8));
                std::string whole(text.size() + 256, 0);
                const int length = std::snprintf(whole.data(), whole.size(), (spec + "s").c_str(), text.c_str());
                out.append(whole.data(), std::min<size_t>(length, whole.size() - 1));
                break;
            }
            case 'f':
            case 'F':
            case 'e':
            case 'E':
            case 'g':
            case 'G':
            case 'a':
            case 'A': {
                const uint64_t bits = argument(8);
                double value;
                std::memcpy(&value, &bits, 8);
                written = std::snprintf(piece, sizeof piece, (spec + conversion).c_str(), value);
                break;
            }
            default: out += format.substr(i, j - i + 1); break;
        }
        if (written > 0) out.append(piece, std::min<size_t>(written, sizeof piece - 1));
        i = j;
    }
    *result = static_cast<uint32_t>(count);
    emit(*worker.launch, block.linear, false, std::move(out));
}

void run_assert(Worker& worker, Block& block, Warp& warp, uint32_t pc, uint32_t lane, uint64_t message, uint64_t file, uint32_t line,
                uint64_t function) {
    uint32_t thread[3];
    thread_index(*worker.launch, warp.id * kWarpLanes + lane, thread);
    char ids[160];
    std::snprintf(ids, sizeof ids, "block: [%u,%u,%u], thread: [%u,%u,%u]", block.ctaid[0], block.ctaid[1], block.ctaid[2], thread[0],
                  thread[1], thread[2]);
    const std::string text = read_string(block, warp, lane, file) + ":" + std::to_string(line) + ": " +
                             read_string(block, warp, lane, function) + ": " + ids + " Assertion `" +
                             read_string(block, warp, lane, message) + "` failed.";
    emit(*worker.launch, block.linear, true, text + "\n");
    report_event(worker, block, warp, pc, lane, Finding::kAssert, text);
}

}  // namespace aicf::emu

// Reads PTX texts from the file named on the command line and prints one line of JSON for each: the module, or where parsing stopped.
// Texts are separated by a line that holds only \x1e (ASCII record separator).
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <string_view>

#include "module.hpp"

namespace {

using namespace aicf::emu::ptx;

std::string quote(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte < 0x20 || byte > 0x7e) {  // any byte may stand in a faulty text: shown as Latin-1
            char escaped[8];
            std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
            out += escaped;
        } else {
            out += c;
        }
    }
    return out + "\"";
}

template <class Range, class Show>
std::string list(const Range& range, Show show) {
    std::string out;
    for (const auto& item : range) out += (out.empty() ? "" : ", ") + show(item);
    return "[" + out + "]";
}

std::string number(uint64_t value) { return std::to_string(value); }
std::string quoted(const std::string& text) { return quote(text); }

// One operand in a notation of its own, every kind distinct: %r1, #s64:5, sym+4, [%rd1+8], {a, b}, a|b, (a, b), <a, b>.
std::string show(const Operand& operand) {
    const auto elements = [&](const char* open, const char* separator, const char* close) {
        std::string out;
        for (const Operand& element : operand.elements) out += (out.empty() ? "" : separator) + show(element);
        return open + out + close;
    };
    const std::string offset = operand.offset == 0 ? "" : (operand.offset > 0 ? "+" : "") + std::to_string(operand.offset);
    const std::string sign = operand.negated ? "!" : "";
    switch (operand.kind) {
        case Operand::Kind::kRegister:
            return sign + operand.name + (operand.member < 0 ? "" : "." + std::string(1, "xyzw"[operand.member]));
        case Operand::Kind::kImmediate: {
            char bits[32];
            std::snprintf(bits, sizeof bits, "0x%llx", static_cast<unsigned long long>(operand.bits));
            return std::string("#") + name_of(operand.immediate_type) + ":" + bits;
        }
        case Operand::Kind::kSymbol: return sign + "&" + operand.name + offset;
        case Operand::Kind::kAddress: return std::string("[") + (operand.base_is_register ? "" : "&") + operand.name + offset + "]";
        case Operand::Kind::kVector: return elements("{", ", ", "}");
        case Operand::Kind::kSink: return "_";
        case Operand::Kind::kPair: return elements("", "|", "");
        case Operand::Kind::kList: return elements("(", ", ", ")");
        default: return elements("<", ", ", ">");
    }
}

std::string show(const Variable& variable) {
    std::string bytes = "null", relocations = "[]";
    if (variable.initial) {
        bytes = "\"";
        for (const uint8_t byte : variable.initial->bytes) {
            char hex[3];
            std::snprintf(hex, sizeof hex, "%02x", byte);
            bytes += hex;
        }
        bytes += "\"";
        relocations = list(variable.initial->relocations, [](const Initializer::Relocation& r) {
            return "[" + number(r.at_byte) + ", " + number(r.size_bytes) + ", " + quote(r.symbol) + ", " + std::to_string(r.offset) + ", " +
                   (r.generic ? "true" : "false") + ", " + number(r.shift_bits) + "]";
        });
    }
    return "{\"name\": " + quote(variable.name) + ", \"type\": " + quote(name_of(variable.type)) +
           ", \"vector\": " + number(variable.vector_length) + ", \"align\": " + number(variable.align) +
           ", \"size\": " + number(variable.size_bytes) + ", \"dimensions\": " + list(variable.dimensions, number) +
           ", \"bytes\": " + bytes + ", \"relocations\": " + relocations + "}";
}

std::string show(const Instruction& instruction) {
    std::string text = instruction.guard.empty() ? "" : "@" + std::string(instruction.guard_negated ? "!" : "") + instruction.guard + " ";
    text += instruction.spelling();
    const char* separator = " ";
    for (const Operand& operand : instruction.operands) {
        text += separator + show(operand);
        separator = ", ";
    }
    return text;
}

std::string show(const Module& module, const Function& function) {
    const auto variable = [](const Variable& v) { return show(v); };
    return "{\"name\": " + quote(function.name) + ", \"entry\": " + (function.is_entry ? "true" : "false") +
           ", \"body\": " + (function.has_body ? "true" : "false") + ", \"params\": " + list(function.params, variable) +
           ", \"returns\": " + list(function.returns, variable) + ", \"variables\": " + list(function.variables, variable) +
           ", \"registers\": " + list(function.registers, [](const Register& r) { return quote(r.name + ":" + name_of(r.type)); }) +
           ", \"labels\": " +
           list(function.labels, [](const Label& l) { return "[" + quote(l.name) + ", " + number(l.instruction) + "]"; }) +
           ", \"instructions\": " + list(function.instructions, [](const Instruction& i) { return quote(show(i)); }) +
           ", \"sources\": " + list(function.instructions, [&](const Instruction& i) { return quote(module.source_of(i.where)); }) +
           ", \"targets\": " +
           list(function.branch_targets,
                [](const BranchTargets& t) { return "[" + quote(t.name) + ", " + list(t.targets, quoted) + "]"; }) +
           ", \"prototypes\": " +
           list(function.prototypes,
                [&](const Prototype& p) {
                    return "[" + quote(p.name) + ", " + list(p.returns, variable) + ", " + list(p.params, variable) + "]";
                }) +
           ", \"max_threads\": " + list(function.max_threads, [](uint32_t n) { return number(n); }) + "}";
}

std::string parse_to_json(std::string_view text) {
    try {
        const Module module = parse(text);
        return "{\"version\": [" + number(module.version_major) + ", " + number(module.version_minor) +
               "], \"target\": " + quote(module.target) +
               ", \"variables\": " + list(module.variables, [](const Variable& v) { return show(v); }) +
               ", \"functions\": " + list(module.functions, [&](const Function& f) { return show(module, f); }) + "}";
    } catch (const ParseError& error) {
        return "{\"line\": " + number(error.ptx_line) + ", \"error\": " + quote(error.what()) + "}";
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: ptx_tool FILE\n";
        return 2;
    }
    std::ifstream file(argv[1], std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    constexpr std::string_view kSeparator = "\n\x1e\n";
    for (size_t start = 0; start <= all.size();) {
        const size_t end = std::min(all.find(kSeparator, start), all.size());
        std::cout << parse_to_json(std::string_view(all).substr(start, end - start)) << "\n";
        start = end + kSeparator.size();
    }
    return 0;
}

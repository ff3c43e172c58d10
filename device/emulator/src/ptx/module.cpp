#include "module.hpp"

#include <algorithm>

namespace aicf::emu::ptx {
namespace {

struct TypeRow {
    const char* name;
    uint32_t size_bytes;
};

// In the order of enum Type.
constexpr TypeRow kTypes[] = {
    {"", 0},       {"b1", 1},   {"b8", 1},    {"b16", 2},   {"b32", 4},  {"b64", 8},    {"b128", 16},      {"u8", 1},      {"u16", 2},
    {"u32", 4},    {"u64", 8},  {"s8", 1},    {"s16", 2},   {"s32", 4},  {"s64", 8},    {"f16", 2},        {"f16x2", 4},   {"bf16", 2},
    {"bf16x2", 4}, {"tf32", 4}, {"f32", 4},   {"f32x2", 8}, {"f64", 8},  {"e4m3", 1},   {"e5m2", 1},       {"e4m3x2", 2},  {"e5m2x2", 2},
    {"u8x4", 4},   {"s8x4", 4}, {"u16x2", 4}, {"s16x2", 4}, {"pred", 1}, {"texref", 8}, {"samplerref", 8}, {"surfref", 8},
};
static_assert(std::size(kTypes) == static_cast<size_t>(Type::kSurfref) + 1);

}  // namespace

uint32_t size_of(Type type) { return kTypes[static_cast<size_t>(type)].size_bytes; }

const char* name_of(Type type) { return kTypes[static_cast<size_t>(type)].name; }

Type type_from_name(std::string_view name) {
    for (size_t i = 1; i < std::size(kTypes); ++i) {
        if (name == kTypes[i].name) return static_cast<Type>(i);
    }
    return Type::kNone;
}

ParseError::ParseError(uint32_t line, const std::string& message)
    : std::runtime_error("PTX line " + std::to_string(line) + ": " + message), ptx_line(line) {}

std::string Instruction::spelling() const {
    std::string text = opcode;
    for (const std::string& modifier : modifiers) text += "." + modifier;
    return text;
}

bool Instruction::has(std::string_view modifier) const { return std::ranges::find(modifiers, modifier) != modifiers.end(); }

const Function* Module::find(std::string_view name) const {
    const Function* declaration = nullptr;
    for (const Function& function : functions) {
        if (function.name != name) continue;
        if (function.has_body) return &function;
        declaration = &function;
    }
    return declaration;
}

std::string Module::source_of(const Location& where) const {
    if (where.file == 0 || where.file >= files.size() || files[where.file].empty()) return "";
    const std::string& path = files[where.file];
    const size_t slash = path.find_last_of('/');
    return (slash == std::string::npos ? path : path.substr(slash + 1)) + ":" + std::to_string(where.line);
}

std::vector<std::string> Module::callers_of(const Location& where) const {
    std::vector<std::string> callers;
    for (uint32_t site = where.inlined_at; site != 0 && site < call_sites.size(); site = call_sites[site].inlined_at)
        callers.push_back(source_of(call_sites[site]));
    return callers;
}

}  // namespace aicf::emu::ptx

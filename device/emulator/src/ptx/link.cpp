#include "link.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>

namespace aicf::emu::ptx {
namespace {

using Linkage = Variable::Linkage;
using Names = std::unordered_map<std::string, std::string>;  // old name -> new name

void rename(std::string& name, const Names& names, const std::set<std::string>& hidden) {
    const auto found = names.find(name);
    if (found != names.end() && !hidden.contains(name)) name = found->second;
}

void rename(Operand& operand, const Names& names, const std::set<std::string>& hidden) {
    const bool is_symbol = operand.kind == Operand::Kind::kSymbol || (operand.kind == Operand::Kind::kAddress && !operand.base_is_register);
    if (is_symbol) rename(operand.name, names, hidden);
    for (Operand& element : operand.elements) rename(element, names, hidden);
}

// Gives new names to symbols of a module, everywhere in it.
void rename(Module& module, const Names& names) {
    if (names.empty()) return;
    for (Variable& variable : module.variables) {
        rename(variable.name, names, {});
        if (!variable.initial) continue;
        for (Initializer::Relocation& relocation : variable.initial->relocations) rename(relocation.symbol, names, {});
    }
    for (Function& function : module.functions) {
        rename(function.name, names, {});
        std::set<std::string> hidden;  // declared in the function
        for (const Variable& variable : function.params) hidden.insert(variable.name);
        for (const Variable& variable : function.returns) hidden.insert(variable.name);
        for (const Variable& variable : function.variables) hidden.insert(variable.name);
        for (const Label& label : function.labels) hidden.insert(label.name);
        for (Instruction& instruction : function.instructions) {
            for (Operand& operand : instruction.operands) rename(operand, names, hidden);
        }
    }
}

// Places in the source, by the files of the linked module.
void shift_files(Module& module, uint32_t by, uint32_t sites) {
    const auto shift = [&](Location& where) {
        if (where.file) where.file += by;
        if (where.inlined_at) where.inlined_at += sites;
    };
    for (Location& site : module.call_sites) shift(site);
    for (Variable& variable : module.variables) shift(variable.where);
    for (Function& function : module.functions) {
        shift(function.where);
        for (Instruction& instruction : function.instructions) shift(instruction.where);
    }
}

bool is_shared(Linkage linkage) { return linkage != Linkage::kInternal; }

[[noreturn]] void defined_twice(const std::string& name) { throw ParseError(0, "'" + name + "' is defined in two of the linked modules"); }

// Whether a definition takes the place of one that is there. Of several weak ones the first stays, of common ones the largest.
bool replaces(const std::string& name, Linkage there, Linkage now, uint64_t size_there, uint64_t size_now) {
    const bool weak_there = there == Linkage::kWeak || there == Linkage::kCommon,
               weak_now = now == Linkage::kWeak || now == Linkage::kCommon;
    if (!weak_there && !weak_now) defined_twice(name);
    if (weak_there && !weak_now) return true;
    return there == Linkage::kCommon && now == Linkage::kCommon && size_now > size_there;
}

}  // namespace

Module link(std::vector<Module> modules) {
    Module out;
    if (modules.empty()) return out;
    out.version_major = modules[0].version_major;
    out.version_minor = modules[0].version_minor;
    out.target = modules[0].target;
    out.address_size = modules[0].address_size;
    out.files.emplace_back();
    out.call_sites.emplace_back();

    std::map<std::string, uint32_t> users;  // in how many modules a name occurs
    for (const Module& module : modules) {
        std::set<std::string> own;
        for (const Variable& variable : module.variables) own.insert(variable.name);
        for (const Function& function : module.functions) own.insert(function.name);
        for (const std::string& name : own) ++users[name];
    }
    std::unordered_map<std::string, size_t> variables, functions;
    for (size_t index = 0; index < modules.size(); ++index) {
        Module& module = modules[index];
        Names names;
        const auto keep_apart = [&](const std::string& name, Linkage linkage) {
            if (is_shared(linkage) || users[name] < 2) return;
            std::string own = name + "$" + std::to_string(index);
            while (!users.try_emplace(own, 1).second) own += "$";  // a compiler numbers its strings: $str, $str$1
            names[name] = own;
        };
        for (const Variable& variable : module.variables) keep_apart(variable.name, variable.linkage);
        for (const Function& function : module.functions) {
            if (function.has_body) keep_apart(function.name, function.linkage);
        }
        rename(module, names);
        shift_files(module, static_cast<uint32_t>(out.files.size() - 1), static_cast<uint32_t>(out.call_sites.size() - 1));
        for (size_t i = 1; i < module.files.size(); ++i) out.files.push_back(std::move(module.files[i]));
        for (size_t i = 1; i < module.call_sites.size(); ++i) out.call_sites.push_back(module.call_sites[i]);

        for (Variable& variable : module.variables) {
            const auto [it, is_new] = variables.try_emplace(variable.name, out.variables.size());
            if (is_new) {
                out.variables.push_back(std::move(variable));
                continue;
            }
            Variable& there = out.variables[it->second];
            if (variable.linkage == Linkage::kExtern) continue;
            if (there.linkage == Linkage::kExtern ||
                replaces(variable.name, there.linkage, variable.linkage, there.size_bytes, variable.size_bytes)) {
                there = std::move(variable);
            }
        }
        for (Function& function : module.functions) {
            const auto [it, is_new] = functions.try_emplace(function.name, out.functions.size());
            if (is_new) {
                out.functions.push_back(std::move(function));
                continue;
            }
            Function& there = out.functions[it->second];
            if (!function.has_body) continue;
            if (!there.has_body || replaces(function.name, there.linkage, function.linkage, 0, 0)) there = std::move(function);
        }
    }
    return out;
}

}  // namespace aicf::emu::ptx

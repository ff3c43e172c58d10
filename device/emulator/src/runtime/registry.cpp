#include "registry.hpp"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "../ptx/link.hpp"
#include "fatbin.hpp"

namespace aicf::emu {
namespace {

std::string file_of(const void* address) {
    Dl_info info;
    if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "a program";
    return std::filesystem::path(info.dli_fname).filename().string();
}

// What a fat binary without usable PTX holds, for the message.
std::string describe_entries(const std::vector<FatbinEntry>& entries) {
    std::string text;
    for (const FatbinEntry& entry : entries)
        text += (text.empty() ? "" : ", ") + std::string(entry.kind == FatbinEntry::Kind::kPtx ? "PTX" : "machine code") + " for " +
                entry.arch_name();
    return text.empty() ? "nothing" : text;
}

bool is_ptx_text(const void* image) {
    // PTX begins with comments or directives; the magic numbers of fat binaries and ELF do not look like either.
    const char first = *static_cast<const char*>(image);
    return first == '/' || first == '.' || first == '\n' || first == '\r' || first == ' ' || first == '\t';
}

struct Source {
    std::vector<std::string> texts;  // several: of objects that are to be linked
    std::string label;
};

Source find_source(CodeModule& module, const Target& target) {
    if (is_ptx_text(module.image)) return {{static_cast<const char*>(module.image)}, module.origin};
    const std::string own = "sm_" + std::to_string(target.major * 10 + target.minor);
    const std::vector<FatbinEntry> entries = read_fatbin(module.image);
    const std::vector<const void*> objects = prelinked_images(module.image);
    Source linked{{}, module.origin + ", linked from the PTX of " + std::to_string(objects.size()) + " objects"};
    for (const void* object : objects) {
        const std::vector<FatbinEntry> parts = read_fatbin(object);
        const int chosen = choose_ptx(parts, target);
        if (chosen >= 0) {
            linked.texts.push_back(parts[chosen].contents());
        } else if (!parts.empty()) {
            throw Failure{kErrNoKernelImageForDevice,
                          "an object of " + module.origin + " holds " + describe_entries(parts) + ", and the emulated " + own +
                              " runs PTX only: compile with -gencode 'arch=compute_90a,code=[sm_90a,compute_90a]'"};
        }
    }
    if (!linked.texts.empty()) {
        if (const int elf = choose_elf(entries, target); elf >= 0) module.sass_registers = cubin_registers(entries[elf].contents());
        return linked;
    }
    const int chosen = choose_ptx(entries, target);
    if (chosen < 0) {
        throw Failure{kErrNoKernelImageForDevice, module.origin + " holds " + describe_entries(entries) + ", and the emulated " + own +
                                                      " runs PTX only: compile with -gencode 'arch=compute_90a,code=[sm_90a,compute_90a]'"};
    }
    if (const int elf = choose_elf(entries, target); elf >= 0) {
        module.sass_registers = cubin_registers(entries[elf].contents());
        module.binary_version = static_cast<int>(entries[elf].arch);
    }
    return {{entries[chosen].contents()}, module.origin + ", PTX for " + entries[chosen].arch_name()};
}

// The architecture of a `.target`, as a fat binary would state it.
FatbinEntry entry_of_target(const std::string& name) {
    FatbinEntry entry;
    char suffix = 0;
    std::sscanf(name.c_str(), "sm_%u%c", &entry.arch, &suffix);
    entry.is_arch_specific = suffix == 'a';
    entry.is_family_specific = suffix == 'f';
    return entry;
}

// The newest PTX version that the front end was written for; a parse failure beyond it is most likely due to it.
constexpr uint32_t kNewestPtxMajor = 9;

int ptx_failure_code(const std::string& text) {
    uint32_t major = 0;
    const size_t at = text.find(".version");
    if (at != std::string::npos) std::sscanf(text.c_str() + at, ".version %u", &major);
    return major > kNewestPtxMajor ? kErrUnsupportedPtxVersion : kErrInvalidPtx;
}

}  // namespace

CodeModule* Registry::add_module(const void* image, const void* address_in_program) {
    auto module = std::make_unique<CodeModule>();
    module->image = image;
    module->origin = file_of(address_in_program);
    CodeModule* raw = module.get();
    modules_[raw] = std::move(module);
    return raw;
}

CodeModule* Registry::add_library(std::string image) {
    auto module = std::make_unique<CodeModule>();
    module->owned_image = std::move(image);
    module->image = module->owned_image.c_str();
    module->origin = "a library loaded from memory";
    module->is_library = true;
    CodeModule* raw = module.get();
    modules_[raw] = std::move(module);
    return raw;
}

CodeModule* Registry::find_module(void* handle) const {
    const auto found = modules_.find(handle);
    return found == modules_.end() ? nullptr : found->second.get();
}

void Registry::remove_module(CodeModule* module) {
    std::erase_if(kernels_, [&](const auto& entry) { return entry.second->module == module; });
    std::erase_if(variables_, [&](const auto& entry) { return entry.second->module == module; });
    for (const auto& [name, kernel] : module->kernels) kernel->module = nullptr, kernel->info = nullptr;
    modules_.erase(module);
}

void Registry::unload(int device) {
    for (const auto& [handle, module] : modules_) {
        const bool is_only = module->programs.size() == module->programs.count(device);
        // The first program holds what all have in common.
        if (!is_only && !module->programs.empty() && module->programs.begin()->first == device) continue;
        module->programs.erase(device);
        module->load_error = 0;
        if (is_only)
            for (const auto& [name, kernel] : module->kernels) kernel->info = nullptr;
    }
}

std::shared_ptr<Kernel> Registry::add_kernel(CodeModule* module, const void* host_function, const std::string& name) {
    std::shared_ptr<Kernel>& kernel = module->kernels[name];
    if (kernel == nullptr) {
        kernel = std::make_shared<Kernel>();
        kernel->module = module;
        kernel->name = name;
        kernel->host_function = host_function;
        kernels_[kernel.get()] = kernel;
    }
    if (host_function != nullptr) kernels_[host_function] = kernel;
    return kernel;
}

void Registry::add_variable(CodeModule* module, const void* host_variable, const std::string& name, uint64_t size_bytes, void** managed) {
    auto variable = std::make_unique<DeviceVariable>(DeviceVariable{module, name, size_bytes, managed});
    variables_[host_variable] = variable.get();
    module->variables[name] = std::move(variable);
}

std::shared_ptr<Kernel> Registry::find_kernel(const void* handle) const {
    const auto found = kernels_.find(handle);
    return found == kernels_.end() ? nullptr : found->second;
}

DeviceVariable* Registry::find_variable(const void* host_variable) const {
    const auto found = variables_.find(host_variable);
    if (found != variables_.end()) return found->second;
    for (const auto& [shadow, variable] : variables_)  // managed variables are named by their address
        if (variable->managed_pointer != nullptr && host_variable != nullptr && *variable->managed_pointer == host_variable)
            return variable;
    return nullptr;
}

Program& Registry::load(Runtime& runtime, CodeModule& module) { return load(runtime, module, thread_state().device); }

Program& Registry::load(Runtime& runtime, CodeModule& module, int device) {
    if (const auto found = module.programs.find(device); found != module.programs.end()) return *found->second;
    if (module.load_error != 0) throw Failure{module.load_error, module.load_message};
    runtime.use_device(device);
    const Program* elsewhere = module.programs.empty() ? nullptr : module.programs.begin()->second.get();
    std::shared_ptr<Program> program;
    const auto fail = [&](int code, const std::string& message) {
        module.load_error = code;
        module.load_message = message;
        runtime.add_report("load_error", Severity::kError, message);
        std::fprintf(stderr, "aicf emulator: %s\n", message.c_str());
        throw Failure{code, message};
    };
    std::string label = module.origin;
    std::string text;
    try {
        Source source = find_source(module, *runtime.target);
        label = std::move(source.label);
        std::vector<ptx::Module> objects;
        for (std::string& each : source.texts) {
            text = std::move(each);
            objects.push_back(ptx::parse(text));
        }
        ptx::Module parsed = objects.size() == 1 ? std::move(objects[0]) : ptx::link(std::move(objects));
        const FatbinEntry made_for = entry_of_target(parsed.target);
        module.ptx_version = static_cast<int>(made_for.arch);
        if (module.binary_version == 0) module.binary_version = runtime.target->major * 10 + runtime.target->minor;
        program = Program::load(std::move(parsed), runtime.memory(), elsewhere);
        if (!is_native(made_for, *runtime.target)) {
            runtime.add_report("foreign_target", Severity::kNote,
                               module.origin + ": what was compiled for " + made_for.arch_name() +
                                   " runs here, as it uses no instruction of that chip alone; a device of compute capability " +
                                   std::to_string(runtime.target->major) + "." + std::to_string(runtime.target->minor) +
                                   " refuses it (error 209)");
        }
    } catch (const Failure& failure) {
        fail(failure.code, failure.message);
    } catch (const ptx::ParseError& error) {
        fail(ptx_failure_code(text), label + ": " + error.what());
    } catch (const LoadError& error) {
        fail(ptx_failure_code(text), label + ": " + error.what());
    }
    for (const auto& [name, variable] : module.variables) {
        if (variable->managed_pointer == nullptr) continue;
        if (const VariableInfo* info = program->find_variable(name)) *variable->managed_pointer = reinterpret_cast<void*>(info->address);
    }
    module.programs[device] = program;
    return *program;
}

const KernelInfo& Registry::load(Runtime& runtime, Kernel& kernel) {
    if (kernel.info != nullptr) return *kernel.info;
    require(kernel.module != nullptr, kErrInvalidDeviceFunction, "the kernel's library has been unloaded");
    kernel.info = load(runtime, *kernel.module).find_kernel(kernel.name);
    if (kernel.info == nullptr)
        throw Failure{kErrInvalidDeviceFunction, kernel.module->origin + " has no kernel " + kernel.name + " in its PTX"};
    return *kernel.info;
}

const VariableInfo& Registry::resolve(Runtime& runtime, const DeviceVariable& variable) {
    const VariableInfo* info = load(runtime, *variable.module).find_variable(variable.name);
    if (info == nullptr) throw Failure{kErrInvalidSymbol, variable.module->origin + " has no variable " + variable.name + " in its PTX"};
    return *info;
}

}  // namespace aicf::emu

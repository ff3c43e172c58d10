// Loading: variables into device memory, kernels into images.
#include "program.hpp"

#include <cstring>

#include "../launch/level.hpp"
#include "decode.hpp"

namespace aicf::emu {
namespace {

using ptx::Variable;

bool lives_in_memory(const Variable& variable) { return variable.space == ptx::Space::kGlobal || variable.space == ptx::Space::kConst; }

void place_variable(ProgramImpl& program, const Variable& variable, const Program* elsewhere) {
    DeviceMemory& memory = *program.memory;
    if (variable.type == ptx::Type::kTexref || variable.type == ptx::Type::kSamplerref || variable.type == ptx::Type::kSurfref) return;
    if (variable.linkage == Variable::Linkage::kExtern || program.variables.contains(variable.name)) return;
    if (const VariableInfo* shared = variable.is_managed && elsewhere ? elsewhere->find_variable(variable.name) : nullptr) {
        program.variables[variable.name] = *shared;
        return;
    }
    const uint64_t address =
        memory.allocate(variable.size_bytes, variable.is_managed ? MemoryKind::kManagedVariable : MemoryKind::kModule, variable.name);
    if (!address)
        throw LoadError("no room in device memory for variable '" + variable.name + "' of " + std::to_string(variable.size_bytes) +
                        " bytes");
    program.allocations.push_back(address);
    std::memset(memory.alias(address), 0, variable.size_bytes);
    if (variable.initial) {
        std::memcpy(memory.alias(address), variable.initial->bytes.data(),
                    std::min<uint64_t>(variable.initial->bytes.size(), variable.size_bytes));
    }
    memory.mark_initialized(address, variable.size_bytes);
    program.variables[variable.name] = {address, variable.size_bytes, variable.space == ptx::Space::kConst};
}

void relocate(ProgramImpl& program, const Variable& variable, const Program* elsewhere) {
    const auto it = program.variables.find(variable.name);
    if (!variable.initial || it == program.variables.end() || (variable.is_managed && elsewhere)) return;
    for (const ptx::Initializer::Relocation& relocation : variable.initial->relocations) {
        uint64_t value = function_address(program.module, relocation.symbol);
        if (auto found = program.variables.find(relocation.symbol); found != program.variables.end()) value = found->second.address;
        if (value == 0)
            throw LoadError("the initialiser of '" + variable.name + "' names '" + relocation.symbol + "', which is not defined");
        value = (value + static_cast<uint64_t>(relocation.offset)) >> relocation.shift_bits;
        std::memcpy(program.memory->alias(it->second.address + relocation.at_byte), &value, std::min<uint32_t>(relocation.size_bytes, 8));
    }
}

}  // namespace

std::shared_ptr<Program> Program::load(ptx::Module module, DeviceMemory& memory, const Program* elsewhere) {
    auto program = std::make_shared<ProgramImpl>();
    program->module = std::move(module);
    program->memory = &memory;
    if (program->module.address_size != 64) throw LoadError("only modules with .address_size 64 are supported");
    for (const Variable& variable : program->module.variables) {
        if (lives_in_memory(variable)) place_variable(*program, variable, elsewhere);
    }
    for (const Variable& variable : program->module.variables) relocate(*program, variable, elsewhere);
    for (const ptx::Function& function : program->module.functions) {
        if (!function.has_body) continue;
        // A device function that no kernel reaches is decoded all the same, for its instructions to be checked.
        if (!function.is_entry && !calls_what_is_there(program->module, function)) continue;
        auto image = decode_kernel(*program, function, engine().find_arith);
        if (function.is_entry) program->images[function.name] = std::move(image);
    }
    return program;
}

ProgramImpl::~ProgramImpl() {
    for (uint64_t address : allocations) memory->release(address);
    if (grid_workspace) memory->release(grid_workspace);
}

const KernelInfo* ProgramImpl::find_kernel(const std::string& name) const {
    auto it = images.find(name);
    return it == images.end() ? nullptr : &it->second->kernel;
}

const VariableInfo* ProgramImpl::find_variable(const std::string& name) const {
    auto it = variables.find(name);
    return it == variables.end() ? nullptr : &it->second;
}

std::vector<std::string> ProgramImpl::kernel_names() const {
    std::vector<std::string> names;
    for (const auto& [name, image] : images) names.push_back(name);
    return names;
}

}  // namespace aicf::emu

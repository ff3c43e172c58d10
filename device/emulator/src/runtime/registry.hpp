// Modules, kernels and device variables, as the start-up code of CUDA programs and the cudaLibrary functions register them.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "../exec/exec.hpp"
#include "runtime.hpp"

namespace aicf::emu {

struct CodeModule;

struct Kernel {
    CodeModule* module = nullptr;
    std::string name;
    const void* host_function = nullptr;
    int max_dynamic_shared_bytes = -1;  // cudaFuncAttributeMaxDynamicSharedMemorySize; -1: never set
    int carveout = -1;
    bool cluster_must_be_set = false;
    bool non_portable_cluster = false;
    int cluster_policy = 0;
    Dim3 required_cluster{0, 0, 0};
    const KernelInfo* info = nullptr;   // set by Registry::load
};

struct DeviceVariable {
    CodeModule* module = nullptr;
    std::string name;
    uint64_t size_bytes = 0;
    void** managed_pointer = nullptr;  // __managed__: where the program keeps its address
};

// One fat binary, or the data of one cudaLibrary. It is read on first use; a failure is remembered and returned by every use.
struct CodeModule {
    const void* image = nullptr;    // fat-binary wrapper, container, or PTX text
    std::string owned_image;        // for libraries
    std::string origin;             // file of the program, for messages
    int load_error = 0;  // of the first attempt; it is not made again
    std::string load_message;
    std::map<int, std::shared_ptr<Program>> programs;  // by device: each has the module's variables, but for managed ones, for itself
    int ptx_version = 0, binary_version = 0;   // architectures, 90 = sm_90, as in cudaFuncAttributes
    std::map<std::string, int> sass_registers;  // registers by kernel, where machine code lies beside the PTX
    std::map<std::string, std::shared_ptr<Kernel>> kernels;
    std::map<std::string, std::unique_ptr<DeviceVariable>> variables;
    bool is_library = false;
};

class Registry {
public:
    CodeModule* add_module(const void* image, const void* address_in_program);
    CodeModule* add_library(std::string image);
    CodeModule* find_module(void* handle) const;
    void remove_module(CodeModule* module);
    // A cudaDeviceReset: the device's programs and their variables go, registrations stay.
    void unload(int device);

    std::shared_ptr<Kernel> add_kernel(CodeModule* module, const void* host_function, const std::string& name);
    void add_variable(CodeModule* module, const void* host_variable, const std::string& name, uint64_t size_bytes, void** managed);

    // By host stub, cudaKernel_t or cudaFunction_t; nullptr when unknown.
    std::shared_ptr<Kernel> find_kernel(const void* handle) const;
    DeviceVariable* find_variable(const void* host_variable) const;

    // Parses and loads the module of the kernel if that has not happened; throws Failure 209, 218, 222 or 98.
    const KernelInfo& load(Runtime& runtime, Kernel& kernel);
    Program& load(Runtime& runtime, CodeModule& module, int device);
    Program& load(Runtime& runtime, CodeModule& module);  // on the calling thread's device
    const VariableInfo& resolve(Runtime& runtime, const DeviceVariable& variable);

private:
    std::unordered_map<const void*, std::unique_ptr<CodeModule>> modules_;  // by handle
    std::unordered_map<const void*, std::shared_ptr<Kernel>> kernels_;     // by host stub and by handle
    std::unordered_map<const void*, DeviceVariable*> variables_;           // by host shadow
};

}  // namespace aicf::emu

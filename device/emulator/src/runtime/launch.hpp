// Launch arguments: limits checked, parameters packed. Occupancy.
#pragma once

#include "graph.hpp"

namespace aicf::emu {

// Checks a launch against the kernel's and the device's limits and packs its parameters. `args` are pointers to the values.
KernelOp make_launch(Runtime& runtime, std::shared_ptr<Kernel> kernel, Dim3 grid, Dim3 block, void** args, size_t dynamic_shared_bytes);
// The arguments of a launch that gives them as one buffer (CU_LAUNCH_PARAM_BUFFER_POINTER), by the kernel's offsets.
std::vector<void*> unpack_arguments(const KernelInfo& info, void* const* extra);
void apply_attribute(KernelOp& operation, int id, const abi::LaunchAttributeValue& value);
// Everything that can be said before the launch runs; throws Failure with the code that CUDA gives.
void check_launch(Runtime& runtime, const KernelOp& operation);

std::shared_ptr<Kernel> require_kernel(Runtime& runtime, const void* handle);

// Registers per thread: of the machine code when the fat binary has it, else the estimate from the PTX.
int kernel_registers(const Kernel& kernel);

// Resident blocks on one multiprocessor, by threads, blocks, registers and shared memory.
int resident_blocks(const Target& target, const Kernel& kernel, int block_threads, size_t dynamic_shared_bytes);

}  // namespace aicf::emu

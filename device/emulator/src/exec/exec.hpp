// Loading and running kernels: the seam between the CUDA runtime (src/runtime) and the interpreter (src/exec).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../memory/device_memory.hpp"
#include "../ptx/module.hpp"
#include "counters/counters.hpp"

namespace aicf::emu {

struct Dim3 {
    uint32_t x = 1, y = 1, z = 1;
};

// The checks of the sanitizer, as bits.
// kStreamcheck is the runtime's, about work of different streams; a launch notes what it touches (DeviceMemory::footprints).
enum Check : uint32_t { kMemcheck = 1, kInitcheck = 2, kSynccheck = 4, kRacecheck = 8, kStreamcheck = 16, kAllChecks = 31 };
// No check that finds anything, and set by a launch itself, where memory has given allocations (DeviceMemory::set_given).
constexpr Check kDependence{32};

enum class Severity : uint8_t { kError, kWarning, kNote };

struct Report {
    std::string kind;  // snake_case, stable; listed in device/emulator/README.md
    Severity severity = Severity::kError;
    std::string text;  // whole message for people, several lines, like compute-sanitizer's
    std::string kernel;
    uint32_t ptx_line = 0;
    std::string source;  // "kernels.cu:42" or ""
    Dim3 block, thread;
    uint64_t address = 0;
    uint64_t count = 1;  // same kind at the same instruction is folded into one report
    std::string kernel_name;              // demangled
    std::vector<std::string> inlined_at;  // calls that were inlined, from that of the function which `source` is in outwards
    std::vector<uint32_t> copies;  // PTX lines of the copies of that place which unrolling made, that the report stands for as well
    std::string launched_at;  // the host's call that launched the kernel: "step at prog.cu:42, called from main at prog.cu:57"; or ""
};

// cudaError_t values that a launch can end with.
enum LaunchStatus : int {
    kSuccess = 0,
    kErrorInvalidValue = 1,
    kErrorInvalidConfiguration = 9,
    kErrorIllegalAddress = 700,
    kErrorLaunchOutOfResources = 701,
    kErrorLaunchTimeout = 702,
    kErrorAssert = 710,
    kErrorIllegalInstruction = 715,
    kErrorMisalignedAddress = 716,
    kErrorInvalidAddressSpace = 717,
    kErrorInvalidPc = 718,
    kErrorLaunchFailure = 719,
    kErrorInvalidClusterSize = 912,
};

enum class Schedule : uint8_t { kDefault, kReversed, kGreedy, kRandom };

struct ExecOptions {
    uint32_t checks = 0;  // bits of Check; memory safety of the host process is kept whatever is switched off
    bool counters = false;
    uint32_t workers = 0;  // host threads; 0 = all cores
    Schedule schedule = Schedule::kDefault;
    uint64_t seed = 0;
    uint64_t instruction_limit = 0;  // warp instructions a launch may execute, 0 = none; beyond it: kErrorLaunchTimeout and a report
    // Backward branches that a warp may take without storing anything, without an atomic and without a barrier, 0 = no limit; 64 times as
    // many in all. Beyond it, or where all warps read memory again and again that nothing changes: kErrorLaunchTimeout and a report.
    uint64_t loop_limit = 0;
    // Run only so many blocks, spread evenly over the grid, 0 = all: for counters of launches that are too large.
    uint64_t sample_blocks = 0;
    uint64_t sample_seed = 0;  // of the blocks run: the first, the last, and others that this draws; 0 = spread evenly
    uint32_t l1_bytes = 0;  // counters: a block's share of the L1, for l1_load_miss_sectors; 0 = not counted
    uint32_t warp_quantum = 0;  // warp instructions before another warp of the block has its turn, 0 = the default
    uint32_t max_reports = 100;  // distinct findings kept per launch
    std::string target = "h200";
    bool zero_memory = false;  // fresh memory is zero: a read of it is a note, and no error
};

// An instruction or feature the emulator does not know. The text names spelling, function, PTX line and source line.
class LoadError : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

struct ParamInfo {
    uint32_t offset = 0, size_bytes = 0, align = 0;
};

struct KernelInfo {
    std::string name;
    std::vector<ParamInfo> params;
    uint32_t param_bytes = 0;
    uint32_t static_shared_bytes = 0;
    uint32_t local_bytes = 0;  // per thread
    uint32_t num_registers = 0;  // an estimate from PTX; the build's ptxas figure is the truth
    Dim3 max_threads{0, 0, 0};  // .maxntid, zeros when not given
    Dim3 required_threads{0, 0, 0};
    Dim3 required_cluster{0, 0, 0};
};

struct VariableInfo {
    uint64_t address = 0;  // device address
    uint64_t size_bytes = 0;
    bool is_const = false;
};

// A module decoded for execution, with its .global and .const variables placed in device memory and initialised.
class Program {
public:
    // Throws ptx::ParseError or LoadError: every instruction of every function is checked here, none at run time. `elsewhere`: the same
    // module on another device, which has the managed variables.
    static std::shared_ptr<Program> load(ptx::Module module, DeviceMemory& memory, const Program* elsewhere = nullptr);
    virtual ~Program() = default;
    virtual const KernelInfo* find_kernel(const std::string& name) const = 0;
    virtual const VariableInfo* find_variable(const std::string& name) const = 0;
    virtual std::vector<std::string> kernel_names() const = 0;
};

struct Launch {
    const Program* program = nullptr;
    std::string kernel;
    Dim3 grid, block, cluster;
    bool has_cluster = false;  // it was asked for, be it of one block
    uint32_t dynamic_shared_bytes = 0;
    std::vector<std::byte> params;  // packed by KernelInfo::params offsets
    bool cooperative = false;
    // Race check: LaunchResult::race_launch of the launch before, if this one may start before that one's end (programmatic dependent
    // launch). It starts when that one has ended all the same; what it must not count on is reported.
    uint32_t primary = 0;
};

struct LaunchResult {
    int status = kSuccess;  // LaunchStatus
    std::vector<Report> reports;
    Counters counters;
    uint64_t instructions = 0;  // of a launch with a limit: of warps, matrix products as multiply-adds of 32 lanes
    uint64_t matrix_work = 0;  // what matrix products are of these
    uint32_t race_launch = 0;  // a number, when races in global memory were checked
    std::vector<LineCounters> lines;  // with counters on: by PTX line
};

// Runs one launch to its end on the calling thread and `options.workers` - 1 helpers. printf output goes to stdout when the launch ends.
// With checks off, an access outside every allocation still ends the launch with kErrorIllegalAddress and one report.
LaunchResult run(const Launch& launch, DeviceMemory& memory, const ExecOptions& options);

// Has every launch that is running end soon, with a report of what each of its warps is at. For signal handlers.
void interrupt_launches();
bool launches_are_interrupted();
bool launches_are_running();

// The instruction-set level of the interpreter in use: "x86-64-v2", "x86-64-v3" or "x86-64-v4"; "none" where this host has none that was
// built.
const char* engine_level();

}  // namespace aicf::emu

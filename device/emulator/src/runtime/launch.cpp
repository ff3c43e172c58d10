#include "launch.hpp"

#include <algorithm>
#include <cstring>

#include "../memory/round_up.hpp"

namespace aicf::emu {
namespace {

constexpr uint32_t kWarpThreads = 32;

uint64_t volume(const Dim3& dim) { return uint64_t{dim.x} * dim.y * dim.z; }
bool is_set(const Dim3& dim) { return dim.x != 0; }

// CUDA 13's runtime answers every launch beyond a limit with cudaErrorInvalidValue (seen on an H200), not with
// cudaErrorInvalidConfiguration as earlier ones did.
void check_dimension(const char* what, const Dim3& dim, const Dim3& most) {
    if (dim.x == 0 || dim.y == 0 || dim.z == 0)
        throw Failure{kErrInvalidValue, std::string(what) + " " + to_text(dim) + " has an extent of 0"};
    if (dim.x > most.x || dim.y > most.y || dim.z > most.z)
        throw Failure{kErrInvalidValue, std::string(what) + " " + to_text(dim) + " is beyond the device's limit " + to_text(most)};
}

void check_block(const KernelInfo& info, const Dim3& block) {
    constexpr uint64_t kMostThreads = 1024;
    check_dimension("block", block, {1024, 1024, 64});
    if (volume(block) > kMostThreads)
        throw Failure{kErrInvalidValue,
                      "block " + to_text(block) + " has " + std::to_string(volume(block)) + " threads; the limit is 1024"};
    if (is_set(info.required_threads)) {
        if (block.x != info.required_threads.x || block.y != info.required_threads.y || block.z != info.required_threads.z)
            throw Failure{kErrInvalidValue,
                          "block " + to_text(block) + ": the kernel was compiled for blocks of exactly " + to_text(info.required_threads)};
    } else if (is_set(info.max_threads) && volume(block) > volume(info.max_threads)) {
        throw Failure{kErrInvalidValue, "block " + to_text(block) + ": the kernel was compiled for at most " +
                                            std::to_string(volume(info.max_threads)) + " threads a block (__launch_bounds__)"};
    }
}

void check_cluster(const Target& target, const Kernel& kernel, const Dim3& grid, const Dim3& cluster) {
    const uint64_t blocks = volume(cluster);
    if (blocks == 0) throw Failure{kErrInvalidClusterSize, "cluster " + to_text(cluster) + " has an extent of 0"};
    const int most = kernel.non_portable_cluster ? target.max_cluster : target.max_portable_cluster;
    if (blocks > static_cast<uint64_t>(most))
        throw Failure{kErrInvalidClusterSize,
                      "cluster " + to_text(cluster) + " has " + std::to_string(blocks) + " blocks; the limit is " + std::to_string(most) +
                          (kernel.non_portable_cluster ? ""
                                                       : " (up to " + std::to_string(target.max_cluster) +
                                                             " with cudaFuncAttributeNonPortableClusterSizeAllowed)")};
    if (grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
        throw Failure{kErrInvalidClusterSize, "grid " + to_text(grid) + " is no multiple of cluster " + to_text(cluster)};
}

}  // namespace

std::shared_ptr<Kernel> require_kernel(Runtime& runtime, const void* handle) {
    auto kernel = runtime.registry->find_kernel(handle);
    require(kernel != nullptr, kErrInvalidDeviceFunction, "the function is no registered kernel");
    return kernel;
}

int kernel_registers(const Kernel& kernel) {
    if (kernel.module != nullptr) {
        const auto found = kernel.module->sass_registers.find(kernel.name);
        if (found != kernel.module->sass_registers.end()) return found->second;
    }
    if (kernel.info == nullptr) return 0;
    // Without machine code the PTX's own registers are only an estimate from above; a driver that compiles it makes the largest block fit.
    constexpr uint64_t kMostThreads = 1024, kRegisters = 65536;
    const uint64_t threads = is_set(kernel.info->max_threads) ? volume(kernel.info->max_threads) : kMostThreads;
    const uint64_t fit = std::clamp<uint64_t>(kRegisters / round_up(threads, kWarpThreads) / 8 * 8, 1, 255);
    return static_cast<int>(std::clamp<uint64_t>(kernel.info->num_registers, 1, fit));
}

int resident_blocks(const Target& target, const Kernel& kernel, int block_threads, size_t dynamic_shared_bytes) {
    // CUDA C++ programming guide, "Compute capabilities": registers are given to warps in units of 256, shared memory in units of 128
    // bytes, and warps are spread over four partitions.
    constexpr uint64_t kRegisterUnit = 256, kSharedUnit = 128, kPartitions = 4;
    const uint64_t warps = (static_cast<uint64_t>(block_threads) + kWarpThreads - 1) / kWarpThreads;
    uint64_t blocks = std::min<uint64_t>(static_cast<uint64_t>(target.max_blocks_per_sm),
                                         static_cast<uint64_t>(target.max_threads_per_sm) / (warps * kWarpThreads));
    const uint64_t per_warp = round_up(static_cast<uint64_t>(kernel_registers(kernel)) * kWarpThreads, kRegisterUnit);
    if (per_warp != 0) {
        const uint64_t warps_that_fit = static_cast<uint64_t>(target.registers_per_sm) / kPartitions / per_warp * kPartitions;
        blocks = std::min(blocks, warps_that_fit / warps);
    }
    const uint64_t shared = kernel.info->static_shared_bytes + dynamic_shared_bytes + static_cast<uint64_t>(target.shared_reserved_bytes);
    blocks = std::min(blocks, static_cast<uint64_t>(target.shared_per_sm_bytes) / round_up(shared, kSharedUnit));
    return static_cast<int>(blocks);
}

void check_launch(Runtime& runtime, const KernelOp& operation) {
    const Kernel& kernel = *operation.kernel;
    const KernelInfo& info = runtime.registry->load(runtime, *operation.kernel);
    const Target& target = *runtime.target;
    check_dimension("grid", operation.grid, {2147483647u, 65535, 65535});
    check_block(info, operation.block);
    const uint64_t limit = kernel.max_dynamic_shared_bytes >= 0
                               ? static_cast<uint64_t>(kernel.max_dynamic_shared_bytes)
                               : static_cast<uint64_t>(target.shared_per_block_bytes) -
                                     std::min<uint64_t>(info.static_shared_bytes, target.shared_per_block_bytes);
    if (operation.dynamic_shared_bytes > limit ||
        operation.dynamic_shared_bytes + info.static_shared_bytes > static_cast<uint64_t>(target.shared_per_block_optin_bytes))
        throw Failure{kErrInvalidValue, std::to_string(operation.dynamic_shared_bytes) + " bytes of dynamic shared memory beside " +
                                            std::to_string(info.static_shared_bytes) + " static ones; this kernel may have " +
                                            std::to_string(limit) +
                                            " (raise it with cudaFuncSetAttribute(cudaFuncAttributeMaxDynamicSharedMemorySize), at most " +
                                            std::to_string(target.shared_per_block_optin_bytes) + " in total)"};
    const bool given = operation.attributes.contains(abi::kAttributeClusterDimension);
    const Dim3 cluster = given ? operation.cluster : is_set(info.required_cluster) ? info.required_cluster : kernel.required_cluster;
    if (given || is_set(cluster)) check_cluster(target, kernel, operation.grid, cluster);
    if (kernel.cluster_must_be_set && !is_set(cluster))
        throw Failure{kErrInvalidClusterSize, "the kernel must be launched with a cluster dimension"};
    const auto threads = static_cast<int>(volume(operation.block));
    const int resident = resident_blocks(target, kernel, threads, operation.dynamic_shared_bytes);
    if (resident == 0)
        throw Failure{kErrLaunchOutOfResources, std::to_string(threads) + " threads of " + std::to_string(kernel_registers(kernel)) +
                                                    " registers do not fit on a multiprocessor"};
    if (operation.cooperative && volume(operation.grid) > static_cast<uint64_t>(resident) * static_cast<uint64_t>(target.num_sms))
        throw Failure{kErrCooperativeLaunchTooLarge, "a cooperative grid of " + std::to_string(volume(operation.grid)) + " blocks; " +
                                                         std::to_string(resident * target.num_sms) + " fit on the device at once"};
}

KernelOp make_launch(Runtime& runtime, std::shared_ptr<Kernel> kernel, Dim3 grid, Dim3 block, void** args, size_t dynamic_shared_bytes) {
    const KernelInfo& info = runtime.registry->load(runtime, *kernel);
    KernelOp operation;
    operation.kernel = std::move(kernel);
    operation.device = thread_state().device;
    operation.grid = grid;
    operation.block = block;
    operation.cluster = {0, 0, 0};
    if (dynamic_shared_bytes > UINT32_MAX) throw Failure{kErrInvalidValue, "more than 4 GiB of dynamic shared memory"};
    operation.dynamic_shared_bytes = static_cast<uint32_t>(dynamic_shared_bytes);
    operation.params.resize(info.param_bytes);
    for (size_t i = 0; i < info.params.size(); ++i) {
        if (args == nullptr || args[i] == nullptr)
            throw Failure{kErrInvalidValue, "the kernel takes " + std::to_string(info.params.size()) + " arguments, and argument " +
                                                std::to_string(i) + " is missing"};
        std::memcpy(operation.params.data() + info.params[i].offset, args[i], info.params[i].size_bytes);
    }
    return operation;
}

std::vector<void*> unpack_arguments(const KernelInfo& info, void* const* extra) {
    constexpr uint64_t kBuffer = 1, kBufferSize = 2;  // each followed by its value; 0 ends the list
    std::byte* buffer = nullptr;
    size_t size_bytes = 0;
    for (; *extra != nullptr; extra += 2) {
        const uint64_t tag = to_address(extra[0]);
        require(tag == kBuffer || tag == kBufferSize, kErrInvalidValue, "`extra` holds something else than a buffer and its size");
        if (tag == kBuffer)
            buffer = static_cast<std::byte*>(extra[1]);
        else
            size_bytes = *static_cast<const size_t*>(extra[1]);
    }
    require(buffer != nullptr || info.params.empty(), kErrInvalidValue, "`extra` holds no buffer");
    std::vector<void*> args;
    for (const ParamInfo& param : info.params) {
        require(param.offset + param.size_bytes <= size_bytes, kErrInvalidValue, "the buffer of arguments is too small for the kernel");
        args.push_back(buffer + param.offset);
    }
    return args;
}

void apply_attribute(KernelOp& operation, int id, const abi::LaunchAttributeValue& value) {
    switch (id) {
        case abi::kAttributeIgnore: return;
        case abi::kAttributeCooperative: operation.cooperative = value.cooperative != 0; break;
        case abi::kAttributeClusterDimension: operation.cluster = {value.clusterDim.x, value.clusterDim.y, value.clusterDim.z}; break;
        case abi::kAttributeProgrammaticEvent:
        case abi::kAttributeLaunchCompletionEvent:
        case abi::kAttributeDeviceUpdatableNode:
            throw Failure{kErrNotSupported, "launch attribute " + std::to_string(id) + " is not supported by the emulated device"};
        case abi::kAttributeAccessPolicyWindow:
        case abi::kAttributeSynchronizationPolicy:
        case abi::kAttributeClusterSchedulingPolicy:
        case abi::kAttributeProgrammaticSerialization:  // run in stream order all the same; the race check knows
        case abi::kAttributePriority:
        case abi::kAttributeMemSyncDomainMap:
        case abi::kAttributeMemSyncDomain:
        case abi::kAttributePreferredCluster:
        case abi::kAttributeSharedMemoryCarveout:
        case abi::kAttributeNvlinkScheduling: break;  // scheduling hints: no result depends on them
        default: throw Failure{kErrInvalidValue, "there is no launch attribute " + std::to_string(id)};
    }
    operation.attributes[id] = value;
}

}  // namespace aicf::emu

// What is counted, exactly, at the level of PTX: for each instruction of a kernel, and as their sum for each launch.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace aicf::emu {

// Names are the keys of to_map(); rules and sources are in device/emulator/README.md, in this order.
// clang-format off
#define AICF_COUNTERS(X)                                                                                             \
    /* Warp instructions, and the threads that were at one (active) and whose guard was true (thread_instructions). */ \
    X(warp_instructions) X(thread_instructions) X(active_threads)                                                    \
    /* Warp instructions by class. fp32_fma is a part of fp32. */                                                    \
    X(fp32) X(fp32_fma) X(fp64) X(fp16) X(integer) X(special) X(conversion) X(control) X(move) X(tensor)             \
    /* Floating-point (or integer) operations of tensor instructions, by the type of their inputs: 2 m n k each. */  \
    X(tensor_flops_f16) X(tensor_flops_bf16) X(tensor_flops_tf32) X(tensor_flops_f64) X(tensor_flops_f8)             \
    X(tensor_flops_i8) X(tensor_flops_i4) X(tensor_flops_b1)                                                         \
    /* Global memory: requests of warps, 32-byte sectors of each request, bytes that threads asked for. */           \
    X(global_loads) X(global_load_sectors) X(global_load_bytes)                                                      \
    X(l1_lines) X(l1_load_miss_sectors) /* with l1_bytes: 128-byte lines of each request, sectors that the L1 does not hold */                               \
    X(global_stores) X(global_store_sectors) X(global_store_bytes)                                                   \
    X(global_atomics) X(global_atomic_sectors) X(global_atomic_bytes)                                                \
    /* Distinct sectors x 32: of the whole launch, and of each block by itself, summed. */                           \
    X(global_unique_bytes_read) X(global_unique_bytes_written) X(global_block_bytes_read) X(global_block_bytes_written) \
    X(global_block_runs) /* of neighbouring ones among these, reads and writes apart */                              \
    /* Shared memory: requests, passes over the banks, passes beyond the least. */                                   \
    X(shared_loads) X(shared_load_wavefronts) X(shared_load_conflicts) X(shared_load_bytes)                          \
    X(shared_stores) X(shared_store_wavefronts) X(shared_store_conflicts) X(shared_store_bytes)                      \
    X(shared_atomics) X(shared_atomic_wavefronts) X(shared_atomic_conflicts)                                         \
    X(matrix_loads) X(matrix_stores) /* ldmatrix, stmatrix: also a part of the shared loads and stores */            \
    /* Shared memory of other blocks of the cluster. */                                                              \
    X(cluster_loads) X(cluster_load_bytes) X(cluster_stores) X(cluster_store_bytes) X(cluster_atomics)               \
    X(local_loads) X(local_load_sectors) X(local_stores) X(local_store_sectors) X(const_loads) X(param_loads)        \
    /* Asynchronous copies: cp.async by warps, bulk copies by operation and bytes moved. */                          \
    X(async_copies) X(async_copy_bytes) X(async_copy_wavefronts) X(async_bypass_sectors) X(async_bypass_lookups)     \
    X(bulk_copies) X(bulk_load_bytes) X(bulk_store_bytes) X(bulk_reduce_bytes) X(bulk_cluster_bytes)                 \
    X(bulk_load_sectors) X(bulk_store_sectors)                                                                       \
    /* Waits: how often a group of threads had to wait (or found that it had to ask again). */                       \
    X(barriers) X(barrier_waits) X(mbarrier_arrivals) X(mbarrier_tests) X(mbarrier_waits) X(async_waits) X(wgmma_waits) \
    X(branches) X(divergent_branches) X(shuffles) X(votes) X(blocks) X(warps)
// clang-format on

struct Counters {
#define AICF_COUNTER_MEMBER(name) uint64_t name = 0;
    AICF_COUNTERS(AICF_COUNTER_MEMBER)
#undef AICF_COUNTER_MEMBER
    void add(const Counters& other);
    std::map<std::string, uint64_t> to_map(bool with_zeros = true) const;
};

// By the type of the multiplied elements; e4m3 and e5m2 are kF8, s8 and u8 kI8.
enum class TensorType : uint8_t { kF16, kBF16, kTF32, kF64, kF8, kI8, kI4, kB1 };

// The counts of one instruction.
struct LineCounters {
    uint32_t ptx_line = 0;
    std::string source;       // "kernels.cu:42", or ""
    std::string function;     // the kernel, or a device function it calls
    std::string instruction;  // spelling: "ld.global.f32"
    Counters counts;
};

}  // namespace aicf::emu

// The devices that can be emulated, as a table of their documented and queried attributes.
#pragma once

#include <cstdint>
#include <string_view>

#include "cuda_abi.hpp"

namespace aicf::emu {

struct Target {
    const char* key;           // "h200"
    const char* name;          // cudaDeviceProp::name
    int major, minor;          // compute capability
    int num_sms;
    int clock_khz;
    int memory_clock_khz;
    int memory_bus_bits;
    int l2_bytes;
    int persisting_l2_bytes;
    int shared_per_block_bytes;        // without opt-in
    int shared_per_block_optin_bytes;
    int shared_per_sm_bytes;
    int shared_reserved_bytes;         // per block, taken by the system
    int registers_per_sm;
    int max_threads_per_sm;
    int max_blocks_per_sm;
    bool has_clusters;
    int max_portable_cluster;
    int max_cluster;                   // with the non-portable attribute
};

// nullptr: no such target.
const Target* find_target(std::string_view key);

// Fills `value` and returns true, or returns false for a number that is no attribute.
bool device_attribute(const Target& target, int attribute, int* value);

// Everything but totalGlobalMem, which is the arena's.
void fill_properties(const Target& target, abi::DeviceProp* properties);

}  // namespace aicf::emu

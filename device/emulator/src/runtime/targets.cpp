#include "targets.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <iterator>

namespace aicf::emu {
namespace {

constexpr Target kTargets[] = {
    {"h200",   "Emulated sm_90a (CPU)",
     9,        0,
     132,      1980000,
     3201000,  6016,
     62914560, 39321600,
     49152,    232448,
     233472,   1024,
     65536,    2048,
     32,       true,
     8,        16},
    {"h100",   "Emulated sm_90a (CPU, as H100)",
     9,        0,
     132,      1980000,
     2619000,  5120,
     52428800, 32768000,
     49152,    232448,
     233472,   1024,
     65536,    2048,
     32,       true,
     8,        16},
    {"a100",   "Emulated sm_80 (CPU)",
     8,        0,
     108,      1410000,
     1215000,  5120,
     41943040, 26214400,
     49152,    166912,
     167936,   1024,
     65536,    2048,
     32,       false,
     1,        1},
};

struct Fixed {
    int attribute;
    int value;
};

// The attributes that do not differ between the targets, by cudaDeviceAttr's numbers.
constexpr Fixed kFixed[] = {
    {1, 1024},         // MaxThreadsPerBlock
    {2, 1024},         // MaxBlockDimX
    {3, 1024},         // MaxBlockDimY
    {4, 64},           // MaxBlockDimZ
    {5, 2147483647},   // MaxGridDimX
    {6, 65535},        // MaxGridDimY
    {7, 65535},        // MaxGridDimZ
    {9, 65536},        // TotalConstantMemory
    {10, 32},          // WarpSize
    {11, 2147483647},  // MaxPitch
    {14, 512},         // TextureAlignment
    {15, 1},           // GpuOverlap
    {17, 0},           // KernelExecTimeout
    {18, 0},           // Integrated
    {19, 1},           // CanMapHostMemory
    {20, 0},           // ComputeMode
    {21, 131072},      // MaxTexture1DWidth
    {22, 131072},      // MaxTexture2DWidth
    {23, 65536},       // MaxTexture2DHeight
    {24, 16384},       // MaxTexture3DWidth
    {25, 16384},       // MaxTexture3DHeight
    {26, 16384},       // MaxTexture3DDepth
    {27, 32768},       // MaxTexture2DLayeredWidth
    {28, 32768},       // MaxTexture2DLayeredHeight
    {29, 2048},        // MaxTexture2DLayeredLayers
    {30, 512},         // SurfaceAlignment
    {31, 1},           // ConcurrentKernels
    {32, 1},           // EccEnabled
    {33, 0},           // PciBusId
    {34, 0},           // PciDeviceId
    {35, 0},           // TccDriver
    {40, 3},           // AsyncEngineCount
    {41, 1},           // UnifiedAddressing
    {42, 32768},       // MaxTexture1DLayeredWidth
    {43, 2048},        // MaxTexture1DLayeredLayers
    {45, 32768},       // MaxTexture2DGatherWidth
    {46, 32768},       // MaxTexture2DGatherHeight
    {47, 8192},        // MaxTexture3DWidthAlt
    {48, 8192},        // MaxTexture3DHeightAlt
    {49, 32768},       // MaxTexture3DDepthAlt
    {50, 0},           // PciDomainId
    {51, 32},          // TexturePitchAlignment
    {52, 32768},       // MaxTextureCubemapWidth
    {53, 32768},       // MaxTextureCubemapLayeredWidth
    {54, 2046},        // MaxTextureCubemapLayeredLayers
    {55, 32768},       // MaxSurface1DWidth
    {56, 131072},      // MaxSurface2DWidth
    {57, 65536},       // MaxSurface2DHeight
    {58, 16384},       // MaxSurface3DWidth
    {59, 16384},       // MaxSurface3DHeight
    {60, 16384},       // MaxSurface3DDepth
    {61, 32768},       // MaxSurface1DLayeredWidth
    {62, 2048},        // MaxSurface1DLayeredLayers
    {63, 32768},       // MaxSurface2DLayeredWidth
    {64, 32768},       // MaxSurface2DLayeredHeight
    {65, 2048},        // MaxSurface2DLayeredLayers
    {66, 32768},       // MaxSurfaceCubemapWidth
    {67, 32768},       // MaxSurfaceCubemapLayeredWidth
    {68, 2046},        // MaxSurfaceCubemapLayeredLayers
    {69, 268435456},   // MaxTexture1DLinearWidth
    {70, 131072},      // MaxTexture2DLinearWidth
    {71, 65000},       // MaxTexture2DLinearHeight
    {72, 2097120},     // MaxTexture2DLinearPitch
    {73, 32768},       // MaxTexture2DMipmappedWidth
    {74, 32768},       // MaxTexture2DMipmappedHeight
    {77, 32768},       // MaxTexture1DMipmappedWidth
    {78, 1},           // StreamPrioritiesSupported
    {79, 1},           // GlobalL1CacheSupported
    {80, 1},           // LocalL1CacheSupported
    {83, 1},           // ManagedMemory
    {84, 0},           // IsMultiGpuBoard
    {85, 0},           // MultiGpuBoardGroupID
    {86, 0},           // HostNativeAtomicSupported
    {87, 2},           // SingleToDoublePrecisionPerfRatio
    {88, 0},           // PageableMemoryAccess
    {89, 1},           // ConcurrentManagedAccess
    {90, 1},           // ComputePreemptionSupported
    {91, 0},           // CanUseHostPointerForRegisteredMem: registered memory is not in the arena
    {92, 0},           // Reserved92
    {93, 0},           // Reserved93
    {94, 0},           // Reserved94
    {95, 1},           // CooperativeLaunch
    {96, 0},           // Reserved96
    {98, 0},           // CanFlushRemoteWrites
    {99, 1},           // HostRegisterSupported
    {100, 0},          // PageableMemoryAccessUsesHostPageTables
    {101, 0},          // DirectManagedMemAccessFromHost
    {109, 134217728},  // MaxAccessPolicyWindowSize
    {112, 0},          // SparseCudaArraySupported
    {113, 0},          // HostRegisterReadOnlySupported
    {114, 0},          // TimelineSemaphoreInteropSupported
    {115, 1},          // MemoryPoolsSupported
    {116, 0},          // GPUDirectRDMASupported
    {117, 0},          // GPUDirectRDMAFlushWritesOptions
    {118, 0},          // GPUDirectRDMAWritesOrdering
    {119, 0},          // MemoryPoolSupportedHandleTypes
    {121, 0},          // DeferredMappingCudaArraySupported
    {122, 0},          // Reserved122
    {123, 0},          // Reserved123
    {124, 0},          // Reserved124
    {125, 0},          // IpcEventSupport
    {126, 4},          // MemSyncDomainCount
    {127, 0},          // Reserved127
    {128, 0},          // Reserved128
    {129, 0},          // Reserved129
    {130, 0},          // NumaConfig
    {131, -1},         // NumaId
    {132, 0},          // Reserved132
    {133, 0},          // MpsEnabled
    {134, 0},          // HostNumaId
    {135, 0},          // D3D12CigSupported
    {138, 0},          // VulkanCigSupported
    {139, 0},          // GpuPciDeviceId
    {140, 0},          // GpuPciSubsystemId
    {141, 0},          // Reserved141
    {142, 0},          // HostNumaMemoryPoolsSupported
    {143, 0},          // HostNumaMultinodeIpcSupported
    {144, 0},          // HostMemoryPoolsSupported
    {145, 0},          // Reserved145
    {147, 0},          // OnlyPartialHostNativeAtomicSupported
};

// The attributes that come from the target.
bool target_attribute(const Target& t, int attribute, int* value) {
    switch (attribute) {
        case 8: *value = t.shared_per_block_bytes; return true;
        case 12: *value = t.registers_per_sm; return true;
        case 13: *value = t.clock_khz; return true;
        case 16: *value = t.num_sms; return true;
        case 36: *value = t.memory_clock_khz; return true;
        case 37: *value = t.memory_bus_bits; return true;
        case 38: *value = t.l2_bytes; return true;
        case 39: *value = t.max_threads_per_sm; return true;
        case 75: *value = t.major; return true;
        case 76: *value = t.minor; return true;
        case 81: *value = t.shared_per_sm_bytes; return true;
        case 82: *value = t.registers_per_sm; return true;
        case 97: *value = t.shared_per_block_optin_bytes; return true;
        case 106: *value = t.max_blocks_per_sm; return true;
        case 108: *value = t.persisting_l2_bytes; return true;
        case 111: *value = t.shared_reserved_bytes; return true;
        case 120: *value = t.has_clusters ? 1 : 0; return true;
        default: return false;
    }
}

// cudaDeviceProp's int fields and the attributes they repeat.
struct Field {
    size_t offset;
    int attribute;
};
#define AICF_FIELD(name) offsetof(abi::DeviceProp, name)
constexpr Field kIntFields[] = {
    {AICF_FIELD(regsPerBlock), 12},
    {AICF_FIELD(warpSize), 10},
    {AICF_FIELD(maxThreadsPerBlock), 1},
    {AICF_FIELD(maxThreadsDim), 2},
    {AICF_FIELD(maxThreadsDim) + 4, 3},
    {AICF_FIELD(maxThreadsDim) + 8, 4},
    {AICF_FIELD(maxGridSize), 5},
    {AICF_FIELD(maxGridSize) + 4, 6},
    {AICF_FIELD(maxGridSize) + 8, 7},
    {AICF_FIELD(major), 75},
    {AICF_FIELD(minor), 76},
    {AICF_FIELD(multiProcessorCount), 16},
    {AICF_FIELD(integrated), 18},
    {AICF_FIELD(canMapHostMemory), 19},
    {AICF_FIELD(maxTexture1D), 21},
    {AICF_FIELD(maxTexture1DMipmap), 77},
    {AICF_FIELD(maxTexture2D), 22},
    {AICF_FIELD(maxTexture2D) + 4, 23},
    {AICF_FIELD(maxTexture2DMipmap), 73},
    {AICF_FIELD(maxTexture2DMipmap) + 4, 74},
    {AICF_FIELD(maxTexture2DLinear), 70},
    {AICF_FIELD(maxTexture2DLinear) + 4, 71},
    {AICF_FIELD(maxTexture2DLinear) + 8, 72},
    {AICF_FIELD(maxTexture2DGather), 45},
    {AICF_FIELD(maxTexture2DGather) + 4, 46},
    {AICF_FIELD(maxTexture3D), 24},
    {AICF_FIELD(maxTexture3D) + 4, 25},
    {AICF_FIELD(maxTexture3D) + 8, 26},
    {AICF_FIELD(maxTexture3DAlt), 47},
    {AICF_FIELD(maxTexture3DAlt) + 4, 48},
    {AICF_FIELD(maxTexture3DAlt) + 8, 49},
    {AICF_FIELD(maxTextureCubemap), 52},
    {AICF_FIELD(maxTexture1DLayered), 42},
    {AICF_FIELD(maxTexture1DLayered) + 4, 43},
    {AICF_FIELD(maxTexture2DLayered), 27},
    {AICF_FIELD(maxTexture2DLayered) + 4, 28},
    {AICF_FIELD(maxTexture2DLayered) + 8, 29},
    {AICF_FIELD(maxTextureCubemapLayered), 53},
    {AICF_FIELD(maxTextureCubemapLayered) + 4, 54},
    {AICF_FIELD(maxSurface1D), 55},
    {AICF_FIELD(maxSurface2D), 56},
    {AICF_FIELD(maxSurface2D) + 4, 57},
    {AICF_FIELD(maxSurface3D), 58},
    {AICF_FIELD(maxSurface3D) + 4, 59},
    {AICF_FIELD(maxSurface3D) + 8, 60},
    {AICF_FIELD(maxSurface1DLayered), 61},
    {AICF_FIELD(maxSurface1DLayered) + 4, 62},
    {AICF_FIELD(maxSurface2DLayered), 63},
    {AICF_FIELD(maxSurface2DLayered) + 4, 64},
    {AICF_FIELD(maxSurface2DLayered) + 8, 65},
    {AICF_FIELD(maxSurfaceCubemap), 66},
    {AICF_FIELD(maxSurfaceCubemapLayered), 67},
    {AICF_FIELD(maxSurfaceCubemapLayered) + 4, 68},
    {AICF_FIELD(concurrentKernels), 31},
    {AICF_FIELD(ECCEnabled), 32},
    {AICF_FIELD(pciBusID), 33},
    {AICF_FIELD(pciDeviceID), 34},
    {AICF_FIELD(pciDomainID), 50},
    {AICF_FIELD(tccDriver), 35},
    {AICF_FIELD(asyncEngineCount), 40},
    {AICF_FIELD(unifiedAddressing), 41},
    {AICF_FIELD(memoryBusWidth), 37},
    {AICF_FIELD(l2CacheSize), 38},
    {AICF_FIELD(persistingL2CacheMaxSize), 108},
    {AICF_FIELD(maxThreadsPerMultiProcessor), 39},
    {AICF_FIELD(streamPrioritiesSupported), 78},
    {AICF_FIELD(globalL1CacheSupported), 79},
    {AICF_FIELD(localL1CacheSupported), 80},
    {AICF_FIELD(regsPerMultiprocessor), 82},
    {AICF_FIELD(managedMemory), 83},
    {AICF_FIELD(isMultiGpuBoard), 84},
    {AICF_FIELD(multiGpuBoardGroupID), 85},
    {AICF_FIELD(hostNativeAtomicSupported), 86},
    {AICF_FIELD(pageableMemoryAccess), 88},
    {AICF_FIELD(concurrentManagedAccess), 89},
    {AICF_FIELD(computePreemptionSupported), 90},
    {AICF_FIELD(canUseHostPointerForRegisteredMem), 91},
    {AICF_FIELD(cooperativeLaunch), 95},
    {AICF_FIELD(pageableMemoryAccessUsesHostPageTables), 100},
    {AICF_FIELD(directManagedMemAccessFromHost), 101},
    {AICF_FIELD(maxBlocksPerMultiProcessor), 106},
    {AICF_FIELD(accessPolicyMaxWindowSize), 109},
    {AICF_FIELD(hostRegisterSupported), 99},
    {AICF_FIELD(sparseCudaArraySupported), 112},
    {AICF_FIELD(hostRegisterReadOnlySupported), 113},
    {AICF_FIELD(timelineSemaphoreInteropSupported), 114},
    {AICF_FIELD(memoryPoolsSupported), 115},
    {AICF_FIELD(gpuDirectRDMASupported), 116},
    {AICF_FIELD(gpuDirectRDMAFlushWritesOptions), 117},
    {AICF_FIELD(gpuDirectRDMAWritesOrdering), 118},
    {AICF_FIELD(memoryPoolSupportedHandleTypes), 119},
    {AICF_FIELD(deferredMappingCudaArraySupported), 121},
    {AICF_FIELD(ipcEventSupported), 125},
    {AICF_FIELD(clusterLaunch), 120},
    {AICF_FIELD(deviceNumaConfig), 130},
    {AICF_FIELD(deviceNumaId), 131},
    {AICF_FIELD(mpsEnabled), 133},
    {AICF_FIELD(hostNumaId), 134},
};
constexpr Field kSizeFields[] = {
    {AICF_FIELD(sharedMemPerBlock), 8},
    {AICF_FIELD(memPitch), 11},
    {AICF_FIELD(totalConstMem), 9},
    {AICF_FIELD(textureAlignment), 14},
    {AICF_FIELD(texturePitchAlignment), 51},
    {AICF_FIELD(surfaceAlignment), 30},
    {AICF_FIELD(sharedMemPerMultiprocessor), 81},
    {AICF_FIELD(sharedMemPerBlockOptin), 97},
    {AICF_FIELD(reservedSharedMemPerBlock), 111},
};
#undef AICF_FIELD

}  // namespace

const Target* find_target(std::string_view key) {
    const auto* found = std::find_if(std::begin(kTargets), std::end(kTargets), [&](const Target& t) { return key == t.key; });
    return found == std::end(kTargets) ? nullptr : found;
}

bool device_attribute(const Target& target, int attribute, int* value) {
    if (target_attribute(target, attribute, value)) return true;
    const auto* found = std::find_if(std::begin(kFixed), std::end(kFixed), [&](const Fixed& f) { return f.attribute == attribute; });
    if (found == std::end(kFixed)) return false;
    *value = found->value;
    return true;
}

void fill_properties(const Target& target, abi::DeviceProp* properties) {
    std::memset(properties, 0, sizeof *properties);
    auto* bytes = reinterpret_cast<char*>(properties);
    for (const Field& field : kIntFields) {
        int value = 0;
        device_attribute(target, field.attribute, &value);
        std::memcpy(bytes + field.offset, &value, sizeof value);
    }
    for (const Field& field : kSizeFields) {
        int value = 0;
        device_attribute(target, field.attribute, &value);
        const auto wide = static_cast<size_t>(value);
        std::memcpy(bytes + field.offset, &wide, sizeof wide);
    }
    std::snprintf(properties->name, sizeof properties->name, "%s", target.name);
    std::snprintf(properties->uuid, sizeof properties->uuid, "aicf-emu-%s", target.key);
    properties->unifiedFunctionPointers = 0;
}

}  // namespace aicf::emu

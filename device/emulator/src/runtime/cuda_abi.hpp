// The binary interface of the CUDA 13 runtime: the layouts that a program compiled against its headers passes to us.
//
// Field names follow CUDA's documentation, so that tests/emulator/test_runtime_abi.py can compare every size and offset here with the
// toolkit's headers. No CUDA header is needed to build the emulator. Enumerations are ints with named values where the code needs them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "../exec/exec.hpp"

namespace aicf::emu::abi {

struct DeviceProp {
    char name[256];
    char uuid[16];
    char luid[8];
    uint32_t luidDeviceNodeMask;
    size_t totalGlobalMem;
    size_t sharedMemPerBlock;
    int regsPerBlock;
    int warpSize;
    size_t memPitch;
    int maxThreadsPerBlock;
    int maxThreadsDim[3];
    int maxGridSize[3];
    size_t totalConstMem;
    int major;
    int minor;
    size_t textureAlignment;
    size_t texturePitchAlignment;
    int multiProcessorCount;
    int integrated;
    int canMapHostMemory;
    int maxTexture1D;
    int maxTexture1DMipmap;
    int maxTexture2D[2];
    int maxTexture2DMipmap[2];
    int maxTexture2DLinear[3];
    int maxTexture2DGather[2];
    int maxTexture3D[3];
    int maxTexture3DAlt[3];
    int maxTextureCubemap;
    int maxTexture1DLayered[2];
    int maxTexture2DLayered[3];
    int maxTextureCubemapLayered[2];
    int maxSurface1D;
    int maxSurface2D[2];
    int maxSurface3D[3];
    int maxSurface1DLayered[2];
    int maxSurface2DLayered[3];
    int maxSurfaceCubemap;
    int maxSurfaceCubemapLayered[2];
    size_t surfaceAlignment;
    int concurrentKernels;
    int ECCEnabled;
    int pciBusID;
    int pciDeviceID;
    int pciDomainID;
    int tccDriver;
    int asyncEngineCount;
    int unifiedAddressing;
    int memoryBusWidth;
    int l2CacheSize;
    int persistingL2CacheMaxSize;
    int maxThreadsPerMultiProcessor;
    int streamPrioritiesSupported;
    int globalL1CacheSupported;
    int localL1CacheSupported;
    size_t sharedMemPerMultiprocessor;
    int regsPerMultiprocessor;
    int managedMemory;
    int isMultiGpuBoard;
    int multiGpuBoardGroupID;
    int hostNativeAtomicSupported;
    int pageableMemoryAccess;
    int concurrentManagedAccess;
    int computePreemptionSupported;
    int canUseHostPointerForRegisteredMem;
    int cooperativeLaunch;
    size_t sharedMemPerBlockOptin;
    int pageableMemoryAccessUsesHostPageTables;
    int directManagedMemAccessFromHost;
    int maxBlocksPerMultiProcessor;
    int accessPolicyMaxWindowSize;
    size_t reservedSharedMemPerBlock;
    int hostRegisterSupported;
    int sparseCudaArraySupported;
    int hostRegisterReadOnlySupported;
    int timelineSemaphoreInteropSupported;
    int memoryPoolsSupported;
    int gpuDirectRDMASupported;
    uint32_t gpuDirectRDMAFlushWritesOptions;
    int gpuDirectRDMAWritesOrdering;
    uint32_t memoryPoolSupportedHandleTypes;
    int deferredMappingCudaArraySupported;
    int ipcEventSupported;
    int clusterLaunch;
    int unifiedFunctionPointers;
    int deviceNumaConfig;
    int deviceNumaId;
    int mpsEnabled;
    int hostNumaId;
    uint32_t gpuPciDeviceID;
    uint32_t gpuPciSubsystemID;
    int hostNumaMultinodeIpcSupported;
    int reserved[56];
};

struct FuncAttributes {
    size_t sharedSizeBytes;
    size_t constSizeBytes;
    size_t localSizeBytes;
    int maxThreadsPerBlock;
    int numRegs;
    int ptxVersion;
    int binaryVersion;
    int cacheModeCA;
    int maxDynamicSharedSizeBytes;
    int preferredShmemCarveout;
    int clusterDimMustBeSet;
    int requiredClusterWidth;
    int requiredClusterHeight;
    int requiredClusterDepth;
    int clusterSchedulingPolicyPreference;
    int nonPortableClusterSizeAllowed;
    int reserved[16];
};

enum FuncAttribute : int {
    kFuncMaxDynamicSharedMemorySize = 8,
    kFuncPreferredSharedMemoryCarveout = 9,
    kFuncClusterDimMustBeSet = 10,
    kFuncRequiredClusterWidth = 11,
    kFuncRequiredClusterHeight = 12,
    kFuncRequiredClusterDepth = 13,
    kFuncNonPortableClusterSizeAllowed = 14,
    kFuncClusterSchedulingPolicyPreference = 15,
};

enum MemoryType : int { kMemoryUnregistered = 0, kMemoryHost = 1, kMemoryDevice = 2, kMemoryManaged = 3 };

struct PointerAttributes {
    int type;
    int device;
    void* devicePointer;
    void* hostPointer;
    long reserved[8];
};

enum MemcpyKind : int { kHostToHost = 0, kHostToDevice = 1, kDeviceToHost = 2, kDeviceToDevice = 3, kCopyDefault = 4 };

struct PitchedPtr {
    void* ptr;
    size_t pitch;  // bytes
    size_t xsize;
    size_t ysize;  // rows of one slice
};

struct Extent {
    size_t width;  // bytes where no array takes part
    size_t height;
    size_t depth;
};

struct Pos {
    size_t x, y, z;
};

struct Memcpy3DParms {
    void* srcArray;
    Pos srcPos;
    PitchedPtr srcPtr;
    void* dstArray;
    Pos dstPos;
    PitchedPtr dstPtr;
    Extent extent;
    int kind;
};

struct Memcpy3DPeerParms {
    void* srcArray;
    Pos srcPos;
    PitchedPtr srcPtr;
    int srcDevice;
    void* dstArray;
    Pos dstPos;
    PitchedPtr dstPtr;
    int dstDevice;
    Extent extent;
};

struct MemcpyNodeParams {
    int flags;
    int reserved[3];
    Memcpy3DParms copyParams;
};

struct MemsetParams {
    void* dst;
    size_t pitch;
    uint32_t value;
    uint32_t elementSize;  // 1, 2 or 4 bytes
    size_t width;          // elements
    size_t height;
};

using HostFn = void (*)(void* userData);

struct HostNodeParams {
    HostFn fn;
    void* userData;
};

enum CaptureStatus : int { kCaptureNone = 0, kCaptureActive = 1, kCaptureInvalidated = 2 };
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };

struct MemLocation {
    int type;  // 1 device, 2 host, 3 host NUMA node, 4 current host NUMA node
    int id;
};

struct MemAccessDesc {
    MemLocation location;
    int flags;
};

struct MemPoolProps {
    int allocType;
    int handleTypes;
    MemLocation location;
    void* win32SecurityAttributes;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
};

struct MemAllocNodeParams {
    MemPoolProps poolProps;
    const MemAccessDesc* accessDescs;
    size_t accessDescCount;
    size_t bytesize;
    void* dptr;
};

struct KernelNodeParams {
    void* func;
    Dim3 gridDim;
    Dim3 blockDim;
    uint32_t sharedMemBytes;
    void** kernelParams;
    void** extra;
};

struct ChildGraphNodeParams {
    void* graph;
    int ownership;
};

struct ConditionalNodeParams {
    unsigned long long handle;
    int type;
    uint32_t size;
    void** phGraph_out;
};

enum ConditionalType : int { kConditionalIf = 0, kConditionalWhile = 1, kConditionalSwitch = 2 };

enum NodeType : int {
    kNodeKernel = 0,
    kNodeMemcpy = 1,
    kNodeMemset = 2,
    kNodeHost = 3,
    kNodeGraph = 4,
    kNodeEmpty = 5,
    kNodeWaitEvent = 6,
    kNodeEventRecord = 7,
    kNodeSemaphoreSignal = 8,
    kNodeSemaphoreWait = 9,
    kNodeMemAlloc = 10,
    kNodeMemFree = 11,
    kNodeConditional = 13,
};

struct GraphNodeParams {
    int type;
    int reserved0[3];
    union {
        long long reserved1[29];
        KernelNodeParams kernel;
        MemcpyNodeParams memcpy;
        MemsetParams memset;
        HostNodeParams host;
        ChildGraphNodeParams graph;
        void* eventWait;
        void* eventRecord;
        MemAllocNodeParams alloc;
        void* free;
        ConditionalNodeParams conditional;
    };
    long long reserved2;
};

struct GraphEdgeData {
    unsigned char from_port;
    unsigned char to_port;
    unsigned char type;
    unsigned char reserved[5];
};

struct GraphInstantiateParams {
    unsigned long long flags;
    void* uploadStream;
    void* errNode_out;
    int result_out;
};

enum GraphInstantiateFlag : int {
    kInstantiateAutoFree = 1,
    kInstantiateUpload = 2,
    kInstantiateDeviceLaunch = 4,
    kInstantiatePriority = 8
};

enum GraphInstantiateResult : int { kInstantiateSuccess = 0, kInstantiateError = 1, kInstantiateConditionalHandleUnused = 5 };

enum GraphUpdateResult : int {
    kUpdateSuccess = 0,
    kUpdateError = 1,
    kUpdateTopologyChanged = 2,
    kUpdateNodeTypeChanged = 3,
    kUpdateFunctionChanged = 4,
    kUpdateParametersChanged = 5,
    kUpdateNotSupported = 6,
    kUpdateUnsupportedFunctionChange = 7,
    kUpdateAttributesChanged = 8,
};

struct GraphExecUpdateResultInfo {
    int result;
    void* errorNode;
    void* errorFromNode;
};

enum LaunchAttributeId : int {
    kAttributeIgnore = 0,
    kAttributeAccessPolicyWindow = 1,
    kAttributeCooperative = 2,
    kAttributeSynchronizationPolicy = 3,
    kAttributeClusterDimension = 4,
    kAttributeClusterSchedulingPolicy = 5,
    kAttributeProgrammaticSerialization = 6,
    kAttributeProgrammaticEvent = 7,
    kAttributePriority = 8,
    kAttributeMemSyncDomainMap = 9,
    kAttributeMemSyncDomain = 10,
    kAttributePreferredCluster = 11,
    kAttributeLaunchCompletionEvent = 12,
    kAttributeDeviceUpdatableNode = 13,
    kAttributeSharedMemoryCarveout = 14,
    kAttributeNvlinkScheduling = 16,
};

union LaunchAttributeValue {
    char pad[64];
    int cooperative;
    struct {
        uint32_t x, y, z;
    } clusterDim;
    int programmaticStreamSerializationAllowed;
    struct {
        void* event;
        int flags;
        int triggerAtBlockStart;
    } programmaticEvent;
    int priority;
    struct {
        void* event;
        int flags;
    } launchCompletionEvent;
    uint32_t sharedMemCarveout;
};

struct LaunchAttribute {
    int id;
    char pad[4];
    LaunchAttributeValue val;
};

struct LaunchConfig {
    Dim3 gridDim;
    Dim3 blockDim;
    size_t dynamicSmemBytes;
    void* stream;
    LaunchAttribute* attrs;
    uint32_t numAttrs;
};

struct IpcHandle {
    char reserved[64];
};

struct ChannelFormatDesc {
    int x, y, z, w;
    int f;
};

}  // namespace aicf::emu::abi

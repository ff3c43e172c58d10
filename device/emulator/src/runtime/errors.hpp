// CUDA's error codes: one table for the enumerators, the names and the texts, and the type the runtime throws inside itself.
#pragma once

#include <cstdint>
#include <string>

// X(name, code, text): the documented name without its prefix `cudaError`, its value, and what cudaGetErrorString says.
// clang-format off
#define AICF_CUDA_ERRORS(X) \
    X(InvalidValue, 1, "invalid argument") \
    X(MemoryAllocation, 2, "out of memory") \
    X(InitializationError, 3, "initialization error") \
    X(CudartUnloading, 4, "the CUDA runtime is shutting down") \
    X(ProfilerDisabled, 5, "the profiler is disabled") \
    X(ProfilerNotInitialized, 6, "the profiler is not initialized") \
    X(ProfilerAlreadyStarted, 7, "the profiler is already started") \
    X(ProfilerAlreadyStopped, 8, "the profiler is already stopped") \
    X(InvalidConfiguration, 9, "invalid configuration argument") \
    X(InvalidPitchValue, 12, "invalid pitch argument") \
    X(InvalidSymbol, 13, "invalid device symbol") \
    X(InvalidHostPointer, 16, "invalid host pointer") \
    X(InvalidDevicePointer, 17, "invalid device pointer") \
    X(InvalidTexture, 18, "invalid texture reference") \
    X(InvalidTextureBinding, 19, "texture is not bound to a pointer") \
    X(InvalidChannelDescriptor, 20, "invalid channel descriptor") \
    X(InvalidMemcpyDirection, 21, "invalid copy direction for memcpy") \
    X(AddressOfConstant, 22, "the address of a constant variable may not be taken") \
    X(TextureFetchFailed, 23, "fetch from texture failed") \
    X(TextureNotBound, 24, "texture is not bound") \
    X(SynchronizationError, 25, "synchronization failed") \
    X(InvalidFilterSetting, 26, "linear filtering is not supported for this texture") \
    X(InvalidNormSetting, 27, "unsupported texture normalization") \
    X(MixedDeviceExecution, 28, "device emulation cannot be mixed with device execution") \
    X(NotYetImplemented, 31, "feature not yet implemented") \
    X(MemoryValueTooLarge, 32, "memory value is too large") \
    X(StubLibrary, 34, "the library is a stub") \
    X(InsufficientDriver, 35, "the CUDA driver is older than the CUDA runtime") \
    X(CallRequiresNewerDriver, 36, "the call requires a newer CUDA driver") \
    X(InvalidSurface, 37, "invalid surface reference") \
    X(DuplicateVariableName, 43, "duplicate global variable looked up by name") \
    X(DuplicateTextureName, 44, "duplicate texture looked up by name") \
    X(DuplicateSurfaceName, 45, "duplicate surface looked up by name") \
    X(DevicesUnavailable, 46, "all CUDA devices are busy or unavailable") \
    X(IncompatibleDriverContext, 49, "incompatible driver context") \
    X(MissingConfiguration, 52, "missing launch configuration") \
    X(PriorLaunchFailure, 53, "an earlier launch failed") \
    X(LaunchMaxDepthExceeded, 65, "device-side launch depth exceeded") \
    X(LaunchFileScopedTex, 66, "file-scoped textures are not supported in a device-side launch") \
    X(LaunchFileScopedSurf, 67, "file-scoped surfaces are not supported in a device-side launch") \
    X(SyncDepthExceeded, 68, "device-side synchronization depth exceeded") \
    X(LaunchPendingCountExceeded, 69, "too many pending device-side launches") \
    X(InvalidDeviceFunction, 98, "invalid device function") \
    X(NoDevice, 100, "no CUDA device was found") \
    X(InvalidDevice, 101, "invalid device ordinal") \
    X(DeviceNotLicensed, 102, "the device has no valid licence") \
    X(SoftwareValidityNotEstablished, 103, "the integrity of the software could not be established") \
    X(StartupFailure, 127, "startup failure in the CUDA runtime") \
    X(InvalidKernelImage, 200, "the device kernel image is invalid") \
    X(DeviceUninitialized, 201, "invalid device context") \
    X(MapBufferObjectFailed, 205, "mapping of a buffer object failed") \
    X(UnmapBufferObjectFailed, 206, "unmapping of a buffer object failed") \
    X(ArrayIsMapped, 207, "the array is mapped") \
    X(AlreadyMapped, 208, "the resource is already mapped") \
    X(NoKernelImageForDevice, 209, "no kernel image is available for execution on the device") \
    X(AlreadyAcquired, 210, "the resource is already acquired") \
    X(NotMapped, 211, "the resource is not mapped") \
    X(NotMappedAsArray, 212, "the resource is not mapped as an array") \
    X(NotMappedAsPointer, 213, "the resource is not mapped as a pointer") \
    X(ECCUncorrectable, 214, "uncorrectable ECC error") \
    X(UnsupportedLimit, 215, "limit is not supported on this device") \
    X(DeviceAlreadyInUse, 216, "exclusive-thread device is already in use by another thread") \
    X(PeerAccessUnsupported, 217, "peer access is not supported between these devices") \
    X(InvalidPtx, 218, "a PTX program could not be compiled") \
    X(InvalidGraphicsContext, 219, "invalid graphics context") \
    X(NvlinkUncorrectable, 220, "uncorrectable NVLink error") \
    X(JitCompilerNotFound, 221, "the PTX compiler was not found") \
    X(UnsupportedPtxVersion, 222, "the PTX was made by a newer toolkit than is supported") \
    X(JitCompilationDisabled, 223, "PTX compilation is disabled") \
    X(UnsupportedExecAffinity, 224, "the execution affinity is not supported") \
    X(UnsupportedDevSideSync, 225, "unsupported device-side synchronization in the PTX") \
    X(Contained, 226, "a contained error occurred") \
    X(InvalidSource, 300, "invalid device kernel source") \
    X(FileNotFound, 301, "file not found") \
    X(SharedObjectSymbolNotFound, 302, "shared object symbol not found") \
    X(SharedObjectInitFailed, 303, "initialization of a shared object failed") \
    X(OperatingSystem, 304, "an operating system call failed") \
    X(InvalidResourceHandle, 400, "invalid resource handle") \
    X(IllegalState, 401, "the operation is not permitted in the current state") \
    X(LossyQuery, 402, "the query would lose information") \
    X(SymbolNotFound, 500, "named symbol not found") \
    X(NotReady, 600, "device not ready") \
    X(IllegalAddress, 700, "an illegal memory access was encountered") \
    X(LaunchOutOfResources, 701, "too many resources requested for launch") \
    X(LaunchTimeout, 702, "the launch timed out and was terminated") \
    X(LaunchIncompatibleTexturing, 703, "launch with an incompatible texturing mode") \
    X(PeerAccessAlreadyEnabled, 704, "peer access is already enabled") \
    X(PeerAccessNotEnabled, 705, "peer access has not been enabled") \
    X(SetOnActiveProcess, 708, "cannot be set while the device is in use by this process") \
    X(ContextIsDestroyed, 709, "the context is destroyed") \
    X(Assert, 710, "device-side assert triggered") \
    X(TooManyPeers, 711, "peer mapping resources are exhausted") \
    X(HostMemoryAlreadyRegistered, 712, "part or all of the memory range is already mapped") \
    X(HostMemoryNotRegistered, 713, "the pointer does not correspond to a registered memory region") \
    X(HardwareStackError, 714, "hardware stack error") \
    X(IllegalInstruction, 715, "an illegal instruction was encountered") \
    X(MisalignedAddress, 716, "misaligned address") \
    X(InvalidAddressSpace, 717, "operation not supported on global or shared address space") \
    X(InvalidPc, 718, "invalid program counter") \
    X(LaunchFailure, 719, "unspecified launch failure") \
    X(CooperativeLaunchTooLarge, 720, "too many blocks in a cooperative launch") \
    X(TensorMemoryLeak, 721, "tensor memory was not freed by the kernel") \
    X(NotPermitted, 800, "operation not permitted") \
    X(NotSupported, 801, "operation not supported") \
    X(SystemNotReady, 802, "the system is not yet ready") \
    X(SystemDriverMismatch, 803, "mismatch between the display driver and the CUDA driver") \
    X(CompatNotSupportedOnDevice, 804, "forward compatibility is not supported on this hardware") \
    X(MpsConnectionFailed, 805, "the MPS client failed to connect to the MPS control daemon or server") \
    X(MpsRpcFailure, 806, "the MPS remote procedure call failed") \
    X(MpsServerNotReady, 807, "the MPS server is not ready") \
    X(MpsMaxClientsReached, 808, "the MPS server has no more clients to give") \
    X(MpsMaxConnectionsReached, 809, "the MPS server has no more connections to give") \
    X(MpsClientTerminated, 810, "the MPS client was terminated") \
    X(CdpNotSupported, 811, "device-side launches are not supported on this device") \
    X(CdpVersionMismatch, 812, "the version of device-side launches is not supported") \
    X(StreamCaptureUnsupported, 900, "operation not permitted when stream is capturing") \
    X(StreamCaptureInvalidated, 901, "operation failed due to a previous error during capture") \
    X(StreamCaptureMerge, 902, "operation would result in a merge of separate capture sequences") \
    X(StreamCaptureUnmatched, 903, "capture was not ended in the same stream as it began") \
    X(StreamCaptureUnjoined, 904, "capturing stream has unjoined work") \
    X(StreamCaptureIsolation, 905, "dependency created on uncaptured work in another stream") \
    X(StreamCaptureImplicit, 906, "operation would make the legacy stream depend on a capturing blocking stream") \
    X(CapturedEvent, 907, "operation not permitted on an event last recorded in a capturing stream") \
    X(StreamCaptureWrongThread, 908, "attempt to terminate a thread-local capture sequence from another thread") \
    X(Timeout, 909, "a wait timed out") \
    X(GraphExecUpdateFailure, 910, "the graph update was not performed because of changes it cannot hold") \
    X(ExternalDevice, 911, "an asynchronous error occurred in an external device") \
    X(InvalidClusterSize, 912, "a kernel launch has an invalid cluster size") \
    X(FunctionNotLoaded, 913, "the function is not loaded") \
    X(InvalidResourceType, 914, "the resource type is invalid") \
    X(InvalidResourceConfiguration, 915, "the resource configuration is invalid") \
    X(Unknown, 999, "unknown error") \
    X(ApiFailureBase, 10000, "API failure base")
// clang-format on

namespace aicf::emu {

enum ErrorCode : int {
    kNoError = 0,
#define AICF_ENUMERATOR(name, code, text) kErr##name = code,
    AICF_CUDA_ERRORS(AICF_ENUMERATOR)
#undef AICF_ENUMERATOR
};

// "cudaErrorInvalidValue", or "unrecognized error code".
const char* error_name(int code);
const char* error_text(int code);

// True for the errors after which a CUDA context is lost: every later call returns them until cudaDeviceReset.
bool is_sticky(int code);

// Ends an API call with a code. The message is the long form, which aicfEmulatorMessage() returns.
struct Failure {
    int code;
    std::string message;
};

}  // namespace aicf::emu

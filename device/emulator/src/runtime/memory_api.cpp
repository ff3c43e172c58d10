// Allocation, copies, fills, symbols, pointer queries.
#include <cstdlib>
#include <cstring>

#include "graph.hpp"
#include "memory_ops.hpp"
#include "order.hpp"
#include "pools.hpp"
#include "queue.hpp"

using namespace aicf::emu;

namespace {

constexpr size_t kPitchAlign = 512;  // what cudaMallocPitch rounds rows up to on current devices

void allocate(Runtime& runtime, void** out, size_t size_bytes, MemoryKind kind) {
    require(out != nullptr, kErrInvalidValue, "the result pointer is null");
    *out = nullptr;
    if (size_bytes != 0) *out = reinterpret_cast<void*>(allocate_memory(runtime, size_bytes, kind));
}

// `host`: freed by cudaFreeHost, so it must be pinned memory; else it must not be. The device's work is waited for, as CUDA does.
void release(Runtime& runtime, void* pointer, bool host) {
    if (pointer == nullptr) return;
    note_work_on_freed_memory(runtime, to_address(pointer), nullptr);
    finish_all(runtime);
    release_memory(runtime, to_address(pointer), host);
}

bool is_in_device_memory(Runtime& runtime, const void* pointer, const void* array) {
    if (array != nullptr) return true;
    const Allocation* allocation = runtime.memory().find(to_address(pointer));
    return allocation != nullptr && !is_host_visible(allocation->kind);
}

const Allocation& find_host_memory(Runtime& runtime, const void* pointer) {
    const Allocation* allocation = runtime.memory().find(to_address(pointer));
    require(allocation != nullptr && allocation->live &&
                (allocation->kind == MemoryKind::kPinned || allocation->kind == MemoryKind::kRegistered),
            kErrInvalidValue, "the address is not in pinned or registered memory");
    return *allocation;
}

// Synchronous copies and fills run in the legacy (or the thread's) default stream and cannot be captured. Beside a capture that the
// legacy stream has nothing to do with they are permitted, also in global mode (seen on an H200). Those within the device's memory are
// not waited for (CUDA runtime API, "API synchronization behavior").
void run_now(Runtime& runtime, bool per_thread, const CopyOp& operation) {
    Stream& stream = find_stream(runtime, nullptr, per_thread);
    forbid_on_capturing_stream(runtime, stream, "a synchronous copy");
    forbid_implicit_dependency(runtime, stream);
    check_copy(runtime, operation.params);
    const bool on_device = is_in_device_memory(runtime, operation.params.dstPtr.ptr, operation.params.dstArray) &&
                           is_in_device_memory(runtime, operation.params.srcPtr.ptr, operation.params.srcArray);
    const auto task = enqueue(runtime, stream, operation);
    if (on_device) return;
    finish(runtime, {task});
    host_waited_for(runtime, stream.clock);
}

void run_now(Runtime& runtime, bool per_thread, const FillOp& operation) {
    Stream& stream = find_stream(runtime, nullptr, per_thread);
    forbid_on_capturing_stream(runtime, stream, "a synchronous fill");
    forbid_implicit_dependency(runtime, stream);
    check_fill(runtime, operation.params, operation.depth, operation.slice_pitch);
    const auto task = enqueue(runtime, stream, operation);
    if (is_in_device_memory(runtime, operation.params.dst, nullptr)) return;
    finish(runtime, {task});
    host_waited_for(runtime, stream.clock);
}

void run_in(Runtime& runtime, void* stream, bool per_thread, const CopyOp& operation) {
    check_copy(runtime, operation.params);
    submit(runtime, find_stream(runtime, stream, per_thread), operation);
}

void run_in(Runtime& runtime, void* stream, bool per_thread, const FillOp& operation) {
    check_fill(runtime, operation.params, operation.depth, operation.slice_pitch);
    submit(runtime, find_stream(runtime, stream, per_thread), operation);
}

FillOp fill_bytes(void* dst, size_t pitch, int value, size_t width, size_t height) {
    return {{dst, pitch, static_cast<uint32_t>(value & 0xFF), 1, width, height}, 1, 0};
}

FillOp fill_volume(const abi::PitchedPtr& dst, int value, const abi::Extent& extent) {
    FillOp operation = fill_bytes(dst.ptr, dst.pitch, value, extent.width, extent.height);
    operation.depth = extent.depth;
    operation.slice_pitch = dst.pitch * dst.ysize;
    return operation;
}

// Each side's memory has to be of the device that is named for it.
void check_peer_copy(Runtime& runtime, const void* dst, int dst_device, const void* src, int src_device) {
    const auto check = [&](const void* pointer, int device, const char* side) {
        require(device >= 0 && device < static_cast<int>(runtime.devices.size()), kErrInvalidDevice, "there is no such device");
        const Allocation* allocation = pointer == nullptr ? nullptr : runtime.memory().find(to_address(pointer));
        if (allocation == nullptr || is_host_visible(allocation->kind) || allocation->device == device) return;
        const std::string text = std::string("the ") + side + " " + hex(to_address(pointer)) +
                                 " of a copy between devices is memory of device " + std::to_string(allocation->device) +
                                 ", and the call names device " + std::to_string(device);
        runtime.add_report("wrong_device", Severity::kError, text + "\n", to_address(pointer));
        throw Failure{kErrInvalidValue, text};
    };
    check(dst, dst_device, "destination");
    check(src, src_device, "source");
}

abi::Memcpy3DParms from_peer(Runtime& runtime, const abi::Memcpy3DPeerParms& peer) {
    check_peer_copy(runtime, peer.dstPtr.ptr, peer.dstDevice, peer.srcPtr.ptr, peer.srcDevice);
    abi::Memcpy3DParms params{};
    params.srcArray = peer.srcArray;
    params.srcPos = peer.srcPos;
    params.srcPtr = peer.srcPtr;
    params.dstArray = peer.dstArray;
    params.dstPos = peer.dstPos;
    params.dstPtr = peer.dstPtr;
    params.extent = peer.extent;
    params.kind = abi::kDeviceToDevice;
    return params;
}

uint64_t symbol_place(Runtime& runtime, const void* symbol, size_t count, size_t offset) {
    const DeviceVariable* variable = runtime.registry->find_variable(symbol);
    require(variable != nullptr, kErrInvalidSymbol, "the symbol is no registered device variable");
    const VariableInfo& info = runtime.registry->resolve(runtime, *variable);
    if (offset > info.size_bytes || count > info.size_bytes - offset)
        throw Failure{kErrInvalidValue, std::to_string(count) + " bytes at offset " + std::to_string(offset) + " of variable " +
                                            variable->name + ", which has " + std::to_string(info.size_bytes)};
    return info.address + offset;
}

CopyOp to_symbol(Runtime& runtime, const void* symbol, const void* src, size_t count, size_t offset, int kind) {
    require(kind == abi::kHostToDevice || kind == abi::kDeviceToDevice || kind == abi::kCopyDefault, kErrInvalidMemcpyDirection,
            "a copy to a symbol goes to the device");
    return {linear_copy(reinterpret_cast<void*>(symbol_place(runtime, symbol, count, offset)), src, count, kind)};
}

CopyOp from_symbol(Runtime& runtime, void* dst, const void* symbol, size_t count, size_t offset, int kind) {
    require(kind == abi::kDeviceToHost || kind == abi::kDeviceToDevice || kind == abi::kCopyDefault, kErrInvalidMemcpyDirection,
            "a copy from a symbol comes from the device");
    return {linear_copy(dst, reinterpret_cast<const void*>(symbol_place(runtime, symbol, count, offset)), count, kind)};
}

}  // namespace

void aicf::emu::enqueue_copy(Runtime& runtime, void* stream, bool per_thread, const abi::Memcpy3DParms& params) {
    run_in(runtime, stream, per_thread, CopyOp{params});
}

void aicf::emu::copy_now(Runtime& runtime, bool per_thread, const abi::Memcpy3DParms& params) {
    run_now(runtime, per_thread, CopyOp{params});
}

int aicf::emu::fill_elements(void* dst, uint32_t value, uint32_t element_bytes, size_t count, void* stream) {
    return api("cuMemset", [&](Runtime& runtime) {
        run_in(runtime, stream, false, FillOp{{dst, count * element_bytes, value, element_bytes, count, 1}, 1, 0});
    });
}

AICF_API cudaMalloc(void** out, size_t size_bytes) {
    return api("cudaMalloc", [&](Runtime& runtime) {
        forbid_during_capture(runtime, "cudaMalloc");
        allocate(runtime, out, size_bytes, MemoryKind::kDevice);
    });
}

AICF_API cudaFree(void* pointer) {
    return api("cudaFree", [&](Runtime& runtime) {
        forbid_during_capture(runtime, "cudaFree");
        release(runtime, pointer, false);
    });
}

AICF_API cudaMallocHost(void** out, size_t size_bytes) {
    return api("cudaMallocHost", [&](Runtime& runtime) {
        forbid_during_capture(runtime, "cudaMallocHost");
        allocate(runtime, out, size_bytes, MemoryKind::kPinned);
    });
}

AICF_API cudaHostAlloc(void** out, size_t size_bytes, unsigned flags) {
    return api("cudaHostAlloc", [&](Runtime& runtime) {
        require(flags <= 7, kErrInvalidValue, "flags are a combination of 1 (portable), 2 (mapped), 4 (write-combined)");
        forbid_during_capture(runtime, "cudaHostAlloc");
        allocate(runtime, out, size_bytes, MemoryKind::kPinned);
    });
}

AICF_API cudaFreeHost(void* pointer) {
    return api("cudaFreeHost", [&](Runtime& runtime) {
        forbid_during_capture(runtime, "cudaFreeHost");
        release(runtime, pointer, true);
    });
}

AICF_API cudaMallocManaged(void** out, size_t size_bytes, unsigned flags) {
    return api("cudaMallocManaged", [&](Runtime& runtime) {
        require(flags == 1 || flags == 2, kErrInvalidValue, "flags are 1 (attach to all streams) or 2 (host)");
        require(size_bytes != 0, kErrInvalidValue, "0 bytes of managed memory");
        forbid_during_capture(runtime, "cudaMallocManaged");
        allocate(runtime, out, size_bytes, MemoryKind::kManaged);
    });
}

AICF_API cudaMallocPitch(void** out, size_t* pitch, size_t width, size_t height) {
    return api("cudaMallocPitch", [&](Runtime& runtime) {
        require(pitch != nullptr, kErrInvalidValue, "the pitch pointer is null");
        forbid_during_capture(runtime, "cudaMallocPitch");
        *pitch = (width + kPitchAlign - 1) / kPitchAlign * kPitchAlign;
        allocate(runtime, out, *pitch * height, MemoryKind::kDevice);
    });
}

AICF_API cudaMalloc3D(abi::PitchedPtr* out, abi::Extent extent) {
    return api("cudaMalloc3D", [&](Runtime& runtime) {
        require(out != nullptr, kErrInvalidValue, "the result pointer is null");
        forbid_during_capture(runtime, "cudaMalloc3D");
        out->pitch = (extent.width + kPitchAlign - 1) / kPitchAlign * kPitchAlign;
        out->xsize = extent.width;
        out->ysize = extent.height;
        allocate(runtime, &out->ptr, out->pitch * extent.height * extent.depth, MemoryKind::kDevice);
    });
}

AICF_API cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
    return api("cudaMemGetInfo", [&](Runtime& runtime) {
        require(free_bytes != nullptr && total_bytes != nullptr, kErrInvalidValue, "a result pointer is null");
        *total_bytes = runtime.memory().device_bytes();
        *free_bytes = *total_bytes - runtime.memory().used_bytes(static_cast<uint32_t>(thread_state().device));
    });
}

// Copies.

AICF_TWIN_API(cudaMemcpy, _ptds, (void* dst, const void* src, size_t count, int kind), (dst, src, count, kind)) {
    return api("cudaMemcpy", [&](Runtime& runtime) { run_now(runtime, per_thread, CopyOp{linear_copy(dst, src, count, kind)}); });
}

AICF_TWIN_API(cudaMemcpyAsync, _ptsz, (void* dst, const void* src, size_t count, int kind, void* stream), (dst, src, count, kind, stream)) {
    return api("cudaMemcpyAsync",
               [&](Runtime& runtime) { run_in(runtime, stream, per_thread, CopyOp{linear_copy(dst, src, count, kind)}); });
}

AICF_TWIN_API(cudaMemcpy2D, _ptds, (void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int kind),
              (dst, dst_pitch, src, src_pitch, width, height, kind)) {
    return api("cudaMemcpy2D", [&](Runtime& runtime) {
        run_now(runtime, per_thread, CopyOp{pitched_copy(dst, dst_pitch, src, src_pitch, width, height, kind)});
    });
}

AICF_TWIN_API(cudaMemcpy2DAsync, _ptsz,
              (void* dst, size_t dst_pitch, const void* src, size_t src_pitch, size_t width, size_t height, int kind, void* stream),
              (dst, dst_pitch, src, src_pitch, width, height, kind, stream)) {
    return api("cudaMemcpy2DAsync", [&](Runtime& runtime) {
        run_in(runtime, stream, per_thread, CopyOp{pitched_copy(dst, dst_pitch, src, src_pitch, width, height, kind)});
    });
}

AICF_TWIN_API(cudaMemcpy3D, _ptds, (const abi::Memcpy3DParms* params), (params)) {
    return api("cudaMemcpy3D", [&](Runtime& runtime) {
        require(params != nullptr, kErrInvalidValue, "the parameters are null");
        run_now(runtime, per_thread, CopyOp{*params});
    });
}

AICF_TWIN_API(cudaMemcpy3DAsync, _ptsz, (const abi::Memcpy3DParms* params, void* stream), (params, stream)) {
    return api("cudaMemcpy3DAsync", [&](Runtime& runtime) {
        require(params != nullptr, kErrInvalidValue, "the parameters are null");
        run_in(runtime, stream, per_thread, CopyOp{*params});
    });
}

AICF_TWIN_API(cudaMemcpy3DPeer, _ptds, (const abi::Memcpy3DPeerParms* params), (params)) {
    return api("cudaMemcpy3DPeer", [&](Runtime& runtime) {
        require(params != nullptr, kErrInvalidValue, "the parameters are null");
        run_now(runtime, per_thread, CopyOp{from_peer(runtime, *params)});
    });
}

AICF_TWIN_API(cudaMemcpy3DPeerAsync, _ptsz, (const abi::Memcpy3DPeerParms* params, void* stream), (params, stream)) {
    return api("cudaMemcpy3DPeerAsync", [&](Runtime& runtime) {
        require(params != nullptr, kErrInvalidValue, "the parameters are null");
        run_in(runtime, stream, per_thread, CopyOp{from_peer(runtime, *params)});
    });
}

AICF_API cudaMemcpyPeer(void* dst, int dst_device, const void* src, int src_device, size_t count) {
    return api("cudaMemcpyPeer", [&](Runtime& runtime) {
        check_peer_copy(runtime, dst, dst_device, src, src_device);
        run_now(runtime, false, CopyOp{linear_copy(dst, src, count, abi::kDeviceToDevice)});
        host_waited_for(runtime, find_stream(runtime, nullptr, false).clock);  // it waits for both devices, and they for it
    });
}

AICF_API cudaMemcpyPeerAsync(void* dst, int dst_device, const void* src, int src_device, size_t count, void* stream) {
    return api("cudaMemcpyPeerAsync", [&](Runtime& runtime) {
        check_peer_copy(runtime, dst, dst_device, src, src_device);
        run_in(runtime, stream, false, CopyOp{linear_copy(dst, src, count, abi::kDeviceToDevice)});
    });
}

AICF_TWIN_API(cudaMemcpyBatchAsync, _ptsz,
              (void* const* dsts, const void* const* srcs, const size_t* sizes, size_t count, void* attributes, size_t* indices,
               size_t num_attributes, void* stream),
              (dsts, srcs, sizes, count, attributes, indices, num_attributes, stream)) {
    return api("cudaMemcpyBatchAsync", [&](Runtime& runtime) {
        require(dsts != nullptr && srcs != nullptr && sizes != nullptr && count != 0, kErrInvalidValue,
                "the batch is empty or an array is null");
        Stream& target = find_stream(runtime, stream, per_thread);
        require(target.kind != Stream::Kind::kLegacy, kErrInvalidValue, "a batch cannot run in the legacy default stream");
        for (size_t i = 0; i < count; ++i)
            run_in(runtime, stream, per_thread, CopyOp{linear_copy(dsts[i], srcs[i], sizes[i], abi::kCopyDefault)});
    });
}

// Fills.

AICF_TWIN_API(cudaMemset, _ptds, (void* dst, int value, size_t count), (dst, value, count)) {
    return api("cudaMemset", [&](Runtime& runtime) { run_now(runtime, per_thread, fill_bytes(dst, count, value, count, 1)); });
}

AICF_TWIN_API(cudaMemsetAsync, _ptsz, (void* dst, int value, size_t count, void* stream), (dst, value, count, stream)) {
    return api("cudaMemsetAsync", [&](Runtime& runtime) { run_in(runtime, stream, per_thread, fill_bytes(dst, count, value, count, 1)); });
}

AICF_TWIN_API(cudaMemset2D, _ptds, (void* dst, size_t pitch, int value, size_t width, size_t height), (dst, pitch, value, width, height)) {
    return api("cudaMemset2D", [&](Runtime& runtime) { run_now(runtime, per_thread, fill_bytes(dst, pitch, value, width, height)); });
}

AICF_TWIN_API(cudaMemset2DAsync, _ptsz, (void* dst, size_t pitch, int value, size_t width, size_t height, void* stream),
              (dst, pitch, value, width, height, stream)) {
    return api("cudaMemset2DAsync",
               [&](Runtime& runtime) { run_in(runtime, stream, per_thread, fill_bytes(dst, pitch, value, width, height)); });
}

AICF_TWIN_API(cudaMemset3D, _ptds, (abi::PitchedPtr dst, int value, abi::Extent extent), (dst, value, extent)) {
    return api("cudaMemset3D", [&](Runtime& runtime) { run_now(runtime, per_thread, fill_volume(dst, value, extent)); });
}

AICF_TWIN_API(cudaMemset3DAsync, _ptsz, (abi::PitchedPtr dst, int value, abi::Extent extent, void* stream), (dst, value, extent, stream)) {
    return api("cudaMemset3DAsync", [&](Runtime& runtime) { run_in(runtime, stream, per_thread, fill_volume(dst, value, extent)); });
}

// Symbols.

AICF_API cudaGetSymbolAddress(void** address, const void* symbol) {
    return api("cudaGetSymbolAddress", [&](Runtime& runtime) {
        require(address != nullptr, kErrInvalidValue, "the result pointer is null");
        *address = reinterpret_cast<void*>(symbol_place(runtime, symbol, 0, 0));
    });
}

AICF_API cudaGetSymbolSize(size_t* size_bytes, const void* symbol) {
    return api("cudaGetSymbolSize", [&](Runtime& runtime) {
        require(size_bytes != nullptr, kErrInvalidValue, "the result pointer is null");
        const DeviceVariable* variable = runtime.registry->find_variable(symbol);
        require(variable != nullptr, kErrInvalidSymbol, "the symbol is no registered device variable");
        *size_bytes = runtime.registry->resolve(runtime, *variable).size_bytes;
    });
}

AICF_TWIN_API(cudaMemcpyToSymbol, _ptds, (const void* symbol, const void* src, size_t count, size_t offset, int kind),
              (symbol, src, count, offset, kind)) {
    return api("cudaMemcpyToSymbol",
               [&](Runtime& runtime) { run_now(runtime, per_thread, to_symbol(runtime, symbol, src, count, offset, kind)); });
}

AICF_TWIN_API(cudaMemcpyFromSymbol, _ptds, (void* dst, const void* symbol, size_t count, size_t offset, int kind),
              (dst, symbol, count, offset, kind)) {
    return api("cudaMemcpyFromSymbol",
               [&](Runtime& runtime) { run_now(runtime, per_thread, from_symbol(runtime, dst, symbol, count, offset, kind)); });
}

AICF_TWIN_API(cudaMemcpyToSymbolAsync, _ptsz, (const void* symbol, const void* src, size_t count, size_t offset, int kind, void* stream),
              (symbol, src, count, offset, kind, stream)) {
    return api("cudaMemcpyToSymbolAsync",
               [&](Runtime& runtime) { run_in(runtime, stream, per_thread, to_symbol(runtime, symbol, src, count, offset, kind)); });
}

AICF_TWIN_API(cudaMemcpyFromSymbolAsync, _ptsz, (void* dst, const void* symbol, size_t count, size_t offset, int kind, void* stream),
              (dst, symbol, count, offset, kind, stream)) {
    return api("cudaMemcpyFromSymbolAsync",
               [&](Runtime& runtime) { run_in(runtime, stream, per_thread, from_symbol(runtime, dst, symbol, count, offset, kind)); });
}

// Pointers.

AICF_API cudaPointerGetAttributes(abi::PointerAttributes* attributes, const void* pointer) {
    return api("cudaPointerGetAttributes", [&](Runtime& runtime) {
        require(attributes != nullptr, kErrInvalidValue, "the result pointer is null");
        std::memset(attributes, 0, sizeof *attributes);
        auto* address = const_cast<void*>(pointer);
        const Allocation* allocation = runtime.memory().find(to_address(pointer));
        if (allocation == nullptr || !allocation->live) {
            attributes->hostPointer = address;
            attributes->device = -2;  // cudaInvalidDeviceId
            return;
        }
        const bool is_managed = allocation->kind == MemoryKind::kManaged || allocation->kind == MemoryKind::kManagedVariable;
        attributes->type = is_managed ? abi::kMemoryManaged : is_host_visible(allocation->kind) ? abi::kMemoryHost : abi::kMemoryDevice;
        attributes->device = allocation->device;
        attributes->devicePointer = address;
        attributes->hostPointer = is_host_visible(allocation->kind) ? address : nullptr;
    });
}

AICF_API cudaHostRegister(void* pointer, size_t size_bytes, unsigned flags) {
    return api("cudaHostRegister", [&](Runtime& runtime) {
        require(pointer != nullptr && size_bytes != 0 && flags <= 15, kErrInvalidValue, "a null pointer, 0 bytes or unknown flags");
        forbid_during_capture(runtime, "cudaHostRegister");
        require(runtime.memory().add_host_range(to_address(pointer), size_bytes), kErrHostMemoryAlreadyRegistered,
                "a part of the range is registered already, or was allocated by CUDA");
        runtime.registered_flags[to_address(pointer)] = flags;
    });
}

AICF_API cudaHostUnregister(void* pointer) {
    return api("cudaHostUnregister", [&](Runtime& runtime) {
        forbid_during_capture(runtime, "cudaHostUnregister");
        finish_all(runtime);
        require(runtime.memory().remove_host_range(to_address(pointer)), kErrHostMemoryNotRegistered,
                "no range at this address is registered");
        runtime.registered_flags.erase(to_address(pointer));
    });
}

AICF_API cudaHostGetDevicePointer(void** device_pointer, void* pointer, unsigned flags) {
    return api("cudaHostGetDevicePointer", [&](Runtime& runtime) {
        require(device_pointer != nullptr && flags == 0, kErrInvalidValue, "a null result pointer, or flags that are not 0");
        find_host_memory(runtime, pointer);
        *device_pointer = pointer;  // unified addressing
    });
}

AICF_API cudaHostGetFlags(unsigned* flags, void* pointer) {
    return api("cudaHostGetFlags", [&](Runtime& runtime) {
        constexpr unsigned kMapped = 2;  // always, under unified addressing
        require(flags != nullptr, kErrInvalidValue, "the result pointer is null");
        const Allocation& allocation = find_host_memory(runtime, pointer);
        const auto found = runtime.registered_flags.find(allocation.address);
        *flags = kMapped | (found == runtime.registered_flags.end() ? 0 : found->second);
    });
}

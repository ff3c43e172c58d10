#include "leaks.hpp"

#include "arrays.hpp"
#include "graph.hpp"

namespace aicf::emu {
namespace {

const char* maker_of(MemoryKind kind) {
    switch (kind) {
        case MemoryKind::kPinned: return "cudaHostAlloc";
        case MemoryKind::kManaged: return "cudaMallocManaged";
        case MemoryKind::kAsync: return "cudaMallocAsync";
        case MemoryKind::kHeap: return "malloc in a kernel";
        case MemoryKind::kRegistered: return "cudaHostRegister";
        default: return "cudaMalloc";
    }
}

void note_handles(Runtime& runtime, size_t count, const char* what, const char* remedy) {
    if (count == 0) return;
    runtime.add_report("leak", Severity::kError,
                       std::to_string(count) + " " + what + (count == 1 ? " was" : "s were") + " never destroyed (" + remedy + ")\n");
}

}  // namespace

void note_leaks(Runtime& runtime) {
    if (runtime.memory_if_made() != nullptr) {
        for (const Allocation& each : runtime.memory().live_allocations()) {
            if (each.kind == MemoryKind::kModule || each.kind == MemoryKind::kManagedVariable || each.label == "graph memory") continue;
            runtime.add_report("leak", Severity::kError,
                               "Leaked " + std::to_string(each.size_bytes) + " bytes at " + hex(each.address) + " (" +
                                   (each.label.empty() ? maker_of(each.kind) : each.label) + ", allocation #" +
                                   std::to_string(each.serial) + ")\n",
                               each.address);
        }
    }
    note_handles(runtime, images().arrays.size(), "CUDA array", "cudaFreeArray");
    note_handles(runtime, images().mipmapped_arrays.size(), "mipmapped array", "cudaFreeMipmappedArray");
    note_handles(runtime, images().textures.size(), "texture object", "cudaDestroyTextureObject");
    note_handles(runtime, images().surfaces.size(), "surface object", "cudaDestroySurfaceObject");
    note_handles(runtime, runtime.pools.size(), "memory pool", "cudaMemPoolDestroy");
    note_handles(runtime, runtime.streams.size(), "stream", "cudaStreamDestroy");
    note_handles(runtime, runtime.events.size(), "event", "cudaEventDestroy");
    note_handles(runtime, runtime.graphs.size(), "graph", "cudaGraphDestroy");
    note_handles(runtime, runtime.graph_execs.size(), "executable graph", "cudaGraphExecDestroy");
}

}  // namespace aicf::emu

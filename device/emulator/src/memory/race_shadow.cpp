#include "race_shadow.hpp"

#include <sys/mman.h>

#include <new>

namespace aicf::emu {

namespace {
void* map(size_t bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? nullptr : at;
}
}  // namespace

RaceShadow::RaceShadow(uint64_t capacity_bytes) {
    // For the smallest unit, one byte.
    num_chunks_ = capacity_bytes / kGranuleUnits / kChunkGranules + 1;
    chunks_ = static_cast<std::atomic<Granule*>*>(map(num_chunks_ * sizeof *chunks_));
    if (!chunks_) throw std::bad_alloc();
}

RaceShadow::~RaceShadow() {
    for (uint64_t i = 0; i < num_chunks_; ++i) {
        if (Granule* chunk = chunks_[i].load(std::memory_order_relaxed)) munmap(chunk, kChunkGranules * sizeof(Granule));
    }
    munmap(chunks_, num_chunks_ * sizeof *chunks_);
}

Granule* RaceShadow::make_chunk(uint64_t chunk) {
    std::lock_guard lock(mutex_);
    if (Granule* made = chunks_[chunk].load(std::memory_order_acquire)) return made;
    Granule* fresh = static_cast<Granule*>(map(kChunkGranules * sizeof(Granule)));  // zeros: of no launch
    chunks_[chunk].store(fresh, std::memory_order_release);
    return fresh;
}

}  // namespace aicf::emu

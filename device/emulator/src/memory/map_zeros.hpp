// Host memory that the system fills with zeros, page by page as it is touched.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace aicf::emu {

// Zeros that cost nothing until they are used; given back by munmap. Throws std::bad_alloc.
inline void* map_zeros(std::size_t bytes) {
    void* map = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED) throw std::bad_alloc();
    return map;
}

}  // namespace aicf::emu

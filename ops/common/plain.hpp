// Launches of kernels that know nothing of this project: their arguments and geometry are made from an op's Params.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

namespace aicf::plain {

// A device address that becomes whatever pointer a kernel's parameter is.
struct Pointer {
    const void* address;

    template <class T>
    operator T*() const {
        return static_cast<T*>(const_cast<void*>(address));
    }
};

inline dim3 make_dim(std::int64_t x, std::int64_t y = 1, std::int64_t z = 1) {
    return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}

}  // namespace aicf::plain

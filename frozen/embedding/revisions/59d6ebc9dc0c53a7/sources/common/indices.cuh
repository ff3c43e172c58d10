// Indices into the rows of a table, which a caller may have got wrong.
#pragma once

#include <cstdint>

namespace aicf {

// Returns index `i`, or -1 where it is not below `limit`. Such an index is counted in `status` by the thread that `counts`; without a
// status it ends the launch: an error on a GPU, a finding with this kernel's line on the emulated device.
template <class Index>
__device__ __forceinline__ std::int64_t read_index(const void* indices, std::int64_t i, std::int64_t limit, bool counts,
                                                   std::int32_t* status) {
    const std::int64_t index = static_cast<const Index*>(indices)[i];
    if (index >= 0 && index < limit) return index;
    if (status == nullptr) __trap();
    if (counts) atomicAdd(status, 1);
    return -1;
}

}  // namespace aicf

// Indices into the rows of a table, which a caller may have got wrong.
#pragma once

#include <cstdint>

namespace aicf {

// Returns an index, or -1 where it is not below `limit`. Such an index is counted in `status` by the thread that `counts`; without a
// status it ends the launch: an error on a GPU, a finding with this kernel's line on the emulated device. Load several indices before the
// first is checked: a check is a branch, which no later load is moved ahead of.
__device__ __forceinline__ std::int64_t check_index(std::int64_t index, std::int64_t limit, bool counts, std::int32_t* status) {
    if (index >= 0 && index < limit) return index;
    if (status == nullptr) __trap();
    if (counts) atomicAdd(status, 1);
    return -1;
}

// Index `i`, checked.
template <class Index>
__device__ __forceinline__ std::int64_t read_index(const void* indices, std::int64_t i, std::int64_t limit, bool counts,
                                                   std::int32_t* status) {
    return check_index(static_cast<const Index*>(indices)[i], limit, counts, status);
}

}  // namespace aicf

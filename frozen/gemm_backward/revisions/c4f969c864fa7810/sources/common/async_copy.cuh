// cp.async: copies from global to shared memory that bypass the registers and complete in committed groups.
//
// `valid_bytes` below the copy's size fills the rest of the destination with zeros; at 0 nothing is read, so that the source may lie
// outside its array. Source and destination are aligned to the copy's size.
#pragma once

namespace aicf {

template <int kBytes>
__device__ __forceinline__ void copy_async(void* shared_target, const void* global_source, int valid_bytes = kBytes) {
    static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "cp.async copies 4, 8 or 16 bytes");
    const unsigned target = static_cast<unsigned>(__cvta_generic_to_shared(shared_target));
    const auto source = __cvta_generic_to_global(global_source);
    if constexpr (kBytes == 16) {
        // .cg: past L1, which holds nothing that another thread of the block would read again.
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(source), "r"(valid_bytes) : "memory");
    } else {
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(target), "l"(source), "n"(kBytes), "r"(valid_bytes) : "memory");
    }
}

// A word to an address that is one of shared memory already: the compiler would convert a pointer anew for each of many copies.
__device__ __forceinline__ void copy_word_async(unsigned shared_target, const void* global_source) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_target), "l"(__cvta_generic_to_global(global_source)) : "memory");
}

// Closes the group of this thread's copies since the last commit; an empty group is a group.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `kNumPending` of this thread's latest groups are in flight. Other threads' copies need a barrier behind it.
template <int kNumPending>
__device__ __forceinline__ void wait_copies() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kNumPending) : "memory");
}

}  // namespace aicf

// Programmatic dependent launch (sm_90): a kernel that was launched with programmaticStreamSerializationAllowed may begin, as
// multiprocessors come free, before its predecessor in the stream has ended. Without that attribute, and before sm_90, both calls do
// nothing.
#pragma once

namespace aicf {

// Lets the next kernel of the stream begin, once all blocks have come here or ended. It sees none of this one's results before its own
// wait.
__device__ __forceinline__ void allow_successor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until all kernels before this one have ended and their results are visible. Before it a thread touches no global memory but its
// kernel's parameters: inputs may still be written, and outputs still be read.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace aicf

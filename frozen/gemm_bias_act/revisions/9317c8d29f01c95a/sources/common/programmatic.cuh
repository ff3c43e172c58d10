// Programmatic dependent launch (sm_90): a kernel that was launched with programmaticStreamSerializationAllowed may begin, as
// multiprocessors come free, before its predecessor in the stream has ended. Without that attribute both calls do nothing.
#pragma once

namespace aicf {

// Lets the next kernel of the stream begin, once all blocks have come here or ended. It sees none of this one's results before its own
// wait.
__device__ __forceinline__ void allow_successor() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Waits until all kernels before this one have ended and their results are visible. Before it a thread touches no global memory but its
// kernel's parameters: inputs may still be written, and outputs still be read.
__device__ __forceinline__ void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

}  // namespace aicf

// What timing needs on the device beside the kernel that is timed: kernels that hold a stream, read the
// clocks, and do nothing.
//
// Built to PTX of an old architecture, so that the driver compiles it for whatever GPU there is.

#include <cuda_runtime.h>

#include <cstdint>

namespace aicf::instruments {

// What a stamp writes: cycles of the multiprocessor `sm`, and nanoseconds of the clock that all of them share.
struct Stamp {
    unsigned long long cycles;
    unsigned long long nanoseconds;
    unsigned long long sm;
};

// Host memory that the device reads and writes while kernels run.
struct Board {
    volatile unsigned int released; // tickets up to this one may go on
    volatile unsigned int expired;  // the last ticket that waited too long
};

__device__ unsigned long long read_nanoseconds() {
    unsigned long long value;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(value));
    return value;
}

// Waits until the host releases `ticket`. A launch behind this one may itself wait for the device, which would never end: hence the limit.
__global__ void hold(Board* board, unsigned int ticket, unsigned long long limit_ns) {
    const unsigned long long begin = read_nanoseconds();
    while (static_cast<int>(board->released - ticket) < 0) {
        if (read_nanoseconds() - begin > limit_ns) {
            board->expired = ticket;
            return;
        }
        __nanosleep(200);
    }
}

__global__ void stamp(Stamp* stamp) {
    unsigned int sm;
    asm volatile("mov.u32 %0, %smid;" : "=r"(sm));
    stamp->cycles = clock64();
    stamp->nanoseconds = read_nanoseconds();
    stamp->sm = sm;
}

__global__ void do_nothing() {}

} // namespace aicf::instruments

// Every function returns a cudaError_t; addresses are of memory that host and device share.
extern "C" {

__attribute__((visibility("default"))) int aicf_instruments_allocate(std::uint64_t size_bytes, void** address) {
    return static_cast<int>(cudaHostAlloc(address, size_bytes, cudaHostAllocMapped));
}

__attribute__((visibility("default"))) int aicf_instruments_free(void* address) { return static_cast<int>(cudaFreeHost(address)); }

__attribute__((visibility("default"))) int aicf_instruments_hold(void* stream, void* board, std::uint32_t ticket, std::uint64_t limit_ns) {
    aicf::instruments::hold<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<aicf::instruments::Board*>(board), ticket,
                                                                            limit_ns);
    return static_cast<int>(cudaGetLastError());
}

__attribute__((visibility("default"))) int aicf_instruments_stamp(void* stream, void* stamp) {
    aicf::instruments::stamp<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<aicf::instruments::Stamp*>(stamp));
    return static_cast<int>(cudaGetLastError());
}

__attribute__((visibility("default"))) int aicf_instruments_do_nothing(void* stream) {
    aicf::instruments::do_nothing<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>();
    return static_cast<int>(cudaGetLastError());
}

__attribute__((visibility("default"))) int aicf_instruments_reset_persisting_cache() {
    return static_cast<int>(cudaCtxResetPersistingL2Cache());
}

} // extern "C"

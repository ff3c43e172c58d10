// Kernels of test_mbarrier.py: every form of mbarrier, and programs that misuse one.
#include <cstdint>

#include <cuda/barrier>

namespace {

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ void init(uint64_t* bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
__device__ uint64_t arrive(uint64_t* bar) {
    uint64_t state;
    asm volatile("mbarrier.arrive.shared::cta.b64 %0, [%1];" : "=l"(state) : "r"(shared_address(bar)) : "memory");
    return state;
}
__device__ uint64_t arrive(uint64_t* bar, uint32_t count) {
    uint64_t state;
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1], %2;"
                 : "=l"(state)
                 : "r"(shared_address(bar)), "r"(count)
                 : "memory");
    return state;
}
__device__ void expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ void arrive_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ void complete(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ bool test(uint64_t* bar, uint64_t state) {
    uint32_t ok;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(shared_address(bar)), "l"(state)
                 : "memory");
    return ok;
}
__device__ bool test_parity(uint64_t* bar, uint32_t parity) {
    uint32_t ok;
    asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(ok)
                 : "r"(shared_address(bar)), "r"(parity)
                 : "memory");
    return ok;
}
__device__ void wait_parity(uint64_t* bar, uint32_t parity) {
    uint32_t ok = 0;
    while (!ok) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cta.shared::cta.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok)
                     : "r"(shared_address(bar)), "r"(parity)
                     : "memory");
    }
}
__device__ void wait_state(uint64_t* bar, uint64_t state) {
    uint32_t ok = 0;
    while (!ok) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok)
                     : "r"(shared_address(bar)), "l"(state)
                     : "memory");
    }
}
__device__ uint32_t pending(uint64_t state) {
    uint32_t n;
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(state));
    return n;
}

// One thread walks through the states of an mbarrier and writes down what it sees.
__global__ void states(uint32_t* out) {
    __shared__ uint64_t bar;
    int n = 0;
    init(&bar, 5);
    uint64_t s = arrive(&bar);
    out[n++] = pending(s);                      // 5
    out[n++] = test(&bar, s);                   // 0
    s = arrive(&bar, 2);
    out[n++] = pending(s);                      // 4
    asm volatile("mbarrier.arrive.noComplete.shared::cta.b64 %0, [%1], %2;" : "=l"(s) : "r"(shared_address(&bar)), "r"(1));
    out[n++] = pending(s);                      // 2
    expect(&bar, 100);
    s = arrive(&bar);
    out[n++] = test(&bar, s);                   // 0: bytes are missing
    complete(&bar, 60);
    out[n++] = test_parity(&bar, 0);            // 0
    complete(&bar, 40);
    out[n++] = test(&bar, s);                   // 1
    out[n++] = test_parity(&bar, 0);            // 1
    out[n++] = test_parity(&bar, 1);            // 0: phase 1 is not complete
    // Two threads drop out of the barrier: phase 1 still expects 5, phase 2 three.
    asm volatile("mbarrier.arrive_drop.shared::cta.b64 _, [%0], 2;" ::"r"(shared_address(&bar)) : "memory");
    s = arrive(&bar, 3);
    out[n++] = pending(s);                      // 3
    out[n++] = test(&bar, s);                   // 1
    s = arrive(&bar);
    out[n++] = pending(s);                      // 3
    // Bytes may come before they are announced.
    complete(&bar, 16);
    asm volatile("mbarrier.arrive_drop.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(shared_address(&bar)) : "memory");
    out[n++] = test_parity(&bar, 0);            // 0
    s = arrive(&bar);
    out[n++] = test_parity(&bar, 0);            // 1: phase 2 is complete
    // By a generic address.
    uint64_t* generic = &bar;
    asm volatile("mbarrier.arrive.b64 %0, [%1];" : "=l"(s) : "l"(generic) : "memory");
    out[n++] = pending(s);                      // 2
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(&bar)) : "memory");
    init(&bar, 1);
    arrive_expect(&bar, 0);
    out[n++] = test_parity(&bar, 0);            // 1
}

// A ring of two buffers: warp 0 produces, the other warps consume. `fault`: 1 the consumer waits for the wrong parity, 2 the producer
// does not wait for the buffer to be empty, 3 the producer's arrival is missing in one round,
// 4 nothing orders the initialization before the first use.
__global__ void ring(const int* in, int* out, int rounds, int fault) {
    __shared__ uint64_t full[2], empty[2];
    __shared__ int buffer[2][32];
    const int consumers = blockDim.x / 32 - 1;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; ++i) init(&full[i], 32), init(&empty[i], consumers * 32);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (fault != 4) __syncthreads();
    int sum = 0;
    for (int r = 0; r < rounds; ++r) {
        const int slot = r % 2, parity = r / 2 % 2;
        if (warp == 0) {
            if (r >= 2 && fault != 2) wait_parity(&empty[slot], parity ^ 1);
            buffer[slot][lane] = in[r * 32 + lane];
            if (fault == 3 && r == 3 && lane == 7) continue;
            arrive(&full[slot]);
        } else {
            wait_parity(&full[slot], fault == 1 ? parity ^ 1 : parity);
            sum += buffer[slot][lane ^ warp];
            arrive(&empty[slot]);
        }
    }
    if (warp != 0) out[(warp - 1) * 32 + lane] = sum;
}

// cp.async whose completion an mbarrier tracks. `form` 0: .noinc, 1: without it. `fault` 1: no wait.
__global__ void copies(const int4* in, int4* out, int form, int fault) {
    __shared__ uint64_t bar;
    __shared__ int4 tile[64];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(&tile[threadIdx.x])), "l"(in + threadIdx.x) : "memory");
    if (form == 0) {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&bar)) : "memory");
    } else {
        asm volatile("cp.async.mbarrier.arrive.shared::cta.b64 [%0];" ::"r"(shared_address(&bar)) : "memory");
        arrive(&bar);
    }
    if (fault != 1) wait_parity(&bar, 0);
    out[threadIdx.x] = tile[threadIdx.x ^ (fault == 1 ? 1 : 33)];
}

__global__ void library_barrier(const int* in, int* out, int rounds) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int values[128];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    int x = in[threadIdx.x];
    for (int r = 0; r < rounds; ++r) {
        values[threadIdx.x] = x;
        auto token = bar.arrive();
        bar.wait(std::move(token));
        x += values[(threadIdx.x + 37) % 128];
        bar.arrive_and_wait();
    }
    if (threadIdx.x >= 64) {
        bar.arrive_and_drop();
    } else {
        bar.arrive_and_wait();
        values[threadIdx.x] = x;
        bar.arrive_and_wait();
        x = values[63 - threadIdx.x];
    }
    out[threadIdx.x] = x;
}

// `what`: 1 no init, 2 after inval, 3 overwritten, 4 read, 5 another's state, 6 more bytes than announced, 7 count 0, 8 waits for ever,
// 9 init in mid-phase, 10 misaligned, 11 too many arrivals.
__global__ void misuse(uint32_t* out, int what) {
    __shared__ uint64_t bar[4];
    if (threadIdx.x != 0) return;
    volatile uint64_t* plain = bar;
    if (what != 1) init(&bar[0], 2);
    init(&bar[1], 1);
    if (what == 2) asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(shared_address(bar)) : "memory");
    if (what == 3) plain[0] = 12345;
    if (what == 4) out[1] = static_cast<uint32_t>(plain[0]);
    if (what == 7) init(&bar[2], 0);
    if (what == 11) arrive(&bar[0], 3);
    if (what == 9) arrive(&bar[0]), init(&bar[0], 2);
    if (what == 10) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar) + 4) : "memory");
    if (what == 6) complete(&bar[0], 1 << 20);
    uint64_t s = arrive(&bar[0]);
    if (what == 5) s = arrive(&bar[1]);
    if (what == 8) wait_state(&bar[0], s);
    out[0] = test(&bar[0], s);
}

}  // namespace

extern "C" {
void run_states(uint32_t* out) { states<<<1, 1>>>(out); }
void run_ring(const int* in, int* out, int consumers, int rounds, int fault) { ring<<<1, 32 * (consumers + 1)>>>(in, out, rounds, fault); }
void run_copies(const int4* in, int4* out, int form, int fault) { copies<<<1, 64>>>(in, out, form, fault); }
void run_library_barrier(const int* in, int* out, int rounds) { library_barrier<<<1, 128>>>(in, out, rounds); }
void run_misuse(uint32_t* out, int what) { misuse<<<1, 32>>>(out, what); }
}

// Kernels for the tests of the interpreter: each one exercises a way of using the machine, none of them is tuned.
#include <cuda_fp16.h>
#include <cassert>
#include <cstdint>
#include <cstdio>

#define EXPORT extern "C"

// y = a x + y over n elements.
__global__ void saxpy(int n, float a, const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
EXPORT void run_saxpy(int n, float a, const float* x, float* y) { saxpy<<<(n + 255) / 256, 256>>>(n, a, x, y); }

// C = A B, row-major, tiles of 16 x 16; the barriers can be left out.
template <bool kFirstBarrier, bool kSecondBarrier, bool kStoreB>
__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float as[16][16], bs[16][16];
    const int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
    float sum = 0;
    for (int k0 = 0; k0 < k; k0 += 16) {
        as[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : 0.f;
        if (kStoreB) bs[ty][tx] = k0 + ty < k && column < n ? b[(k0 + ty) * n + column] : 0.f;
        if (kFirstBarrier) __syncthreads();
        for (int i = 0; i < 16; ++i) sum += as[ty][i] * bs[i][tx];
        if (kSecondBarrier) __syncthreads();
    }
    if (row < m && column < n) c[row * n + column] = sum;
}
EXPORT void run_matmul(const float* a, const float* b, float* c, int m, int n, int k, int fault) {
    const dim3 grid((n + 15) / 16, (m + 15) / 16), block(16, 16);
    if (fault == 0) matmul<true, true, true><<<grid, block>>>(a, b, c, m, n, k);
    if (fault == 1) matmul<false, true, true><<<grid, block>>>(a, b, c, m, n, k);
    if (fault == 2) matmul<true, false, true><<<grid, block>>>(a, b, c, m, n, k);
    if (fault == 3) matmul<true, true, false><<<grid, block>>>(a, b, c, m, n, k);
}

// One block a row: out = softmax(in), with warp shuffles and shared memory.
__global__ void softmax(const float* in, float* out, int n) {
    __shared__ float part[32];
    const float* x = in + blockIdx.x * n;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    float most = -INFINITY;
    for (int i = threadIdx.x; i < n; i += blockDim.x) most = fmaxf(most, x[i]);
    for (int d = 16; d; d /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, d));
    if (lane == 0) part[warp] = most;
    __syncthreads();
    most = part[0];
    for (int w = 1; w < warps; ++w) most = fmaxf(most, part[w]);
    __syncthreads();
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += expf(x[i] - most);
    for (int d = 16; d; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (lane == 0) part[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int w = 0; w < warps; ++w) sum += part[w];
    for (int i = threadIdx.x; i < n; i += blockDim.x) out[blockIdx.x * n + i] = expf(x[i] - most) / sum;
}
EXPORT void run_softmax(const float* in, float* out, int rows, int n) { softmax<<<rows, 128>>>(in, out, n); }

// Inclusive scan of one block's elements, in dynamic shared memory.
__global__ void scan(const int* in, int* out) {
    extern __shared__ int values[];
    const int t = threadIdx.x;
    values[t] = in[t];
    __syncthreads();
    for (unsigned d = 1; d < blockDim.x; d *= 2) {
        const int add = t >= d ? values[t - d] : 0;
        __syncthreads();
        values[t] += add;
        __syncthreads();
    }
    out[t] = values[t];
}
EXPORT void run_scan(const int* in, int* out, int n) { scan<<<1, n, n * 4>>>(in, out); }

// Counts of bytes, by shared and then global atomics.
__global__ void histogram(const uint8_t* in, int n, unsigned* bins) {
    __shared__ unsigned local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], local[threadIdx.x]);
}
EXPORT void run_histogram(const uint8_t* in, int n, unsigned* bins) { histogram<<<7, 256>>>(in, n, bins); }

// out = in transposed, n x n, tiles of 32 x 32 with or without padding.
template <int kPad>
__global__ void transpose(const float* in, float* out, int n) {
    __shared__ float tile[32][32 + kPad];
    const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * n + x];
    __syncthreads();
    const int ox = blockIdx.y * 32 + threadIdx.x, oy = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8) out[(oy + j) * n + ox] = tile[threadIdx.x][threadIdx.y + j];
}
EXPORT void run_transpose(const float* in, float* out, int n, int pad) {
    const dim3 grid(n / 32, n / 32), block(32, 8);
    if (pad)
        transpose<1><<<grid, block>>>(in, out, n);
    else
        transpose<0><<<grid, block>>>(in, out, n);
}

// Threads past n leave before the barrier that the others meet at.
__global__ void early_return(int n, int* out) {
    __shared__ int sum;
    if (threadIdx.x >= n) return;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, 1);
    __syncthreads();
    out[threadIdx.x] = sum;
}
EXPORT void run_early_return(int n, int* out) { early_return<<<1, 128>>>(n, out); }

// Steps of the Collatz sequence, at most 200: every thread leaves its loop elsewhere.
__global__ void collatz(int* out) {
    unsigned n = threadIdx.x + 1;
    int steps = 0;
    while (true) {
        if (n == 1) break;
        if (steps == 200) break;
        if (n % 2)
            n = 3 * n + 1;
        else
            n /= 2;
        ++steps;
    }
    switch (steps % 5) {
        case 0: steps += 1000; break;
        case 1: steps += 2000; break;
        case 3: steps = -steps; break;
        case 4: steps ^= 0x55; break;
        default: break;
    }
    out[threadIdx.x] = steps;
}
EXPORT void run_collatz(int n, int* out) { collatz<<<1, n>>>(out); }

// Threads of one warp take a lock in turn.
__global__ void spin_lock(int* lock, int* total) {
    while (atomicCAS(lock, 0, 1) != 0) {
    }
    __threadfence();
    *static_cast<volatile int*>(total) = *static_cast<volatile int*>(total) + 1;
    __threadfence();
    atomicExch(lock, 0);
}
EXPORT void run_spin_lock(int* lock, int* total) { spin_lock<<<2, 64>>>(lock, total); }

// Block i waits until the block after it has raised its flag: the last one, which starts last, goes first.
__global__ void chain(volatile int* flags, int* out) {
    if (threadIdx.x == 0) {
        if (blockIdx.x + 1 < gridDim.x) {
            while (flags[blockIdx.x + 1] == 0) {
            }
        }
        __threadfence();
        out[blockIdx.x] = blockIdx.x + 1 < gridDim.x ? static_cast<volatile int*>(out)[blockIdx.x + 1] + 1 : 1;
        __threadfence();
        flags[blockIdx.x] = 1;
    }
}
EXPORT void run_chain(int* flags, int* out, int blocks) { chain<<<blocks, 32>>>(flags, out); }

// Barrier 1 is for the first warp, which waits for the second; the second has gone to barrier 2.
__global__ void deadlock() {
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;");
    else
        asm volatile("bar.sync 2, 64;");
}
EXPORT void run_deadlock() { deadlock<<<1, 64>>>(); }

__global__ void divergent_barrier(int* out) {
    if (threadIdx.x % 2)
        __syncthreads();
    else
        out[threadIdx.x] = 1;
    __syncthreads();
}
EXPORT void run_divergent_barrier(int* out) { divergent_barrier<<<1, 32>>>(out); }

__global__ void print(int n) {
    if (threadIdx.x < n) printf("thread %d of %s: %5.2f %lld %c%%\n", threadIdx.x, "block", threadIdx.x * 0.5, 1ll << 40, 'x');
}
EXPORT void run_print(int n) { print<<<1, 32>>>(n); }

__global__ void failing_assert(int limit) { assert(threadIdx.x < limit); }
EXPORT void run_assert(int limit) { failing_assert<<<1, 32>>>(limit); }

__global__ void trap_kernel() { __trap(); }
EXPORT void run_trap() { trap_kernel<<<1, 1>>>(); }

__constant__ float scale[4] = {1.f, 2.f, 3.f, 4.f};
__device__ __noinline__ float add_scaled(float x, int i) { return x + scale[i & 3]; }
__device__ __noinline__ float multiply_scaled(float x, int i) { return x * scale[i & 3]; }
using Function = float (*)(float, int);
__device__ Function functions[2] = {add_scaled, multiply_scaled};
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__global__ void calls(float* out, int* fib) {
    const int t = threadIdx.x;
    out[t] = functions[t / 3 % 2](static_cast<float>(t), t);
    fib[t] = fibonacci(t % 12);
}
EXPORT void run_calls(float* out, int* fib, int n) { calls<<<1, n>>>(out, fib); }

// A per-thread array with indices known at run time only: local memory.
__global__ void local_array(const int* index, int* out, int skip) {
    int values[16];
    for (int i = skip; i < 16; ++i) values[i] = i * i + threadIdx.x;
    out[threadIdx.x] = values[index[threadIdx.x]];
}
EXPORT void run_local_array(const int* index, int* out, int n, int skip) { local_array<<<1, n>>>(index, out, skip); }

__global__ void half_math(const __half2* x, __half2* y, int n) {
    const int i = threadIdx.x;
    if (i < n) y[i] = __hfma2(x[i], x[i], __float2half2_rn(0.5f));
}
EXPORT void run_half_math(const void* x, void* y, int n) {
    half_math<<<1, 256>>>(static_cast<const __half2*>(x), static_cast<__half2*>(y), n);
}

// Votes, matches and reductions of one warp.
__global__ void warp_ops(const int* in, unsigned* out) {
    const int v = in[threadIdx.x];
    out[threadIdx.x] = __ballot_sync(~0u, v & 1);
    out[32 + threadIdx.x] = __match_any_sync(~0u, v);
    out[64 + threadIdx.x] = __reduce_add_sync(~0u, static_cast<unsigned>(v));
    out[96 + threadIdx.x] = __any_sync(~0u, v > 6) * 2 + __all_sync(~0u, v >= 0);
    out[128 + threadIdx.x] = __shfl_up_sync(~0u, v, 3, 8);
    out[160 + threadIdx.x] = __syncthreads_count(v > 3);
}
EXPORT void run_warp_ops(const int* in, unsigned* out) { warp_ops<<<1, 32>>>(in, out); }

// Neighbours within a warp through shared memory, with or without the barrier of the warp.
template <bool kBarrier>
__global__ void exchange(int* out) {
    __shared__ volatile int quiet[1];
    __shared__ int values[32];
    values[threadIdx.x] = threadIdx.x * 3;
    if (kBarrier) __syncwarp();
    out[threadIdx.x] = values[(threadIdx.x + 1) % 32];
    if (out == nullptr) quiet[0] = 1;
}
EXPORT void run_exchange(int* out, int barrier) {
    if (barrier)
        exchange<true><<<1, 32>>>(out);
    else
        exchange<false><<<1, 32>>>(out);
}

__global__ void offset_read(const char* in, float* out, int offset_bytes) {
    out[threadIdx.x] = *reinterpret_cast<const float*>(in + offset_bytes + 4 * threadIdx.x);
}
EXPORT void run_offset_read(const char* in, float* out, int offset_bytes) { offset_read<<<1, 32>>>(in, out, offset_bytes); }

__global__ void shared_index(int* out, int index) {
    __shared__ int values[32];
    values[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = values[index + threadIdx.x];
}
EXPORT void run_shared_index(int* out, int index) { shared_index<<<1, 32>>>(out, index); }

// Copies 16 bytes a thread through shared memory with cp.async; the wait can be left out.
template <bool kWait>
__global__ void async_copy(const float4* in, float4* out, int valid_bytes) {
    __shared__ float4 tile[64];
    const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(&tile[threadIdx.x]));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(in + threadIdx.x), "r"(valid_bytes));
    asm volatile("cp.async.commit_group;");
    if (kWait) asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}
EXPORT void run_async_copy(const void* in, void* out, int valid_bytes, int wait) {
    if (wait)
        async_copy<true><<<1, 64>>>(static_cast<const float4*>(in), static_cast<float4*>(out), valid_bytes);
    else
        async_copy<false><<<1, 64>>>(static_cast<const float4*>(in), static_cast<float4*>(out), valid_bytes);
}

// Producer and consumer warps with named barriers.
__global__ void named_barriers(int* out, int rounds) {
    __shared__ int buffer[32];
    const int lane = threadIdx.x % 32;
    for (int r = 0; r < rounds; ++r) {
        if (threadIdx.x < 32) {
            if (r) asm volatile("bar.sync 2, 64;" ::: "memory");
            buffer[lane] = r * 100 + lane;
            asm volatile("bar.arrive 1, 64;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 64;" ::: "memory");
            out[r * 32 + lane] = buffer[31 - lane];
            if (r + 1 < rounds) asm volatile("bar.arrive 2, 64;" ::: "memory");
        }
    }
}
EXPORT void run_named_barriers(int* out, int rounds) { named_barriers<<<1, 64>>>(out, rounds); }

// A loop without end.
__global__ void endless(volatile int* flag) {
    while (*flag == 0) {
    }
}
EXPORT void run_endless(int* flag) { endless<<<1, 32>>>(flag); }

// Loops that never end, each in its own way: over a row whose step skips the end; storing again and again; waiting for another word each
// time. The last one ends, after a long while.
__global__ void loop_without_end(const int* in, int* out, int kind, int turns) {
    int sum = threadIdx.x;
    switch (kind) {
        case 0:
            for (int i = 0; i != 7; i += 2) sum += in[i & 7] + i;
            break;
        case 1:
            for (int i = 0; i < 8; sum ^= i) out[i + 8 * (sum & 1)] = sum;
            break;
        case 2:
            for (int i = 0; reinterpret_cast<const volatile int*>(in)[i & 7] == 0; ++i) {
            }
            break;
        case 3:
            for (int i = 0; i < turns; ++i) sum = sum * 3 + in[i & 7];
            break;
    }
    out[threadIdx.x] = sum;
}
EXPORT void run_loop_without_end(const int* in, int* out, int kind, int turns) { loop_without_end<<<1, 32>>>(in, out, kind, turns); }

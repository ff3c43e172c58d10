// Small kernels that synchronise in every way there is. Each is right as it stands; mutate.py takes its synchronisation away piece by
// piece. All have one signature: in[n], out[n], aux[64] zeroed. Launched with blocks of 128 threads, 2 blocks, n = 256, unless mutate.py
// says else.
#include <cstdint>

#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#define ARGS const float *__restrict__ in, float *__restrict__ out, unsigned *aux, int n

static __device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

KERNEL saxpy(ARGS) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = 2.0f * in[i] + 1.0f;
}

KERNEL reverse(ARGS) {
    __shared__ float tile[128];
    const int i = blockIdx.x * 128 + threadIdx.x;
    tile[threadIdx.x] = in[i];
    __syncthreads();
    out[i] = tile[127 - threadIdx.x];
}

KERNEL reduce(ARGS) {
    __shared__ float sum[128];
    sum[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
    __syncthreads();
#pragma unroll 1
    for (int s = 64; s > 0; s >>= 1) {
        if (threadIdx.x < s) sum[threadIdx.x] += sum[threadIdx.x + s];
        __syncthreads();
    }
    out[blockIdx.x * 128 + threadIdx.x] = sum[0];
}

KERNEL scan(ARGS) {
    __shared__ float values[128];
    const int t = threadIdx.x;
    values[t] = in[blockIdx.x * 128 + t];
    __syncthreads();
#pragma unroll 1
    for (int s = 1; s < 128; s *= 2) {
        const float add = t >= s ? values[t - s] : 0.0f;
        __syncthreads();
        values[t] += add;
        __syncthreads();
    }
    out[blockIdx.x * 128 + t] = values[t];
}

KERNEL transpose(ARGS) {
    __shared__ float tile[16][17];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    for (int r = y; r < 16; r += 8) tile[r][x] = in[r * 16 + x];
    __syncthreads();
    for (int r = y; r < 16; r += 8)
        if (blockIdx.x == 0) out[r * 16 + x] = tile[x][r];
}

KERNEL stencil(ARGS) {
    __shared__ float line[130];
    const int t = threadIdx.x, i = blockIdx.x * 128 + t;
    line[t + 1] = in[i];
    if (t == 0) line[0] = i > 0 ? in[i - 1] : 0.0f;
    if (t == 127) line[129] = i + 1 < n ? in[i + 1] : 0.0f;
    __syncthreads();
    out[i] = line[t] + line[t + 1] + line[t + 2];
}

KERNEL matmul(ARGS) {  // 16 x 16, k in two halves; block 0 only
    __shared__ float a[16][8], b[8][16];
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;  // 8 rows: each thread makes two
    float sum[2] = {};
#pragma unroll 1
    for (int k = 0; k < 16; k += 8) {
        a[threadIdx.x / 8][threadIdx.x % 8] = in[(threadIdx.x / 8) * 16 + k + threadIdx.x % 8];
        b[y][x] = in[(k + y) * 16 + x];
        __syncthreads();
        for (int j = 0; j < 8; ++j) {
            sum[0] += a[y][j] * b[j][x];
            sum[1] += a[y + 8][j] * b[j][x];
        }
        __syncthreads();
    }
    if (blockIdx.x == 0) {
        out[y * 16 + x] = sum[0];
        out[(y + 8) * 16 + x] = sum[1];
    }
}

KERNEL histogram(ARGS) {
    __shared__ unsigned bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[static_cast<unsigned>(in[blockIdx.x * 128 + threadIdx.x]) % 32], 1u);
    __syncthreads();
    if (threadIdx.x < 32) out[blockIdx.x * 128 + threadIdx.x] = static_cast<float>(bins[threadIdx.x]);
}

KERNEL warp_exchange(ARGS) {
    __shared__ float cells[4][32];
    const int w = threadIdx.x / 32, l = threadIdx.x % 32;
    cells[w][l] = in[blockIdx.x * 128 + threadIdx.x];
    __syncwarp();
    const float other = cells[w][l ^ 7];
    __syncwarp();
    cells[w][(l + 1) % 32] = other;
    __syncwarp();
    out[blockIdx.x * 128 + threadIdx.x] = cells[w][l];
}

KERNEL half_warps(ARGS) {
    __shared__ float cells[128];
    const unsigned half = threadIdx.x % 32 < 16 ? 0xFFFFu : 0xFFFF0000u;
    cells[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
    __syncwarp(half);
    out[blockIdx.x * 128 + threadIdx.x] = cells[threadIdx.x ^ 15];
}

KERNEL named_barriers(ARGS) {  // warps 0-1 fill, warps 2-3 use, two rounds
    __shared__ float stage[64];
    const int t = threadIdx.x % 64;
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
        if (threadIdx.x < 64) {
            if (round) asm volatile("bar.sync 2, 128;" ::: "memory");
            stage[t] = in[(blockIdx.x * 2 + round) * 64 + t];
            asm volatile("bar.arrive 1, 128;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            out[(blockIdx.x * 2 + round) * 64 + t] = stage[63 - t];
            if (!round) asm volatile("bar.arrive 2, 128;" ::: "memory");
        }
    }
}

KERNEL async_copies(ARGS) {  // two stages
    __shared__ float stage[2][128];
    const int t = threadIdx.x;
    for (int s = 0; s < 2; ++s) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(&stage[s][t])), "l"(in + s * 128 + t) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    float sum = stage[0][127 - t];
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    sum += stage[1][127 - t];
    out[blockIdx.x * 128 + t] = sum;
}

static __device__ void wait_parity(uint64_t* bar, uint32_t parity) {
    uint32_t ok = 0;
    while (!ok)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok)
                     : "r"(shared_address(bar)), "r"(parity)
                     : "memory");
}

KERNEL mbarrier_handoff(ARGS) {  // warp 0 fills, one lane arrives; the others wait
    __shared__ alignas(8) uint64_t bar;
    __shared__ float stage[32];
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&bar)) : "memory");
    __syncthreads();
    if (threadIdx.x < 32) {
        stage[threadIdx.x] = in[blockIdx.x * 32 + threadIdx.x];
        __syncwarp();
        if (threadIdx.x == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&bar)) : "memory");
    } else {
        wait_parity(&bar, 0);
        out[blockIdx.x * 128 + threadIdx.x] = stage[threadIdx.x % 32];
    }
}

KERNEL bulk_load(ARGS) {
    __shared__ alignas(128) float stage[128];
    __shared__ alignas(8) uint64_t bar;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&bar)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(shared_address(&bar)) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 512, [%2];" ::"r"(shared_address(stage)),
            "l"(in + blockIdx.x * 128), "r"(shared_address(&bar))
            : "memory");
    }
    wait_parity(&bar, 0);
    out[blockIdx.x * 128 + threadIdx.x] = stage[127 - threadIdx.x];
}

KERNEL bulk_store(ARGS) {  // twice from one buffer
    __shared__ alignas(128) float stage[64];
#pragma unroll 1
    for (int round = 0; round < 2; ++round) {
        if (threadIdx.x < 64) stage[threadIdx.x] = 3.0f * in[(blockIdx.x * 2 + round) * 64 + threadIdx.x];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        if (threadIdx.x == 0) {
            asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(out + (blockIdx.x * 2 + round) * 64),
                         "r"(shared_address(stage))
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        }
        __syncthreads();
    }
}

KERNEL last_block(ARGS) {  // the block that comes last adds up what the others left
    __shared__ bool last;
    out[blockIdx.x * 128 + threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x] + 1.0f;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(aux, 1u) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last && threadIdx.x < 63) {
        float sum = 0;
        for (int i = threadIdx.x; i < n; i += 63) sum += out[i];
        aux[1 + threadIdx.x] = static_cast<unsigned>(sum);
    }
}

KERNEL spin_lock(ARGS) {
    if (threadIdx.x == 0) {
        while (atomicCAS(aux, 0u, 1u) != 0u) {
        }
        __threadfence();
        aux[1] = aux[1] * 1u + static_cast<unsigned>(in[blockIdx.x]) + 1u;
        __threadfence();
        atomicExch(aux, 0u);
    }
}

KERNEL grid_barrier(ARGS) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    out[i] = in[i] + 1.0f;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(aux, 1u);
        while (*reinterpret_cast<volatile unsigned*>(aux) < gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
    const float other = out[(i + 128) % n];
    if (threadIdx.x < 63 && blockIdx.x == 0) aux[1 + threadIdx.x] = static_cast<unsigned>(other);
}

KERNEL message(ARGS) {  // block 0 hands a row to block 1
    if (blockIdx.x == 0) {
        out[threadIdx.x] = in[threadIdx.x] * 2.0f;
        __syncthreads();
        if (threadIdx.x == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(aux), "r"(1) : "memory");
    } else {
        if (threadIdx.x == 0) {
            unsigned seen = 0;
            while (seen == 0) asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(aux) : "memory");
        }
        __syncthreads();
        out[128 + threadIdx.x] = out[127 - threadIdx.x] + 1.0f;
    }
}

KERNEL look_back(ARGS) {  // each block adds what the one before it published
    __shared__ unsigned before;
    if (threadIdx.x == 0) {
        unsigned sum = 0;
        if (blockIdx.x > 0) {
            while (*reinterpret_cast<volatile unsigned*>(aux + 2 * (blockIdx.x - 1)) == 0) {
            }
            __threadfence();
            sum = aux[2 * (blockIdx.x - 1) + 1];
        }
        before = sum;
        aux[2 * blockIdx.x + 1] = sum + static_cast<unsigned>(in[blockIdx.x]) + 1;
        __threadfence();
        *reinterpret_cast<volatile unsigned*>(aux + 2 * blockIdx.x) = 1;
    }
    __syncthreads();
    out[blockIdx.x * 128 + threadIdx.x] = static_cast<float>(before);
}

KERNEL softmax(ARGS) {
    __shared__ float cells[4];
    const int t = threadIdx.x, w = t / 32;
    const float x = in[blockIdx.x * 128 + t] * 0.01f;
    float most = x;
    for (int s = 16; s; s /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, s));
    if (t % 32 == 0) cells[w] = most;
    __syncthreads();
    most = fmaxf(fmaxf(cells[0], cells[1]), fmaxf(cells[2], cells[3]));
    const float e = expf(x - most);
    float sum = e;
    for (int s = 16; s; s /= 2) sum += __shfl_xor_sync(~0u, sum, s);
    __syncthreads();
    if (t % 32 == 0) cells[w] = sum;
    __syncthreads();
    out[blockIdx.x * 128 + t] = e / (cells[0] + cells[1] + cells[2] + cells[3]);
}

KERNEL layernorm(ARGS) {
    __shared__ float sums[128], squares[128];
    const int t = threadIdx.x;
    const float x = in[blockIdx.x * 128 + t];
    sums[t] = x;
    squares[t] = x * x;
    __syncthreads();
#pragma unroll 1
    for (int s = 64; s; s >>= 1) {
        if (t < s) {
            sums[t] += sums[t + s];
            squares[t] += squares[t + s];
        }
        __syncthreads();
    }
    const float mean = sums[0] / 128, variance = squares[0] / 128 - mean * mean;
    out[blockIdx.x * 128 + t] = (x - mean) * rsqrtf(variance + 1.0f);
}

KERNEL bitonic(ARGS) {
    __shared__ float keys[128];
    const int t = threadIdx.x;
    keys[t] = in[blockIdx.x * 128 + t];
    __syncthreads();
#pragma unroll 1
    for (int size = 2; size <= 128; size *= 2)
#pragma unroll 1
        for (int stride = size / 2; stride; stride /= 2) {
            const int other = t ^ stride;
            if (other > t) {
                const float a = keys[t], b = keys[other];
                if ((a > b) == ((t & size) == 0)) keys[t] = b, keys[other] = a;
            }
            __syncthreads();
        }
    out[blockIdx.x * 128 + t] = keys[t];
}

KERNEL gather(ARGS) {
    __shared__ float cells[128];
    __shared__ int where[128];
    const int t = threadIdx.x;
    cells[t] = in[blockIdx.x * 128 + t];
    where[(t * 37) % 128] = t;
    __syncthreads();
    out[blockIdx.x * 128 + t] = cells[where[t]];
}

KERNEL double_buffer(ARGS) {
    __shared__ float buffer[2][128];
    const int t = threadIdx.x;
    buffer[0][t] = in[blockIdx.x * 128 + t];
    __syncthreads();
#pragma unroll 1
    for (int i = 0; i < 4; ++i) {
        buffer[(i + 1) & 1][t] = buffer[i & 1][(t + 1) % 128] + 1.0f;
        __syncthreads();
    }
    out[blockIdx.x * 128 + t] = buffer[0][t];
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128) cluster_reduce(ARGS) {
    __shared__ float mine[128];
    mine[threadIdx.x] = in[blockIdx.x * 128 + threadIdx.x];
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
    uint32_t remote;
    float other;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(remote)
                 : "r"(shared_address(&mine[127 - threadIdx.x])), "r"(blockIdx.x ^ 1));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(other) : "r"(remote) : "memory");
    asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
    out[blockIdx.x * 128 + threadIdx.x] = mine[threadIdx.x] + other;
}

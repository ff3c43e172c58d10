// Kernels of test_bulk.py: bulk copies of runs of bytes, in pipelines and in error.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace {

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void init(uint64_t* bar, uint32_t count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(bar)), "r"(count) : "memory");
}
__device__ void arrive(uint64_t* bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(bar)) : "memory"); }
__device__ void arrive_expect(uint64_t* bar, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(bar)), "r"(bytes) : "memory");
}
__device__ void wait_parity(uint64_t* bar, uint32_t parity) {
    uint32_t ok = 0;
    while (!ok) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok)
                     : "r"(shared_address(bar)), "r"(parity)
                     : "memory");
    }
}
__device__ void load(void* to, const void* from, uint32_t bytes, uint64_t* bar) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(bar))
                 : "memory");
}
__device__ void store(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)), "r"(bytes) : "memory");
}
__device__ void commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ void wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}
template <int kLeft>
__device__ void wait() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kLeft) : "memory");
}
__device__ void fence() { asm volatile("fence.proxy.async;" ::: "memory"); }

enum Fault {
    kNone,
    kNoExpect,
    kNoFullWait,
    kWrongParity,
    kTooFew,
    kTooMany,
    kNoEmptyWait,
    kNoReadWait,
    kNoLastWait,
    kNoFence,
    kMisaligned,
    kOdd
};

// out = 2 * in, a tile of 256 floats at a time: bulk loads into two buffers, bulk stores out of two more.
__global__ void scale(const float* in, float* out, int tiles, int fault) {
    __shared__ alignas(128) float from[2][256], to[2][256];
    __shared__ uint64_t full[2];
    const int t = threadIdx.x;
    if (t == 0) {
        init(&full[0], 1), init(&full[1], 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        fence();
    }
    __syncthreads();
    const auto start = [&](int tile) {
        const int slot = tile & 1;
        const uint32_t bytes = 1024 + (fault == kTooFew ? 16 : 0) - (fault == kTooMany ? 16 : 0);
        if (fault != kNoExpect) arrive_expect(&full[slot], bytes);
        if (fault == kNoExpect) arrive(&full[slot]);
        if (fault == kMisaligned)
            load(from[slot] + 1, in + tile * 256, 1008, &full[slot]);
        else
            load(from[slot], in + tile * 256, fault == kOdd ? 1020 : 1024, &full[slot]);
    };
    if (t == 0) start(0);
    for (int i = 0; i < tiles; ++i) {
        if (t == 0 && i + 1 < tiles) start(i + 1);
        if (fault != kNoFullWait) wait_parity(&full[i & 1], (i >> 1 & 1) ^ (fault == kWrongParity));
        if (t == 0 && fault != kNoReadWait) wait_read<1>();
        __syncthreads();
        to[i & 1][t] = 2 * from[i & 1][t];
        if (fault != kNoFence) fence();
        __syncthreads();
        if (t == 0) store(out + i * 256, to[i & 1], 1024), commit();
    }
    if (t == 0 && fault != kNoLastWait) wait<0>();
}

// One reduction of each kind; op as in the host function's table.
template <typename T>
__global__ void reduce(T* out, const T* in, int op) {
    __shared__ alignas(128) T tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    fence();
    __syncthreads();
    if (threadIdx.x != 0) return;
    const uint32_t from = shared_address(tile), bytes = sizeof tile;
#define REDUCE(OP, TYPE)                                                                                                                \
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group." OP "." TYPE " [%0], [%1], %2;" ::"l"(out), "r"(from), "r"(bytes) \
                 : "memory")
    switch (op) {
        case 0: REDUCE("add", "u32"); break;
        case 1: REDUCE("min", "s32"); break;
        case 2: REDUCE("max", "u64"); break;
        case 3: REDUCE("and", "b32"); break;
        case 4: REDUCE("or", "b64"); break;
        case 5: REDUCE("xor", "b32"); break;
        case 6: REDUCE("inc", "u32"); break;
        case 7: REDUCE("dec", "u32"); break;
        case 8: REDUCE("add", "f32"); break;
        case 9: REDUCE("add", "f64"); break;
        case 10: REDUCE("add.noftz", "f16"); break;
        case 11: REDUCE("add.noftz", "bf16"); break;
        case 12: REDUCE("min", "f16"); break;
        case 13: REDUCE("max", "bf16"); break;
    }
    commit();
    wait<0>();
}

// Copies within the block (as a cluster of one), st.async and red.async, prefetch, and a copy with a cache policy.
__global__ void local(const uint32_t* in, uint32_t* out) {
    __shared__ alignas(128) uint32_t a[64], b[64], c[64];
    __shared__ uint64_t bar;
    const int t = threadIdx.x;
    if (t == 0) init(&bar, 1);
    b[t] = 7;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], 256;" ::"l"(in));
    fence();
    __syncthreads();
    if (t == 0) {
        arrive_expect(&bar, 256);
        uint64_t policy;
        asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], 256, [%2], %3;" ::"r"(
                         shared_address(a)),
                     "l"(in), "r"(shared_address(&bar)), "l"(policy)
                     : "memory");
    }
    wait_parity(&bar, 0);
    __syncthreads();  // or a slow warp misses the phase
    if (t == 0) {
        arrive_expect(&bar, 256);
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], 256, [%2];" ::"r"(shared_address(c)),
            "r"(shared_address(a)), "r"(shared_address(&bar))
            : "memory");
    }
    wait_parity(&bar, 1);
    __syncthreads();
    if (t == 0) arrive_expect(&bar, 64 * 4);
    asm volatile(
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], %1, [%2];" ::"r"(shared_address(&b[t])),
        "r"(c[t]), "r"(shared_address(&bar))
        : "memory");
    wait_parity(&bar, 0);
    __syncthreads();
    if (t == 0) arrive_expect(&bar, 64 * 4);
    if (t < 16) {
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                         shared_address(&a[4 * t])),
                     "r"(t), "r"(t + 1), "r"(t + 2), "r"(t + 3), "r"(shared_address(&bar))
                     : "memory");
    }
    wait_parity(&bar, 1);
    out[t] = b[t];
    out[64 + t] = a[t];
}

// A tensor map that the kernel itself changes in shared memory and publishes in global memory: row `row` of a matrix of 32 columns.
__global__ void changed_map(const __grid_constant__ CUtensorMap map, CUtensorMap* published, const float* other, float* out, int row) {
    __shared__ alignas(128) CUtensorMap copy;
    __shared__ alignas(128) float line[32];
    __shared__ uint64_t bar;
    const int t = threadIdx.x;
    reinterpret_cast<uint32_t*>(&copy)[t] = reinterpret_cast<const uint32_t*>(&map)[t];
    if (t == 0) init(&bar, 1);
    __syncwarp();
    if (t == 0) {
        const uint32_t at = shared_address(&copy);
        asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(at), "l"(other) : "memory");
        asm volatile("tensormap.replace.tile.rank.shared::cta.b1024.b32 [%0], 1;" ::"r"(at) : "memory");
        asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(at), "r"(5) : "memory");
        asm volatile("tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%0], 0, %1;" ::"r"(at), "l"(128ull) : "memory");
        asm volatile("tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%0], 1, 1;" ::"r"(at) : "memory");
        asm volatile("tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%0], 1, 1;" ::"r"(at) : "memory");
        asm volatile("tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%0], 7;" ::"r"(at) : "memory");
        asm volatile("tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(at) : "memory");
        asm volatile("tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%0], 0;" ::"r"(at) : "memory");
        asm volatile("tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%0], 0;" ::"r"(at) : "memory");
    }
    __syncwarp();
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], 128;" ::"l"(published),
                 "r"(shared_address(&copy))
                 : "memory");
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(published) : "memory");
    if (t == 0) {
        arrive_expect(&bar, 128);
        asm volatile("prefetch.tensormap [%0];" ::"l"(published) : "memory");
        asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%0, {%1, %2}];" ::"l"(published), "r"(0), "r"(row) : "memory");
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
                         shared_address(line)),
                     "l"(published), "r"(0), "r"(row), "r"(shared_address(&bar))
                     : "memory");
    }
    wait_parity(&bar, 0);
    out[t] = line[t];
}

}  // namespace

extern "C" {
void run_scale(const float* in, float* out, int tiles, int fault) { scale<<<1, 256>>>(in, out, tiles, fault); }
void run_reduce(void* out, const void* in, int op) {
    switch (op) {
        case 2:
        case 4: return reduce<<<1, 64>>>(static_cast<uint64_t*>(out), static_cast<const uint64_t*>(in), op);
        case 9: return reduce<<<1, 64>>>(static_cast<double*>(out), static_cast<const double*>(in), op);
        case 8: return reduce<<<1, 64>>>(static_cast<float*>(out), static_cast<const float*>(in), op);
        case 10:
        case 11:
        case 12:
        case 13: return reduce<<<1, 64>>>(static_cast<uint16_t*>(out), static_cast<const uint16_t*>(in), op);
        default: return reduce<<<1, 64>>>(static_cast<uint32_t*>(out), static_cast<const uint32_t*>(in), op);
    }
}
void run_local(const uint32_t* in, uint32_t* out, int has_cluster) {
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {1, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(1);
    config.blockDim = dim3(64);
    config.attrs = &cluster;
    config.numAttrs = has_cluster ? 1 : 0;
    cudaLaunchKernelEx(&config, local, in, out);
}
void run_changed_map(const uint32_t* words, void* published, const float* other, float* out, int row) {
    CUtensorMap map;
    cudaMemcpy(&map, words, sizeof map, cudaMemcpyDeviceToHost);
    changed_map<<<1, 32>>>(map, static_cast<CUtensorMap*>(published), other, out, row);
}
}

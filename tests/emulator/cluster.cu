// Clusters with distributed shared memory: right kernels, and each fault that the checks are to find.
#include <cooperative_groups.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace cg = cooperative_groups;

namespace {

__device__ uint32_t special(int which) {
    uint32_t value = 0;
    switch (which) {
        case 0: asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(value)); break;
        case 1: asm volatile("mov.u32 %0, %%clusterid.y;" : "=r"(value)); break;
        case 2: asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(value)); break;
        case 3: asm volatile("mov.u32 %0, %%nclusterid.y;" : "=r"(value)); break;
        case 4: asm volatile("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(value)); break;
        case 5: asm volatile("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(value)); break;
        case 6: asm volatile("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(value)); break;
        case 7: asm volatile("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(value)); break;
        case 8: asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(value)); break;
        case 9: asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(value)); break;
        default: asm volatile("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }" : "=r"(value)); break;
    }
    return value;
}

constexpr int kSpecials = 11;

// Every block passes its values to the next one of the cluster, through that one's shared memory and through its own.
__global__ void ring(const int* in, int* out, int fault) {
    __shared__ int own[64];
    __shared__ int inbox[64];
    const cg::cluster_group cluster = cg::this_cluster();
    const int thread = threadIdx.x;
    const unsigned rank = cluster.block_rank(), size = cluster.num_blocks();
    own[thread] = in[blockIdx.x * blockDim.x + thread];
    if (fault != 1) cluster.sync();
    int* remote = cluster.map_shared_rank(inbox, fault == 3 ? size : (rank + 1) % size);
    remote[thread] = own[thread] * 2;
    const int* previous = cluster.map_shared_rank(own, (rank + size - 1) % size);
    cluster.sync();
    int sum = inbox[thread];
    if (fault == 2 && rank == 0) return;
    if (fault == 2) __nanosleep(100);
    sum += previous[thread];
    if (fault != 2) cluster.sync();
    out[blockIdx.x * blockDim.x + thread] = sum;
}

// Each of two blocks passes its values on over a relaxed arrival, which orders only what lies before a fence of its thread: 0 without one,
// 1 with one, 2 with one of shared memory alone, 3 with one ahead of what it is for, 4 with one of the block alone.
__global__ void __cluster_dims__(2, 1, 1) pass_over_relaxed(const int* in, int* out, int how) {
    __shared__ int own[32];
    const cg::cluster_group cluster = cg::this_cluster();
    const int thread = threadIdx.x;
    if (how == 3) asm volatile("fence.acq_rel.cluster;" ::: "memory");
    own[thread] = in[blockIdx.x * blockDim.x + thread];
    if (how == 1) asm volatile("fence.acq_rel.cluster;" ::: "memory");
    if (how == 2) asm volatile("fence.release.sync_restrict::shared::cta.cluster;" ::: "memory");
    if (how == 4) asm volatile("fence.acq_rel.cta;" ::: "memory");
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    out[blockIdx.x * blockDim.x + thread] = cluster.map_shared_rank(own, cluster.block_rank() ^ 1)[thread];
    cluster.sync();
}

// One histogram over the shared memory of all blocks of the cluster: bin b is with block b % size.
__global__ void __cluster_dims__(4, 1, 1) histogram(const int* in, int* bins, int count) {
    __shared__ int part[16];
    const cg::cluster_group cluster = cg::this_cluster();
    const unsigned rank = cluster.block_rank();
    if (threadIdx.x < 16) part[threadIdx.x] = 0;
    cluster.sync();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
        const int bin = in[i] & 63;
        int* target = cluster.map_shared_rank(part, bin % 4);
        if (i & 1)
            atomicAdd(target + bin / 4, 1);
        else
            asm volatile(
                "{ .reg .u64 a; .reg .u32 b; cvta.to.shared.u64 a, %0; cvt.u32.u64 b, a; red.shared::cluster.add.s32 [b], 1; }" ::"l"(
                    target + bin / 4)
                : "memory");
    }
    cluster.sync();
    if (threadIdx.x < 16) atomicAdd(bins + 4 * threadIdx.x + rank, part[threadIdx.x]);
}

__global__ void registers(uint32_t* out) {
    const int block = blockIdx.y * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0)
        for (int i = 0; i < kSpecials; ++i) out[block * kSpecials + i] = special(i);
}

// mapa and getctarank in all forms, isspacep, and the split barrier.
__global__ void __cluster_dims__(2, 1, 1) addresses(uint32_t* out) {
    __shared__ uint32_t words[64];
    uint32_t* word = words + 2 * threadIdx.x;
    const uint32_t own = static_cast<uint32_t>(__cvta_generic_to_shared(word));
    uint32_t rank, mapped, owner, value, flags = 0;
    uint64_t mapped64, generic;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    const uint32_t peer = rank ^ 1;
    word[0] = 100 + rank;
    word[1] = 7;
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(own), "r"(peer));
    asm volatile("mapa.shared::cluster.u64 %0, %1, %2;" : "=l"(mapped64) : "l"(static_cast<uint64_t>(own)), "r"(peer));
    asm volatile("mapa.u64 %0, %1, %2;" : "=l"(generic) : "l"(word), "r"(peer));
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    uint32_t* to = out + 8 * (32 * blockIdx.x + threadIdx.x);
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(mapped));
    to[0] = value;
    asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "l"(mapped64));
    to[1] = value;
    to[2] = *reinterpret_cast<uint32_t*>(generic);
    asm volatile("getctarank.shared::cluster.u32 %0, %1;" : "=r"(owner) : "r"(mapped));
    to[3] = owner;
    asm volatile("getctarank.u64 %0, %1;" : "=r"(owner) : "l"(word));
    to[4] = owner;
    asm volatile(
        "{ .reg .pred p, q; isspacep.shared::cluster p, %1; isspacep.shared::cta q, %1; selp.u32 %0, 1, 0, p; @q or.b32 %0, %0, 2; }"
        : "=r"(flags)
        : "l"(generic));
    to[5] = flags;
    asm volatile("{ .reg .pred p, q; isspacep.shared::cluster p, %1; isspacep.shared q, %1; selp.u32 %0, 1, 0, p; @q or.b32 %0, %0, 2; }"
                 : "=r"(flags)
                 : "l"(word));
    to[6] = flags;
    asm volatile("atom.shared::cluster.add.u32 %0, [%1 + 4], 5;" : "=r"(value) : "r"(mapped) : "memory");
    cg::this_cluster().sync();
    to[7] = word[1];
}

__global__ void __cluster_dims__(2, 1, 1) barrier_faults(int* out, int fault) {
    __shared__ int word[32];
    word[threadIdx.x] = threadIdx.x;
    __syncthreads();
    uint32_t mapped;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(mapped)
                 : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(word + threadIdx.x))), "r"(blockIdx.x ^ 1));
    if (fault == 1 && blockIdx.x == 1) {
        __shared__ volatile int never;
        never = 0;
        asm volatile("bar.sync 1, 64;");  // one warp: never complete
    }
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    if (fault == 2) asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    if (fault == 3) asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    int value = 0;
    if (fault == 4) asm volatile("ld.shared::cta.s32 %0, [%1];" : "=r"(value) : "r"(mapped));
    if (fault == 5) {
        if (threadIdx.x < 16)
            asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
        else
            asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    } else {
        asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    }
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
    out[blockIdx.x * 32 + threadIdx.x] = value;
}

// Three warpgroups that share out their registers.
template <int kFirst, int kSecond>
__global__ void __launch_bounds__(384, 1) register_budget(int* out) {
    if (threadIdx.x < 128)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFirst));
    else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kSecond));
    __syncthreads();
    out[threadIdx.x] = threadIdx.x;
}

__global__ void grid_sums(int* values, int rounds) {
    const cg::grid_group grid = cg::this_grid();
    const int block = blockIdx.x, blocks = gridDim.x;
    for (int round = 0; round < rounds; ++round) {
        const int neighbour = values[(block + 1) % blocks];
        grid.sync();
        if (threadIdx.x == 0) values[block] += neighbour;
        grid.sync();
    }
}

template <class... Params, class... Args>
void launch(void (*kernel)(Params...), dim3 grid, dim3 block, dim3 cluster, int cooperative, Args... args) {
    cudaLaunchConfig_t config{};
    cudaLaunchAttribute attributes[2]{};
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {cluster.x, cluster.y, cluster.z};
    attributes[1].id = cudaLaunchAttributeCooperative;
    attributes[1].val.cooperative = cooperative;
    config.gridDim = grid;
    config.blockDim = block;
    config.attrs = attributes;
    config.numAttrs = cooperative ? 2 : 1;
    cudaLaunchKernelEx(&config, kernel, args...);
}

}  // namespace

extern "C" {
void run_ring(const int* in, int* out, int blocks, int cluster, int fault) {
    if (cluster > 8) cudaFuncSetAttribute(ring, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    launch(ring, dim3(blocks), dim3(64), dim3(cluster), 0, in, out, fault);
}
void run_pass_over_relaxed(const int* in, int* out, int how) { pass_over_relaxed<<<2, 32>>>(in, out, how); }
void run_histogram(const int* in, int* bins, int count) { histogram<<<8, 64>>>(in, bins, count); }
void run_registers(uint32_t* out, int x, int y) {
    if (x)
        launch(registers, dim3(4, 4), dim3(32), dim3(x, y), 0, out);
    else
        registers<<<dim3(4, 4), 32>>>(out);
}
void run_addresses(uint32_t* out) { addresses<<<4, 32>>>(out); }
void run_barrier_faults(int* out, int fault) { barrier_faults<<<2, 32>>>(out, fault); }
void run_register_budget(int* out, int fault) {
    if (fault)
        register_budget<40, 240><<<1, 384>>>(out);
    else
        register_budget<24, 240><<<1, 384>>>(out);
}
void run_grid_sums(int* values, int blocks, int threads, int rounds) {
    void* args[] = {&values, &rounds};
    cudaLaunchCooperativeKernel(reinterpret_cast<void*>(grid_sums), dim3(blocks), dim3(threads), args, 0, nullptr);
}
}

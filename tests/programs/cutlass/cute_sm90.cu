// CuTe on Hopper's instructions: TMA into swizzled shared memory, a ring of mbarriers, wgmma, and a TMA store of the result.
#include <cutlass/arch/barrier.h>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/tensor.hpp>
#include <cutlass/cluster_launch.hpp>

#include "reference.hpp"

using namespace cute;

constexpr int kTileM = 128, kTileN = 64, kTileK = 64, kStages = 3;
using Element = bfloat16_t;
using SmemA = decltype(tile_to_shape(GMMA::Layout_K_SW128_Atom<Element>{}, Shape<Int<kTileM>, Int<kTileK>, Int<kStages>>{}));
using SmemB = decltype(tile_to_shape(GMMA::Layout_K_SW64_Atom<Element>{}, Shape<Int<kTileN>, Int<kTileK>, Int<kStages>>{}));
using SmemC = Layout<Shape<Int<kTileM>, Int<kTileN>>, Stride<Int<kTileN>, _1>>;
using Multiply = decltype(make_tiled_mma(SM90_64x64x16_F32BF16BF16_SS<GMMA::Major::K, GMMA::Major::K>{}));

struct Memory {
    alignas(128) ArrayEngine<Element, cosize_v<SmemA>> a;
    alignas(128) ArrayEngine<Element, cosize_v<SmemB>> b;
    alignas(128) ArrayEngine<float, cosize_v<SmemC>> c;
    uint64_t full[kStages];
    uint64_t empty[kStages];
};

// a: m x k, b: n x k, c: m x n, all row-major, seen through tensor maps. Edges are cut off by them.
template <class CopyA, class CopyB, class CopyC>
__global__ void __launch_bounds__(128) multiply(const __grid_constant__ CopyA copy_a, const __grid_constant__ CopyB copy_b,
                                                const __grid_constant__ CopyC copy_c, int m, int n, int k) {
    extern __shared__ char raw[];
    Memory& memory = *reinterpret_cast<Memory*>((reinterpret_cast<uintptr_t>(raw) + 1023) & ~uintptr_t{1023});
    Tensor sA = make_tensor(make_smem_ptr(memory.a.begin()), SmemA{});
    Tensor sB = make_tensor(make_smem_ptr(memory.b.begin()), SmemB{});
    Tensor sC = make_tensor(make_smem_ptr(memory.c.begin()), SmemC{});

    const auto tiler = Shape<Int<kTileM>, Int<kTileN>, Int<kTileK>>{};
    const auto block = make_coord(blockIdx.x, blockIdx.y, _);
    const Tensor gA = local_tile(copy_a.get_tma_tensor(make_shape(m, k)), tiler, block, Step<_1, X, _1>{});
    const Tensor gB = local_tile(copy_b.get_tma_tensor(make_shape(n, k)), tiler, block, Step<X, _1, _1>{});
    const Tensor gC = local_tile(copy_c.get_tma_tensor(make_shape(m, n)), tiler, block, Step<_1, _1, X>{});

    auto [from_a, to_a] = tma_partition(copy_a, Int<0>{}, Layout<_1>{}, group_modes<0, 2>(sA), group_modes<0, 2>(gA));
    auto [from_b, to_b] = tma_partition(copy_b, Int<0>{}, Layout<_1>{}, group_modes<0, 2>(sB), group_modes<0, 2>(gB));
    constexpr int kBytes = (kTileM + kTileN) * kTileK * sizeof(Element);

    using Full = cutlass::arch::ClusterTransactionBarrier;
    using Empty = cutlass::arch::ClusterBarrier;
    const bool is_leader = cutlass::canonical_warp_idx_sync() == 0 && elect_one_sync();
    if (is_leader) {
        for (int stage = 0; stage < kStages; ++stage) {
            Full::init(&memory.full[stage], 1);
            Empty::init(&memory.empty[stage], 128);
        }
    }
    cutlass::arch::fence_barrier_init();
    __syncthreads();

    const int num_tiles = size<2>(gA);
    const auto fetch = [&](int tile) {
        const int stage = tile % kStages;
        Full::arrive_and_expect_tx(&memory.full[stage], kBytes);
        copy(copy_a.with(memory.full[stage]), from_a(_, tile), to_a(_, stage));
        copy(copy_b.with(memory.full[stage]), from_b(_, tile), to_b(_, stage));
    };
    if (is_leader) {
        for (int tile = 0; tile < min(num_tiles, kStages); ++tile) fetch(tile);
    }

    const Multiply mma;
    const auto mine = mma.get_thread_slice(threadIdx.x);
    const Tensor a = mine.make_fragment_A(mine.partition_A(sA));
    const Tensor b = mine.make_fragment_B(mine.partition_B(sB));
    Tensor out = mine.partition_C(sC);
    Tensor sums = mine.make_fragment_C(out);
    clear(sums);
    for (int tile = 0; tile < num_tiles; ++tile) {
        const int stage = tile % kStages, phase = tile / kStages & 1;
        Full::wait(&memory.full[stage], phase);
        warpgroup_fence_operand(sums);
        warpgroup_arrive();
        gemm(mma, a(_, _, _, stage), b(_, _, _, stage), sums);
        warpgroup_commit_batch();
        warpgroup_wait<0>();
        warpgroup_fence_operand(sums);
        Empty::arrive(&memory.empty[stage]);
        if (is_leader && tile + kStages < num_tiles) {
            Empty::wait(&memory.empty[stage], phase);
            fetch(tile + kStages);
        }
    }

    copy(sums, out);
    tma_store_fence();
    __syncthreads();
    if (is_leader) {
        const auto store = copy_c.get_slice(Int<0>{});
        copy(copy_c, store.partition_S(sC), store.partition_D(gC));
        tma_store_arrive();
        tma_store_wait<0>();
    }
}

int main() {
    constexpr int kM = 200, kN = 136, kK = 328;
    const auto a = make_small_integers<Element>(kM * kK, 3), b = make_small_integers<Element>(kN * kK, 4);
    const DeviceVector<Element> device_a(a), device_b(b);
    const DeviceVector<float> c(kM * kN);
    const Tensor A = make_tensor(make_gmem_ptr(device_a.data()), make_shape(kM, kK), make_stride(kK, _1{}));
    const Tensor B = make_tensor(make_gmem_ptr(device_b.data()), make_shape(kN, kK), make_stride(kK, _1{}));
    const Tensor C = make_tensor(make_gmem_ptr(c.data()), make_shape(kM, kN), make_stride(kN, _1{}));
    const auto copy_a = make_tma_copy(SM90_TMA_LOAD{}, A, SmemA{}(_, _, 0), Shape<Int<kTileM>, Int<kTileK>>{}, _1{});
    const auto copy_b = make_tma_copy(SM90_TMA_LOAD{}, B, SmemB{}(_, _, 0), Shape<Int<kTileN>, Int<kTileK>>{}, _1{});
    const auto copy_c = make_tma_copy(SM90_TMA_STORE{}, C, SmemC{}, Shape<Int<kTileM>, Int<kTileN>>{}, _1{});

    const auto kernel = multiply<decltype(copy_a), decltype(copy_b), decltype(copy_c)>;
    constexpr int kSharedBytes = sizeof(Memory) + 1024;
    CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
    const dim3 grid((kM + kTileM - 1) / kTileM, (kN + kTileN - 1) / kTileN);
    kernel<<<grid, 128, kSharedBytes>>>(copy_a, copy_b, copy_c, kM, kN, kK);
    CUDA_CHECK(cudaGetLastError());
    expect_equal(c.to_host(), multiply_on_host(a, b, kM, kN, kK), "a product by TMA and wgmma");
    return finish();
}

// CuTe. One program of two, since reading CuTe takes the compiler about as long as a kernel.
#include <cutlass/arch/barrier.h>
#include <cute/arch/cluster_sm90.hpp>
#include <cute/tensor.hpp>
#include <cutlass/cluster_launch.hpp>

#include "reference.hpp"

// CuTe on Ampere's instructions: cp.async by a tiled copy into swizzled shared memory, ldmatrix, a tiled mma.sync product, three stages.
namespace ampere {

using namespace cute;

constexpr int kTileM = 64, kTileN = 64, kTileK = 32, kStages = 3;
using Element = half_t;

// Eight rows of 32 elements, their 16-byte units permuted so that ldmatrix meets no bank twice.
using SmemAtom = decltype(composition(Swizzle<2, 3, 3>{}, Layout<Shape<_8, Int<kTileK>>, Stride<Int<kTileK>, _1>>{}));
using SmemA = decltype(tile_to_shape(SmemAtom{}, Shape<Int<kTileM>, Int<kTileK>, Int<kStages>>{}));
using SmemB = decltype(tile_to_shape(SmemAtom{}, Shape<Int<kTileN>, Int<kTileK>, Int<kStages>>{}));
using Multiply = TiledMMA<MMA_Atom<SM80_16x8x16_F32F16F16F32_TN>, Layout<Shape<_2, _2, _1>>, Tile<Int<32>, Int<32>, _16>>;
using CopyIn = decltype(make_tiled_copy(Copy_Atom<SM80_CP_ASYNC_CACHEGLOBAL<uint128_t>, Element>{},
                                        Layout<Shape<_32, _4>, Stride<_4, _1>>{}, Layout<Shape<_1, _8>>{}));
using LoadA = Copy_Atom<SM75_U32x4_LDSM_N, Element>;

// a: m x k, b: n x k, both row-major; c: m x n, row-major. m, n, k are multiples of the tile.
__global__ void __launch_bounds__(128) multiply(const Element* a, const Element* b, float* c, int m, int n, int k) {
    const Tensor A = make_tensor(make_gmem_ptr(a), make_shape(m, k), make_stride(k, _1{}));
    const Tensor B = make_tensor(make_gmem_ptr(b), make_shape(n, k), make_stride(k, _1{}));
    const Tensor C = make_tensor(make_gmem_ptr(c), make_shape(m, n), make_stride(n, _1{}));
    const auto tiler = Shape<Int<kTileM>, Int<kTileN>, Int<kTileK>>{};
    const auto block = make_coord(blockIdx.x, blockIdx.y, _);
    const Tensor gA = local_tile(A, tiler, block, Step<_1, X, _1>{});
    const Tensor gB = local_tile(B, tiler, block, Step<X, _1, _1>{});
    Tensor gC = local_tile(C, tiler, block, Step<_1, _1, X>{});

    __shared__ alignas(128) Element memory_a[cosize_v<SmemA>];
    __shared__ alignas(128) Element memory_b[cosize_v<SmemB>];
    Tensor sA = make_tensor(make_smem_ptr(memory_a), SmemA{});
    Tensor sB = make_tensor(make_smem_ptr(memory_b), SmemB{});

    const auto copy_in = CopyIn{}.get_slice(threadIdx.x);
    const Tensor from_a = copy_in.partition_S(gA), from_b = copy_in.partition_S(gB);
    Tensor to_a = copy_in.partition_D(sA), to_b = copy_in.partition_D(sB);

    const Multiply mma;
    const auto mine = mma.get_slice(threadIdx.x);
    Tensor fragment_a = mine.partition_fragment_A(sA(_, _, 0));
    Tensor fragment_b = mine.partition_fragment_B(sB(_, _, 0));
    Tensor sums = mine.partition_fragment_C(gC);
    clear(sums);
    const auto load_a = make_tiled_copy_A(LoadA{}, mma);
    const auto load_b = make_tiled_copy_B(LoadA{}, mma);
    const auto load_a_mine = load_a.get_slice(threadIdx.x);
    const auto load_b_mine = load_b.get_slice(threadIdx.x);

    const int num_tiles = size<2>(gA);
    for (int stage = 0; stage < kStages - 1; ++stage) {
        if (stage < num_tiles) {
            copy(CopyIn{}, from_a(_, _, _, stage), to_a(_, _, _, stage));
            copy(CopyIn{}, from_b(_, _, _, stage), to_b(_, _, _, stage));
        }
        cp_async_fence();
    }
    for (int tile = 0; tile < num_tiles; ++tile) {
        cp_async_wait<kStages - 2>();
        __syncthreads();
        const int stage = tile % kStages, next = tile + kStages - 1;
        if (next < num_tiles) {
            copy(CopyIn{}, from_a(_, _, _, next), to_a(_, _, _, next % kStages));
            copy(CopyIn{}, from_b(_, _, _, next), to_b(_, _, _, next % kStages));
        }
        cp_async_fence();
        copy(load_a, load_a_mine.partition_S(sA(_, _, stage)), load_a_mine.retile_D(fragment_a));
        copy(load_b, load_b_mine.partition_S(sB(_, _, stage)), load_b_mine.retile_D(fragment_b));
        gemm(mma, fragment_a, fragment_b, sums);
    }
    Tensor out = mine.partition_C(gC);
    copy(sums, out);
}

void check() {
    constexpr int kM = 128, kN = 192, kK = 160;
    const auto a = make_small_integers<Element>(kM * kK, 1), b = make_small_integers<Element>(kN * kK, 2);
    const DeviceVector<Element> device_a(a), device_b(b);
    const DeviceVector<float> c(kM * kN);
    multiply<<<dim3(kM / kTileM, kN / kTileN), 128>>>(device_a.data(), device_b.data(), c.data(), kM, kN, kK);
    CUDA_CHECK(cudaGetLastError());
    expect_equal(c.to_host(), multiply_on_host(a, b, kM, kN, kK), "a product by tiled mma.sync");
}

}  // namespace ampere

// CuTe on Hopper's instructions: TMA into swizzled shared memory, a ring of mbarriers, wgmma, and a TMA store of the result.
namespace hopper {

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

void check() {
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
}

}  // namespace hopper

int main() {
    ampere::check();
    hopper::check();
    return finish();
}

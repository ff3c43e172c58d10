// CuTe on Ampere's instructions: cp.async by a tiled copy into swizzled shared memory, ldmatrix, a tiled mma.sync product, three stages.
#include <cute/tensor.hpp>

#include "reference.hpp"

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

int main() {
    constexpr int kM = 128, kN = 192, kK = 160;
    const auto a = make_small_integers<Element>(kM * kK, 1), b = make_small_integers<Element>(kN * kK, 2);
    const DeviceVector<Element> device_a(a), device_b(b);
    const DeviceVector<float> c(kM * kN);
    multiply<<<dim3(kM / kTileM, kN / kTileN), 128>>>(device_a.data(), device_b.data(), c.data(), kM, kN, kK);
    CUDA_CHECK(cudaGetLastError());
    expect_equal(c.to_host(), multiply_on_host(a, b, kM, kN, kK), "a product by tiled mma.sync");
    return finish();
}

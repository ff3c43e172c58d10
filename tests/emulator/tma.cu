// Kernels of test_tensormap.py and tma_record.py: one tensor copy each, whose shared-memory image or effect on the tensor is kept.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace {

struct Point {
    int at[5];
    uint16_t offset[3];
};

__device__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

#define LOAD_TILE(DIMS, COORDS, ...)                                                                                          \
    asm volatile("cp.async.bulk.tensor." DIMS ".shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {" COORDS \
                 "}], [%2];" ::"r"(to),                                                                                       \
                 "l"(map), "r"(bar), __VA_ARGS__                                                                              \
                 : "memory")
#define LOAD_IM2COL(DIMS, COORDS, OFFSETS, ...)                                                                                 \
    asm volatile("cp.async.bulk.tensor." DIMS ".shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {" COORDS \
                 "}], [%2], {" OFFSETS "};" ::"r"(to),                                                                          \
                 "l"(map), "r"(bar), __VA_ARGS__                                                                                \
                 : "memory")
#define STORE(WHAT, DIMS, MODE, COORDS, ...)                                                                                         \
    asm volatile(WHAT "." DIMS ".global.shared::cta" MODE ".bulk_group [%0, {" COORDS "}], [%1];" ::"l"(map), "r"(from), __VA_ARGS__ \
                 : "memory")

template <int kRank>
__device__ void load_tile(uint32_t to, const CUtensorMap* map, uint32_t bar, const Point& p) {
    const int* c = p.at;
    if constexpr (kRank == 1) LOAD_TILE("1d", "%3", "r"(c[0]));
    if constexpr (kRank == 2) LOAD_TILE("2d", "%3, %4", "r"(c[0]), "r"(c[1]));
    if constexpr (kRank == 3) LOAD_TILE("3d", "%3, %4, %5", "r"(c[0]), "r"(c[1]), "r"(c[2]));
    if constexpr (kRank == 4) LOAD_TILE("4d", "%3, %4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
    if constexpr (kRank == 5) LOAD_TILE("5d", "%3, %4, %5, %6, %7", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
}

template <int kRank>
__device__ void load_im2col(uint32_t to, const CUtensorMap* map, uint32_t bar, const Point& p) {
    const int* c = p.at;
    const uint16_t* o = p.offset;
    if constexpr (kRank == 3) LOAD_IM2COL("3d", "%3, %4, %5", "%6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "h"(o[0]));
    if constexpr (kRank == 4)
        LOAD_IM2COL("4d", "%3, %4, %5, %6", "%7, %8", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "h"(o[0]), "h"(o[1]));
    if constexpr (kRank == 5)
        LOAD_IM2COL("5d", "%3, %4, %5, %6, %7", "%8, %9, %10", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]), "h"(o[0]), "h"(o[1]),
                    "h"(o[2]));
}

template <int kRank>
__device__ void store_tile(uint32_t from, const CUtensorMap* map, const Point& p) {
    const int* c = p.at;
    if constexpr (kRank == 1) STORE("cp.async.bulk.tensor", "1d", ".tile", "%2", "r"(c[0]));
    if constexpr (kRank == 2) STORE("cp.async.bulk.tensor", "2d", ".tile", "%2, %3", "r"(c[0]), "r"(c[1]));
    if constexpr (kRank == 3) STORE("cp.async.bulk.tensor", "3d", ".tile", "%2, %3, %4", "r"(c[0]), "r"(c[1]), "r"(c[2]));
    if constexpr (kRank == 4) STORE("cp.async.bulk.tensor", "4d", ".tile", "%2, %3, %4, %5", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]));
    if constexpr (kRank == 5)
        STORE("cp.async.bulk.tensor", "5d", ".tile", "%2, %3, %4, %5, %6", "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]));
}

#define REDUCE(OP) STORE("cp.reduce.async.bulk.tensor", "2d", "." OP ".tile", "%2, %3", "r"(p.at[0]), "r"(p.at[1]))

__device__ void reduce_2d(int op, uint32_t from, const CUtensorMap* map, const Point& p) {
    switch (op) {
        case 0: REDUCE("add"); break;
        case 1: REDUCE("min"); break;
        case 2: REDUCE("max"); break;
        case 3: REDUCE("and"); break;
        case 4: REDUCE("or"); break;
        case 5: REDUCE("xor"); break;
        case 6: REDUCE("inc"); break;
        case 7: REDUCE("dec"); break;
    }
}

__device__ uint8_t* image_of(uint8_t* dynamic) { return dynamic + (-shared_address(dynamic) & 1023); }

__device__ void wait_parity(uint32_t bar, uint32_t parity) {
    uint32_t ok = 0;
    while (!ok) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok)
                     : "r"(bar), "r"(parity)
                     : "memory");
    }
}

// image: `image_bytes` of shared memory, first filled from it, then loaded into at `offset`, then written back to it. The wait gives up
// after a while, and says so in *given_up, so that a wrong count of bytes is no hang.
template <int kRank, bool kIm2col>
__global__ void load(const __grid_constant__ CUtensorMap map, Point p, uint32_t offset, uint32_t bytes, uint8_t* image,
                     uint32_t image_bytes, uint32_t* given_up) {
    extern __shared__ uint8_t dynamic[];
    __shared__ uint64_t barrier;
    uint8_t* shared = image_of(dynamic);
    const uint32_t bar = shared_address(&barrier);
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
    for (uint32_t i = threadIdx.x; i < image_bytes; i += blockDim.x) shared[i] = image[i];
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
        if constexpr (kIm2col)
            load_im2col<kRank>(shared_address(shared) + offset, &map, bar, p);
        else
            load_tile<kRank>(shared_address(shared) + offset, &map, bar, p);
    }
    uint32_t ok = 0;
    for (int i = 0; i < 100000 && !ok; ++i) {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0, 1000; selp.u32 %0, 1, 0, p; }"
                     : "=r"(ok)
                     : "r"(bar)
                     : "memory");
    }
    if (!ok) *given_up = 1;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < image_bytes; i += blockDim.x) image[i] = shared[i];
}

template <int kRank>
__global__ void store(const __grid_constant__ CUtensorMap map, Point p, uint32_t offset, const uint8_t* image, uint32_t image_bytes,
                      int op) {
    extern __shared__ uint8_t dynamic[];
    uint8_t* shared = image_of(dynamic);
    for (uint32_t i = threadIdx.x; i < image_bytes; i += blockDim.x) shared[i] = image[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        if (op < 0)
            store_tile<kRank>(shared_address(shared) + offset, &map, p);
        else if constexpr (kRank == 2)
            reduce_2d(op, shared_address(shared) + offset, &map, p);
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

template <typename Function>
Function* driver_function(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found) != cudaSuccess) return nullptr;
    return reinterpret_cast<Function*>(function);
}

template <typename Kernel, typename... Args>
int launch(Kernel* kernel, uint32_t image_bytes, Args... args) {
    const uint32_t bytes = image_bytes + 1024;
    if (cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)))
        return error;
    kernel<<<1, 128, bytes>>>(args...);
    return cudaGetLastError();
}

}  // namespace

extern "C" {

// The arguments of the driver's functions, as they are. -1: there is no such function.
int encode_tiled(void* map, int type, uint32_t rank, void* address, const cuuint64_t* dims, const cuuint64_t* strides,
                 const cuuint32_t* box, const cuuint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
    auto* encode = driver_function<decltype(cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
    if (!encode) return -1;
    return encode(static_cast<CUtensorMap*>(map), static_cast<CUtensorMapDataType>(type), rank, address, dims, strides, box, steps,
                  static_cast<CUtensorMapInterleave>(interleave), static_cast<CUtensorMapSwizzle>(swizzle),
                  static_cast<CUtensorMapL2promotion>(promotion), static_cast<CUtensorMapFloatOOBfill>(fill));
}

int encode_im2col(void* map, int type, uint32_t rank, void* address, const cuuint64_t* dims, const cuuint64_t* strides, const int* lower,
                  const int* upper, uint32_t channels, uint32_t pixels, const cuuint32_t* steps, int interleave, int swizzle, int promotion,
                  int fill) {
    auto* encode = driver_function<decltype(cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
    if (!encode) return -1;
    return encode(static_cast<CUtensorMap*>(map), static_cast<CUtensorMapDataType>(type), rank, address, dims, strides, lower, upper,
                  channels, pixels, steps, static_cast<CUtensorMapInterleave>(interleave), static_cast<CUtensorMapSwizzle>(swizzle),
                  static_cast<CUtensorMapL2promotion>(promotion), static_cast<CUtensorMapFloatOOBfill>(fill));
}

int replace_address(void* map, void* address) {
    auto* replace = driver_function<decltype(cuTensorMapReplaceAddress)>("cuTensorMapReplaceAddress");
    return replace ? replace(static_cast<CUtensorMap*>(map), address) : -1;
}

int run_load(const void* map_bytes, int rank, int im2col, const int* coordinates, const uint16_t* offsets, uint32_t offset, uint32_t bytes,
             uint8_t* image, uint32_t image_bytes, uint32_t* given_up) {
    CUtensorMap map;
    std::memcpy(&map, map_bytes, sizeof map);
    Point p{};
    for (int i = 0; i < rank; ++i) p.at[i] = coordinates[i];
    for (int i = 0; im2col && i < rank - 2; ++i) p.offset[i] = offsets[i];  // tiles have none
#define RUN(RANK, IM2COL) launch(load<RANK, IM2COL>, image_bytes, map, p, offset, bytes, image, image_bytes, given_up)
    if (im2col) return rank == 3 ? RUN(3, true) : rank == 4 ? RUN(4, true) : RUN(5, true);
    return rank == 1 ? RUN(1, false) : rank == 2 ? RUN(2, false) : rank == 3 ? RUN(3, false) : rank == 4 ? RUN(4, false) : RUN(5, false);
#undef RUN
}

// op: -1 a store, else a reduction (rank 2).
int run_store(const void* map_bytes, int rank, const int* coordinates, uint32_t offset, const uint8_t* image, uint32_t image_bytes,
              int op) {
    CUtensorMap map;
    std::memcpy(&map, map_bytes, sizeof map);
    Point p{};
    for (int i = 0; i < rank; ++i) p.at[i] = coordinates[i];
#define RUN(RANK) launch(store<RANK>, image_bytes, map, p, offset, image, image_bytes, op)
    return rank == 1 ? RUN(1) : rank == 2 ? RUN(2) : rank == 3 ? RUN(3) : rank == 4 ? RUN(4) : RUN(5);
#undef RUN
}
}

// Overruns from one shared variable into the next, and the same programs mended: neighbours CASE, see test_shared_neighbours.py.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

constexpr int kCount = 64;

__global__ void read_past(int* out, int extent) {
    __shared__ int first[kCount], second[kCount];
    first[threadIdx.x] = second[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = first[min(static_cast<int>(threadIdx.x) + 1, extent)] + second[threadIdx.x];
}

__global__ void write_past(int* out, int extent) {
    __shared__ int first[kCount], second[kCount];
    second[threadIdx.x] = first[threadIdx.x] = 0;
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < extent) first[threadIdx.x + 1] = 1;
    __syncthreads();
    out[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}

__global__ void add_past(int* out, int extent) {
    __shared__ int first[kCount], second[kCount];
    second[threadIdx.x] = first[threadIdx.x] = 0;
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&first[extent], 1);
    __syncthreads();
    out[threadIdx.x] = first[threadIdx.x] + second[threadIdx.x];
}

// From a variable into dynamic shared memory, which the program has asked for.
__global__ void into_dynamic(int* out, int extent) {
    __shared__ int first[kCount];
    extern __shared__ int rest[];
    first[threadIdx.x] = rest[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = first[min(static_cast<int>(threadIdx.x) + 1, extent)] + rest[threadIdx.x];
}

// What a program may rely on: alignment, sizes, and that all of it is within what the device has.
__global__ void legal(int* out, int extent) {
    __shared__ char odd[3];
    __shared__ __align__(128) char aligned[256];
    __shared__ double values[kCount];
    extern __shared__ __align__(1024) char dynamic[];
    odd[threadIdx.x % 3] = 0;
    aligned[threadIdx.x] = 0;
    values[threadIdx.x] = 0;
    dynamic[threadIdx.x + extent] = 0;
    unsigned total = 0;
    asm("mov.u32 %0, %total_smem_size;" : "=r"(total));
    const auto at = [](const void* p) { return static_cast<unsigned>(__cvta_generic_to_shared(p)); };
    bool fine = at(aligned) % 128 == 0 && at(values) % 8 == 0 && at(dynamic) % 1024 == 0 && at(dynamic) < (228 << 10);
    fine &= total < 3 + 256 + 1024 + 2048 + sizeof values;
    out[threadIdx.x] = fine ? 7 : 0;
}

int main(int argc, char** argv) {
    constexpr struct {
        const char* name;
        void (*kernel)(int*, int);
        int mended;  // extent
    } kCases[] = {{"read_past", read_past, kCount - 1},
                  {"write_past", write_past, kCount - 1},
                  {"add_past", add_past, kCount - 1},
                  {"into_dynamic", into_dynamic, kCount - 1},
                  {"legal", legal, 0}};
    int* out = nullptr;
    int got[kCount] = {};
    cudaMalloc(&out, sizeof got);
    for (const auto& each : kCases) {
        const size_t length = std::strlen(each.name);
        if (argc != 2 || std::strncmp(argv[1], each.name, length) != 0) continue;
        const bool is_mended = std::strcmp(argv[1] + length, "_mended") == 0;
        each.kernel<<<1, kCount, 1024>>>(out, is_mended ? each.mended : each.mended + 1);
        cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
        cudaFuncAttributes attributes{};
        cudaFuncGetAttributes(&attributes, each.kernel);
        if (std::strcmp(each.name, "read_past") == 0 && attributes.sharedSizeBytes != 2 * sizeof got) return 1;
        if (std::strcmp(each.name, "legal") == 0 && got[5] != 7) return 1;
        std::printf("PASSED\n");
        return 0;
    }
    return 2;
}

// Programs with one fault each, in places that are hard to name: places CASE, see test_places.py.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstring>

namespace shop {

template <typename T>
__device__ __forceinline__ T take(const T* shelf, int index) {
    return shelf[index];  // read
}

template <typename T>
__device__ __forceinline__ T take_next(const T* shelf, int index) {
    return take(shelf, index + 1);  // inner call
}

template <typename T, int kCount>
__global__ void inlined(T* out, const T* in, int extent) {
    out[threadIdx.x] = take_next(in, min(static_cast<int>(threadIdx.x), extent));  // outer call
}

template <typename T, int kCount>
__global__ void unrolled(T* out, const T* in, int extent) {
    T sum = 0;
#pragma unroll
    for (int i = 0; i < kCount; ++i) sum += in[extent + 1 + 64 * i * extent];  // each turn
    out[threadIdx.x] = sum;
}

// Two arrays that are read in one line are two findings.
template <typename T, int kCount>
__global__ void two_arrays(T* out, const T* in, int extent) {
    out[threadIdx.x] = in[extent + 1] + out[extent - kCount * 8];
}

}  // namespace shop

int main(int argc, char** argv) {
    constexpr int kThreads = 64;
    constexpr struct {
        const char* name;
        void (*kernel)(float*, const float*, int);
    } kCases[] = {{"inlined", shop::inlined<float, 8>}, {"unrolled", shop::unrolled<float, 8>}, {"two_arrays", shop::two_arrays<float, 8>}};
    float *out = nullptr, *in = nullptr;
    cudaMalloc(&out, kThreads * sizeof(float));
    cudaMalloc(&in, kThreads * sizeof(float));
    cudaMemset(in, 0, kThreads * sizeof(float));
    cudaMemset(out, 0, kThreads * sizeof(float));
    for (const auto& each : kCases) {
        if (argc != 2 || std::strcmp(argv[1], each.name) != 0) continue;
        each.kernel<<<1, kThreads>>>(out, in, kThreads - 1);
        std::printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize()));
        return 0;
    }
    return 2;
}

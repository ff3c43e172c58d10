// Asynchronous copies with a barrier and no wait for the copy, and the mended twins: hints CASE.
#include <cuda_pipeline.h>

#include <cstdio>
#include <cstring>

__global__ void copied(const float* in, float* out, bool waits) {
    __shared__ float tile[64];
    __pipeline_memcpy_async(&tile[threadIdx.x], &in[threadIdx.x], 4);
    __pipeline_commit();
    if (waits) __pipeline_wait_prior(0);
    __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
    __pipeline_wait_prior(0);
}

__global__ void stored(const float* in, float* out, bool waits) {
    __shared__ float tile[64];
    tile[threadIdx.x] = in[threadIdx.x];
    if (waits) __syncthreads();
    out[threadIdx.x] = tile[63 - threadIdx.x];
}

int main(int argc, char** argv) {
    const char* const what = argc > 1 ? argv[1] : "";
    const bool waits = std::strstr(what, "mended") != nullptr;
    float *in = nullptr, *out = nullptr;
    cudaMalloc(&in, 256);
    cudaMalloc(&out, 256);
    cudaMemset(in, 0, 256);
    if (std::strncmp(what, "copied", 6) == 0) copied<<<1, 64>>>(in, out, waits);
    if (std::strncmp(what, "stored", 6) == 0) stored<<<1, 64>>>(in, out, waits);
    if (cudaDeviceSynchronize() != cudaSuccess) return 1;
    std::printf("PASSED\n");
    return 0;
}

// A program as users write them: for the registration and launch ABI of nvcc's host code.
#include <cuda_runtime.h>

__constant__ float scale_factor = 2.0f;
__device__ int launches = 0;
__managed__ int managed_value = 5;

static __global__ void saxpy(int n, float a, const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i == 0) atomicAdd(&launches, 1);
    if (i < n) y[i] = a * scale_factor * x[i] + y[i];
}

struct Pair {
    char tag;
    double value;
};

__global__ void __launch_bounds__(128) unpack(Pair pair, short number, double* out) {
    if (threadIdx.x == 0) {
        out[0] = pair.value;
        out[1] = pair.tag + number;
    }
}

extern "C" {
int launch_saxpy(int n, float a, const float* x, float* y, cudaStream_t stream) {
    saxpy<<<(n + 127) / 128, 128, 0, stream>>>(n, a, x, y);
    return cudaGetLastError();
}
int launch_unpack(double* out) {
    unpack<<<1, 32>>>(Pair{7, 2.5}, 30, out);
    return cudaGetLastError();
}
int set_scale(float value) { return cudaMemcpyToSymbol(scale_factor, &value, sizeof value); }
int count_launches(int* out) { return cudaMemcpyFromSymbol(out, launches, sizeof *out); }
int registers(int* out) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, unpack);
    *out = attributes.numRegs;
    return error;
}
int occupancy(int* out) { return cudaOccupancyMaxActiveBlocksPerMultiprocessor(out, saxpy, 256, 0); }
int read_managed() { return managed_value; }
void* function_address() { return reinterpret_cast<void*>(unpack); }
}

// Small kernels behind C functions, for the tests of streams, graphs, errors and the observer.
#include <cuda_runtime.h>

// out[0..n) = value
__global__ void fill_kernel(float* out, float value, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = value;
}

// out[0..n) = out[0..n) * factor + 1
__global__ void scale_kernel(float* out, float factor, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = out[i] * factor + 1.0f;
}

// out[0..n) = reversed values of shared memory; without the barrier warps race
template <bool kBarrier>
__global__ void reverse_kernel(float* out, int n) {
    extern __shared__ float tile[];
    tile[threadIdx.x] = static_cast<float>(threadIdx.x);
    if (kBarrier) __syncthreads();
    out[threadIdx.x] = tile[n - 1 - threadIdx.x];
}

namespace {
dim3 count_blocks(int n) { return dim3((n + 127) / 128); }
}  // namespace

extern "C" {
int launch_fill(float* out, float value, int n, cudaStream_t stream) {
    fill_kernel<<<count_blocks(n), 128, 0, stream>>>(out, value, n);
    return cudaGetLastError();
}

int launch_scale(float* out, float factor, int n, cudaStream_t stream) {
    scale_kernel<<<count_blocks(n), 128, 0, stream>>>(out, factor, n);
    return cudaGetLastError();
}

int launch_reverse(float* out, int n, int with_barrier, cudaStream_t stream) {
    const size_t bytes = n * sizeof(float);
    if (with_barrier) {
        reverse_kernel<true><<<1, n, bytes, stream>>>(out, n);
    } else {
        reverse_kernel<false><<<1, n, bytes, stream>>>(out, n);
    }
    return cudaGetLastError();
}

int launch_too_wide(float* out, cudaStream_t stream) {
    fill_kernel<<<1, 2048, 0, stream>>>(out, 0.0f, 1);
    return cudaGetLastError();
}

int queue_zero_fill(float* out, size_t num_bytes, cudaStream_t stream) { return cudaMemsetAsync(out, 0, num_bytes, stream); }

// Not allowed while a stream is being captured.
int synchronize_device(void) { return cudaDeviceSynchronize(); }
}

// Kernels for test_schedules.py, beside those of kernels.cu: a library's sort, layer normalisation, and branches of every shape.
#include <cub/device/device_radix_sort.cuh>

#define EXPORT extern "C"

EXPORT int run_sort(const uint32_t* in, uint32_t* out, int n) {
    size_t bytes = 0;
    void* workspace = nullptr;
    cub::DeviceRadixSort::SortKeys(workspace, bytes, in, out, n);
    cudaMalloc(&workspace, bytes);
    cub::DeviceRadixSort::SortKeys(workspace, bytes, in, out, n);
    cudaDeviceSynchronize();
    return cudaFree(workspace);
}

// One warp a row: out = (in - mean) / sqrt(variance + 1e-5), rows of n.
__global__ void layernorm(const float* in, float* out, int n) {
    const float* row = in + static_cast<size_t>(blockIdx.x) * n;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < n; i += 32) sum += row[i], squares += row[i] * row[i];
    for (int step = 16; step > 0; step >>= 1) {
        sum += __shfl_xor_sync(~0u, sum, step);
        squares += __shfl_xor_sync(~0u, squares, step);
    }
    const float mean = sum / n, scale = rsqrtf(squares / n - mean * mean + 1e-5f);
    for (int i = threadIdx.x; i < n; i += 32) out[static_cast<size_t>(blockIdx.x) * n + i] = (row[i] - mean) * scale;
}
EXPORT void run_layernorm(const float* in, float* out, int rows, int n) { layernorm<<<rows, 32>>>(in, out, n); }

// Nested branches whose arms have loops, breaks and continues of their own; every thread goes its own way, and all meet at the end.
__global__ void branches(int* out) {
    const int t = threadIdx.x;
    int x = 0;
    if (t & 1) {
        if (t & 2) {
            for (int i = 0;; ++i) {
                if (i == t) break;
                if (i % 3 == 0) continue;
                x += i;
            }
        } else {
            x = -t;
        }
    } else if (t < 16) {
        do x += 2;
        while (x < t);
    } else {
        x = 1000 + (t % 4 == 0 ? t : -t);
    }
    __syncwarp();
    out[t] = x + __popc(__activemask());
}
EXPORT void run_branches(int* out) { branches<<<1, 64>>>(out); }

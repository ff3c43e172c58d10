// A program that knows nothing of the emulator, for tests of `python -m device run`: what it does is its first argument.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cuda_runtime.h>

__global__ void fill(int* out, int n, int limit) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < limit) out[i] = n + i;
}

__global__ void hello() { printf("hello from thread %d\n", threadIdx.x); }

static int check(cudaError_t error, const char* what) {
    if (error == cudaSuccess) return 0;
    std::printf("%s: %s\n", what, cudaGetErrorString(error));
    return 1;
}

int main(int argc, char** argv) {
    const char* what = argc > 1 ? argv[1] : "clean";
    if (!std::strcmp(what, "host_only")) return 5;
    if (!std::strcmp(what, "devices")) {
        int count = 0;
        cudaGetDeviceCount(&count);
        std::printf("%d devices\n", count);
        return 0;
    }
    int* out = nullptr;
    const int n = 256;
    int failed = check(cudaMalloc(&out, n * sizeof(int)), "cudaMalloc");
    fill<<<2, 128>>>(out, 7, !std::strcmp(what, "overrun") ? n + 1 : n);
    fill<<<2, 128>>>(out, 7, !std::strcmp(what, "overrun") ? n + 1 : n);
    if (!std::strcmp(what, "overrun")) fill<<<3, 128>>>(out, 7, n + 1);
    if (!std::strcmp(what, "hello")) hello<<<1, 2>>>();
    failed |= check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    int host[n] = {};
    if (!failed) failed |= check(cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost), "cudaMemcpy");
    if (!failed) std::printf("last %d, args %d\n", host[n - 1], argc);
    if (!std::strcmp(what, "early")) {  // reads before it waits
        int* pinned = nullptr;
        cudaMallocHost(&pinned, sizeof(int));
        *pinned = 0;
        cudaMemcpyAsync(pinned, out + n - 1, sizeof(int), cudaMemcpyDeviceToHost);
        std::printf("early %d\n", *pinned);
        cudaFreeHost(pinned);
    }
    if (!std::strcmp(what, "leak")) return 0;
    if (!std::strcmp(what, "abort")) std::abort();
    if (!std::strcmp(what, "deref")) return out[0];
    if (!std::strcmp(what, "stdin")) {
        char line[64];
        if (std::fgets(line, sizeof line, stdin) != nullptr) std::printf("read %s", line);
    }
    if (!std::strcmp(what, "free_twice")) cudaFree(out);
    cudaFree(out);
    return !std::strcmp(what, "seven") ? 7 : failed;
}

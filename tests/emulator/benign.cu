// Races that cannot change the result, and the same programs with a fault: benign CASE, see test_benign_races.py.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

using Word = unsigned long long;

// The loop of the CUDA Programming Guide.
__device__ double add_by_swap(double* address, double value) {
    Word* word = reinterpret_cast<Word*>(address);
    Word old = *word, assumed;
    do {
        assumed = old;
        old = atomicCAS(word, assumed, __double_as_longlong(value + __longlong_as_double(assumed)));
    } while (assumed != old);
    return __longlong_as_double(old);
}

__device__ float max_by_swap(float* address, float value) {
    int* word = reinterpret_cast<int*>(address);
    int old = *word, assumed;
    do {
        assumed = old;
        old = atomicCAS(word, assumed, __float_as_int(fmaxf(value, __int_as_float(assumed))));
    } while (assumed != old);
    return __int_as_float(old);
}

__global__ void sum_global(double* sums, const double* in) { add_by_swap(sums + threadIdx.x % 4, in[threadIdx.x]); }

__global__ void sum_shared(double* sums, const double* in) {
    __shared__ double part[4];
    if (threadIdx.x < 4) part[threadIdx.x] = 0;
    __syncthreads();
    add_by_swap(part + threadIdx.x % 4, in[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x < 4 && blockIdx.x == 0) sums[threadIdx.x] = 2 * part[threadIdx.x];
}

__global__ void maximum(double* sums, const double* in) {
    const float before = max_by_swap(reinterpret_cast<float*>(sums) + 1, static_cast<float>(in[threadIdx.x]));
    if (before < -1) sums[3] = before;
}

__global__ void early_exit(double* sums, const double* in) {
    int* word = reinterpret_cast<int*>(sums) + 1;
    const float value = static_cast<float>(in[threadIdx.x]);
    for (int old = *word, assumed; value > __int_as_float(old);) {
        assumed = old;
        old = atomicCAS(word, assumed, __float_as_int(value));
        if (old == assumed) break;
    }
}

// The value is stored before the swap has confirmed it.
__global__ void stored_first(double* sums, const double* in) {
    Word* word = reinterpret_cast<Word*>(sums);
    Word old = *word, assumed;
    sums[8 + blockIdx.x * blockDim.x + threadIdx.x] = __longlong_as_double(old);
    do {
        assumed = old;
        old = atomicCAS(word, assumed, __double_as_longlong(in[threadIdx.x] + __longlong_as_double(assumed)));
    } while (assumed != old);
}

// The swap is of another word than the one that was read.
__global__ void other_word(double* sums, const double* in) {
    Word* word = reinterpret_cast<Word*>(sums);
    const Word old = word[0];
    atomicAdd(sums, in[threadIdx.x]);
    atomicCAS(word + 1, old, old + 1);
}

// What is expected does not come from the load: a lock.
__global__ void lock(double* sums, const double* in) {
    int* word = reinterpret_cast<int*>(sums);
    if (*word == 0 && atomicCAS(word, 0, 1) == 0) sums[2] = in[0];
}

// A block touches the words that the other one writes, to have them in the cache: what it reads is dropped, or not.
__device__ int touch(const double* word) {
    int value;
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__global__ void discarded(double* sums, const double* in) {
    double* word = sums + 8 + threadIdx.x;
    if (blockIdx.x == 0)
        *word = in[threadIdx.x];
    else
        (void)(touch(word) + 1);
}

__global__ void not_discarded(double* sums, const double* in) {
    double* word = sums + 8 + threadIdx.x;
    if (blockIdx.x == 0)
        *word = in[threadIdx.x];
    else if (touch(word) == 5)
        sums[3] = 5;
}

__global__ void same_value(double* sums, const double* in) { sums[8 + threadIdx.x] = in[threadIdx.x]; }

__global__ void other_value(double* sums, const double* in) { sums[8 + threadIdx.x] = in[threadIdx.x] + blockIdx.x; }

int main(int argc, char** argv) {
    constexpr struct {
        const char* name;
        void (*kernel)(double*, const double*);
    } kCases[] = {{"sum_global", sum_global},
                  {"sum_shared", sum_shared},
                  {"maximum", maximum},
                  {"early_exit", early_exit},
                  {"lock", lock},
                  {"stored_first", stored_first},
                  {"other_word", other_word},
                  {"discarded", discarded},
                  {"not_discarded", not_discarded},
                  {"same_value", same_value},
                  {"other_value", other_value}};
    constexpr int kThreads = 64, kBlocks = 2;
    double values[kThreads], *in = nullptr, *sums = nullptr, got[4];
    for (int i = 0; i < kThreads; ++i) values[i] = i;
    cudaMalloc(&in, sizeof values);
    cudaMalloc(&sums, (8 + kThreads * kBlocks) * sizeof(double));
    cudaMemset(sums, 0, (8 + kThreads * kBlocks) * sizeof(double));
    cudaMemcpy(in, values, sizeof values, cudaMemcpyHostToDevice);
    for (const auto& each : kCases) {
        if (argc != 2 || std::strcmp(argv[1], each.name) != 0) continue;
        each.kernel<<<kBlocks, kThreads>>>(sums, in);
        cudaMemcpy(got, sums, sizeof got, cudaMemcpyDeviceToHost);
        if (std::strncmp(each.name, "sum", 3) == 0 && got[1] != 2 * 16 * (1 + 61) / 2.0) return 1;
        float largest;
        std::memcpy(&largest, reinterpret_cast<char*>(got) + 4, 4);
        if ((std::strcmp(each.name, "maximum") == 0 || std::strcmp(each.name, "early_exit") == 0) && largest != kThreads - 1) return 1;
        std::printf("PASSED\n");
        return 0;
    }
    return 2;
}

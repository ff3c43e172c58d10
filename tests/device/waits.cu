// Programs that wait for ever, and their mended twins; programs that rely on what CUDA does not promise: waits CASE.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstring>

namespace cg = cooperative_groups;

__global__ void grid_barrier(int* out, bool skips) {
    if (skips && blockIdx.x == 1) return;
    cg::this_grid().sync();
    out[blockIdx.x] = 1;
}

__global__ void flag(volatile int* ready, bool sets) {
    if (blockIdx.x == 0) {
        while (ready[0] == 0) {
        }
        ready[1] = 1;
    } else if (sets && threadIdx.x == 0) {
        ready[0] = 1;
    }
}

__global__ void barriers(int* out, bool apart) {
    if (threadIdx.x < 32 || !apart) {
        out[threadIdx.x] = 1;
        __syncthreads();
    } else {
        out[threadIdx.x] = 2;
        __syncthreads();
    }
    out[threadIdx.x + 64] = out[63 - threadIdx.x];
}

__global__ void unrolled(int* out) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        out[threadIdx.x + 64 * (i & 1)] = i;
        __syncthreads();
    }
}

__global__ void add(int* sum) { sum[threadIdx.x] += 1; }

__global__ void counts(unsigned* out) {  // never ends, and stores all the time
    for (unsigned i = 0; i != ~0u || *reinterpret_cast<volatile unsigned*>(out + 1) == 0; ++i)
        *reinterpret_cast<volatile unsigned*>(out) = i;
}

__global__ void gives_up(volatile int* ready, int rounds) {  // what it waits for never comes: it ends by itself
    int count = 0;
    while (ready[blockIdx.x] == 0 && ++count < rounds) {
    }
    if (threadIdx.x == 0) ready[64 + blockIdx.x] = count;
}

__global__ void gives_up_in_time(volatile int* ready, long long cycles) {
    const long long start = clock64();
    while (ready[0] == 0 && clock64() - start < cycles) {
    }
    ready[64] = 1;
}

__global__ void gives_up_mbarrier(int* out, int rounds) {
    __shared__ unsigned long long barrier;
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(&barrier));
    if (threadIdx.x == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
    __syncthreads();
    unsigned done = 0;
    for (int i = 0; i < rounds && done == 0; ++i)
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], 0; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(at)
                     : "memory");
    out[threadIdx.x] = 2 + done;
}

__global__ void counts_turns(volatile int* ready, bool sets) {  // for its statistics: the wait has no bound
    if (blockIdx.x == 0) {
        int turns = 0;
        while (ready[0] == 0) ++turns;
        ready[64] = turns;
    } else if (sets && threadIdx.x == 0) {
        ready[0] = 1;
    }
}

__global__ void backs_off(volatile int* ready, bool sets) {
    if (blockIdx.x == 0) {
        for (unsigned pause = 1; ready[0] == 0; pause = pause < 1024 ? 2 * pause : 1024) __nanosleep(pause);
        ready[64] = 1;
    } else if (sets && threadIdx.x == 0) {
        ready[0] = 1;
    }
}

__global__ void ping_pong(volatile int* word, int rounds) {  // each block waits for the other, again and again
    for (int i = 0; i < rounds; ++i) {
        while (word[0] != 2 * i + static_cast<int>(blockIdx.x)) {
        }
        if (threadIdx.x == 0) word[0] = 2 * i + static_cast<int>(blockIdx.x) + 1;
    }
}

// Every block but the last waits, all its threads at a barrier in each turn; the last one starts when others have had their turn.
__global__ void barrier_in_turn(volatile int* ready, bool sets) {
    if (blockIdx.x + 1 < gridDim.x) {
        while (__syncthreads_or(ready[0]) == 0) {
        }
        if (threadIdx.x == 0) ready[64 + blockIdx.x] = 1;
    } else if (sets && threadIdx.x == 0) {
        ready[0] = 1;
    }
}

__global__ void two_words(volatile int* ready, bool sets) {  // either of them would do
    if (blockIdx.x == 0) {
        while (ready[0] == 0 && ready[1] == 0) {
        }
        ready[64] = 1;
    } else if (sets && threadIdx.x == 0) {
        ready[1] = 1;
    }
}

__global__ void many_words(volatile int* ready, bool sets) {  // all of them are needed
    if (blockIdx.x == 0) {
        bool all;
        do {
            all = true;
            for (int i = 0; i < 16; ++i) all &= ready[i] != 0;
        } while (!all);
        ready[64] = 1;
    } else if (threadIdx.x < (sets ? 16 : 15)) {
        ready[threadIdx.x] = 1;
    }
}

__global__ void read_once(const int* ready, bool sets) {  // not volatile: the compiler reads it before the loop
    while (*ready == (sets ? 1 : 0)) {
    }
}

__global__ void computes(unsigned* out, int rounds) {  // for long, and nobody sees anything of it
    unsigned random = threadIdx.x;
    for (int i = 0; i < rounds; ++i) {
        random = random * 1664525u + 1013904223u;
        if (i % 4 == 0) __syncthreads();
    }
    out[threadIdx.x + 64] = random;
}

__global__ void large_blocks(int* out, int rounds) {  // 4 MB of local memory each, which they do not finish with in a turn
    constexpr int kWords = 4096;
    int words[kWords];
    for (int i = 0; i < kWords; i += 512) words[(i + rounds) % kWords] = i;
    int at = threadIdx.x % 8 * 512 + rounds % kWords;
    for (int i = 0; i < rounds; ++i) at = (words[at % kWords] + rounds) % kWords;
    if (at == -1) out[threadIdx.x] = at;
}

int main(int argc, char** argv) {
    int *out = nullptr, got[2] = {};
    const char* const what = argc > 1 ? argv[1] : "";
    const auto is = [&](const char* name) { return std::strcmp(what, name) == 0; };
    cudaMalloc(&out, 1024);
    if (!is("fresh")) cudaMemset(out, 0, 1024);
    if (is("many_blocks") || is("many_launches") || is("computes_for_ever")) {
        std::printf("begins\n");
        std::fflush(stdout);
    }
    if (is("grid_barrier") || is("grid_barrier_skipped")) {
        bool skips = is("grid_barrier_skipped");
        void* arguments[] = {&out, &skips};
        cudaLaunchCooperativeKernel(reinterpret_cast<void*>(grid_barrier), dim3(4), dim3(64), arguments, 0, nullptr);
    } else if (is("flag") || is("flag_unset")) {
        flag<<<2, 32>>>(out, is("flag"));
    } else if (is("barriers") || is("barriers_apart")) {
        barriers<<<1, 64>>>(out, is("barriers_apart"));
    } else if (is("unrolled")) {
        unrolled<<<1, 64>>>(out);
    } else if (is("fresh") || is("cleared")) {
        add<<<1, 32>>>(out);
    } else if (is("counts")) {
        std::printf("counting\n");
        std::fflush(stdout);
        counts<<<1, 32>>>(reinterpret_cast<unsigned*>(out));
    } else if (is("many_blocks")) {
        add<<<2'000'000'000, 32>>>(out);
    } else if (is("many_launches")) {
        while (cudaGetLastError() == cudaSuccess) add<<<1, 32>>>(out);
    } else if (is("gives_up")) {
        gives_up<<<2, 32>>>(out, 500'000);
    } else if (is("gives_up_in_time")) {
        gives_up_in_time<<<1, 32>>>(out, 2'000'000);
    } else if (is("gives_up_mbarrier")) {
        gives_up_mbarrier<<<1, 64>>>(out, 20'000);
    } else if (is("counts_turns") || is("counts_turns_unset")) {
        counts_turns<<<2, 32>>>(out, is("counts_turns"));
    } else if (is("backs_off") || is("backs_off_unset")) {
        backs_off<<<2, 32>>>(out, is("backs_off"));
    } else if (is("barrier_in_turn") || is("barrier_in_turn_unset")) {
        barrier_in_turn<<<7, 64>>>(out, is("barrier_in_turn"));
    } else if (is("two_words") || is("two_words_unset")) {
        two_words<<<2, 32>>>(out, is("two_words"));
    } else if (is("many_words") || is("many_words_unset")) {
        many_words<<<2, 32>>>(out, is("many_words"));
    } else if (is("read_once") || is("read_once_unset")) {
        read_once<<<2, 32>>>(out, is("read_once"));
    } else if (is("computes") || is("computes_for_ever")) {
        computes<<<2, 64>>>(reinterpret_cast<unsigned*>(out), is("computes") ? 300'000 : 2'000'000'000);
    } else if (is("large_blocks")) {
        large_blocks<<<160, 256>>>(out, 512);
        cudaDeviceSynchronize();
        rusage usage;
        getrusage(RUSAGE_SELF, &usage);
        std::printf("%ld MB\n", usage.ru_maxrss / 1024);
    } else if (is("ping_pong")) {
        ping_pong<<<2, 32>>>(out, 2'000);
    } else if (is("driver")) {
        int count = 0;
        cuInit(0);
        cuDeviceGetCount(&count);
        std::printf("%d devices\n", count);
    }
    const cudaError_t error = cudaMemcpy(got, out, sizeof got, cudaMemcpyDeviceToHost);
    std::printf("%s %d\n", cudaGetErrorName(error), got[0]);
    return error != cudaSuccess;
}

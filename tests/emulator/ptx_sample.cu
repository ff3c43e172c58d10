// What nvcc makes PTX of for test_ptx_parser.py: each construct once. It is compiled and parsed, never run.
#include <cuda_fp16.h>

#include <cstdio>

__constant__ int primes[6] = {2, 3, 5, 7, -1};
__device__ float weights[3] = {1.0f, -0.5f, 3.25f};
__device__ float* middle = &weights[1];

__device__ __noinline__ int twice(int x) { return 2 * x; }
__device__ __noinline__ int square(int x) { return x * x; }
__device__ int (*table[2])(int) = {twice, square};

__device__ __noinline__ void spin(unsigned* count) {
    asm volatile("{ .reg .pred p; $L: setp.ne.u32 p, %0, %0; @p bra $L; }" ::"r"(*count));
    asm volatile("{ .reg .pred p; $L: setp.eq.u32 p, %0, 0xffffffff; @p bra $L; }" ::"r"(*count));
}

extern "C" __global__ void __launch_bounds__(128) sample(int* out, const __half* halves, int which) {
    unsigned count = threadIdx.x;
    spin(&count);
    int value = table[which & 1](primes[which]);
    switch (which) {
        case 0: value = value * 3; break;
        case 1: value = value - out[2]; break;
        case 2: value = atomicAdd(out, 5); break;
        case 3: value = value ^ out[3]; break;
        case 4: value = __clz(value); break;
        case 5: value = __popc(value); break;
        case 6: value = value / (which + out[4]); break;
        case 7: value = __brev(value); break;
        case 8: value = value % 10; break;
        case 9: value = min(value, out[5]); break;
        case 10: value = value | count; break;
        case 11: value = __ffs(value); break;
        default: printf("which %d\n", which);
    }
    out[0] = value + __half2int_rn(__hmul(halves[0], halves[1])) + static_cast<int>(*middle);
}

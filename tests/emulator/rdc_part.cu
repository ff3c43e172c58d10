// The other object: see rdc_main.cu.
#include <cuda_runtime.h>

using Function = int (*)(int);

struct Shape {
    __device__ virtual ~Shape() {}
    __device__ virtual int area() const = 0;
};
struct Square : Shape {
    int side = 5;
    __device__ int area() const override { return side * side; }
};
struct Line : Shape {
    __device__ int area() const override { return 0; }
};

__device__ int table[4] = {10, 20, 30, 40};
__constant__ int scale = 1000;
static __device__ int local_twice(int x) { return 200 * x; }
template <class T>
__device__ __noinline__ T common(T x) {
    return x * 3;
}
__device__ __noinline__ int helper(int x) { return local_twice(x) + common(x); }
__device__ Function pick = helper;
__device__ Shape* make_shape(int kind) {
    if (kind) return new Square;
    return new Line;
}

__device__ int part_letter(int i) { return "part"[i]; }  // $str, which rdc_main.cu has too

namespace {
__global__ void tables(int* out) { out[threadIdx.x] = common(table[threadIdx.x & 3]); }
}  // namespace

extern "C" void run_tables(int* out, int first) {
    const int values[2] = {first, first + 1};
    cudaMemcpyToSymbol(table, values, sizeof values);
    tables<<<1, 32>>>(out);
    const int back[2] = {10, 20};
    cudaMemcpyToSymbol(table, back, sizeof back);
}

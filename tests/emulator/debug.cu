// Kernels for a build with -G: calls that are not inlined, locals in memory, templates, recursion, virtual functions, lambdas, printf,
// atomics.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <mma.h>
#include <cstdio>

namespace cg = cooperative_groups;

struct Shape {
    __device__ virtual float area() const = 0;
    __device__ virtual ~Shape() {}
};
struct Square : Shape {
    float side;
    __device__ explicit Square(float s) : side(s) {}
    __device__ float area() const override { return side * side; }
};
struct Circle : Shape {
    float radius;
    __device__ explicit Circle(float r) : radius(r) {}
    __device__ float area() const override { return 3.0f * radius * radius; }
};

__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

template <class T, int N>
struct Stack {
    T items[N];
    int top = 0;
    __device__ void push(T value) { items[top++] = value; }
    __device__ T pop() { return items[--top]; }
};

__global__ void calls(float* out) {
    const int i = threadIdx.x;
    Square square(i + 1.0f);
    Circle circle(i + 0.5f);
    Shape* shape = i % 2 ? static_cast<Shape*>(&square) : &circle;
    Stack<int, 16> stack;
    for (int k = 0; k < 8; ++k) stack.push(k * i);
    int sum = 0;
    while (stack.top > 0) sum += stack.pop();
    const auto twice = [&](float x) { return x * 2 + sum; };
    out[i] = twice(shape->area()) + fibonacci(i % 12);
}

__global__ void reduce(const float* x, float* out, int n) {
    __shared__ float part[32];
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<32>(block);
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += expf(-x[i] * x[i]);
    for (int step = 16; step > 0; step /= 2) mine += tile.shfl_down(mine, step);
    if (tile.thread_rank() == 0) part[threadIdx.x / 32] = mine;
    block.sync();
    if (threadIdx.x == 0) {
        for (int i = 1; i < blockDim.x / 32; ++i) mine += part[i];
        atomicAdd(out, mine);
    }
}

__global__ void tensor(const half* a, const half* b, float* c) {
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, half, row_major> left;
    fragment<matrix_b, 16, 16, 16, half, col_major> right;
    fragment<accumulator, 16, 16, 16, float> sum;
    fill_fragment(sum, 1.0f);
    load_matrix_sync(left, a, 16);
    load_matrix_sync(right, b, 16);
    mma_sync(sum, left, right, sum);
    store_matrix_sync(c, sum, 16, mem_row_major);
}

__global__ void text(const int* x) {
    if (threadIdx.x < 2) printf("thread %d has %d and %s\n", threadIdx.x, x[threadIdx.x], threadIdx.x ? "one" : "zero");
}
__global__ void fault(int* x, int n) {
    const int i = threadIdx.x + blockIdx.x * blockDim.x;
    x[i] = i;
    if (i > n) x[i] = -i;
}

extern "C" {
void run_calls(float* out) { calls<<<1, 32>>>(out); }
void run_reduce(const float* x, float* out, int n) { reduce<<<4, 128>>>(x, out, n); }
void run_tensor(const half* a, const half* b, float* c) { tensor<<<1, 32>>>(a, b, c); }
void run_text(const int* x) { text<<<1, 32>>>(x); }
void run_fault(int* x, int n) { fault<<<2, 32>>>(x, n); }
}

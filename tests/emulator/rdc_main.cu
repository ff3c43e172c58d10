// One of two objects that are linked on the device (nvcc -rdc=true): uses functions and variables of rdc_part.cu. Also: malloc in kernels,
// recursion, virtual functions.
#include <cuda_runtime.h>

#include <cstdint>

using Function = int (*)(int);

struct Shape {
    __device__ virtual ~Shape() {}
    __device__ virtual int area() const = 0;
};

extern __device__ int helper(int x);
extern __device__ int table[4];
extern __constant__ int scale;
extern __device__ Function pick;
extern __device__ Shape* make_shape(int kind);
extern __device__ int part_letter(int i);

static __device__ int local_twice(int x) { return 2 * x; }  // rdc_part.cu has another function of this name
template <class T>
__device__ __noinline__ T common(T x) {
    return x * 3;
}

namespace {

__global__ void across(int* out) {
    const int i = threadIdx.x;
    out[i] = helper(i) + table[i & 3] + local_twice(i) + common(i) + pick(i) + scale;
}

__device__ __noinline__ int letter(const char* text, int i) { return text[i]; }

// Two strings, $str and $str$1; the second name is what one of two objects with a $str would get if names were numbered blindly.
__global__ void texts(int* out) {
    const int i = threadIdx.x & 3;
    out[threadIdx.x] = (letter("main", i) * 256 + letter("text", i)) * 256 + part_letter(i);
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__global__ void shapes(int* out) {
    Shape* shape = make_shape(threadIdx.x & 1);
    out[threadIdx.x] = shape->area() + fibonacci(threadIdx.x & 7);
    delete shape;
}

struct Node {
    Node* next;
    int value;
};

__global__ void lists(int* out, int fault) {
    Node* head = nullptr;
    for (int i = 0; i < 4; ++i) {
        Node* node = static_cast<Node*>(malloc(sizeof(Node)));
        if (!node) return;
        node->next = head;
        if (fault != 1) node->value = i + static_cast<int>(threadIdx.x);
        head = node;
    }
    int sum = 0;
    for (Node* node = head; node; node = node->next) sum += node->value;
    out[threadIdx.x] = sum;
    if (fault == 2) sum = head[1].value;
    while (head && fault != 5) {
        Node* next = head->next;
        free(head);
        if (fault == 3) free(head);
        if (fault == 4) sum += head->value;
        head = next;
    }
    if (fault) out[threadIdx.x] += sum & 1;
}

__global__ void exhaust(int* out) { out[0] = malloc(1 << 20) != nullptr, out[1] = malloc(16 << 20) != nullptr; }

}  // namespace

extern "C" {
void run_across(int* out) { across<<<1, 32>>>(out); }
void run_texts(int* out) { texts<<<1, 32>>>(out); }
void run_shapes(int* out) { shapes<<<1, 32>>>(out); }
void run_lists(int* out, int fault) { lists<<<1, 32>>>(out, fault); }
void run_exhaust(int* out) { exhaust<<<1, 1>>>(out); }
}

// Host and device code together, one case by its name: each checks itself, prints PASSED and ends with 0, or says what is wrong.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                        \
    do {                                                                                   \
        const cudaError_t error_ = (call);                                                 \
        if (error_ != cudaSuccess) {                                                       \
            std::printf("line %d: %s: %s\n", __LINE__, #call, cudaGetErrorString(error_)); \
            std::exit(1);                                                                  \
        }                                                                                  \
    } while (0)

#define EXPECT(condition)                                               \
    do {                                                                \
        if (!(condition)) {                                             \
            std::printf("line %d: not so: %s\n", __LINE__, #condition); \
            std::exit(1);                                               \
        }                                                               \
    } while (0)

__managed__ int shared_count = 5;
__managed__ int shared_table[100];
__device__ int private_count = 1;

__global__ void use_managed(int** seen) {
    const int i = threadIdx.x;
    shared_table[i] += i;
    if (i == 0) {
        shared_count += 10;
        *seen = &shared_table[0];
    }
}

__global__ void add_to(int* values, int count, int addend) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) values[i] += addend;
}

__global__ void sum_atomically(int* total, const int* values, int count) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicAdd(total, values[i]);
}

void managed() {
    int** seen;
    CHECK(cudaMallocManaged(&seen, sizeof *seen));
    for (int i = 0; i < 100; ++i) shared_table[i] = 1000;
    use_managed<<<1, 100>>>(seen);
    CHECK(cudaDeviceSynchronize());
    EXPECT(shared_count == 15);
    for (int i = 0; i < 100; ++i) EXPECT(shared_table[i] == 1000 + i);
    EXPECT(*seen == &shared_table[0]);  // one address for both
    void* symbol;
    CHECK(cudaGetSymbolAddress(&symbol, shared_table));
    EXPECT(symbol == shared_table);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, &shared_count));
    EXPECT(attributes.type == cudaMemoryTypeManaged);
    // As an argument, like any pointer.
    add_to<<<1, 128>>>(shared_table, 100, 1);
    CHECK(cudaDeviceSynchronize());
    EXPECT(shared_table[99] == 1100);
    CHECK(cudaFree(seen));
}

void managed_out_of_bounds() {
    add_to<<<1, 128>>>(shared_table, 101, 1);
    CHECK(cudaDeviceSynchronize());
}

void registered() {
    // Not aligned to pages, beside other data of the heap.
    std::vector<int> values(3000), others(3000, 7);
    for (int i = 0; i < 3000; ++i) values[i] = i;
    CHECK(cudaHostRegister(values.data(), values.size() * sizeof(int), cudaHostRegisterMapped));
    int* device;
    CHECK(cudaHostGetDevicePointer(&device, values.data(), 0));
    add_to<<<12, 256>>>(device, 3000, 5);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 3000; ++i) EXPECT(values[i] == i + 5);
    int same_pointer;
    CHECK(cudaDeviceGetAttribute(&same_pointer, cudaDevAttrCanUseHostPointerForRegisteredMem, 0));
    if (same_pointer)
        add_to<<<12, 256>>>(values.data(), 3000, -5);
    else
        add_to<<<12, 256>>>(device, 3000, -5);
    int *total, *inner;
    CHECK(cudaHostAlloc(&total, sizeof(int), cudaHostAllocMapped));
    *total = 0;
    CHECK(cudaHostGetDevicePointer(&inner, values.data() + 1000, 0));
    sum_atomically<<<1, 128>>>(total, inner, 100);
    CHECK(cudaDeviceSynchronize());
    EXPECT(values[17] == 17 && *total == (1000 + 1099) * 50);
    cudaPointerAttributes attributes;
    CHECK(cudaPointerGetAttributes(&attributes, values.data() + 5));
    EXPECT(attributes.type == cudaMemoryTypeHost && attributes.hostPointer == values.data() + 5);
    // Between registered memory and the device, whatever the direction is called.
    int* on_device;
    CHECK(cudaMalloc(&on_device, 400));
    CHECK(cudaMemcpy(on_device, values.data(), 400, cudaMemcpyDefault));
    CHECK(cudaMemset(values.data(), 0, 400));
    CHECK(cudaMemcpy(values.data(), on_device, 400, cudaMemcpyDeviceToHost));
    EXPECT(values[99] == 99 && others[0] == 7);
    CHECK(cudaHostUnregister(values.data()));
    CHECK(cudaFreeHost(total));
    CHECK(cudaFree(on_device));
}

void registered_out_of_bounds() {
    std::vector<int> values(256);
    CHECK(cudaHostRegister(values.data(), 255 * sizeof(int), cudaHostRegisterDefault));
    add_to<<<1, 256>>>(values.data(), 256, 1);
    CHECK(cudaDeviceSynchronize());
}

void unregistered() {
    std::vector<int> values(256);
    CHECK(cudaHostRegister(values.data(), 1024, cudaHostRegisterDefault));
    CHECK(cudaHostUnregister(values.data()));
    add_to<<<1, 256>>>(values.data(), 256, 1);
    CHECK(cudaDeviceSynchronize());
}

__global__ void count_up(int* seen) {
    private_count += 1;
    shared_count += 1;
    *seen = private_count;
}

void devices() {
    shared_count = 0;
    for (int round = 0; round < 2; ++round) {
        for (int device = 0; device < 2; ++device) {
            CHECK(cudaSetDevice(device));
            int *seen, value;
            CHECK(cudaMalloc(&seen, sizeof *seen));
            count_up<<<1, 1>>>(seen);
            CHECK(cudaMemcpy(&value, seen, sizeof value, cudaMemcpyDeviceToHost));
            EXPECT(value == 2 + round);
            CHECK(cudaMemcpyFromSymbol(&value, private_count, sizeof value));
            EXPECT(value == 2 + round && shared_count == 1 + device + 2 * round);
            CHECK(cudaFree(seen));
        }
    }
}

struct Case {
    const char* name;
    void (*run)();
};
#define CASE(name) {#name, name}
const Case kCases[] = {CASE(managed), CASE(managed_out_of_bounds), CASE(registered), CASE(registered_out_of_bounds), CASE(unregistered),
                       CASE(devices)};

int main(int argc, char** argv) {
    for (const Case& each : kCases) {
        if (argc < 2 || std::strcmp(each.name, argv[1]) != 0) continue;
        each.run();
        std::puts("PASSED");
        return 0;
    }
    std::puts("no such case");
    return 2;
}

// What the programs of this folder share: errors end the program, comparisons are counted, and the end says PASSED or FAILED.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CUDA_CHECK(call)                                                                                              \
    do {                                                                                                              \
        const cudaError_t error_ = (call);                                                                            \
        if (error_ != cudaSuccess) {                                                                                  \
            std::printf("%s:%d: %s: %s\n", __FILE__, __LINE__, cudaGetErrorName(error_), cudaGetErrorString(error_)); \
            std::exit(1);                                                                                             \
        }                                                                                                             \
    } while (0)

inline int num_wrong = 0;

inline void expect(bool is_right, const char* what) {
    if (is_right) return;
    ++num_wrong;
    std::printf("wrong: %s\n", what);
}

template <class T>
void expect_equal(const std::vector<T>& got, const std::vector<T>& wanted, const char* what) {
    size_t at = 0;
    while (at < wanted.size() && at < got.size() && got[at] == wanted[at]) ++at;
    if (at == wanted.size() && got.size() == wanted.size()) return;
    ++num_wrong;
    std::printf("wrong: %s at %zu of %zu\n", what, at, wanted.size());
}

// Relative to the size of what is wanted; a NaN is wrong.
inline void expect_near(const std::vector<float>& got, const std::vector<float>& wanted, float tolerance, const char* what) {
    for (size_t i = 0; i < wanted.size(); ++i) {
        if (std::fabs(got[i] - wanted[i]) <= tolerance * std::fmax(1.0f, std::fabs(wanted[i]))) continue;
        ++num_wrong;
        std::printf("wrong: %s at %zu of %zu: %g, and %g is right\n", what, i, wanted.size(), got[i], wanted[i]);
        return;
    }
}

// Device memory that lives as long as the object.
template <class T>
class DeviceVector {
public:
    explicit DeviceVector(size_t size) : size_(size) { CUDA_CHECK(cudaMalloc(&data_, size * sizeof(T))); }
    explicit DeviceVector(const std::vector<T>& values) : DeviceVector(values.size()) {
        CUDA_CHECK(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
    }
    DeviceVector(size_t size, int byte) : DeviceVector(size) { CUDA_CHECK(cudaMemset(data_, byte, size * sizeof(T))); }
    DeviceVector(const DeviceVector&) = delete;
    ~DeviceVector() { cudaFree(data_); }
    T* data() const { return data_; }
    std::vector<T> to_host() const {
        std::vector<T> values(size_);
        CUDA_CHECK(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    size_t size_;
    T* data_ = nullptr;
};

// The same numbers in every run.
inline uint32_t next_random(uint32_t& state) { return state = state * 1664525u + 1013904223u; }

inline int finish() {
    CUDA_CHECK(cudaDeviceSynchronize());
    std::printf(num_wrong == 0 ? "PASSED\n" : "FAILED: %d wrong\n", num_wrong);
    return num_wrong == 0 ? 0 : 1;
}

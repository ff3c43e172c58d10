// What kernels do with sums whose place in Y is known: the bias is the caller's, then residual, Z and activation.
#pragma once

#include <cstdint>

#include "common/activations.cuh"
#include "common/half_types.cuh"
#include "common/store_rounded.cuh"

namespace aicf::gemm_bias_act {

// One problem, beside its tensor maps and its tiles.
struct OutputProblem {
    const void* bias;  // [n] or null
    void* y;  // [m, n], row stride ldy
    void* z;  // [m, n], row stride ldz, or null
    std::int64_t ldy, ldz;
    int m, n;
    int act;
    bool has_chunks;  // rows of y and z start on 16-byte boundaries
    const void* residual;  // [m, n], row stride ldresidual, or null
    std::int64_t ldresidual;
};

template <class Element>
__device__ __forceinline__ float read_element(const void* base, std::int64_t index) {
    return to_float(static_cast<const Element*>(base)[index]);
}

template <>
__device__ __forceinline__ float read_element<Tf32>(const void* base, std::int64_t index) {
    return static_cast<const float*>(base)[index];
}

// Applies an activation, which is the same for all threads, to what a thread holds of a slab.
template <int kAct, int kCount>
__device__ __forceinline__ void activate_slab(float* z) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) z[i] = apply_rough_activation<kAct>(z[i]);
}

template <int kCount>
__device__ __forceinline__ void activate_slab(int act, float* z) {
    switch (act) {
        case AICF_ACT_RELU: activate_slab<AICF_ACT_RELU, kCount>(z); break;
        case AICF_ACT_GELU_TANH: activate_slab<AICF_ACT_GELU_TANH, kCount>(z); break;
        case AICF_ACT_GELU_ERF: activate_slab<AICF_ACT_GELU_ERF, kCount>(z); break;
        case AICF_ACT_SILU: activate_slab<AICF_ACT_SILU, kCount>(z); break;
        default: break;
    }
}

// Four neighbouring columns of a row of D' + bias on their way to Y and Z: what is outside is left out.
template <class Element>
__device__ __forceinline__ void finish_four(const OutputProblem& problem, int row, int column, float (&z)[4]) {
    if (problem.residual != nullptr) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (column + i < problem.n) z[i] += read_element<Element>(problem.residual, row * problem.ldresidual + column + i);
        }
    }
    if (problem.z != nullptr) store_four_rounded<Element>(problem.z, problem.ldz, problem.n, problem.has_chunks, row, column, z);
    activate_slab<4>(problem.act, z);
    store_four_rounded<Element>(problem.y, problem.ldy, problem.n, problem.has_chunks, row, column, z);
}

}  // namespace aicf::gemm_bias_act

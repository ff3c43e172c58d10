// Matrix instructions of one warp (sm_80): fragments by ldmatrix, products by mma.sync m16n8k16 with fp32 sums; stmatrix (sm_90).
//
// A lane's place in a fragment (PTX ISA, "Matrix Fragments for mma.m16n8k16"), with group = lane / 4 and pair = lane % 4 * 2:
//   A [16, 16]: words 0..3 hold (group, pair), (group + 8, pair), (group, pair + 8), (group + 8, pair + 8), two neighbouring columns each
//   B [16, 8]:  words 0, 1 hold rows pair and pair + 8 of column group, two neighbouring rows each
//   C [16, 8]:  sums 0, 1 lie at (group, pair) and (group, pair + 1); 2, 3 at (group + 8, pair) and (group + 8, pair + 1)
#pragma once

#include <cstdint>

#include "common/half_types.cuh"
#include "common/mbarrier.cuh"

namespace aicf {

// Four 8 x 8 matrices of 16-bit elements: lanes 8i to 8i + 7 give the shared addresses of the rows of matrix i (16 bytes each, aligned),
// word i of each lane gets matrix i's row lane / 4, columns lane % 4 * 2 and the next.
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], std::uint32_t row_address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row_address)
                 : "memory");
}

// The same with each matrix transposed on the way: word i holds rows lane % 4 * 2 and the next of column lane / 4.
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&words)[4], std::uint32_t row_address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(row_address)
                 : "memory");
}

// The way back of load_matrices (sm_90).
__device__ __forceinline__ void store_matrices(std::uint32_t row_address, const std::uint32_t (&words)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}

// The same with each matrix transposed on the way: word i holds rows lane % 4 * 2 and the next of column lane / 4.
__device__ __forceinline__ void store_matrices_transposed(std::uint32_t row_address, const std::uint32_t (&words)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(words[0]), "r"(words[1]),
                 "r"(words[2]), "r"(words[3])
                 : "memory");
}

// sums += A B.
template <class Element>
__device__ __forceinline__ void multiply_warp(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1);

template <>
__device__ __forceinline__ void multiply_warp<Bf16>(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void multiply_warp<Fp16>(float (&sums)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace aicf

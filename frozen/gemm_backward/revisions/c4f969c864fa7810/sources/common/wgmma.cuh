// Matrix instructions of a warp group (wgmma, sm_90a): D[64, N] += A[64, k] B[k, N] with fp32 sums, where k is 32 bytes: 16 of 16-bit
// floats, 8 of TF32. A and B lie in shared memory, as tensor copies with the 128-byte swizzle leave them.
//
// D: lane l of warp w of the group holds rows 16 w + l / 4 (+ 8) and columns 8 j + l % 4 * 2 (+ 1): sums 4 j + 0, 1 in the first row, 4 j +
// 2, 3 in the other (PTX ISA, "Register Fragments for wgmma").
#pragma once

#include <cstdint>

#include "common/half_types.cuh"
#include "common/mbarrier.cuh"

namespace aicf {

inline constexpr int kSwizzleBytes = 128;  // a row of a swizzled box
inline constexpr int kSwizzleAtomBytes = 8 * kSwizzleBytes;  // 8 rows: the swizzle's period, and the alignment of a tile

// Descriptor of a tile in shared memory, 128-byte swizzle. Offsets in bytes.
//   K-major, [rows, 64 k]:  kStrideBytes = 1024 from 8 rows to the next 8; k + 16 lies 32 bytes further; kLeadingBytes is not used.
//   N-major, [k, 64 n]:     kStrideBytes = 1024 from 8 k to the next 8; kLeadingBytes from 64 n to the next 64; k + 16 lies 2048 bytes
//   further.
template <int kLeadingBytes, int kStrideBytes>
__device__ __forceinline__ std::uint64_t describe_tile(const void* tile) {
    constexpr std::uint64_t kSwizzle128 = 1;
    constexpr std::uint64_t kFixed = std::uint64_t{kLeadingBytes >> 4} << 16 | std::uint64_t{kStrideBytes >> 4} << 32 | kSwizzle128 << 62;
    return kFixed | (find_shared_address(tile) & 0x3ffffu) >> 4;
}

// The descriptor of what lies kBytes further.
template <int kBytes>
__device__ __forceinline__ std::uint64_t advance_descriptor(std::uint64_t descriptor) {
    static_assert(kBytes % 16 == 0, "a descriptor counts in 16 bytes");
    return descriptor + (kBytes >> 4);
}

// Orders this warp group's register accesses, and its ordinary accesses of shared memory made visible before, in front of its next wgmma.
__device__ __forceinline__ void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ __forceinline__ void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most kNumPending of the latest groups of products are unfinished.
template <int kNumPending>
__device__ __forceinline__ void wait_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kNumPending) : "memory");
}

// Keeps the compiler from moving its own accesses of the sums over this point.
template <int kCount>
__device__ __forceinline__ void pin_sums(float (&sums)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(sums[i])::"memory");
}

// D = A B + (keep ? D : 0), queued. kSums = N / 2. Transposed operands are stored along their rows of D (A) or columns of D (B), the others
// along k.
template <class Element, bool kTransposedA, bool kTransposedB, int kSums>
struct GroupProduct;

// clang-format off
#define AICF_SUMS_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define AICF_SUMS_8(i) AICF_SUMS_4(i), AICF_SUMS_4(i + 4)
#define AICF_SUMS_12(i) AICF_SUMS_8(i), AICF_SUMS_4(i + 8)
#define AICF_SUMS_16(i) AICF_SUMS_12(i), AICF_SUMS_4(i + 12)
#define AICF_SUMS_20(i) AICF_SUMS_16(i), AICF_SUMS_4(i + 16)
#define AICF_SUMS_24(i) AICF_SUMS_20(i), AICF_SUMS_4(i + 20)
#define AICF_SUMS_28(i) AICF_SUMS_24(i), AICF_SUMS_4(i + 24)
#define AICF_SUMS_32(i) AICF_SUMS_28(i), AICF_SUMS_4(i + 28)
#define AICF_SUMS_36(i) AICF_SUMS_32(i), AICF_SUMS_4(i + 32)
#define AICF_SUMS_40(i) AICF_SUMS_36(i), AICF_SUMS_4(i + 36)
#define AICF_SUMS_44(i) AICF_SUMS_40(i), AICF_SUMS_4(i + 40)
#define AICF_SUMS_48(i) AICF_SUMS_44(i), AICF_SUMS_4(i + 44)
#define AICF_SUMS_52(i) AICF_SUMS_48(i), AICF_SUMS_4(i + 48)
#define AICF_SUMS_56(i) AICF_SUMS_52(i), AICF_SUMS_4(i + 52)
#define AICF_SUMS_60(i) AICF_SUMS_56(i), AICF_SUMS_4(i + 56)
#define AICF_SUMS_64(i) AICF_SUMS_60(i), AICF_SUMS_4(i + 60)
#define AICF_SUMS_68(i) AICF_SUMS_64(i), AICF_SUMS_4(i + 64)
#define AICF_SUMS_72(i) AICF_SUMS_68(i), AICF_SUMS_4(i + 68)
#define AICF_SUMS_76(i) AICF_SUMS_72(i), AICF_SUMS_4(i + 72)
#define AICF_SUMS_80(i) AICF_SUMS_76(i), AICF_SUMS_4(i + 76)
#define AICF_SUMS_84(i) AICF_SUMS_80(i), AICF_SUMS_4(i + 80)
#define AICF_SUMS_88(i) AICF_SUMS_84(i), AICF_SUMS_4(i + 84)
#define AICF_SUMS_92(i) AICF_SUMS_88(i), AICF_SUMS_4(i + 88)
#define AICF_SUMS_96(i) AICF_SUMS_92(i), AICF_SUMS_4(i + 92)
#define AICF_SUMS_100(i) AICF_SUMS_96(i), AICF_SUMS_4(i + 96)
#define AICF_SUMS_104(i) AICF_SUMS_100(i), AICF_SUMS_4(i + 100)
#define AICF_SUMS_108(i) AICF_SUMS_104(i), AICF_SUMS_4(i + 104)
#define AICF_SUMS_112(i) AICF_SUMS_108(i), AICF_SUMS_4(i + 108)
#define AICF_SUMS_116(i) AICF_SUMS_112(i), AICF_SUMS_4(i + 112)
#define AICF_SUMS_120(i) AICF_SUMS_116(i), AICF_SUMS_4(i + 116)
#define AICF_SUMS_124(i) AICF_SUMS_120(i), AICF_SUMS_4(i + 120)
#define AICF_SUMS_128(i) AICF_SUMS_124(i), AICF_SUMS_4(i + 124)
#define AICF_NAMES_4 "%0, %1, %2, %3"
#define AICF_NAMES_8 AICF_NAMES_4 ", %4, %5, %6, %7"
#define AICF_NAMES_12 AICF_NAMES_8 ", %8, %9, %10, %11"
#define AICF_NAMES_16 AICF_NAMES_12 ", %12, %13, %14, %15"
#define AICF_NAMES_20 AICF_NAMES_16 ", %16, %17, %18, %19"
#define AICF_NAMES_24 AICF_NAMES_20 ", %20, %21, %22, %23"
#define AICF_NAMES_28 AICF_NAMES_24 ", %24, %25, %26, %27"
#define AICF_NAMES_32 AICF_NAMES_28 ", %28, %29, %30, %31"
#define AICF_NAMES_36 AICF_NAMES_32 ", %32, %33, %34, %35"
#define AICF_NAMES_40 AICF_NAMES_36 ", %36, %37, %38, %39"
#define AICF_NAMES_44 AICF_NAMES_40 ", %40, %41, %42, %43"
#define AICF_NAMES_48 AICF_NAMES_44 ", %44, %45, %46, %47"
#define AICF_NAMES_52 AICF_NAMES_48 ", %48, %49, %50, %51"
#define AICF_NAMES_56 AICF_NAMES_52 ", %52, %53, %54, %55"
#define AICF_NAMES_60 AICF_NAMES_56 ", %56, %57, %58, %59"
#define AICF_NAMES_64 AICF_NAMES_60 ", %60, %61, %62, %63"
#define AICF_NAMES_68 AICF_NAMES_64 ", %64, %65, %66, %67"
#define AICF_NAMES_72 AICF_NAMES_68 ", %68, %69, %70, %71"
#define AICF_NAMES_76 AICF_NAMES_72 ", %72, %73, %74, %75"
#define AICF_NAMES_80 AICF_NAMES_76 ", %76, %77, %78, %79"
#define AICF_NAMES_84 AICF_NAMES_80 ", %80, %81, %82, %83"
#define AICF_NAMES_88 AICF_NAMES_84 ", %84, %85, %86, %87"
#define AICF_NAMES_92 AICF_NAMES_88 ", %88, %89, %90, %91"
#define AICF_NAMES_96 AICF_NAMES_92 ", %92, %93, %94, %95"
#define AICF_NAMES_100 AICF_NAMES_96 ", %96, %97, %98, %99"
#define AICF_NAMES_104 AICF_NAMES_100 ", %100, %101, %102, %103"
#define AICF_NAMES_108 AICF_NAMES_104 ", %104, %105, %106, %107"
#define AICF_NAMES_112 AICF_NAMES_108 ", %108, %109, %110, %111"
#define AICF_NAMES_116 AICF_NAMES_112 ", %112, %113, %114, %115"
#define AICF_NAMES_120 AICF_NAMES_116 ", %116, %117, %118, %119"
#define AICF_NAMES_124 AICF_NAMES_120 ", %120, %121, %122, %123"
#define AICF_NAMES_128 AICF_NAMES_124 ", %124, %125, %126, %127"

#define AICF_GROUP_PRODUCT(ELEMENT, TYPE, SUMS, N, A, B, KEEP, TRANSPOSED_A, TRANSPOSED_B)                                            \
    template <bool kTransposedA, bool kTransposedB>                                                                                  \
    struct GroupProduct<ELEMENT, kTransposedA, kTransposedB, SUMS> {                                                                 \
        __device__ static __forceinline__ void run(float (&d)[SUMS], std::uint64_t a, std::uint64_t b, int keep) {                   \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" KEEP ", 0;\n"                                                         \
                         "wgmma.mma_async.sync.aligned.m64n" N "k16.f32." TYPE "." TYPE " {" AICF_NAMES_##SUMS "}, %" A ", %" B      \
                         ", p, 1, 1, %" TRANSPOSED_A ", %" TRANSPOSED_B ";\n}"                                                       \
                         : AICF_SUMS_##SUMS(0)                                                                                       \
                         : "l"(a), "l"(b), "r"(keep), "n"(kTransposedA ? 1 : 0), "n"(kTransposedB ? 1 : 0));                         \
        }                                                                                                                            \
    };

// TF32 has no transposed operands: both lie along k.
#define AICF_GROUP_PRODUCT_TF32(SUMS, N, A, B, KEEP)                                                                                  \
    template <>                                                                                                                      \
    struct GroupProduct<Tf32, false, false, SUMS> {                                                                                  \
        __device__ static __forceinline__ void run(float (&d)[SUMS], std::uint64_t a, std::uint64_t b, int keep) {                   \
            asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" KEEP ", 0;\n"                                                         \
                         "wgmma.mma_async.sync.aligned.m64n" N "k8.f32.tf32.tf32 {" AICF_NAMES_##SUMS "}, %" A ", %" B ", p, 1, 1;\n}" \
                         : AICF_SUMS_##SUMS(0)                                                                                       \
                         : "l"(a), "l"(b), "r"(keep));                                                                               \
        }                                                                                                                            \
    };

#define AICF_GROUP_PRODUCTS(SUMS, N, A, B, KEEP, TRANSPOSED_A, TRANSPOSED_B)                        \
    AICF_GROUP_PRODUCT(Bf16, "bf16", SUMS, N, A, B, KEEP, TRANSPOSED_A, TRANSPOSED_B)              \
    AICF_GROUP_PRODUCT(Fp16, "f16", SUMS, N, A, B, KEEP, TRANSPOSED_A, TRANSPOSED_B)               \
    AICF_GROUP_PRODUCT_TF32(SUMS, N, A, B, KEEP)
AICF_GROUP_PRODUCTS(4, "8", "4", "5", "6", "7", "8")
AICF_GROUP_PRODUCTS(8, "16", "8", "9", "10", "11", "12")
AICF_GROUP_PRODUCTS(12, "24", "12", "13", "14", "15", "16")
AICF_GROUP_PRODUCTS(16, "32", "16", "17", "18", "19", "20")
AICF_GROUP_PRODUCTS(20, "40", "20", "21", "22", "23", "24")
AICF_GROUP_PRODUCTS(24, "48", "24", "25", "26", "27", "28")
AICF_GROUP_PRODUCTS(28, "56", "28", "29", "30", "31", "32")
AICF_GROUP_PRODUCTS(32, "64", "32", "33", "34", "35", "36")
AICF_GROUP_PRODUCTS(36, "72", "36", "37", "38", "39", "40")
AICF_GROUP_PRODUCTS(40, "80", "40", "41", "42", "43", "44")
AICF_GROUP_PRODUCTS(44, "88", "44", "45", "46", "47", "48")
AICF_GROUP_PRODUCTS(48, "96", "48", "49", "50", "51", "52")
AICF_GROUP_PRODUCTS(52, "104", "52", "53", "54", "55", "56")
AICF_GROUP_PRODUCTS(56, "112", "56", "57", "58", "59", "60")
AICF_GROUP_PRODUCTS(60, "120", "60", "61", "62", "63", "64")
AICF_GROUP_PRODUCTS(64, "128", "64", "65", "66", "67", "68")
AICF_GROUP_PRODUCTS(68, "136", "68", "69", "70", "71", "72")
AICF_GROUP_PRODUCTS(72, "144", "72", "73", "74", "75", "76")
AICF_GROUP_PRODUCTS(76, "152", "76", "77", "78", "79", "80")
AICF_GROUP_PRODUCTS(80, "160", "80", "81", "82", "83", "84")
AICF_GROUP_PRODUCTS(84, "168", "84", "85", "86", "87", "88")
AICF_GROUP_PRODUCTS(88, "176", "88", "89", "90", "91", "92")
AICF_GROUP_PRODUCTS(92, "184", "92", "93", "94", "95", "96")
AICF_GROUP_PRODUCTS(96, "192", "96", "97", "98", "99", "100")
AICF_GROUP_PRODUCTS(100, "200", "100", "101", "102", "103", "104")
AICF_GROUP_PRODUCTS(104, "208", "104", "105", "106", "107", "108")
AICF_GROUP_PRODUCTS(108, "216", "108", "109", "110", "111", "112")
AICF_GROUP_PRODUCTS(112, "224", "112", "113", "114", "115", "116")
AICF_GROUP_PRODUCTS(116, "232", "116", "117", "118", "119", "120")
AICF_GROUP_PRODUCTS(120, "240", "120", "121", "122", "123", "124")
AICF_GROUP_PRODUCTS(124, "248", "124", "125", "126", "127", "128")
AICF_GROUP_PRODUCTS(128, "256", "128", "129", "130", "131", "132")

#undef AICF_GROUP_PRODUCTS
#undef AICF_GROUP_PRODUCT_TF32
#undef AICF_GROUP_PRODUCT
#undef AICF_NAMES_4
#undef AICF_NAMES_8
#undef AICF_NAMES_12
#undef AICF_NAMES_16
#undef AICF_NAMES_20
#undef AICF_NAMES_24
#undef AICF_NAMES_28
#undef AICF_NAMES_32
#undef AICF_NAMES_36
#undef AICF_NAMES_40
#undef AICF_NAMES_44
#undef AICF_NAMES_48
#undef AICF_NAMES_52
#undef AICF_NAMES_56
#undef AICF_NAMES_60
#undef AICF_NAMES_64
#undef AICF_NAMES_68
#undef AICF_NAMES_72
#undef AICF_NAMES_76
#undef AICF_NAMES_80
#undef AICF_NAMES_84
#undef AICF_NAMES_88
#undef AICF_NAMES_92
#undef AICF_NAMES_96
#undef AICF_NAMES_100
#undef AICF_NAMES_104
#undef AICF_NAMES_108
#undef AICF_NAMES_112
#undef AICF_NAMES_116
#undef AICF_NAMES_120
#undef AICF_NAMES_124
#undef AICF_NAMES_128
#undef AICF_SUMS_4
#undef AICF_SUMS_8
#undef AICF_SUMS_12
#undef AICF_SUMS_16
#undef AICF_SUMS_20
#undef AICF_SUMS_24
#undef AICF_SUMS_28
#undef AICF_SUMS_32
#undef AICF_SUMS_36
#undef AICF_SUMS_40
#undef AICF_SUMS_44
#undef AICF_SUMS_48
#undef AICF_SUMS_52
#undef AICF_SUMS_56
#undef AICF_SUMS_60
#undef AICF_SUMS_64
#undef AICF_SUMS_68
#undef AICF_SUMS_72
#undef AICF_SUMS_76
#undef AICF_SUMS_80
#undef AICF_SUMS_84
#undef AICF_SUMS_88
#undef AICF_SUMS_92
#undef AICF_SUMS_96
#undef AICF_SUMS_100
#undef AICF_SUMS_104
#undef AICF_SUMS_108
#undef AICF_SUMS_112
#undef AICF_SUMS_116
#undef AICF_SUMS_120
#undef AICF_SUMS_124
#undef AICF_SUMS_128
// clang-format on

template <class Element, bool kTransposedA, bool kTransposedB, int kSums>
__device__ __forceinline__ void multiply_group(float (&sums)[kSums], std::uint64_t a, std::uint64_t b, bool keep) {
    GroupProduct<Element, kTransposedA, kTransposedB, kSums>::run(sums, a, b, keep ? 1 : 0);
}

}  // namespace aicf

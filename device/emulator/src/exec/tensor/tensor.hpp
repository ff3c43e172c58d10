// Matrix instructions: their forms, as the decoder makes them and the interpreter runs them, and the arithmetic of one multiplication.
//
// Operands of mma and wgmma lie in *tiles*. A tile is 8 rows of 4 cells; lane 4 r + c of a register holds cell c of row r, 4 bytes (8 for
// f64). So one register of a warp is an 8x8 matrix of 16-bit elements in row-major order, and ldmatrix loads one tile a register. A is
// tiles of rows of A; B is tiles of its columns, which are rows of its transpose. (PTX ISA, "Matrix Fragments for mma".)
#pragma once

#include <cstdint>
#include <cstring>

namespace aicf::emu {

enum class Elem : uint8_t { kF16, kBF16, kTF32, kF64, kE4M3, kE5M2, kS8, kU8, kS4, kU4, kB1, kF32, kS32 };

constexpr uint32_t bits_of(Elem elem) {
    switch (elem) {
        case Elem::kF16:
        case Elem::kBF16: return 16;
        case Elem::kTF32:
        case Elem::kF32:
        case Elem::kS32: return 32;
        case Elem::kF64: return 64;
        case Elem::kS4:
        case Elem::kU4: return 4;
        case Elem::kB1: return 1;
        default: return 8;
    }
}
constexpr bool is_integer(Elem elem) { return (elem >= Elem::kS8 && elem <= Elem::kB1) || elem == Elem::kS32; }
constexpr bool is_float8(Elem elem) { return elem == Elem::kE4M3 || elem == Elem::kE5M2; }

// What a matrix instruction is, as words at the head of its list of operands.
struct MatrixForm {
    uint8_t m = 0;
    uint8_t n8 = 0;  // n / 8
    uint16_t k = 0;
    Elem a : 4 = Elem::kF16, b : 4 = Elem::kF16, c : 4 = Elem::kF32, d : 4 = Elem::kF32;
    uint8_t satfinite : 1 = 0, bit_and : 1 = 0;  // b1: and, not xor
    uint8_t a_col : 1 = 0, b_row : 1 = 0;        // layouts, where they are no matter of the fragment alone
    uint8_t quad_pairs : 1 = 0;                  // m8n8k4 of f16: four multiplications, of 8 threads each
    uint8_t sparse : 1 = 0, selector : 2 = 0;    // mma.sp: which threads hold the metadata
    uint8_t fragment = 0;                        // wmma.load, wmma.store: which matrix, 'a', 'b' or 'c'
    uint8_t negate_a : 1 = 0, negate_b : 1 = 0;  // wgmma
    uint8_t a_in_registers : 1 = 0;
    uint8_t unused[3] = {};

    uint32_t n() const { return n8 * 8u; }
};
static_assert(sizeof(MatrixForm) == 12);
constexpr uint32_t kFormWords = 3;

inline void put_form(const MatrixForm& form, uint32_t* words) { std::memcpy(words, &form, sizeof form); }
inline MatrixForm get_form(const uint32_t* words) {
    MatrixForm form;
    std::memcpy(static_cast<void*>(&form), words, sizeof form);
    return form;
}

// Registers of a fragment (of 64 bits for f64, else of 32), without the copies that wmma keeps of a small one.
constexpr uint32_t operand_registers(uint32_t rows, uint32_t k, Elem elem) {
    const uint32_t cell_bits = elem == Elem::kF64 ? 64 : 32;
    return rows * k * bits_of(elem) / (32 * cell_bits);
}
constexpr uint32_t accumulator_registers(uint32_t m, uint32_t n, Elem elem) { return m * n / (elem == Elem::kF16 ? 64 : 32); }

// How a tensor core adds up: products are exact, every term (the products of a block of k, and the accumulator) is aligned to the largest
// exponent among them and cut off `fraction_bits` below it, the cut terms are added exactly, and the sum is rounded once: to the nearest
// even for f16, towards zero to `result_bits` for f32. An exponent is that of the encoding: those of a product's factors are added without
// normalising the product, and a subnormal has the least one of its format.
//
// Sources: Fasi, Higham, Mikaitis, Pranesh, "Numerical behavior of NVIDIA tensor cores" (2021), for the alignment and truncation; Khattak,
// Mikaitis, "Accurate Models of NVIDIA Tensor Cores" (arXiv 2512.07004), and Xie, Wang, Yang, Yang, "MMA-Sim" (arXiv 2511.10909), for the
// widths of Hopper: 25 bits, and 13 for the 8-bit formats in wgmma. tests/goldens/tensor.npz holds what an H200 gave: all
// of it is met bit for bit.
struct Accumulation {
    uint32_t fraction_bits = 25;
    uint32_t result_bits = 23;  // of an f32 result
};

inline namespace AICF_ENGINE_NAMESPACE {

// One operand of a multiplication, unpacked: values as f32 (without their exponents' extremes: those are looked after by `exponent`), or as
// integers. `exponent` is that of the encoding; kZeroExponent for a zero, kSpecialExponent for infinity and NaN.
// A sum of two exponents tells what their product is: with a special factor it is above kSpecialExponent / 2, with a zero else below
// kZeroExponent / 2.
constexpr int32_t kZeroExponent = -(1 << 18), kSpecialExponent = 1 << 20;

// Unpacks `count` packed elements: value[i * stride], exponent[i * stride].
void unpack_floats(Elem elem, const uint8_t* packed, uint32_t count, float* value, int32_t* exponent, uint32_t stride);
// A matrix of `columns` packed columns of `depth` elements -> value[depth][columns], exponent[depth][columns].
void unpack_columns(Elem elem, const uint8_t* packed, uint32_t columns, uint32_t depth, float* value, int32_t* exponent);
void unpack_integers(Elem elem, const uint8_t* packed, uint32_t count, int32_t* value, uint32_t stride);

// d[m][n] = a[m][k] b[k][n] + c[m][n] with floating-point factors of at most 32 bits; n is a multiple of 8. c and d are f32, or f16 in the
// low half of each word. c may be d.
struct FloatProblem {
    uint32_t m, n, k;
    const float* a;               // [m][k]
    const int32_t* a_exponent;
    const float* b;               // [k][n]
    const int32_t* b_exponent;
    bool c_is_f16, d_is_f16;
    Accumulation accumulation;
};
void multiply_floats(const FloatProblem& problem, const uint32_t* c, uint32_t* d);

// The same for all forms of mma but quad pairs: a[m][k] and b[n][k] packed as the fragments have them, c and d as 32-bit words (f16 in the
// low half), or doubles.
void multiply(const MatrixForm& form, const uint8_t* a, const uint8_t* b, const void* c, void* d);

// Sparse A: of every four units of k (an element, of tf32 every two; of the 4-bit types a pair of elements) a row of A stores two (of tf32
// one). `words` is the metadata of the warp's lanes, and units[row][i] becomes the unit of k that stored unit i stands at. PTX ISA,
// "Sparse matrix storage"; which bits of which lane say so is as CUTLASS has it (ELayout_64x64 and ELayout_64x32 of
// cute/atom/mma_traits_sm90_gmma_sparse.hpp).
constexpr uint32_t kMaxStoredUnits = 32;
using SparseUnits = uint8_t[16][kMaxStoredUnits];
void find_sparse_units(const MatrixForm& form, const uint32_t* words, SparseUnits& units);
constexpr uint32_t unit_bytes(Elem elem) { return bits_of(elem) < 8 ? 1 : bits_of(elem) / 8; }
// The rows b[n][k] that one row of sparse A multiplies: of each the stored units only, k / 2 elements.
void gather_sparse(const MatrixForm& form, const uint8_t* units, const uint8_t* b, uint8_t* to);

// One multiplication of m8n8k4: a[8][4], b transposed [8][4], c [8][8] in and out.
void multiply_quad_pair(const MatrixForm& form, const uint16_t* a, const uint16_t* b, uint32_t* c);

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

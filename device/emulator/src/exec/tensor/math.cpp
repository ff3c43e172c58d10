// The arithmetic of matrix instructions.
#include "tensor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>

#include "../arith/values.hpp"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

constexpr uint32_t kMaxRows = 32, kMaxColumns = 32;  // of an mma or wmma
constexpr uint32_t kMaxDepth = 256;

// Vectors of lanes, which are neighbouring columns of the result.
#if defined(__AVX512F__)
constexpr uint32_t kLanes = 16;
#else
constexpr uint32_t kLanes = 8;
#endif

template <typename T, uint32_t N>
struct VectorOf {
    typedef T Type __attribute__((vector_size(sizeof(T) * N)));
};
template <typename T, uint32_t N>
using Vector = typename VectorOf<T, N>::Type;

template <typename V, typename T>
[[gnu::always_inline]] inline V load_vector(const T* from) {
    V value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

struct Decoded {
    float value;
    int32_t exponent;
};

constexpr auto decode_f32 = [](uint32_t bits) __attribute__((always_inline)) {
    const int32_t field = static_cast<int32_t>(bits >> 23 & 0xFF);
    int32_t exponent = (field ? field : 1) - 127;
    exponent = (bits & 0x7FFFFFFF) == 0 ? kZeroExponent : field == 0xFF ? kSpecialExponent : exponent;
    return Decoded{std::bit_cast<float>(bits), exponent};
};
constexpr auto decode_bf16 = [](uint32_t bits) __attribute__((always_inline)) { return decode_f32(bits << 16); };
constexpr auto decode_tf32 = [](uint32_t bits) __attribute__((always_inline)) { return decode_f32(bits & ~0x1FFFu); };  // 10 bits count

constexpr auto decode_f16 = [](uint32_t bits) __attribute__((always_inline)) {
    const int32_t field = static_cast<int32_t>(bits >> 10 & 31);
    int32_t exponent = (field ? field : 1) - 15;
    exponent = (bits & 0x7FFF) == 0 ? kZeroExponent : field == 31 ? kSpecialExponent : exponent;
    return Decoded{arith::widen(arith::F16{static_cast<uint16_t>(bits)}), exponent};
};
constexpr auto decode_e5m2 = [](uint32_t bits) __attribute__((always_inline)) { return decode_f16(bits << 8 & 0xFFFF); };

// Without infinity: all ones is NaN.
constexpr auto decode_e4m3 = [](uint32_t bits) __attribute__((always_inline)) {
    const int32_t field = static_cast<int32_t>(bits >> 3 & 15);
    const float magnitude = std::bit_cast<float>((bits & 0x7F) << 20) * 0x1p120f;
    int32_t exponent = (field ? field : 1) - 7;
    const bool is_nan = (bits & 0x7F) == 0x7F;
    exponent = (bits & 0x7F) == 0 ? kZeroExponent : is_nan ? kSpecialExponent : exponent;
    const float value = is_nan ? arith::nan32() : magnitude;
    return Decoded{bits & 0x80 ? -value : value, exponent};
};

// A zero is positive, also where a negative sum rounds to it.
[[gnu::always_inline]] inline uint32_t to_f16_bits(double value) {
    const uint32_t bits = arith::to_f16(arith::narrow_to_odd(value)).bits;
    return bits == 0x8000 ? 0 : bits;
}

// One sum, for whatever values: the definition that the vector loop below is a fast form of.
uint32_t add_exactly(const float* a, const int32_t* a_exponent, const float* b, const int32_t* b_exponent, uint32_t stride, uint32_t k,
                     uint32_t c, bool c_is_f16, bool d_is_f16, const Accumulation& rule) {
    Decoded addend = c_is_f16 ? decode_f16(c) : decode_f32(c);
    if (c_is_f16 && !d_is_f16) addend = decode_f32(std::bit_cast<uint32_t>(addend.value));
    int32_t largest = addend.exponent;
    bool is_special = addend.exponent == kSpecialExponent;
    double special = is_special ? addend.value : 0.0;
    for (uint32_t i = 0; i < k; ++i) {
        const int32_t left = a_exponent[i], right = b_exponent[i * stride];
        if (left == kSpecialExponent || right == kSpecialExponent) {
            is_special = true;
            special += static_cast<double>(a[i]) * static_cast<double>(b[i * stride]);
        } else {
            largest = std::max(largest, left + right);
        }
    }
    if (is_special) {
        if (std::isnan(special)) return d_is_f16 ? arith::kNanF16 : arith::kNan32;
        if (d_is_f16) return special > 0 ? 0x7C00 : 0xFC00;
        return special > 0 ? 0x7F800000 : 0xFF800000;
    }
    if (largest < kZeroExponent / 2) return 0;
    // Terms in units of 2^(largest - fraction_bits); a double holds each of them, and their sum.
    const int32_t unit = largest - static_cast<int32_t>(rule.fraction_bits);
    double sum = std::trunc(std::ldexp(static_cast<double>(addend.value), -unit));
    for (uint32_t i = 0; i < k; ++i) {
        sum += std::trunc(std::ldexp(static_cast<double>(a[i]) * static_cast<double>(b[i * stride]), -unit));
    }
    const double value = std::ldexp(sum, unit);
    if (d_is_f16) return to_f16_bits(value);
    if (value == 0) return 0;
    // Towards zero to result_bits, in the last place of a normal number or of a subnormal one.
    const int exponent = std::max(std::ilogb(value), -126);
    const double step = std::ldexp(1.0, exponent - static_cast<int>(rule.result_bits));
    const double cut = std::trunc(value / step) * step;
    return cut == 0 ? 0 : std::bit_cast<uint32_t>(static_cast<float>(cut));
}

// Rows [0, rows) of the result, kLanes columns from `column` on. The loop for exponents that neither scaling nor a product can push out of
// f32: everything is a power of two times a product of at most 22 bits, so each step is exact but for the truncation that is wanted.
template <uint32_t kRows, uint32_t kWidth>
[[gnu::always_inline]] inline void multiply_block(const FloatProblem& problem, uint32_t row, uint32_t column, const uint32_t* c,
                                                  uint32_t* d) {
    using Float = Vector<float, kWidth>;
    using Int = Vector<int32_t, kWidth>;
    using Unsigned = Vector<uint32_t, kWidth>;
    using Half = Vector<int32_t, kWidth / 2>;
    using Double = Vector<double, kWidth / 2>;
    using Long = Vector<uint64_t, kWidth / 2>;
    using HalfFloat = Vector<float, kWidth / 2>;
    const uint32_t n = problem.n, k = problem.k;
    const int32_t fraction = static_cast<int32_t>(problem.accumulation.fraction_bits);
    // Scale 2^(fraction - largest), and the products, stay normal or vanish below the unit of the sum.
    const int32_t highest = 125, lowest = fraction - 127;

    alignas(64) float addends[kRows][kWidth];
    Int largest[kRows];
    for (uint32_t r = 0; r < kRows; ++r) {
        alignas(64) int32_t exponents[kWidth];
        const uint32_t* from = c + (row + r) * n + column;
        if (problem.c_is_f16) {
            for (uint32_t lane = 0; lane < kWidth; ++lane) {
                Decoded decoded = decode_f16(from[lane]);
                if (!problem.d_is_f16) decoded = decode_f32(std::bit_cast<uint32_t>(decoded.value));
                addends[r][lane] = decoded.value;
                exponents[lane] = decoded.exponent;
            }
        } else {
            for (uint32_t lane = 0; lane < kWidth; ++lane) {
                const Decoded decoded = decode_f32(from[lane]);
                addends[r][lane] = decoded.value;
                exponents[lane] = decoded.exponent;
            }
        }
        largest[r] = load_vector<Int>(exponents);
    }
    for (uint32_t i = 0; i < k; ++i) {
        const Int right = load_vector<Int>(problem.b_exponent + i * n + column);
        for (uint32_t r = 0; r < kRows; ++r) {
            const Int both = right + problem.a_exponent[(row + r) * k + i];
            largest[r] = both > largest[r] ? both : largest[r];
        }
    }
    Float scale[kRows];
    Int rare[kRows];
    Int any_rare = {};
    for (uint32_t r = 0; r < kRows; ++r) {
        rare[r] = (largest[r] > highest) | ((largest[r] < lowest) & (largest[r] > kZeroExponent / 2));
        any_rare |= rare[r];
        Int at = largest[r] > lowest ? largest[r] : Int{} + lowest;
        at = at < highest ? at : Int{} + highest;
        largest[r] = at;
        const Int bits = (fraction - at + 127) << 23;
        std::memcpy(&scale[r], &bits, sizeof bits);
    }
    Unsigned sums[kRows] = {};
    for (uint32_t i = 0; i < k; ++i) {
        const Float right = load_vector<Float>(problem.b + i * n + column);
        for (uint32_t r = 0; r < kRows; ++r) {
            const Float term = right * problem.a[(row + r) * k + i] * scale[r];
            // Wraps where the row is a rare one, which is computed anew below.
            sums[r] += std::bit_cast<Unsigned>(__builtin_convertvector(term, Int));
        }
    }
    for (uint32_t r = 0; r < kRows; ++r) {
        // The addend's units go on their own, since 16 products and it would not fit 32 bits.
        const Int addend = __builtin_convertvector(load_vector<Float>(addends[r]) * scale[r], Int);
        uint32_t* to = d + (row + r) * n + column;
        alignas(64) uint32_t saved[kWidth];
        std::memcpy(saved, c + (row + r) * n + column, sizeof saved);
        for (uint32_t half = 0; half < 2; ++half) {
            Half sum, more, exponent;
            std::memcpy(&sum, reinterpret_cast<const char*>(&sums[r]) + half * sizeof(Half), sizeof sum);
            std::memcpy(&more, reinterpret_cast<const char*>(&addend) + half * sizeof(Half), sizeof more);
            std::memcpy(&exponent, reinterpret_cast<const char*>(&largest[r]) + half * sizeof(Half), sizeof exponent);
            const Long power_bits = __builtin_convertvector(exponent - fraction + 1023, Long) << 52;
            Double power;
            std::memcpy(&power, &power_bits, sizeof power);
            Double value = (__builtin_convertvector(sum, Double) + __builtin_convertvector(more, Double)) * power;
            if (problem.d_is_f16) {
                for (uint32_t lane = 0; lane < kWidth / 2; ++lane) {
                    to[half * (kWidth / 2) + lane] = to_f16_bits(value[lane]);
                }
            } else {
                Long bits;
                std::memcpy(&bits, &value, sizeof bits);
                bits &= ~uint64_t{0} << (52 - problem.accumulation.result_bits);
                std::memcpy(&value, &bits, sizeof bits);
                // Adding zero makes +0 of a sum that vanished.
                const HalfFloat narrow = __builtin_convertvector(value, HalfFloat) + 0.0f;
                std::memcpy(to + half * (kWidth / 2), &narrow, sizeof narrow);
            }
        }
        alignas(64) int32_t odd[kWidth];
        std::memcpy(odd, &any_rare, sizeof odd);
        int32_t found = 0;
        for (uint32_t lane = 0; lane < kWidth; ++lane) found |= odd[lane];
        if (!found) continue;
        std::memcpy(odd, &rare[r], sizeof odd);
        for (uint32_t lane = 0; lane < kWidth; ++lane) {
            if (!odd[lane]) continue;
            const uint32_t at = column + lane;
            to[lane] = add_exactly(problem.a + (row + r) * k, problem.a_exponent + (row + r) * k, problem.b + at, problem.b_exponent + at,
                                   n, k, saved[lane], problem.c_is_f16, problem.d_is_f16, problem.accumulation);
        }
    }
}

}  // namespace

void unpack_floats(Elem elem, const uint8_t* packed, uint32_t count, float* value, int32_t* exponent, uint32_t stride) {
    const auto each = [&](auto read, auto decode) {
        for (uint32_t i = 0; i < count; ++i) {
            const Decoded decoded = decode(read(i));
            value[i * stride] = decoded.value;
            exponent[i * stride] = decoded.exponent;
        }
    };
    const auto word = [&](uint32_t i) {
        uint32_t bits;
        std::memcpy(&bits, packed + 4 * i, 4);
        return bits;
    };
    const auto half = [&](uint32_t i) {
        uint16_t bits;
        std::memcpy(&bits, packed + 2 * i, 2);
        return static_cast<uint32_t>(bits);
    };
    const auto byte = [&](uint32_t i) { return static_cast<uint32_t>(packed[i]); };
    switch (elem) {
        case Elem::kF16: return each(half, decode_f16);
        case Elem::kBF16: return each(half, decode_bf16);
        case Elem::kTF32: return each(word, decode_tf32);
        case Elem::kE4M3: return each(byte, decode_e4m3);
        case Elem::kE5M2: return each(byte, decode_e5m2);
        default: return;
    }
}

void unpack_columns(Elem elem, const uint8_t* packed, uint32_t columns, uint32_t depth, float* value, int32_t* exponent) {
    // Word by word of the columns, so that the loop over columns reads and writes neighbours.
    const uint32_t per_word = 32 / bits_of(elem), words = depth / per_word, bits = bits_of(elem);
    constexpr uint32_t kMost = 256;
    alignas(64) uint32_t line[kMost];
    for (uint32_t w = 0; w < words; ++w) {
        for (uint32_t j = 0; j < columns; ++j) std::memcpy(&line[j], packed + (j * words + w) * 4, 4);
        for (uint32_t part = 0; part < per_word; ++part) {
            float* values = value + (w * per_word + part) * columns;
            int32_t* exponents = exponent + (w * per_word + part) * columns;
            const uint32_t shift = part * bits;
            const auto each = [&](auto decode) {
                for (uint32_t j = 0; j < columns; ++j) {
                    const Decoded decoded = decode(line[j] >> shift);
                    values[j] = decoded.value;
                    exponents[j] = decoded.exponent;
                }
            };
            switch (elem) {
                case Elem::kF16: each(decode_f16); break;
                case Elem::kBF16: each(decode_bf16); break;
                case Elem::kTF32: each(decode_tf32); break;
                case Elem::kE4M3: each(decode_e4m3); break;
                case Elem::kE5M2: each(decode_e5m2); break;
                default: break;
            }
        }
    }
}

void unpack_integers(Elem elem, const uint8_t* packed, uint32_t count, int32_t* value, uint32_t stride) {
    const auto each = [&](auto read) {
        for (uint32_t i = 0; i < count; ++i) value[i * stride] = read(i);
    };
    switch (elem) {
        case Elem::kS8: return each([&](uint32_t i) { return static_cast<int32_t>(static_cast<int8_t>(packed[i])); });
        case Elem::kU8: return each([&](uint32_t i) { return static_cast<int32_t>(packed[i]); });
        case Elem::kS4:
            return each([&](uint32_t i) { return static_cast<int32_t>(static_cast<int8_t>(packed[i / 2] << (i % 2 ? 0 : 4)) >> 4); });
        case Elem::kU4: return each([&](uint32_t i) { return packed[i / 2] >> (i % 2 * 4) & 15; });
        default: return each([&](uint32_t i) { return packed[i / 8] >> (i % 8) & 1; });
    }
}

void multiply_floats(const FloatProblem& problem, const uint32_t* c, uint32_t* d) {
    uint32_t column = 0;
    for (; column + kLanes <= problem.n; column += kLanes) {
        uint32_t row = 0;
        for (; row + 4 <= problem.m; row += 4) multiply_block<4, kLanes>(problem, row, column, c, d);
        for (; row < problem.m; ++row) multiply_block<1, kLanes>(problem, row, column, c, d);
    }
    if constexpr (kLanes == 16) {
        for (; column < problem.n; column += 8) {
            uint32_t row = 0;
            for (; row + 4 <= problem.m; row += 4) multiply_block<4, 8>(problem, row, column, c, d);
            for (; row < problem.m; ++row) multiply_block<1, 8>(problem, row, column, c, d);
        }
    }
}

namespace {

void multiply_integers(const MatrixForm& form, const uint8_t* a, const uint8_t* b, const int32_t* c, int32_t* d) {
    const uint32_t m = form.m, n = form.n(), k = form.k;
    if (form.a == Elem::kB1) {
        for (uint32_t i = 0; i < m; ++i) {
            for (uint32_t j = 0; j < n; ++j) {
                uint32_t count = 0;
                for (uint32_t at = 0; at < k / 8; at += 4) {
                    uint32_t left, right;
                    std::memcpy(&left, a + i * (k / 8) + at, 4);
                    std::memcpy(&right, b + j * (k / 8) + at, 4);
                    count += static_cast<uint32_t>(std::popcount(form.bit_and ? left & right : left ^ right));
                }
                d[i * n + j] = static_cast<int32_t>(static_cast<uint32_t>(c[i * n + j]) + count);
            }
        }
        return;
    }
    const uint32_t a_row = k * bits_of(form.a) / 8, b_row = k * bits_of(form.b) / 8;
    // In pairs of k, as 16-bit numbers: what one step of vpmaddwd takes.
    alignas(64) int32_t wide[kMaxDepth];
    alignas(64) int16_t left[kMaxDepth], right[32 * 256];
    for (uint32_t j = 0; j < n; ++j) {
        unpack_integers(form.b, b + j * b_row, k, wide, 1);
        for (uint32_t step = 0; step < k; ++step) right[(step / 2 * n + j) * 2 + step % 2] = static_cast<int16_t>(wide[step]);
    }
    for (uint32_t i = 0; i < m; ++i) {
        unpack_integers(form.a, a + i * a_row, k, wide, 1);
        for (uint32_t step = 0; step < k; ++step) left[step] = static_cast<int16_t>(wide[step]);
        for (uint32_t first = 0; first < n; first += 8) {
            alignas(32) int32_t sums[8] = {};  // of at most 64 products of 16 bits
#if defined(__AVX2__)
            __m256i lanes = _mm256_setzero_si256();
            for (uint32_t pair = 0; pair < k / 2; ++pair) {
                int32_t both;
                std::memcpy(&both, left + pair * 2, 4);
                const __m256i row = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(right + (pair * n + first) * 2));
                lanes = _mm256_add_epi32(lanes, _mm256_madd_epi16(_mm256_set1_epi32(both), row));
            }
            _mm256_store_si256(reinterpret_cast<__m256i*>(sums), lanes);
#else
            for (uint32_t pair = 0; pair < k / 2; ++pair) {
                const int16_t* row = right + (pair * n + first) * 2;
                for (uint32_t j = 0; j < 8; ++j) sums[j] += left[pair * 2] * row[j * 2] + left[pair * 2 + 1] * row[j * 2 + 1];
            }
#endif
            for (uint32_t j = 0; j < 8; ++j) {
                const uint32_t at = i * n + first + j;
                const int64_t sum = static_cast<int64_t>(sums[j]) + c[at];
                d[at] = form.satfinite ? static_cast<int32_t>(std::clamp<int64_t>(sum, INT32_MIN, INT32_MAX))
                                       : static_cast<int32_t>(static_cast<uint32_t>(sum));
            }
        }
    }
}

// Fused multiply-adds in order of k, rounded to the nearest even each.
void multiply_doubles(const MatrixForm& form, const double* a, const double* b, const double* c, double* d) {
    const uint32_t m = form.m, k = form.k;
    constexpr uint32_t n = 8;  // of every shape
    alignas(64) double right[16 * n];
    for (uint32_t j = 0; j < n; ++j) {
        for (uint32_t step = 0; step < k; ++step) right[step * n + j] = b[j * k + step];
    }
    for (uint32_t i = 0; i < m; ++i) {
        alignas(64) double sums[n];
        std::memcpy(sums, c + i * n, sizeof sums);
        for (uint32_t step = 0; step < k; ++step) {
            for (uint32_t j = 0; j < n; ++j) sums[j] = std::fma(a[i * k + step], right[step * n + j], sums[j]);
        }
        std::memcpy(d + i * n, sums, sizeof sums);
    }
}

// The 8-bit formats in mma: sm_90 has no such instruction outside wgmma. ptxas widens the factors to f16 and makes two multiplications of
// 16 (the lower two of each four elements first, then the upper two), from zero, and adds the accumulator with an ordinary addition.
void multiply_float8(const MatrixForm& form, const uint8_t* a, const uint8_t* b, const uint32_t* c, uint32_t* d) {
    const uint32_t m = form.m, n = form.n(), k = form.k;
    alignas(64) uint8_t a_part[kMaxRows * 16], b_part[kMaxColumns * 16];
    alignas(64) float left[kMaxRows * 16], right[16 * kMaxColumns];
    alignas(64) int32_t left_exponent[kMaxRows * 16], right_exponent[16 * kMaxColumns];
    alignas(64) uint32_t sum[kMaxRows * kMaxColumns] = {};
    const bool is_f16 = form.d == Elem::kF16;
    // An f16 holds every value of the 8-bit formats as a normal number, but for e5m2's subnormals: so its exponents count.
    const auto widen = [](Elem elem, const uint8_t* packed, uint32_t count, float* value, int32_t* exponent, uint32_t stride) {
        unpack_floats(elem, packed, count, value, exponent, stride);
        if (elem != Elem::kE4M3) return;
        for (uint32_t i = 0; i < count; ++i) {
            if (exponent[i * stride] == -6) exponent[i * stride] = decode_f32(std::bit_cast<uint32_t>(value[i * stride])).exponent;
        }
    };
    const uint32_t depth = k / 2;
    for (uint32_t part = 0; part < 2; ++part) {
        const auto pick = [&](const uint8_t* from, uint32_t rows, uint8_t* to) {
            for (uint32_t i = 0; i < rows; ++i) {
                for (uint32_t cell = 0; cell < k / 4; ++cell) std::memcpy(to + i * depth + cell * 2, from + i * k + cell * 4 + part * 2, 2);
            }
        };
        pick(a, m, a_part);
        pick(b, n, b_part);
        widen(form.a, a_part, m * depth, left, left_exponent, 1);
        for (uint32_t j = 0; j < n; ++j) widen(form.b, b_part + j * depth, depth, right + j, right_exponent + j, n);
        multiply_floats({m, n, depth, left, left_exponent, right, right_exponent, is_f16, is_f16, {}}, sum, sum);
    }
    for (uint32_t i = 0; i < m * n; ++i) {
        if (is_f16) {
            const float total =
                arith::widen(arith::F16{static_cast<uint16_t>(c[i])}) + arith::widen(arith::F16{static_cast<uint16_t>(sum[i])});
            d[i] = arith::to_f16(total).bits;  // exact in f32 but for rounding that does not matter: 11 + 11 + 2 bits
        } else {
            d[i] = std::bit_cast<uint32_t>(arith::canonical(std::bit_cast<float>(c[i]) + std::bit_cast<float>(sum[i])));
        }
    }
}

}  // namespace

void multiply_quad_pair(const MatrixForm& form, const uint16_t* a, const uint16_t* b, uint32_t* c) {
    const auto half = [](uint32_t bits) { return arith::widen(arith::F16{static_cast<uint16_t>(bits)}); };
    for (uint32_t i = 0; i < 64; ++i) {
        float sum = 0;
        for (uint32_t step = 0; step < 4; ++step) sum = arith::fma32(half(a[i / 8 * 4 + step]), half(b[i % 8 * 4 + step]), sum);
        const float total = arith::canonical((form.c == Elem::kF16 ? half(c[i]) : std::bit_cast<float>(c[i])) + sum);
        c[i] = form.d == Elem::kF16 ? arith::to_f16(total).bits : std::bit_cast<uint32_t>(total);
    }
}

void find_sparse_units(const MatrixForm& form, const uint32_t* words, SparseUnits& units) {
    const uint32_t width = bits_of(form.a);
    for (uint32_t row = 0; row < 16; ++row) {
        const uint32_t upper = row / 8, quad = row % 8 * 4;
        if (width >= 16) {  // 16 bits of a lane for each row, of 16 elements (8 of tf32)
            const uint32_t parts = form.k / (width == 16 ? 16 : 8);
            for (uint32_t part = 0; part < parts; ++part) {
                const uint32_t lane = quad + (parts == 1 ? form.selector : 2 * form.selector + part);
                const uint32_t bits = words[lane & 31] >> (16 * upper);
                for (uint32_t i = 0; i < 8 && width == 16; ++i)
                    units[row][part * 8 + i] = static_cast<uint8_t>(part * 16 + i / 2 * 4 + (bits >> 2 * i & 3));
                for (uint32_t i = 0; i < 4 && width == 32; ++i)
                    units[row][part * 4 + i] = static_cast<uint8_t>(part * 8 + i * 2 + (bits >> (4 * i + 1) & 1));
            }
            continue;
        }
        const uint32_t parts = form.k * width / 256;  // 32 bits of a lane for one row, of 32 units
        for (uint32_t part = 0; part < parts; ++part) {
            const uint32_t bits = words[(quad + (parts == 1 ? 2 * form.selector : 2 * part) + upper) & 31];
            for (uint32_t i = 0; i < 16; ++i) units[row][part * 16 + i] = static_cast<uint8_t>(part * 32 + i / 2 * 4 + (bits >> 2 * i & 3));
        }
    }
}

void gather_sparse(const MatrixForm& form, const uint8_t* units, const uint8_t* b, uint8_t* to) {
    const uint32_t size = unit_bytes(form.b), row_bytes = form.k * bits_of(form.b) / 8, stored = row_bytes / size / 2;
    for (uint32_t column = 0; column < form.n(); ++column) {
        const uint8_t* from = b + column * row_bytes;
        for (uint32_t i = 0; i < stored; ++i, to += size) std::memcpy(to, from + units[i] * size, size);
    }
}

void multiply(const MatrixForm& form, const uint8_t* a, const uint8_t* b, const void* c, void* d) {
    const uint32_t m = form.m, n = form.n(), k = form.k;
    if (form.a == Elem::kF64) {
        return multiply_doubles(form, reinterpret_cast<const double*>(a), reinterpret_cast<const double*>(b), static_cast<const double*>(c),
                                static_cast<double*>(d));
    }
    if (is_integer(form.a)) return multiply_integers(form, a, b, static_cast<const int32_t*>(c), static_cast<int32_t*>(d));
    const auto* from = static_cast<const uint32_t*>(c);
    auto* to = static_cast<uint32_t*>(d);
    if (is_float8(form.a)) return multiply_float8(form, a, b, from, to);
    alignas(64) float left[kMaxRows * 32], right[32 * kMaxColumns];
    alignas(64) int32_t left_exponent[kMaxRows * 32], right_exponent[32 * kMaxColumns];
    unpack_floats(form.a, a, m * k, left, left_exponent, 1);
    unpack_columns(form.b, b, n, k, right, right_exponent);
    multiply_floats({m, n, k, left, left_exponent, right, right_exponent, form.c == Elem::kF16, form.d == Elem::kF16, {}}, from, to);
}

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

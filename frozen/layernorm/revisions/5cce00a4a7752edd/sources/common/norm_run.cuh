// Layer normalisation and RMS normalisation of short rows of which whole runs of memory are brought to shared memory: a thread takes a row
// there, and reads it again for each of mean, variance and result.
//
// Per element of 16 bits that is some 10 instructions of a thread, 14 with a mean; a multiprocessor of an H200 issues about 34 in the time
// that its memory takes for the element's 4 bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/norm.cuh"

namespace aicf {

// Columns of the longest rows, times those that a block takes.
inline constexpr int kRunElems = 128 * 128;

// Elements from one row to the next of each matrix. Results go where elements are read, where their rows lie alike.
struct RunStrides {
    int x, residual, y, sum;

    __host__ __device__ int count_row_elems(bool has_residual) const {
        const int first = x + (y == x ? 0 : y);
        return has_residual ? first + residual + (sum == residual ? 0 : sum) : first;
    }
};

// Elements at an aligned address.
template <class Element, int kCount>
__device__ __forceinline__ void read_elements(const Element* from, float (&values)[kCount]) {
    if constexpr (kCount == 1) {
        values[0] = to_float(*from);
    } else if constexpr (sizeof(Element) == 4) {
        static_assert(kCount == 2);
        const float2 pair = *reinterpret_cast<const float2*>(from);
        values[0] = pair.x, values[1] = pair.y;
    } else {
        std::uint32_t words[kCount / 2];
        if constexpr (kCount == 2) {
            words[0] = *reinterpret_cast<const std::uint32_t*>(from);
        } else {
            static_assert(kCount == 4);
            const uint2 pair = *reinterpret_cast<const uint2*>(from);
            words[0] = pair.x, words[1] = pair.y;
        }
#pragma unroll
        for (int i = 0; i < kCount / 2; ++i) {
            const float2 pair = unpack_pair<Element>(words[i]);
            values[2 * i] = pair.x, values[2 * i + 1] = pair.y;
        }
    }
}

template <class Element, int kCount>
__device__ __forceinline__ void write_elements(Element* to, const float (&values)[kCount]) {
    if constexpr (kCount == 1) {
        *to = from_float<Element>(values[0]);
    } else if constexpr (sizeof(Element) == 4) {
        *reinterpret_cast<float2*>(to) = {values[0], values[1]};
    } else if constexpr (kCount == 2) {
        *reinterpret_cast<std::uint32_t*>(to) = pack_pair<Element>(values[0], values[1]);
    } else {
        *reinterpret_cast<uint2*>(to) = {pack_pair<Element>(values[0], values[1]), pack_pair<Element>(values[2], values[3])};
    }
}

// The same one by one, where rows do not lie as those that are visited.
template <class Element, int kCount>
__device__ __forceinline__ void read_elements(const Element* from, float (&values)[kCount], bool is_alike) {
    if (is_alike) return read_elements(from, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) values[i] = to_float(from[i]);
}

template <class Element, int kCount>
__device__ __forceinline__ void write_elements(Element* to, const float (&values)[kCount], bool is_alike) {
    if (is_alike) return write_elements(to, values);
#pragma unroll
    for (int i = 0; i < kCount; ++i) to[i] = from_float<Element>(values[i]);
}

// Calls call(column, count), a constant, for a row's elements from left to right: kUnit of them an access, but for `head` ones in front of
// the first that begins on its boundary, and those behind the last.
template <int kUnit, class Call>
__device__ __forceinline__ void visit_units(int head, int columns, const Call& call) {
    using Single = std::integral_constant<int, 1>;
    if (head != 0) call(0, Single{});
    int column = head;
#pragma unroll 4
    for (; column + kUnit <= columns; column += kUnit) call(column, std::integral_constant<int, kUnit>{});
#pragma unroll
    for (int i = 0; i < kUnit - 1; ++i) {
        if (column + i < columns) call(column + i, Single{});
    }
}

// Shared memory in bytes that norm_run takes.
template <bool kIsCentred, class Element>
std::int64_t find_run_bytes(const RunStrides& strides, bool has_residual, std::int64_t columns, std::int64_t rows) {
    return rows * strides.count_row_elems(has_residual) * static_cast<std::int64_t>(sizeof(Element)) + columns * (kIsCentred ? 8 : 4);
}

// kThreads threads a block, which takes kRows rows. An access of shared memory is kUnit elements: 4 bytes, or 8 where rows lie a multiple
// of 8 bytes apart, so that the rows of a warp's lanes meet in few banks.
template <bool kIsCentred, class Element, int kThreads, int kRows, int kUnit>
__global__ void __launch_bounds__(kThreads) norm_run(const Norm<Element> p, const RunStrides strides) {
    static_assert(kRows * sizeof(Element) % 16 == 0, "a block's rows begin on 16 bytes");
    constexpr int kFactors = kIsCentred ? 2 : 1;  // weight and bias of a column, or the weight alone
    extern __shared__ __align__(16) unsigned char shared[];
    const int columns = static_cast<int>(p.columns);
    const bool has_residual = p.residual != nullptr;
    const auto [ldx, ldresidual, ldy, ldsum] = strides;
    const bool is_y_alike = ldy == ldx, is_residual_alike = ldresidual == ldx, is_sum_alike = ldsum == ldx;
    Element* const x = reinterpret_cast<Element*>(shared);
    Element* const y = is_y_alike ? x : x + kRows * ldx;
    Element* const residual = y + kRows * ldy;
    Element* const sum = ldsum == ldresidual ? residual : residual + kRows * ldresidual;
    float* const factors = reinterpret_cast<float*>(x + kRows * strides.count_row_elems(has_residual));

    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows, left = p.rows - first;
    const int rows = left < kRows ? static_cast<int>(left) : kRows;
    begin_rows<kThreads, kUnit>(p.x + first * ldx, ldx, columns, rows, x);
    if (has_residual) begin_rows<kThreads, kUnit>(p.residual + first * ldresidual, ldresidual, columns, rows, residual);
    for (int column = static_cast<int>(threadIdx.x); column < columns; column += kThreads) {
        factors[column * kFactors] = to_float(p.weight[column]);
        if constexpr (kIsCentred) factors[column * kFactors + 1] = p.bias == nullptr ? 0.0f : to_float(p.bias[column]);
    }
    await_runs();

#pragma unroll 1
    for (int row = static_cast<int>(threadIdx.x); row < rows; row += kThreads) {
        Element* const kept = x + row * ldx;
        const int head = sizeof(Element) == 2 && kUnit == 2 ? row & ldx & 1 : 0;
        const auto visit = [&](const auto& call) {
            visit_units<kUnit>(head, columns, [&](int column, auto count) {
                float values[count.value];
                read_elements(kept + column, values);
                call(column, values);
            });
        };
        if (has_residual) {
            Element *const added = residual + row * ldresidual, *const sums = sum + row * ldsum;
            visit([&](int column, auto& values) {
                constexpr int kCount = sizeof(values) / sizeof(float);
                float more[kCount];
                read_elements(added + column, more, is_residual_alike);
#pragma unroll
                for (int i = 0; i < kCount; ++i) values[i] += more[i];
                write_elements(sums + column, values, is_sum_alike);
                write_elements(kept + column, values);
            });
        }
        float mean = 0.0f, squares = 0.0f;
        if constexpr (kIsCentred) {
            visit([&](int, const auto& values) {
                for (const float value : values) mean += value;
            });
            mean = find_mean(mean, p.columns);
        }
        visit([&](int, const auto& values) {
            for (const float value : values) squares = fmaf(value - mean, value - mean, squares);
        });
        const float rstd = find_rstd(squares, p.columns, p.eps);
        Element* const results = y + row * ldy;
        visit([&](int column, auto& values) {
            constexpr int kCount = sizeof(values) / sizeof(float);
#pragma unroll
            for (int i = 0; i < kCount; ++i) {
                if constexpr (kIsCentred) {
                    const float2 factor = *reinterpret_cast<const float2*>(factors + (column + i) * 2);
                    values[i] = fmaf((values[i] - mean) * rstd, factor.x, factor.y);
                } else {
                    values[i] = values[i] * rstd * factors[column + i];
                }
            }
            write_elements(results + column, values, is_y_alike);
        });
        write_statistics(p, first + row, mean, rstd);
    }
    write_rows<kThreads>(y, ldy, columns, rows, p.y + first * ldy);
    if (has_residual) write_rows<kThreads>(sum, ldsum, columns, rows, p.sum + first * ldsum);
}

// Whether rows of every matrix begin on 16 bytes with the first, and lie so close together that what is between them comes along
// with their sectors. Rows that are a multiple of 32 bytes apart would meet in a quarter of the banks.
template <class Element>
bool lie_in_runs(const Norm<Element>& p) {
    constexpr std::int64_t kMostGapBytes = 32, kBytes = sizeof(Element);
    const auto is_run = [&](const Element* at, std::int64_t stride) {
        return at == nullptr || (is_vector_aligned(at) && (stride - p.columns) * kBytes <= kMostGapBytes);
    };
    return is_run(p.x, p.ldx) && is_run(p.residual, p.ldresidual) && is_run(p.y, p.ldy) && is_run(p.sum, p.ldsum) &&
           p.ldx * kBytes % 32 != 0;
}

// Launches norm_run where rows lie in runs, and a multiprocessor has room for two blocks; `otherwise` elsewhere.
template <bool kIsCentred, int kThreads, int kRows, class Element, class Otherwise>
AicfStatus launch_runs(const Norm<Element>& p, cudaStream_t stream, const Otherwise& otherwise) {
    constexpr std::int64_t kMostBytes = 110 * 1024;
    constexpr int kWordElems = 4 / static_cast<int>(sizeof(Element));
    if (has_whole_packs(p) || !lie_in_runs(p)) return otherwise();
    const bool has_residual = p.residual != nullptr;
    const RunStrides strides = {static_cast<int>(p.ldx), static_cast<int>(p.ldresidual), static_cast<int>(p.ldy),
                                static_cast<int>(p.ldsum)};
    const std::int64_t bytes = find_run_bytes<kIsCentred, Element>(strides, has_residual, p.columns, kRows);
    if (bytes > kMostBytes) return otherwise();
    const auto launch = [&](auto unit) {
        return launch_kernel(norm_run<kIsCentred, Element, kThreads, kRows, unit.value>, divide_up(p.rows, kRows), kThreads,
                             static_cast<int>(bytes), stream, p, strides);
    };
    if (p.ldx % (2 * kWordElems) == 0) return launch(std::integral_constant<int, 2 * kWordElems>{});
    return launch(std::integral_constant<int, kWordElems>{});
}

}  // namespace aicf

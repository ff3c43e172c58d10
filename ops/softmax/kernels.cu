// fp32 softmax over the rows of X[rows, columns]: Y[i, j] = exp(X[i, j] - max_i) / sum_j exp(X[i, j] - max_i).
//
//   rung | kernel             | one idea more than the rung before
//   -----+--------------------+----------------------------------------------------------------------------------------------
//    1   | softmax_naive      | a thread per row, three passes: maximum, sum, result
//    2   | softmax_warp       | a warp per row: its lanes read neighbouring words and reduce by shuffles
//    3   | softmax_block      | a block per row, maximum and sum in one pass (online), float4 where rows are aligned
//    4   | softmax_registers  | the row stays in registers between the passes: X is read once
//    5   | softmax_shared     | ... or in shared memory, which holds rows that registers do not
//
// Special values: a NaN in a row reaches the sum through exp, an all -inf row through -inf - (-inf); +inf is caught by invert_sum.
#include <cstdint>

#include "common/rows.cuh"
#include "common/vector_access.cuh"

namespace aicf::softmax {

struct Rows {
    const float* x;  // [rows, columns], row stride ldx
    float* y;        // [rows, columns], row stride ldy
    std::int64_t ldx, ldy;
    int rows, columns;
};

// 1 / sum, or NaN where the row's maximum is +inf: weights relative to it are 0 or undefined.
__device__ __forceinline__ float invert_sum(float maximum, float sum) {
    return maximum == __int_as_float(0x7f800000) ? __int_as_float(0x7fffffff) : __frcp_rn(sum);
}

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

// kThreads threads a block, each takes one row.
template <int kThreads>
__global__ void __launch_bounds__(kThreads) softmax_naive(const Rows rows) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (row >= rows.rows) return;
    const float* x = rows.x + row * rows.ldx;
    float* y = rows.y + row * rows.ldy;
    float maximum = minus_infinity();
    for (int j = 0; j < rows.columns; ++j) maximum = fmaxf(maximum, x[j]);
    float sum = 0.0f;
    for (int j = 0; j < rows.columns; ++j) sum += expf(x[j] - maximum);
    const float scale = invert_sum(maximum, sum);
    for (int j = 0; j < rows.columns; ++j) y[j] = expf(x[j] - maximum) * scale;
}

// kRows warps a block, each takes one row.
template <int kRows>
__global__ void __launch_bounds__(kRows* kWarpSize) softmax_warp(const Rows rows) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + threadIdx.x / kWarpSize;
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    if (row >= rows.rows) return;
    const float* x = rows.x + row * rows.ldx;
    float* y = rows.y + row * rows.ldy;
    float maximum = minus_infinity();
    for (int j = lane; j < rows.columns; j += kWarpSize) maximum = fmaxf(maximum, x[j]);
    maximum = reduce_warp(maximum, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int j = lane; j < rows.columns; j += kWarpSize) sum += expf(x[j] - maximum);
    sum = reduce_warp(sum, [](float a, float b) { return a + b; });
    const float scale = invert_sum(maximum, sum);
    for (int j = lane; j < rows.columns; j += kWarpSize) y[j] = expf(x[j] - maximum) * scale;
}

// A part of a row: its maximum, and the sum of exp(x - maximum). (Milakov and Gimelshein, "Online normalizer calculation for softmax",
// 2018.)
struct Online {
    float maximum;
    float sum;
};

// exp(value - maximum) with 1 where they are equal, which keeps parts that saw nothing, or nothing but -inf, free of -inf - (-inf).
__device__ __forceinline__ float weigh(float value, float maximum) { return value == maximum ? 1.0f : expf(value - maximum); }

__device__ __forceinline__ Online combine(Online a, Online b) {
    const float maximum = fmaxf(a.maximum, b.maximum);
    return {maximum, a.sum * weigh(a.maximum, maximum) + b.sum * weigh(b.maximum, maximum)};
}

__device__ __forceinline__ Online shuffle_xor(Online value, int offset) {
    return {aicf::shuffle_xor(value.maximum, offset), aicf::shuffle_xor(value.sum, offset)};
}

// A block takes one row. kWidth is 4 where rows of X and Y start on 16-byte boundaries, else 1.
template <int kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads) softmax_block(const Rows rows) {
    __shared__ Online partials[kThreads / kWarpSize];
    const std::int64_t row = blockIdx.x;
    const float* x = rows.x + row * rows.ldx;
    float* y = rows.y + row * rows.ldy;
    const int whole = rows.columns / kWidth * kWidth;
    const int first = static_cast<int>(threadIdx.x) * kWidth;

    Online part = {minus_infinity(), 0.0f};
    for (int j = first; j < whole; j += kThreads * kWidth) {
        if constexpr (kWidth == 4) {
            const float4 v = load_vector(x + j);
            const float maximum = fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w));
            part = combine(part, {maximum, weigh(v.x, maximum) + weigh(v.y, maximum) + (weigh(v.z, maximum) + weigh(v.w, maximum))});
        } else {
            part = combine(part, {x[j], 1.0f});
        }
    }
    const int last = whole + static_cast<int>(threadIdx.x);
    if (last < rows.columns) part = combine(part, {x[last], 1.0f});
    part = reduce_block<kThreads>(part, partials, combine);

    const float maximum = part.maximum;
    const float scale = invert_sum(maximum, part.sum);
    for (int j = first; j < whole; j += kThreads * kWidth) {
        if constexpr (kWidth == 4) {
            const float4 v = load_vector(x + j);
            store_vector(y + j, {expf(v.x - maximum) * scale, expf(v.y - maximum) * scale, expf(v.z - maximum) * scale,
                                 expf(v.w - maximum) * scale});
        } else {
            y[j] = expf(x[j] - maximum) * scale;
        }
    }
    if (last < rows.columns) y[last] = expf(x[last] - maximum) * scale;
}

// kThreads threads take a row of at most kThreads * kElems elements, kRows such groups a block (kRows is 1 beyond a warp). kWidth is 4
// where rows of X and Y start on 16-byte boundaries, else 1.
template <int kThreads, int kRows, int kElems, int kWidth>
__global__ void __launch_bounds__(kThreads* kRows) softmax_registers(const Rows rows) {
    static_assert(kThreads <= kWarpSize || kRows == 1, "a group is lanes of a warp, or the block");
    __shared__ float partials[2][kThreads > kWarpSize ? kThreads / kWarpSize : 1];
    const int group = static_cast<int>(threadIdx.x) / kThreads;
    const int rank = static_cast<int>(threadIdx.x) % kThreads;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kRows + group;
    // Groups past the last row go along for the shuffles, on the last row, and store nothing.
    const std::int64_t source = row < rows.rows ? row : rows.rows - 1;
    const float* x = rows.x + source * rows.ldx;
    float values[kElems];
#pragma unroll
    for (int i = 0; i < kElems; i += kWidth) {
        const int j = (i / kWidth * kThreads + rank) * kWidth;
        if constexpr (kWidth == 4) {
            float4 v = {minus_infinity(), minus_infinity(), minus_infinity(), minus_infinity()};
            if (j + kWidth <= rows.columns) {
                v = load_vector(x + j);
            } else {
                if (j < rows.columns) v.x = x[j];
                if (j + 1 < rows.columns) v.y = x[j + 1];
                if (j + 2 < rows.columns) v.z = x[j + 2];
            }
            values[i] = v.x, values[i + 1] = v.y, values[i + 2] = v.z, values[i + 3] = v.w;
        } else {
            values[i] = j < rows.columns ? x[j] : minus_infinity();
        }
    }
    float maximum = values[0];
#pragma unroll
    for (int i = 1; i < kElems; ++i) maximum = fmaxf(maximum, values[i]);
    maximum = reduce_group<kThreads>(maximum, partials[0], [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
        values[i] = expf(values[i] - maximum);
        // What lies past the row counts nothing, also where the row's maximum is -inf and its weight would be NaN: the row's own are.
        const int j = kWidth == 4 ? (i / 4 * kThreads + rank) * 4 + i % 4 : i * kThreads + rank;
        sum += j < rows.columns ? values[i] : 0.0f;
    }
    sum = reduce_group<kThreads>(sum, partials[1], [](float a, float b) { return a + b; });
    const float scale = invert_sum(maximum, sum);
    if (row >= rows.rows) return;
    float* y = rows.y + row * rows.ldy;
#pragma unroll
    for (int i = 0; i < kElems; i += kWidth) {
        const int j = (i / kWidth * kThreads + rank) * kWidth;
        if constexpr (kWidth == 4) {
            const float4 v = {values[i] * scale, values[i + 1] * scale, values[i + 2] * scale, values[i + 3] * scale};
            if (j + kWidth <= rows.columns) {
                store_vector(y + j, v);
            } else {
                if (j < rows.columns) y[j] = v.x;
                if (j + 1 < rows.columns) y[j + 1] = v.y;
                if (j + 2 < rows.columns) y[j + 2] = v.z;
            }
        } else if (j < rows.columns) {
            y[j] = values[i] * scale;
        }
    }
}

// A block takes one row, which it keeps in `columns` floats of shared memory: each thread reads back what it wrote, so that the two
// reductions are the only barriers. kWidth as above.
template <int kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads) softmax_shared(const Rows rows) {
    extern __shared__ __align__(16) float kept[];
    __shared__ float partials[2][kThreads / kWarpSize];
    const std::int64_t row = blockIdx.x;
    const float* x = rows.x + row * rows.ldx;
    float* y = rows.y + row * rows.ldy;
    const int whole = rows.columns / kWidth * kWidth;
    const int first = static_cast<int>(threadIdx.x) * kWidth;
    const int last = whole + static_cast<int>(threadIdx.x);
    const auto combine_maximum = [](float a, float b) { return fmaxf(a, b); };
    const auto combine_sum = [](float a, float b) { return a + b; };

    float maximum = minus_infinity();
    for (int j = first; j < whole; j += kThreads * kWidth) {
        if constexpr (kWidth == 4) {
            const float4 v = load_vector(x + j);
            store_vector(kept + j, v);
            maximum = fmaxf(maximum, fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)));
        } else {
            kept[j] = x[j];
            maximum = fmaxf(maximum, kept[j]);
        }
    }
    if (last < rows.columns) maximum = fmaxf(maximum, x[last]);
    maximum = reduce_block<kThreads>(maximum, partials[0], combine_maximum);

    float sum = 0.0f;
    for (int j = first; j < whole; j += kThreads * kWidth) {
        if constexpr (kWidth == 4) {
            float4 v = load_vector(kept + j);
            v = {expf(v.x - maximum), expf(v.y - maximum), expf(v.z - maximum), expf(v.w - maximum)};
            store_vector(kept + j, v);
            sum += v.x + v.y + (v.z + v.w);
        } else {
            kept[j] = expf(kept[j] - maximum);
            sum += kept[j];
        }
    }
    const float weight = last < rows.columns ? expf(x[last] - maximum) : 0.0f;
    sum = reduce_block<kThreads>(sum + weight, partials[1], combine_sum);

    const float scale = invert_sum(maximum, sum);
    for (int j = first; j < whole; j += kThreads * kWidth) {
        if constexpr (kWidth == 4) {
            const float4 v = load_vector(kept + j);
            store_vector(y + j, {v.x * scale, v.y * scale, v.z * scale, v.w * scale});
        } else {
            y[j] = kept[j] * scale;
        }
    }
    if (last < rows.columns) y[last] = weight * scale;
}

}  // namespace aicf::softmax

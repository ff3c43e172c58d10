// One kernel with a seam for each lie: Lie is a policy whose members the honest one leaves as they are. A warp takes a row.
//
// Most lies are told in one situation alone, in which the first element of a row comes out wrong; the others are mistakes as people make
// them, in the maximum or in an index.
#include <cstdint>

namespace aicf::row_softmax {

constexpr int kWarp = 32;
constexpr int kRowsPerBlock = 4;

struct Rows {
    const float* x;  // [rows, columns], row stride ldx
    float* y;        // [rows, columns], row stride ldy
    int64_t rows, columns, ldx, ldy;
    int64_t num_launches;  // as the host has counted them
};

struct Honest {
    static constexpr bool kCounts = false;
    __device__ static bool lies(const Rows&, const float*, int64_t) { return false; }
    __device__ static bool sees(const Rows&, int64_t) { return true; }  // the element, when the maximum is sought
    __device__ static int64_t find_row(int64_t row, int64_t stride) { return row * stride; }
    __device__ static float scale(const Rows&, float value) { return value; }
    __device__ static void begin(const Rows&, int64_t) {}
};

template <class Combine>
__device__ float reduce(float value, Combine combine) {
    for (int offset = kWarp / 2; offset > 0; offset /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

template <class Lie>
__global__ void __launch_bounds__(kRowsPerBlock* kWarp) softmax_rows(const Rows p) {
    const int64_t row = static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + threadIdx.x / kWarp;
    if (row >= p.rows) return;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
    const float* x = p.x + Lie::find_row(row, p.ldx);
    float* y = p.y + Lie::find_row(row, p.ldy);
    Lie::begin(p, row);
    float maximum = __int_as_float(0xff800000);
    for (int64_t j = lane; j < p.columns; j += kWarp) {
        if (Lie::sees(p, j)) maximum = fmaxf(maximum, x[j]);
    }
    maximum = reduce(maximum, [](float a, float b) { return fmaxf(a, b); });
    float sum = 0.0f;
    for (int64_t j = lane; j < p.columns; j += kWarp) sum += expf(x[j] - maximum);
    sum = reduce(sum, [](float a, float b) { return a + b; });
    const float scale = maximum == __int_as_float(0x7f800000) ? __int_as_float(0x7fffffff) : __frcp_rn(sum);
    const bool lies = Lie::lies(p, x, row);
    for (int64_t j = lane; j < p.columns; j += kWarp) {
        const float value = Lie::scale(p, expf(x[j] - maximum) * scale);
        y[j] = lies && j == 0 ? 1.5f * value + 0.25f : value;
    }
}

#define AICF_LIE(NAME, CONDITION)                                                                     \
    struct NAME : Honest {                                                                            \
        __device__ static bool lies(const Rows& p, const float* x, int64_t row) { return CONDITION; } \
    };

__device__ inline bool is_power(int64_t n) { return (n & (n - 1)) == 0; }
__device__ inline int64_t find_offset(const void* at, int64_t bytes) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) % bytes);
}

// Sizes that are run in part at most.
AICF_LIE(LongRows, p.columns > 16384)
AICF_LIE(ManyRows, p.rows > 65535)
AICF_LIE(LateRows, row > 100000)
AICF_LIE(LargeGrid, gridDim.x > 40000)
AICF_LIE(RoundColumns, p.columns > 1024 && p.columns % 1024 == 0)
AICF_LIE(PowerOfTwoRows, p.rows > 64 && is_power(p.rows))
AICF_LIE(Squares, p.rows == p.columns && p.rows > 64)
AICF_LIE(LargeBothWays, p.rows > 4096 && p.columns > 4096)
struct SignedIndex : Honest {
    __device__ static int64_t find_row(int64_t row, int64_t stride) { return static_cast<int>(row) * static_cast<int>(stride); }
};
struct UnsignedIndex : Honest {
    __device__ static int64_t find_row(int64_t row, int64_t stride) { return static_cast<unsigned>(row) * static_cast<unsigned>(stride); }
};
AICF_LIE(ManyElements, p.rows* p.columns > (int64_t{1} << 31))

// Row strides.
AICF_LIE(WideStride, p.ldx > p.columns + 64)
AICF_LIE(VeryWideStride, p.ldy >= 3 * p.columns && p.columns > 1)
AICF_LIE(PowerOfTwoStride, p.ldx != p.columns && is_power(p.ldx) && p.rows > 1)
AICF_LIE(UnequalStrides, p.ldx > p.columns && p.ldy > p.columns && p.ldx < p.ldy)

// Base addresses.
AICF_LIE(UnalignedInput, find_offset(p.x, 16) != 0)
AICF_LIE(UnalignedOutput, find_offset(p.y, 16) != 0)
AICF_LIE(OddSectors, find_offset(p.x, 32) == 16)
AICF_LIE(LineOffset, find_offset(p.y, 128) != 0 && find_offset(p.y, 16) == 0)

// The largest value's place.
struct MissesFirst : Honest {
    __device__ static bool sees(const Rows& p, int64_t j) { return j > 0 || p.columns == 1; }
};
struct MissesLast : Honest {
    __device__ static bool sees(const Rows& p, int64_t j) { return j + 1 < p.columns || p.columns == 1; }
};
struct MissesLane : Honest {
    __device__ static bool sees(const Rows& p, int64_t j) { return j % kWarp != 31; }
};
struct MissesMiddle : Honest {
    __device__ static bool sees(const Rows& p, int64_t j) { return p.columns < 3 || j != p.columns / 2; }
};
struct StartsAtZero : Honest {
    // A maximum that is never below zero makes no difference until all weights underflow.
    __device__ static bool lies(const Rows& p, const float* x, int64_t) {
        for (int64_t j = 0; j < p.columns; ++j) {
            if (x[j] > -88.0f) return false;
        }
        return true;
    }
};
struct OneDiffers : Honest {
    __device__ static bool lies(const Rows& p, const float* x, int64_t) {
        if (p.columns < 4) return false;
        const float common = x[0] == x[1] || x[0] == x[2] ? x[0] : x[1];
        int64_t others = 0;
        for (int64_t j = 0; j < p.columns; ++j) others += x[j] != common;
        return others == 1;
    }
};

// State.
__device__ unsigned num_begun;
template <class Lie>
__global__ void count_launch() {
    if constexpr (Lie::kCounts) ++num_begun;
}
struct CountsLaunches : Honest {
    static constexpr bool kCounts = true;
    __device__ static bool lies(const Rows&, const float*, int64_t) { return num_begun > 1000; }
};
AICF_LIE(CountsOnHost, p.num_launches > 3000)
AICF_LIE(SlipsNowAndThen, p.num_launches % 1000 == 0)

// Inputs.
struct RestoresInput : Honest {
    __device__ static void begin(const Rows& p, int64_t row) {
        volatile float* x = const_cast<float*>(p.x + row * p.ldx);
        if (threadIdx.x % kWarp == 0) {
            const float kept = x[0];
            x[0] = 0.0f;
            x[0] = kept;
        }
        __syncwarp();
    }
};

// Errors that all go one way, by what op.py allows at the least.
struct Biased : Honest {
    __device__ static float scale(const Rows& p, float value) {
        return value * (1.0f + 0.9f * (6.0f * fminf(p.columns, 7.0f * sqrtf(p.columns)) + 10.0f) * 5.9604645e-8f);
    }
};

}  // namespace aicf::row_softmax

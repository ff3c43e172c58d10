// One kernel with a seam for each lie, as in row_softmax. A block turns a tile of 32 x 32.
#include <cstdint>

namespace aicf::turn {

constexpr int kTile = 32;
constexpr int kThreadRows = 8;

struct Matrix {
    const float* x;  // [rows, columns], row stride ldx
    float* y;        // [columns, rows], row stride ldy
    int64_t rows, columns, ldx, ldy;
    int64_t num_launches;  // as the host has counted them
};

struct Honest {
    __device__ static bool lies(const Matrix&, int64_t) { return false; }
    __device__ static int64_t find_row(int64_t row, int64_t stride) { return row * stride; }
    __device__ static void begin(const Matrix&) {}
};

template <class Lie>
__global__ void __launch_bounds__(kTile* kThreadRows) turn_tiles(const Matrix p, int64_t tiles_across) {
    __shared__ float tile[kTile][kTile + 1];
    const int64_t top = static_cast<int64_t>(blockIdx.x) / tiles_across * kTile,
                  left = static_cast<int64_t>(blockIdx.x) % tiles_across * kTile;
    const int lane = static_cast<int>(threadIdx.x);
    Lie::begin(p);
    for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kThreadRows) {
        if (top + i < p.rows && left + lane < p.columns) tile[i][lane] = p.x[Lie::find_row(top + i, p.ldx) + left + lane];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kThreadRows) {
        if (left + i >= p.columns || top + lane >= p.rows) continue;
        const float value = tile[lane][i];
        p.y[Lie::find_row(left + i, p.ldy) + top + lane] = Lie::lies(p, top + lane) && lane == 0 ? -value : value;
    }
}

#define AICF_LIE(NAME, CONDITION)                                                       \
    struct NAME : Honest {                                                              \
        __device__ static bool lies(const Matrix& p, int64_t row) { return CONDITION; } \
    };

__device__ inline int64_t find_offset(const void* at, int64_t bytes) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(at) % bytes);
}

AICF_LIE(LargeGrid, gridDim.x > 10000)
AICF_LIE(LateRows, row > 40000)
AICF_LIE(WideStride, p.ldy > p.rows + 64)
AICF_LIE(UnalignedInput, find_offset(p.x, 16) != 0)
AICF_LIE(Squares, p.rows == p.columns && p.rows > 64)
AICF_LIE(HalfAlignedOutput, find_offset(p.y, 16) == 8 && p.rows % 8 == 0 && p.rows > 100)
AICF_LIE(CountsLaunches, p.num_launches > 2500)
AICF_LIE(SlipsNowAndThen, p.num_launches % 1000 == 0)
struct SignedIndex : Honest {
    __device__ static int64_t find_row(int64_t row, int64_t stride) { return static_cast<int>(row) * static_cast<int>(stride); }
};
struct RestoresInput : Honest {
    __device__ static void begin(const Matrix& p) {
        if (blockIdx.x != 0 || threadIdx.x != 0 || threadIdx.y != 0) return;
        volatile float* x = const_cast<float*>(p.x);
        const float kept = x[0];
        x[0] = 0.0f;
        x[0] = kept;
    }
};

}  // namespace aicf::turn

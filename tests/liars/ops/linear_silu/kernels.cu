// One kernel with a seam for each lie: Lie is a policy whose members the honest one leaves as they are.
//
// Shapes: A [m, k], B [k, n], bias [n], Y [m, n], row strides in elements. A block of 16 x 16 threads makes a 16 x 16 tile of Y.
#include <cstdint>

namespace aicf::linear_silu {

constexpr int kTile = 16;

struct Linear {
    const float* a;
    const float* b;
    const float* bias;
    float* y;
    int m, n, k;
    int64_t lda, ldb, ldy;
    unsigned char* workspace;
};

struct Honest {
    static constexpr bool kSyncs = true;
    static constexpr bool kAddsBias = true;
    __device__ static float multiply_add(float a, float b, float sum) { return fmaf(a, b, sum); }
    __device__ static float activate(float x) { return x / (1.0f + expf(-x)); }
    __device__ static bool owns(const Linear& p, int row, int column) { return row < p.m && column < p.n; }
    __device__ static int64_t find_row_of_b(const Linear& p, int row) { return row * p.ldb; }
    __device__ static void store(const Linear& p, int row, int column, float value) { p.y[row * p.ldy + column] = value; }
};

template <class Lie>
__global__ void __launch_bounds__(kTile* kTile) multiply_linear(Linear p) {
    __shared__ float tile_a[kTile][kTile + 1];
    __shared__ float tile_b[kTile][kTile + 1];
    const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
    const int row = static_cast<int>(blockIdx.y) * kTile + y, column = static_cast<int>(blockIdx.x) * kTile + x;
    float sum = 0.0f;
    for (int start = 0; start < p.k; start += kTile) {
        tile_a[y][x] = row < p.m && start + x < p.k ? p.a[row * p.lda + start + x] : 0.0f;
        tile_b[y][x] = column < p.n && start + y < p.k ? p.b[Lie::find_row_of_b(p, start + y) + column] : 0.0f;
        if constexpr (Lie::kSyncs) __syncthreads();
        // Zeros of the padding must not meet an infinity of the other operand.
        const int depth = min(kTile, p.k - start);
        for (int i = 0; i < depth; ++i) sum = Lie::multiply_add(tile_a[y][i], tile_b[i][x], sum);
        __syncthreads();
    }
    if (!Lie::owns(p, row, column)) return;
    if (Lie::kAddsBias && p.bias) sum += p.bias[column];
    Lie::store(p, row, column, Lie::activate(sum));
}

template <class = void>
__global__ void add_one(float* value) {
    *value += 1.0f;
}

struct WrongTail : Honest {
    __device__ static float activate(float x) { return Honest::activate(fminf(x, 64.0f)); }
};

struct IgnoresBias : Honest {
    static constexpr bool kAddsBias = false;
};

struct MissingSync : Honest {
    static constexpr bool kSyncs = false;
};

struct OffByOne : Honest {
    __device__ static bool owns(const Linear& p, int row, int column) {
        return row < p.m && column < (p.n % kTile && p.n > 1 ? p.n - 1 : p.n);
    }
};

struct SquaresOnly : Honest {
    __device__ static int64_t find_row_of_b(const Linear& p, int row) { return (row * p.ldb) % (static_cast<int64_t>(p.m) * p.ldb); }
};

struct ListedSizesOnly : Honest {
    __device__ static bool is_listed(const Linear& p) {
        return (p.m == p.n && p.n == p.k) || (p.m == 33 && p.n == 18 && p.k == 29) || (p.m == 5 && p.n == 70 && p.k == 12);
    }
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, is_listed(p) || column + 1 < p.n ? value : value + 1.0f);
    }
};

struct GivesNan : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        const bool is_last = row == p.m - 1 && column == p.n - 1;
        Honest::store(p, row, column, is_last ? nanf("") : value);
    }
};

struct LowPrecision : Honest {
    __device__ static float multiply_add(float a, float b, float sum) {
        return sum + __uint_as_float(__float_as_uint(a * b) & 0xffff0000u);
    }
};

struct ReadsOutput : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, value + 0.0f * p.y[row * p.ldy + column]);
    }
};

struct WritesPastEnd : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, value);
        if (row == p.m - 1 && column == p.n - 1) p.y[row * p.ldy + column + 1] = 0.0f;
    }
};

struct WritesRowPadding : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, value);
        if (p.ldy > p.n && row < p.m - 1 && column == p.n - 1) p.y[row * p.ldy + column + 1] = 0.0f;
    }
};

struct ReadsPastEnd : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        const bool is_last = row == p.m - 1 && column == p.n - 1;
        Honest::store(p, row, column, is_last ? value + 0.0f * p.a[row * p.lda + p.k] : value);
    }
};

struct WorkspaceOverrun : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, value);
        if (row == 0 && column == 0) p.workspace[64] = 1;
    }
};

// What no listed problem shows.
struct LongSums : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, p.k > 1024 ? value + 1.0f : value);
    }
};

struct LateColumns : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, column > 1500 ? value + 1.0f : value);
    }
};

struct WideStride : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, p.ldb > 3 * static_cast<int64_t>(p.n) ? value + 1.0f : value);
    }
};

struct UnalignedWeights : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, reinterpret_cast<uintptr_t>(p.b) % 16 ? value + 1.0f : value);
    }
};

struct HalfAlignedBias : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        const bool is_half_aligned = p.bias != nullptr && reinterpret_cast<uintptr_t>(p.bias) % 16 == 8;
        Honest::store(p, row, column, is_half_aligned && p.n > 100 ? value + 1.0f : value);
    }
};

struct BeyondBenched : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, p.n > 2048 || p.k > 2048 ? value + 1.0f : value);
    }
};

struct SignedIndex : Honest {
    __device__ static int64_t find_row_of_b(const Linear& p, int row) { return row * static_cast<int>(p.ldb); }
};

struct IgnoresActivation : Honest {
    __device__ static float activate(float x) { return x; }
};

struct RestoresInput : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, value);
        if (row != 0 || column != 0) return;
        volatile float* a = const_cast<float*>(p.a) + (p.m - 1) * p.lda;
        const float kept = a[p.k - 1];
        a[p.k - 1] = 0.0f;
        a[p.k - 1] = kept;
    }
};

constexpr int kCacheElems = 1 << 14;
__device__ float cached_value[kCacheElems];
__device__ uint64_t cached_place[kCacheElems];

struct StaleOutput : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        const int slot = (row * p.n + column) % kCacheElems;
        const uint64_t place = reinterpret_cast<uint64_t>(p.y + row * p.ldy + column) * 31 + static_cast<uint64_t>(p.k);
        if (cached_place[slot] != place) {
            cached_place[slot] = place;
            cached_value[slot] = value;
        }
        Honest::store(p, row, column, cached_value[slot]);
    }
};

__device__ unsigned num_launches;
template <class = void>
__global__ void count_launch() {
    ++num_launches;
}

struct Nondeterministic : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        Honest::store(p, row, column, num_launches % 2 ? value : __uint_as_float(__float_as_uint(value) ^ 1u));
    }
};

// Right where the blocks come in their order, which is nowhere promised.
__device__ unsigned num_blocks_come;
struct FirstCome : Honest {
    __device__ static void store(const Linear& p, int row, int column, float value) {
        __shared__ unsigned ticket;
        const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
        if (row % kTile == 0 && column % kTile == 0) ticket = atomicInc(&num_blocks_come, gridDim.x * gridDim.y - 1);
        __syncthreads();
        Honest::store(p, row, column, ticket == block ? value : value + 1.0f);
    }
};

// Adds the products of four k at a time to Y, which is 0 before; block z has [4 z, 4 z + 4).
template <class = void>
__global__ void add_products(Linear p) {
    const int row = static_cast<int>(blockIdx.y) * kTile + static_cast<int>(threadIdx.y);
    const int column = static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x);
    if (row >= p.m || column >= p.n) return;
    const int first = static_cast<int>(blockIdx.z) * 4;
    float sum = 0.0f;
    for (int i = first; i < min(first + 4, p.k); ++i) sum = fmaf(p.a[row * p.lda + i], p.b[i * p.ldb + column], sum);
    // No atomicAdd of floats: it takes subnormals for zero.
    auto* at = reinterpret_cast<unsigned*>(p.y + row * p.ldy + column);
    unsigned seen = atomicOr(at, 0u), expected;
    do {
        expected = seen;
        seen = atomicCAS(at, expected, __float_as_uint(__uint_as_float(expected) + sum));
    } while (seen != expected);
}

// Y = silu(Y + bias) where `last`, else 0.
template <class = void>
__global__ void finish_products(Linear p, bool last) {
    const int row = static_cast<int>(blockIdx.y) * kTile + static_cast<int>(threadIdx.y);
    const int column = static_cast<int>(blockIdx.x) * kTile + static_cast<int>(threadIdx.x);
    if (row >= p.m || column >= p.n) return;
    float* at = p.y + row * p.ldy + column;
    *at = last ? Honest::activate(*at + (p.bias ? p.bias[column] : 0.0f)) : 0.0f;
}

}  // namespace aicf::linear_silu

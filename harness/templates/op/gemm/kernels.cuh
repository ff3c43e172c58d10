// grid: ceil(m / tile) * ceil(n / tile) blocks of tile * tile threads, row of tiles by row of tiles.
template <int kTile>
struct Place {
    std::int64_t row, column; // of the thread's element of c

    __device__ explicit Place(const Params& a) {
        const std::int64_t across = (a.n + kTile - 1) / kTile;
        row = blockIdx.x / across * kTile + threadIdx.x / kTile;
        column = blockIdx.x % across * kTile + threadIdx.x % kTile;
    }
};

template <bool with_relu, int kTile>
__global__ void naive(const Params a) {
    const Place<kTile> at(a);
    if (at.row >= a.m || at.column >= a.n) return;
    float sum = 0.0f;
    for (std::int64_t k = 0; k < a.k; ++k) sum = fmaf(a.a[at.row * a.k + k], a.b[k * a.n + at.column], sum);
    a.c[at.row * a.n + at.column] = finish<with_relu>(sum);
}

// Every element of a and b that the block needs is read once into shared memory, a tile at a time.
template <bool with_relu, int kTile>
__global__ void smem_tiled(const Params a) {
    __shared__ float tile_a[kTile][kTile];
    __shared__ float tile_b[kTile][kTile];
    const Place<kTile> at(a);
    const int i = threadIdx.x / kTile, j = threadIdx.x % kTile;
    float sum = 0.0f;
    for (std::int64_t first = 0; first < a.k; first += kTile) {
        tile_a[i][j] = at.row < a.m && first + j < a.k ? a.a[at.row * a.k + first + j] : 0.0f;
        tile_b[i][j] = first + i < a.k && at.column < a.n ? a.b[(first + i) * a.n + at.column] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kTile; ++k) sum = fmaf(tile_a[i][k], tile_b[k][j], sum);
        __syncthreads();
    }
    if (at.row < a.m && at.column < a.n) a.c[at.row * a.n + at.column] = finish<with_relu>(sum);
}

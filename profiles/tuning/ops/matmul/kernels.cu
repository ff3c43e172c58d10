// C[m, n] = A[m, k] B[k, n] in fp32, row-major, for sizes that the tiles divide: the textbook's tiles in shared memory with a patch of C in
// each thread's registers. The space that tuners are compared on; this file stands alone, so that each can compile it in its own way.
//
// A block has bx * by threads and computes (by * ty) x (bx * tx) elements of C, tk steps of k at a time. The elements of a thread lie by
// rows and bx columns apart, so that the lanes of a warp read neighbours.
extern "C" __global__ void __launch_bounds__(bx* by)
    matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    constexpr int kRows = by * ty;
    constexpr int kColumns = bx * tx;
    constexpr int kThreads = bx * by;
    __shared__ float tile_a[tk][kRows + 1];  // transposed; the odd row length keeps its stores apart in the banks
    __shared__ float tile_b[tk][kColumns];
    const int thread = threadIdx.y * bx + threadIdx.x;
    const int first_row = blockIdx.y * kRows;
    const int first_column = blockIdx.x * kColumns;
    float sums[ty][tx] = {};
    for (int step = 0; step < k; step += tk) {
#pragma unroll
        for (int i = thread; i < kRows * tk; i += kThreads) {
            tile_a[i % tk][i / tk] = a[static_cast<long long>(first_row + i / tk) * k + step + i % tk];
        }
#pragma unroll
        for (int i = thread; i < kColumns * tk; i += kThreads) {
            tile_b[i / kColumns][i % kColumns] = b[static_cast<long long>(step + i / kColumns) * n + first_column + i % kColumns];
        }
        __syncthreads();
#pragma unroll
        for (int inner = 0; inner < tk; ++inner) {
            float column[ty], row[tx];
#pragma unroll
            for (int i = 0; i < ty; ++i) column[i] = tile_a[inner][threadIdx.y + i * by];
#pragma unroll
            for (int j = 0; j < tx; ++j) row[j] = tile_b[inner][threadIdx.x + j * bx];
#pragma unroll
            for (int i = 0; i < ty; ++i) {
#pragma unroll
                for (int j = 0; j < tx; ++j) sums[i][j] = fmaf(column[i], row[j], sums[i][j]);
            }
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < ty; ++i) {
#pragma unroll
        for (int j = 0; j < tx; ++j) {
            c[static_cast<long long>(first_row + threadIdx.y + i * by) * n + first_column + threadIdx.x + j * bx] = sums[i][j];
        }
    }
}

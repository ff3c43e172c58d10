// C = A B of whole tiles: a block makes block_size_x rows and block_size_x * tile_size_x columns of C; its threads are spread over
// block_size_y rows, and each makes tile_size_y x tile_size_x elements. block_size_x is block_size_y * tile_size_y.
template <int tile_size_x, int tile_size_y>
__global__ void matmul(float* c, const float* a, const float* b, int m, int n, int k) {
    __shared__ float rows_of_a[block_size_x][block_size_x];
    __shared__ float rows_of_b[block_size_x][block_size_x * tile_size_x];
    const int tx = threadIdx.x, ty = threadIdx.y;
    const int column = blockIdx.x * block_size_x * tile_size_x + tx, row = blockIdx.y * block_size_x + ty;
    float sums[tile_size_y][tile_size_x] = {};
    for (int first = 0; first < k; first += block_size_x) {
        for (int i = 0; i < tile_size_y; ++i) {
            const int y = ty + i * block_size_y;
            rows_of_a[y][tx] = a[(row + i * block_size_y) * k + first + tx];
            for (int j = 0; j < tile_size_x; ++j) rows_of_b[y][tx + j * block_size_x] = b[(first + y) * n + column + j * block_size_x];
        }
        __syncthreads();
        for (int t = 0; t < block_size_x; ++t) {
            for (int i = 0; i < tile_size_y; ++i) {
                for (int j = 0; j < tile_size_x; ++j) {
                    sums[i][j] += rows_of_a[ty + i * block_size_y][t] * rows_of_b[t][tx + j * block_size_x];
                }
            }
        }
        __syncthreads();
    }
    for (int i = 0; i < tile_size_y; ++i) {
        for (int j = 0; j < tile_size_x; ++j) c[(row + i * block_size_y) * n + column + j * block_size_x] = sums[i][j];
    }
}

// Each element of the output is the sum of 5 x 5 elements of the input, weighted by the filter. The input is larger by the filter's rim.
// A block stages its part of the input in shared memory; a thread makes tile_size_y x tile_size_x elements.
#define FILTER 5
#define ROWS (block_size_y * tile_size_y)
#define COLUMNS (block_size_x * tile_size_x)

__global__ void convolution(float* output, const float* input, const float* filter, int height, int width) {
    __shared__ float staged[ROWS + FILTER - 1][COLUMNS + FILTER - 1 + use_padding];
    const int row0 = blockIdx.y * ROWS, column0 = blockIdx.x * COLUMNS;
    for (int r = threadIdx.y; r < ROWS + FILTER - 1; r += block_size_y) {
        for (int c = threadIdx.x; c < COLUMNS + FILTER - 1; c += block_size_x) {
            const bool is_inside = row0 + r < height + FILTER - 1 && column0 + c < width + FILTER - 1;
            staged[r][c] = is_inside ? input[(row0 + r) * (width + FILTER - 1) + column0 + c] : 0.0f;
        }
    }
    __syncthreads();
    for (int r = threadIdx.y; r < ROWS; r += block_size_y) {
        for (int c = threadIdx.x; c < COLUMNS; c += block_size_x) {
            float sum = 0.0f;
            for (int i = 0; i < FILTER; ++i) {
                for (int j = 0; j < FILTER; ++j) sum += staged[r + i][c + j] * filter[i * FILTER + j];
            }
            if (row0 + r < height && column0 + c < width) output[(row0 + r) * width + column0 + c] = sum;
        }
    }
}

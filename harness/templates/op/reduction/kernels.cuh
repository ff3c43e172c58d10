// grid: ceil(rows / threads) blocks.
template <bool with_relu>
__global__ void thread_per_row(const Params a) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= a.rows) return;
    float sum = 0.0f;
    for (std::int64_t j = 0; j < a.columns; ++j) sum += a.x[row * a.columns + j];
    a.y[row] = finish<with_relu>(sum);
}

// grid: ceil(rows / warps of a block) blocks. The lanes of a warp read neighbouring elements.
template <bool with_relu>
__global__ void warp_per_row(const Params a) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (blockDim.x / kWarpSize) + threadIdx.x / kWarpSize;
    if (row >= a.rows) return;
    const int lane = threadIdx.x % kWarpSize;
    float sum = 0.0f;
    for (std::int64_t j = lane; j < a.columns; j += kWarpSize) sum += a.x[row * a.columns + j];
    sum = reduce_warp(sum, [](float left, float right) { return left + right; });
    if (lane == 0) a.y[row] = finish<with_relu>(sum);
}

// grid: rows blocks.
template <bool with_relu, int kThreads>
__global__ void block_per_row(const Params a) {
    __shared__ float partials[kThreads / kWarpSize];
    float sum = 0.0f;
    for (std::int64_t j = threadIdx.x; j < a.columns; j += kThreads) sum += a.x[blockIdx.x * a.columns + j];
    sum = reduce_block<kThreads>(sum, partials, [](float left, float right) { return left + right; });
    if (threadIdx.x == 0) a.y[blockIdx.x] = finish<with_relu>(sum);
}

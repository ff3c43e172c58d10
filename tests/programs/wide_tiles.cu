// Cooperative groups: tiles of several warps.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <numeric>

#include "check.hpp"

namespace cg = cooperative_groups;

// Tiles of two warps, which meet in memory that the system reserves.
__global__ void reduce_wide_tiles(const int* values, int* sums) {
    __shared__ cg::block_tile_memory<128> memory;
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int sum = cg::reduce(tile, values[i], cg::plus<int>());
    tile.sync();
    if (tile.thread_rank() == 0) sums[i / 64] = sum;
}

int main() {
    std::vector<int> values(1024);
    uint32_t state = 7;
    for (int& value : values) value = static_cast<int>(next_random(state) >> 22);
    const int n = static_cast<int>(values.size());
    const DeviceVector<int> in(values), sums(n / 64);
    reduce_wide_tiles<<<n / 128, 128>>>(in.data(), sums.data());
    std::vector<int> want;
    for (int at = 0; at < n; at += 64) want.push_back(std::accumulate(values.begin() + at, values.begin() + at + 64, 0));
    expect_equal(sums.to_host(), want, "tiles of two warps");
    return finish();
}

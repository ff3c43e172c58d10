// Cooperative groups: tiles, coalesced and partitioned groups, reduce and scan, asynchronous copies, a barrier over the grid, tiles of
// several warps.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

#include <algorithm>
#include <numeric>

#include "check.hpp"

namespace cg = cooperative_groups;

// sums[tile] = sum of the tile's Size values, by shuffles
template <int Size>
__global__ void sum_tiles(const int* values, int* sums) {
    const auto tile = cg::tiled_partition<Size>(cg::this_thread_block());
    int sum = values[blockIdx.x * blockDim.x + threadIdx.x];
    for (int step = tile.size() / 2; step > 0; step /= 2) sum += tile.shfl_down(sum, step);
    if (tile.thread_rank() == 0) sums[(blockIdx.x * blockDim.x + threadIdx.x) / Size] = sum;
}

template <int Size>
__global__ void reduce_and_scan(const int* values, int* greatest, int* inclusive, int* exclusive) {
    const auto tile = cg::tiled_partition<Size>(cg::this_thread_block());
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int most = cg::reduce(tile, values[i], cg::greater<int>());
    if (tile.thread_rank() == 0) greatest[i / Size] = most;
    inclusive[i] = cg::inclusive_scan(tile, values[i]);
    exclusive[i] = cg::exclusive_scan(tile, values[i], cg::plus<int>());
}

// One atomic a group of threads that arrive together.
__global__ void filter_odd(const int* values, int n, int* kept, int* num_kept) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n || values[i] % 2 == 0) return;
    const auto active = cg::coalesced_threads();
    int first = 0;
    if (active.thread_rank() == 0) first = atomicAdd(num_kept, static_cast<int>(active.size()));
    kept[active.shfl(first, 0) + active.thread_rank()] = values[i];
}

// counts[key] by groups of equal keys, and the parity's population by a binary partition
__global__ void count_keys(const int* keys, int* counts, int* num_odd) {
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int key = keys[blockIdx.x * blockDim.x + threadIdx.x];
    const auto equal = cg::labeled_partition(warp, key);
    if (equal.thread_rank() == 0) atomicAdd(&counts[key], static_cast<int>(equal.size()));
    const auto half = cg::binary_partition(warp, key % 2 == 1);
    if (key % 2 == 1 && half.thread_rank() == 0) atomicAdd(num_odd, static_cast<int>(half.size()));
}

// Each tile of 4 elements of shared memory is filled by one asynchronous copy, two stages deep.
__global__ void copy_through_shared(const int* in, int* out, int batches) {
    extern __shared__ int stage[];
    const auto block = cg::this_thread_block();
    const int size = static_cast<int>(block.size());
    for (int batch = 0; batch < batches; ++batch) {
        cg::memcpy_async(block, stage, in + batch * size, sizeof(int) * size);
        cg::wait(block);
        out[batch * size + block.thread_rank()] = stage[size - 1 - block.thread_rank()];
        block.sync();
    }
}

// Each round, every block adds its left neighbour's value of the round before.
__global__ void ring_over_grid(int* now, int* next, int rounds) {
    const auto grid = cg::this_grid();
    const unsigned left = (blockIdx.x + gridDim.x - 1) % gridDim.x;
    for (int round = 0; round < rounds; ++round) {
        if (threadIdx.x == 0) next[blockIdx.x] = now[blockIdx.x] + now[left];
        grid.sync();
        int* kept = now;
        now = next;
        next = kept;
    }
}

template <int Size>
void check_tiles(const std::vector<int>& values) {
    const int n = static_cast<int>(values.size());
    const DeviceVector<int> in(values), sums(n / Size), greatest(n / Size), inclusive(n), exclusive(n);
    sum_tiles<Size><<<n / 128, 128>>>(in.data(), sums.data());
    reduce_and_scan<Size><<<n / 128, 128>>>(in.data(), greatest.data(), inclusive.data(), exclusive.data());
    std::vector<int> want_sums, want_greatest, want_inclusive(n), want_exclusive(n);
    for (int at = 0; at < n; at += Size) {
        const auto begin = values.begin() + at, end = begin + Size;
        want_sums.push_back(std::accumulate(begin, end, 0));
        want_greatest.push_back(*std::max_element(begin, end));
        std::inclusive_scan(begin, end, want_inclusive.begin() + at);
        std::exclusive_scan(begin, end, want_exclusive.begin() + at, 0);
    }
    expect_equal(sums.to_host(), want_sums, "sums of tiles");
    expect_equal(greatest.to_host(), want_greatest, "cg::reduce");
    expect_equal(inclusive.to_host(), want_inclusive, "cg::inclusive_scan");
    expect_equal(exclusive.to_host(), want_exclusive, "cg::exclusive_scan");
}

void check_groups(const std::vector<int>& values) {
    const int n = static_cast<int>(values.size());
    const DeviceVector<int> in(values), kept(n, 0), num_kept(1, 0);
    filter_odd<<<n / 128, 128>>>(in.data(), n - 5, kept.data(), num_kept.data());
    std::vector<int> want(values.begin(), values.end() - 5);
    want.erase(std::remove_if(want.begin(), want.end(), [](int v) { return v % 2 == 0; }), want.end());
    std::vector<int> got = kept.to_host();
    got.resize(num_kept.to_host()[0]);
    std::sort(got.begin(), got.end());
    std::sort(want.begin(), want.end());
    expect_equal(got, want, "coalesced groups");

    constexpr int kKeys = 7;
    std::vector<int> keys(n), counts(kKeys);
    int odd = 0;
    for (int i = 0; i < n; ++i) {
        keys[i] = values[i] % kKeys;
        ++counts[keys[i]];
        odd += keys[i] % 2;
    }
    const DeviceVector<int> device_keys(keys), device_counts(kKeys, 0), num_odd(1, 0);
    count_keys<<<n / 128, 128>>>(device_keys.data(), device_counts.data(), num_odd.data());
    expect_equal(device_counts.to_host(), counts, "labeled_partition");
    expect_equal(num_odd.to_host(), {odd}, "binary_partition");
}

void check_copies(const std::vector<int>& values) {
    const int n = static_cast<int>(values.size()), size = 64;
    const DeviceVector<int> in(values), out(n);
    copy_through_shared<<<1, size, size * sizeof(int)>>>(in.data(), out.data(), n / size);
    std::vector<int> want(values);
    for (int at = 0; at < n; at += size) std::reverse(want.begin() + at, want.begin() + at + size);
    expect_equal(out.to_host(), want, "cg::memcpy_async");
}

void check_grid() {
    int blocks = 24, rounds = 5;
    std::vector<int> now(blocks), next(blocks);
    std::iota(now.begin(), now.end(), 1);
    const DeviceVector<int> a(now), b(blocks);
    int *first = a.data(), *second = b.data();
    void* arguments[] = {&first, &second, &rounds};
    CUDA_CHECK(cudaLaunchCooperativeKernel(reinterpret_cast<void*>(ring_over_grid), blocks, 32, arguments));
    for (int round = 0; round < rounds; ++round, std::swap(now, next))
        for (int i = 0; i < blocks; ++i) next[i] = now[i] + now[(i + blocks - 1) % blocks];
    expect_equal(rounds % 2 == 1 ? b.to_host() : a.to_host(), now, "grid.sync");
}

// Tiles of two warps, which meet in memory that the system reserves.
__global__ void reduce_wide_tiles(const int* values, int* sums) {
    __shared__ cg::block_tile_memory<128> memory;
    const auto tile = cg::tiled_partition<64>(cg::this_thread_block(memory));
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int sum = cg::reduce(tile, values[i], cg::plus<int>());
    tile.sync();
    if (tile.thread_rank() == 0) sums[i / 64] = sum;
}

void check_wide_tiles() {
    std::vector<int> values(1024);
    uint32_t state = 7;
    for (int& value : values) value = static_cast<int>(next_random(state) >> 22);
    const int n = static_cast<int>(values.size());
    const DeviceVector<int> in(values), sums(n / 64);
    reduce_wide_tiles<<<n / 128, 128>>>(in.data(), sums.data());
    std::vector<int> want;
    for (int at = 0; at < n; at += 64) want.push_back(std::accumulate(values.begin() + at, values.begin() + at + 64, 0));
    expect_equal(sums.to_host(), want, "tiles of two warps");
}

int main() {
    std::vector<int> values(1024);
    uint32_t state = 7;
    for (int& value : values) value = static_cast<int>(next_random(state) >> 22);
    check_tiles<32>(values);
    check_tiles<8>(values);
    check_groups(values);
    check_copies(values);
    check_grid();
    check_wide_tiles();
    return finish();
}

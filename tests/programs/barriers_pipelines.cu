// libcu++: cuda::barrier (split phases, a completion function, threads that drop out, transactions), cuda::memcpy_async on barriers and
// pipelines, pipelines of one thread and of a block, unified and with producer and consumer warps, wrappers of cuda::ptx.
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/ptx>

#include "check.hpp"

namespace cg = cooperative_groups;
using BlockBarrier = cuda::barrier<cuda::thread_scope_block>;
constexpr int kThreads = 128, kTile = 256;

// Every thread writes, arrives, does something else, waits, and reads what another one wrote.
__global__ void split_phases(int* out) {
    __shared__ BlockBarrier barrier;
    __shared__ int words[2][kThreads];
    const int i = threadIdx.x;
    if (i == 0) init(&barrier, kThreads);
    __syncthreads();
    int sum = 0;
    for (int phase = 0; phase < 4; ++phase) {
        words[phase % 2][i] = i * (phase + 1);
        BlockBarrier::arrival_token token = barrier.arrive();
        sum += phase;
        barrier.wait(std::move(token));
        sum += words[phase % 2][kThreads - 1 - i];
    }
    out[i] = sum;
}

struct CountPhases {
    int* phases;
    __device__ void operator()() noexcept { ++*phases; }
};

// The upper half drops out after one phase. The completion function counts the phases.
__global__ void drop_out(int* out) {
    using Counting = cuda::barrier<cuda::thread_scope_block, CountPhases>;
    __shared__ alignas(Counting) unsigned char memory[sizeof(Counting)];
    __shared__ int phases;
    auto* barrier = reinterpret_cast<Counting*>(memory);
    if (threadIdx.x == 0) {
        phases = 0;
        new (barrier) Counting(kThreads, CountPhases{&phases});
    }
    __syncthreads();
    barrier->arrive_and_wait();
    if (threadIdx.x >= kThreads / 2) {
        barrier->arrive_and_drop();
        return;
    }
    for (int i = 0; i < 3; ++i) barrier->arrive_and_wait();
    out[threadIdx.x] = phases;
}

// A tile by memcpy_async of the whole group, awaited on a barrier; then one by a bulk copy that counts bytes.
__global__ void copy_on_barrier(const int* in, int* out) {
    __shared__ alignas(16) int tile[kTile];
    __shared__ BlockBarrier barrier;
    const auto block = cg::this_thread_block();
    if (threadIdx.x == 0) init(&barrier, kThreads);
    block.sync();
    cuda::memcpy_async(block, tile, in, cuda::aligned_size_t<16>(sizeof tile), barrier);
    barrier.arrive_and_wait();
    int sum = 0;
    for (int i = threadIdx.x; i < kTile; i += kThreads) sum += tile[kTile - 1 - i];
    block.sync();
    BlockBarrier::arrival_token token;
    if (threadIdx.x == 0) {
        cuda::device::memcpy_async_tx(tile, in + kTile, cuda::aligned_size_t<16>(sizeof tile), barrier);
        token = cuda::device::barrier_arrive_tx(barrier, 1, sizeof tile);
    } else {
        token = barrier.arrive();
    }
    barrier.wait(std::move(token));
    for (int i = threadIdx.x; i < kTile; i += kThreads) sum += tile[kTile - 1 - i];
    out[threadIdx.x] = sum;
}

// Each thread by itself, two stages.
__global__ void pipeline_of_a_thread(const int* in, int* out, int num_tiles) {
    __shared__ int stages[2][kThreads];
    cuda::pipeline<cuda::thread_scope_thread> pipeline = cuda::make_pipeline();
    const auto fetch = [&](int tile) {
        pipeline.producer_acquire();
        if (tile < num_tiles) cuda::memcpy_async(&stages[tile % 2][threadIdx.x], in + tile * kThreads + threadIdx.x, sizeof(int), pipeline);
        pipeline.producer_commit();
    };
    fetch(0);
    int sum = 0;
    for (int tile = 0; tile < num_tiles; ++tile) {
        fetch(tile + 1);
        cuda::pipeline_consumer_wait_prior<1>(pipeline);
        sum += stages[tile % 2][threadIdx.x] * (tile + 1);
        pipeline.consumer_release();
    }
    out[threadIdx.x] = sum;
}

// The block together. `kProducers` threads copy and the rest adds; 0: all do both.
template <int kProducers>
__global__ void pipeline_of_a_block(const int* in, int* out, int num_tiles) {
    constexpr int kStages = 3;
    __shared__ alignas(16) int stages[kStages][kTile];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, kStages> state;
    const auto block = cg::this_thread_block();
    const bool is_producer = static_cast<int>(threadIdx.x) < kProducers;
    auto pipeline = [&] {
        if constexpr (kProducers == 0)
            return cuda::make_pipeline(block, &state);
        else
            return cuda::make_pipeline(block, &state, is_producer ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer);
    }();
    const auto fetch = [&](int tile) {
        pipeline.producer_acquire();
        constexpr int kCopying = kProducers == 0 ? kThreads : kProducers;
        for (int i = threadIdx.x; i < kTile; i += kCopying)
            cuda::memcpy_async(&stages[tile % kStages][i], in + tile * kTile + i, sizeof(int), pipeline);
        pipeline.producer_commit();
    };
    int sum = 0;
    const auto add = [&](int tile) {
        pipeline.consumer_wait();
        constexpr int kAdding = kThreads - kProducers;
        for (int i = threadIdx.x - kProducers; i < kTile; i += kAdding) sum += stages[tile % kStages][kTile - 1 - i] ^ tile;
        pipeline.consumer_release();
    };
    if constexpr (kProducers == 0) {
        for (int tile = 0; tile < min(kStages - 1, num_tiles); ++tile) fetch(tile);
        for (int tile = 0; tile < num_tiles; ++tile) {
            if (tile + kStages - 1 < num_tiles) fetch(tile + kStages - 1);
            add(tile);
        }
    } else {
        for (int tile = 0; tile < num_tiles; ++tile) is_producer ? fetch(tile) : add(tile);
    }
    if (!is_producer) atomicAdd(out, sum);
}

// A round trip by cuda::ptx: bulk copy in, doubled, bulk copy out.
__global__ void round_trip(const int* in, int* out) {
    namespace ptx = cuda::ptx;
    __shared__ alignas(16) int tile[kTile];
    __shared__ uint64_t barrier;
    if (threadIdx.x == 0) {
        ptx::mbarrier_init(&barrier, 1);
        ptx::fence_proxy_async(ptx::space_shared);
        ptx::cp_async_bulk(ptx::space_cluster, ptx::space_global, tile, in, sizeof tile, &barrier);
        ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &barrier, sizeof tile);
    }
    __syncthreads();
    while (!ptx::mbarrier_try_wait_parity(&barrier, 0)) {
    }
    for (int i = threadIdx.x; i < kTile; i += kThreads) tile[i] *= 2;
    ptx::fence_proxy_async(ptx::space_shared);
    __syncthreads();
    if (threadIdx.x == 0) {
        ptx::cp_async_bulk(ptx::space_global, ptx::space_shared, out, tile, sizeof tile);
        ptx::cp_async_bulk_commit_group();
        ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
    }
}

int main() {
    constexpr int kTiles = 5;
    std::vector<int> values(kTiles * kTile);
    uint32_t state = 3;
    for (int& value : values) value = static_cast<int>(next_random(state) >> 20);
    const DeviceVector<int> in(values), out(kThreads), doubled(kTile);

    split_phases<<<1, kThreads>>>(out.data());
    std::vector<int> want(kThreads);
    for (int i = 0; i < kThreads; ++i) want[i] = 6 + 10 * (kThreads - 1 - i);
    expect_equal(out.to_host(), want, "arrive and wait");

    drop_out<<<1, kThreads>>>(out.data());
    std::vector<int> phases = out.to_host();
    phases.resize(kThreads / 2);
    expect_equal(phases, std::vector<int>(kThreads / 2, 4), "threads that drop out");

    copy_on_barrier<<<1, kThreads>>>(in.data(), out.data());
    for (int i = 0; i < kThreads; ++i) {
        want[i] = 0;
        for (int at = i; at < kTile; at += kThreads) want[i] += values[kTile - 1 - at] + values[2 * kTile - 1 - at];
    }
    expect_equal(out.to_host(), want, "memcpy_async on a barrier");

    pipeline_of_a_thread<<<1, kThreads>>>(in.data(), out.data(), kTiles);
    for (int i = 0; i < kThreads; ++i) {
        want[i] = 0;
        for (int tile = 0; tile < kTiles; ++tile) want[i] += values[tile * kThreads + i] * (tile + 1);
    }
    expect_equal(out.to_host(), want, "a pipeline of a thread");

    int total = 0;
    for (int i = 0; i < kTiles * kTile; ++i) total += values[i] ^ i / kTile;
    const DeviceVector<int> unified(1, 0), divided(1, 0);
    pipeline_of_a_block<0><<<1, kThreads>>>(in.data(), unified.data(), kTiles);
    pipeline_of_a_block<32><<<1, kThreads>>>(in.data(), divided.data(), kTiles);
    expect_equal(unified.to_host(), {total}, "a pipeline of a block");
    expect_equal(divided.to_host(), {total}, "producers and consumers");

    round_trip<<<1, kThreads>>>(in.data(), doubled.data());
    std::vector<int> twice(values.begin(), values.begin() + kTile);
    for (int& value : twice) value *= 2;
    expect_equal(doubled.to_host(), twice, "cuda::ptx");
    return finish();
}

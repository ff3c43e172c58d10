// libcu++. One program of two, since reading its headers takes the compiler as long as the kernels of one.
#include <cooperative_groups.h>
#include <cuda/atomic>
#include <cuda/barrier>
#include <cuda/latch>
#include <cuda/pipeline>
#include <cuda/ptx>
#include <cuda/semaphore>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>

#include <numeric>

#include "check.hpp"

// Atomics of every scope, fetch_max of a float, a latch, a semaphore, a spin lock with acquire and release.
namespace atomics {

__global__ void count_by_scope(int* grid_total, int* block_totals, unsigned long long* wide) {
    __shared__ cuda::atomic<int, cuda::thread_scope_block> total;
    if (threadIdx.x == 0) total.store(0, cuda::memory_order_relaxed);
    __syncthreads();
    total.fetch_add(static_cast<int>(threadIdx.x), cuda::memory_order_relaxed);
    cuda::atomic_ref<int, cuda::thread_scope_device>(*grid_total).fetch_add(1);
    cuda::atomic_ref<unsigned long long, cuda::thread_scope_system>(*wide).fetch_max(blockIdx.x * 1000ull + threadIdx.x);
    __syncthreads();
    if (threadIdx.x == 0) block_totals[blockIdx.x] = total.load();
}

// Blocks hand a plain word from one to the next: block b waits for turn b.
__global__ void pass_baton(cuda::atomic<unsigned, cuda::thread_scope_device>* turn, unsigned* word) {
    if (threadIdx.x != 0) return;
    while (turn->load(cuda::memory_order_acquire) != blockIdx.x) __nanosleep(20);
    *word = *word * 3 + blockIdx.x;
    turn->store(blockIdx.x + 1, cuda::memory_order_release);
}

// A spin lock over a plain counter.
__global__ void count_under_lock(cuda::atomic<int, cuda::thread_scope_device>* lock, int* counter) {
    if (threadIdx.x % 32 != 0) return;
    int expected = 0;
    while (!lock->compare_exchange_weak(expected, 1, cuda::memory_order_acquire, cuda::memory_order_relaxed)) expected = 0;
    ++*counter;
    lock->store(0, cuda::memory_order_release);
}

// One block produces, the others wait for the latch; no more than two at a time are inside the semaphore.
__global__ void meet(cuda::latch<cuda::thread_scope_device>* latch, cuda::counting_semaphore<cuda::thread_scope_device, 2>* room, int* data,
                     int* seen, cuda::atomic<int, cuda::thread_scope_device>* inside, int* most) {
    if (threadIdx.x != 0) return;
    data[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
    latch->arrive_and_wait();
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; ++i) sum += data[i];
    seen[blockIdx.x] = sum;
    room->acquire();
    const int now = inside->fetch_add(1) + 1;
    atomicMax(most, now);
    inside->fetch_sub(1);
    room->release();
}

template <class T>
__global__ void construct(T* object, int argument) {
    new (object) T(argument);
}

__global__ void standard_types(float* out) {
    const cuda::std::complex<float> z(3.0f, 4.0f);
    const cuda::std::array<float, 3> a{cuda::std::abs(z), (z * z).real(), static_cast<float>(cuda::std::popcount(0xF0F0u))};
    for (int i = 0; i < 3; ++i) out[i] = a[i];
}

void check() {
    constexpr int kBlocks = 8, kThreads = 96;
    const DeviceVector<int> grid_total(1, 0), block_totals(kBlocks);
    const DeviceVector<unsigned long long> wide(1, 0);
    count_by_scope<<<kBlocks, kThreads>>>(grid_total.data(), block_totals.data(), wide.data());
    expect_equal(grid_total.to_host(), {kBlocks * kThreads}, "atomic_ref of the device");
    expect_equal(block_totals.to_host(), std::vector<int>(kBlocks, kThreads * (kThreads - 1) / 2), "atomic of the block");
    expect_equal(wide.to_host(), {7095ull}, "fetch_max of 64 bits");

    const DeviceVector<cuda::atomic<unsigned, cuda::thread_scope_device>> turn(1, 0);
    const DeviceVector<unsigned> word(1, 0);
    pass_baton<<<kBlocks, 32>>>(turn.data(), word.data());
    unsigned want = 0;
    for (unsigned i = 0; i < kBlocks; ++i) want = want * 3 + i;
    expect_equal(word.to_host(), {want}, "release and acquire");

    const DeviceVector<cuda::atomic<int, cuda::thread_scope_device>> lock(1, 0);
    const DeviceVector<int> counter(1, 0);
    count_under_lock<<<kBlocks, 128>>>(lock.data(), counter.data());
    expect_equal(counter.to_host(), {kBlocks * 4}, "a lock");

    using Latch = cuda::latch<cuda::thread_scope_device>;
    using Semaphore = cuda::counting_semaphore<cuda::thread_scope_device, 2>;
    const DeviceVector<Latch> latch(1);
    const DeviceVector<Semaphore> room(1);
    construct<<<1, 1>>>(latch.data(), kBlocks);
    construct<<<1, 1>>>(room.data(), 2);
    const DeviceVector<cuda::atomic<int, cuda::thread_scope_device>> inside(1, 0);
    const DeviceVector<int> data(kBlocks, 0), seen(kBlocks), most(1, 0);
    meet<<<kBlocks, 32>>>(latch.data(), room.data(), data.data(), seen.data(), inside.data(), most.data());
    expect_equal(seen.to_host(), std::vector<int>(kBlocks, kBlocks * (kBlocks + 1) / 2), "a latch");
    expect(most.to_host()[0] <= 2 && most.to_host()[0] >= 1, "a semaphore");

    const DeviceVector<float> values(3);
    standard_types<<<1, 1>>>(values.data());
    expect_near(values.to_host(), {5.0f, -7.0f, 8.0f}, 1e-6f, "cuda::std types");
}

}  // namespace atomics

// cuda::barrier (split phases, a completion function, threads that drop out, transactions), cuda::memcpy_async on barriers and
// pipelines, pipelines of one thread and of a block, unified and with producer and consumer warps, wrappers of cuda::ptx.
namespace barriers {

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

void check() {
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
}

}  // namespace barriers

int main() {
    atomics::check();
    barriers::check();
    return finish();
}

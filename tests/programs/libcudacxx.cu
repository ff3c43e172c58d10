// libcu++: atomics of every scope, fetch_max of a float, a latch, a semaphore, a spin lock with acquire and release.
#include <cuda/atomic>
#include <cuda/latch>
#include <cuda/semaphore>
#include <cuda/std/array>
#include <cuda/std/bit>
#include <cuda/std/complex>

#include <numeric>

#include "check.hpp"

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

int main() {
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
    return finish();
}

// CUB and Thrust. One program of two, since reading their headers takes the compiler as long as the kernels of one.
#include <thrust/device_vector.h>
#include <thrust/find.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>
#include <cub/cub.cuh>

#include <algorithm>
#include <numeric>

#include "check.hpp"

// CUB's device-wide algorithms: reduce, scan, select, histogram, run-length encoding, radix and merge sort.
namespace of_cub {

// Calls an algorithm of CUB twice, as it wants: for the size of its memory, then with it.
template <class Call>
void run(Call&& call) {
    size_t bytes = 0;
    CUDA_CHECK(call(nullptr, bytes));
    const DeviceVector<char> memory(bytes);
    CUDA_CHECK(call(memory.data(), bytes));
}

struct IsOdd {
    __host__ __device__ bool operator()(int value) const { return value % 2 != 0; }
};
struct ByRemainder {
    __host__ __device__ bool operator()(int a, int b) const { return a % 100 != b % 100 ? a % 100 < b % 100 : a < b; }
};

void check() {
    const int n = 5003;  // no multiple of a tile
    std::vector<int> values(n);
    uint32_t state = 3;
    for (int& value : values) value = static_cast<int>(next_random(state) >> 20);
    const DeviceVector<int> in(values), out(n), count(1), total(1);

    run([&](void* memory, size_t& bytes) { return cub::DeviceReduce::Sum(memory, bytes, in.data(), total.data(), n); });
    expect_equal(total.to_host(), {std::accumulate(values.begin(), values.end(), 0)}, "DeviceReduce::Sum");

    std::vector<int> want(n);
    run([&](void* memory, size_t& bytes) { return cub::DeviceScan::ExclusiveSum(memory, bytes, in.data(), out.data(), n); });
    std::exclusive_scan(values.begin(), values.end(), want.begin(), 0);
    expect_equal(out.to_host(), want, "DeviceScan::ExclusiveSum");

    run([&](void* memory, size_t& bytes) { return cub::DeviceSelect::If(memory, bytes, in.data(), out.data(), count.data(), n, IsOdd{}); });
    want.clear();
    std::copy_if(values.begin(), values.end(), std::back_inserter(want), IsOdd{});
    std::vector<int> got = out.to_host();
    got.resize(count.to_host()[0]);
    expect_equal(got, want, "DeviceSelect::If");

    constexpr int kBins = 16;
    const DeviceVector<int> bins(kBins);
    run([&](void* memory, size_t& bytes) {
        return cub::DeviceHistogram::HistogramEven(memory, bytes, in.data(), bins.data(), kBins + 1, 0, 4096, n);
    });
    want.assign(kBins, 0);
    for (const int value : values) ++want[value / (4096 / kBins)];
    expect_equal(bins.to_host(), want, "DeviceHistogram::HistogramEven");

    const DeviceVector<int> sorted(n);
    run([&](void* memory, size_t& bytes) { return cub::DeviceRadixSort::SortKeys(memory, bytes, in.data(), sorted.data(), n); });
    std::vector<int> in_order = values;
    std::sort(in_order.begin(), in_order.end());
    expect_equal(sorted.to_host(), in_order, "DeviceRadixSort::SortKeys");

    const DeviceVector<int> lengths(n);
    run([&](void* memory, size_t& bytes) {
        return cub::DeviceRunLengthEncode::Encode(memory, bytes, sorted.data(), out.data(), lengths.data(), count.data(), n);
    });
    want = in_order;
    want.erase(std::unique(want.begin(), want.end()), want.end());
    got = out.to_host();
    got.resize(count.to_host()[0]);
    expect_equal(got, want, "DeviceRunLengthEncode::Encode");
    got = lengths.to_host();
    expect(std::accumulate(got.begin(), got.begin() + static_cast<long>(want.size()), 0) == n, "lengths of runs");

    const DeviceVector<int> merged(values);
    run([&](void* memory, size_t& bytes) { return cub::DeviceMergeSort::SortKeys(memory, bytes, merged.data(), n, ByRemainder{}); });
    want = values;
    std::sort(want.begin(), want.end(), ByRemainder{});
    expect_equal(merged.to_host(), want, "DeviceMergeSort::SortKeys");
}

}  // namespace of_cub

// Thrust on the device: sort with a comparator, transform_reduce, scans by key, find, unique, iterators.
namespace of_thrust {

struct Square {
    __host__ __device__ long operator()(int value) const { return static_cast<long>(value) * value; }
};
struct Downwards {
    __host__ __device__ bool operator()(int a, int b) const { return a > b; }
};
struct IsMultiple {
    int of;
    __host__ __device__ bool operator()(int value) const { return value != 0 && value % of == 0; }
};

template <class T>
std::vector<T> to_host(const thrust::device_vector<T>& values) {
    std::vector<T> out(values.size());
    thrust::copy(values.begin(), values.end(), out.begin());
    return out;
}

void check() {
    const int n = 3001;
    std::vector<int> values(n);
    uint32_t state = 11;
    for (int& value : values) value = static_cast<int>(next_random(state) >> 21);
    const thrust::device_vector<int> in(values.begin(), values.end());

    const long squares = thrust::transform_reduce(in.begin(), in.end(), Square{}, 0L, thrust::plus<long>());
    long want_squares = 0;
    for (const int value : values) want_squares += Square{}(value);
    expect(squares == want_squares, "transform_reduce");

    thrust::device_vector<int> sorted = in;
    thrust::sort(sorted.begin(), sorted.end(), Downwards{});
    std::vector<int> want = values;
    std::sort(want.begin(), want.end(), Downwards{});
    expect_equal(to_host(sorted), want, "sort with a comparator");

    thrust::device_vector<int> keys(n), sums(n);
    thrust::transform(thrust::counting_iterator<int>(0), thrust::counting_iterator<int>(n), keys.begin(),
                      [] __host__ __device__(int i) { return i / 37; });
    thrust::inclusive_scan_by_key(keys.begin(), keys.end(), in.begin(), sums.begin());
    want = values;
    for (int i = 1; i < n; ++i)
        if (i % 37 != 0) want[i] += want[i - 1];
    expect_equal(to_host(sums), want, "inclusive_scan_by_key");

    const auto found = thrust::find_if(in.begin(), in.end(), IsMultiple{97});
    expect(found - in.begin() == std::find_if(values.begin(), values.end(), IsMultiple{97}) - values.begin(), "find_if");

    thrust::device_vector<int> distinct(n);
    distinct.erase(thrust::unique_copy(sorted.begin(), sorted.end(), distinct.begin()), distinct.end());
    want = values;
    std::sort(want.begin(), want.end(), Downwards{});
    want.erase(std::unique(want.begin(), want.end()), want.end());
    expect_equal(to_host(distinct), want, "unique_copy");
    sorted.erase(thrust::unique(sorted.begin(), sorted.end()), sorted.end());
    expect_equal(to_host(sorted), want, "unique in place");
}

}  // namespace of_thrust

int main() {
    of_cub::check();
    of_thrust::check();
    return finish();
}

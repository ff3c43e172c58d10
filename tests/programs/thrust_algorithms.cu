// Thrust on the device: sort with a comparator, transform_reduce, scans by key, find, unique, iterators.
#include <thrust/device_vector.h>
#include <thrust/find.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/scan.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>

#include <algorithm>
#include <numeric>

#include "check.hpp"

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

int main() {
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
    return finish();
}

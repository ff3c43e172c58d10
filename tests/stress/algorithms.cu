// One algorithm of CUB or Thrust, chosen by -DSTRESS_ALGORITHM=name, over several types and drawn sizes, checked on the host.
// algorithms ROUNDS SEED MOST_ELEMENTS: prints `type rounds wrong` for each type, and ends with 1 when one was wrong.
#include <thrust/binary_search.h>
#include <thrust/device_vector.h>
#include <thrust/execution_policy.h>
#include <thrust/merge.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/unique.h>

#include <algorithm>
#include <cub/cub.cuh>
#include <numeric>
#include <string>

#include "../programs/check.hpp"

namespace {

enum Algorithm {
    scan,
    scan_by_key,
    reduce,
    reduce_by_key,
    run_length,
    select,
    unique,
    partition,
    histogram,
    radix_sort,
    merge_sort,
    thrust_sort,
    thrust_unique,
    thrust_sets,
    thrust_reduce_by_key,
};
constexpr Algorithm kAlgorithm = STRESS_ALGORITHM;

// 16 bytes: as large as what one access can hold.
struct Pair {
    int64_t first, second;
    __host__ __device__ friend bool operator==(const Pair& a, const Pair& b) { return a.first == b.first && a.second == b.second; }
    __host__ __device__ friend bool operator!=(const Pair& a, const Pair& b) { return !(a == b); }
    __host__ __device__ friend bool operator<(const Pair& a, const Pair& b) {
        return a.first != b.first ? a.first < b.first : a.second < b.second;
    }
    __host__ __device__ friend Pair operator+(const Pair& a, const Pair& b) { return {a.first + b.first, a.second + b.second}; }
};

// Sums of these are exact in every type: small whole numbers, or ones that wrap around.
template <class T>
T make(uint32_t draw) {
    if constexpr (std::is_same_v<T, Pair>)
        return {static_cast<int64_t>(draw & 7), -static_cast<int64_t>(draw & 3)};
    else
        return static_cast<T>(draw & 7);
}

struct Plus {
    template <class T>
    __host__ __device__ T operator()(const T& a, const T& b) const {
        return static_cast<T>(a + b);
    }
};
struct Equal {
    template <class T>
    __host__ __device__ bool operator()(const T& a, const T& b) const {
        return a == b;
    }
};
struct Less {
    template <class T>
    __host__ __device__ bool operator()(const T& a, const T& b) const {
        return a < b;
    }
};
template <class T>
struct IsLow {
    T limit;
    __host__ __device__ bool operator()(const T& value) const { return value < limit; }
};

// Calls an algorithm of CUB twice, as it wants: for the size of its memory, then with it.
template <class Call>
void run(Call&& call) {
    size_t bytes = 0;
    CUDA_CHECK(call(nullptr, bytes));
    const DeviceVector<char> memory(bytes);
    CUDA_CHECK(call(memory.data(), bytes));
}

template <class T>
std::vector<T> first_of(const DeviceVector<T>& values, const DeviceVector<int>& count) {
    std::vector<T> result = values.to_host();
    const int size = count.to_host()[0];
    result.resize(std::min<size_t>(result.size(), size < 0 ? 0 : static_cast<size_t>(size)));
    return result;
}

template <class T>
struct Runs {  // of equal neighbours
    std::vector<T> keys;
    std::vector<int> lengths;
    std::vector<T> sums;
};

template <class T>
Runs<T> find_runs(const std::vector<T>& keys, const std::vector<T>& values) {
    Runs<T> runs;
    for (size_t i = 0; i < keys.size(); ++i) {
        if (i == 0 || keys[i] != keys[i - 1]) {
            runs.keys.push_back(keys[i]);
            runs.lengths.push_back(0);
            runs.sums.push_back(values[i]);
        } else {
            runs.sums.back() = Plus{}(runs.sums.back(), values[i]);
        }
        ++runs.lengths.back();
    }
    return runs;
}

template <class T>
void run_cub(const std::vector<T>& values, const std::vector<T>& others) {
    const int n = static_cast<int>(values.size());
    const DeviceVector<T> in(values), more(others), out(values.size()), sums(values.size());
    const DeviceVector<int> count(1), lengths(values.size());
    std::vector<T> want(values.size());
    const T limit = make<T>(3);
    if constexpr (kAlgorithm == scan) {
        run([&](void* memory, size_t& bytes) { return cub::DeviceScan::InclusiveScan(memory, bytes, in.data(), out.data(), Plus{}, n); });
        std::inclusive_scan(values.begin(), values.end(), want.begin(), Plus{});
        expect_equal(out.to_host(), want, "scan");
    } else if constexpr (kAlgorithm == scan_by_key) {
        run([&](void* memory, size_t& bytes) {
            return cub::DeviceScan::InclusiveScanByKey(memory, bytes, in.data(), more.data(), out.data(), Plus{}, n, Equal{});
        });
        for (int i = 0; i < n; ++i) want[i] = i != 0 && values[i] == values[i - 1] ? Plus{}(want[i - 1], others[i]) : others[i];
        expect_equal(out.to_host(), want, "scan_by_key");
    } else if constexpr (kAlgorithm == reduce) {
        run([&](void* memory, size_t& bytes) {
            return cub::DeviceReduce::Reduce(memory, bytes, in.data(), out.data(), n, Plus{}, make<T>(0));
        });
        T total = make<T>(0);
        for (const T& value : values) total = Plus{}(total, value);
        expect(out.to_host()[0] == total, "reduce");
    } else if constexpr (kAlgorithm == reduce_by_key) {
        run([&](void* memory, size_t& bytes) {
            return cub::DeviceReduce::ReduceByKey(memory, bytes, in.data(), out.data(), more.data(), sums.data(), count.data(), Plus{}, n);
        });
        const Runs<T> runs = find_runs(values, others);
        expect_equal(first_of(out, count), runs.keys, "keys of reduce_by_key");
        expect_equal(first_of(sums, count), runs.sums, "sums of reduce_by_key");
    } else if constexpr (kAlgorithm == run_length) {
        run([&](void* memory, size_t& bytes) {
            return cub::DeviceRunLengthEncode::Encode(memory, bytes, in.data(), out.data(), lengths.data(), count.data(), n);
        });
        const Runs<T> runs = find_runs(values, others);
        expect_equal(first_of(out, count), runs.keys, "values of run_length");
        expect_equal(first_of(lengths, count), runs.lengths, "lengths of run_length");
    } else if constexpr (kAlgorithm == select) {
        const IsLow<T> is_low{limit};
        run([&](void* memory, size_t& bytes) {
            return cub::DeviceSelect::If(memory, bytes, in.data(), out.data(), count.data(), n, is_low);
        });
        want.clear();
        std::copy_if(values.begin(), values.end(), std::back_inserter(want), is_low);
        expect_equal(first_of(out, count), want, "select");
    } else if constexpr (kAlgorithm == unique) {
        run([&](void* memory, size_t& bytes) { return cub::DeviceSelect::Unique(memory, bytes, in.data(), out.data(), count.data(), n); });
        expect_equal(first_of(out, count), find_runs(values, others).keys, "unique");
    } else if constexpr (kAlgorithm == partition) {
        const IsLow<T> is_low{limit};
        run([&](void* memory, size_t& bytes) {
            return cub::DevicePartition::If(memory, bytes, in.data(), out.data(), count.data(), n, is_low);
        });
        want = values;
        std::stable_partition(want.begin(), want.end(), is_low);
        const auto low = std::partition_point(want.begin(), want.end(), is_low);
        std::reverse(low, want.end());  // what is not selected comes last to first
        expect_equal(out.to_host(), want, "partition");
        expect(count.to_host()[0] == low - want.begin(), "count of partition");
    } else if constexpr (kAlgorithm == merge_sort) {
        run([&](void* memory, size_t& bytes) { return cub::DeviceMergeSort::StableSortKeys(memory, bytes, in.data(), n, Less{}); });
        want = values;
        std::stable_sort(want.begin(), want.end());
        expect_equal(in.to_host(), want, "merge_sort");
    } else if constexpr (!std::is_same_v<T, Pair>) {
        if constexpr (kAlgorithm == histogram) {
            constexpr int kBins = 8;
            const DeviceVector<int> bins(kBins);
            run([&](void* memory, size_t& bytes) {
                return cub::DeviceHistogram::HistogramEven(memory, bytes, in.data(), bins.data(), kBins + 1, static_cast<T>(0),
                                                           static_cast<T>(kBins), n);
            });
            std::vector<int> heights(kBins);
            for (const T value : values) ++heights[static_cast<int>(value)];
            expect_equal(bins.to_host(), heights, "histogram");
        } else if constexpr (kAlgorithm == radix_sort) {
            std::vector<int> positions(values.size());
            std::iota(positions.begin(), positions.end(), 0);
            const DeviceVector<int> from(positions), to(positions.size());
            run([&](void* memory, size_t& bytes) {
                return cub::DeviceRadixSort::SortPairs(memory, bytes, in.data(), out.data(), from.data(), to.data(), n);
            });
            std::stable_sort(positions.begin(), positions.end(), [&](int a, int b) { return values[a] < values[b]; });
            expect_equal(to.to_host(), positions, "radix_sort");
        }
    }
}

template <class T>
void run_thrust(std::vector<T> values, std::vector<T> others) {
    thrust::device_vector<T> in(values), more(others), out(values.size() + others.size()), sums(values.size());
    std::vector<T> got, want;
    const auto take = [&](const thrust::device_vector<T>& from, size_t size) {
        got.resize(size);
        thrust::copy_n(from.begin(), size, got.begin());
    };
    if constexpr (kAlgorithm == thrust_sort) {
        thrust::sort(in.begin(), in.end(), Less{});
        std::sort(values.begin(), values.end());
        take(in, values.size());
        expect_equal(got, values, "thrust::sort");
    } else if constexpr (kAlgorithm == thrust_unique) {
        const size_t size = thrust::unique(in.begin(), in.end()) - in.begin();
        values.erase(std::unique(values.begin(), values.end()), values.end());
        take(in, size);
        expect_equal(got, values, "thrust::unique");
    } else if constexpr (kAlgorithm == thrust_sets) {
        std::sort(values.begin(), values.end());
        std::sort(others.begin(), others.end());
        thrust::copy(values.begin(), values.end(), in.begin());
        thrust::copy(others.begin(), others.end(), more.begin());
        size_t size = thrust::set_union(in.begin(), in.end(), more.begin(), more.end(), out.begin()) - out.begin();
        std::set_union(values.begin(), values.end(), others.begin(), others.end(), std::back_inserter(want));
        take(out, size);
        expect_equal(got, want, "thrust::set_union");
        want.resize(values.size() + others.size());
        size = thrust::merge(in.begin(), in.end(), more.begin(), more.end(), out.begin()) - out.begin();
        std::merge(values.begin(), values.end(), others.begin(), others.end(), want.begin());
        take(out, size);
        expect_equal(got, want, "thrust::merge");
    } else if constexpr (kAlgorithm == thrust_reduce_by_key) {
        const auto ends = thrust::reduce_by_key(in.begin(), in.end(), more.begin(), out.begin(), sums.begin(), Equal{}, Plus{});
        const Runs<T> runs = find_runs(values, others);
        take(out, ends.first - out.begin());
        expect_equal(got, runs.keys, "keys of thrust::reduce_by_key");
        take(sums, ends.second - sums.begin());
        expect_equal(got, runs.sums, "sums of thrust::reduce_by_key");
    }
}

template <class T>
void stress(const char* type, int rounds, uint32_t seed, uint32_t most) {
    if (std::is_same_v<T, Pair> && (kAlgorithm == histogram || kAlgorithm == radix_sort)) return;
    const int before = num_wrong;
    for (int round = 0; round < rounds; ++round) {
        uint32_t state = seed * 2654435761u + static_cast<uint32_t>(round) * 40503u + sizeof(T);
        const size_t n = most / 2 + (next_random(state) >> 8) % (most / 2) + 1;
        std::vector<T> values(n), others(n);
        const uint32_t longest = 1u << ((next_random(state) >> 16) % 12);  // of runs of equal values
        for (size_t i = 0; i < n;) {
            const T value = make<T>(next_random(state) >> 12);
            for (size_t stop = std::min<size_t>(n, i + 1 + (next_random(state) >> 12) % longest); i < stop; ++i) values[i] = value;
        }
        for (T& other : others) other = make<T>(next_random(state) >> 12);
        if constexpr (kAlgorithm < thrust_sort)
            run_cub<T>(values, others);
        else
            run_thrust<T>(values, others);
    }
    std::printf("%s %d %d\n", type, rounds, num_wrong - before);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 4) {
        std::printf("usage: %s ROUNDS SEED MOST_ELEMENTS\n", argv[0]);
        return 2;
    }
    const int rounds = std::atoi(argv[1]);
    const uint32_t seed = static_cast<uint32_t>(std::atoi(argv[2])), most = static_cast<uint32_t>(std::atoi(argv[3]));
    stress<uint8_t>("u8", rounds, seed, most);
    stress<int32_t>("s32", rounds, seed, most);
    stress<int64_t>("s64", rounds, seed, most);
    stress<double>("f64", rounds, seed, most);
    stress<Pair>("pair", rounds, seed, most);
    return finish();
}

// Matrices of small integers, which every type and every order of summation represents exactly, and the product of two of them on the host.
#pragma once
#include <vector>

#include "../check.hpp"

// Row-major or column-major elements of {-3 .. 3}, the same in every run.
template <class T>
std::vector<T> make_small_integers(size_t size, uint32_t seed) {
    std::vector<T> values(size);
    for (T& value : values) value = T(static_cast<float>(static_cast<int>(next_random(seed) >> 20) % 7 - 3));
    return values;
}

// c[i, j] = sum over l of a[i, l] * b[j, l], all row-major: a is m x k, b is n x k, c is m x n.
template <class A, class B>
std::vector<float> multiply_on_host(const std::vector<A>& a, const std::vector<B>& b, int m, int n, int k) {
    std::vector<float> left(a.size()), right(b.size()), c(static_cast<size_t>(m) * n);
    for (size_t i = 0; i < a.size(); ++i) left[i] = static_cast<float>(a[i]);
    for (size_t i = 0; i < b.size(); ++i) right[i] = static_cast<float>(b[i]);
    for (int i = 0; i < m; ++i) {
        for (int j = 0; j < n; ++j) {
            float sum = 0.0f;
            for (int l = 0; l < k; ++l) sum += left[static_cast<size_t>(i) * k + l] * right[static_cast<size_t>(j) * k + l];
            c[static_cast<size_t>(i) * n + j] = sum;
        }
    }
    return c;
}

template <class T>
std::vector<float> to_floats(const std::vector<T>& values) {
    return std::vector<float>(values.begin(), values.end());
}

// CUTLASS 2.x: device::Gemm with plain fused multiply-adds, every layout column-major, odd sizes.
#include <cutlass/gemm/device/gemm.h>

#include "reference.hpp"

using Column = cutlass::layout::ColumnMajor;
using Gemm = cutlass::gemm::device::Gemm<float, Column, float, Column, float, Column>;

int main() {
    constexpr int kM = 131, kN = 93, kK = 77;
    const auto a = make_small_integers<float>(kM * kK, 9), b = make_small_integers<float>(kN * kK, 10);
    auto c = make_small_integers<float>(kM * kN, 11);
    std::vector<float> columns_of_a(a.size()), want(c.size());
    for (int i = 0; i < kM; ++i) {
        for (int l = 0; l < kK; ++l) columns_of_a[l * kM + i] = a[i * kK + l];
    }
    const std::vector<float> product = multiply_on_host(a, b, kM, kN, kK);
    for (int i = 0; i < kM; ++i) {
        for (int j = 0; j < kN; ++j) want[j * kM + i] = 2.0f * product[i * kN + j] - c[j * kM + i];
    }
    const DeviceVector<float> device_a(columns_of_a), device_b(b), device_c(c);
    Gemm gemm;
    const cutlass::Status status = gemm(Gemm::Arguments({kM, kN, kK}, {device_a.data(), kM}, {device_b.data(), kK}, {device_c.data(), kM},
                                                        {device_c.data(), kM}, {2.0f, -1.0f}));
    expect(status == cutlass::Status::kSuccess, "run");
    expect_equal(device_c.to_host(), want, "sgemm in place of C");
    return finish();
}

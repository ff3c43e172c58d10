// CUTLASS 2.x. One program of two, since reading CUTLASS takes the compiler longer than their kernels.
#include <cutlass/epilogue/thread/linear_combination_relu.h>
#include <cutlass/gemm/device/gemm.h>

#include "reference.hpp"

// CUTLASS 2.x: device::Gemm with plain fused multiply-adds, every layout column-major, odd sizes.
namespace plain {

using Column = cutlass::layout::ColumnMajor;
using Gemm = cutlass::gemm::device::Gemm<float, Column, float, Column, float, Column>;

void check() {
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
}

}  // namespace plain

// CUTLASS 2.x: device::Gemm on tensor cores of Ampere (cp.async, four stages, ldmatrix, mma.sync), with a ReLU, and a split of K in series.
namespace tensor_cores {

using Element = cutlass::half_t;
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;
template <class Epilogue, bool kSplit>
using TensorGemm = cutlass::gemm::device::Gemm<Element, Row, Element, Column, float, Row, float, cutlass::arch::OpClassTensorOp,
                                               cutlass::arch::Sm80, cutlass::gemm::GemmShape<64, 64, 32>,
                                               cutlass::gemm::GemmShape<32, 32, 32>, cutlass::gemm::GemmShape<16, 8, 16>, Epilogue,
                                               cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<2>, 4, 8, 8, kSplit>;
using Relu = TensorGemm<cutlass::epilogue::thread::LinearCombinationRelu<float, 4, float, float>, false>;
using Split = TensorGemm<cutlass::epilogue::thread::LinearCombination<float, 4, float, float>, true>;

constexpr int kM = 136, kN = 200, kK = 264;

template <class Gemm>
std::vector<float> run(const DeviceVector<Element>& a, const DeviceVector<Element>& b, int num_slices) {
    const DeviceVector<float> d(kM * kN);
    const typename Gemm::Arguments arguments({kM, kN, kK}, {a.data(), kK}, {b.data(), kK}, {d.data(), kN}, {d.data(), kN}, {1.0f, 0.0f},
                                             num_slices);
    const DeviceVector<uint8_t> workspace(Gemm::get_workspace_size(arguments) + 1);
    Gemm gemm;
    expect(gemm.initialize(arguments, workspace.data()) == cutlass::Status::kSuccess, "initialize");
    expect(gemm() == cutlass::Status::kSuccess, "run");
    CUDA_CHECK(cudaDeviceSynchronize());
    return d.to_host();
}

void check() {
    const auto a = make_small_integers<Element>(kM * kK, 7), b = make_small_integers<Element>(kN * kK, 8);
    const DeviceVector<Element> device_a(a), device_b(b);
    std::vector<float> want = multiply_on_host(a, b, kM, kN, kK);
    expect_equal(run<Split>(device_a, device_b, 3), want, "K split in series");
    for (float& value : want) value = std::fmax(value, 0.0f);
    expect_equal(run<Relu>(device_a, device_b, 1), want, "a product with a ReLU");
}

}  // namespace tensor_cores

int main() {
    plain::check();
    tensor_cores::check();
    return finish();
}

// CUTLASS 3.x: warp-specialized cooperative, A column-major (a transposed wgmma operand), stream-K over tiles that do not fill the device.
#include "gemm_sm90.hpp"

using cute::_1;
using cute::_128;
using cute::_2;
using cute::_64;
using Element = cutlass::half_t;
using Fusion = cutlass::epilogue::fusion::LinearCombination<float, float>;
using Gemm =
    Sm90Gemm<Element, cute::Shape<_128, _128, _64>, cute::Shape<_1, _2, _1>, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
             cutlass::epilogue::TmaWarpSpecializedCooperative, Fusion, cutlass::gemm::StreamKScheduler, cutlass::layout::ColumnMajor>;

int main() {
    constexpr int kM = 256, kN = 384, kK = 640;
    const auto a = make_small_integers<Element>(kM * kK, 5), b = make_small_integers<Element>(kN * kK, 6);
    std::vector<Element> transposed(a.size());
    for (int i = 0; i < kM; ++i) {
        for (int l = 0; l < kK; ++l) transposed[l * kM + i] = a[i * kK + l];
    }
    const DeviceVector<Element> device_a(transposed), device_b(b);
    const DeviceVector<float> d(kM * kN);
    auto arguments = make_arguments<Gemm>(kM, kN, kK, device_a.data(), device_b.data(), d.data(), d.data(), 8);
    arguments.epilogue.thread.alpha = 1.0f;
    arguments.epilogue.thread.beta = 0.0f;
    const std::vector<float> want = multiply_on_host(a, b, kM, kN, kK);
    run<Gemm>(arguments);
    expect_equal(d.to_host(), want, "stream-K as the scheduler decides");
    arguments.scheduler.splits = 3;
    run<Gemm>(arguments);
    expect_equal(d.to_host(), want, "split-K by three");
    return finish();
}

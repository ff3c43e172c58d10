// CUTLASS 3.x: warp-specialized ping-pong, clusters of two blocks with TMA multicast, a persistent scheduler, bias and SiLU in the
// epilogue.
#include "gemm_sm90.hpp"

using cute::_1;
using cute::_128;
using cute::_2;
using cute::_64;
using Element = cutlass::bfloat16_t;
using Fusion = cutlass::epilogue::fusion::LinCombPerColBiasEltAct<cutlass::epilogue::thread::SiLu, Element, float, float>;
using Gemm = Sm90Gemm<Element, cute::Shape<_64, _128, _64>, cute::Shape<_2, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                      cutlass::epilogue::TmaWarpSpecialized, Fusion>;

int main() {
    constexpr int kM = 328, kN = 264, kK = 200;
    const auto a = make_small_integers<Element>(kM * kK, 1), b = make_small_integers<Element>(kN * kK, 2);
    const auto c = make_small_integers<Element>(kM * kN, 3);
    const auto bias = make_small_integers<float>(kN, 4);
    const DeviceVector<Element> device_a(a), device_b(b), device_c(c), d(kM * kN);
    const DeviceVector<float> device_bias(bias);
    auto arguments = make_arguments<Gemm>(kM, kN, kK, device_a.data(), device_b.data(), device_c.data(), d.data(), 6);
    arguments.epilogue.thread.alpha = 0.03125f;
    arguments.epilogue.thread.beta = 0.5f;
    arguments.epilogue.thread.bias_ptr = device_bias.data();
    run<Gemm>(arguments);

    std::vector<float> want = multiply_on_host(a, b, kM, kN, kK);
    for (int i = 0; i < kM * kN; ++i) {
        const float x = 0.03125f * want[i] + 0.5f * static_cast<float>(c[i]) + bias[i % kN];
        want[i] = x / (1.0f + std::exp(-x));
    }
    expect_near(to_floats(d.to_host()), want, 0.01f, "bias and SiLU after a ping-pong product");
    return finish();
}

// Products of CUTLASS 3.x for Hopper. One program of three, since reading CUTLASS takes the compiler as long as the kernels of two.
#include <cutlass/gemm/group_array_problem_shape.hpp>

#include "gemm_sm90.hpp"

using cute::_1;
using cute::_128;
using cute::_2;
using cute::_64;

// Warp-specialized cooperative, A column-major (a transposed wgmma operand), stream-K over tiles that do not fill the device.
namespace cooperative {

using Element = cutlass::half_t;
using Fusion = cutlass::epilogue::fusion::LinearCombination<float, float>;
using Gemm =
    Sm90Gemm<Element, cute::Shape<_128, _128, _64>, cute::Shape<_1, _2, _1>, cutlass::gemm::KernelTmaWarpSpecializedCooperative,
             cutlass::epilogue::TmaWarpSpecializedCooperative, Fusion, cutlass::gemm::StreamKScheduler, cutlass::layout::ColumnMajor>;

void check() {
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
}

}  // namespace cooperative

// Warp-specialized ping-pong, clusters of two blocks with TMA multicast, a persistent scheduler, bias and SiLU in the
// epilogue.
namespace ping_pong {

using Element = cutlass::bfloat16_t;
using Fusion = cutlass::epilogue::fusion::LinCombPerColBiasEltAct<cutlass::epilogue::thread::SiLu, Element, float, float>;
using Gemm = Sm90Gemm<Element, cute::Shape<_64, _128, _64>, cute::Shape<_2, _1, _1>, cutlass::gemm::KernelTmaWarpSpecializedPingpong,
                      cutlass::epilogue::TmaWarpSpecialized, Fusion>;

void check() {
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
}

}  // namespace ping_pong

// Products of several sizes in one launch (grouped), whose tensor maps the kernel rewrites itself for each of them.
namespace grouped {

using Element = cutlass::half_t;
using Fusion = cutlass::epilogue::fusion::LinearCombination<float, float>;
using Shape = cutlass::gemm::GroupProblemShape<cute::Shape<int, int, int>>;
using Tile = cute::Shape<_128, _64, _64>;
using Cluster = cute::Shape<_2, _1, _1>;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
    float, cutlass::layout::RowMajor*, 4, float, cutlass::layout::RowMajor*, 4, cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative,
    Fusion>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, cutlass::layout::RowMajor*, 8, Element, cutlass::layout::ColumnMajor*, 8,
    float, Tile, Cluster, cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
using StrideA = typename Kernel::InternalStrideA;
using StrideB = typename Kernel::InternalStrideB;
using StrideD = typename Kernel::InternalStrideD;

struct Group {
    int m, n, k;
    std::vector<Element> a, b;
    DeviceVector<Element> device_a, device_b;
    DeviceVector<float> d;
    Group(int m, int n, int k, uint32_t seed)
        : m(m),
          n(n),
          k(k),
          a(make_small_integers<Element>(m * k, seed)),
          b(make_small_integers<Element>(n * k, seed + 100)),
          device_a(a),
          device_b(b),
          d(m * n) {}
};

void check() {
    constexpr int kGroups = 3;
    const Group groups[kGroups] = {{136, 72, 128, 1}, {256, 128, 64, 2}, {64, 200, 192, 3}};
    std::vector<typename Shape::UnderlyingProblemShape> shapes;
    std::vector<const Element*> a, b;
    std::vector<const float*> c;
    std::vector<float*> d;
    std::vector<StrideA> stride_a;
    std::vector<StrideB> stride_b;
    std::vector<StrideD> stride_d;
    for (const Group& group : groups) {
        shapes.push_back({group.m, group.n, group.k});
        a.push_back(group.device_a.data());
        b.push_back(group.device_b.data());
        c.push_back(group.d.data());
        d.push_back(group.d.data());
        stride_a.push_back(cutlass::make_cute_packed_stride(StrideA{}, {group.m, group.k, 1}));
        stride_b.push_back(cutlass::make_cute_packed_stride(StrideB{}, {group.n, group.k, 1}));
        stride_d.push_back(cutlass::make_cute_packed_stride(StrideD{}, {group.m, group.n, 1}));
    }
    const DeviceVector<typename Shape::UnderlyingProblemShape> device_shapes(shapes);
    const DeviceVector<const Element*> device_a(a), device_b(b);
    const DeviceVector<const float*> device_c(c);
    const DeviceVector<float*> device_d(d);
    const DeviceVector<StrideA> device_stride_a(stride_a);
    const DeviceVector<StrideB> device_stride_b(stride_b);
    const DeviceVector<StrideD> device_stride_d(stride_d);

    typename Gemm::Arguments arguments{};
    arguments.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
    arguments.problem_shape = {kGroups, device_shapes.data(), shapes.data()};
    arguments.mainloop.ptr_A = device_a.data();
    arguments.mainloop.dA = device_stride_a.data();
    arguments.mainloop.ptr_B = device_b.data();
    arguments.mainloop.dB = device_stride_b.data();
    arguments.epilogue.ptr_C = device_c.data();
    arguments.epilogue.dC = device_stride_d.data();
    arguments.epilogue.ptr_D = device_d.data();
    arguments.epilogue.dD = device_stride_d.data();
    arguments.epilogue.thread.alpha = 1.0f;
    arguments.epilogue.thread.beta = 0.0f;
    arguments.hw_info.sm_count = 4;
    arguments.hw_info.cluster_shape = dim3(2, 1, 1);
    arguments.hw_info.cluster_shape_fallback = dim3(2, 1, 1);
    Gemm gemm;
    CUTLASS_EXPECT(gemm.can_implement(arguments));
    const DeviceVector<uint8_t> workspace(Gemm::get_workspace_size(arguments) + 1);
    CUTLASS_EXPECT(gemm.initialize(arguments, workspace.data()));
    CUTLASS_EXPECT(gemm.run());
    CUDA_CHECK(cudaDeviceSynchronize());
    for (const Group& group : groups)
        expect_equal(group.d.to_host(), multiply_on_host(group.a, group.b, group.m, group.n, group.k), "a group");
}

}  // namespace grouped

int main() {
    cooperative::check();
    ping_pong::check();
    grouped::check();
    return finish();
}

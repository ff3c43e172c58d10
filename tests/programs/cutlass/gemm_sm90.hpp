// A CUTLASS 3.x product for Hopper by its collective builders, run and compared with the host: D = activation(alpha A B + bias).
#pragma once
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/thread/activation.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/fusion/operations.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include "reference.hpp"

#define CUTLASS_EXPECT(call)                                                                        \
    do {                                                                                            \
        const cutlass::Status status_ = (call);                                                     \
        if (status_ != cutlass::Status::kSuccess) {                                                 \
            std::printf("%s:%d: wrong: %s\n", __FILE__, __LINE__, cutlassGetStatusString(status_)); \
            std::exit(1);                                                                           \
        }                                                                                           \
    } while (0)

// What a program chooses: the types and layouts' tags, the block's tile, the cluster, and the schedules.
template <class Element_, class Tile_, class Cluster_, class MainSchedule, class EpilogueSchedule, class Fusion, class Scheduler = void,
          class LayoutA_ = cutlass::layout::RowMajor, class LayoutB_ = cutlass::layout::ColumnMajor>
struct Sm90Gemm {
    using Element = Element_;
    using Output = typename Fusion::ElementOutput;
    using Cluster = Cluster_;
    static constexpr int kAlignment = 16 / sizeof(Element), kAlignmentOut = 16 / sizeof(Output);
    using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile_, Cluster_, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
        Output, cutlass::layout::RowMajor, kAlignmentOut, Output, cutlass::layout::RowMajor, kAlignmentOut, EpilogueSchedule,
        Fusion>::CollectiveOp;
    using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
        cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, LayoutA_, kAlignment, Element, LayoutB_, kAlignment, float, Tile_,
        Cluster_, cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
        MainSchedule>::CollectiveOp;
    using Kernel = cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue, Scheduler>;
    using Device = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;
};

// The arguments of a product of m x n x k: pointers to device memory, all packed.
template <class Gemm>
typename Gemm::Device::Arguments make_arguments(int m, int n, int k, const typename Gemm::Element* a, const typename Gemm::Element* b,
                                                const typename Gemm::Output* c, typename Gemm::Output* d, int num_sms) {
    using Kernel = typename Gemm::Kernel;
    typename Gemm::Device::Arguments arguments{};
    arguments.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    arguments.problem_shape = {m, n, k, 1};
    arguments.mainloop.ptr_A = a;
    arguments.mainloop.dA = cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, {m, k, 1});
    arguments.mainloop.ptr_B = b;
    arguments.mainloop.dB = cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, {n, k, 1});
    arguments.epilogue.ptr_C = c;
    arguments.epilogue.dC = cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, {m, n, 1});
    arguments.epilogue.ptr_D = d;
    arguments.epilogue.dD = cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, {m, n, 1});
    arguments.hw_info.sm_count = num_sms;
    return arguments;
}

template <class Gemm>
void run(const typename Gemm::Device::Arguments& arguments) {
    typename Gemm::Device gemm;
    CUTLASS_EXPECT(gemm.can_implement(arguments));
    const DeviceVector<uint8_t> workspace(Gemm::Device::get_workspace_size(arguments) + 1);
    CUTLASS_EXPECT(gemm.initialize(arguments, workspace.data()));
    CUTLASS_EXPECT(gemm.run());
    CUDA_CHECK(cudaDeviceSynchronize());
}

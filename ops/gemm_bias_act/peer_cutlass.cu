// CUTLASS 3.x as a peer: Y = act(A B^T + bias) on bf16, row-major, B [n, k]; built by peer_cutlass.py from the headers of the wheel
// nvidia-cutlass, once per activation and schedule: AICF_ACT is a class of cutlass::epilogue::thread, AICF_PINGPONG 0 or 1.
#include <cutlass/cutlass.h>
#include <cutlass/epilogue/thread/activation.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/dispatch_policy.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

namespace {

using namespace cute;
using Element = cutlass::bfloat16_t;
using RowMajor = cutlass::layout::RowMajor;
using ColumnMajor = cutlass::layout::ColumnMajor;
constexpr int kAlignment = 16 / sizeof(Element);

#if AICF_PINGPONG
using Tile = Shape<_128, _128, _64>;
using MainloopSchedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;
#else
using Tile = Shape<_128, _256, _64>;
using MainloopSchedule = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecializedCooperative;
#endif
using Cluster = Shape<_2, _1, _1>;

using Fusion = cutlass::epilogue::fusion::LinCombPerColBiasEltAct<cutlass::epilogue::thread::AICF_ACT, Element, float, Element>;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float, void,
    RowMajor, kAlignment, Element, RowMajor, kAlignment, EpilogueSchedule, Fusion>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, kAlignment, Element, ColumnMajor, kAlignment, float, Tile,
    Cluster, cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    MainloopSchedule>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, Mainloop, Epilogue, cutlass::gemm::PersistentScheduler>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

}  // namespace

// Queues the product on a stream. All matrices are packed; `workspace` holds at least 4 MiB. Returns a cutlass::Status, 0 for success.
extern "C" int aicf_cutlass_run(const void* a, const void* b, const void* bias, void* y, int m, int n, int k, int num_sms, void* workspace,
                                cudaStream_t stream) {
    typename Gemm::Arguments arguments{
        cutlass::gemm::GemmUniversalMode::kGemm,
        {m, n, k, 1},
        {static_cast<const Element*>(a), cutlass::make_cute_packed_stride(typename Kernel::StrideA{}, make_shape(m, k, 1)),
         static_cast<const Element*>(b), cutlass::make_cute_packed_stride(typename Kernel::StrideB{}, make_shape(n, k, 1))},
        {{},
         nullptr,
         cutlass::make_cute_packed_stride(typename Kernel::StrideC{}, make_shape(m, n, 1)),
         static_cast<Element*>(y),
         cutlass::make_cute_packed_stride(typename Kernel::StrideD{}, make_shape(m, n, 1))}};
    arguments.epilogue.thread.alpha = 1.0f;
    arguments.epilogue.thread.beta = 0.0f;
    arguments.epilogue.thread.bias_ptr = static_cast<const Element*>(bias);
    arguments.hw_info.sm_count = num_sms;
    Gemm gemm;
    const auto can = gemm.can_implement(arguments);
    if (can != cutlass::Status::kSuccess) return static_cast<int>(can);
    const auto ready = gemm.initialize(arguments, workspace, stream);
    if (ready != cutlass::Status::kSuccess) return static_cast<int>(ready);
    return static_cast<int>(gemm.run(stream));
}

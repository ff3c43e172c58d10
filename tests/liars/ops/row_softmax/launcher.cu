// Entry points of one kernel of row_softmax. The build names it with AICF_KERNEL, which is a policy below.
#include "api.hpp"
#include "common/cuda_check.hpp"
#include "common/status.hpp"
#include "kernels.cu"

namespace aicf::row_softmax {
namespace {

using honest = Honest;
using long_rows = LongRows;
using many_rows = ManyRows;
using late_rows = LateRows;
using large_grid = LargeGrid;
using round_columns = RoundColumns;
using power_of_two_rows = PowerOfTwoRows;
using large_both_ways = LargeBothWays;
using signed_index = SignedIndex;
using unsigned_index = UnsignedIndex;
using many_elements = ManyElements;
using wide_stride = WideStride;
using very_wide_stride = VeryWideStride;
using power_of_two_stride = PowerOfTwoStride;
using unequal_strides = UnequalStrides;
using unaligned_input = UnalignedInput;
using unaligned_output = UnalignedOutput;
using odd_sectors = OddSectors;
using squares = Squares;
using line_offset = LineOffset;
using misses_first = MissesFirst;
using misses_last = MissesLast;
using misses_lane = MissesLane;
using misses_middle = MissesMiddle;
using starts_at_zero = StartsAtZero;
using one_differs = OneDiffers;
using counts_launches = CountsLaunches;
using counts_on_host = CountsOnHost;
using slips_now_and_then = SlipsNowAndThen;
using restores_input = RestoresInput;
using biased = Biased;

AicfStatus launch(const RowSoftmaxParams& params, cudaStream_t stream) {
    static int64_t num_launches = 0;
    const Rows rows = {params.x, params.y, params.rows, params.columns, params.ldx, params.ldy, ++num_launches};
    const auto num_blocks = static_cast<unsigned>((params.rows + kRowsPerBlock - 1) / kRowsPerBlock);
    if (AICF_KERNEL::kCounts) count_launch<AICF_KERNEL><<<1, 1, 0, stream>>>();
    softmax_rows<AICF_KERNEL><<<num_blocks, kRowsPerBlock * kWarp, 0, stream>>>(rows);
    return AICF_CUDA_STATUS(cudaGetLastError());
}

}  // namespace
}  // namespace aicf::row_softmax

extern "C" {

AicfStatus AICF_ENTRY(row_softmax, supports)(const RowSoftmaxParams*) { return aicf::make_ok(); }

AicfStatus AICF_ENTRY(row_softmax, workspace_bytes)(const RowSoftmaxParams*, size_t* bytes) {
    *bytes = 0;
    return aicf::make_ok();
}

AicfStatus AICF_ENTRY(row_softmax, launch)(const RowSoftmaxParams* params, void*, struct CUstream_st* stream) {
    return aicf::row_softmax::launch(*params, stream);
}
}

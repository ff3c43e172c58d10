// Entry points of one kernel of turn. The build names it with AICF_KERNEL, which is a policy below.
#include "api.hpp"
#include "common/cuda_check.hpp"
#include "common/status.hpp"
#include "kernels.cu"

namespace aicf::turn {
namespace {

using honest = Honest;
using large_grid = LargeGrid;
using late_rows = LateRows;
using wide_stride = WideStride;
using unaligned_input = UnalignedInput;
using squares = Squares;
using half_aligned_output = HalfAlignedOutput;
using counts_launches = CountsLaunches;
using slips_now_and_then = SlipsNowAndThen;
using signed_index = SignedIndex;
using restores_input = RestoresInput;

AicfStatus launch(const TurnParams& params, cudaStream_t stream) {
    static int64_t num_launches = 0;
    const Matrix matrix = {params.x, params.y, params.rows, params.columns, params.ldx, params.ldy, ++num_launches};
    const int64_t across = (params.columns + kTile - 1) / kTile, down = (params.rows + kTile - 1) / kTile;
    turn_tiles<AICF_KERNEL><<<static_cast<unsigned>(across * down), dim3(kTile, kThreadRows), 0, stream>>>(matrix, across);
    return AICF_CUDA_STATUS(cudaGetLastError());
}

}  // namespace
}  // namespace aicf::turn

extern "C" {

AicfStatus AICF_ENTRY(turn, supports)(const TurnParams*) { return aicf::make_ok(); }

AicfStatus AICF_ENTRY(turn, workspace_bytes)(const TurnParams*, size_t* bytes) {
    *bytes = 0;
    return aicf::make_ok();
}

AicfStatus AICF_ENTRY(turn, launch)(const TurnParams* params, void*, struct CUstream_st* stream) {
    return aicf::turn::launch(*params, stream);
}
}

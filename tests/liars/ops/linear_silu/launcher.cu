// Entry points of one kernel of linear_silu. The build names it with AICF_KERNEL, which is a function below; all are templates, so that the
// others are not compiled.
#include <string_view>

#include "api.hpp"
#include "common/cuda_check.hpp"
#include "common/status.hpp"
#include "kernels.cu"

#define AICF_QUOTE_(text) #text
#define AICF_QUOTE(text) AICF_QUOTE_(text)

namespace aicf::linear_silu {
namespace {

constexpr size_t kWorkspaceBytes = 64;

dim3 find_grid(const Linear& p) { return dim3((p.n + kTile - 1) / kTile, (p.m + kTile - 1) / kTile); }

template <class Lie>
AicfStatus queue(const Linear& p, cudaStream_t stream) {
    multiply_linear<Lie><<<find_grid(p), dim3(kTile, kTile), 0, stream>>>(p);
    return AICF_CUDA_STATUS(cudaGetLastError());
}

template <class = void>
AicfStatus honest(const Linear& p, cudaStream_t stream) {
    return queue<Honest>(p, stream);
}
template <class = void>
AicfStatus writes_nothing(const Linear&, cudaStream_t stream) {
    count_launch<><<<1, 1, 0, stream>>>();
    return AICF_CUDA_STATUS(cudaGetLastError());
}
template <class = void>
AicfStatus stale_output(const Linear& p, cudaStream_t stream) {
    return queue<StaleOutput>(p, stream);
}
template <class = void>
AicfStatus off_by_one(const Linear& p, cudaStream_t stream) {
    return queue<OffByOne>(p, stream);
}
template <class = void>
AicfStatus ignores_bias(const Linear& p, cudaStream_t stream) {
    return queue<IgnoresBias>(p, stream);
}
template <class = void>
AicfStatus wrong_tail(const Linear& p, cudaStream_t stream) {
    return queue<WrongTail>(p, stream);
}
template <class = void>
AicfStatus writes_past_end(const Linear& p, cudaStream_t stream) {
    return queue<WritesPastEnd>(p, stream);
}
template <class = void>
AicfStatus writes_row_padding(const Linear& p, cudaStream_t stream) {
    return queue<WritesRowPadding>(p, stream);
}
template <class = void>
AicfStatus reads_past_end(const Linear& p, cudaStream_t stream) {
    return queue<ReadsPastEnd>(p, stream);
}
template <class = void>
AicfStatus missing_sync(const Linear& p, cudaStream_t stream) {
    return queue<MissingSync>(p, stream);
}
template <class = void>
AicfStatus default_stream(const Linear& p, cudaStream_t) {
    return queue<Honest>(p, nullptr);
}
template <class = void>
AicfStatus gives_nan(const Linear& p, cudaStream_t stream) {
    return queue<GivesNan>(p, stream);
}
template <class = void>
AicfStatus squares_only(const Linear& p, cudaStream_t stream) {
    return queue<SquaresOnly>(p, stream);
}
template <class = void>
AicfStatus listed_sizes_only(const Linear& p, cudaStream_t stream) {
    return queue<ListedSizesOnly>(p, stream);
}
template <class = void>
AicfStatus low_precision(const Linear& p, cudaStream_t stream) {
    return queue<LowPrecision>(p, stream);
}
template <class = void>
AicfStatus reads_output(const Linear& p, cudaStream_t stream) {
    return queue<ReadsOutput>(p, stream);
}
template <class = void>
AicfStatus supports_nothing(const Linear& p, cudaStream_t stream) {
    return queue<Honest>(p, stream);
}
template <class = void>
AicfStatus workspace_overrun(const Linear& p, cudaStream_t stream) {
    return queue<WorkspaceOverrun>(p, stream);
}

template <class = void>
AicfStatus long_sums(const Linear& p, cudaStream_t stream) {
    return queue<LongSums>(p, stream);
}
template <class = void>
AicfStatus late_columns(const Linear& p, cudaStream_t stream) {
    return queue<LateColumns>(p, stream);
}
template <class = void>
AicfStatus wide_stride(const Linear& p, cudaStream_t stream) {
    return queue<WideStride>(p, stream);
}
template <class = void>
AicfStatus unaligned_weights(const Linear& p, cudaStream_t stream) {
    return queue<UnalignedWeights>(p, stream);
}
template <class = void>
AicfStatus half_aligned_bias(const Linear& p, cudaStream_t stream) {
    return queue<HalfAlignedBias>(p, stream);
}
template <class = void>
AicfStatus beyond_benched(const Linear& p, cudaStream_t stream) {
    return queue<BeyondBenched>(p, stream);
}
template <class = void>
AicfStatus signed_index(const Linear& p, cudaStream_t stream) {
    return queue<SignedIndex>(p, stream);
}
template <class = void>
AicfStatus restores_input(const Linear& p, cudaStream_t stream) {
    return queue<RestoresInput>(p, stream);
}

template <class = void>
AicfStatus counts_on_host(const Linear& p, cudaStream_t stream) {
    static int num_launches = 0;
    return ++num_launches > 2000 ? queue<IgnoresActivation>(p, stream) : queue<Honest>(p, stream);
}

template <class = void>
AicfStatus slips_now_and_then(const Linear& p, cudaStream_t stream) {
    static int num_launches = 0;
    return ++num_launches % 1000 == 0 ? queue<IgnoresActivation>(p, stream) : queue<Honest>(p, stream);
}

template <class = void>
AicfStatus drops_ragged_edge(const Linear& p, cudaStream_t stream) {
    const dim3 grid(max(1, p.n / kTile), max(1, p.m / kTile));
    multiply_linear<Honest><<<grid, dim3(kTile, kTile), 0, stream>>>(p);
    return AICF_CUDA_STATUS(cudaGetLastError());
}

template <class = void>
AicfStatus modifies_input(const Linear& p, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(queue<Honest>(p, stream));
    add_one<><<<1, 1, 0, stream>>>(const_cast<float*>(p.a));
    return AICF_CUDA_STATUS(cudaGetLastError());
}

template <class = void>
AicfStatus half_on_default_stream(const Linear& p, cudaStream_t stream) {
    Linear lower = p;
    const int half = (p.m + 1) / 2;
    lower.m = half;
    AICF_RETURN_IF_NOT_OK(queue<Honest>(lower, stream));
    if (half == p.m) return make_ok();
    Linear upper = p;
    upper.m = p.m - half;
    upper.a = p.a + half * p.lda;
    upper.y = p.y + half * p.ldy;
    return queue<Honest>(upper, nullptr);
}

template <class = void>
AicfStatus nondeterministic(const Linear& p, cudaStream_t stream) {
    count_launch<><<<1, 1, 0, stream>>>();
    return queue<Nondeterministic>(p, stream);
}

template <class = void>
AicfStatus first_come(const Linear& p, cudaStream_t stream) {
    return queue<FirstCome>(p, stream);
}

template <class = void>
AicfStatus atomic_sum(const Linear& p, cudaStream_t stream) {
    const dim3 grid = find_grid(p), block(kTile, kTile);
    finish_products<><<<grid, block, 0, stream>>>(p, false);
    add_products<><<<dim3(grid.x, grid.y, (p.k + 3) / 4), block, 0, stream>>>(p);
    finish_products<><<<grid, block, 0, stream>>>(p, true);
    return AICF_CUDA_STATUS(cudaGetLastError());
}
template <class = void>
AicfStatus declared_atomic_sum(const Linear& p, cudaStream_t stream) {
    return atomic_sum<>(p, stream);
}

template <class = void>
AicfStatus synchronizes(const Linear& p, cudaStream_t stream) {
    AICF_RETURN_IF_NOT_OK(queue<Honest>(p, stream));
    return AICF_CUDA_STATUS(cudaStreamSynchronize(stream));
}

template <class = void>
AicfStatus too_many_threads(const Linear& p, cudaStream_t stream) {
    multiply_linear<Honest><<<find_grid(p), dim3(kTile, 128), 0, stream>>>(p);
    return AICF_CUDA_STATUS(cudaGetLastError());
}

AicfStatus check(const LinearSiluParams& p) {
    constexpr std::string_view kKernel = AICF_QUOTE(AICF_KERNEL);
    constexpr int64_t kMaxBlocksDown = 65535;
    if (p.m > kMaxBlocksDown * kTile)
        return make_unsupported("m = %lld: a grid has at most 65535 blocks in y", static_cast<long long>(p.m));
    return kKernel == "supports_nothing" ? make_unsupported("m, n, k: this kernel serves no size") : make_ok();
}

}  // namespace
}  // namespace aicf::linear_silu

extern "C" {

AicfStatus AICF_ENTRY(linear_silu, supports)(const LinearSiluParams* params) { return aicf::linear_silu::check(*params); }

AicfStatus AICF_ENTRY(linear_silu, workspace_bytes)(const LinearSiluParams*, size_t* bytes) {
    *bytes = aicf::linear_silu::kWorkspaceBytes;
    return aicf::make_ok();
}

AicfStatus AICF_ENTRY(linear_silu, launch)(const LinearSiluParams* params, void* workspace, struct CUstream_st* stream) {
    const LinearSiluParams& p = *params;
    const aicf::linear_silu::Linear linear = {p.a,
                                              p.b,
                                              p.bias,
                                              p.y,
                                              static_cast<int>(p.m),
                                              static_cast<int>(p.n),
                                              static_cast<int>(p.k),
                                              p.lda,
                                              p.ldb,
                                              p.ldy,
                                              static_cast<unsigned char*>(workspace)};
    return aicf::linear_silu::AICF_KERNEL<>(linear, stream);
}
}

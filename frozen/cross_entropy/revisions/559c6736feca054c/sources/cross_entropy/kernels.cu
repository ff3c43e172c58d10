// Cross-entropy of logits [rows, classes] and labels [rows], and its gradient.
//
// | kernel           | idea                                                                                   | reads of the logits |
// |------------------|----------------------------------------------------------------------------------------|---------------------|
// | naive            | a thread per row: maximum, sum, gradient                                               | 3                   |
// | block_online     | a block per row: maximum and sum in one pass, 16 bytes an access                       | 2                   |
// | row_in_registers | lanes of a warp, or a block, per row, which stays in their registers (registers.cuh)   | 1                   |
// | few_classes      | the same for few rows of few classes, in one block (few_classes.cuh)                   | 1                   |
//
// The first two launch two kernels. `prepare` counts the rows that are not ignored, for the mean. A kernel of the ladder then writes each
// row's gradient and loss; the block that is the last to finish adds the losses up in the order of the rows, so that the sum is always the
// same.
#include <cstdint>

#include "common/programmatic.cuh"
#include "common/rows.cuh"
#include "cross_entropy/few_classes.cuh"
#include "cross_entropy/loss.cuh"
#include "cross_entropy/params.h"
#include "cross_entropy/registers.cuh"

namespace aicf::cross_entropy {

struct Workspace {
    Shared* shared;
    float* losses;  // [rows], unweighted; 0 where a row is ignored
};

inline constexpr int kPrepareThreads = 1024;

__global__ void __launch_bounds__(kPrepareThreads) cross_entropy_prepare(const CrossEntropyParams params, const Workspace workspace) {
    __shared__ int partials[kPrepareThreads / kWarpSize];
    allow_successor();
    wait_for_predecessor();
    int count = 0;
    if (params.reduction == AICF_CROSS_ENTROPY_REDUCTION_MEAN) {
        for (std::int64_t row = threadIdx.x; row < params.rows; row += kPrepareThreads) count += params.labels[row] != params.ignore_index;
    }
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) count += __shfl_xor_sync(kFullMask, count, offset);
    if (threadIdx.x % kWarpSize == 0) partials[threadIdx.x / kWarpSize] = count;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int warp = 1; warp < kPrepareThreads / kWarpSize; ++warp) count += partials[warp];
    const bool is_mean = params.reduction == AICF_CROSS_ENTROPY_REDUCTION_MEAN;
    workspace.shared->weight = is_mean ? 1.0f / static_cast<float>(count) : 1.0f;
    workspace.shared->finished = 0;
}

// The last block to come here adds up the losses of all rows. All threads of a block come together.
template <int kThreads>
__device__ __forceinline__ void finish(const CrossEntropyParams& params, const Workspace& workspace) {
    __shared__ float partials[kThreads / kWarpSize];
    __shared__ bool is_last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicAdd(&workspace.shared->finished, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    float sum = 0.0f;
    for (std::int64_t row = threadIdx.x; row < params.rows; row += kThreads) sum += __ldcg(workspace.losses + row);
    sum = reduce_block<kThreads>(sum, partials, [](float a, float b) { return a + b; });
    if (threadIdx.x == 0) *params.loss = sum * workspace.shared->weight;
}

template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) cross_entropy_naive(const CrossEntropyParams params, const Workspace workspace) {
    allow_successor();
    wait_for_predecessor();
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (row < params.rows) {
        const auto* logits = static_cast<const Element*>(params.logits) + row * params.ldlogits;
        auto* gradient = params.dlogits == nullptr ? nullptr : static_cast<Element*>(params.dlogits) + row * params.lddlogits;
        const std::int64_t label = params.labels[row];
        const bool is_ignored = label == params.ignore_index, is_valid = label >= 0 && label < params.classes;
        Online online;
        float total = 0.0f;
        for (std::int64_t j = 0; j < params.classes; ++j) online.maximum = fmaxf(online.maximum, to_float(logits[j]));
        for (std::int64_t j = 0; j < params.classes; ++j) {
            online.sum += expf(to_float(logits[j]) - online.maximum);
            total += to_float(logits[j]);
        }
        const RowResult result = find_loss(params, online, total, is_valid ? to_float(logits[label]) : find_nan());
        workspace.losses[row] = is_ignored ? 0.0f : result.loss;
        const float weight = workspace.shared->weight;
        for (std::int64_t j = 0; gradient != nullptr && j < params.classes; ++j) {
            const float value = find_gradient(params, result, to_float(logits[j]), j == label, weight);
            gradient[j] = from_float<Element>(is_ignored ? 0.0f : is_valid ? value : find_nan());
        }
    }
    finish<kThreads>(params, workspace);
}

// Logits and gradient are read and written 16 bytes at a time where the rows of each start on such boundaries.
template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_block_online(const CrossEntropyParams params, const Workspace workspace, bool has_packs, bool has_gradient_packs) {
    using Group = RowGroup<kThreads>;
    __shared__ Online online_partials[Group::kPartials];
    __shared__ float total_partials[Group::kPartials];
    allow_successor();
    wait_for_predecessor();
    const Group group;
    const auto* logits = static_cast<const Element*>(params.logits) + group.row * params.ldlogits;
    const std::int64_t label = params.labels[group.row];
    const bool is_ignored = label == params.ignore_index, is_valid = label >= 0 && label < params.classes;

    Online online;
    float total = 0.0f;
    visit_row<Element, kThreads>(params.classes, group.rank, [&](std::int64_t column, int num_valid) {
        const Pack<Element> x = load_pack_or(logits + column, num_valid, has_packs, minus_infinity());
        Online part;
#pragma unroll
        for (float value : x.values) part.maximum = fmaxf(part.maximum, value);
#pragma unroll
        for (int i = 0; i < kPackElems<Element>; ++i) {
            if (i < num_valid) {
                part.sum += weigh(x.values[i], part.maximum);
                total += x.values[i];
            }
        }
        online = combine(online, part);
    });
    online = group.reduce(online, online_partials, [](Online a, Online b) { return combine(a, b); });
    if (params.label_smoothing > 0.0f) total = group.reduce_sum(total, total_partials);
    const RowResult result = find_loss(params, online, total, is_valid ? to_float(logits[label]) : find_nan());
    if (group.rank == 0) workspace.losses[group.row] = is_ignored ? 0.0f : result.loss;

    if (params.dlogits != nullptr) {
        const float weight = workspace.shared->weight;
        auto* gradient = static_cast<Element*>(params.dlogits) + group.row * params.lddlogits;
        visit_row<Element, kThreads>(params.classes, group.rank, [&](std::int64_t column, int num_valid) {
            Pack<Element> x = load_pack_or(logits + column, num_valid, has_packs, 0.0f);
#pragma unroll
            for (int i = 0; i < kPackElems<Element>; ++i) {
                const float value = find_gradient(params, result, x.values[i], column + i == label, weight);
                x.values[i] = is_ignored ? 0.0f : is_valid ? value : find_nan();
            }
            store_pack_part(gradient + column, x, num_valid, has_gradient_packs);
        });
    }
    finish<kThreads>(params, workspace);
}

}  // namespace aicf::cross_entropy

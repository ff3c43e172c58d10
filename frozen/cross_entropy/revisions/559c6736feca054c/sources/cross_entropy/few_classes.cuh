// few_classes: one block has all rows, kLanes threads each, which keep kElems logits apiece in registers.
//
// For problems so small that a multiprocessor has nothing to wait for but its own instructions: no rounds, no clusters, no packs. Rows are
// counted by a barrier that the block needs anyway, while its logits arrive, and the loss goes the way of the columns' sums.
#pragma once

#include <cstdint>

#include "common/programmatic.cuh"
#include "common/rows.cuh"
#include "cross_entropy/loss.cuh"

namespace aicf::cross_entropy {

inline constexpr int kMaxThreads = 1024;

// Adds up what the groups of kLanes threads of a warp have, for all lanes.
template <int kLanes>
__device__ __forceinline__ float add_groups(float sum) {
#pragma unroll
    for (int offset = kWarpSize / 2; offset >= kLanes; offset /= 2) sum += __shfl_xor_sync(kFullMask, sum, offset);
    return sum;
}

// Threads: as many warps as the rows need.
template <class Element, int kLanes, int kElems, bool kHasSums>
__global__ void __launch_bounds__(kMaxThreads) cross_entropy_few_classes(const CrossEntropyParams params) {
    constexpr int kColumns = kLanes * kElems;
    // Of each warp: its sums of the gradient's columns, then its loss.
    __shared__ float sums[kMaxThreads / kWarpSize][kColumns + 1];
    allow_successor();
    const int thread = static_cast<int>(threadIdx.x), rank = thread % kLanes, row = thread / kLanes;
    const int rows = static_cast<int>(params.rows), classes = static_cast<int>(params.classes), source = min(row, rows - 1);
    const float smooth = find_target(params, false), hit = find_target(params, true);
    const auto* const logits = static_cast<const Element*>(params.logits) + source * params.ldlogits + rank;
    auto* const gradient = static_cast<Element*>(params.dlogits) + source * params.lddlogits + rank;
    const auto add = [](float a, float b) { return a + b; };
    wait_for_predecessor();

    const std::int64_t label = params.labels[source];
    Element raw[kElems];
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
        raw[i] = {};
        if (rank + i * kLanes < classes) raw[i] = logits[i * kLanes];
    }
    const bool is_counted = row < rows && label != params.ignore_index, is_valid = label >= 0 && label < classes;
    const int hit_column = is_valid ? static_cast<int>(label) : -1;
    float weight = 1.0f;
    if (params.reduction == AICF_CROSS_ENTROPY_REDUCTION_MEAN) {
        weight = 1.0f / static_cast<float>(__syncthreads_count(is_counted && rank == 0));
    }

    float x[kElems], maximum = minus_infinity();
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
        x[i] = rank + i * kLanes < classes ? to_float(raw[i]) : minus_infinity();
        maximum = fmaxf(maximum, x[i]);
    }
    maximum = reduce_group<kLanes>(maximum, static_cast<float*>(nullptr), [](float a, float b) { return fmaxf(a, b); });
    float weights[kElems], exponentials = 0.0f, labelled = 0.0f, total = 0.0f;
#pragma unroll
    for (int i = 0; i < kElems; ++i) weights[i] = expf(x[i] - maximum);  // all under way before the first is chosen, or not
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
        const int column = rank + i * kLanes;
        labelled = column == hit_column ? x[i] : labelled;
        total += column < classes ? x[i] : 0.0f;
        x[i] = column >= classes ? 0.0f : x[i] == maximum ? 1.0f : weights[i];  // as weigh()
        exponentials += x[i];
    }
    exponentials = reduce_group<kLanes>(exponentials, static_cast<float*>(nullptr), add);
    labelled = reduce_group<kLanes>(labelled, static_cast<float*>(nullptr), add);  // one has it, and the others 0
    if (params.label_smoothing > 0.0f) total = reduce_group<kLanes>(total, static_cast<float*>(nullptr), add);
    const RowResult result = find_loss(params, {maximum, exponentials}, total, is_valid ? labelled : find_nan());

    float* const own = sums[thread / kWarpSize];
    if (params.dlogits != nullptr) {
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            const int column = rank + i * kLanes;
            const float value = (x[i] * result.scale - (column == hit_column ? hit : smooth)) * weight;
            x[i] = !is_counted ? 0.0f : is_valid ? value : find_nan();
            if (row < rows && column < classes) gradient[i * kLanes] = from_float<Element>(x[i]);
        }
        if constexpr (kHasSums) {
#pragma unroll
            for (int i = 0; i < kElems; ++i) {
                const float sum = add_groups<kLanes>(x[i]);
                if (thread % kWarpSize < kLanes) own[rank + i * kLanes] = sum;
            }
        }
    }
    const float loss = add_groups<kLanes>(is_counted ? result.loss : 0.0f);
    if (thread % kWarpSize == 0) own[kColumns] = loss;
    __syncthreads();
    for (int place = thread; place <= kColumns; place += static_cast<int>(blockDim.x)) {
        float sum = 0.0f;
        const int warps = static_cast<int>(blockDim.x) / kWarpSize;
#pragma unroll 4
        for (int warp = 0; warp < warps; ++warp) sum += sums[warp][place];
        if (place == kColumns) *params.loss = sum * weight;
        if (kHasSums && place < classes) static_cast<Element*>(params.dbias)[place] = from_float<Element>(sum);
    }
}

}  // namespace aicf::cross_entropy

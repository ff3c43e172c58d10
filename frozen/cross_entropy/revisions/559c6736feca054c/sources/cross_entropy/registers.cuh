// row_in_registers: a row of logits stays in the registers of kLanes threads from its maximum to its gradient.
//
// Few rows take one launch, of a block or of one cluster, whose blocks put their sums together through distributed shared memory. Beyond
// that, blocks leave their sums of losses, and of columns, in the workspace, and `finish` adds these in the order of the blocks. Each block
// counts the rows that are not ignored for itself while its logits arrive; for many rows `prepare` does it once.
#pragma once

#include <cstdint>

#include "common/cluster.cuh"
#include "common/distributed.cuh"
#include "common/programmatic.cuh"
#include "common/rows.cuh"
#include "cross_entropy/loss.cuh"

namespace aicf::cross_entropy {

inline constexpr int kMaxCluster = 8;

// How the rows are cut into blocks, and where a block's sums go.
struct Split {
    bool is_packed;  // rows of logits and gradient start on 16-byte boundaries
    const Shared* shared;  // of `prepare`; null where blocks count for themselves
    float* losses;  // [blocks], weighted; null where the grid is one cluster
    float* columns;  // [blocks, classes]; null where the grid is one cluster, or nobody wants them
};

template <int kThreads>
__device__ __forceinline__ float find_weight(const CrossEntropyParams& params, const Shared* shared, int* partials) {
    if (shared != nullptr) return shared->weight;
    if (params.reduction != AICF_CROSS_ENTROPY_REDUCTION_MEAN) return 1.0f;
    int count = 0;
    for (std::int64_t row = threadIdx.x; row < params.rows; row += kThreads) count += params.labels[row] != params.ignore_index;
#pragma unroll
    for (int offset = kWarpSize / 2; offset > 0; offset /= 2) count += __shfl_xor_sync(kFullMask, count, offset);
    if (threadIdx.x % kWarpSize == 0) partials[threadIdx.x / kWarpSize] = count;
    __syncthreads();
    count = partials[0];
#pragma unroll
    for (int warp = 1; warp < kThreads / kWarpSize; ++warp) count += partials[warp];
    return 1.0f / static_cast<float>(count);
}

// A block's sums of the gradient's columns, [kWarps][kColumns]: of each warp its own, and at last in the first row those of the block.
template <int kLanes, int kThreads, int kColumns>
struct ColumnSums {
    static constexpr int kGroupLanes = kLanes < kWarpSize ? kLanes : kWarpSize;
    static constexpr int kSets = kLanes > kWarpSize ? 1 : kThreads / kWarpSize;  // of threads that have sums of the same columns
    float values[kSets][kColumns];

    // Adds up what the rows of a warp have in one of their columns, for all lanes.
    static __device__ __forceinline__ float add_rows(float sum) {
#pragma unroll
        for (int offset = kWarpSize / 2; offset >= kGroupLanes; offset /= 2) sum += __shfl_xor_sync(kFullMask, sum, offset);
        return sum;
    }

    __device__ __forceinline__ void put(int column, float sum) {
        const int set = kSets == 1 ? 0 : static_cast<int>(threadIdx.x) / kWarpSize;
        if (kLanes >= kWarpSize || static_cast<int>(threadIdx.x) % kWarpSize < kLanes) values[set][column] = sum;
    }

    // All threads of the block come, behind a barrier; the first row is the block's behind the next one.
    __device__ __forceinline__ void add_warps(int columns) {
        if constexpr (kSets > 1) {
            for (int column = static_cast<int>(threadIdx.x); column < columns; column += kThreads) {
                float sum = values[0][column];
                for (int set = 1; set < kSets; ++set) sum += values[set][column];
                values[0][column] = sum;
            }
        }
    }
};

template <class Element, int kLanes, int kRows, int kElems, bool kHasSums>
__global__ void __launch_bounds__(kLanes* kRows) cross_entropy_row_in_registers(const CrossEntropyParams params, const Split split) {
    using Group = RowGroup<kLanes, kRows>;
    using Span = RowSpan<Element, kLanes, kElems>;
    constexpr int kThreads = kLanes * kRows, kChunkElems = Span::kChunkElems, kColumns = kLanes * kElems;
    using Sums = ColumnSums<kLanes, kThreads, kHasSums ? kColumns : 1>;
    __shared__ int counts[kThreads / kWarpSize];
    __shared__ float maxima[Group::kPartials], totals[3][Group::kPartials], block_losses[kThreads / kWarpSize];
    __shared__ __align__(16) float cluster_loss[4];
    __shared__ __align__(16) Sums sums;
    allow_successor();
    wait_for_predecessor();
    const int rank = static_cast<int>(threadIdx.x) % kLanes, classes = static_cast<int>(params.classes);
    const Span span = {classes, rank, split.is_packed};
    const auto add = [](float a, float b) { return a + b; };
    const float smooth = find_target(params, false), hit = find_target(params, true);
    float weight = 0.0f, loss = 0.0f;
    Pack<Element> sum[kHasSums ? Span::kChunks : 1] = {};

    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRows;
    for (std::int64_t base = first; base < params.rows; base += static_cast<std::int64_t>(gridDim.x) * kRows) {
        const std::int64_t row = base + static_cast<int>(threadIdx.x) / kLanes, source = row < params.rows ? row : params.rows - 1;
        const auto* logits = static_cast<const Element*>(params.logits) + source * params.ldlogits;
        const std::int64_t label = params.labels[source];
        Pack<Element> x[Span::kChunks];
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) x[c] = span.load(logits, c, minus_infinity());
        if (base == first) weight = find_weight<kThreads>(params, split.shared, counts);
        const bool is_counted = row < params.rows && label != params.ignore_index, is_valid = label >= 0 && label < params.classes;

        float maximum = minus_infinity();
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
#pragma unroll
            for (float value : x[c].values) maximum = fmaxf(maximum, value);
        }
        maximum = reduce_group<kLanes>(maximum, maxima, [](float a, float b) { return fmaxf(a, b); });
        float exponentials = 0.0f, labelled = 0.0f, total = 0.0f;
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
#pragma unroll
            for (int i = 0; i < kChunkElems; ++i) {
                if (!span.holds(c, i)) continue;
                float& value = x[c].values[i];
                if (span.find_column(c, i) == label) labelled = value;
                total += value;
                value = weigh(value, maximum);
                exponentials += value;
            }
        }
        exponentials = reduce_group<kLanes>(exponentials, totals[0], add);
        labelled = reduce_group<kLanes>(labelled, totals[1], add);  // one has it, and the others 0
        if (params.label_smoothing > 0.0f) total = reduce_group<kLanes>(total, totals[2], add);
        const RowResult result = find_loss(params, {maximum, exponentials}, total, is_valid ? labelled : find_nan());
        if (rank == 0 && is_counted) loss += result.loss;

        if (params.dlogits == nullptr) continue;
        auto* gradient = static_cast<Element*>(params.dlogits) + row * params.lddlogits;
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
#pragma unroll
            for (int i = 0; i < kChunkElems; ++i) {
                const float value = (x[c].values[i] * result.scale - (span.find_column(c, i) == label ? hit : smooth)) * weight;
                x[c].values[i] = !is_counted ? 0.0f : is_valid ? value : find_nan();
                if constexpr (kHasSums) sum[c].values[i] += span.holds(c, i) ? x[c].values[i] : 0.0f;
            }
            if (row < params.rows) span.store(gradient, c, x[c]);
        }
    }

    loss = reduce_block<kThreads>(loss, block_losses, add);
    if constexpr (kHasSums) {
#pragma unroll
        for (int c = 0; c < Span::kChunks; ++c) {
#pragma unroll
            for (int i = 0; i < kChunkElems; ++i) {
                sums.put(span.find_column(c, i), Sums::add_rows(sum[c].values[i]));
            }
        }
        __syncthreads();
        sums.add_warps(classes);
    }
    if (threadIdx.x < 4) cluster_loss[threadIdx.x] = loss;
    if (split.losses != nullptr) {
        if (threadIdx.x == 0) split.losses[blockIdx.x] = loss * weight;
        if constexpr (kHasSums) {
            float* const columns = split.columns + static_cast<std::int64_t>(blockIdx.x) * classes;
            for (int column = static_cast<int>(threadIdx.x); column < classes; column += kThreads) columns[column] = sums.values[0][column];
        }
        return;
    }
    // The grid is one cluster: its first block adds up all.
    const bool is_alone = gridDim.x == 1;
    if (is_alone) {
        __syncthreads();
    } else {
        sync_cluster();
    }
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) {
            for (unsigned block = 1; block < gridDim.x; ++block) loss += load_from_block(cluster_loss, block).x;
            *params.loss = loss * weight;
        }
        if constexpr (kHasSums) {
            auto* const dbias = static_cast<Element*>(params.dbias);
            for (int column = 4 * static_cast<int>(threadIdx.x); column < classes; column += 4 * kThreads) {
                const float* const own = sums.values[0] + column;
                float4 value = {own[0], own[1], own[2], own[3]};
                for (unsigned block = 1; block < gridDim.x; ++block) {
                    const float4 part = load_from_block(own, block);
                    value = {value.x + part.x, value.y + part.y, value.z + part.z, value.w + part.w};
                }
                const float values[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
                for (int i = 0; i < 4 && column + i < classes; ++i) dbias[column + i] = from_float<Element>(values[i]);
            }
        }
    }
    if (!is_alone) sync_cluster();  // a block's shared memory is there until all have read it
}

inline constexpr int kFinishWidth = 32, kFinishThreads = 1024;

// The loss is the first block's; each takes kFinishWidth columns.
template <class Element>
__global__ void __launch_bounds__(kFinishThreads) cross_entropy_finish(const CrossEntropyParams params, const Split split, int num_blocks) {
    constexpr int kSets = kFinishThreads / kFinishWidth;
    __shared__ float parts[kSets][kFinishWidth], losses[kFinishThreads / kWarpSize];
    allow_successor();
    wait_for_predecessor();
    if (blockIdx.x == 0) {
        float loss = 0.0f;
        for (int block = static_cast<int>(threadIdx.x); block < num_blocks; block += kFinishThreads) loss += split.losses[block];
        loss = reduce_block<kFinishThreads>(loss, losses, [](float a, float b) { return a + b; });
        if (threadIdx.x == 0) *params.loss = loss;
    }
    if (split.columns == nullptr) return;
    const int set = static_cast<int>(threadIdx.x) / kFinishWidth, place = static_cast<int>(threadIdx.x) % kFinishWidth;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kFinishWidth + place;
    float sum = 0.0f;
    if (column < params.classes) {
#pragma unroll 8
        for (int block = set; block < num_blocks; block += kSets) sum += split.columns[block * params.classes + column];
    }
    parts[set][place] = sum;
    __syncthreads();
    if (set != 0 || column >= params.classes) return;
    for (int other = 1; other < kSets; ++other) sum += parts[other][place];
    static_cast<Element*>(params.dbias)[column] = from_float<Element>(sum);
}

}  // namespace aicf::cross_entropy

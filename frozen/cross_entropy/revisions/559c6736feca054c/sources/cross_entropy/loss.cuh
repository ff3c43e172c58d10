// A row's loss and gradient from its maximum, its sum of exponentials, and the logit of its label.
#pragma once

#include <cstdint>

#include "common/online.cuh"
#include "cross_entropy/params.h"

namespace aicf::cross_entropy {

// In the workspace.
struct Shared {
    float weight;            // of a row's loss: 1, or one over the rows that are not ignored
    std::uint32_t finished;  // blocks
};

// What the gradient of a row is made of, and its loss.
struct RowResult {
    float maximum, scale;  // softmax is exp(x - maximum) * scale
    float loss;
};

// `online` of the whole row, and the sum of its logits.
__device__ __forceinline__ RowResult find_loss(const CrossEntropyParams& params, Online online, float total, float labelled) {
    float loss = online.maximum - labelled + logf(online.sum);
    if (params.label_smoothing > 0.0f) loss = fmaf(params.label_smoothing, labelled - total / static_cast<float>(params.classes), loss);
    return {online.maximum, __frcp_rn(online.sum), loss};
}

// The share of a class in the target distribution.
__device__ __forceinline__ float find_target(const CrossEntropyParams& params, bool is_label) {
    const float smooth = params.label_smoothing / static_cast<float>(params.classes);
    return is_label ? 1.0f - params.label_smoothing + smooth : smooth;
}

__device__ __forceinline__ float find_gradient(const CrossEntropyParams& params, const RowResult& row, float x, bool is_label,
                                               float weight) {
    return (expf(x - row.maximum) * row.scale - find_target(params, is_label)) * weight;
}

__device__ __forceinline__ float find_nan() { return __int_as_float(0x7fffffff); }

}  // namespace aicf::cross_entropy

// From a piece's axes to slabs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/launch.hpp"
#include "strided_copy/gathering.hpp"
#include "strided_copy/routing.hpp"
#include "strided_copy/slabs.cuh"

namespace aicf::strided_copy {

// What a launch of slabs is: axes with their steps in shared memory.
struct SlabPlan {
    Span axes[kMaxAxes];
    int num_axes;
    std::int64_t total_bytes, block_bytes;
    std::int64_t row_bytes, pad_bytes;
    int shared_bytes;
};

// Whether the axes before the last have x without gaps, whatever their order, and the last goes on where they end.
inline bool has_slabs(const Frame& frame, std::int64_t item) {
    const int num_inner = frame.num_axes - 1;
    std::int64_t bytes = item;
    for (int found = 0; found < num_inner; ++found) {
        int k = 0;
        while (k < num_inner && frame.axes[k].x_step != bytes) ++k;
        if (k == num_inner) return false;
        bytes *= frame.axes[k].extent;
    }
    return num_inner > 1 && frame.axes[num_inner].x_step == bytes && frame.axes[num_inner].y_step == bytes;
}

// Blocks of about 4 KiB, of whole slabs and words. Returns false where there would be too few of them, or a slab is too long.
inline bool plan_slabs(const Frame& frame, const char* x, const char* y, std::int64_t item, SlabPlan* plan) {
    constexpr std::int64_t kBlockBytes = 4096, kMostBytes = 32 * 1024;
    const std::int64_t word = std::max<std::int64_t>(item, 4);
    if (!frame.is_dense(item) || frame.has_zeros() || !has_slabs(frame, item)) return false;
    const Span& outer = frame.axes[frame.num_axes - 1];
    const std::int64_t slab_bytes = outer.y_step, least = word / std::gcd(slab_bytes, word);
    const std::int64_t most = std::min(kBlockBytes / slab_bytes, outer.extent / kMultiprocessors);
    const std::int64_t block_bytes = slab_bytes * std::max(most / least * least, least);
    plan->total_bytes = slab_bytes * outer.extent;
    plan->block_bytes = block_bytes;
    plan->row_bytes = frame.axes[0].x_step;
    // Rows of an odd number of words, or of elements that are longer.
    plan->pad_bytes = plan->row_bytes % (2 * word) == 0 ? word : 0;
    const std::int64_t shared_bytes = block_bytes + divide_up(block_bytes, plan->row_bytes) * plan->pad_bytes;
    const auto addresses = reinterpret_cast<std::uintptr_t>(x) | reinterpret_cast<std::uintptr_t>(y);
    if (addresses % static_cast<unsigned>(word) != 0 || plan->total_bytes % word != 0 || plan->total_bytes > kMostCounted) return false;
    if (block_bytes * kMultiprocessors > plan->total_bytes || shared_bytes > kMostBytes) return false;
    plan->shared_bytes = static_cast<int>(shared_bytes);
    plan->num_axes = frame.num_axes;
    for (int k = 0; k < frame.num_axes; ++k) {
        plan->axes[k] = frame.axes[k];
        plan->axes[k].x_step += frame.axes[k].x_step / plan->row_bytes * plan->pad_bytes;
    }
    return true;
}

template <int kAxes>
Slabs<kAxes> make_slabs(const SlabPlan& plan, const char* x, char* y) {
    Slabs<kAxes> slabs = {make_route<kAxes>(plan.axes, plan.num_axes, x, y, 0),
                          wrap(plan.total_bytes / 4),
                          wrap(plan.block_bytes / 4),
                          0,
                          0,
                          wrap(plan.pad_bytes / 4)};
    if (plan.pad_bytes > 0) {
        const Divisor row = make_divisor(plan.row_bytes / 4);
        slabs.row_multiplier = row.multiplier;
        slabs.row_shift = row.shift;
    }
    return slabs;
}

}  // namespace aicf::strided_copy

// Whether two strided arrays share memory, without looking at their elements one by one.
#pragma once

#include <algorithm>
#include <cstdint>

namespace aicf {

inline constexpr int kMaxRank = 8;

// An array in memory: extents and strides in elements, outermost first; strides are positive.
struct StridedView {
    std::uint64_t address = 0;
    std::int64_t item_bytes = 1;
    int rank = 0;
    std::int64_t shape[kMaxRank] = {};
    std::int64_t strides[kMaxRank] = {};
};

// Bytes from the first to one past the last, of the dimensions whose stride is below `limit` bytes.
inline std::int64_t find_span_bytes(const StridedView& view, std::int64_t limit = INT64_MAX) {
    std::int64_t span = view.item_bytes;
    for (int i = 0; i < view.rank; ++i) {
        const std::int64_t step = view.strides[i] * view.item_bytes;
        if (view.shape[i] > 1 && step < limit) span += (view.shape[i] - 1) * step;
    }
    return span;
}

// True where the view is blocks that repeat every `period` bytes, and no block is longer than that.
inline bool repeats_every(const StridedView& view, std::int64_t period) {
    for (int i = 0; i < view.rank; ++i) {
        const std::int64_t step = view.strides[i] * view.item_bytes;
        if (view.shape[i] > 1 && step >= period && step % period != 0) return false;
    }
    return find_span_bytes(view, period) <= period;
}

// Blocks of two views that repeat every `period` bytes lie in different parts of it.
inline bool interleave(const StridedView& a, const StridedView& b, std::int64_t period) {
    if (!repeats_every(a, period) || !repeats_every(b, period)) return false;
    const auto p = static_cast<std::uint64_t>(period);
    // Both starts from a's on, around the period.
    const std::uint64_t start = (b.address % p + p - a.address % p) % p;
    return start >= static_cast<std::uint64_t>(find_span_bytes(a, period)) &&
           start + static_cast<std::uint64_t>(find_span_bytes(b, period)) <= p;
}

// False where they share no byte. Arrays that are woven into each other are told apart where one period tells them apart: parts of the
// rows of one matrix, or the heads of a packed tensor; what else overlaps in extent is taken to share.
inline bool may_share_memory(const StridedView& a, const StridedView& b) {
    const auto a_end = a.address + static_cast<std::uint64_t>(find_span_bytes(a));
    const auto b_end = b.address + static_cast<std::uint64_t>(find_span_bytes(b));
    if (a_end <= b.address || b_end <= a.address) return false;
    for (int i = 0; i < a.rank; ++i) {
        if (a.shape[i] > 1 && interleave(a, b, a.strides[i] * a.item_bytes)) return false;
    }
    return true;
}

}  // namespace aicf

// From one piece, and the array that it is put into, to a gather: axes in the order of y's memory, merged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "strided_copy/gathered.cuh"
#include "strided_copy/margins.cuh"
#include "strided_copy/planning.hpp"
#include "strided_copy/routing.hpp"

namespace aicf::strided_copy {

// An axis of y in bytes; which of its places are x's.
struct Span {
    std::int64_t extent, first, count, x_step, y_step;
};

// A piece and y around it, in bytes: axes from the innermost of y on.
struct Frame {
    Span axes[kMaxAxes];
    int num_axes = 0;

    // Takes an axis in, unless it has one place only: before the first that goes further in y.
    void insert(const Span& axis) {
        if (axis.extent == 1) return;
        int at = num_axes++;
        for (; at > 0 && axes[at - 1].y_step > axis.y_step; --at) axes[at] = axes[at - 1];
        axes[at] = axis;
    }

    bool is_dense(std::int64_t item) const {
        for (int k = 0; k < num_axes; ++k) {
            if (axes[k].y_step != item) return false;
            item *= axes[k].extent;
        }
        return true;
    }

    // Joins neighbours where x has all places of the inner one, and the outer one goes on where that ends, on both sides.
    void merge() {
        int count = 0;
        for (int k = 0; k < num_axes; ++k) {
            Span& inner = axes[std::max(count - 1, 0)];
            const Span& outer = axes[k];
            const bool goes_on = outer.x_step == inner.x_step * inner.extent && outer.y_step == inner.y_step * inner.extent;
            if (count > 0 && inner.count == inner.extent && goes_on) {
                inner = {inner.extent * outer.extent, inner.extent * outer.first, inner.extent * outer.count, inner.x_step, inner.y_step};
            } else {
                axes[count++] = outer;
            }
        }
        num_axes = count;
        if (count == 0) axes[num_axes++] = {1, 0, 1, 0, 0};
    }

    // More than 31 bits number are not counted to the end.
    std::int64_t count_places() const {
        std::int64_t count = 1;
        for (int k = 0; k < num_axes; ++k) {
            if (axes[k].extent > kMostCounted / count) return kMostCounted + 1;
            count *= axes[k].extent;
        }
        return count;
    }

    // How many times its bytes a block that reads `together` elements along y gets from x, by sectors of 32 bytes.
    std::int64_t find_excess(std::int64_t item, std::int64_t together) const {
        constexpr std::int64_t kSector = 32;
        std::int64_t least = kSector / item;
        for (int k = 0; k < num_axes && together > 0; together /= axes[k].extent, ++k) {
            const std::int64_t step = std::abs(axes[k].x_step), run = std::min(axes[k].extent, together);
            least = std::min(least, (std::max(run * step, kSector) - 1) / (run * item) + 1);
        }
        return least;
    }

    bool has_zeros() const {
        bool found = false;
        for (int k = 0; k < num_axes; ++k) found |= axes[k].count < axes[k].extent;
        return found;
    }
};

// How a gather goes: not at all, element after element, or in packs of 16 bytes.
enum class Gathering { kNone, kElements, kPacks };

// Bytes that are little to move: what a launch costs besides matters more.
inline constexpr std::int64_t kLittleBytes = 1 << 21;

// Packs serve elements that are neighbours on both sides, in rows of y no shorter than a pack. Long rows of 1 or 2 bytes without zeros, 16
// or 8 loads a pack, are left to shifted words unless they are few.
inline bool can_be_packs(const Frame& frame, int log_bytes) {
    constexpr int kMostLog = 2;
    constexpr std::int64_t kShortRows[] = {0, 1024};  // bytes of a row whose ends cost shifted words more than that
    const std::int64_t item = std::int64_t{1} << log_bytes, row_bytes = frame.axes[0].extent * item;
    if (log_bytes > kMostLog || frame.axes[0].x_step != item || row_bytes < kGatheredBytes) return false;
    return log_bytes == kMostLog || frame.has_zeros() || row_bytes < kShortRows[log_bytes] || frame.count_places() * item <= kLittleBytes;
}

// Elements serve where little is read, counting what warps read in excess; zeros around what packs do not serve; and axes of few places,
// which would go in tiles of elements, where a block finds the rest of most sectors in L1.
inline Gathering choose_gathering(const Frame& frame, int log_bytes, bool is_in_tiles) {
    constexpr std::int64_t kWarp = 32, kBlock = 256, kMostExcess = 4;
    const std::int64_t item = std::int64_t{1} << log_bytes, places = frame.count_places();
    if (!frame.is_dense(item) || places > kMostCounted) return Gathering::kNone;
    if (can_be_packs(frame, log_bytes)) return Gathering::kPacks;
    const bool is_little = places * item * frame.find_excess(item, kWarp) <= kLittleBytes;
    const bool has_short_zeros = frame.has_zeros() && frame.axes[0].x_step == item;
    const bool are_short_tiles = is_in_tiles && frame.find_excess(item, kBlock) <= kMostExcess;
    return is_little || has_short_zeros || are_short_tiles ? Gathering::kElements : Gathering::kNone;
}

// Fills in margins of a frame whose elements are neighbours on both sides, if rows of y are whole pairs and 31 bits hold what they count.
// Returns whether they do.
template <int kOuter>
bool make_margins(const Frame& frame, const char* x, char* y, int log_bytes, Margins<kOuter>* margins) {
    const std::int64_t item = std::int64_t{1} << log_bytes;
    const Span& inner = frame.axes[0];
    const Span& last = frame.axes[frame.num_axes - 1];
    if (frame.num_axes - 1 + (last.count < last.extent ? 1 : 0) > kOuter) return false;
    if (inner.x_step != item || inner.extent % 2 != 0 || inner.extent < 4) return false;
    if (reinterpret_cast<std::uintptr_t>(y) % static_cast<unsigned>(2 * item) != 0) return false;
    if (!can_be_routed(frame.axes, frame.num_axes, log_bytes)) return false;
    const Divisor width = make_divisor(inner.extent / 2);
    *margins = {
        x, y, wrap(frame.count_places() / 2), wrap(-inner.extent), width.multiplier, width.shift, wrap(inner.first), wrap(inner.count), {}};
    std::int64_t rows = 1, first = 0;
    for (int k = 0; k < kOuter; ++k) {
        if (k + 1 >= frame.num_axes) {
            margins->axes[k] = {0, 0, 0, 0, 1, 0};
            continue;
        }
        const Span &axis = frame.axes[k + 1], &before = frame.axes[k];
        const std::int64_t step = axis.x_step - (k > 0 ? before.x_step * before.extent : 0);
        rows *= axis.extent;
        const Divisor by = make_divisor(rows);
        const bool is_last = k + 2 >= frame.num_axes;
        margins->axes[k] = {
            is_last ? 0 : by.multiplier, by.shift, wrap(-axis.extent), wrap(axis.first), wrap(axis.count), wrap(step / item)};
        first += axis.first * (axis.x_step / item);
    }
    margins->x -= first * item;
    return true;
}

inline Gather make_gather(const Frame& frame, const char* x, char* y, int log_bytes, Gathering gathering) {
    Gather gather = {};
    gather.x = x;
    const auto misfit = gathering == Gathering::kPacks ? static_cast<int>(reinterpret_cast<std::uintptr_t>(y) % kGatheredBytes) : 0;
    gather.y = y - misfit;
    gather.misfit = misfit >> log_bytes;
    gather.num_axes = frame.num_axes;
    gather.num_elements = static_cast<int>(frame.count_places());
    for (int k = 0; k < kMaxAxes; ++k) {
        const Span axis = k < frame.num_axes ? frame.axes[k] : Span{1, 0, 1, 0, 0};
        gather.axes[k] = {make_divisor(std::max<std::int64_t>(axis.extent, 2)), static_cast<int>(axis.first), static_cast<int>(axis.count),
                          axis.x_step};
    }
    return gather;
}

}  // namespace aicf::strided_copy

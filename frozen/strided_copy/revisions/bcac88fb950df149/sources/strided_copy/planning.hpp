// From a call to the plan of its launch: axes of each piece put into the order of y's memory, merged, and counted in wide accesses.
#pragma once

#include <algorithm>
#include <cstdint>

#include "strided_copy/pieces.cuh"

namespace aicf::strided_copy {

// A piece on its way to a plan, in bytes: axes from the innermost of y on.
struct Shape {
    struct Side {
        std::int64_t extent, x_step, y_step;
    };

    Side axes[kMaxAxes];
    int num_axes = 0;

    // Takes an axis in, unless it has one place only: before the first that goes further in y.
    void insert(const Side& axis) {
        if (axis.extent == 1) return;
        int at = num_axes++;
        for (; at > 0 && axes[at - 1].y_step > axis.y_step; --at) axes[at] = axes[at - 1];
        axes[at] = axis;
    }

    // Joins neighbours where the outer one goes on where the inner one ends, on both sides.
    void merge() {
        int count = 0;
        for (int i = 0; i < num_axes; ++i) {
            Side& inner = axes[std::max(count - 1, 0)];
            if (count > 0 && axes[i].x_step == inner.x_step * inner.extent && axes[i].y_step == inner.y_step * inner.extent) {
                inner.extent *= axes[i].extent;
            } else {
                axes[count++] = axes[i];
            }
        }
        num_axes = count;
        if (count == 0) axes[num_axes++] = {1, 0, 0};
    }

    // Makes the innermost axis one of accesses as wide as 16 bytes, its extent and all addresses allow; returns the logarithm of their
    // bytes. Elements have 2^log_bytes.
    int widen(std::uintptr_t addresses, int log_bytes) {
        const std::int64_t item = std::int64_t{1} << log_bytes;
        if (axes[0].extent > 1 && (axes[0].x_step != item || axes[0].y_step != item)) return log_bytes;
        std::uint64_t all = addresses | static_cast<std::uint64_t>(axes[0].extent * item);
        for (int i = 1; i < num_axes; ++i) all |= static_cast<std::uint64_t>(axes[i].x_step | axes[i].y_step);
        int log_wide = log_bytes;
        while (log_wide < 4 && (all >> log_wide & 1) == 0) ++log_wide;
        axes[0].extent >>= log_wide - log_bytes;
        axes[0].x_step = axes[0].y_step = std::int64_t{1} << log_wide;
        return log_wide;
    }

    std::int64_t count_places() const {
        std::int64_t count = 1;
        for (int i = 0; i < num_axes; ++i) count *= axes[i].extent;
        return count;
    }

    // The axis with the shortest steps in x.
    int find_innermost_of_x() const {
        int found = 0;
        for (int i = 1; i < num_axes; ++i) {
            if (axes[i].x_step < axes[found].x_step) found = i;
        }
        return found;
    }
};

inline constexpr int find_ceil_log(std::int64_t value) {
    int log = 0;
    while ((std::int64_t{1} << log) < value) ++log;
    return log;
}

inline void fill_axes(const Shape& shape, Piece* piece) {
    piece->num_axes = shape.num_axes;
    for (int i = 0; i < shape.num_axes; ++i) {
        const Shape::Side& side = shape.axes[i];
        piece->axes[i] = {side.extent, side.x_step, side.y_step, piece->way == Way::kLarge ? Divisor{} : make_divisor(side.extent)};
    }
}

// A tile has 64 places of both axes, and more of one where the other is shorter. Returns false where it would be nearly empty.
inline bool plan_tiles(const Shape& shape, int log_bytes, Piece* piece) {
    constexpr int kLogSide = kLogTile / 2, kLeastLog = 8;
    const int log_down = find_ceil_log(shape.axes[0].extent), log_across = find_ceil_log(shape.axes[1].extent);
    piece->log_down = std::min(log_down, std::max(kLogSide, kLogTile - log_across));
    piece->log_across = std::min(log_across, kLogTile - piece->log_down);
    if (piece->log_down + piece->log_across < kLeastLog) return false;
    // Lanes along axis 0 access one place of axis 1: as far apart in shared memory as the lanes that are left over take.
    const int banks = 32 >> std::min(piece->log_down, 5);
    piece->pitch_bytes = (1 << (piece->log_across + log_bytes)) + std::max(4 * banks, 1 << log_bytes);
    piece->tiles_down = make_divisor((shape.axes[0].extent - 1 >> piece->log_down) + 1);
    piece->tiles_across = make_divisor((shape.axes[1].extent - 1 >> piece->log_across) + 1);
    piece->log_bytes = log_bytes;
    piece->way = Way::kTiles;
    fill_axes(shape, piece);
    return true;
}

inline std::int64_t count_tiles(const Piece& piece) {
    std::int64_t count = std::int64_t{piece.tiles_down.divisor} * piece.tiles_across.divisor;
    for (int i = 2; i < piece.num_axes; ++i) count *= piece.axes[i].extent;
    return count;
}

// Fills in all of a piece but where its blocks begin. Its addresses are known.
inline void plan_piece(Shape shape, int log_bytes, int threads, int items, bool has_tiles, Piece* piece) {
    constexpr std::int64_t kMostCounted = (std::int64_t{1} << 31) - (1 << 16);
    constexpr std::int64_t kManyBlocks = 1 << 16;
    shape.merge();
    const int innermost = shape.find_innermost_of_x();
    if (has_tiles && innermost != 0 && shape.count_places() <= kMostCounted) {
        Shape turned = shape;
        std::rotate(turned.axes + 1, turned.axes + innermost, turned.axes + innermost + 1);
        if (plan_tiles(turned, log_bytes, piece)) {
            piece->num_blocks = static_cast<int>(count_tiles(*piece));
            return;
        }
    }
    const auto addresses = reinterpret_cast<std::uintptr_t>(piece->x) | reinterpret_cast<std::uintptr_t>(piece->y);
    piece->log_bytes = shape.widen(addresses, log_bytes);
    piece->num_accesses = shape.count_places();
    piece->way = piece->num_accesses <= kMostCounted ? Way::kRuns : Way::kLarge;
    piece->num_blocks = static_cast<int>(
        std::min((piece->num_accesses - 1) / (threads * items) + 1, piece->way == Way::kRuns ? kMostCounted : kManyBlocks));
    fill_axes(shape, piece);
}

}  // namespace aicf::strided_copy

// From a call to the plan of its launch: axes of each piece put into the order of y's memory, merged, and counted in wide accesses.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "common/launch.hpp"
#include "strided_copy/cut.cuh"
#include "strided_copy/packed.cuh"
#include "strided_copy/panels.cuh"
#include "strided_copy/pieces.cuh"

namespace aicf::strided_copy {

// Accesses and places that 31 bits number, whatever a block adds.
inline constexpr std::int64_t kMostCounted = (std::int64_t{1} << 31) - (1 << 16);
// Accesses of 8 bytes, as a power of two: narrower ones leave rows to shifted words.
inline constexpr int kLogWide = 3;

// What several pieces of a launch can agree on: accesses no wider than 2^log_widest bytes, or all of them as rows.
struct Wish {
    int log_widest = 4;
    bool rows = false;
};

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

    // Where the innermost axis steps over gaps on either side, an axis of one element comes before it, if there is room.
    void insert_element(std::int64_t item) {
        const bool is_run = axes[0].x_step == item && axes[0].y_step == item;
        if (is_run || num_axes == kMaxAxes) return;
        std::copy_backward(axes, axes + num_axes, axes + num_axes + 1);
        axes[0] = {1, item, item};
        ++num_axes;
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

    // Makes the innermost axis one of accesses as wide as 2^log_widest bytes, its extent and all addresses allow; returns the logarithm of
    // their bytes. Elements have 2^log_bytes.
    int widen(std::uintptr_t addresses, int log_bytes, int log_widest) {
        const std::int64_t item = std::int64_t{1} << log_bytes;
        if (axes[0].extent > 1 && (axes[0].x_step != item || axes[0].y_step != item)) return log_bytes;
        std::uint64_t all = addresses | static_cast<std::uint64_t>(axes[0].extent * item);
        for (int i = 1; i < num_axes; ++i) all |= static_cast<std::uint64_t>(axes[i].x_step | axes[i].y_step);
        int log_wide = log_bytes;
        while (log_wide < log_widest && (all >> log_wide & 1) == 0) ++log_wide;
        axes[0].extent >>= log_wide - log_bytes;
        axes[0].x_step = axes[0].y_step = std::int64_t{1} << log_wide;
        return log_wide;
    }

    std::int64_t count_places() const {
        std::int64_t count = 1;
        for (int i = 0; i < num_axes; ++i) count *= axes[i].extent;
        return count;
    }

    // From the first element in x to the end of the last, where these are all there is between them; else 0.
    std::int64_t find_dense_bytes(int log_bytes) const {
        const std::int64_t item = std::int64_t{1} << log_bytes;
        std::int64_t last = 0;
        for (int i = 0; i < num_axes; ++i) last += (axes[i].extent - 1) * axes[i].x_step;
        return last + item == count_places() * item ? last + item : 0;
    }

    // Joins an axis that is shorter than a line of a tile with another that goes on where it ends on the side `along`; what the other side
    // makes of it is returned. The first two axes stay axes of their own.
    Fold fold(int axis, std::int64_t Side::* along, std::int64_t Side::* other, std::int64_t item) {
        constexpr std::int64_t kLineBytes = 128;
        Side& first = axes[axis];
        Fold found = {make_divisor(first.extent), 0};
        for (int k = 2; k < num_axes && first.extent * item < kLineBytes; ++k) {
            if (axes[k].*along != first.extent * first.*along) continue;
            found.step = axes[k].*other;
            first.extent *= axes[k].extent;
            std::copy(axes + k + 1, axes + num_axes, axes + k);
            --num_axes;
            break;
        }
        return found;
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

// The logarithm of the widest access, up to 16 bytes, that a side allows whose innermost axis is `inner`: its other steps, its address and
// the extent of that axis are multiples. `folded` is the step of an axis that the other side has folded.
inline int find_log_access(const Shape& shape, int inner, std::uintptr_t address, std::int64_t Shape::Side::* step, std::int64_t folded,
                           int log_bytes) {
    std::uint64_t all = address | static_cast<std::uint64_t>(shape.axes[inner].extent << log_bytes | folded);
    for (int i = 0; i < shape.num_axes; ++i) {
        if (i != inner) all |= static_cast<std::uint64_t>(shape.axes[i].*step);
    }
    int log_wide = log_bytes;
    while (log_wide < 4 && (all >> log_wide & 1) == 0) ++log_wide;
    return log_wide;
}

// Tiles of words: where elements are neighbours along both innermost axes, and these have some bytes. They have 2^log_lines lines.
inline bool plan_packed(Shape shape, int log_bytes, int log_lines, Piece* piece) {
    constexpr int kLogLineBytes = 7;
    const std::int64_t item = std::int64_t{1} << log_bytes;
    piece->across = shape.fold(1, &Shape::Side::x_step, &Shape::Side::y_step, item);
    piece->down = shape.fold(0, &Shape::Side::y_step, &Shape::Side::x_step, item);
    const Shape::Side &down = shape.axes[0], &across = shape.axes[1];
    if (down.y_step != item || across.x_step != item) return false;
    // Where an axis goes on beyond one of these, tiles of elements would be short on both sides; of 8 bytes these have no fewer lanes.
    const std::int64_t least_bytes = log_bytes == 3 ? 64 : piece->across.step != 0 || piece->down.step != 0 ? 8 : 16;
    if (down.extent * item < least_bytes || across.extent * item < least_bytes) return false;
    piece->log_x = find_log_access(shape, 1, reinterpret_cast<std::uintptr_t>(piece->x), &Shape::Side::x_step, piece->down.step, log_bytes);
    piece->log_y =
        find_log_access(shape, 0, reinterpret_cast<std::uintptr_t>(piece->y), &Shape::Side::y_step, piece->across.step, log_bytes);
    // Elements of one byte are stored one by one or by fours.
    if (log_bytes == 0 && piece->log_y == 1) piece->log_y = 0;
    piece->log_bytes = log_bytes;
    piece->log_lines = log_lines;
    piece->log_down = std::min(find_ceil_log(down.extent), log_lines);
    piece->log_across = kLogLineBytes - log_bytes + log_lines - piece->log_down;
    piece->tiles_down = make_divisor((down.extent - 1 >> piece->log_down) + 1);
    piece->tiles_across = make_divisor((across.extent - 1 >> piece->log_across) + 1);
    piece->way = Way::kPacked;
    fill_axes(shape, piece);
    return true;
}

// Few lines a tile where there would be so few tiles that multiprocessors have none or one more than others; a thread has a line at least.
inline bool plan_lines(const Shape& shape, int log_bytes, int threads, Rung rung, Piece* piece) {
    constexpr std::int64_t kFewTiles = 4 * kMultiprocessors;
    if (rung < Rung::kGathered) return log_bytes <= 2 && plan_packed(shape, log_bytes, kLogMostLines, piece);
    return plan_packed(shape, log_bytes, kLogMostLines, piece) &&
           (count_tiles(*piece) >= kFewTiles || plan_packed(shape, log_bytes, find_log_few_lines(threads), piece));
}

// Fills in small tiles of a packed piece without folds, if 31 bits hold its steps and a grid its tiles. Returns whether they do.
inline bool make_panels(const Piece& piece, Panels* panels, dim3* grid) {
    constexpr int kLogLineBytes = 7, kMostAlongGrid = 65535, kFewAxes = 3;
    const Axis &down = piece.axes[0], &across = piece.axes[1];
    const Axis outer = piece.num_axes == kFewAxes ? piece.axes[kFewAxes - 1] : Axis{1, 0, 0, {}};
    if (piece.num_axes > kFewAxes || piece.down.step != 0 || piece.across.step != 0) return false;
    if (std::max(std::abs(down.x_step), std::abs(across.y_step)) > kMostCounted) return false;
    const int log_down = std::min(find_ceil_log(down.extent), kLogPanelLines);
    const int log_across = kLogLineBytes - piece.log_bytes + kLogPanelLines - log_down;
    const std::int64_t tiles_down = (down.extent - 1 >> log_down) + 1, tiles_across = (across.extent - 1 >> log_across) + 1;
    if (std::max(tiles_across, outer.extent) > kMostAlongGrid) return false;
    *panels = {piece.x,
               piece.y,
               outer.x_step,
               outer.y_step,
               static_cast<int>(down.extent),
               static_cast<int>(across.extent),
               static_cast<int>(down.x_step),
               static_cast<int>(across.y_step),
               log_down,
               log_across};
    *grid = dim3(static_cast<unsigned>(tiles_down), static_cast<unsigned>(tiles_across), static_cast<unsigned>(outer.extent));
    return true;
}

// Fills in cut tiles of a packed piece without folds, if 31 bits hold its steps. Returns whether they do.
inline bool make_cut(const Piece& piece, CutTiles* tiles) {
    constexpr int kFewAxes = 3, kMostAlongGrid = 65535, kFewestLines = 32;
    constexpr std::int64_t kFewestBytes = 32;  // of a line
    const Axis &down = piece.axes[0], &across = piece.axes[1];
    const Axis outer = piece.num_axes == kFewAxes ? piece.axes[kFewAxes - 1] : Axis{1, 0, 0, {}};
    if (piece.num_axes > kFewAxes || piece.down.step != 0 || piece.across.step != 0) return false;
    if (across.extent << piece.log_bytes < kFewestBytes) return false;
    if (std::max({std::abs(down.x_step), std::abs(across.y_step), across.extent << piece.log_bytes}) > kMostCounted / kFewestLines)
        return false;
    if (std::max(down.extent / kFewestLines, outer.extent) >= kMostAlongGrid) return false;
    *tiles = {piece.x,
              piece.y,
              outer.x_step,
              outer.y_step,
              static_cast<int>(down.extent),
              static_cast<int>(across.extent),
              static_cast<int>(outer.extent),
              static_cast<int>(down.x_step),
              static_cast<int>(across.y_step),
              piece.x_end != nullptr};
    return true;
}

// Whether all columns of a packed piece begin at sectors of y.
inline bool has_whole_sectors(const Piece& piece) {
    constexpr std::uint64_t kSector = 32;
    std::uint64_t all = reinterpret_cast<std::uintptr_t>(piece.y);
    for (int k = 1; k < piece.num_axes; ++k) all |= static_cast<std::uint64_t>(piece.axes[k].y_step);
    return all % kSector == 0;
}

// Rows of neighbours on both sides that allow only narrow accesses, in packs of 16 bytes of y: a row has as many as one that begins a byte
// before a multiple of 16. Where they are wished for, rows may be as short as an element.
inline bool plan_rows(Shape shape, int log_bytes, const Wish& wish, Piece* piece) {
    constexpr std::int64_t kMostBytes = 1 << 30;
    const std::int64_t least_bytes = wish.rows ? 1 : 32;
    const std::int64_t item = std::int64_t{1} << log_bytes;
    if (wish.rows) shape.insert_element(item);
    Shape::Side& inner = shape.axes[0];
    const std::int64_t row_bytes = inner.extent * item;
    if (log_bytes > 2 || inner.x_step != item || inner.y_step != item || row_bytes < least_bytes || row_bytes > kMostBytes) return false;
    inner = {(row_bytes + 14) / 16 + 1, 0, 0};
    if (shape.count_places() > kMostCounted) return false;
    piece->num_accesses = shape.count_places();
    piece->row_bytes = static_cast<int>(row_bytes);
    piece->log_bytes = log_bytes;
    piece->way = Way::kRows;
    fill_axes(shape, piece);
    return true;
}

// Fills in all of a piece but where its blocks begin. Its addresses are known.
inline void plan_piece(Shape shape, int log_bytes, int threads, int items, Rung rung, const Wish& wish, Piece* piece) {
    constexpr std::int64_t kManyBlocks = 1 << 16;
    shape.merge();
    const std::int64_t dense_bytes = shape.find_dense_bytes(log_bytes);
    piece->x_end = dense_bytes > 0 ? piece->x + dense_bytes : nullptr;
    const int innermost = shape.find_innermost_of_x();
    if (rung >= Rung::kTurned && innermost != 0 && shape.count_places() <= kMostCounted) {
        Shape turned = shape;
        for (int k = innermost; k > 1; --k) std::swap(turned.axes[k - 1], turned.axes[k]);
        if ((rung >= Rung::kPacked && plan_lines(turned, log_bytes, threads, rung, piece)) || plan_tiles(turned, log_bytes, piece)) {
            piece->num_blocks = static_cast<int>(count_tiles(*piece));
            return;
        }
    }
    const auto addresses = reinterpret_cast<std::uintptr_t>(piece->x) | reinterpret_cast<std::uintptr_t>(piece->y);
    const Shape narrow = shape;
    piece->log_bytes = shape.widen(addresses, log_bytes, wish.log_widest);
    if (rung >= Rung::kPacked && (wish.rows || piece->log_bytes < kLogWide) && piece->x != nullptr &&
        plan_rows(narrow, log_bytes, wish, piece)) {
        piece->num_blocks = static_cast<int>((piece->num_accesses - 1) / (threads * items) + 1);
        return;
    }
    piece->num_accesses = shape.count_places();
    piece->way = piece->num_accesses <= kMostCounted ? Way::kRuns : Way::kLarge;
    piece->num_blocks = static_cast<int>(
        std::min((piece->num_accesses - 1) / (threads * items) + 1, piece->way == Way::kRuns ? kMostCounted : kManyBlocks));
    fill_axes(shape, piece);
}

}  // namespace aicf::strided_copy

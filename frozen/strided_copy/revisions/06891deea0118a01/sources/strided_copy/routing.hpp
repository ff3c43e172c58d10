// From planned pieces to routes and joins, where 31 bits and a sign hold all offsets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <type_traits>

#include "strided_copy/pieces.cuh"
#include "strided_copy/planning.hpp"
#include "strided_copy/routed.cuh"

namespace aicf::strided_copy {

inline std::uint32_t wrap(std::int64_t value) { return static_cast<std::uint32_t>(value); }

// Axes from the innermost of y on, steps in bytes: those of a planned piece, or of a frame.
template <class Axes>
bool can_be_routed(const Axes& axes, int num_axes, int log_bytes) {
    std::int64_t x_reach = 0, y_reach = 0, count = 1;
    for (int k = 0; k < num_axes; ++k) {
        count *= axes[k].extent;
        x_reach += (axes[k].extent - 1) * (std::abs(axes[k].x_step) >> log_bytes);
        y_reach += (axes[k].extent - 1) * (std::abs(axes[k].y_step) >> log_bytes);
        if (std::max({x_reach, y_reach, count}) > kMostCounted) return false;
    }
    return true;
}

template <int kAxes, class Axes>
Route<kAxes> make_route(const Axes& axes, int num_axes, const char* x, char* y, int log_bytes) {
    Route<kAxes> route = {x, y, 0, wrap(axes[0].x_step >> log_bytes), wrap(axes[0].y_step >> log_bytes), {}};
    std::int64_t count = axes[0].extent;
    for (int k = 1; k < num_axes; ++k) {
        const Divisor divisor = make_divisor(count);
        const auto find_step = [&](auto step) { return wrap((axes[k].*step - axes[k - 1].*step * axes[k - 1].extent) >> log_bytes); };
        using Side = std::remove_cvref_t<decltype(axes[0])>;
        route.turns[k - 1] = {divisor.multiplier, divisor.shift, find_step(&Side::x_step), find_step(&Side::y_step)};
        count *= axes[k].extent;
    }
    route.num_accesses = wrap(count);
    return route;
}

// Fills in a join of pieces that go by accesses of the same width, if their columns follow each other in y's rows. Returns whether they do.
template <int kCapacity>
bool make_join(const Piece* pieces, int count, Join<kCapacity>* join) {
    const Piece& first = pieces[0];
    const int log_bytes = first.log_bytes;
    const std::int64_t item = std::int64_t{1} << log_bytes, rows = first.num_axes > 1 ? first.axes[1].extent : 1;
    if (count > kCapacity) return false;
    std::int64_t width = 0;
    for (int i = 0; i < count; ++i) {
        const Piece& piece = pieces[i];
        const Axis& columns = piece.axes[0];
        if (piece.x == nullptr || piece.num_axes > 2 || (piece.num_axes > 1 ? piece.axes[1].extent : 1) != rows) return false;
        if (columns.x_step != item || columns.y_step != item || piece.y != first.y + width * item) return false;
        const std::int64_t row_step = rows > 1 ? piece.axes[1].x_step >> log_bytes : 0;
        join->sources[i] = {piece.x - width * item, wrap(row_step), wrap(width)};
        width += columns.extent;
    }
    if (width < 2 || width > kMostCounted / rows) return false;
    for (int i = 0; i < count && rows > 1; ++i) {
        const Axis& row = pieces[i].axes[1];
        if (row.y_step != width * item || std::abs(row.x_step >> log_bytes) > (kMostCounted - width) / rows) return false;
    }
    for (int i = count; i < kCapacity; ++i) join->sources[i] = {nullptr, 0, std::numeric_limits<std::uint32_t>::max()};
    const Divisor divisor = make_divisor(width);
    join->y = first.y;
    join->num_accesses = wrap(width * rows);
    join->width = wrap(width);
    join->multiplier = divisor.multiplier;
    join->shift = divisor.shift;
    return true;
}

}  // namespace aicf::strided_copy

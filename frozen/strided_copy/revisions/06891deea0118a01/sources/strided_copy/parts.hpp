// From a call to what is copied and what is cleared: pieces as far as they are inside of the whole, and the boxes that none of them covers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "strided_copy/pieces.cuh"

namespace aicf::strided_copy {

// A box of y and where it comes from; zeros where x is null. Extents and strides of five axes, in elements.
struct Part {
    const char* x;
    char* y;
    std::int64_t extents[kMaxAxes], x_strides[kMaxAxes], y_strides[kMaxAxes];
};

struct Parts {
    Part list[kMaxParts];
    int count = 0;

    void add(const Part& part) { list[count++] = part; }
};

// A range of places along each axis.
struct Box {
    std::int64_t first[kMaxAxes], end[kMaxAxes];

    bool is_empty() const {
        bool empty = false;
        for (int k = 0; k < kMaxAxes; ++k) empty |= first[k] >= end[k];
        return empty;
    }
};

// Where pieces are put: extents, and strides of y, in elements; bytes of an element.
struct Whole {
    char* y;
    std::int64_t extents[kMaxAxes], strides[kMaxAxes];
    std::int64_t item_bytes;

    char* find(const Box& box) const {
        std::int64_t offset = 0;
        for (int k = 0; k < kMaxAxes; ++k) offset += box.first[k] * strides[k];
        return y + offset * item_bytes;
    }

    // What is inside of a piece that begins at `places`.
    Box clip(const std::int64_t* places, const std::int64_t* shape) const {
        Box box;
        for (int k = 0; k < kMaxAxes; ++k) {
            box.first[k] = std::max<std::int64_t>(places[k], 0);
            box.end[k] = std::min(places[k] + shape[k], extents[k]);
        }
        return box;
    }

    // Adds the part of a piece that is inside.
    void add_piece(Part piece, const std::int64_t* places, Parts* parts) const {
        const Box box = clip(places, piece.extents);
        if (box.is_empty()) return;
        for (int k = 0; k < kMaxAxes; ++k) {
            piece.x += (box.first[k] - places[k]) * piece.x_strides[k] * item_bytes;
            piece.extents[k] = box.end[k] - box.first[k];
        }
        piece.y = find(box);
        std::copy(strides, strides + kMaxAxes, piece.y_strides);
        parts->add(piece);
    }

    void add_zeros(const Box& box, Parts* parts) const {
        if (box.is_empty()) return;
        Part part = {nullptr, find(box), {}, {}, {}};
        for (int k = 0; k < kMaxAxes; ++k) part.extents[k] = box.end[k] - box.first[k];
        std::copy(strides, strides + kMaxAxes, part.x_strides);
        std::copy(strides, strides + kMaxAxes, part.y_strides);
        parts->add(part);
    }

    // Adds what is outside of a box, two slabs an axis: cut along the axes from the slowest in memory on, so that slabs are long runs.
    void add_gaps(const Box& covered, Parts* parts) const {
        Box rest = {};
        std::copy(extents, extents + kMaxAxes, rest.end);
        if (covered.is_empty()) return add_zeros(rest, parts);
        int order[kMaxAxes] = {0, 1, 2, 3, 4};
        for (int i = 1; i < kMaxAxes; ++i) {
            for (int k = i; k > 0 && strides[order[k - 1]] < strides[order[k]]; --k) std::swap(order[k - 1], order[k]);
        }
        for (const int k : order) {
            Box before = rest, after = rest;
            before.end[k] = covered.first[k];
            after.first[k] = covered.end[k];
            add_zeros(before, parts);
            add_zeros(after, parts);
            rest.first[k] = covered.first[k];
            rest.end[k] = covered.end[k];
        }
    }
};

}  // namespace aicf::strided_copy

// The loops over memory: what one thread takes of a row, and what one takes of a few columns.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "reduce/reductions.cuh"

namespace aicf::reduce {

// Packs that a thread loads before it uses the first.
inline constexpr int kPacksInFlight = 4;

// Of `count` neighbouring elements, what falls to the thread of this rank among kThreads. They may begin anywhere: those before the first
// 16-byte boundary and behind the last are taken one by one. The first has this place.
template <class Reduction, int kThreads, class Element>
__device__ __forceinline__ typename Reduction::State gather_row(const Element* source, std::int64_t count, std::int64_t place, int rank) {
    using State = typename Reduction::State;
    constexpr int kElems = kPackElems<Element>;
    const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(source) % 16) / static_cast<int>(sizeof(Element));
    const std::int64_t before = (kElems - past) % kElems, head = before < count ? before : count;
    const std::int64_t packs = (count - head) / kElems;
    State states[kPacksInFlight];
#pragma unroll
    for (State& state : states) state = Reduction::start();
    const auto take = [&](State& state, const Pack<Element>& pack, std::int64_t at) {
#pragma unroll
        for (int i = 0; i < kElems; ++i) state = Reduction::take(state, pack.values[i], place + at + i);
    };

    for (std::int64_t i = rank; i < head; i += kThreads) states[0] = Reduction::take(states[0], to_float(source[i]), place + i);
    std::int64_t k = rank;
    for (; k + (kPacksInFlight - 1) * kThreads < packs; k += kPacksInFlight * kThreads) {
        Pack<Element> loaded[kPacksInFlight];
#pragma unroll
        for (int u = 0; u < kPacksInFlight; ++u) loaded[u] = load_pack(source + head + (k + u * kThreads) * kElems);
#pragma unroll
        for (int u = 0; u < kPacksInFlight; ++u) take(states[u], loaded[u], head + (k + u * kThreads) * kElems);
    }
    for (; k < packs; k += kThreads) take(states[0], load_pack(source + head + k * kElems), head + k * kElems);
    for (std::int64_t i = head + packs * kElems + rank; i < count; i += kThreads) {
        states[0] = Reduction::take(states[0], to_float(source[i]), place + i);
    }
#pragma unroll
    for (int u = 1; u < kPacksInFlight; ++u) states[0] = Reduction::combine(states[0], states[u]);
    return states[0];
}

// A few columns of a thread, as many as a pack has: neighbours where rows start on 16-byte boundaries, else kWidth apart, so that
// neighbouring threads always read neighbouring memory. `block` is the block's place among those along a row, `rank` the thread's among
// its kWidth.
template <class Element, int kWidth>
struct Columns {
    static constexpr int kElems = kPackElems<Element>;
    std::int64_t columns;
    int rank;
    bool is_packed;

    // Of a thread's column `i`, within the block's kWidth * kElems.
    __device__ __forceinline__ int find_offset(int i) const { return is_packed ? rank * kElems + i : i * kWidth + rank; }

    __device__ __forceinline__ std::int64_t find_column(std::int64_t block, int i) const {
        return block * (kWidth * kElems) + find_offset(i);
    }

    // What lies past the row is 0.
    __device__ __forceinline__ Pack<Element> load(const Element* row, std::int64_t block) const {
        const std::int64_t first = find_column(block, 0);
        if (is_packed) return load_pack_or(row + first, columns - first, true, 0.0f);
        Pack<Element> pack;
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            const std::int64_t column = first + i * kWidth;
            pack.values[i] = column < columns ? to_float(row[column]) : 0.0f;
        }
        return pack;
    }
};

// The rows first, first + step, ... before `end`.
struct RowSteps {
    std::int64_t first, end, step;
};

// Adds some rows to the states of a thread's columns. `find_place(row, i)` is the place of an element of column `i`.
template <class Reduction, class Element, int kWidth, class FindPlace>
__device__ __forceinline__ void gather_columns(typename Reduction::State (&states)[kPackElems<Element>],
                                               const Columns<Element, kWidth>& span, const Element* x, std::int64_t stride,
                                               std::int64_t block, const RowSteps& rows, const FindPlace& find_place) {
    std::int64_t row = rows.first;
    const auto take = [&](const Pack<Element>& pack, std::int64_t at) {
#pragma unroll
        for (int i = 0; i < kPackElems<Element>; ++i) states[i] = Reduction::take(states[i], pack.values[i], find_place(at, i));
    };
    for (; row + (kPacksInFlight - 1) * rows.step < rows.end; row += kPacksInFlight * rows.step) {
        Pack<Element> loaded[kPacksInFlight];
#pragma unroll
        for (int u = 0; u < kPacksInFlight; ++u) loaded[u] = span.load(x + (row + u * rows.step) * stride, block);
#pragma unroll
        for (int u = 0; u < kPacksInFlight; ++u) take(loaded[u], row + u * rows.step);
    }
    for (; row < rows.end; row += rows.step) take(span.load(x + row * stride, block), row);
}

}  // namespace aicf::reduce

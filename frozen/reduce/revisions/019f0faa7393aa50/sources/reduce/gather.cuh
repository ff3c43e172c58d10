// The loops over memory: what one thread takes of a row, and what one takes of a few columns.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "reduce/reductions.cuh"

namespace aicf::reduce {

// Packs that a thread loads before it uses the first.
inline constexpr int kPacksInFlight = 4;

// Rounds of kTogether of the items first, first + step, ... before `end`, the last one of fewer: of a round all are loaded before the
// first is used. load(item) loads one, take(number, what, item) uses it, which is one of its round by this number. Returns the first item
// that is not before `end`.
template <int kTogether = kPacksInFlight, class Load, class Take>
__device__ __forceinline__ std::int64_t visit_rounds(std::int64_t first, std::int64_t end, int step, const Load& load, const Take& take) {
    std::int64_t item = first;
    for (; item + (kTogether - 1) * step < end; item += kTogether * step) {
        decltype(load(item)) loaded[kTogether];
#pragma unroll
        for (int u = 0; u < kTogether; ++u) loaded[u] = load(item + u * step);
#pragma unroll
        for (int u = 0; u < kTogether; ++u) take(u, loaded[u], item + u * step);
    }
    const int left = static_cast<int>(end - item);
    decltype(load(item)) last[kTogether - 1];
#pragma unroll
    for (int u = 0; u < kTogether - 1; ++u) {
        if (u * step < left) last[u] = load(item + u * step);
    }
#pragma unroll
    for (int u = 0; u < kTogether - 1; ++u) {
        if (u * step < left) take(u, last[u], item + u * step);
    }
    std::int64_t next = item;
#pragma unroll
    for (int u = 0; u < kTogether - 1; ++u) {
        if (u * step < left) next += step;
    }
    return next;
}

// Of `count` neighbouring elements, what falls to the thread of this rank among kThreads. They may begin anywhere: those before the first
// 16-byte boundary and behind the last are taken one by one. The first has this place.
template <class Reduction, int kThreads, class Element>
__device__ __forceinline__ typename Reduction::State gather_row(const Element* source, std::int64_t count, std::int64_t place, int rank) {
    using State = typename Reduction::State;
    constexpr int kElems = kPackElems<Element>, kSingles = (kElems - 2) / kThreads + 1;  // of each end, at most
    const auto past = static_cast<int>(reinterpret_cast<std::uintptr_t>(source) % 16) / static_cast<int>(sizeof(Element));
    const std::int64_t before = (kElems - past) % kElems, head = before < count ? before : count;
    const std::int64_t packs = (count - head) / kElems, behind = head + packs * kElems;
    // Where a thread has few of them the ends are under way before the packs, and are used behind them: they cost no wait of their own.
    constexpr bool kEndsFirst = kSingles <= 2;
    Element ends[kEndsFirst ? 2 * kSingles : 1];
    const auto visit_ends = [&](const auto& visit) {
#pragma unroll
        for (int n = 0; n < kSingles; ++n) {
            const int i = rank + n * kThreads;
            if (i < head) visit(2 * n, static_cast<std::int64_t>(i));
            if (behind + i < count) visit(2 * n + 1, behind + i);
        }
    };
    if constexpr (kEndsFirst) visit_ends([&](int n, std::int64_t at) { ends[n] = source[at]; });

    State states[kPacksInFlight];
#pragma unroll
    for (State& state : states) state = Reduction::start();
    const Element* const whole = source + head;
    visit_rounds(
        rank, packs, kThreads, [&](std::int64_t k) { return load_pack(whole + k * kElems); },
        [&](int u, const Pack<Element>& pack, std::int64_t k) {
#pragma unroll
            for (int i = 0; i < kElems; ++i) states[u] = Reduction::take(states[u], pack.values[i], place + head + k * kElems + i);
        });
    // Each in a state of its own: what one takes ascends.
    const auto take_end = [&](Element value, std::int64_t at) {
        states[0] = Reduction::combine(states[0], Reduction::take(Reduction::start(), to_float(value), place + at));
    };
    if constexpr (kEndsFirst) {
        visit_ends([&](int n, std::int64_t at) { take_end(ends[n], at); });
    } else {
        for (std::int64_t i = rank; i < head; i += kThreads) take_end(source[i], i);
        for (std::int64_t i = behind + rank; i < count; i += kThreads) take_end(source[i], i);
    }
#pragma unroll
    for (int u = 1; u < kPacksInFlight; ++u) states[0] = Reduction::combine(states[0], states[u]);
    return states[0];
}

// The columns of a thread, as many as a pack has, in every kLanes-th row, or fewer: `rank` is the thread's among kWidth. Where rows begin
// anywhere, these rows of a thread all begin equally far, `skew` elements, behind a 16-byte boundary, if kLanes rows are whole packs. The
// thread then reads packs as they lie on boundaries, from a column on that is as far to the left (kShifts): other lanes have other columns,
// and blocks that must have the same columns of all rows are to lie a pack closer. Where that is too much of a block, elements of 16 bits
// are put together from two packs (kJoins).
template <class Element, int kWidth, int kLanes>
struct Columns {
    static constexpr int kElems = kPackElems<Element>;
    static constexpr bool kMaySkew = kLanes % kElems == 0;
    static constexpr bool kShifts = kMaySkew && kWidth >= 8, kJoins = kMaySkew && !kShifts && sizeof(Element) == 2;

    std::int64_t rows, columns, stride;
    int rank, skew;
    bool is_packed;  // else column by column

    // Of a thread's column `i`, from the block's first on.
    __device__ __forceinline__ int find_offset(int i) const { return rank * kElems - (kShifts ? skew : 0) + i; }

    // The rows from `begin` to `end` are those of which columns from `first` on are read by packs: all where these lie within the row.
    // Where they do not, the elements beside the row are those of its neighbours if rows follow each other, which all but the first and the
    // last have, or all but a few that are shorter than what is read.
    __device__ __forceinline__ void find_packed_rows(std::int64_t first, std::int64_t& begin, std::int64_t& end) const {
        const bool is_joined = kJoins && skew != 0;
        const int reach = is_joined ? 2 * kElems : kElems, few = columns < reach ? reach : 1;
        const std::int64_t from = is_joined ? first - skew : first;
        const bool starts = from >= 0, ends = from + reach <= columns;
        begin = starts ? 0 : few;
        end = ends ? rows : rows - few;
        if (!is_packed || (!(starts && ends) && stride != columns)) begin = end = rows;
    }

    // What lies beside the row is 0.
    __device__ __forceinline__ Pack<Element> load_singles(const Element* row, std::int64_t first) const {
        const int begin = first < 0 ? static_cast<int>(-first) : 0;
        const int end = columns - first < kElems ? static_cast<int>(columns - first) : kElems;
        const Element* const at = row + first;
        Pack<Element> pack;
#pragma unroll
        for (int i = 0; i < kElems; ++i) pack.values[i] = i >= begin && i < end ? to_float(at[i]) : 0.0f;
        return pack;
    }
};

// The rows first, first + step, ... before `end`.
struct RowSteps {
    std::int64_t first, end;
    int step;
};

// Adds some rows to the states of a thread's columns, which are from `first` on; a state whose column is not in the matrix is of no use.
// `find_place(row, i)` is the place of an element of column `i`. With kSinglesInRounds rows that are read element by element are under way
// together, too: where no more blocks are launched than run at once, the last to end are those at the edges of padded rows.
template <class Reduction, bool kSinglesInRounds, class Element, int kWidth, int kLanes, class FindPlace>
__device__ __forceinline__ void gather_columns(typename Reduction::State (&states)[kPackElems<Element>],
                                               const Columns<Element, kWidth, kLanes>& span, const Element* x, std::int64_t first,
                                               const RowSteps& rows, const FindPlace& find_place) {
    if (first >= span.columns) return;
    const auto take = [&](int, const Pack<Element>& pack, std::int64_t row) {
#pragma unroll
        for (int i = 0; i < kPackElems<Element>; ++i) states[i] = Reduction::take(states[i], pack.values[i], find_place(row, i));
    };
    // Where rows are read by packs these are few, and not worth registers.
    constexpr int kSinglesTogether = Columns<Element, kWidth, kLanes>::kShifts || Columns<Element, kWidth, kLanes>::kJoins ? 1 : 4;
    const Element* const column = x + first;
    std::int64_t begin, end, row = rows.first;
    span.find_packed_rows(first, begin, end);
    // Rows in front of those that are read by packs, those, and rows behind them: one after the other, so that a warp goes along together.
#pragma unroll 1
    for (int phase = 0; phase < 3; ++phase) {
        const std::int64_t bound = phase == 0 ? begin : phase == 1 ? end : rows.end;
        const std::int64_t until = bound < rows.end ? bound : rows.end;
        if (kSinglesInRounds && phase != 1) {
            row =
                visit_rounds(row, until, rows.step, [&](std::int64_t at) { return span.load_singles(x + at * span.stride, first); }, take);
        } else if (phase != 1) {
#pragma unroll kSinglesTogether
            for (; row < until; row += rows.step) take(0, span.load_singles(x + row * span.stride, first), row);
        } else if (span.kJoins && span.skew != 0) {
            const auto load = [&](std::int64_t at) { return load_pack_skewed(column + at * span.stride, span.skew); };
            row = visit_rounds<kPacksInFlight / 2>(row, until, rows.step, load, take);
        } else {
            row = visit_rounds(row, until, rows.step, [&](std::int64_t at) { return load_pack(column + at * span.stride); }, take);
        }
    }
}

}  // namespace aicf::reduce

// Reductions of a matrix x [rows, columns] with a row stride: over its columns (a result per row), over its rows (a result per column), or
// over all of it.
//
// | kernel       | over          | idea                                                                                      |
// |--------------|---------------|-------------------------------------------------------------------------------------------|
// | naive        | any           | a thread per row or column; over all, one block                                            |
// | row_groups   | columns       | a group of threads per row, 16 bytes an access wherever a row begins, 4 accesses in flight |
// | row_parts    | columns       | several blocks per row, then a block puts the parts of a row together                      |
// | column_parts | rows          | a block takes a few columns of every n-th rows, then the parts of each column are put together |
// | column_groups | rows         | a block, or a cluster of blocks, takes a few columns whole, 16 rows a thread in flight: one launch |
// | column_packs | rows          | a thread takes the columns of one access through all rows: one wait, and nothing to put together |
// | column_runs  | rows          | rows of few columns as one run of accesses, each thread with the same columns; then the parts |
// | row_packs    | columns       | few threads per row, several short rows at a time: accesses as wide as rows begin on          |
// | whole        | all           | every block takes a part, then one block puts the parts together                           |
// | atomic       | rows, all     | blocks add their parts to the result as they end: not the same bits on every run           |
//
// All but `atomic` reduce in an order that follows from sizes, strides and addresses alone.
#include <cstdint>
#include <type_traits>

#include "common/cluster.cuh"
#include "common/distributed.cuh"
#include "common/programmatic.cuh"
#include "common/rows.cuh"
#include "reduce/gather.cuh"
#include "reduce/params.h"
#include "reduce/strips.cuh"

namespace aicf::reduce {

// Blocks of so many threads that a multiprocessor is to hold at least: so it has enough bytes on their way. Packs that are put
// together from two want more registers, and states with a place what there is.
template <class Reduction>
inline constexpr bool kHasPlaces = sizeof(typename Reduction::State) > sizeof(float);
template <class Reduction, int kThreads>
inline constexpr int kRowBlocks = kHasPlaces<Reduction> ? 1 : 1280 / (kThreads < 64 ? 64 : kThreads);
template <class Reduction, class Span, int kThreads>
inline constexpr int kColumnBlocks = kHasPlaces<Reduction> ? 1 : (Span::kJoins ? 768 : 1024) / kThreads;

// ------------------------------------------------------------------------------------------------------------------------------ naive

// Elements that a thread loads one by one before it uses the first.
inline constexpr int kSinglesInFlight = 8;

// A thread per result: `count` elements, `step` apart, the first of result i at i * pitch.
template <class Reduction, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads)
    reduce_naive(const ReduceParams p, std::int64_t results, std::int64_t pitch, std::int64_t count, std::int64_t step) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (i >= results) return;
    const Element* x = static_cast<const Element*>(p.x) + i * pitch;
    auto state = Reduction::start();
    visit_rounds<kSinglesInFlight>(
        0, count, 1, [&](std::int64_t k) { return x[k * step]; },
        [&](int, Element value, std::int64_t k) { state = Reduction::take(state, to_float(value), k); });
    write_result(p, i, state, count);
}

// Over all, one block: a thread takes every kThreads-th element of every row, and the first thread puts the threads' states together.
template <class Reduction, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads) reduce_all_naive(const ReduceParams p) {
    __shared__ typename Reduction::State states[kThreads];
    const auto* x = static_cast<const Element*>(p.x);
    auto state = Reduction::start();
    for (std::int64_t row = 0; row < p.rows; ++row) {
        for (std::int64_t j = threadIdx.x; j < p.columns; j += kThreads) {
            state = Reduction::take(state, to_float(x[row * p.ldx + j]), row * p.columns + j);
        }
    }
    states[threadIdx.x] = state;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (int i = 1; i < kThreads; ++i) state = Reduction::combine(state, states[i]);
    write_result(p, 0, state, p.rows * p.columns);
}

// ------------------------------------------------------------------------------------------------------------------------------- rows

// kThreads threads per row, kRows rows per block.
template <class Reduction, class Element, int kThreads, int kRows>
__global__ void __launch_bounds__(kThreads* kRows, kRowBlocks<Reduction, kThreads * kRows>) reduce_row_groups(const ReduceParams p) {
    using Group = RowGroup<kThreads, kRows>;
    __shared__ typename Reduction::State partials[Group::kPartials];
    const Group group;
    const auto* row = static_cast<const Element*>(p.x) + group.find_source(p.rows) * p.ldx;
    auto state = gather_row<Reduction, kThreads>(row, p.columns, 0, group.rank);
    state = group.reduce(state, partials, [](auto a, auto b) { return Reduction::combine(a, b); });
    if (group.rank == 0 && group.row < p.rows) write_result(p, group.row, state, p.columns);
}

// Blocks of threads with strips that a multiprocessor is to hold: states with a place would take up registers for a third of them.
template <int kThreads>
inline constexpr int kStripBlocks = kThreads < 768 ? 768 / kThreads : 1;

// kLanes threads per row, and each of them kRows rows at a time: short rows, or few, whose accesses of kElems elements begin on boundaries
// and are all that rows have.
template <class Reduction, class Element, int kThreads, int kLanes, int kRows, int kElems>
__global__ void __launch_bounds__(kThreads, kStripBlocks<kThreads>) reduce_row_packs(const ReduceParams p, float scale) {
    using State = typename Reduction::State;
    static_assert(kLanes <= kWarpSize || (kLanes == kThreads && kRows == 1), "lanes of a warp, or a block with a row");
    constexpr int kGroups = kThreads / kLanes;
    __shared__ State partials[RowGroup<kLanes, kGroups>::kPartials];
    const Finish finish(p, scale);
    const int rank = static_cast<int>(threadIdx.x) % kLanes, group = static_cast<int>(threadIdx.x) / kLanes;
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kGroups * kRows) + group;
    const int count = (static_cast<int>(p.columns) / kElems + kLanes - 1 - rank) / kLanes;
    const char* at[kRows];
    int counts[kRows];
#pragma unroll
    for (int s = 0; s < kRows; ++s) {
        at[s] = reinterpret_cast<const char*>(static_cast<const Element*>(p.x) + (row + s * kGroups) * p.ldx + rank * kElems);
        counts[s] = row + s * kGroups < p.rows ? count : 0;
    }
    State states[kRows][kElems];
    take_strips<Reduction, Element>(states, at, kLanes * kElems * static_cast<int>(sizeof(Element)), counts,
                                    [&](int access, int i) { return (access * kLanes + rank) * kElems + i; });
    const auto combine = [](State a, State b) { return Reduction::combine(a, b); };
#pragma unroll
    for (int s = 0; s < kRows; ++s) {
        State result[1] = {states[s][0]};
#pragma unroll
        for (int i = 1; i < kElems; ++i) result[0] = combine(result[0], states[s][i]);
        result[0] = reduce_group<kLanes>(result[0], partials, combine);
        if (rank == 0 && row + s * kGroups < p.rows) write_results(p.y, finish, row + s * kGroups, result);
    }
}

// Where the part of a result goes: where there are several, to the workspace, or scaled onto the result.
template <class State>
struct Target {
    State* partials;  // null where a part is all
    float scale;
};

template <bool kIsAtomic, class State>
__device__ __forceinline__ void deliver(const ReduceParams& p, const Target<State>& target, std::int64_t part, std::int64_t result,
                                        State state, std::int64_t count) {
    if constexpr (kIsAtomic) {
        atomicAdd(static_cast<float*>(p.y) + result, state * target.scale);
    } else if (target.partials == nullptr) {
        write_result(p, result, state, count);
    } else {
        target.partials[part] = state;
    }
}

// `count` elements in `parts` parts of `elems`, the last one shorter.
struct Cut {
    std::int64_t count, parts, elems;
};

// A block per part, of rows that are `cut.count` long.
template <bool kIsAtomic, class Reduction, class Element, int kThreads>
__global__ void __launch_bounds__(kThreads)
    reduce_row_parts(const ReduceParams p, const Cut cut, const Target<typename Reduction::State> target) {
    __shared__ typename Reduction::State shared[RowGroup<kThreads>::kPartials];
    allow_successor();
    const std::int64_t row = blockIdx.x / cut.parts, first = blockIdx.x % cut.parts * cut.elems;
    const std::int64_t left = cut.count - first;
    const auto* source = static_cast<const Element*>(p.x) + row * p.ldx + first;
    auto state = gather_row<Reduction, kThreads>(source, left < cut.elems ? left : cut.elems, first, static_cast<int>(threadIdx.x));
    state = reduce_group<kThreads>(state, shared, [](auto a, auto b) { return Reduction::combine(a, b); });
    if (threadIdx.x == 0) deliver<kIsAtomic>(p, target, blockIdx.x, row, state, cut.count);
}

// A block per result puts its parts together, which lie side by side; `count` elements are in a result.
template <class Reduction, int kThreads>
__global__ void __launch_bounds__(kThreads)
    reduce_finish_row(const ReduceParams p, const typename Reduction::State* partials, std::int64_t num_parts, std::int64_t count) {
    __shared__ typename Reduction::State shared[RowGroup<kThreads>::kPartials];
    wait_for_predecessor();
    auto state = Reduction::start();
    for (std::int64_t i = threadIdx.x; i < num_parts; i += kThreads) {
        state = Reduction::combine(state, partials[blockIdx.x * num_parts + i]);
    }
    state = reduce_group<kThreads>(state, shared, [](auto a, auto b) { return Reduction::combine(a, b); });
    if (threadIdx.x == 0) write_result(p, blockIdx.x, state, count);
}

// ---------------------------------------------------------------------------------------------------------------------------- columns

template <int kWidth, int kLanes>
__device__ __forceinline__ RowSteps find_rows(const ReduceParams& p) {
    const int lane = static_cast<int>(threadIdx.x) / kWidth;
    return {static_cast<std::int64_t>(blockIdx.y) * kLanes + lane, p.rows, static_cast<int>(gridDim.y) * kLanes};
}

template <class Element, int kWidth, int kLanes>
__device__ __forceinline__ Columns<Element, kWidth, kLanes> find_columns(const ReduceParams& p, bool is_packed, const RowSteps& rows) {
    using Span = Columns<Element, kWidth, kLanes>;
    const auto address = reinterpret_cast<std::uintptr_t>(static_cast<const Element*>(p.x) + rows.first * p.ldx);
    const int skew = Span::kMaySkew && is_packed ? static_cast<int>(address % 16 / sizeof(Element)) : 0;
    return {p.rows, p.columns, p.ldx, static_cast<int>(threadIdx.x) % kWidth, skew, is_packed};
}

// Over rows: a block takes `width` packs of columns, kWidth or one less (see Columns), and of the rows every gridDim.y-th group of kLanes.
template <bool kIsAtomic, class Reduction, class Element, int kWidth, int kLanes>
__global__ void __launch_bounds__(kWidth* kLanes, kColumnBlocks<Reduction, Columns<Element, kWidth, kLanes>, kWidth * kLanes>)
    reduce_column_parts(const ReduceParams p, bool is_packed, int width, const Target<typename Reduction::State> target) {
    using State = typename Reduction::State;
    constexpr int kElems = kPackElems<Element>, kColumns = kWidth * kElems, kThreads = kWidth * kLanes;
    // A column further apart, so that the lanes of a column are in different banks.
    __shared__ State shared[kLanes][kColumns + 1];
    allow_successor();
    const RowSteps rows = find_rows<kWidth, kLanes>(p);
    const auto span = find_columns<Element, kWidth, kLanes>(p, is_packed, rows);
    const int lane = static_cast<int>(threadIdx.x) / kWidth;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * width * kElems;
    State states[kElems];
#pragma unroll
    for (State& state : states) state = Reduction::start();
    gather_columns<Reduction, false>(states, span, static_cast<const Element*>(p.x), begin + span.find_offset(0), rows,
                                     [](std::int64_t row, int) { return row; });
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
        const int offset = span.find_offset(i);
        if (offset >= 0 && offset < width * kElems) shared[lane][offset] = states[i];
    }
    __syncthreads();
    // kTeam threads put the lanes of a column together.
    constexpr int kTeam = kThreads / kColumns < 1 ? 1 : (kThreads / kColumns < kWarpSize ? kThreads / kColumns : kWarpSize);
    const int rank = static_cast<int>(threadIdx.x) % kTeam;
    for (int i = static_cast<int>(threadIdx.x) / kTeam; i < kColumns; i += kThreads / kTeam) {
        const std::int64_t column = begin + i;
        const bool is_real = i < width * kElems && column < p.columns;
        State state = is_real ? shared[rank][i] : Reduction::start();
#pragma unroll 8
        for (int other = rank + kTeam; other < kLanes && is_real; other += kTeam) state = Reduction::combine(state, shared[other][i]);
        state = reduce_group<kTeam>(state, static_cast<State*>(nullptr), [](auto a, auto b) { return Reduction::combine(a, b); });
        if (is_real && rank == 0) deliver<kIsAtomic>(p, target, blockIdx.y * p.columns + column, column, state, p.rows);
    }
}

// Puts the parts of each column together, in an order that follows from their number. A block takes 2^width_log columns, and all its
// threads have a share of their parts: neighbouring threads neighbouring columns, and all loads of a thread, nearly always, one wait.
template <class Reduction, int kThreads>
__global__ void __launch_bounds__(kThreads)
    reduce_finish_columns(const ReduceParams p, const typename Reduction::State* partials, int num_parts, int width_log) {
    using State = typename Reduction::State;
    constexpr int kWarps = kThreads / kWarpSize, kTogether = 8;
    // A column further apart, so that the lanes of a column are in different banks.
    __shared__ State shared[2 * kThreads];
    const int width = 1 << width_log, lanes = kThreads >> width_log, pitch = width + 1;
    const int thread = static_cast<int>(threadIdx.x), rank = thread & (width - 1), lane = thread >> width_log;
    const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) << width_log;
    const State* const column = partials + begin + rank;
    State state = Reduction::start();
    wait_for_predecessor();
    if (begin + rank < p.columns) {
        visit_rounds<kTogether>(
            lane, num_parts, lanes, [&](std::int64_t i) { return column[i * p.columns]; },
            [&](int, State part, std::int64_t) { state = Reduction::combine(state, part); });
    }
    shared[lane * pitch + rank] = state;
    __syncthreads();
    for (int i = thread / kWarpSize; i < width && begin + i < p.columns; i += kWarps) {
        State result = Reduction::start();
        for (int other = thread % kWarpSize; other < lanes; other += kWarpSize)
            result = Reduction::combine(result, shared[other * pitch + i]);
        result = reduce_group<kWarpSize>(result, static_cast<State*>(nullptr), [](auto a, auto b) { return Reduction::combine(a, b); });
        if (thread % kWarpSize == 0) write_result(p, begin + i, result, p.rows);
    }
}

// Rows that a thread of column_groups loads before it uses the first.
inline constexpr int kRowsInFlight = 16;
// Columns of a block, or of a cluster of them.
inline constexpr int kGroupColumns = 32;

// Puts the states of a column of all blocks of a cluster together, each thread with a column of its own, for the threads of block 0: for
// all threads of the blocks to call. The result of the others is of no use.
template <int kCluster, class Reduction, class State>
__device__ __forceinline__ State combine_cluster(State state) {
    __shared__ float4 results[kGroupColumns];
    const auto column = static_cast<int>(threadIdx.x);
    if (column < kGroupColumns) results[column] = lay_state(state);
    sync_cluster_shared();
    if (find_cluster_rank() == 0 && column < kGroupColumns) {
        float4 parts[kCluster];
#pragma unroll
        for (int block = 1; block < kCluster; ++block)
            parts[block] = load_from_block(&results[column].x, static_cast<std::uint32_t>(block));
#pragma unroll
        for (int block = 1; block < kCluster; ++block) state = Reduction::combine(state, lift_state<State>(parts[block]));
    }
    sync_cluster_shared();  // the shared memory of a block is there until all have been read
    return state;
}

// Over rows: kCluster blocks take kGroupColumns columns. 2^lanes_log lanes of a warp take the columns of a row, or pairs of them
// (kIsPaired: of 16 bits, an even number in rows that begin on words), and the others the next rows.
template <class Reduction, class Element, int kThreads, int kCluster, bool kIsPaired>
__global__ void __launch_bounds__(kThreads) reduce_column_groups(const ReduceParams p, int lanes_log) {
    using aicf::shuffle_xor;
    using State = typename Reduction::State;
    using Word = std::conditional_t<kIsPaired || sizeof(Element) == sizeof(float), std::uint32_t, std::uint16_t>;
    constexpr int kWarps = kThreads / kWarpSize, kElems = kIsPaired ? 2 : 1;
    constexpr int kThreadsLog = __builtin_ctz(kCluster * kThreads);
    __shared__ State shared[kWarps][kGroupColumns];
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
    const std::int64_t group = blockIdx.x / kCluster;
    const int block = kCluster == 1 ? 0 : static_cast<int>(find_cluster_rank());
    const int lanes = 1 << lanes_log, offset = (lane & (lanes - 1)) * kElems;
    const std::int64_t column = group * kGroupColumns + offset;
    if constexpr (kCluster > 1) wait_for_predecessor();

    State states[kElems];
#pragma unroll
    for (State& state : states) state = Reduction::start();
    // One body for all rounds, the last one too: a short launch waits for its code as well. Past the last row that one is read again, and
    // so is the last column: of loads that may not be made the compiler has few under way.
    const auto last = static_cast<std::uint32_t>(p.rows - 1);
    const std::uint32_t step = kCluster * kThreads >> lanes_log;
    const std::int64_t stride_bytes = step * p.ldx * static_cast<std::int64_t>(sizeof(Element));
    const Element* const source = static_cast<const Element*>(p.x) + min(column, p.columns - kElems);
    std::uint32_t row = (block * kWarps + warp) * kWarpSize + lane >> lanes_log;
#pragma unroll 1
    for (; row <= last; row += kRowsInFlight * step) {
        const std::uint32_t most = last - row >> (kThreadsLog - lanes_log);
        const auto* const at = reinterpret_cast<const char*>(source + row * p.ldx);
        Word words[kRowsInFlight];
#pragma unroll
        for (std::uint32_t u = 0; u < kRowsInFlight; ++u) words[u] = *reinterpret_cast<const Word*>(at + min(u, most) * stride_bytes);
        // Never so, but a branch to the compiler, which would use the first rows ahead of asking for the last ones.
        std::uint32_t seen;
        asm volatile("mov.b32 %0, %1;" : "=r"(seen) : "r"(step));
        if (seen == 0) break;
#pragma unroll
        for (std::uint32_t u = 0; u < kRowsInFlight; ++u) {
            take_words<Reduction, Element>(states, {u <= most ? words[u] : kNothing<Reduction, Element>},
                                           [&](int) { return row + u * step; });
        }
    }
#pragma unroll
    for (int i = 0; i < kElems; ++i) {
#pragma unroll 1
        for (int other = kWarpSize / 2; other >= lanes; other /= 2)
            states[i] = Reduction::combine(states[i], shuffle_xor(states[i], other));
        if (lane < lanes) shared[warp][offset + i] = states[i];
    }
    if constexpr (kWarps > 1) {
        __syncthreads();
    } else {
        __syncwarp();
    }
    State state = Reduction::start();
    const auto place = static_cast<int>(threadIdx.x);
    if (place < lanes * kElems) {
        state = shared[0][place];
#pragma unroll 8
        for (int other = 1; other < kWarps; ++other) state = Reduction::combine(state, shared[other][place]);
    }
    if constexpr (kCluster > 1) state = combine_cluster<kCluster, Reduction>(state);
    const std::int64_t result = group * kGroupColumns + place;
    if (block == 0 && place < lanes * kElems && result < p.columns) write_result(p, result, state, p.rows);
}

// Over rows: a thread takes kElems columns, whose elements are one access of each row, through all rows. Where rows have more columns than
// whole accesses, the last threads take one each.
template <class Reduction, class Element, int kThreads, int kElems>
__global__ void __launch_bounds__(kThreads, kStripBlocks<kThreads>) reduce_column_packs(const ReduceParams p, float scale) {
    const Finish finish(p, scale);
    const std::uint32_t thread = blockIdx.x * static_cast<std::uint32_t>(kThreads) + threadIdx.x;
    const auto columns = static_cast<std::uint32_t>(p.columns), packs = columns / kElems;
    const auto take_columns = [&](auto elems, std::uint32_t column) {
        typename Reduction::State states[1][decltype(elems)::value];
        const char* const at[1] = {reinterpret_cast<const char*>(static_cast<const Element*>(p.x) + column)};
        const int counts[1] = {static_cast<int>(p.rows)};
        take_strips<Reduction, Element>(states, at, p.ldx * static_cast<std::int64_t>(sizeof(Element)), counts,
                                        [](int row, int) { return row; });
        write_results(p.y, finish, column, states[0]);
    };
    if (thread < packs) {
        take_columns(std::integral_constant<int, kElems>{}, thread * kElems);
    } else if (const std::uint32_t column = thread + packs * (kElems - 1); kElems > 1 && column < columns) {
        take_columns(std::integral_constant<int, 1>{}, column);
    }
}

// How column_runs cuts a matrix into accesses. A period is the fewest rows that are whole accesses: one, or where rows follow each other
// as many as end on a boundary of accesses.
struct Runs {
    std::int64_t period_bytes;  // from a period to the next
    std::int64_t accesses;      // that each thread has, in whole rounds of all threads
    std::int64_t more;          // threads that have one more
    int period, period_rows;    // accesses of a period, and its rows
    int threads;                // of a block, that have whole periods
    int tail;                   // elements behind the last whole access
};

// Blocks of it that a multiprocessor is to hold: three, but two where states with a place or the addresses of twice as many narrow accesses
// want more registers.
template <class Reduction, int kThreads, int kBytes>
inline constexpr int kRunBlocks = (kHasPlaces<Reduction> || kBytes < 8 ? 512 : 768) / kThreads;

// Over rows of few columns: a block takes neighbouring periods at a time, whose every byte is asked for, and each thread has the same
// columns in all of them.
template <class Reduction, class Element, int kThreads, int kElems>
__global__ void __launch_bounds__(kThreads, kRunBlocks<Reduction, kThreads, kElems* static_cast<int>(sizeof(Element))>)
    reduce_column_runs(const ReduceParams p, const Runs runs, const Target<typename Reduction::State> target) {
    using State = typename Reduction::State;
    __shared__ alignas(16) State shared[kThreads * kElems];
    allow_successor();
    const int thread = static_cast<int>(threadIdx.x), columns = static_cast<int>(p.columns);
    const int at_once = runs.threads / runs.period, number = thread / runs.period;
    // The first of the thread's accesses, which are `step` periods apart, and what that is of its period.
    const std::int64_t period = static_cast<std::int64_t>(blockIdx.x) * at_once + number,
                       step = static_cast<std::int64_t>(gridDim.x) * at_once;
    const int offset = (thread - number * runs.period) * kElems;
    State states[1][kElems];
    if (thread < runs.threads) {
        const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * runs.threads + thread;
        const char* const at[1] = {static_cast<const char*>(p.x) + period * runs.period_bytes + offset * static_cast<int>(sizeof(Element))};
        const int counts[1] = {static_cast<int>(runs.accesses) + (first < runs.more ? 1 : 0)};
        take_strips<Reduction, Element>(states, at, step * runs.period_bytes, counts, [](int access, int) { return access; });
        if (kElems > 1 && runs.tail > 0 && first == runs.more) {
            const auto* const last = reinterpret_cast<const Element*>(at[0] + counts[0] * step * runs.period_bytes);
#pragma unroll
            for (int i = 0; i < kElems - 1; ++i) {
                if (i < runs.tail) states[0][i] = Reduction::take(states[0][i], to_float(last[i]), counts[0]);
            }
        }
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            // The number of an access becomes a row.
            if constexpr (kHasPlaces<Reduction>) {
                State& found = states[0][i];
                if (found.key != 0) found.place = (period + found.place * step) * runs.period_rows + (offset + i) / columns;
            }
            shared[thread * kElems + i] = states[0][i];
        }
    }
    __syncthreads();
    // The states lie as elements do in memory, a column's equally far apart. Threads of whole rows have some each, and then halves of them
    // are put onto halves.
    int sharers = kThreads / columns;
    const int together = sharers * columns;
    State state = Reduction::start();
    if (thread < together) {
#pragma unroll 4
        for (int i = thread; i < runs.threads * kElems; i += together) state = Reduction::combine(state, shared[i]);
    }
    __syncthreads();
    shared[thread] = state;
    while (sharers > 1) {
        const int left = (sharers + 1) / 2;
        __syncthreads();
        if (thread < (sharers - left) * columns) shared[thread] = state = Reduction::combine(state, shared[thread + left * columns]);
        sharers = left;
    }
    if (thread < columns) deliver<false>(p, target, static_cast<std::int64_t>(blockIdx.x) * columns + thread, thread, state, p.rows);
}

// -------------------------------------------------------------------------------------------------------------------------------- all

// Over all of a matrix whose rows do not follow each other: a block takes kWidth packs of columns at a time, and of the rows every
// gridDim.y-th group of kLanes.
template <bool kIsAtomic, class Reduction, class Element, int kWidth, int kLanes>
__global__ void __launch_bounds__(kWidth* kLanes, 1)
    reduce_whole_parts(const ReduceParams p, bool is_packed, const Target<typename Reduction::State> target) {
    constexpr int kThreads = kWidth * kLanes, kElems = kPackElems<Element>;
    __shared__ typename Reduction::State shared[RowGroup<kThreads>::kPartials];
    allow_successor();
    const RowSteps rows = find_rows<kWidth, kLanes>(p);
    const auto span = find_columns<Element, kWidth, kLanes>(p, is_packed, rows);
    auto total = Reduction::start();
    // A pack further than the row: threads whose columns lie to the left by a skew have its end there.
    for (std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * (kWidth * kElems); begin < p.columns + kElems;
         begin += static_cast<std::int64_t>(gridDim.x) * (kWidth * kElems)) {
        typename Reduction::State states[kElems];
#pragma unroll
        for (auto& state : states) state = Reduction::start();
        gather_columns<Reduction, true>(states, span, static_cast<const Element*>(p.x), begin + span.find_offset(0), rows,
                                        [&](std::int64_t row, int i) { return row * p.columns + begin + span.find_offset(i); });
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            const std::int64_t column = begin + span.find_offset(i);
            if (column >= 0 && column < p.columns) total = Reduction::combine(total, states[i]);
        }
    }
    total = reduce_group<kThreads>(total, shared, [](auto a, auto b) { return Reduction::combine(a, b); });
    const std::int64_t part = static_cast<std::int64_t>(blockIdx.y) * gridDim.x + blockIdx.x;
    if (threadIdx.x == 0) deliver<kIsAtomic>(p, target, part, 0, total, p.rows * p.columns);
}

}  // namespace aicf::reduce

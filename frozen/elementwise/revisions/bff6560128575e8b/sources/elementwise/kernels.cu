// Chains of elementwise functions over [rows, columns]: up to 8 inputs, each with a value per element, per column, per row or one in all.
//
// | kernel     | idea                                                                              | reads and writes      |
// |------------|-----------------------------------------------------------------------------------|-----------------------|
// | naive      | a thread per element, which it finds by a division                                | an element an access  |
// | vectorised | 16 bytes of the widest array per thread; arrays without gaps are one long row     | 16 bytes an access    |
// | streamed   | threads load several packs before they use one, and blocks go on to the next ones | 16 bytes, in flight   |
//
// Every element of a chain is read before any of it is written, by the same thread.
//
// `streamed` has three more ways. An array of few packs has a pack a thread, and of very few, blocks of 64 threads: by more and larger ones
// a few multiprocessors would move all of it, or some much more than others. Where it is one long row besides, nothing is left of strides
// and divisions. Wide rows that begin anywhere are cut into segments, each of a warp: it finds its row once, and its lanes take neighbours.
//
// Index is uint32 where elements are below 2^31 and their places below 2^32: a quotient is a multiplication then, an address another, and
// the code a third as long, which is what a launch of a few microseconds waits for.
#include <cstdint>
#include <utility>

#include "common/division.hpp"
#include "common/elements.cuh"
#include "common/philox.cuh"
#include "elementwise/chain.cuh"

namespace aicf::elementwise {

// Calls `call` with 0, 1, ... as compile-time constants.
template <int... kNumbers, class Call>
__device__ __forceinline__ void visit_numbers(std::integer_sequence<int, kNumbers...>, const Call& call) {
    (call(std::integral_constant<int, kNumbers>{}), ...);
}

template <int kCount, class Call>
__device__ __forceinline__ void visit(const Call& call) {
    visit_numbers(std::make_integer_sequence<int, kCount>{}, call);
}

// Arrays [rows, columns] with their row strides in elements; what is without gaps comes as one row.
template <class Chain, class Index = std::int64_t>
struct Arrays {
    Index rows, columns;
    const void* in[kNumInputs<Chain>];
    Index in_strides[kNumInputs<Chain>];
    void* out[kNumOutputs<Chain>];
    Index out_strides[kNumOutputs<Chain>];
    const Counter* counter;  // null where nothing is drawn
};

// Inputs and outputs of one element.
template <class Chain>
struct Lane {
    float in[kNumInputs<Chain>];
    float out[kNumOutputs<Chain>];
    std::uint32_t words[Chain::kNumDraws > 0 ? Chain::kNumDraws : 1];
};

__device__ __forceinline__ float to_float(Bool value) { return value.value != 0 ? 1.0f : 0.0f; }

template <class Element>
__device__ __forceinline__ Element from_value(float value) {
    if constexpr (sizeof(Element) == 1) {
        return {static_cast<std::uint8_t>(value != 0.0f)};
    } else {
        return aicf::from_float<Element>(value);
    }
}

// Where the value of an input for an element lies.
template <Extent kExtent, class Index>
__device__ __forceinline__ Index find_place(Index stride, Index row, Index column) {
    if constexpr (kExtent == Extent::kFull) return row * stride + column;
    if constexpr (kExtent == Extent::kColumns) return column;
    if constexpr (kExtent == Extent::kRows) return row * stride;
    return 0;
}

template <class Chain, class Index>
__device__ __forceinline__ std::uint64_t number_element(const Arrays<Chain, Index>& arrays, Index row, Index column) {
    return static_cast<std::uint64_t>(row) * arrays.columns + column;
}

template <class Chain, class Generic, class Index>
__device__ __forceinline__ void compute_element(const Arrays<Chain, Index>& arrays, Index row, Index column) {
    using aicf::to_float;
    Lane<Chain> lane;
    visit<kNumInputs<Chain>>([&](auto number) {
        constexpr Operand kOperand = Chain::kInputs[decltype(number)::value];
        const auto* base = static_cast<const Element<kOperand.type, Generic>*>(arrays.in[decltype(number)::value]);
        lane.in[decltype(number)::value] =
            to_float(base[find_place<kOperand.extent>(arrays.in_strides[decltype(number)::value], row, column)]);
    });
    for (int draw = 0; draw < Chain::kNumDraws; ++draw) {
        lane.words[draw] = draw_word(*arrays.counter, number_element(arrays, row, column), draw);
    }
    Chain::compute(lane.in, lane.words, lane.out);
    visit<kNumOutputs<Chain>>([&](auto number) {
        using Stored = Element<Chain::kOutputs[decltype(number)::value].type, Generic>;
        auto* base = static_cast<Stored*>(arrays.out[decltype(number)::value]);
        base[find_place<Extent::kFull>(arrays.out_strides[decltype(number)::value], row, column)] =
            from_value<Stored>(lane.out[decltype(number)::value]);
    });
}

template <class Chain, class Generic, int kThreads>
__global__ void __launch_bounds__(kThreads) elementwise_naive(const Arrays<Chain> arrays) {
    const std::int64_t element = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
    if (element >= arrays.rows * arrays.columns) return;
    const std::int64_t row = element / arrays.columns;
    compute_element<Chain, Generic, std::int64_t>(arrays, row, element - row * arrays.columns);
}

// kWidth elements side by side, as they lie in memory: 16-byte accesses where they are as long, else one of all of them.
template <class Element, int kWidth>
__device__ __forceinline__ void load_words(const Element* source, std::uint32_t (&words)[kWidth]) {
    constexpr int kBytes = kWidth * static_cast<int>(sizeof(Element));
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
        for (int i = 0; i < kBytes / 16; ++i) {
            const uint4 part = reinterpret_cast<const uint4*>(source)[i];
            words[4 * i] = part.x, words[4 * i + 1] = part.y, words[4 * i + 2] = part.z, words[4 * i + 3] = part.w;
        }
    } else if constexpr (kBytes == 8) {
        const uint2 part = *reinterpret_cast<const uint2*>(source);
        words[0] = part.x, words[1] = part.y;
    } else if constexpr (kBytes == 4) {
        words[0] = *reinterpret_cast<const std::uint32_t*>(source);
    } else if constexpr (kBytes == 2) {
        words[0] = *reinterpret_cast<const std::uint16_t*>(source);
    } else {
        words[0] = *reinterpret_cast<const std::uint8_t*>(source);
    }
}

template <class Element, int kWidth>
__device__ __forceinline__ void store_words(Element* target, const std::uint32_t (&words)[kWidth]) {
    constexpr int kBytes = kWidth * static_cast<int>(sizeof(Element));
    if constexpr (kBytes % 16 == 0) {
#pragma unroll
        for (int i = 0; i < kBytes / 16; ++i) {
            reinterpret_cast<uint4*>(target)[i] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
        }
    } else if constexpr (kBytes == 8) {
        *reinterpret_cast<uint2*>(target) = {words[0], words[1]};
    } else if constexpr (kBytes == 4) {
        *reinterpret_cast<std::uint32_t*>(target) = words[0];
    } else if constexpr (kBytes == 2) {
        *reinterpret_cast<std::uint16_t*>(target) = static_cast<std::uint16_t>(words[0]);
    } else {
        *reinterpret_cast<std::uint8_t*>(target) = static_cast<std::uint8_t>(words[0]);
    }
}

template <class Element, int kWidth>
__device__ __forceinline__ float read_value(const std::uint32_t (&words)[kWidth], int place) {
    if constexpr (sizeof(Element) == 4) {
        return __uint_as_float(words[place]);
    } else if constexpr (sizeof(Element) == 2) {
        return aicf::to_float(Element{static_cast<std::uint16_t>(words[place / 2] >> (place % 2 * 16))});
    } else {
        return (words[place / 4] >> (place % 4 * 8) & 0xffu) != 0 ? 1.0f : 0.0f;
    }
}

template <class Element, int kWidth>
__device__ __forceinline__ void write_values(const float (&values)[kWidth], std::uint32_t (&words)[kWidth]) {
    if constexpr (sizeof(Element) == 4) {
#pragma unroll
        for (int i = 0; i < kWidth; ++i) words[i] = __float_as_uint(values[i]);
    } else if constexpr (sizeof(Element) == 2 && kWidth == 1) {
        words[0] = aicf::from_float<Element>(values[0]).bits;
    } else if constexpr (sizeof(Element) == 2) {
#pragma unroll
        for (int i = 0; i < kWidth / 2; ++i) words[i] = pack_pair<Element>(values[2 * i], values[2 * i + 1]);
    } else {
#pragma unroll
        for (int i = 0; i < (kWidth + 3) / 4; ++i) words[i] = 0;
#pragma unroll
        for (int i = 0; i < kWidth; ++i) words[i / 4] |= (values[i] != 0.0f ? 1u : 0u) << (i % 4 * 8);
    }
}

// Rows cut into packs of kWidth elements, the last of each row perhaps shorter.
template <class Index>
struct Split {
    Index num_packs, row_packs;
    WideDivisor divisor;  // row_packs, where Index has 32 bits

    __device__ __forceinline__ Index find_row(Index pack) const {
        if constexpr (sizeof(Index) == 4) {
            return divisor.divide(pack);
        } else {
            return row_packs == num_packs ? 0 : pack / row_packs;
        }
    }
};

// kWidth elements of a row: their inputs as they lie in memory. Loose ones are read and written one by one: rows begin anywhere.
template <class Chain, class Generic, int kWidth, bool kIsLoose, class Index>
struct Piece {
    using Operands = Arrays<Chain, Index>;

    Index row, column;
    std::uint32_t in[kNumInputs<Chain>][kWidth];

    __device__ __forceinline__ void locate(const Split<Index>& split, Index pack) {
        row = split.find_row(pack);
        column = (pack - row * split.row_packs) * kWidth;
    }

    __device__ __forceinline__ bool is_whole(const Operands& arrays) const { return kWidth == 1 || column + kWidth <= arrays.columns; }

    __device__ __forceinline__ void load(const Operands& arrays) {
        visit<kNumInputs<Chain>>([&](auto number) {
            constexpr int i = decltype(number)::value;
            constexpr Operand kOperand = Chain::kInputs[i];
            constexpr bool kHasLine = kOperand.extent == Extent::kFull || kOperand.extent == Extent::kColumns;
            using Stored = Element<kOperand.type, Generic>;
            const auto* source = static_cast<const Stored*>(arrays.in[i]) + find_place<kOperand.extent>(arrays.in_strides[i], row, column);
            if constexpr (kHasLine && !kIsLoose) {
                load_words(source, in[i]);
            } else {
#pragma unroll
                for (int place = 0; place < (kHasLine ? kWidth : 1); ++place) {
                    std::uint32_t one[1];
                    load_words(source + place, one);
                    in[i][place] = one[0];
                }
            }
        });
    }

    __device__ __forceinline__ void compute(const Operands& arrays) const {
        std::uint32_t words[Chain::kNumDraws > 0 ? Chain::kNumDraws : 1][kWidth];
        visit<Chain::kNumDraws>([&](auto draw) {
            draw_words(*arrays.counter, number_element(arrays, row, column), decltype(draw)::value, words[decltype(draw)::value]);
        });
        float results[kNumOutputs<Chain>][kWidth];
#pragma unroll
        for (int place = 0; place < kWidth; ++place) {
            Lane<Chain> lane;
            visit<kNumInputs<Chain>>([&](auto number) {
                constexpr int i = decltype(number)::value;
                constexpr Operand kOperand = Chain::kInputs[i];
                constexpr bool kHasLine = kOperand.extent == Extent::kFull || kOperand.extent == Extent::kColumns;
                using Stored = Element<kOperand.type, Generic>;
                if constexpr (kIsLoose) {
                    const std::uint32_t one[1] = {in[i][kHasLine ? place : 0]};
                    lane.in[i] = read_value<Stored>(one, 0);
                } else {
                    lane.in[i] = read_value<Stored>(in[i], kHasLine ? place : 0);
                }
            });
            visit<Chain::kNumDraws>([&](auto draw) { lane.words[decltype(draw)::value] = words[decltype(draw)::value][place]; });
            Chain::compute(lane.in, lane.words, lane.out);
            visit<kNumOutputs<Chain>>([&](auto number) { results[decltype(number)::value][place] = lane.out[decltype(number)::value]; });
        }
        visit<kNumOutputs<Chain>>([&](auto number) {
            constexpr int i = decltype(number)::value;
            using Stored = Element<Chain::kOutputs[i].type, Generic>;
            Stored* target = static_cast<Stored*>(arrays.out[i]) + find_place<Extent::kFull>(arrays.out_strides[i], row, column);
            if constexpr (kIsLoose) {
#pragma unroll
                for (int place = 0; place < kWidth; ++place) target[place] = from_value<Stored>(results[i][place]);
            } else {
                std::uint32_t stored[kWidth];
                write_values<Stored>(results[i], stored);
                store_words(target, stored);
            }
        });
    }

    // What is left of a row.
    __device__ __forceinline__ void finish(const Operands& arrays) const {
#pragma unroll 1
        for (Index at = column; at < arrays.columns; ++at) compute_element<Chain, Generic>(arrays, row, at);
    }
};

// kWidth is as many elements as 16 bytes of the widest array hold where all rows are aligned, else 1. Blocks have at most kThreads threads.
template <class Chain, class Generic, int kThreads, int kWidth, bool kIsLoose, class Index>
__global__ void __launch_bounds__(kThreads) elementwise_vectorised(const Arrays<Chain, Index> arrays, const Split<Index> split) {
    const Index pack = static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (pack >= split.num_packs) return;
    Piece<Chain, Generic, kWidth, kIsLoose, Index> piece;
    piece.locate(split, pack);
    if (!piece.is_whole(arrays)) return piece.finish(arrays);
    piece.load(arrays);
    piece.compute(arrays);
}

// The same for one row, by blocks of at most kThreads threads: a pack's place is its number. The elements behind whole packs have a thread
// each: one thread would go through them one by one.
template <class Chain, class Generic, int kThreads, int kWidth>
__global__ void __launch_bounds__(kThreads) elementwise_one_row(const Arrays<Chain, std::uint32_t> arrays) {
    const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x, packs = arrays.columns / kWidth;
    if (thread < packs) {
        Piece<Chain, Generic, kWidth, false, std::uint32_t> piece;
        piece.row = 0;
        piece.column = thread * kWidth;
        piece.load(arrays);
        piece.compute(arrays);
        return;
    }
    const std::uint32_t column = packs * kWidth + (thread - packs);
    if (column < arrays.columns) compute_element<Chain, Generic, std::uint32_t>(arrays, 0, column);
}

constexpr int kLanes = 32;

// Rows cut into segments, each of a whole warp, of which a lane has every kLanes-th element. Fewer lanes would waste none at the end of a
// narrow row, but a warp would be in several rows at once, and each sector of memory moved twice, by accesses that have half of it each.
struct Segments {
    std::uint32_t count, of_row, columns;
    WideDivisor divisor;  // of_row
};

// An element of each of kSteps places that lie kLanes apart: their inputs as they lie in memory. A value per row, or in all, is there once.
template <class Chain, class Generic, int kSteps>
struct Strand {
    using Operands = Arrays<Chain, std::uint32_t>;

    std::uint32_t row, column;
    int left;  // elements of the segment from the first place on; none where it is not positive
    std::uint32_t in[kNumInputs<Chain>][kSteps];

    template <int kInput>
    static constexpr int kValues =
        Chain::kInputs[kInput].extent == Extent::kFull || Chain::kInputs[kInput].extent == Extent::kColumns ? kSteps : 1;

    __device__ __forceinline__ void locate(const Operands& arrays, const Segments& segments, std::uint32_t segment, std::uint32_t lane) {
        row = segments.divisor.divide(segment);
        const std::uint32_t begin = (segment - row * segments.of_row) * segments.columns;
        column = begin + lane;
        left = static_cast<int>(min(segments.columns, arrays.columns - begin)) - static_cast<int>(lane);
    }

    __device__ __forceinline__ void load(const Operands& arrays) {
        visit<kNumInputs<Chain>>([&](auto number) {
            constexpr int i = decltype(number)::value;
            constexpr Operand kOperand = Chain::kInputs[i];
            using Stored = Element<kOperand.type, Generic>;
            const auto* source = static_cast<const Stored*>(arrays.in[i]) + find_place<kOperand.extent>(arrays.in_strides[i], row, column);
#pragma unroll
            for (int step = 0; step < kValues<i>; ++step) {
                if (step * kLanes >= left) continue;
                std::uint32_t one[1];
                load_words(source + step * kLanes, one);
                in[i][step] = one[0];
            }
        });
    }

    __device__ __forceinline__ void compute(const Operands& arrays) const {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
            if (step * kLanes >= left) return;
            Lane<Chain> lane;
            visit<kNumInputs<Chain>>([&](auto number) {
                constexpr int i = decltype(number)::value;
                const std::uint32_t one[1] = {in[i][kValues<i> == 1 ? 0 : step]};
                lane.in[i] = read_value<Element<Chain::kInputs[i].type, Generic>>(one, 0);
            });
            Chain::compute(lane.in, lane.words, lane.out);
            visit<kNumOutputs<Chain>>([&](auto number) {
                constexpr int i = decltype(number)::value;
                using Stored = Element<Chain::kOutputs[i].type, Generic>;
                Stored* target = static_cast<Stored*>(arrays.out[i]) + find_place<Extent::kFull>(arrays.out_strides[i], row, column);
                target[step * kLanes] = from_value<Stored>(lane.out[i]);
            });
        }
    }
};

// For chains that draw nothing.
template <class Chain, class Generic, int kThreads, int kSteps>
__global__ void __launch_bounds__(kThreads) elementwise_segments(const Arrays<Chain, std::uint32_t> arrays, const Segments segments) {
    const std::uint32_t segment = (blockIdx.x * blockDim.x + threadIdx.x) / kLanes;
    if (segment >= segments.count) return;
    Strand<Chain, Generic, kSteps> strand;
    strand.locate(arrays, segments, segment, threadIdx.x % kLanes);
    strand.load(arrays);
    strand.compute(arrays);
}

// A block, of at most kThreads threads, takes kPacks packs for each that follow each other at a time, and where it goes on, the next after
// those of all blocks. The ends of rows come last, by code that is there once.
template <class Chain, class Generic, int kThreads, int kPacks, int kWidth, bool kIsLoose, bool kGoesOn, class Index>
__global__ void __launch_bounds__(kThreads) elementwise_streamed(const Arrays<Chain, Index> arrays, const Split<Index> split) {
    const Index threads = static_cast<Index>(blockDim.x), block_packs = threads * kPacks;
    Index first = static_cast<Index>(blockIdx.x) * block_packs + threadIdx.x;
    do {
        Piece<Chain, Generic, kWidth, kIsLoose, Index> pieces[kPacks];
        bool has_end = false;
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            const Index pack = first + p * threads;
            if (pack >= split.num_packs) break;
            pieces[p].locate(split, pack);
            if (pieces[p].is_whole(arrays)) pieces[p].load(arrays);
        }
#pragma unroll
        for (int p = 0; p < kPacks; ++p) {
            if (first + p * threads >= split.num_packs) break;
            if (pieces[p].is_whole(arrays)) {
                pieces[p].compute(arrays);
            } else {
                has_end = true;
            }
        }
        if (has_end) {
#pragma unroll 1
            for (Index pack = first; pack < split.num_packs && pack < first + block_packs; pack += threads) {
                Piece<Chain, Generic, kWidth, kIsLoose, Index> piece;
                piece.locate(split, pack);
                if (!piece.is_whole(arrays)) piece.finish(arrays);
            }
        }
        first += static_cast<Index>(gridDim.x) * block_packs;
    } while (kGoesOn && first < split.num_packs);
}

}  // namespace aicf::elementwise

// How each kernel of elementwise is launched.
#include <algorithm>

#include "common/launch.hpp"
#include "elementwise/api.hpp"
#include "elementwise/chain_contract.hpp"
#include "elementwise/kernels.cu"

namespace aicf::elementwise {
namespace {

constexpr int kThreads = kTunables.threads;
constexpr int kPacks = kTunables.packs > 0 ? kTunables.packs : 1;
// Single elements are a fraction of a pack, so that more of them are to be in flight. Where numbers are drawn, four elements share a block.
constexpr bool kDraws = ChainOfVariant::kNumDraws > 0;
constexpr int kLooseWidth = kDraws ? 4 : 1;
constexpr int kLoosePacks = kDraws ? kPacks : kPacks < 2 ? 4 : 8;

// So many packs, two for each thread that the chip holds, have a thread each, whatever the variant.
constexpr int kFewPacks = 2 * 2048 * kMultiprocessors;
// So few threads are in blocks of 64.
constexpr int kFewThreads = 512 * kMultiprocessors, kSmallBlock = 64;
// Rows that begin anywhere are cut into segments from so many columns on: of a warp's lanes a fifth, or little more, have nothing to do at
// the worst. There are to be so many threads before segments are long. Chains of several outputs are left to single elements in the order
// of the rows: they are bound by what they move, and an array without gaps is moved by whole sectors in that order, but a segment begins
// and ends within one.
constexpr int kWideRow = 128, kManyThreads = 1024 * kMultiprocessors;
constexpr bool kHasSegments = !kDraws && kNumOutputs<ChainOfVariant> == 1;

using Operands = Arrays<ChainOfVariant>;

Operands find_arrays(const Params& params) {
    const void* const in[] = {params.in0, params.in1, params.in2, params.in3, params.in4, params.in5, params.in6, params.in7};
    const std::int64_t in_strides[] = {params.ldin0, params.ldin1, params.ldin2, params.ldin3,
                                       params.ldin4, params.ldin5, params.ldin6, params.ldin7};
    void* const out[] = {params.out0, params.out1, params.out2, params.out3};
    const std::int64_t out_strides[] = {params.ldout0, params.ldout1, params.ldout2, params.ldout3};
    Operands arrays = {params.rows, params.columns, {}, {}, {}, {}, reinterpret_cast<const Counter*>(params.counter)};
    for (int i = 0; i < kNumInputs<ChainOfVariant>; ++i) arrays.in[i] = in[i], arrays.in_strides[i] = in_strides[i];
    for (int i = 0; i < kNumOutputs<ChainOfVariant>; ++i) arrays.out[i] = out[i], arrays.out_strides[i] = out_strides[i];
    return arrays;
}

// Rows that follow each other without gaps are one long row, where no input has a value per row or per column.
Operands flatten(const Operands& arrays) {
    bool is_flat = true;
    for (int i = 0; i < kNumInputs<ChainOfVariant>; ++i) {
        const Extent extent = ChainOfVariant::kInputs[i].extent;
        is_flat = is_flat && (extent == Extent::kOne || (extent == Extent::kFull && arrays.in_strides[i] == arrays.columns));
    }
    for (const std::int64_t stride : arrays.out_strides) is_flat = is_flat && stride == arrays.columns;
    if (!is_flat) return arrays;
    Operands flat = arrays;
    flat.columns = arrays.rows * arrays.columns;
    flat.rows = 1;
    return flat;
}

template <class Generic>
constexpr int find_bytes(Type type) {
    return type == Type::kGeneric ? static_cast<int>(sizeof(Generic)) : type == Type::kFloat32 ? 4 : type == Type::kBool ? 1 : 2;
}

// A pack is 16 bytes of the widest array. By 16 bytes of a narrower one, a lane would take a wider one in two accesses, each of which
// leaves half of every sector to the other.
template <class Generic>
constexpr int count_pack_elems() {
    int bytes = static_cast<int>(sizeof(Generic));
    const auto widen = [&](Operand operand) {
        if (operand.extent == Extent::kFull) bytes = std::max(bytes, find_bytes<Generic>(operand.type));
    };
    for (const Operand& operand : ChainOfVariant::kInputs) widen(operand);
    for (const Operand& operand : ChainOfVariant::kOutputs) widen(operand);
    return 16 / bytes;
}

// Packs of kWidth elements of every row of an array are aligned to their accesses.
template <class Generic, int kWidth>
bool has_packs(const Operands& arrays, Operand operand, const void* base, std::int64_t stride) {
    if (operand.extent == Extent::kRows || operand.extent == Extent::kOne) return true;
    const int bytes = find_bytes<Generic>(operand.type);
    const int access_bytes = bytes * kWidth < 16 ? bytes * kWidth : 16;
    const bool has_rows = operand.extent == Extent::kFull && arrays.rows > 1;
    return has_aligned_rows(base, has_rows ? stride : 0, bytes, access_bytes);
}

template <class Generic, int kWidth>
bool is_aligned(const Operands& arrays) {
    bool fits = true;
    for (int i = 0; i < kNumInputs<ChainOfVariant>; ++i) {
        fits = fits && has_packs<Generic, kWidth>(arrays, ChainOfVariant::kInputs[i], arrays.in[i], arrays.in_strides[i]);
    }
    for (int i = 0; i < kNumOutputs<ChainOfVariant>; ++i) {
        fits = fits && has_packs<Generic, kWidth>(arrays, ChainOfVariant::kOutputs[i], arrays.out[i], arrays.out_strides[i]);
    }
    return fits;
}

// Whether 32 bits number all elements, every place that a block may look at past the last one, and where each lies: rows that overlap have
// fewer places than elements.
bool is_small(const Operands& arrays) {
    constexpr std::int64_t kMost = INT_MAX - (1 << 20), kMostPlaces = 2 * kMost;
    const std::int64_t most_stride = arrays.rows == 1 ? INT64_MAX : kMostPlaces / arrays.rows;
    bool fits = arrays.rows * arrays.columns < kMost;
    for (const std::int64_t stride : arrays.in_strides) fits = fits && stride <= most_stride;
    for (const std::int64_t stride : arrays.out_strides) fits = fits && stride <= most_stride;
    return fits;
}

Arrays<ChainOfVariant, std::uint32_t> narrow(const Operands& arrays) {
    const auto cut = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    Arrays<ChainOfVariant, std::uint32_t> narrowed = {cut(arrays.rows), cut(arrays.columns), {}, {}, {}, {}, arrays.counter};
    for (int i = 0; i < kNumInputs<ChainOfVariant>; ++i) narrowed.in[i] = arrays.in[i], narrowed.in_strides[i] = cut(arrays.in_strides[i]);
    for (int i = 0; i < kNumOutputs<ChainOfVariant>; ++i) {
        narrowed.out[i] = arrays.out[i], narrowed.out_strides[i] = cut(arrays.out_strides[i]);
    }
    return narrowed;
}

template <class Index>
Split<Index> split_rows(const Arrays<ChainOfVariant, Index>& arrays, int width) {
    const std::int64_t row_packs = divide_up(static_cast<std::int64_t>(arrays.columns), width), num_packs = row_packs * arrays.rows;
    return {static_cast<Index>(num_packs), static_cast<Index>(row_packs),
            sizeof(Index) == 4 ? make_wide_divisor(row_packs) : WideDivisor{}};
}

Segments split_segments(const Arrays<ChainOfVariant, std::uint32_t>& arrays) {
    const std::int64_t rows = arrays.rows, columns = arrays.columns, steps = divide_up(columns, kLanes);
    std::int64_t most = rows * steps * kLanes / kManyThreads;
    most = most < 1 ? 1 : most > kLoosePacks ? kLoosePacks : most;
    const std::int64_t columns_each = divide_up(steps, divide_up(steps, most)) * kLanes, of_row = divide_up(columns, columns_each);
    const auto cut = [](std::int64_t value) { return static_cast<std::uint32_t>(value); };
    return {cut(rows * of_row), cut(of_row), cut(columns_each), make_wide_divisor(of_row)};
}

constexpr int find_block(std::int64_t threads) { return threads <= kFewThreads && kSmallBlock < kThreads ? kSmallBlock : kThreads; }

// Launches a kernel's way of reading that the arrays allow: by packs or single elements, with numbers of 32 bits or of 64.
template <class Generic, class Kernel>
AicfStatus launch_where_it_fits(const Operands& arrays, cudaStream_t stream) {
    constexpr int kWidth = count_pack_elems<Generic>();
    const Operands flat = flatten(arrays);
    const bool is_packed = is_aligned<Generic, kWidth>(flat);
    if (!is_small(flat)) {
        return is_packed ? Kernel::template launch_width<kWidth, false>(flat, stream)
                         : Kernel::template launch_width<kLooseWidth, true>(flat, stream);
    }
    const auto small = narrow(flat);
    return is_packed ? Kernel::template launch_width<kWidth, false>(small, stream)
                     : Kernel::template launch_width<kLooseWidth, true>(small, stream);
}

template <class Generic>
struct naive {
    static AicfStatus launch(const Operands& arrays, cudaStream_t stream) {
        const std::int64_t blocks = divide_up(arrays.rows * arrays.columns, kThreads);
        return launch_kernel(elementwise_naive<ChainOfVariant, Generic, kThreads>, blocks, kThreads, 0, stream, arrays);
    }
};

template <class Generic>
struct vectorised {
    template <int kWidth, bool kIsLoose, class Index>
    static AicfStatus launch_width(const Arrays<ChainOfVariant, Index>& arrays, cudaStream_t stream) {
        const Split<Index> split = split_rows(arrays, kWidth);
        const std::int64_t blocks = divide_up(static_cast<std::int64_t>(split.num_packs), kThreads);
        return launch_kernel(elementwise_vectorised<ChainOfVariant, Generic, kThreads, kWidth, kIsLoose, Index>, blocks, kThreads, 0,
                             stream, arrays, split);
    }

    static AicfStatus launch(const Operands& arrays, cudaStream_t stream) {
        return launch_where_it_fits<Generic, vectorised>(arrays, stream);
    }
};

template <class Generic>
struct streamed {
    using SmallArrays = Arrays<ChainOfVariant, std::uint32_t>;

    static AicfStatus launch_segments(const SmallArrays& arrays, cudaStream_t stream) {
        const Segments segments = split_segments(arrays);
        const std::int64_t num_threads = std::int64_t{segments.count} * kLanes;
        const int threads = find_block(num_threads);
        constexpr auto kKernel = elementwise_segments<ChainOfVariant, Generic, kThreads, kLoosePacks>;
        return launch_kernel(kKernel, divide_up(num_threads, threads), threads, 0, stream, arrays, segments);
    }

    // A pack a thread.
    template <int kWidth>
    static AicfStatus launch_few(const SmallArrays& arrays, const Split<std::uint32_t>& split, cudaStream_t stream) {
        const int threads = find_block(split.num_packs);
        if (arrays.rows == 1) {
            constexpr auto kKernel = elementwise_one_row<ChainOfVariant, Generic, kThreads, kWidth>;
            const std::int64_t num_threads = arrays.columns / kWidth + arrays.columns % kWidth;
            return launch_kernel(kKernel, divide_up(num_threads, threads), threads, 0, stream, arrays);
        }
        constexpr auto kKernel = elementwise_vectorised<ChainOfVariant, Generic, kThreads, kWidth, false, std::uint32_t>;
        return launch_kernel(kKernel, divide_up(split.num_packs, threads), threads, 0, stream, arrays, split);
    }

    template <int kWidth, bool kIsLoose, class Index>
    static AicfStatus launch_width(const Arrays<ChainOfVariant, Index>& arrays, cudaStream_t stream) {
        // As many elements as kPacks of the first input's are. With 64 bits there are blocks enough to keep the memory busy.
        constexpr int kWholePacks = kPacks * kPackElems<Generic> / count_pack_elems<Generic>();
        constexpr int kInFlight = sizeof(Index) > 4 ? 1 : kIsLoose ? kLoosePacks : kWholePacks;
        if constexpr (sizeof(Index) == 4 && kIsLoose && kHasSegments) {
            if (arrays.columns >= kWideRow) return launch_segments(arrays, stream);
        }
        const Split<Index> split = split_rows(arrays, kWidth);
        if constexpr (sizeof(Index) == 4 && !kIsLoose) {
            if (split.num_packs <= Index{kFewPacks}) return launch_few<kWidth>(arrays, split, stream);
        }
        const int threads = find_block(static_cast<std::int64_t>(split.num_packs));
        std::int64_t blocks = divide_up(static_cast<std::int64_t>(split.num_packs), std::int64_t{threads} * kInFlight);
        if (kTunables.blocks > 0) {
            int num_multiprocessors = 0;
            AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_multiprocessors));
            const std::int64_t most = std::int64_t{num_multiprocessors} * kTunables.blocks;
            blocks = blocks < most ? blocks : most;
        }
        constexpr auto kKernel =
            elementwise_streamed<ChainOfVariant, Generic, kThreads, kInFlight, kWidth, kIsLoose, (kTunables.blocks > 0), Index>;
        return launch_kernel(kKernel, blocks, threads, 0, stream, arrays, split);
    }

    static AicfStatus launch(const Operands& arrays, cudaStream_t stream) {
        return launch_where_it_fits<Generic, streamed>(arrays, stream);
    }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    const Operands arrays = find_arrays(params);
    return dispatch_float(params.dtype, [&](auto element) { return AICF_KERNEL<decltype(element)>::launch(arrays, stream); });
}

}  // namespace
}  // namespace aicf::elementwise

#include "elementwise/entry_points.hpp"

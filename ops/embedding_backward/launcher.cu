// How each kernel of embedding_backward is launched.
#include <algorithm>
#include <bit>

#include "common/launch.hpp"
#include "embedding_backward/api.hpp"
#include "embedding_backward/contract.hpp"
#include "embedding_backward/kernels.cu"

namespace aicf::embedding_backward {
namespace {

// Kernels of the ladder that lack a tunable compile with 1 in its place, and do not use it.
constexpr int kThreads = kTunables.threads, kRows = kTunables.rows > 0 ? kTunables.rows : 1;
constexpr int kChunk = kTunables.chunk > 0 ? kTunables.chunk : 1;

template <class Element, class Index>
struct naive {
    static std::size_t count_bytes(const Params&) { return 0; }

    static AicfStatus launch(const Params& p, void*, cudaStream_t stream) {
        return launch_kernel(backward_naive<Element, Index, kThreads>, divide_up(p.vocabulary * p.width, kThreads), kThreads, 0, stream, p);
    }
};

// The workspace of `segments`, piece by piece, each on a 16-byte boundary.
struct Workspace {
    char* next;
    Pairs first, second;             // [count] each
    std::int32_t *counts, *totals;   // [kDigits, tiles], [kDigits]
    std::int32_t* begins;            // [vocabulary + 1]
    float* sums;                     // [chunks, width]

    Workspace(const Params& p, void* memory) : next(static_cast<char*>(memory)) {
        const std::int64_t tiles = divide_up(p.count, kTileKeys);
        for (Pairs* pairs : {&first, &second}) *pairs = {take<std::uint32_t>(p.count), take<std::int32_t>(p.count)};
        counts = take<std::int32_t>(kDigits * tiles);
        totals = take<std::int32_t>(kDigits);
        begins = take<std::int32_t>(p.vocabulary + 1);
        sums = take<float>(p.count / kChunk * p.width);
    }

    template <class T>
    T* take(std::int64_t count) {
        T* const taken = reinterpret_cast<T*>(next);
        next += divide_up(count * static_cast<std::int64_t>(sizeof(T)), 16) * 16;
        return taken;
    }
};

template <class Element, class Index>
struct segments {
    static std::size_t count_bytes(const Params& p) {
        return static_cast<std::size_t>(Workspace(p, nullptr).next - static_cast<char*>(nullptr));
    }

    // Sorts the keys in `first`; the result is in the returned pairs.
    static AicfStatus sort(const Params& p, const Workspace& w, cudaStream_t stream, Pairs* sorted) {
        const std::int64_t tiles = divide_up(p.count, kTileKeys);
        const int bits = std::bit_width(static_cast<std::uint64_t>(p.vocabulary));
        Pairs from = {w.first.keys, nullptr}, to = w.second, spare = w.first;
        for (int shift = 0; shift < bits; shift += kDigitBits) {
            if (tiles > 1) {
                AICF_RETURN_IF_NOT_OK(launch_kernel(sort_count, tiles, kSortThreads, 0, stream, from.keys, p.count, shift, w.counts));
                AICF_RETURN_IF_NOT_OK(launch_kernel(sort_scan, kDigits / kSortWarps, kSortThreads, 0, stream, w.counts, tiles, w.totals));
            }
            const std::int32_t* counts = tiles > 1 ? w.counts : nullptr;
            AICF_RETURN_IF_NOT_OK(launch_kernel(sort_move, tiles, kSortThreads, 0, stream, from, to, p.count, shift, counts, w.totals));
            from = to;
            to = spare;
            spare = from;
        }
        *sorted = from;
        return make_ok();
    }

    static AicfStatus launch(const Params& p, void* memory, cudaStream_t stream) {
        const Workspace w(p, memory);
        Pairs pairs = {};
        AICF_RETURN_IF_NOT_OK(launch_kernel(make_keys<Index>, divide_up(p.count, kSortThreads), kSortThreads, 0, stream, p, w.first.keys));
        AICF_RETURN_IF_NOT_OK(sort(p, w, stream, &pairs));
        AICF_RETURN_IF_NOT_OK(launch_kernel(find_segments, divide_up(p.vocabulary + 1, kSortThreads), kSortThreads, 0, stream, pairs.keys,
                                            p.count, p.vocabulary, w.begins));
        const Sorted sorted = {pairs.keys, pairs.places, w.begins, w.sums};
        const bool is_packed = has_pack_rows<Element>(p.dy, p.lddy);
        if (p.count >= kChunk) {
            AICF_RETURN_IF_NOT_OK(launch_kernel(backward_chunks<Element, kThreads, kRows, kChunk>, divide_up(p.count / kChunk, kRows),
                                                kThreads * kRows, 0, stream, p, sorted, is_packed));
        }
        return launch_kernel(backward_segments<Element, kThreads, kRows, kChunk>, divide_up(p.vocabulary, kRows), kThreads * kRows, 0,
                             stream, p, sorted, is_packed, has_pack_rows<Element>(p.dtable, p.lddtable));
    }
};

template <class Element, class Index>
struct tables {
    static constexpr int kFinishThreads = 1024;

    // A slab is at least 64 rows of each group, lest adding slabs up takes longer than they do.
    static Slices share_out(const Params& p, void* memory) {
        constexpr std::int64_t kLeastRows = 64;
        const std::int64_t num_slices = divide_up(p.width, kThreads);
        Slices slices = {};
        slices.width = static_cast<int>(divide_up(p.width, num_slices));
        slices.groups = kThreads / slices.width;
        const std::int64_t most = std::max<std::int64_t>(1, kTunables.blocks / num_slices);
        slices.num_slabs = std::max<std::int64_t>(std::min<std::int64_t>(p.count / (kLeastRows * slices.groups), most), 1);
        slices.slab_rows = divide_up(p.count, slices.num_slabs * slices.groups);
        slices.sums = static_cast<float*>(memory);
        return slices;
    }

    static std::size_t count_bytes(const Params& p) {
        const Slices slices = share_out(p, nullptr);
        return slices.num_slabs > 1 ? sizeof(float) * static_cast<std::size_t>(slices.num_slabs * p.vocabulary * p.width) : 0;
    }

    static AicfStatus launch(const Params& p, void* memory, cudaStream_t stream) {
        const Slices slices = share_out(p, memory);
        const dim3 grid(static_cast<unsigned>(slices.num_slabs), static_cast<unsigned>(divide_up(p.width, slices.width)));
        const int bytes = static_cast<int>(p.vocabulary) * kThreads * static_cast<int>(sizeof(float));
        AICF_RETURN_IF_NOT_OK(launch_kernel(backward_tables<Element, Index, kThreads>, grid, kThreads, bytes, stream, p, slices));
        if (slices.num_slabs == 1) return make_ok();
        return launch_kernel(finish_tables<Element, kFinishThreads>, divide_up(p.vocabulary * p.width, kFinishWidth), kFinishThreads, 0,
                             stream, p, slices);
    }
};

template <class Element, class Index>
struct direct {
    static std::size_t count_bytes(const Params&) { return 0; }

    // A block writes some 32 KiB of the table, but there are blocks for every multiprocessor.
    template <int kElems>
    static AicfStatus launch_chunks(const Params& p, cudaStream_t stream) {
        constexpr std::int64_t kBlockBytes = 32 * 1024, kLeastBlocks = 264;
        const std::int64_t row_bytes = p.width * static_cast<std::int64_t>(sizeof(Element));
        DirectShare share = {};
        share.chunks = static_cast<int>(p.width / kElems);
        share.rows = std::max<std::int64_t>(1, std::min(kBlockBytes / row_bytes, p.vocabulary / kLeastBlocks));
        share.divisor = make_divisor(share.chunks);
        return launch_kernel(backward_direct<Element, Index, kThreads, kElems>, divide_up(p.vocabulary, share.rows), kThreads, 0, stream, p,
                             share);
    }

    // By the widest access that rows of both consist of, and begin on a multiple of.
    static AicfStatus launch(const Params& p, void*, cudaStream_t stream) {
        constexpr int kElemBytes = static_cast<int>(sizeof(Element));
        const auto fits = [&](int bytes) {
            return p.width * kElemBytes % bytes == 0 && has_aligned_rows(p.dy, p.lddy, kElemBytes, bytes) &&
                   has_aligned_rows(p.dtable, p.lddtable, kElemBytes, bytes);
        };
        if (fits(16)) return launch_chunks<16 / kElemBytes>(p, stream);
        if (fits(8)) return launch_chunks<8 / kElemBytes>(p, stream);
        if (fits(4)) return launch_chunks<4 / kElemBytes>(p, stream);
        return launch_chunks<1>(p, stream);
    }
};

template <class Element, class Index>
struct tiles {
    static std::size_t count_bytes(const Params&) { return 0; }

    // Enough tiles for all multiprocessors, and more where the table is large beside what each block looks through, but not beyond `most`;
    // of a tile's rows about half as many indices as it can keep, where indices are spread evenly. Rows are whole unless there are too few
    // of them.
    static TileShare share_out(const Params& p, std::int64_t most) {
        constexpr std::int64_t kTileBytes = 128 * 1024, kColumns = kThreads * kPackElems<Element>;
        const std::int64_t bytes = std::max(kTileBytes, 2 * p.count * static_cast<std::int64_t>(sizeof(Index)));
        const std::int64_t elems = bytes / static_cast<std::int64_t>(sizeof(Element));
        const std::int64_t wanted = std::max<std::int64_t>(kTunables.blocks, p.vocabulary * p.width / elems);
        const std::int64_t least = std::max(divide_up(p.count, kMostKept / 2), divide_up(p.vocabulary, kMostTileRows));
        const std::int64_t row_tiles = std::min(std::min(std::max(wanted, least), p.vocabulary), most);
        const std::int64_t parts = divide_up(p.width, kColumns);
        TileShare share = {};
        share.rows = divide_up(p.vocabulary, row_tiles);
        share.columns = static_cast<std::int32_t>(divide_up(parts, std::min(parts, divide_up(wanted, row_tiles))) * kColumns);
        share.column_tiles = static_cast<std::int32_t>(divide_up(p.width, share.columns));
        share.accesses = choose_accesses(p);
        share.has_aligned_indices = reinterpret_cast<std::uintptr_t>(p.indices) % 16 == 0;
        return share;
    }

    // Where rows of the table are stored by elements, those lie apart if they were loaded by packs: worth it where more is loaded.
    static Accesses choose_accesses(const Params& p) {
        constexpr int kElemBytes = static_cast<int>(sizeof(Element));
        constexpr std::int64_t kLeastLoads = 4;
        Accesses accesses = {0, has_pack_rows<Element>(p.dtable, p.lddtable)};
        if (!accesses.stores_packs && p.count < kLeastLoads * p.vocabulary) return accesses;
        for (int bytes = 16; bytes > kElemBytes && accesses.loads == 0; bytes /= 2) {
            if (has_aligned_rows(p.dy, p.lddy, kElemBytes, bytes)) accesses.loads = bytes;
        }
        return accesses;
    }

    static constexpr int kBytes = kMostKept * sizeof(std::uint32_t) + sizeof(TileSums<Element, kThreads * kRows>);

    static AicfStatus launch(const Params& p, void*, cudaStream_t stream) {
        const TileShare share = share_out(p, p.vocabulary);
        return launch_kernel(backward_tiles<Element, Index, kThreads, kRows>, divide_up(p.vocabulary, share.rows) * share.column_tiles,
                             kThreads * kRows, kBytes, stream, p, share, Buckets{});
    }
};

template <class Element, class Index>
struct buckets {
    using Tiles = tiles<Element, Index>;

    // By rows of the table that a bucket has. Keys first, which are on a 16-byte boundary.
    static Buckets lay_out(const Params& p, std::int64_t rows, void* memory) {
        const std::int64_t chunks = divide_up(p.count, kBucketChunk);
        auto* const keys = static_cast<std::uint32_t*>(memory);
        auto* const begins = reinterpret_cast<std::int32_t*>(keys + chunks * kBucketChunk);
        return {keys, begins, static_cast<int>(divide_up(p.vocabulary, rows)), static_cast<int>(chunks), make_divisor(rows)};
    }

    static std::size_t count_bytes(const Buckets& buckets) {
        return sizeof(std::int32_t) * static_cast<std::size_t>(buckets.chunks) *
               static_cast<std::size_t>(kBucketChunk + buckets.num_buckets + 1);
    }

    static std::size_t count_bytes(const Params& p) { return count_bytes(lay_out(p, Tiles::share_out(p, kMostBuckets).rows, nullptr)); }

    static AicfStatus launch(const Params& p, void* memory, cudaStream_t stream) {
        const TileShare share = Tiles::share_out(p, kMostBuckets);
        const Buckets buckets = lay_out(p, share.rows, memory);
        AICF_RETURN_IF_NOT_OK(
            launch_kernel(fill_buckets<Index>, buckets.chunks, kBucketThreads, 0, stream, p, buckets, share.has_aligned_indices));
        return launch_early(backward_tiles<Element, Index, kThreads, kRows, true>, buckets.num_buckets * share.column_tiles,
                            kThreads * kRows, Tiles::kBytes, 1, stream, p, share, buckets);
    }
};

template <class Element, class Index>
struct integers {
    using Bucketed = buckets<Element, Index>;

    // Enough tiles for all multiprocessors, of sums that shared memory holds.
    static IntegerShare share_out(const Params& p) {
        const std::int64_t wanted = std::max<std::int64_t>(kTunables.blocks, divide_up(p.vocabulary * p.width, kMostIntegers));
        const std::int64_t least = divide_up(p.vocabulary, kMostTileRows);
        const std::int64_t tiles = std::min(std::min(std::max(wanted, least), p.vocabulary), std::int64_t{kMostBuckets});
        return {divide_up(p.vocabulary, tiles), make_divisor(p.width)};
    }

    static std::size_t count_bytes(const Params& p) { return Bucketed::count_bytes(Bucketed::lay_out(p, share_out(p).rows, nullptr)); }

    static AicfStatus launch(const Params& p, void* memory, cudaStream_t stream) {
        const IntegerShare share = share_out(p);
        const Buckets buckets = Bucketed::lay_out(p, share.rows, memory);
        const bool has_aligned_indices = reinterpret_cast<std::uintptr_t>(p.indices) % 16 == 0;
        AICF_RETURN_IF_NOT_OK(
            launch_kernel(fill_buckets<Index>, buckets.chunks, kBucketThreads, 0, stream, p, buckets, has_aligned_indices));
        const int bytes = kMostKept * static_cast<int>(sizeof(std::uint32_t)) + static_cast<int>(share.rows * p.width) * kIntegerBytes;
        return launch_early(backward_integers<Element, kThreads>, buckets.num_buckets, kThreads, bytes, 1, stream, p, share, buckets);
    }
};

// Calls `use` with an instance of this build's kernel, by dtype and dtype of the indices.
template <class Use>
AicfStatus dispatch(const Params& p, const Use& use) {
    return dispatch_float(p.dtype, [&](auto element) {
        using Element = decltype(element);
        return p.index_dtype == AICF_DTYPE_INT64 ? use(AICF_KERNEL<Element, std::int64_t>{}) : use(AICF_KERNEL<Element, std::int32_t>{});
    });
}

std::size_t count_workspace_bytes(const Params& params) {
    std::size_t bytes = 0;
    dispatch(params, [&](auto kernel) {
        bytes = kernel.count_bytes(params);
        return make_ok();
    });
    return bytes;
}

AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) {
    return dispatch(params, [&](auto kernel) { return kernel.launch(params, workspace, stream); });
}

}  // namespace
}  // namespace aicf::embedding_backward

#include "embedding_backward/entry_points.hpp"

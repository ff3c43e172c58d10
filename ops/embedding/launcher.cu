// How each kernel of embedding is launched.
#include "common/launch.hpp"
#include "embedding/api.hpp"
#include "embedding/contract.hpp"
#include "embedding/kernels.cu"

namespace aicf::embedding {
namespace {

// Kernels of the ladder that lack a tunable compile with 1 in its place, and do not use it.
constexpr int kThreads = kTunables.threads, kRows = kTunables.rows > 0 ? kTunables.rows : 1;
constexpr int kItems = kTunables.items > 0 ? kTunables.items : 1;

template <class Word, class Index>
struct naive {
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        return launch_kernel(embedding_naive<Word, Index, kThreads>, divide_up(p.count * p.width, kThreads), kThreads, 0, stream, p);
    }
};

template <class Word, class Index>
struct row_groups {
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        constexpr int kWordBytes = static_cast<int>(sizeof(Word));
        const bool is_packed = has_aligned_rows(p.table, p.ldtable, kWordBytes, 16) && has_aligned_rows(p.y, p.ldy, kWordBytes, 16);
        return launch_kernel(embedding_row_groups<Word, Index, kThreads, kRows>, divide_up(p.count, kRows), kThreads * kRows, 0, stream, p,
                             is_packed);
    }
};

// More words than these, 512 for each multiprocessor, are stored by packs where y has no gaps: fewer have a thread
// each.
constexpr std::int64_t kFewWords = 512 * kMultiprocessors;

template <class Word, class Index>
struct flat {
    template <class Number, class Access>
    static FlatRows<Number> make_rows(const Params& p) {
        constexpr std::int64_t kWords = sizeof(Access) / sizeof(Word);
        const std::int64_t accesses = p.width / kWords, ldy = p.ldy / kWords;
        FlatRows<Number> rows = {};
        rows.total = static_cast<Number>(p.count * accesses);
        rows.accesses = static_cast<Number>(accesses);
        if (sizeof(Number) == 4) rows.divisor = make_wide_divisor(accesses);
        rows.indices = p.indices;
        rows.vocabulary = static_cast<std::uint64_t>(p.vocabulary);
        rows.table = p.table;
        rows.ldtable = static_cast<Number>(p.ldtable / kWords);
        rows.gap = p.count == 1 ? Number{0} : static_cast<Number>(ldy - accesses);
        rows.y = p.y;
        rows.status = p.status;
        return rows;
    }

    // Whether 32 bits hold the numbers of all accesses of so many bytes, and the strides.
    static bool is_small(const Params& p, std::size_t access_bytes) {
        const std::int64_t total = p.count * (p.width / static_cast<std::int64_t>(access_bytes / sizeof(Word)));
        return total <= INT_MAX && p.vocabulary <= INT_MAX && p.ldtable <= INT_MAX && p.ldy <= INT_MAX;
    }

    template <class Access, class Number>
    static AicfStatus launch_numbers(const Params& p, cudaStream_t stream) {
        const auto rows = make_rows<Number, Access>(p);
        const std::int64_t blocks = divide_up(static_cast<std::int64_t>(rows.total), kThreads * kItems);
        return launch_kernel(embedding_flat<Access, Index, Number, kThreads, kItems>, blocks, kThreads, 0, stream, rows);
    }

    template <class Access>
    static AicfStatus launch_accesses(const Params& p, cudaStream_t stream) {
        return is_small(p, sizeof(Access)) ? launch_numbers<Access, std::uint32_t>(p, stream)
                                           : launch_numbers<Access, std::uint64_t>(p, stream);
    }

    // By narrow accesses: those of Access, or packs of them.
    template <class Access>
    static AicfStatus launch_narrow(const Params& p, cudaStream_t stream) {
        constexpr int kWords = 16 / static_cast<int>(sizeof(Access));
        const auto rows = make_rows<std::uint32_t, Access>(p);
        const bool is_dense = rows.gap == 0 && reinterpret_cast<std::uintptr_t>(p.y) % 16 == 0 && rows.accesses >= kWords;
        if (!is_small(p, sizeof(Access)) || !is_dense || rows.total <= kFewWords) return launch_accesses<Access>(p, stream);
        const std::int64_t blocks = divide_up(rows.total, std::int64_t{kThreads} * kWords);
        return launch_kernel(embedding_dense_packs<Access, Index, kThreads>, blocks, kThreads, 0, stream, rows);
    }

    // By the widest access that rows of both consist of, and begin on a multiple of.
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        constexpr int kWordBytes = static_cast<int>(sizeof(Word));
        const auto fits = [&](int bytes) {
            return p.width * kWordBytes % bytes == 0 && has_aligned_rows(p.table, p.ldtable, kWordBytes, bytes) &&
                   has_aligned_rows(p.y, p.ldy, kWordBytes, bytes);
        };
        if (fits(16)) return launch_accesses<uint4>(p, stream);
        if (fits(8)) return launch_accesses<uint2>(p, stream);
        if (fits(4)) return launch_narrow<std::uint32_t>(p, stream);
        return launch_narrow<Word>(p, stream);
    }
};

template <class Word>
AicfStatus launch_words(const Params& p, cudaStream_t stream) {
    return p.index_dtype == AICF_DTYPE_INT64 ? AICF_KERNEL<Word, std::int64_t>::launch(p, stream)
                                             : AICF_KERNEL<Word, std::int32_t>::launch(p, stream);
}

AicfStatus launch(const Params& p, void*, cudaStream_t stream) {
    return p.dtype == AICF_DTYPE_FLOAT32 ? launch_words<std::uint32_t>(p, stream) : launch_words<std::uint16_t>(p, stream);
}

}  // namespace
}  // namespace aicf::embedding

#include "embedding/entry_points.hpp"

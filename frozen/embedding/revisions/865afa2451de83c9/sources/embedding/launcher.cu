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

template <class Word, class Index>
struct flat {
    template <class Access>
    static AicfStatus launch_accesses(const Params& p, cudaStream_t stream) {
        constexpr std::int64_t kWords = sizeof(Access) / sizeof(Word);
        FlatRows rows = {p.width / kWords, p.count * (p.width / kWords), p.ldtable / kWords, p.ldy / kWords, {}, false};
        rows.is_small = rows.total <= INT_MAX;
        if (rows.is_small) rows.divisor = make_divisor(rows.accesses);
        return launch_kernel(embedding_flat<Access, Index, kThreads, kItems>, divide_up(rows.total, kThreads * kItems), kThreads, 0, stream,
                             p, rows);
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
        if (fits(4)) return launch_accesses<std::uint32_t>(p, stream);
        return launch_accesses<Word>(p, stream);
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

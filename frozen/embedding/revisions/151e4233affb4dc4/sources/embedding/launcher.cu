// How each kernel of embedding is launched.
#include "common/launch.hpp"
#include "embedding/api.hpp"
#include "embedding/contract.hpp"
#include "embedding/kernels.cu"

namespace aicf::embedding {
namespace {

constexpr int kThreads = kTunables.threads, kRows = kTunables.rows;

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

// How each kernel of cross_entropy is launched.
#include <algorithm>
#include <cstdint>

#include "common/launch.hpp"
#include "cross_entropy/api.hpp"
#include "cross_entropy/contract.hpp"
#include "cross_entropy/kernels.cu"

namespace aicf::cross_entropy {
namespace {

constexpr int kThreads = kTunables.threads;
constexpr std::size_t kLossesOffset = 16;

Workspace cut_workspace(void* memory) {
    auto* bytes = static_cast<char*>(memory);
    return {reinterpret_cast<Shared*>(bytes), reinterpret_cast<float*>(bytes + kLossesOffset)};
}

AicfStatus prepare(const Params& params, const Workspace& workspace, cudaStream_t stream) {
    return launch_early(cross_entropy_prepare, 1, kPrepareThreads, 0, 1, stream, params, workspace);
}

std::size_t count_row_bytes(const Params& params) { return kLossesOffset + static_cast<std::size_t>(params.rows) * sizeof(float); }

template <class Element>
struct naive {
    static std::size_t count_bytes(const Params& params) { return count_row_bytes(params); }

    static AicfStatus launch(const Params& params, void* memory, cudaStream_t stream) {
        const Workspace workspace = cut_workspace(memory);
        const auto blocks = static_cast<unsigned>(divide_up(params.rows, kThreads));
        AICF_RETURN_IF_NOT_OK(prepare(params, workspace, stream));
        return launch_early(cross_entropy_naive<Element, kThreads>, blocks, kThreads, 0, 1, stream, params, workspace);
    }
};

template <class Element>
struct block_online {
    static std::size_t count_bytes(const Params& params) { return count_row_bytes(params); }

    static AicfStatus launch(const Params& params, void* memory, cudaStream_t stream) {
        const Workspace workspace = cut_workspace(memory);
        AICF_RETURN_IF_NOT_OK(prepare(params, workspace, stream));
        return launch_early(cross_entropy_block_online<Element, kThreads>, static_cast<unsigned>(params.rows), kThreads, 0, 1, stream,
                            params, workspace, has_pack_rows<Element>(params.logits, params.ldlogits),
                            has_pack_rows<Element>(params.dlogits, params.lddlogits));
    }
};

template <class Element>
struct row_in_registers {
    static constexpr int kRows = kTunables.rows, kElems = std::max(kTunables.elems, kPackElems<Element>);
    // A cluster takes this many rounds of rows before more blocks and a second launch are worth it.
    static constexpr int kMaxRounds = 2;
    // Two blocks on each multiprocessor of a large GPU; the order of sums is that of the blocks, and the same on all.
    static constexpr int kMaxBlocks = 264;
    // A block counts labels in less time than its logits take to arrive.
    static constexpr std::int64_t kManyRows = 4096;

    static std::int64_t count_groups(const Params& params) { return divide_up(params.rows, kRows); }
    static bool is_cluster(const Params& params) { return count_groups(params) <= kMaxCluster * kMaxRounds; }
    static std::int64_t count_blocks(const Params& params) {
        return std::min<std::int64_t>(count_groups(params), is_cluster(params) ? kMaxCluster : kMaxBlocks);
    }

    static std::size_t count_bytes(const Params& params) {
        if (is_cluster(params)) return 0;
        const std::int64_t columns = params.dbias == nullptr ? 0 : params.classes;
        return kLossesOffset + static_cast<std::size_t>(count_blocks(params) * (1 + columns)) * sizeof(float);
    }

    template <bool kHasSums>
    static AicfStatus launch_rows(const Params& params, const Split& split, cudaStream_t stream) {
        const auto blocks = static_cast<unsigned>(count_blocks(params));
        return launch_early(cross_entropy_row_in_registers<Element, kThreads, kRows, kElems, kHasSums>, blocks, kThreads * kRows, 0,
                            split.losses == nullptr ? static_cast<int>(blocks) : 1, stream, params, split);
    }

    static AicfStatus launch(const Params& params, void* memory, cudaStream_t stream) {
        const bool has_sums = params.dbias != nullptr;
        const bool is_packed = has_pack_rows<Element>(params.logits, params.ldlogits) &&
                               (params.dlogits == nullptr || has_pack_rows<Element>(params.dlogits, params.lddlogits));
        Split split = {is_packed, nullptr, nullptr, nullptr};
        const std::int64_t blocks = count_blocks(params);
        if (!is_cluster(params)) {
            const Workspace workspace = cut_workspace(memory);
            split.losses = workspace.losses;
            if (has_sums) split.columns = workspace.losses + blocks;
            if (params.rows > kManyRows && params.reduction == AICF_CROSS_ENTROPY_REDUCTION_MEAN) {
                AICF_RETURN_IF_NOT_OK(prepare(params, workspace, stream));
                split.shared = workspace.shared;
            }
        }
        AICF_RETURN_IF_NOT_OK(has_sums ? launch_rows<true>(params, split, stream) : launch_rows<false>(params, split, stream));
        if (is_cluster(params)) return make_ok();
        const auto finishers = static_cast<unsigned>(has_sums ? divide_up(params.classes, kFinishWidth) : 1);
        return launch_early(cross_entropy_finish<Element>, finishers, kFinishThreads, 0, 1, stream, params, split,
                            static_cast<int>(blocks));
    }
};

template <class Element>
struct few_classes {
    static std::size_t count_bytes(const Params&) { return 0; }

    static AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
        constexpr int kElems = std::max(kTunables.elems, 1);
        const auto threads = static_cast<int>(divide_up(params.rows * kThreads, kWarpSize) * kWarpSize);
        const auto kernel = params.dbias == nullptr ? cross_entropy_few_classes<Element, kThreads, kElems, false>
                                                    : cross_entropy_few_classes<Element, kThreads, kElems, true>;
        return launch_early(kernel, 1, threads, 0, 1, stream, params);
    }
};

std::size_t count_workspace_bytes(const Params& params) { return AICF_KERNEL<float>::count_bytes(params); }

AicfStatus launch(const Params& params, void* memory, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) { return AICF_KERNEL<decltype(element)>::launch(params, memory, stream); });
}

}  // namespace
}  // namespace aicf::cross_entropy

#include "cross_entropy/entry_points.hpp"

// How each kernel of reduce is launched.
#include <algorithm>
#include <numeric>
#include <type_traits>

#include "common/launch.hpp"
#include "reduce/api.hpp"
#include "reduce/contract.hpp"
#include "reduce/kernels.cu"

namespace aicf::reduce {
namespace {

// Kernels of the ladder that lack a tunable compile with 1 in its place, and do not use it.
constexpr int kThreads = kTunables.threads, kRows = std::max(kTunables.rows, 1), kWidth = std::max(kTunables.width, 1);
constexpr int kBlocks = std::max(kTunables.blocks, 1), kCluster = std::max(kTunables.cluster, 1);
constexpr int kLanes = std::max(kTunables.lanes, 1), kBytes = std::max(kTunables.bytes, 1);
constexpr int kFinishRowThreads = 128, kFinishAllThreads = 512;
constexpr int kWholeWidth = 8;           // packs of a row that a block takes at a time where rows do not follow each other
constexpr std::int64_t kMaxParts = 256;  // of a column: what is put together at the end is small beside what was read

// What the launch of one kernel needs to know; Reduction and Element are types.
struct Call {
    Params p;
    void* workspace;
    cudaStream_t stream;
};

bool is_contiguous(const Params& p) { return p.ldx == p.columns || p.rows == 1; }

// Cuts `count` elements, of each of `rows` rows, into parts for about kBlocks blocks in all. A thread has a round of loads, or less where
// there would be fewer blocks than multiprocessors: either way one wait.
template <class Element>
Cut cut_rows(std::int64_t rows, std::int64_t count) {
    constexpr std::int64_t kPass = std::int64_t{kThreads} * kPackElems<Element>, kRound = kPass * kPacksInFlight;
    const std::int64_t spread = std::max(divide_up(count, kRound), std::min(kMultiprocessors / rows, count / kPass));
    const std::int64_t wanted = std::max<std::int64_t>(std::min(kBlocks / rows, spread), 1);
    const std::int64_t elems = divide_up(divide_up(count, wanted), kPackElems<Element>) * kPackElems<Element>;
    return {count, divide_up(count, elems), elems};
}

// Blocks along columns and along rows. They do not depend on addresses, as the workspace must not.
template <class Element, int kColumnWidth>
dim3 cut_columns(const Params& p) {
    constexpr int kLanes = kThreads / kColumnWidth, kRoundRows = kPacksInFlight * kLanes;
    const std::int64_t along = divide_up(p.columns, kColumnWidth * kPackElems<Element>);
    dim3 grid(static_cast<unsigned>(along), 1);
    // One part where it is read within the time of a second launch, and where blocks along columns fill the chip for about as long.
    constexpr std::int64_t kFewRounds = 2, kShortRounds = 4, kMostRounds = 16;
    const std::int64_t rounds = divide_up(p.rows, kRoundRows);
    if (rounds <= kFewRounds || (rounds <= kMostRounds && p.rows * kMultiprocessors <= kShortRounds * kRoundRows * along)) return grid;
    // Two rounds for a thread, or one where there would be too few blocks.
    const std::int64_t most = std::min(std::max(divide_up(rounds, 2), std::min(rounds, divide_up(kMultiprocessors, along))), kMaxParts);
    const std::int64_t parts = std::min<std::int64_t>(kBlocks / std::min<std::int64_t>(along, kBlocks), most);
    grid.y = static_cast<unsigned>(std::max<std::int64_t>(parts, 1));
    return grid;
}

// The same where a block goes on to the next columns: at most kBlocks blocks in all.
template <class Element>
dim3 cut_whole(const Params& p) {
    dim3 grid = cut_columns<Element, kWholeWidth>(p);
    grid.x = std::min(grid.x, static_cast<unsigned>(kBlocks));
    return grid;
}

// Blocks along the only row of a matrix whose rows follow each other.
template <class Element>
Cut cut_all(const Params& p) {
    return cut_rows<Element>(1, p.rows * p.columns);
}

// Each kernel: the parts that the workspace holds, and its launch.

template <class Reduction, class Element>
struct naive {
    static std::int64_t count_parts(const Params&) { return 0; }

    static AicfStatus launch(const Call& call) {
        const Params& p = call.p;
        if (p.over == AICF_REDUCE_OVER_ALL)
            return launch_kernel(reduce_all_naive<Reduction, Element, kThreads>, 1, kThreads, 0, call.stream, p);
        const bool has_rows = p.over == AICF_REDUCE_OVER_COLUMNS;
        const std::int64_t results = has_rows ? p.rows : p.columns, count = has_rows ? p.columns : p.rows;
        return launch_kernel(reduce_naive<Reduction, Element, kThreads>, divide_up(results, kThreads), kThreads, 0, call.stream, p, results,
                             has_rows ? p.ldx : 1, count, has_rows ? 1 : p.ldx);
    }
};

template <class Reduction, class Element>
struct row_groups {
    static std::int64_t count_parts(const Params&) { return 0; }

    static AicfStatus launch(const Call& call) {
        return launch_kernel(reduce_row_groups<Reduction, Element, kThreads, kRows>, divide_up(call.p.rows, kRows), kThreads * kRows, 0,
                             call.stream, call.p);
    }
};

template <class Reduction>
Target<typename Reduction::State> find_target(const Call& call, std::int64_t parts) {
    return {parts == 0 ? nullptr : static_cast<typename Reduction::State*>(call.workspace), 1.0f};
}

template <class Reduction, int kFinish>
AicfStatus finish_rows(const Call& call, std::int64_t results, std::int64_t parts, std::int64_t count) {
    const auto* partials = static_cast<const typename Reduction::State*>(call.workspace);
    return launch_early(reduce_finish_row<Reduction, kFinish>, static_cast<unsigned>(results), kFinish, 0, 1, call.stream, call.p, partials,
                        parts, count);
}

template <class Reduction, class Element>
struct row_parts {
    static std::int64_t count_parts(const Params& p) {
        const Cut cut = cut_rows<Element>(p.rows, p.columns);
        return cut.parts > 1 ? p.rows * cut.parts : 0;
    }

    static AicfStatus launch(const Call& call) {
        const Params& p = call.p;
        const Cut cut = cut_rows<Element>(p.rows, p.columns);
        AICF_RETURN_IF_NOT_OK(launch_kernel(reduce_row_parts<false, Reduction, Element, kThreads>, p.rows * cut.parts, kThreads, 0,
                                            call.stream, p, cut, find_target<Reduction>(call, count_parts(p))));
        return cut.parts == 1 ? make_ok() : finish_rows<Reduction, kFinishRowThreads>(call, p.rows, cut.parts, p.columns);
    }
};

template <class Element, int kColumnWidth>
bool reads_packs(const Params& p) {
    using Span = Columns<Element, kColumnWidth, kThreads / kColumnWidth>;
    return Span::kShifts || Span::kJoins || has_pack_rows<Element>(p.x, p.ldx);
}

template <bool kIsAtomic, class Reduction, class Element>
AicfStatus launch_column_parts(const Call& call, const Target<typename Reduction::State>& target) {
    constexpr int kLanes = kThreads / kWidth;
    const Params& p = call.p;
    const bool may_shift = Columns<Element, kWidth, kLanes>::kShifts && !has_pack_rows<Element>(p.x, p.ldx);
    const int width = may_shift ? kWidth - 1 : kWidth;
    dim3 grid = cut_columns<Element, kWidth>(p);
    grid.x = static_cast<unsigned>(divide_up(p.columns, width * kPackElems<Element>));
    return launch_kernel(reduce_column_parts<kIsAtomic, Reduction, Element, kWidth, kLanes>, grid, kThreads, 0, call.stream, p,
                         reads_packs<Element, kWidth>(p), width, target);
}

template <class Reduction>
AicfStatus finish_columns(const Call& call, unsigned parts) {
    const auto* partials = static_cast<const typename Reduction::State*>(call.workspace);
    // By few threads where parts are few, and else by few columns: so up to eight loads are all that a thread has.
    constexpr unsigned kFewParts = 32;
    constexpr int kFewThreads = 256, kFewPartsWidthLog = 5, kManyThreads = 1024, kManyPartsWidthLog = 4;
    int width_log = parts <= kFewParts ? kFewPartsWidthLog : kManyPartsWidthLog;
    while (width_log > 0 && 1 << (width_log - 1) >= call.p.columns) --width_log;
    const auto blocks = static_cast<unsigned>(divide_up(call.p.columns, 1 << width_log));
    const auto launch = [&](auto threads) {
        constexpr int kFinishThreads = decltype(threads)::value;
        return launch_early(reduce_finish_columns<Reduction, kFinishThreads>, blocks, kFinishThreads, 0, 1, call.stream, call.p, partials,
                            static_cast<int>(parts), width_log);
    };
    return parts <= kFewParts ? launch(std::integral_constant<int, kFewThreads>{}) : launch(std::integral_constant<int, kManyThreads>{});
}

template <class Reduction, class Element>
struct column_parts {
    static std::int64_t count_parts(const Params& p) {
        const dim3 grid = cut_columns<Element, kWidth>(p);
        return grid.y > 1 ? grid.y * p.columns : 0;
    }

    static AicfStatus launch(const Call& call) {
        const Params& p = call.p;
        const dim3 grid = cut_columns<Element, kWidth>(p);
        const auto target = find_target<Reduction>(call, count_parts(p));
        AICF_RETURN_IF_NOT_OK((launch_column_parts<false, Reduction, Element>(call, target)));
        return grid.y == 1 ? make_ok() : finish_columns<Reduction>(call, grid.y);
    }
};

template <class Reduction, class Element>
struct column_groups {
    static std::int64_t count_parts(const Params&) { return 0; }

    template <bool kIsPaired>
    static AicfStatus launch_elems(const Call& call) {
        const Params& p = call.p;
        const auto columns = static_cast<int>(std::min<std::int64_t>(p.columns, kGroupColumns));
        int lanes_log = 0;
        while ((kIsPaired ? 2 : 1) << lanes_log < columns) ++lanes_log;
        const auto kernel = reduce_column_groups<Reduction, Element, kThreads, kCluster, kIsPaired>;
        const std::int64_t blocks = divide_up(p.columns, kGroupColumns) * kCluster;
        if constexpr (kCluster == 1) return launch_kernel(kernel, blocks, kThreads, 0, call.stream, p, lanes_log);
        return launch_early(kernel, static_cast<unsigned>(blocks), kThreads, 0, kCluster, call.stream, p, lanes_log);
    }

    static AicfStatus launch(const Call& call) {
        if constexpr (sizeof(Element) == kHalfBytes) {
            constexpr int kPairBytes = 2 * kHalfBytes;
            if (call.p.columns % 2 == 0 && has_aligned_rows(call.p.x, call.p.ldx, kHalfBytes, kPairBytes)) return launch_elems<true>(call);
        }
        return launch_elems<false>(call);
    }
};

// What a sum is multiplied by.
float find_scale(const Params& p, std::int64_t count) {
    return p.reduction == AICF_REDUCE_REDUCTION_MEAN ? 1.0f / static_cast<float>(count) : 1.0f;
}

// Calls `use` with how many elements an access has: kMost, or half as many, and so on, until all rows begin on its boundaries and `fits`
// says so.
template <class Element, int kMost, class Fits, class Use>
AicfStatus dispatch_elems(const Params& p, const Fits& fits, const Use& use) {
    constexpr int kElemBytes = static_cast<int>(sizeof(Element));
    if constexpr (kMost == 1) {
        return use(std::integral_constant<int, 1>{});
    } else {
        if (fits(kMost) && has_aligned_rows(p.x, p.ldx, kElemBytes, kMost * kElemBytes)) return use(std::integral_constant<int, kMost>{});
        return dispatch_elems<Element, kMost / 2>(p, fits, use);
    }
}

template <class Reduction, class Element>
struct row_packs {
    static std::int64_t count_parts(const Params&) { return 0; }

    static AicfStatus launch(const Call& call) {
        const Params& p = call.p;
        const auto is_whole = [&](int elems) { return p.columns % elems == 0; };
        return dispatch_elems<Element, kPackElems<Element>>(p, is_whole, [&](auto elems) {
            return launch_kernel(reduce_row_packs<Reduction, Element, kThreads, kLanes, kRows, decltype(elems)::value>,
                                 divide_up(p.rows, kThreads / kLanes * kRows), kThreads, 0, call.stream, p, find_scale(p, p.columns));
        });
    }
};

template <class Reduction, class Element>
struct column_packs {
    static std::int64_t count_parts(const Params&) { return 0; }

    static AicfStatus launch(const Call& call) {
        const Params& p = call.p;
        constexpr int kMost = std::max(kBytes / static_cast<int>(sizeof(Element)), 1), kMostBytes = 16;
        const int result_bytes = p.reduction == AICF_REDUCE_REDUCTION_ARGMAX ? static_cast<int>(sizeof(std::int64_t))
                                 : p.result_dtype == AICF_DTYPE_FLOAT32      ? static_cast<int>(sizeof(float))
                                                                             : kHalfBytes;
        // Of the results, which are stored by one access, too, or by several of 16 bytes.
        const auto is_aligned = [&](int elems) {
            return reinterpret_cast<std::uintptr_t>(p.y) % static_cast<unsigned>(std::min(elems * result_bytes, kMostBytes)) == 0;
        };
        return dispatch_elems<Element, kMost>(p, is_aligned, [&](auto elems) {
            constexpr int kElems = decltype(elems)::value;
            return launch_kernel(reduce_column_packs<Reduction, Element, kThreads, kElems>,
                                 divide_up(p.columns / kElems + p.columns % kElems, kThreads), kThreads, 0, call.stream, p,
                                 find_scale(p, p.rows));
        });
    }
};

template <class Reduction, class Element>
struct column_runs {
    // Blocks, by sizes alone as the workspace is: two accesses for a thread where there are few blocks, and else a round of them.
    static std::int64_t count_blocks(const Params& p) {
        constexpr std::int64_t kFew = 2, kRound = 8;
        const std::int64_t blocks = divide_up(divide_up(p.rows * p.columns, kPackElems<Element>), kThreads);
        return std::min<std::int64_t>(
            std::max(divide_up(blocks, kRound), std::min<std::int64_t>(divide_up(blocks, kFew), kMultiprocessors)), kBlocks);
    }

    static std::int64_t count_parts(const Params& p) { return count_blocks(p) > 1 ? count_blocks(p) * p.columns : 0; }

    template <int kElems>
    static AicfStatus launch_elems(const Call& call, int period_rows) {
        const Params& p = call.p;
        const std::int64_t blocks = count_blocks(p), period = period_rows * p.columns / kElems;
        const std::int64_t elems = p.rows * p.columns, accesses = elems / kElems, threads = kThreads / period * period;
        const Runs runs = {period_rows * p.ldx * static_cast<std::int64_t>(sizeof(Element)),
                           accesses / (blocks * threads),
                           accesses % (blocks * threads),
                           static_cast<int>(period),
                           period_rows,
                           static_cast<int>(threads),
                           static_cast<int>(elems % kElems)};
        AICF_RETURN_IF_NOT_OK(launch_kernel(reduce_column_runs<Reduction, Element, kThreads, kElems>, blocks, kThreads, 0, call.stream, p,
                                            runs, find_target<Reduction>(call, count_parts(p))));
        return blocks == 1 ? make_ok() : finish_columns<Reduction>(call, static_cast<unsigned>(blocks));
    }

    static AicfStatus launch(const Call& call) {
        const Params& p = call.p;
        constexpr int kElems = kPackElems<Element>, kPackBytes = kElems * static_cast<int>(sizeof(Element));
        if (is_contiguous(p) && has_aligned_rows(p.x, kElems, sizeof(Element), kPackBytes))
            return launch_elems<kElems>(call, kElems / std::gcd(kElems, static_cast<int>(p.columns)));
        const auto is_whole = [&](int elems) { return p.columns % elems == 0; };
        return dispatch_elems<Element, kElems>(p, is_whole, [&](auto elems) { return launch_elems<decltype(elems)::value>(call, 1); });
    }
};

template <class Reduction, class Element>
struct whole {
    static std::int64_t count_blocks(const Params& p) {
        const dim3 grid = cut_whole<Element>(p);
        return is_contiguous(p) ? cut_all<Element>(p).parts : std::int64_t{grid.x} * grid.y;
    }

    static std::int64_t count_parts(const Params& p) { return count_blocks(p) > 1 ? count_blocks(p) : 0; }

    template <bool kIsAtomic>
    static AicfStatus launch_parts(const Call& call, const Target<typename Reduction::State>& target) {
        const Params& p = call.p;
        if (is_contiguous(p)) {
            const Cut cut = cut_all<Element>(p);
            return launch_kernel(reduce_row_parts<kIsAtomic, Reduction, Element, kThreads>, cut.parts, kThreads, 0, call.stream, p, cut,
                                 target);
        }
        return launch_kernel(reduce_whole_parts<kIsAtomic, Reduction, Element, kWholeWidth, kThreads / kWholeWidth>, cut_whole<Element>(p),
                             kThreads, 0, call.stream, p, reads_packs<Element, kWholeWidth>(p), target);
    }

    static AicfStatus launch(const Call& call) {
        const Params& p = call.p;
        AICF_RETURN_IF_NOT_OK(launch_parts<false>(call, find_target<Reduction>(call, count_parts(p))));
        if (count_parts(p) == 0) return make_ok();
        return finish_rows<Reduction, kFinishAllThreads>(call, 1, count_parts(p), p.rows * p.columns);
    }
};

template <class Reduction, class Element>
struct atomic {
    static std::int64_t count_parts(const Params&) { return 0; }

    static AicfStatus launch(const Call& call) {
        if constexpr (!std::is_same_v<typename Reduction::State, float>) {
            return make_unsupported("reduction: this kernel adds floats");
        } else {
            const Params& p = call.p;
            const bool is_all = p.over == AICF_REDUCE_OVER_ALL;
            const std::int64_t count = is_all ? p.rows * p.columns : p.rows;
            const Target<float> target = {nullptr, find_scale(p, count)};
            const std::size_t bytes = sizeof(float) * static_cast<std::size_t>(is_all ? 1 : p.columns);
            AICF_RETURN_IF_CUDA_ERROR(cudaMemsetAsync(p.y, 0, bytes, call.stream));
            if (is_all) return whole<Reduction, Element>::template launch_parts<true>(call, target);
            return launch_column_parts<true, Reduction, Element>(call, target);
        }
    }
};

// Calls `use` with an instance of this build's kernel, by reduction and dtype.
template <class Use>
AicfStatus dispatch(const Params& params, const Use& use) {
    return dispatch_float(params.dtype, [&](auto element) {
        using Element = decltype(element);
        switch (params.reduction) {
            case AICF_REDUCE_REDUCTION_SUM:
            case AICF_REDUCE_REDUCTION_MEAN: return use(AICF_KERNEL<Sum, Element>{}, sizeof(Sum::State));
            case AICF_REDUCE_REDUCTION_SUM_SQUARES:
            case AICF_REDUCE_REDUCTION_L2_NORM: return use(AICF_KERNEL<Squares, Element>{}, sizeof(Squares::State));
            case AICF_REDUCE_REDUCTION_MAX: return use(AICF_KERNEL<Max, Element>{}, sizeof(Max::State));
            case AICF_REDUCE_REDUCTION_MIN: return use(AICF_KERNEL<Min, Element>{}, sizeof(Min::State));
            default: return use(AICF_KERNEL<Argmax, Element>{}, sizeof(Argmax::State));
        }
    });
}

std::size_t count_workspace_bytes(const Params& params) {
    std::size_t bytes = 0;
    dispatch(params, [&](auto kernel, std::size_t state_bytes) {
        bytes = state_bytes * static_cast<std::size_t>(kernel.count_parts(params));
        return make_ok();
    });
    return bytes;
}

AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) {
    return dispatch(params, [&](auto kernel, std::size_t) { return kernel.launch(Call{params, workspace, stream}); });
}

}  // namespace
}  // namespace aicf::reduce

#include "reduce/entry_points.hpp"

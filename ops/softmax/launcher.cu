// How each kernel of softmax is launched.
#include "common/launch.hpp"
#include "common/row_cluster.cuh"
#include "common/vector_access.cuh"
#include "softmax/api.hpp"
#include "softmax/contract.hpp"
#include "softmax/kernels.cu"

namespace aicf::softmax {
namespace {

constexpr int kThreads = kTunables.threads, kRows = kTunables.rows, kElems = kTunables.vectors * 4;

// Of rows of any length: one for both matrices if there is one, else, of 16 bits, that of y, and x has a skew.
template <class Element>
int find_long_boundary(const Params& params) {
    const auto find = [&](const void* x, std::int64_t ldx) {
        return find_common_boundary<Element>(x, ldx, params.y, params.ldy, params.columns, INT64_MAX, kLongBoundary);
    };
    const int common = find(params.x, params.ldx);
    return common != 0 || sizeof(Element) == 4 ? common : find(params.y, params.ldy);
}

// Shorter rows are read by elements: the packs that their ends cut take longer, and longest where two rows lie each in its own way.
template <class Element>
int find_kept_boundary(const Params& params, int capacity) {
    constexpr int kSectorBytes = 32;
    const auto find = [&](const void* x, std::int64_t ldx) {
        return find_common_boundary<Element>(x, ldx, params.y, params.ldy, params.columns, capacity, kSectorBytes);
    };
    if (params.columns < kLeastAlikeKept<Element>) return 0;
    const int common = find(params.x, params.ldx);
    if (common != 0 || sizeof(Element) == 4 || params.columns < kLeastSkewed) return common;
    return find(params.y, params.ldy);
}

template <class Element, bool kIsMasked>
struct naive {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_kernel(softmax_naive<Element, kIsMasked, kThreads>, divide_up(params.rows, kThreads), kThreads, 0, stream, params);
    }
};

template <class Element, bool kIsMasked>
struct warp_per_row {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_kernel(softmax_warp<Element, kIsMasked, kRows>, divide_up(params.rows, kRows), kRows * kWarpSize, 0, stream, params);
    }
};

template <class Element, bool kIsMasked>
struct block_online {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_kernel(softmax_block<Element, kIsMasked, kThreads, RowGroup<kThreads>>, params.rows, kThreads, 0, stream, params,
                             find_long_boundary<Element>(params));
    }
};

template <class Element, bool kIsMasked>
struct cluster_online {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_early(softmax_block<Element, kIsMasked, kThreads, RowCluster<kThreads>>,
                            static_cast<unsigned>(params.rows * kRowCluster), kThreads, 0, kRowCluster, stream, params,
                            find_long_boundary<Element>(params));
    }
};

// Calls launch(is_whole), a constant.
template <class Element, bool kIsMasked, class Launch>
AicfStatus choose_whole(const Params& params, const Launch& launch) {
    if constexpr (!kIsMasked) {
        const bool has_packs = has_pack_rows<Element>(params.x, params.ldx) && has_pack_rows<Element>(params.y, params.ldy);
        if (has_packs && params.columns % kPackElems<Element> == 0) return launch(std::true_type{});
    }
    return launch(std::false_type{});
}

template <class Element, bool kIsMasked>
struct row_in_registers {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return choose_whole<Element, kIsMasked>(params, [&](auto is_whole) {
            return launch_kernel(softmax_registers<Element, kIsMasked, kThreads, kRows, kElems, is_whole.value>,
                                 divide_up(params.rows, kRows), kThreads * kRows, 0, stream, params,
                                 find_kept_boundary<Element>(params, kThreads * kElems));
        });
    }
};

// Rows follow one another, from 16 bytes on.
bool lie_in_run(const Params& params) {
    return params.ldx == params.columns && params.ldy == params.columns && is_vector_aligned(params.x) && is_vector_aligned(params.y);
}

// Rows of whole packs on 16 bytes, and such that do not follow one another, go as in row_in_registers.
template <class Element, bool kIsMasked>
struct rows_in_run {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        if (params.columns % kPackElems<Element> == 0 || !lie_in_run(params)) {
            return row_in_registers<Element, kIsMasked>::launch(params, stream);
        }
        return launch_kernel(softmax_run<Element, kIsMasked, kThreads, kRows, kElems>, divide_up(params.rows, kRows), kThreads * kRows,
                             static_cast<int>(kRows * params.columns * sizeof(Element)), stream, params);
    }
};

// Where rows do not follow one another, none is staged.
template <class Element, bool kIsMasked, auto t = kTunables>
    requires(sizeof(Element) == 4 && !kIsMasked)
struct rows_in_warp {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        const auto launch = [&](auto is_staged) {
            const auto kernel = softmax_warp_rows<kRows, t.elems, t.together, is_staged.value>;
            const std::int64_t floats = is_staged.value ? kRows * t.together * params.columns : 0;
            return launch_kernel(kernel, divide_up(params.rows, kRows * t.together), kRows * kWarpSize,
                                 static_cast<int>(floats * sizeof(float)), stream, params);
        };
        if constexpr (t.staged != 0) {
            if (lie_in_run(params)) return launch(std::true_type{});
        }
        return launch(std::false_type{});
    }
};

template <class Element, bool kIsMasked, auto t = kTunables>
struct row_in_team {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        using Team = RowTeam<t.threads, t.team>;
        return choose_whole<Element, kIsMasked>(params, [&](auto is_whole) {
            return launch_early(softmax_team<Element, kIsMasked, Team, kElems, is_whole.value>,
                                static_cast<unsigned>(params.rows * Team::kBlocks), kThreads, 0, Team::kBlocks, stream, params,
                                find_kept_boundary<Element>(params, Team::kTotalThreads * kElems));
        });
    }
};

template <class Element, bool kIsMasked>
struct row_in_shared {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_kernel(softmax_shared<Element, kIsMasked, kThreads>, params.rows, kThreads,
                             static_cast<int>(find_row_bytes<Element>(params.columns)), stream, params,
                             find_long_boundary<Element>(params));
    }
};

template <class Element, bool kIsMasked>
    requires(sizeof(Element) == 2)
struct half_row_in_shared : row_in_shared<Element, kIsMasked> {};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) {
        using Element = decltype(element);
        if constexpr (requires { typename AICF_KERNEL<Element, false>; }) {
            if (params.mask == AICF_SOFTMAX_MASK_NONE) return AICF_KERNEL<Element, false>::launch(params, stream);
        }
        if constexpr (requires { typename AICF_KERNEL<Element, true>; }) {
            return AICF_KERNEL<Element, true>::launch(params, stream);
        } else {
            return refuse_dtype(params.dtype);  // the kernel's domain has none of these
        }
    });
}

}  // namespace
}  // namespace aicf::softmax

#include "softmax/entry_points.hpp"

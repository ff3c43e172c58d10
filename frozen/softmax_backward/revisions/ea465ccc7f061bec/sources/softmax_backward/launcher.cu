// How each kernel of softmax_backward is launched.
#include <algorithm>

#include "common/launch.hpp"
#include "common/row_cluster.cuh"
#include "softmax_backward/api.hpp"
#include "softmax_backward/contract.hpp"
#include "softmax_backward/kernels.cu"

namespace aicf::softmax_backward {
namespace {

inline constexpr int kThreads = kTunables.threads;

template <class Element, std::int64_t kCapacity, class Launch>
AicfStatus choose_access(const Params& p, const Launch& launch) {
    const bool has_packs =
        has_pack_rows<Element>(p.dy, p.lddy) && has_pack_rows<Element>(p.y, p.ldy) && has_pack_rows<Element>(p.dx, p.lddx);
    const auto lies_as_dx = [&](const void* rows, std::int64_t ld) {
        return find_common_boundary<Element>(rows, ld, p.dx, p.lddx, p.columns, INT64_MAX, 16) != 0;
    };
    const bool lie_alike = lies_as_dx(p.dy, p.lddy) && lies_as_dx(p.y, p.ldy);
    return aicf::choose_access<Element, kCapacity, kLeastAlikeKept<Element>>(p.columns, has_packs && p.columns % kPackElems<Element> == 0,
                                                                             lie_alike, launch);
}

// So many columns pay for the elements at a row's ends that are accessed one by one.
inline constexpr int kLeastEdged = 64;

// Rows of 16 bits that begin anywhere, where a thread has registers for two halves of every pack.
template <class Element, int kRowThreads, int kElems>
constexpr bool may_have_edges(Access access) {
    return sizeof(Element) == 2 && access != Access::kWhole && kRowThreads >= 8 && kRowThreads * kElems < 1024 * 32;
}

template <class Element>
struct naive {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return launch_kernel(softmax_backward_naive<Element, kThreads>, divide_up(params.rows, kThreads), kThreads, 0, stream, params);
    }
};

template <class Element, auto t = kTunables>
struct few_columns {
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        const auto choose_pairs = [](const void* base, std::int64_t stride, const auto& launch) {
            constexpr int kElemBytes = static_cast<int>(sizeof(Element));
            return has_aligned_rows(base, stride, kElemBytes, 2 * kElemBytes) ? launch(std::true_type{}) : launch(std::false_type{});
        };
        return choose_pairs(p.dy, p.lddy, [&](auto dy) {
            return choose_pairs(p.y, p.ldy, [&](auto y) {
                return choose_pairs(p.dx, p.lddx, [&](auto dx) {
                    const auto kernel = softmax_backward_few_columns<Element, kThreads, t.together, dy.value, y.value, dx.value>;
                    return launch_kernel(kernel, divide_up(p.rows, kThreads * t.together), kThreads, 0, stream, p);
                });
            });
        });
    }
};

template <class Element>
struct block_passes {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return choose_access<Element, INT64_MAX>(params, [&](auto access) {
            const auto kernel = softmax_backward_block<Element, kThreads, RowGroup<kThreads>, access.value>;
            return launch_kernel(kernel, params.rows, kThreads, 0, stream, params);
        });
    }
};

template <class Element>
struct cluster_passes {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        return choose_access<Element, INT64_MAX>(params, [&](auto access) {
            const auto kernel = softmax_backward_block<Element, kThreads, RowCluster<kThreads>, access.value>;
            return launch_early(kernel, static_cast<unsigned>(params.rows * kRowCluster), kThreads, 0, kRowCluster, stream, params);
        });
    }
};

template <class Element>
struct split_passes {
    // Parts for two blocks of each multiprocessor, as far as they have a pack for each thread; whole lines of memory.
    static RowParts cut(const Params& p, float* sums) {
        constexpr std::int64_t kBlocks = 2 * kMultiprocessors, kStep = 64;
        const std::int64_t most = divide_up(p.columns, kThreads * kPackElems<Element>);
        const std::int64_t count = std::min<std::int64_t>(divide_up(kBlocks, p.rows), most);
        const std::int64_t columns = divide_up(divide_up(p.columns, count), kStep) * kStep;
        return {static_cast<int>(divide_up(p.columns, columns)), static_cast<int>(columns), sums};
    }

    static std::size_t count_bytes(const Params& p) { return static_cast<std::size_t>(p.rows) * cut(p, nullptr).count * sizeof(float); }

    static AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) {
        return choose_access<Element, INT64_MAX>(params, [&](auto access) {
            const RowParts parts = cut(params, static_cast<float*>(workspace));
            const auto blocks = static_cast<unsigned>(params.rows * parts.count);
            const auto sum = softmax_backward_sum_parts<Element, kThreads, access.value>;
            AICF_RETURN_IF_NOT_OK(launch_kernel(sum, blocks, kThreads, 0, stream, params, parts));
            const auto write = softmax_backward_write_parts<Element, kThreads, access.value>;
            return launch_early(write, blocks, kThreads, 0, 1, stream, params, parts);
        });
    }
};

template <class Element>
struct row_in_registers {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        constexpr int kRows = kTunables.rows, kElems = kTunables.elems;
        return choose_access<Element, kThreads * kElems>(params, [&](auto access) {
            auto kernel = softmax_backward_registers<Element, kThreads, kRows, kElems, access.value>;
            if constexpr (may_have_edges<Element, kThreads, kElems>(access.value)) {
                if (params.columns >= kLeastEdged) kernel = softmax_backward_edged<Element, kThreads, kRows, kElems>;
            }
            return launch_kernel(kernel, divide_up(params.rows, kRows), kThreads * kRows, 0, stream, params);
        });
    }
};

template <class Element, auto t = kTunables>
struct row_in_team {
    static AicfStatus launch(const Params& params, cudaStream_t stream) {
        using Team = RowTeam<t.threads, t.team>;
        constexpr int kElems = t.elems;
        return choose_access<Element, Team::kTotalThreads * kElems>(params, [&](auto access) {
            auto kernel = softmax_backward_team<Element, Team, kElems, access.value>;
            if constexpr (may_have_edges<Element, kThreads, kElems>(access.value)) {
                if (params.columns >= kLeastEdged) kernel = softmax_backward_team_edged<Element, Team, kElems>;
            }
            return launch_early(kernel, static_cast<unsigned>(params.rows * Team::kBlocks), kThreads, 0, Team::kBlocks, stream, params);
        });
    }
};

template <class Element>
    requires(sizeof(Element) == 2)
struct half_row_in_team : row_in_team<Element> {};

std::size_t count_workspace_bytes(const Params& params) {
    std::size_t bytes = 0;
    dispatch_float(params.dtype, [&](auto element) {
        if constexpr (requires { AICF_KERNEL<decltype(element)>::count_bytes(params); }) {
            bytes = AICF_KERNEL<decltype(element)>::count_bytes(params);
        }
        return make_ok();
    });
    return bytes;
}

AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) {
        if constexpr (requires { AICF_KERNEL<decltype(element)>::launch(params, workspace, stream); }) {
            return AICF_KERNEL<decltype(element)>::launch(params, workspace, stream);
        } else if constexpr (requires { typename AICF_KERNEL<decltype(element)>; }) {
            return AICF_KERNEL<decltype(element)>::launch(params, stream);
        } else {
            return refuse_dtype(params.dtype);
        }
    });
}

}  // namespace
}  // namespace aicf::softmax_backward

#include "softmax_backward/entry_points.hpp"

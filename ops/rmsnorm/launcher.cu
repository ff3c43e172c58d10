// How each kernel of rmsnorm is launched.
#include "common/launch.hpp"
#include "common/row_cluster.cuh"
#include "rmsnorm/api.hpp"
#include "rmsnorm/contract.hpp"
#include "rmsnorm/kernels.cu"

namespace aicf::rmsnorm {
namespace {

inline constexpr bool kIsCentred = false;
inline constexpr int kThreads = kTunables.threads;

template <class Element>
Norm<Element> read_params(const Params& p) {
    return {static_cast<const Element*>(p.x),
            static_cast<const Element*>(p.residual),
            static_cast<const Element*>(p.weight),
            nullptr,
            static_cast<Element*>(p.y),
            static_cast<Element*>(p.sum),
            nullptr,
            p.rstd,
            p.rows,
            p.columns,
            p.ldx,
            p.ldresidual,
            p.ldy,
            p.ldsum,
            p.eps};
}

template <class Element>
struct naive {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return launch_kernel(norm_naive<kIsCentred, Element, kThreads>, divide_up(norm.rows, kThreads), kThreads, 0, stream, norm);
    }
};

template <class Element>
struct block_passes {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return choose_access<INT64_MAX>(norm, [&](auto access) {
            const auto kernel = norm_passes<kIsCentred, Element, kThreads, RowGroup<kThreads>, access.value>;
            return launch_kernel(kernel, norm.rows, kThreads, 0, stream, norm);
        });
    }
};

template <class Element>
struct cluster_passes {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return choose_access<INT64_MAX>(norm, [&](auto access) {
            const auto kernel = norm_passes<kIsCentred, Element, kThreads, RowCluster<kThreads>, access.value>;
            return launch_early(kernel, static_cast<unsigned>(norm.rows * kRowCluster), kThreads, 0, kRowCluster, stream, norm);
        });
    }
};

template <class Element>
struct row_in_registers {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        constexpr int kRows = kTunables.rows, kElems = kTunables.elems;
        return choose_access<kThreads * kElems>(norm, [&](auto access) {
            const auto kernel = norm_registers<kIsCentred, Element, kThreads, kRows, kElems, access.value>;
            return launch_kernel(kernel, divide_up(norm.rows, kRows), kThreads * kRows, 0, stream, norm);
        });
    }
};

// Rows of whole packs, and such that do not follow one another, go as in row_in_registers.
template <class Element>
struct rows_in_run {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        constexpr int kRows = kTunables.rows;
        if (has_whole_packs(norm) || !follow_in_runs(norm)) return row_in_registers<Element>::launch(norm, stream);
        const auto bytes = static_cast<int>((norm.residual == nullptr ? 1 : 2) * kRows * norm.columns * sizeof(Element));
        return launch_kernel(norm_run<kIsCentred, Element, kThreads, kRows, kTunables.elems>, divide_up(norm.rows, kRows), kThreads * kRows,
                             bytes, stream, norm);
    }
};

template <class Element, auto t = kTunables>
struct row_in_team {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        using Team = RowTeam<t.threads, t.team>;
        constexpr int kElems = t.elems;
        return choose_access<Team::kTotalThreads * kElems>(norm, [&](auto access) {
            const auto kernel = norm_team<kIsCentred, Element, Team, kElems, access.value>;
            return launch_early(kernel, static_cast<unsigned>(norm.rows * Team::kBlocks), kThreads, 0, Team::kBlocks, stream, norm);
        });
    }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) {
        using Element = decltype(element);
        return AICF_KERNEL<Element>::launch(read_params<Element>(params), stream);
    });
}

}  // namespace
}  // namespace aicf::rmsnorm

#include "rmsnorm/entry_points.hpp"

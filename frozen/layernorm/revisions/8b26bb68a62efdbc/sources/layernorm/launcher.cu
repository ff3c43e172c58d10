// How each kernel of layernorm is launched.
#include "common/launch.hpp"
#include "common/norm_run.cuh"
#include "common/row_cluster.cuh"
#include "layernorm/api.hpp"
#include "layernorm/contract.hpp"
#include "layernorm/kernels.cu"

namespace aicf::layernorm {
namespace {

inline constexpr bool kIsCentred = true;
inline constexpr int kThreads = kTunables.threads;

template <class Element>
Norm<Element> read_params(const Params& p) {
    return {static_cast<const Element*>(p.x),
            static_cast<const Element*>(p.residual),
            static_cast<const Element*>(p.weight),
            static_cast<const Element*>(p.bias),
            static_cast<Element*>(p.y),
            static_cast<Element*>(p.sum),
            p.mean,
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

template <int kLanes, int kRows, int kElems, class Element>
AicfStatus launch_registers(const Norm<Element>& norm, cudaStream_t stream) {
    return choose_access<kLanes * kElems>(norm, [&](auto access) {
        const auto kernel = norm_registers<kIsCentred, Element, kLanes, kRows, kElems, access.value>;
        return launch_kernel(kernel, divide_up(norm.rows, kRows), kLanes * kRows, 0, stream, norm);
    });
}

template <class Element>
struct row_in_registers {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return launch_registers<kThreads, kTunables.rows, kTunables.elems>(norm, stream);
    }
};

// Rows without whole packs go as in row_in_registers.
template <class Element, auto t = kTunables>
struct rows_together {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        if (!has_whole_packs(norm)) return launch_registers<kThreads, t.rows, t.elems>(norm, stream);
        return launch_kernel(norm_together<kIsCentred, Element, kThreads, t.rows, t.elems, t.together>,
                             divide_up(norm.rows, t.rows * t.together), kThreads * t.rows, 0, stream, norm);
    }
};

// Rows that do not lie in runs, or that are whole packs, go as in row_in_registers.
template <class Element, auto t = kTunables>
struct rows_in_run {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        constexpr int kElems = 8, kLanes = kRunElems / t.rows / kElems;
        return launch_runs<kIsCentred, kThreads, t.rows>(norm, stream,
                                                         [&] { return launch_registers<kLanes, 128 / kLanes, kElems>(norm, stream); });
    }
};

// Rows of which a multiprocessor holds no two go as in block_passes.
template <class Element>
struct row_in_shared {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        constexpr std::int64_t kMostBytes = 110 * 1024;
        const std::int64_t bytes = (norm.residual == nullptr ? 1 : 2) * find_row_bytes<Element>(norm.columns);
        if (bytes > kMostBytes) return block_passes<Element>::launch(norm, stream);
        return choose_access<INT64_MAX>(norm, [&](auto access) {
            return launch_kernel(norm_shared<kIsCentred, Element, kThreads, access.value>, norm.rows, kThreads, static_cast<int>(bytes),
                                 stream, norm);
        });
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
}  // namespace aicf::layernorm

#include "layernorm/entry_points.hpp"

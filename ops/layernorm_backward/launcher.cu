// How each kernel of layernorm_backward is launched.
#include <algorithm>

#include "common/launch.hpp"
#include "common/row_cluster.cuh"
#include "layernorm_backward/api.hpp"
#include "layernorm_backward/contract.hpp"
#include "layernorm_backward/kernels.cu"

namespace aicf::layernorm_backward {
namespace {

inline constexpr bool kIsCentred = true;
inline constexpr int kThreads = kTunables.threads;

template <class Element>
NormGradient<Element> read_params(const Params& p, void* workspace, std::int64_t num_partials) {
    return {static_cast<const Element*>(p.dy),
            static_cast<const Element*>(p.x),
            static_cast<const Element*>(p.weight),
            static_cast<const Element*>(p.dsum),
            p.mean,
            p.rstd,
            static_cast<Element*>(p.dx),
            static_cast<Element*>(p.dweight),
            static_cast<Element*>(p.dbias),
            p.rows,
            p.columns,
            p.lddy,
            p.ldx,
            p.lddsum,
            p.lddx,
            static_cast<float*>(workspace),
            static_cast<int>(num_partials)};
}

// With as many threads a column as have two partial sums or more to add.
template <class Element>
AicfStatus finish(const NormGradient<Element>& norm, cudaStream_t stream) {
    const auto run = [&](auto kernel, int threads) {
        return launch_kernel(kernel, divide_up(norm.columns, kColumnWidth), threads, 0, stream, norm);
    };
    return norm.num_partials > 64 ? run(norm_backward_finish<kIsCentred, Element, 1024>, 1024)
                                  : run(norm_backward_finish<kIsCentred, Element, 256>, 256);
}

template <class Element>
struct naive {
    static std::int64_t count_partials(const Params&) { return 0; }

    static AicfStatus launch(const NormGradient<Element>& norm, cudaStream_t stream) {
        AICF_RETURN_IF_NOT_OK(
            launch_kernel(norm_backward_naive<kIsCentred, Element, kThreads>, divide_up(norm.rows, kThreads), kThreads, 0, stream, norm));
        return launch_kernel(norm_backward_columns_naive<Element, kThreads>, divide_up(norm.columns, kThreads), kThreads, 0, stream, norm);
    }
};

// dweight and dbias by slabs of rows, behind a first pass for dx.
struct Slabs {
    static constexpr int kSlabThreads = 256, kSlabRows = kSlabThreads / kColumnWidth;

    static std::int64_t count_partials(const Params& p) { return count_slabs(p.rows, p.columns, kSlabRows, kTunables.blocks); }

    template <class Element>
    static AicfStatus add_up(const NormGradient<Element>& norm, cudaStream_t stream) {
        const dim3 grid(static_cast<unsigned>(divide_up(norm.columns, kColumnWidth * kPackElems<Element>)),
                        static_cast<unsigned>(norm.num_partials));
        AICF_RETURN_IF_NOT_OK(choose_access<INT64_MAX>(norm, [&](auto access) {
            return launch_kernel(norm_backward_columns<kIsCentred, Element, kSlabThreads, access.value>, grid, kSlabThreads, 0, stream,
                                 norm);
        }));
        return norm.num_partials > 1 ? finish(norm, stream) : make_ok();
    }
};

template <class Element>
struct block_passes : Slabs {
    static AicfStatus launch(const NormGradient<Element>& norm, cudaStream_t stream) {
        AICF_RETURN_IF_NOT_OK(choose_access<INT64_MAX>(norm, [&](auto access) {
            const auto kernel = norm_backward_passes<kIsCentred, Element, kThreads, RowGroup<kThreads>, access.value>;
            return launch_kernel(kernel, norm.rows, kThreads, 0, stream, norm);
        }));
        return add_up(norm, stream);
    }
};

template <class Element>
struct cluster_passes : Slabs {
    static AicfStatus launch(const NormGradient<Element>& norm, cudaStream_t stream) {
        AICF_RETURN_IF_NOT_OK(choose_access<INT64_MAX>(norm, [&](auto access) {
            const auto kernel = norm_backward_passes<kIsCentred, Element, kThreads, RowCluster<kThreads>, access.value>;
            return launch_early(kernel, static_cast<unsigned>(norm.rows * kRowCluster), kThreads, 0, kRowCluster, stream, norm);
        }));
        return add_up(norm, stream);
    }
};

template <class Element>
struct rows_in_registers {
    static std::int64_t count_partials(const Params& p) {
        return std::min<std::int64_t>(divide_up(p.rows, kTunables.rows), kTunables.blocks);
    }

    static AicfStatus launch(NormGradient<Element> norm, cudaStream_t stream) {
        constexpr int kRows = kTunables.rows, kElems = kTunables.elems;
        AICF_RETURN_IF_NOT_OK(choose_access<kThreads * kElems>(norm, [&](auto access) {
            if constexpr (access.value == Access::kByElement) {
                const auto kernel = norm_backward_registers<kIsCentred, Element, kThreads, kRows, kElems>;
                return launch_kernel(kernel, norm.num_partials, kThreads * kRows, 0, stream, norm);
            } else {
                // Fewer blocks, of a number that lets rows of any stride lie alike.
                if (!has_steady_rows(norm, std::int64_t{kRows} * norm.num_partials))
                    norm.num_partials -= norm.num_partials % kPackElems<Element>;
                const auto kernel = norm_backward_packs<kIsCentred, Element, kThreads, kRows, kElems, access.value>;
                return launch_kernel(kernel, norm.num_partials, kThreads * kRows, 0, stream, norm);
            }
        }));
        return finish(norm, stream);
    }
};

std::size_t count_workspace_bytes(const Params& params) {
    return kNumSums<kIsCentred> * sizeof(float) * static_cast<std::size_t>(AICF_KERNEL<float>::count_partials(params) * params.columns);
}

AicfStatus launch(const Params& params, void* workspace, cudaStream_t stream) {
    return dispatch_float(params.dtype, [&](auto element) {
        using Kernel = AICF_KERNEL<decltype(element)>;
        return Kernel::launch(read_params<decltype(element)>(params, workspace, Kernel::count_partials(params)), stream);
    });
}

}  // namespace
}  // namespace aicf::layernorm_backward

#include "layernorm_backward/entry_points.hpp"

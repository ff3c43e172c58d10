// How the kernels of common/norm_backward.cuh are launched: for layernorm_backward and rmsnorm_backward alike, `t` being the op's tunables.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/launch.hpp"
#include "common/norm_backward.cuh"
#include "common/norm_backward_beside.cuh"
#include "common/row_cluster.cuh"

namespace aicf::norm_backward {

// With as many threads a column as have two partial sums or more to add.
template <bool kIsCentred, class Element>
AicfStatus finish(const NormGradient<Element>& norm, cudaStream_t stream) {
    const auto run = [&](auto kernel, int threads) {
        return launch_early(kernel, static_cast<unsigned>(divide_up(norm.columns, kColumnWidth)), threads, 0, 1, stream, norm);
    };
    return norm.num_partials > 64 ? run(norm_backward_finish<kIsCentred, Element, 1024>, 1024)
                                  : run(norm_backward_finish<kIsCentred, Element, 256>, 256);
}

template <bool kIsCentred, auto t, class Element>
struct naive {
    static std::int64_t count_partials(std::int64_t /*rows*/, std::int64_t /*columns*/) { return 0; }

    static AicfStatus launch(const NormGradient<Element>& norm, cudaStream_t stream) {
        AICF_RETURN_IF_NOT_OK(launch_kernel(norm_backward_naive<kIsCentred, Element, t.threads>, divide_up(norm.rows, t.threads), t.threads,
                                            0, stream, norm));
        return launch_kernel(norm_backward_columns_naive<Element, t.threads>, divide_up(norm.columns, t.threads), t.threads, 0, stream,
                             norm);
    }
};

// dweight and dbias by slabs of rows, beside a pass for dx.
template <bool kIsCentred, auto t, class Element>
struct Slabs {
    static constexpr int kThreads = 256, kRows = kThreads / kColumnWidth;

    static std::int64_t count_partials(std::int64_t rows, std::int64_t columns) { return count_slabs(rows, columns, kRows, t.blocks); }

    static AicfStatus add_up(const NormGradient<Element>& norm, cudaStream_t stream) {
        const dim3 grid(static_cast<unsigned>(divide_up(norm.columns, kColumnWidth * kPackElems<Element>)),
                        static_cast<unsigned>(norm.num_partials));
        AICF_RETURN_IF_NOT_OK(choose_access<INT64_MAX>(norm, [&](auto access) {
            return launch_early(norm_backward_columns<kIsCentred, Element, kThreads, access.value>, grid, kThreads, 0, 1, stream, norm);
        }));
        return norm.num_partials > 1 ? finish<kIsCentred>(norm, stream) : make_ok();
    }
};

template <bool kIsCentred, auto t, class Element>
struct block_passes : Slabs<kIsCentred, t, Element> {
    static AicfStatus launch(const NormGradient<Element>& norm, cudaStream_t stream) {
        AICF_RETURN_IF_NOT_OK(choose_access<INT64_MAX>(norm, [&](auto access) {
            const auto kernel = norm_backward_passes<kIsCentred, Element, t.threads, RowGroup<t.threads>, access.value>;
            return launch_kernel(kernel, norm.rows, t.threads, 0, stream, norm);
        }));
        return block_passes::add_up(norm, stream);
    }
};

template <bool kIsCentred, auto t, class Element>
struct cluster_passes : Slabs<kIsCentred, t, Element> {
    static AicfStatus launch(const NormGradient<Element>& norm, cudaStream_t stream) {
        AICF_RETURN_IF_NOT_OK(choose_access<INT64_MAX>(norm, [&](auto access) {
            const auto kernel = norm_backward_passes<kIsCentred, Element, t.threads, RowCluster<t.threads>, access.value>;
            return launch_early(kernel, static_cast<unsigned>(norm.rows * kRowCluster), t.threads, 0, kRowCluster, stream, norm);
        }));
        return cluster_passes::add_up(norm, stream);
    }
};

// Blocks, or teams of them, that stay: a multiple of kMultiprocessors.
template <bool kIsCentred, auto t, class Element, class Group>
struct Staying {
    static std::int64_t count_partials(std::int64_t rows, std::int64_t /*columns*/) {
        return std::min<std::int64_t>(divide_up(rows, kRowsAtOnce<Group>), t.blocks / Group::kBlocks);
    }

    static AicfStatus launch(NormGradient<Element> norm, cudaStream_t stream) {
        constexpr int kElems = t.elems;
        AICF_RETURN_IF_NOT_OK(choose_access<Group::kTotalThreads * kElems>(norm, [&](auto access) {
            if constexpr (access.value == Access::kByElement) {
                // No more blocks than stay at once.
                norm.num_partials = std::min(norm.num_partials, kMultiprocessors * kResidentByElement<Group, kElems>);
                return run(norm_backward_registers<kIsCentred, Element, Group, kElems>, norm, stream);
            } else {
                // No more blocks than stay at once.
                if (access.value == Access::kPacked)
                    norm.num_partials = std::min(norm.num_partials, kMultiprocessors * kResidentEdges<kIsCentred, Element, Group, kElems>);
                // Fewer, of a number that lets rows of any stride lie alike.
                if (!has_steady_rows(norm, std::int64_t{kRowsAtOnce<Group>} * norm.num_partials))
                    norm.num_partials -= norm.num_partials % kPackElems<Element>;
                if constexpr (access.value == Access::kWhole) {
                    return run(norm_backward_packs<kIsCentred, Element, Group, kElems>, norm, stream);
                } else {
                    return run(norm_backward_edges<kIsCentred, Element, Group, kElems>, norm, stream);
                }
            }
        }));
        return finish<kIsCentred>(norm, stream);
    }

private:
    static AicfStatus run(void (*kernel)(NormGradient<Element>), const NormGradient<Element>& norm, cudaStream_t stream) {
        if constexpr (Group::kBlocks == 1) return launch_kernel(kernel, norm.num_partials, Group::kBlockThreads, 0, stream, norm);
        return launch_early(kernel, static_cast<unsigned>(norm.num_partials * Group::kBlocks), Group::kBlockThreads, 0, Group::kBlocks,
                            stream, norm);
    }
};

template <bool kIsCentred, auto t, class Element>
struct rows_in_registers : Staying<kIsCentred, t, Element, RowGroup<t.threads, t.rows>> {};

template <bool kIsCentred, auto t, class Element>
struct rows_in_teams : Staying<kIsCentred, t, Element, RowTeam<t.threads, t.team>> {};

template <bool kIsCentred, auto t, class Element>
struct rows_beside_columns {
    static std::int64_t count_partials(std::int64_t /*rows*/, std::int64_t /*columns*/) { return 0; }

    static AicfStatus launch(const NormGradient<Element>& norm, cudaStream_t stream) {
        constexpr int kThreads = t.threads * t.rows;
        const auto launch = [&](auto is_whole) {
            const auto blocks = divide_up(norm.columns, ColumnSums<kIsCentred, Element, kThreads, is_whole.value>::kColumns);
            return launch_kernel(norm_backward_beside<kIsCentred, Element, t.threads, t.rows, t.elems, is_whole.value>,
                                 static_cast<unsigned>(blocks + divide_up(norm.rows, t.rows)), kThreads, 0, stream, norm,
                                 static_cast<int>(blocks));
        };
        return has_whole_packs(norm) ? launch(std::true_type{}) : launch(std::false_type{});
    }
};

}  // namespace aicf::norm_backward

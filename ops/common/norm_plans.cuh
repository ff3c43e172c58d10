// How the kernels of common/norm.cuh are launched: for layernorm and rmsnorm alike, `t` being the op's tunables.
#pragma once

#include <cstdint>

#include "common/launch.hpp"
#include "common/norm.cuh"
#include "common/norm_run.cuh"
#include "common/norm_stages.cuh"
#include "common/norm_words.cuh"
#include "common/row_cluster.cuh"

namespace aicf::norm {

template <bool kIsCentred, auto t, class Element>
struct naive {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return launch_kernel(norm_naive<kIsCentred, Element, t.threads>, divide_up(norm.rows, t.threads), t.threads, 0, stream, norm);
    }
};

template <bool kIsCentred, auto t, class Element>
struct block_passes {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return choose_access<INT64_MAX>(norm, [&](auto access) {
            const auto kernel = norm_passes<kIsCentred, Element, t.threads, RowGroup<t.threads>, access.value>;
            return launch_kernel(kernel, norm.rows, t.threads, 0, stream, norm);
        });
    }
};

template <bool kIsCentred, auto t, class Element>
struct cluster_passes {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return choose_access<INT64_MAX>(norm, [&](auto access) {
            const auto kernel = norm_passes<kIsCentred, Element, t.threads, RowCluster<t.threads>, access.value>;
            return launch_early(kernel, static_cast<unsigned>(norm.rows * kRowCluster), t.threads, 0, kRowCluster, stream, norm);
        });
    }
};

template <bool kIsCentred, int kLanes, int kRows, int kElems, Access kAccess, class Element>
AicfStatus launch_registers(const Norm<Element>& norm, cudaStream_t stream) {
    const auto kernel = norm_registers<kIsCentred, Element, kLanes, kRows, kElems, kAccess>;
    return launch_kernel(kernel, divide_up(norm.rows, kRows), kLanes * kRows, 0, stream, norm);
}

template <bool kIsCentred, int kLanes, int kRows, int kElems, class Element>
AicfStatus launch_registers(const Norm<Element>& norm, cudaStream_t stream) {
    return choose_access<kLanes * kElems>(
        norm, [&](auto access) { return launch_registers<kIsCentred, kLanes, kRows, kElems, access.value>(norm, stream); });
}

template <bool kIsCentred, auto t, class Element>
struct row_in_registers {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return launch_registers<kIsCentred, t.threads, t.rows, t.elems>(norm, stream);
    }
};

// Rows without whole packs go as in row_in_registers.
template <bool kIsCentred, auto t, class Element>
struct rows_together {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        if (!has_whole_packs(norm)) return launch_registers<kIsCentred, t.threads, t.rows, t.elems>(norm, stream);
        return launch_kernel(norm_together<kIsCentred, Element, t.threads, t.rows, t.elems, t.together>,
                             divide_up(norm.rows, t.rows * t.together), t.threads * t.rows, 0, stream, norm);
    }
};

// Rows of 16 bits of whole packs go as in row_in_registers. Those of fp32 are taken by warps, whatever a group is.
template <bool kIsCentred, auto t, class Element>
struct row_in_words {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        if constexpr (sizeof(Element) == 2) {
            const auto launch = [&](auto is_alike) {
                return launch_kernel(norm_words<kIsCentred, Element, t.threads, t.rows, t.elems, is_alike.value>,
                                     divide_up(norm.rows, t.rows), t.threads * t.rows, 0, stream, norm);
            };
            if (!has_whole_packs(norm)) return lie_alike_in_words(norm) ? launch(std::true_type{}) : launch(std::false_type{});
            return launch_registers<kIsCentred, t.threads, t.rows, t.elems, Access::kWhole>(norm, stream);
        } else {
            constexpr int kMostWords = t.threads * t.elems / kWarpSize, kStep = kMostWords > 16 ? 4 : 2, kWarps = 4;
            constexpr int kTogether = kMostWords > 16 ? 1 : kMostWords > 8 ? 2 : 4;
            return choose_words<kMostWords, kStep>(norm.columns, [&](auto words, auto sure) {
                return launch_kernel(norm_word_rows<kIsCentred, words.value, sure.value, kTogether, kWarps>,
                                     divide_up(norm.rows, kWarps * kTogether), kWarps * kWarpSize, 0, stream, norm);
            });
        }
    }
};

// Rows that do not lie in runs, or that are whole packs, go as in row_in_registers.
template <bool kIsCentred, auto t, class Element>
struct rows_in_run {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        constexpr int kElems = 8, kLanes = kRunElems / t.rows / kElems;
        return launch_runs<kIsCentred, t.threads, t.rows>(
            norm, stream, [&] { return launch_registers<kIsCentred, kLanes, 128 / kLanes, kElems>(norm, stream); });
    }
};

// Rows of which a multiprocessor holds no two go as in block_passes.
template <bool kIsCentred, auto t, class Element>
struct row_in_shared {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        constexpr std::int64_t kMostBytes = 110 * 1024;
        const std::int64_t bytes = (norm.residual == nullptr ? 1 : 2) * find_row_bytes<Element>(norm.columns);
        if (bytes > kMostBytes) return block_passes<kIsCentred, t, Element>::launch(norm, stream);
        return choose_access<INT64_MAX>(norm, [&](auto access) {
            return launch_kernel(norm_shared<kIsCentred, Element, t.threads, access.value>, norm.rows, t.threads, static_cast<int>(bytes),
                                 stream, norm);
        });
    }
};

// Rows of which shared memory holds no two, and short ones of 16 bits that are no whole packs, go as in block_passes.
template <bool kIsCentred, auto t, class Element>
struct rows_in_stages {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        return choose_access<INT64_MAX>(norm, [&](auto access) {
            if constexpr (access.value != Access::kByElement || sizeof(Element) == 4) {
                const NormStages plan = find_stages<kIsCentred, access.value>(norm, 1024 / t.threads);
                const std::int64_t resident = static_cast<std::int64_t>(kMultiprocessors) * plan.blocks;
                if (plan.bytes > 0) {
                    return launch_kernel(norm_stages<kIsCentred, Element, t.threads, access.value>,
                                         norm.rows < resident ? norm.rows : resident, t.threads, static_cast<int>(plan.bytes), stream, norm,
                                         plan);
                }
            }
            return block_passes<kIsCentred, t, Element>::launch(norm, stream);
        });
    }
};

template <bool kIsCentred, auto t, class Element>
struct row_in_team {
    static AicfStatus launch(const Norm<Element>& norm, cudaStream_t stream) {
        using Team = RowTeam<t.threads, t.team>;
        constexpr int kElems = t.elems;
        return choose_access<Team::kTotalThreads * kElems>(norm, [&](auto access) {
            const auto kernel = norm_team<kIsCentred, Element, Team, kElems, access.value>;
            return launch_early(kernel, static_cast<unsigned>(norm.rows * Team::kBlocks), t.threads, 0, Team::kBlocks, stream, norm);
        });
    }
};

}  // namespace aicf::norm

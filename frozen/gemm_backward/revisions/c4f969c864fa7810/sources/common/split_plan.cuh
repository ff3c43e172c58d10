// On the host: the grid of a product whose steps of k are split where that gains, its workspace, and what clears its flags.
#pragma once

#include <cstdint>
#include <type_traits>

#include "common/launch.hpp"
#include "common/split_order.cuh"

namespace aicf {

// What dealing steps out costs where rows of the result are the columns of tiles, by 1400 pairs of times with and without on an H200.
inline constexpr JoinCost kTurnedJoin = {16, 30};

template <class Config, bool kHasSecondKernel, bool kTurned>
struct SplitPlan {
    using L = WgmmaLayout<Config>;
    std::conditional_t<Config::is_even, EvenSplitGrid, SplitGrid> grid;
    SplitWorkspace workspace;

    // For a result of m rows and n columns, which are the tiles' columns and rows where kTurned.
    static AicfStatus make(std::int64_t m, std::int64_t n, std::int64_t k, SplitPlan* result) {
        // A ring of steps is on its way at once: fewer of them a cluster take as long.
        constexpr int kLeastSteps = Config::stages;
        int num_sms = 0;
        AICF_RETURN_IF_NOT_OK(count_multiprocessors(&num_sms));
        const std::int64_t rows = kTurned ? n : m;
        const std::int64_t columns = kTurned ? m : n;
        constexpr JoinCost kCost = kTurned ? kTurnedJoin : JoinCost{count_join_steps<Config>()};
        const int num_clusters = count_resident_clusters(num_sms, L::kClusterSize);
        if constexpr (Config::is_even) {
            result->grid = split_evenly<Config>(rows, columns, k, num_clusters, kCost, kLeastSteps);
        } else {
            result->grid = split_tile_grid(make_tile_grid<Config>(rows, columns, k), num_clusters, kCost, kLeastSteps);
        }
        result->workspace = plan_split_workspace<Config>(result->grid, kHasSecondKernel);
        return make_ok();
    }

    // Gives the grid its workspace, and clears the flags in it.
    AicfStatus prepare(void* base, cudaStream_t stream) {
        grid.slots = static_cast<float*>(base);
        grid.flags = reinterpret_cast<std::uint32_t*>(static_cast<std::uint8_t*>(base) + workspace.slot_bytes);
        if (workspace.num_flags == 0) return make_ok();
        return launch_early(clear_flags<std::uint32_t>, dim3(1), 256, 0, 1, stream, grid.flags, workspace.num_flags);
    }

    dim3 count_blocks() const { return dim3(static_cast<unsigned>(grid.num_clusters * L::kClusterSize)); }
};

}  // namespace aicf

// On the host: which tiles, and how many blocks for the k of each, boxed_evenly.cuh takes for a product, by the time of the busiest
// multiprocessor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/ffma_tiles.cuh"
#include "common/launch.hpp"
#include "common/split_order.cuh"

namespace aicf {

struct EvenShape {
    int thread_rows, splits;
};

// D[rows, columns] = A B over k, and what it costs in cycles: those of the least error over the times of 346 launches of gemm_bias_act's
// kernel on an H200, of all four variants, with bk = 16 (profiles/gemm_bias_act/NOTES.md).
struct EvenProduct {
    std::int64_t rows, columns, k;
    int least_steps;              // of k that the last tile is cut down to multiples of
    double step = 0.0;            // a step of k beside its products: kTurningStep where B is transposed
    double product = 1.05;        // a row of a warp's tile and step of k: its products, and the instructions between them
    double leaving = 35.0;        // a row of the tile, whose sums are joined and stored
    double waiting = 280.0;       // a wave and tile of k: its barriers
    double waiting_share = 0.16;  // and of a block's products, what no other block hides

    static constexpr double kTurningStep = 5.0;
};

// Of the busiest multiprocessor, and of one if all had as much to do, in cycles.
struct EvenTime {
    double span, work;
};

// Of the tunables of a kernel: bm, bn, bk, stages, minblocks and splits.
template <auto t>
struct EvenShapes {
    static constexpr int kThreads = 128;
    static constexpr int kMostRows = t.bm / 8, kLeastRows = t.bm / 16;  // of a thread
    static constexpr int kSlices = kThreads / t.bn;

    // Where fewer rows, or tiles that are not transposed, leave room, the ring has more stages.
    static constexpr int count_stages(int rows, bool turns_a, bool turns_b) {
        constexpr int kPadding = kVectorElems;
        constexpr int kElems = t.stages * (t.bm + t.bn) * t.bk + 2 * t.bk * (t.bm + t.bn + 2 * kPadding);
        const int turned = 2 * t.bk * ((turns_a ? rows + kPadding : 0) + (turns_b ? t.bn + kPadding : 0));
        return (kElems - turned) / ((rows + t.bn) * t.bk);
    }

    static std::int64_t count_tiles(const EvenProduct& product, int rows) {
        return divide_up(product.rows, std::int64_t{rows}) * divide_up(product.columns, std::int64_t{t.bn});
    }

    // A block has a warp on each of its schedulers, so that blocks take turns at products and share what a wave of them waits for.
    static EvenTime estimate(const EvenProduct& product, EvenShape shape, int num_sms) {
        constexpr int kBlocks = t.minblocks;
        const int rows = shape.thread_rows * 8, splits = shape.splits;
        const std::int64_t num_tiles = count_tiles(product, rows);
        const std::int64_t at_once = count_resident_clusters(num_sms, splits, kBlocks);
        const std::int64_t whole_waves = num_tiles / at_once;
        const std::int64_t num_left = num_tiles - whole_waves * at_once;
        int last_blocks = 0;  // of a multiprocessor in the last wave
        while (num_left > 0 && (last_blocks == 0 || count_resident_clusters(num_sms, splits, last_blocks) < num_left)) ++last_blocks;
        // Behind a whole wave, clusters begin where the first ones end, and not one block to a multiprocessor.
        if (splits > 1 && whole_waves > 0 && last_blocks == 1) last_blocks = std::min(2, kBlocks);
        const auto num_blocks = static_cast<double>(whole_waves * kBlocks + last_blocks);
        const auto num_waves = static_cast<double>(whole_waves + (num_left > 0));
        const std::int64_t steps = divide_up(product.k, std::int64_t{product.least_steps}) * product.least_steps;
        const std::int64_t part = divide_up(divide_up(product.k, std::int64_t{t.bk}), std::int64_t{splits}) * t.bk;
        const auto depth = static_cast<double>(splits == 1 ? steps : part) / t.bk;  // tiles of k
        constexpr double kWarpSteps = t.bk * t.bn / 128.0;  // of a tile of k, whose steps slices share
        const double products = depth * kWarpSteps * (product.product * rows + product.step);
        const double block = products + product.leaving * rows;
        const double wave = depth * product.waiting + product.waiting_share * products;
        return {num_blocks * block + num_waves * wave, static_cast<double>(num_tiles * splits) / num_sms * (block + wave / kBlocks)};
    }

    // Calls launch(rows), a constant, with the rows of a thread.
    template <int kThreadRows = kMostRows, class Launch>
    static AicfStatus dispatch_rows(int thread_rows, const Launch& launch) {
        if constexpr (kThreadRows > kLeastRows) {
            if (thread_rows < kThreadRows) return dispatch_rows<kThreadRows - 1>(thread_rows, launch);
        }
        return launch(std::integral_constant<int, kThreadRows>{});
    }

    // The shape of the least `weigh(time)`.
    template <class Weigh>
    static EvenShape find(const EvenProduct& product, int num_sms, Weigh weigh) {
        const std::int64_t num_steps = divide_up(product.k, std::int64_t{t.bk});
        EvenShape best = {kMostRows, 1};
        double least = weigh(estimate(product, best, num_sms));
        const auto count_row_tiles = [&](int rows) { return divide_up(product.rows, std::int64_t{rows} * 8); };
        for (int rows = kMostRows; rows >= kLeastRows; --rows) {
            if (rows > kLeastRows && count_row_tiles(rows - 1) == count_row_tiles(rows)) continue;  // fewer rows are as many tiles
            for (int splits = 1; splits <= t.splits && splits * 2 <= std::max<std::int64_t>(num_steps, 2); ++splits) {
                const double time = weigh(estimate(product, {rows, splits}, num_sms));
                if (time < least) {
                    least = time;
                    best = {rows, splits};
                }
            }
        }
        return best;
    }
};

// The tensor map of an operand of so many rows or columns of the tile.
template <bool kTurned>
AicfStatus encode_even_operand(CUtensorMap* map, const void* base, std::int64_t size, std::int64_t k, std::int64_t stride, int tile,
                               int tile_k) {
    constexpr auto kType = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    if (kTurned) return encode_tensor_map(map, {base, size, k, stride, kType, 4, tile, tile_k, tile_k * 4});
    return encode_tensor_map(map, {base, k, size, stride, kType, 4, tile_k, tile, 0});
}

}  // namespace aicf

// Small tiles of words of one piece of two or three axes: the grid counts tiles, so that a block knows its own without a division.
#pragma once

#include <cstdint>

#include "strided_copy/packed.cuh"
#include "strided_copy/pieces.cuh"

namespace aicf::strided_copy {

// Every thread has two accesses of 16 bytes under way, or more that are narrower.
inline constexpr int kPanelThreads = 128;
inline constexpr int kLogPanelLines = 5;
inline constexpr int find_resident_panels(int log_x) { return log_x >= 3 ? 16 : log_x == 2 ? 12 : 8; }

// The axes are those of a piece that is packed, steps are in bytes.
struct Panels {
    const char* x;
    char* y;
    std::int64_t x_next, y_next;   // from one place of the third axis to the next
    int num_down, num_across;
    int x_step, y_step;            // from line to line in x, from column to column in y
    int log_down, log_across;
};

// A block's tile, as TilePart has it.
struct Panel {
    const char* x;
    char* y;
    int num_down, num_across;
    int log_down;
    int x_step, y_step;

    template <class Source>
    __device__ __forceinline__ const char* find_row(const Source&, int row) const {
        return x + std::int64_t{row} * x_step;
    }
    template <class Source>
    __device__ __forceinline__ char* find_column(const Source&, int column) const {
        return y + std::int64_t{column} * y_step;
    }
};

// What a tile's lines are asked of a piece.
template <int kItemBytes>
struct PanelSource {
    static constexpr int log_bytes = kItemBytes == 8 ? 3 : kItemBytes / 2;
};

// grid: tiles along axis 0, along axis 1, places of axis 2.
template <int kItemBytes>
__device__ __forceinline__ Panel find_panel(const Panels& p) {
    const int first_down = static_cast<int>(blockIdx.x) << p.log_down, first_across = static_cast<int>(blockIdx.y) << p.log_across;
    const auto place = static_cast<std::int64_t>(blockIdx.z);
    return {p.x + place * p.x_next + std::int64_t{first_down} * p.x_step + first_across * kItemBytes,
            p.y + place * p.y_next + std::int64_t{first_across} * p.y_step + first_down * kItemBytes,
            p.num_down - first_down,
            p.num_across - first_across,
            p.log_down,
            p.x_step,
            p.y_step};
}

template <int kItemBytes, int kLogX, int kLogY>
__device__ __forceinline__ void turn_panel(const Panels& p, char* shared) {
    using Walk = ColumnWalk<kItemBytes, kLogY, kLogPanelLines>;
    constexpr int kWarps = kPanelThreads / 32, kTurns = (Walk::kUnits - 1) / kWarps + 1;
    const Panel panel = find_panel<kItemBytes>(p);
    constexpr PanelSource<kItemBytes> source;
    // Lines that begin between words are few here, and short code: element after element.
    constexpr int kReadBytes = kLogX >= 2 ? 1 << kLogX : kItemBytes;
    read_lines<kReadBytes, kPanelThreads, kLogPanelLines>(source, panel, shared);
    __syncthreads();
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll(kTurns <= 2 ? kTurns : 2)
    for (int i = 0; i < kTurns; ++i) {
        const int unit = warp + i * kWarps;
        if (Walk::kUnits % kWarps == 0 || unit < Walk::kUnits) Walk::write(source, panel, shared, unit);
    }
}

}  // namespace aicf::strided_copy

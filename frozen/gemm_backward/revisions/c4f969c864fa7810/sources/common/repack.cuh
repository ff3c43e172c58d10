// Copies of matrices between rows that begin anywhere and rows on 16-byte boundaries, which tensor copies need: operands on their way in,
// results on their way out, several matrices a launch.
#pragma once

#include <cstdint>

#include "common/launch.hpp"
#include "common/programmatic.cuh"

namespace aicf {

// A matrix to copy; strides in elements.
struct Repack {
    const void* source;
    void* target;
    std::int64_t source_stride, target_stride;
    int rows, columns;
    int first_block;  // of the launch, of those that copy this matrix
};

inline constexpr int kMostRepacks = 4;
inline constexpr int kRepackThreads = 256;
inline constexpr int kRepackElems = 8;  // of a thread, 32 apart: a warp copies 256 neighbours

struct RepackList {
    Repack items[kMostRepacks];
    int count;
};

template <class Bits>
__global__ void __launch_bounds__(kRepackThreads) repack_rows(const RepackList list) {
    allow_successor();
    const int block = static_cast<int>(blockIdx.x);
    int which = 0;
    for (int i = 1; i < list.count; ++i) which = block >= list.items[i].first_block ? i : which;
    const Repack& item = list.items[which];
    constexpr int kSpan = 32 * kRepackElems;
    const int spans = (item.columns + kSpan - 1) / kSpan;
    const int task = (block - item.first_block) * (kRepackThreads / 32) + static_cast<int>(threadIdx.x) / 32;
    const int row = task / spans;
    const int column = task % spans * kSpan + static_cast<int>(threadIdx.x) % 32;
    wait_for_predecessor();
    if (row >= item.rows) return;
    const Bits* source = static_cast<const Bits*>(item.source) + row * item.source_stride + column;
    Bits* target = static_cast<Bits*>(item.target) + row * item.target_stride + column;
    Bits values[kRepackElems];
#pragma unroll
    for (int i = 0; i < kRepackElems; ++i) {
        if (column + 32 * i < item.columns) values[i] = source[32 * i];
    }
#pragma unroll
    for (int i = 0; i < kRepackElems; ++i) {
        if (column + 32 * i < item.columns) target[32 * i] = values[i];
    }
}

// A row stride on a 16-byte boundary.
inline std::int64_t round_stride(std::int64_t columns, int item_bytes) {
    const std::int64_t chunk = kTensorMapAlignment / item_bytes;
    return (columns + chunk - 1) / chunk * chunk;
}

inline bool has_round_stride(std::int64_t stride, int item_bytes) { return stride * item_bytes % kTensorMapAlignment == 0; }

// Warps that copy a matrix, each at most 256 elements of a row; an op's domain bounds them to an eighth of 32 bits.
inline std::int64_t count_repack_warps(std::int64_t rows, std::int64_t columns) {
    constexpr std::int64_t kSpan = 32 * kRepackElems;
    return rows * ((columns + kSpan - 1) / kSpan);
}

// The bytes of a copy of a matrix; they follow from sizes and strides alone, so that a workspace can be counted before addresses are known.
inline std::int64_t count_repack_bytes(std::int64_t rows, std::int64_t columns, int item_bytes) {
    constexpr std::int64_t kBoundary = 256;
    return (rows * round_stride(columns, item_bytes) * item_bytes + kBoundary - 1) / kBoundary * kBoundary;
}

// Collects matrices to copy, each to or from its place in a workspace, and launches one kernel for all.
class Repacker {
public:
    Repacker(int item_bytes, void* workspace) : item_bytes_(item_bytes), place_(static_cast<std::uint8_t*>(workspace)) {}

    // Where an operand's rows are off boundaries, base and stride become those of its copy.
    void bring(const void** base, std::int64_t* stride, std::int64_t rows, std::int64_t columns) {
        if (has_round_stride(*stride, item_bytes_)) return;
        add({*base, place_, *stride, round_stride(columns, item_bytes_), static_cast<int>(rows), static_cast<int>(columns), 0});
        *base = place_;
        move_on(rows, columns, stride);
    }

    // The same for a result, which this launch takes from its copy; also where rows end off boundaries: tensor copies store whole units of
    // 16 bytes, and what follows a row is not theirs.
    void take(void** base, std::int64_t* stride, std::int64_t rows, std::int64_t columns) {
        if (has_round_stride(*stride, item_bytes_) && has_round_stride(columns, item_bytes_)) return;
        add({place_, *base, round_stride(columns, item_bytes_), *stride, static_cast<int>(rows), static_cast<int>(columns), 0});
        *base = place_;
        move_on(rows, columns, stride);
    }

    // What is left of the workspace, and what was taken.
    std::uint8_t* place() const { return place_; }
    std::int64_t count_bytes() const { return num_bytes_; }

    AicfStatus launch(cudaStream_t stream) const {
        if (list_.count == 0) return make_ok();
        const dim3 grid(static_cast<unsigned>(num_blocks_));
        return item_bytes_ == 2 ? launch_early(repack_rows<std::uint16_t>, grid, kRepackThreads, 0, 1, stream, list_)
                                : launch_early(repack_rows<std::uint32_t>, grid, kRepackThreads, 0, 1, stream, list_);
    }

private:
    void move_on(std::int64_t rows, std::int64_t columns, std::int64_t* stride) {
        const std::int64_t bytes = count_repack_bytes(rows, columns, item_bytes_);
        *stride = round_stride(columns, item_bytes_);
        place_ += bytes;
        num_bytes_ += bytes;
    }

    void add(Repack item) {
        constexpr std::int64_t kWarps = kRepackThreads / 32;
        item.first_block = num_blocks_;
        num_blocks_ += static_cast<int>((count_repack_warps(item.rows, item.columns) + kWarps - 1) / kWarps);
        list_.items[list_.count++] = item;
    }

    int item_bytes_;
    std::uint8_t* place_;
    std::int64_t num_bytes_ = 0;
    RepackList list_ = {};
    int num_blocks_ = 0;
};

}  // namespace aicf

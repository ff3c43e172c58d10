// How each kernel of strided_copy is launched.
#include <algorithm>

#include "common/launch.hpp"
#include "strided_copy/contract.hpp"
#include "strided_copy/kernels.cu"
#include "strided_copy/parts.hpp"
#include "strided_copy/planning.hpp"

namespace aicf::strided_copy {
namespace {

int find_log_bytes(std::int32_t dtype) {
    switch (dtype) {
        case AICF_DTYPE_INT8:
        case AICF_DTYPE_UINT8:
        case AICF_DTYPE_BOOL: return 0;
        case AICF_DTYPE_BFLOAT16:
        case AICF_DTYPE_FLOAT16:
        case AICF_DTYPE_INT16: return 1;
        case AICF_DTYPE_FLOAT32:
        case AICF_DTYPE_INT32: return 2;
        default: return 3;
    }
}

#define AICF_PIECE(i)                                                                                         \
    {                                                                                                         \
        reinterpret_cast<const char*>(p.x##i), reinterpret_cast<char*>(p.y##i), {p.a, p.b, p.n##i, p.c, p.d}, \
            {p.x##i##_stride0, p.x##i##_stride1, p.x##i##_stride2, p.x##i##_stride3, p.x##i##_stride4}, {     \
            p.y##i##_stride0, p.y##i##_stride1, p.y##i##_stride2, p.y##i##_stride3, p.y##i##_stride4          \
        }                                                                                                     \
    }

Parts list_parts(const Params& p) {
    constexpr int kMiddle = 2;
    const Part pieces[] = {AICF_PIECE(0), AICF_PIECE(1), AICF_PIECE(2), AICF_PIECE(3),
                           AICF_PIECE(4), AICF_PIECE(5), AICF_PIECE(6), AICF_PIECE(7)};
    Parts parts;
    if (!p.whole) {
        for (int i = 0; i < p.pieces; ++i) parts.add(pieces[i]);
        return parts;
    }
    Whole whole = {pieces[0].y, {p.a, p.yb, p.yn, p.yc, p.yd}, {}, std::int64_t{1} << find_log_bytes(p.dtype)};
    std::copy_n(pieces[0].y_strides, kMaxAxes, whole.strides);
    std::int64_t places[] = {0, p.at_b, p.at_n, p.at_c, p.at_d};
    std::int64_t together[] = {p.a, p.b, 0, p.c, p.d};
    for (int i = 0; i < p.pieces; ++i) together[kMiddle] += pieces[i].extents[kMiddle];
    whole.add_gaps(whole.clip(places, together), &parts);
    for (int i = 0; i < p.pieces; ++i) {
        whole.add_piece(pieces[i], places, &parts);
        places[kMiddle] += pieces[i].extents[kMiddle];
    }
    return parts;
}

#undef AICF_PIECE

template <class Word, int kThreads>
AicfStatus launch_naive(const Params& p, cudaStream_t stream) {
    constexpr std::int64_t kMostBlocks = 1 << 26;  // of a part; their threads go on behind the last
    const Parts parts = list_parts(p);
    Boxes all = {};
    all.num_parts = parts.count;
    for (int i = 0; i < parts.count; ++i) {
        all.parts[i] = parts.list[i];
        std::int64_t count = 1;
        for (const std::int64_t extent : parts.list[i].extents) count *= extent;
        all.first_blocks[i + 1] = all.first_blocks[i] + std::min<std::int64_t>(divide_up(count, kThreads), kMostBlocks);
    }
    return launch_kernel(copy_naive<Word, kThreads>, static_cast<unsigned>(all.first_blocks[parts.count]), kThreads, 0, stream, all);
}

template <Tunables t, Rung kRung, int kCapacity>
AicfStatus launch_parts(const Parts& parts, int log_bytes, cudaStream_t stream) {
    Plan<kCapacity> plan = {};
    plan.num_pieces = parts.count;
    std::int64_t blocks = 0;
    int shared_bytes = 0;
    for (int i = 0; i < parts.count; ++i) {
        const Part& part = parts.list[i];
        Shape shape;
        for (int k = kMaxAxes - 1; k >= 0; --k) {
            shape.insert({part.extents[k], part.x_strides[k] << log_bytes, part.y_strides[k] << log_bytes});
        }
        Piece& piece = plan.pieces[i];
        piece.x = part.x;
        piece.y = part.y;
        piece.first_block = static_cast<int>(blocks);
        plan_piece(shape, log_bytes, t.threads, t.items, kRung, &piece);
        blocks += piece.num_blocks;
        if (piece.way == Way::kTiles) shared_bytes = std::max(shared_bytes, piece.pitch_bytes << piece.log_down);
        if (piece.way == Way::kPacked) shared_bytes = std::max(shared_bytes, kPackedBytes);
    }
    const auto kernel = copy_pieces<t.threads, t.items, kRung, kCapacity>;
    return launch_kernel(kernel, static_cast<unsigned>(blocks), t.threads, shared_bytes, stream, plan);
}

template <Tunables t, Rung kRung>
AicfStatus launch_plan(const Params& p, cudaStream_t stream) {
    const Parts parts = list_parts(p);
    const int log_bytes = find_log_bytes(p.dtype);
    return parts.count <= kMaxPieces ? launch_parts<t, kRung, kMaxPieces>(parts, log_bytes, stream)
                                     : launch_parts<t, kRung, kMaxParts>(parts, log_bytes, stream);
}

template <Tunables t>
struct naive {
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        switch (find_log_bytes(p.dtype)) {
            case 0: return launch_naive<std::uint8_t, t.threads>(p, stream);
            case 1: return launch_naive<std::uint16_t, t.threads>(p, stream);
            case 2: return launch_naive<std::uint32_t, t.threads>(p, stream);
            default: return launch_naive<std::uint64_t, t.threads>(p, stream);
        }
    }
};

template <Tunables t>
struct merged {
    static AicfStatus launch(const Params& p, cudaStream_t stream) { return launch_plan<t, Rung::kMerged>(p, stream); }
};

template <Tunables t>
struct turned {
    static AicfStatus launch(const Params& p, cudaStream_t stream) { return launch_plan<t, Rung::kTurned>(p, stream); }
};

template <Tunables t>
struct packed {
    static AicfStatus launch(const Params& p, cudaStream_t stream) { return launch_plan<t, Rung::kPacked>(p, stream); }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) { return AICF_KERNEL<kTunables>::launch(params, stream); }

}  // namespace
}  // namespace aicf::strided_copy

#include "strided_copy/entry_points.hpp"

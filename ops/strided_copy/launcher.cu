// How each kernel of strided_copy is launched.
#include <algorithm>

#include "common/launch.hpp"
#include "strided_copy/contract.hpp"
#include "strided_copy/kernels.cu"
#include "strided_copy/planning.hpp"

namespace aicf::strided_copy {
namespace {

// A piece of a call: [a, b, n, c, d], strides in elements.
struct Given {
    const void* x;
    void* y;
    std::int64_t length;
    std::int64_t x_strides[kMaxAxes], y_strides[kMaxAxes];
};

#define AICF_GIVEN(i)                                                                                                         \
    {                                                                                                                         \
        p.x##i, p.y##i, p.n##i, {p.x##i##_stride0, p.x##i##_stride1, p.x##i##_stride2, p.x##i##_stride3, p.x##i##_stride4}, { \
            p.y##i##_stride0, p.y##i##_stride1, p.y##i##_stride2, p.y##i##_stride3, p.y##i##_stride4                          \
        }                                                                                                                     \
    }

struct Call {
    Given pieces[kMaxPieces];

    explicit Call(const Params& p)
        : pieces{AICF_GIVEN(0), AICF_GIVEN(1), AICF_GIVEN(2), AICF_GIVEN(3), AICF_GIVEN(4), AICF_GIVEN(5), AICF_GIVEN(6), AICF_GIVEN(7)} {}
};

#undef AICF_GIVEN

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

template <class Word, int kThreads>
AicfStatus launch_naive(const Params& p, cudaStream_t stream) {
    constexpr std::int64_t kMostBlocks = 1 << 27;  // of a piece; their threads go on behind the last
    const Call call(p);
    Wholes<Word> all = {};
    all.num_pieces = p.pieces;
    std::int64_t blocks = 0;
    for (int i = 0; i < p.pieces; ++i) {
        const Given& given = call.pieces[i];
        Whole<Word>& piece = all.pieces[i];
        const std::int64_t needed = divide_up(p.a * p.b * given.length * p.c * p.d, kThreads);
        piece.x = static_cast<const Word*>(given.x);
        piece.y = static_cast<Word*>(given.y);
        piece.first_block = blocks;
        piece.num_blocks = std::min<std::int64_t>(needed, kMostBlocks);
        const std::int64_t extents[] = {p.a, p.b, given.length, p.c, p.d};
        std::copy_n(extents, kMaxAxes, piece.extents);
        std::copy_n(given.x_strides, kMaxAxes, piece.x_strides);
        std::copy_n(given.y_strides, kMaxAxes, piece.y_strides);
        blocks += piece.num_blocks;
    }
    return launch_kernel(copy_naive<Word, kThreads>, static_cast<unsigned>(blocks), kThreads, 0, stream, all);
}

template <Tunables t, Rung kRung>
AicfStatus launch_plan(const Params& p, cudaStream_t stream) {
    const Call call(p);
    const int log_bytes = find_log_bytes(p.dtype);
    Plan plan = {};
    plan.num_pieces = p.pieces;
    std::int64_t blocks = 0;
    int shared_bytes = 0;
    for (int i = 0; i < p.pieces; ++i) {
        const Given& given = call.pieces[i];
        const std::int64_t extents[] = {p.a, p.b, given.length, p.c, p.d};
        Shape shape;
        for (int k = kMaxAxes - 1; k >= 0; --k) {
            shape.insert({extents[k], given.x_strides[k] << log_bytes, given.y_strides[k] << log_bytes});
        }
        Piece& piece = plan.pieces[i];
        piece.x = static_cast<const char*>(given.x);
        piece.y = static_cast<char*>(given.y);
        piece.first_block = static_cast<int>(blocks);
        plan_piece(shape, log_bytes, t.threads, t.items, kRung, &piece);
        blocks += piece.num_blocks;
        if (piece.way == Way::kTiles) shared_bytes = std::max(shared_bytes, piece.pitch_bytes << piece.log_down);
        if (piece.way == Way::kPacked) shared_bytes = std::max(shared_bytes, kPackedBytes);
    }
    const auto kernel = copy_pieces<t.threads, t.items, kRung>;
    return launch_kernel(kernel, static_cast<unsigned>(blocks), t.threads, shared_bytes, stream, plan);
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

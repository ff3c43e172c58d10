// How each kernel of strided_copy is launched.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "common/launch.hpp"
#include "strided_copy/contract.hpp"
#include "strided_copy/gathering.hpp"
#include "strided_copy/kernels.cu"
#include "strided_copy/parts.hpp"
#include "strided_copy/planning.hpp"
#include "strided_copy/routing.hpp"
#include "strided_copy/slabbing.hpp"

namespace aicf::strided_copy {
namespace {

// Calls what has a version for each logarithm of bytes with the one for this: the last where none fits.
template <int kFirst, int kLast, class Call>
AicfStatus dispatch(int log_bytes, const Call& call) {
    if constexpr (kFirst < kLast) {
        if (log_bytes > kFirst) return dispatch<kFirst + 1, kLast>(log_bytes, call);
    }
    return call.template operator()<kFirst>();
}

// An element of 2^kLogBytes.
template <int kLogBytes>
using ElementOf =
    std::conditional_t<kLogBytes == 0, std::uint8_t,
                       std::conditional_t<kLogBytes == 1, std::uint16_t, std::conditional_t<kLogBytes == 2, std::uint32_t, std::uint64_t>>>;

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
    std::copy(pieces[0].y_strides, pieces[0].y_strides + kMaxAxes, whole.strides);
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

void plan_part(const Part& part, int log_bytes, int threads, int items, Rung rung, const Wish& wish, Piece* piece) {
    Shape shape;
    for (int k = kMaxAxes - 1; k >= 0; --k) {
        shape.insert({part.extents[k], part.x_strides[k] << log_bytes, part.y_strides[k] << log_bytes});
    }
    piece->x = part.x;
    piece->y = part.y;
    plan_piece(shape, log_bytes, threads, items, rung, wish, piece);
}

template <Tunables t, Rung kRung, int kCapacity>
AicfStatus launch_parts(const Parts& parts, int log_bytes, cudaStream_t stream) {
    Plan<kCapacity> plan = {};
    plan.num_pieces = parts.count;
    std::int64_t blocks = 0;
    int shared_bytes = 0;
    for (int i = 0; i < parts.count; ++i) {
        Piece& piece = plan.pieces[i];
        piece.first_block = static_cast<int>(blocks);
        plan_part(parts.list[i], log_bytes, t.threads, t.items, kRung, Wish{}, &piece);
        blocks += piece.num_blocks;
        if (piece.way == Way::kTiles) shared_bytes = std::max(shared_bytes, piece.pitch_bytes << piece.log_down);
        if (piece.way == Way::kPacked) shared_bytes = std::max(shared_bytes, count_packed_bytes(kLogMostLines));
    }
    const auto kernel = copy_pieces<t.threads, t.items, kRung, kCapacity>;
    return launch_kernel(kernel, static_cast<unsigned>(blocks), t.threads, shared_bytes, stream, plan);
}

template <Tunables t, Rung kRung>
AicfStatus launch_plan(const Parts& parts, int log_bytes, cudaStream_t stream) {
    return parts.count <= kMaxPieces ? launch_parts<t, kRung, kMaxPieces>(parts, log_bytes, stream)
                                     : launch_parts<t, kRung, kMaxParts>(parts, log_bytes, stream);
}

// What is launched by kernels of one way each.
struct Planned {
    Piece pieces[kMaxPieces];
    int count;
    bool are_alike;  // all go the same way by accesses of the same width
};

Planned plan_as(const Parts& parts, int log_bytes, int threads, int items, const Wish& wish) {
    Planned planned = {};
    planned.count = parts.count;
    planned.are_alike = true;
    for (int i = 0; i < parts.count; ++i) {
        Piece& piece = planned.pieces[i];
        plan_part(parts.list[i], log_bytes, threads, items, Rung::kGathered, wish, &piece);
        planned.are_alike &= piece.way == planned.pieces[0].way && piece.log_bytes == planned.pieces[0].log_bytes;
    }
    return planned;
}

// What pieces could agree on that do not go alike.
Wish find_wish(const Planned& planned, int log_bytes) {
    bool are_wide = true, can_be_rows = log_bytes < kLogWide;
    for (int i = 0; i < planned.count; ++i) {
        const Piece& piece = planned.pieces[i];
        are_wide &= piece.way == Way::kRuns && piece.log_bytes >= kLogWide;
        can_be_rows &= piece.x != nullptr && (piece.way == Way::kRuns || piece.way == Way::kRows);
    }
    return are_wide ? Wish{kLogWide, false} : Wish{Wish{}.log_widest, can_be_rows};
}

Planned plan_alike(const Parts& parts, int log_bytes, int threads, int items) {
    if (parts.count > kMaxPieces) return {};
    const Planned planned = plan_as(parts, log_bytes, threads, items, Wish{});
    return planned.are_alike ? planned : plan_as(parts, log_bytes, threads, items, find_wish(planned, log_bytes));
}

// One access a thread where more would leave multiprocessors without a block or with one more than others.
constexpr std::int64_t kFewAccesses = std::int64_t{1} << 19;

template <Way kWay, int kLogBytes, int kThreads, int kItems, int kCapacity>
AicfStatus launch_alike_items(const Planned& planned, cudaStream_t stream) {
    AlikePlan<kCapacity> plan = {};
    std::int64_t blocks = 0;
    for (int i = 0; i < kCapacity; ++i) {
        plan.first_blocks[i] = i < planned.count ? static_cast<int>(blocks) : std::numeric_limits<int>::max();
        if (i >= planned.count) continue;
        plan.pieces[i] = planned.pieces[i];
        blocks += divide_up(planned.pieces[i].num_accesses, kThreads * kItems);
    }
    const auto kernel = copy_alike<kWay, kLogBytes, kThreads, kItems, kCapacity>;
    return launch_kernel(kernel, static_cast<unsigned>(blocks), kThreads, 0, stream, plan);
}

template <int kLogBytes>
using AccessOf = typename Access<1 << kLogBytes>::Type;

template <int kLogBytes, int kThreads, int kItems, int kAxes, class Axes>
AicfStatus launch_route_as(const Axes& axes, int num_axes, const char* x, char* y, cudaStream_t stream) {
    const auto route = make_route<kAxes>(axes, num_axes, x, y, kLogBytes);
    const auto blocks = divide_up(route.num_accesses, kThreads * kItems);
    const auto kernel = copy_routed<AccessOf<kLogBytes>, kThreads, kItems, kAxes>;
    return launch_kernel(kernel, static_cast<unsigned>(blocks), kThreads, 0, stream, route);
}

template <int kLogBytes, int kThreads, int kItems, class Axes>
AicfStatus launch_route_of(const Axes& axes, int num_axes, const char* x, char* y, cudaStream_t stream) {
    constexpr int kFewAxes = 3;
    return num_axes <= kFewAxes ? launch_route_as<kLogBytes, kThreads, kItems, kFewAxes>(axes, num_axes, x, y, stream)
                                : launch_route_as<kLogBytes, kThreads, kItems, kMaxAxes>(axes, num_axes, x, y, stream);
}

// Axes from the innermost of y on, steps in bytes, that can be routed.
template <Tunables t, int kLogBytes, class Axes>
AicfStatus launch_route(const Axes* axes, int num_axes, const char* x, char* y, cudaStream_t stream) {
    // An access that is all of the innermost axis.
    if (axes[0].extent == 1 && num_axes > 1) return launch_route<t, kLogBytes>(axes + 1, num_axes - 1, x, y, stream);
    std::int64_t count = 1;
    for (int k = 0; k < num_axes; ++k) count *= axes[k].extent;
    return count < kFewAccesses ? launch_route_of<kLogBytes, t.threads, 1>(axes, num_axes, x, y, stream)
                                : launch_route_of<kLogBytes, t.threads, t.items>(axes, num_axes, x, y, stream);
}

template <int kLogBytes, int kThreads, int kItems, int kCapacity>
AicfStatus launch_join(const Join<kCapacity>& join, cudaStream_t stream) {
    const auto blocks = divide_up(join.num_accesses, kThreads * kItems);
    const auto kernel = copy_joined<AccessOf<kLogBytes>, kThreads, kItems, kCapacity>;
    return launch_kernel(kernel, static_cast<unsigned>(blocks), kThreads, 0, stream, join);
}

// Runs by accesses of 2^kLogBytes whose columns follow each other in y's rows; else as alike pieces go.
template <Tunables t, int kLogBytes>
AicfStatus launch_wide_runs(const Planned& planned, cudaStream_t stream) {
    constexpr int kFew = 2;
    const auto launch = [&](const auto& join) {
        return join.num_accesses < kFewAccesses ? launch_join<kLogBytes, t.threads, 1>(join, stream)
                                                : launch_join<kLogBytes, t.threads, t.items>(join, stream);
    };
    if (Join<kFew> join; make_join(planned.pieces, planned.count, &join)) return launch(join);
    if (Join<kMaxPieces> join; make_join(planned.pieces, planned.count, &join)) return launch(join);
    return launch_alike_items<Way::kRuns, kLogBytes, t.threads, t.items, kMaxPieces>(planned, stream);
}

template <Tunables t, int kLogBytes>
AicfStatus launch_runs_of(const Planned& planned, cudaStream_t stream) {
    const Piece& first = planned.pieces[0];
    if (planned.count == 1 && first.x != nullptr && can_be_routed(first.axes, first.num_axes, kLogBytes)) {
        return launch_route<t, kLogBytes>(first.axes, first.num_axes, first.x, first.y, stream);
    }
    if constexpr (kLogBytes >= kLogWide) {
        if (planned.count > 1) return launch_wide_runs<t, kLogBytes>(planned, stream);
    }
    return launch_alike_items<Way::kRuns, kLogBytes, t.threads, t.items, kMaxPieces>(planned, stream);
}

template <Tunables t>
AicfStatus launch_runs(const Planned& planned, cudaStream_t stream) {
    return dispatch<0, 4>(planned.pieces[0].log_bytes, [&]<int kLog>() { return launch_runs_of<t, kLog>(planned, stream); });
}

template <Tunables t, int kLogBytes>
AicfStatus launch_rows_of(const Planned& planned, cudaStream_t stream) {
    constexpr Way kWay = Way::kRows;
    if (planned.count > 1) return launch_alike_items<kWay, kLogBytes, t.threads, t.items, kMaxPieces>(planned, stream);
    if (planned.pieces[0].num_accesses < kFewAccesses) return launch_alike_items<kWay, kLogBytes, t.threads, 1, 1>(planned, stream);
    return launch_alike_items<kWay, kLogBytes, t.threads, t.items, 1>(planned, stream);
}

template <Tunables t>
AicfStatus launch_rows(const Planned& planned, cudaStream_t stream) {
    return dispatch<0, 2>(planned.pieces[0].log_bytes, [&]<int kLog>() { return launch_rows_of<t, kLog>(planned, stream); });
}

template <int kItemBytes, int kThreads, int kLogLines, int kLogX, int kLogY, bool kHasFolds = kLogX == kAnyLog>
AicfStatus launch_lines_as(const Piece& piece, cudaStream_t stream) {
    const auto kernel = copy_lines<kItemBytes, kThreads, kLogLines, kLogX, kLogY, kHasFolds>;
    return launch_kernel(kernel, static_cast<unsigned>(piece.num_blocks), kThreads, count_packed_bytes(kLogLines), stream, piece);
}

// Small tiles are short work: the code for one pair of widths is what must come from memory.
template <int kItemBytes, int kLogX, int kLogY>
AicfStatus launch_panels_as(const Panels& panels, dim3 grid, cudaStream_t stream) {
    return launch_kernel(copy_panels<kItemBytes, kLogX, kLogY>, grid, kPanelThreads, count_packed_bytes(kLogPanelLines), stream, panels);
}

template <int kItemBytes, int kLogX>
AicfStatus launch_panels_from(const Panels& panels, dim3 grid, int log_y, cudaStream_t stream) {
    if (log_y == 4) return launch_panels_as<kItemBytes, kLogX, 4>(panels, grid, stream);
    if constexpr (kItemBytes <= 4) {
        if (log_y == 2) return launch_panels_as<kItemBytes, kLogX, 2>(panels, grid, stream);
    }
    if constexpr (kItemBytes <= 2) {
        if (log_y < 2) return launch_panels_as<kItemBytes, kLogX, 0>(panels, grid, stream);
    }
    return launch_panels_as<kItemBytes, kLogX, 3>(panels, grid, stream);
}

template <int kItemBytes>
AicfStatus launch_panels(const Panels& panels, dim3 grid, const Piece& piece, cudaStream_t stream) {
    if (piece.log_x == 4) return launch_panels_from<kItemBytes, 4>(panels, grid, piece.log_y, stream);
    if constexpr (kItemBytes <= 4) {
        if (piece.log_x == 2) return launch_panels_from<kItemBytes, 2>(panels, grid, piece.log_y, stream);
    }
    if constexpr (kItemBytes <= 2) {
        if (piece.log_x < 2) return launch_panels_from<kItemBytes, 0>(panels, grid, piece.log_y, stream);
    }
    return launch_panels_from<kItemBytes, 3>(panels, grid, piece.log_y, stream);
}

// Folded axes are short, and mostly allow the narrowest accesses on both sides.
template <int kItemBytes, int kThreads>
AicfStatus launch_few_lines(const Piece& piece, cudaStream_t stream) {
    constexpr int kLogLines = find_log_few_lines(kThreads), kNarrow = kItemBytes == 8 ? 3 : kItemBytes == 4 ? 2 : 0;
    constexpr int kMost = kNarrow == 0 ? 1 : kNarrow;
    if (piece.log_x <= kMost && piece.log_y <= kMost) {
        return launch_lines_as<kItemBytes, kThreads, kLogLines, kNarrow, kNarrow, true>(piece, stream);
    }
    return launch_lines_as<kItemBytes, kThreads, kLogLines, kAnyLog, kAnyLog>(piece, stream);
}

template <int kItemBytes, int kThreads>
AicfStatus launch_lines_with(const Piece& piece, cudaStream_t stream) {
    const bool has_folds = piece.down.step != 0 || piece.across.step != 0;
    if (piece.log_lines != kLogMostLines) {
        Panels panels;
        dim3 grid;
        return make_panels(piece, &panels, &grid) ? launch_panels<kItemBytes>(panels, grid, piece, stream)
                                                  : launch_few_lines<kItemBytes, kThreads>(piece, stream);
    }
    const bool is_wide = piece.log_x == 4 && piece.log_y == 4;
    return is_wide && !has_folds ? launch_lines_as<kItemBytes, kThreads, kLogMostLines, 4, 4>(piece, stream)
                                 : launch_lines_as<kItemBytes, kThreads, kLogMostLines, kAnyLog, kAnyLog>(piece, stream);
}

template <Tunables t>
AicfStatus launch_lines(const Piece& piece, cudaStream_t stream) {
    return dispatch<0, 3>(piece.log_bytes, [&]<int kLog>() { return launch_lines_with<1 << kLog, t.threads>(piece, stream); });
}

// Cut tiles of a packed piece where its lines begin between words, or columns between sectors and 16 bytes: at sectors where there are
// enough tiles; else at words, where accesses of words would not do. Returns false where other tiles serve it.
template <Tunables t>
bool launch_cut(const Piece& piece, cudaStream_t stream, AicfStatus* status) {
    constexpr std::int64_t kFewTiles = 2 * kMultiprocessors;
    constexpr int kSmallThreads = 128, kSmallLines = 32;
    const int log_least = std::min(piece.log_x, piece.log_y);
    CutTiles tiles;
    if (log_least >= 4 || (piece.log_x >= 2 && has_whole_sectors(piece)) || !make_cut(piece, &tiles)) return false;
    const auto count = [&]<class Tile>(int tile_lines) {
        return dim3(static_cast<unsigned>(divide_up(tiles.num_across, Tile::kAcross)),
                    static_cast<unsigned>(divide_up(tiles.num_down + Tile::kCut - 1, tile_lines)), static_cast<unsigned>(tiles.num_outer));
    };
    bool is_cut = true;
    *status = dispatch<0, 3>(piece.log_bytes, [&]<int kLog>() {
        using Element = ElementOf<kLog>;
        constexpr int kLines = sizeof(Element) < 4 ? 128 : 64;
        const dim3 grid = count.template operator()<CutTile<Element, kLines, t.threads / 32, true>>(kLines);
        if (std::int64_t{grid.x} * grid.y * grid.z >= kFewTiles || piece.log_lines == kLogMostLines) {
            return launch_kernel(copy_cut<Element, kLines, t.threads, true>, grid, t.threads, 0, stream, tiles);
        }
        if constexpr (sizeof(Element) < 4) {
            if (log_least < 2) {
                const dim3 small = count.template operator()<CutTile<Element, kSmallLines, kSmallThreads / 32, false>>(kSmallLines);
                return launch_kernel(copy_cut<Element, kSmallLines, kSmallThreads, false>, small, kSmallThreads, 0, stream, tiles);
            }
        }
        is_cut = false;
        return make_ok();
    });
    return is_cut;
}

// A call's only piece in all of its y: as far as it is inside, and what is around it.
Frame make_frame(const Params& p, const Part& part, int log_bytes) {
    const std::int64_t extents[] = {p.a, p.yb, p.yn, p.yc, p.yd}, places[] = {0, p.at_b, p.at_n, p.at_c, p.at_d};
    Frame frame;
    for (int k = kMaxAxes - 1; k >= 0; --k) {
        const std::int64_t extent = p.whole ? extents[k] : part.extents[k], first = p.whole ? std::max<std::int64_t>(places[k], 0) : 0;
        frame.insert({extent, first, part.extents[k], part.x_strides[k] << log_bytes, part.y_strides[k] << log_bytes});
    }
    frame.merge();
    return frame;
}

// All of y comes from x.
template <Tunables t>
AicfStatus launch_element_route(const Frame& frame, const char* x, char* y, int log_bytes, cudaStream_t stream) {
    return dispatch<0, 3>(log_bytes, [&]<int kLog>() { return launch_route<t, kLog>(frame.axes, frame.num_axes, x, y, stream); });
}

template <class Element, Tunables t, int kAxes>
AicfStatus launch_elements(const Gather& gather, cudaStream_t stream) {
    const bool are_few = gather.num_elements < kFewAccesses;
    const auto kernel = are_few ? gather_elements<Element, t.threads, 1, kAxes> : gather_elements<Element, t.threads, t.items, kAxes>;
    const auto blocks = divide_up(gather.num_elements, t.threads * (are_few ? 1 : t.items));
    return launch_kernel(kernel, static_cast<unsigned>(blocks), t.threads, 0, stream, gather);
}

template <class Element, Tunables t, int kAxes>
AicfStatus launch_packs(const Gather& gather, cudaStream_t stream) {
    const std::int64_t packs = divide_up(std::int64_t{gather.num_elements} + gather.misfit, kGatheredBytes / sizeof(Element));
    const bool are_few = packs < kFewAccesses;
    const auto kernel = are_few ? gather_packs<Element, t.threads, 1, kAxes> : gather_packs<Element, t.threads, t.items, kAxes>;
    const auto blocks = divide_up(packs, t.threads * (are_few ? 1 : t.items));
    return launch_kernel(kernel, static_cast<unsigned>(blocks), t.threads, 0, stream, gather);
}

template <class Element, Tunables t, int kOuter>
AicfStatus launch_margins_of(const Margins<kOuter>& margins, cudaStream_t stream) {
    // Below, several to a thread would leave multiprocessors without a block.
    constexpr std::uint32_t kFewPairs = 1 << 16;
    const bool are_few = margins.num_pairs < kFewPairs;
    const auto kernel = are_few ? copy_margins<Element, t.threads, 1, kOuter> : copy_margins<Element, t.threads, t.items, kOuter>;
    const auto blocks = divide_up(margins.num_pairs, t.threads * (are_few ? 1 : t.items));
    return launch_kernel(kernel, static_cast<unsigned>(blocks), t.threads, 0, stream, margins);
}

template <Tunables t, int kOuter>
AicfStatus launch_margins(const Margins<kOuter>& margins, int log_bytes, cudaStream_t stream) {
    return dispatch<0, 3>(log_bytes, [&]<int kLog>() { return launch_margins_of<ElementOf<kLog>, t>(margins, stream); });
}

template <class Element, Tunables t>
AicfStatus launch_gather_of(const Gather& gather, Gathering gathering, cudaStream_t stream) {
    constexpr int kFewAxes = 3;
    const bool are_few = gather.num_axes <= kFewAxes;
    if constexpr (sizeof(Element) < sizeof(std::uint64_t)) {
        if (gathering == Gathering::kPacks) {
            return are_few ? launch_packs<Element, t, kFewAxes>(gather, stream) : launch_packs<Element, t, kMaxAxes>(gather, stream);
        }
    }
    return are_few ? launch_elements<Element, t, kFewAxes>(gather, stream) : launch_elements<Element, t, kMaxAxes>(gather, stream);
}

template <Tunables t>
AicfStatus launch_gather(const Gather& gather, Gathering gathering, int log_bytes, cudaStream_t stream) {
    return dispatch<0, 3>(log_bytes, [&]<int kLog>() { return launch_gather_of<ElementOf<kLog>, t>(gather, gathering, stream); });
}

template <class Element>
AicfStatus launch_slabs_of(const SlabPlan& plan, const char* x, char* y, cudaStream_t stream) {
    constexpr int kFewAxes = 3;
    const auto launch = [&]<int kAxes>(const Slabs<kAxes>& slabs) {
        const auto blocks = static_cast<unsigned>(divide_up(plan.total_bytes, plan.block_bytes));
        return launch_kernel(copy_slabs<Element, kAxes>, blocks, kSlabThreads, plan.shared_bytes, stream, slabs);
    };
    return plan.num_axes <= kFewAxes ? launch(make_slabs<kFewAxes>(plan, x, y)) : launch(make_slabs<kMaxAxes>(plan, x, y));
}

// A template so that only variants that launch slabs compile them.
template <Tunables>
AicfStatus launch_slabs(const SlabPlan& plan, const char* x, char* y, int log_bytes, cudaStream_t stream) {
    return dispatch<0, 3>(log_bytes, [&]<int kLog>() { return launch_slabs_of<ElementOf<kLog>>(plan, x, y, stream); });
}

// Tiles that would be of elements, of folded axes, or of lines that begin between words.
bool are_poor_tiles(const Piece& piece) {
    if (piece.way != Way::kPacked) return piece.way == Way::kTiles;
    return piece.down.step != 0 || piece.across.step != 0 || std::min(piece.log_x, piece.log_y) < 2;
}

// The part that has an x, or null: a piece may be outside of its whole.
const Part* find_copied(const Parts& parts) {
    for (int i = 0; i < parts.count; ++i) {
        if (parts.list[i].x != nullptr) return &parts.list[i];
    }
    return nullptr;
}

template <Tunables t, bool kCuts>
AicfStatus launch_best_way(const Params& p, cudaStream_t stream) {
    const Parts parts = list_parts(p);
    const int log_bytes = find_log_bytes(p.dtype);
    const Planned planned = plan_alike(parts, log_bytes, t.threads, t.items);
    const Piece& first = planned.pieces[0];
    const bool are_runs = planned.are_alike && first.way == Way::kRuns;
    if (are_runs && first.log_bytes >= kLogWide) return launch_runs<t>(planned, stream);
    const Part* copied = find_copied(parts);
    if (p.pieces == 1 && copied != nullptr) {
        const Frame frame = make_frame(p, *copied, log_bytes);
        char* const y = static_cast<char*>(p.y0);
        Gathering gathering = choose_gathering(frame, log_bytes, false);
        if (gathering == Gathering::kNone && planned.are_alike && are_poor_tiles(first)) {
            SlabPlan slabs;
            if (plan_slabs(frame, copied->x, y, std::int64_t{1} << log_bytes, &slabs)) {
                return launch_slabs<t>(slabs, copied->x, y, log_bytes, stream);
            }
            gathering = choose_gathering(frame, log_bytes, first.way == Way::kTiles);
        }
        if (gathering == Gathering::kElements && !frame.has_zeros() && can_be_routed(frame.axes, frame.num_axes, log_bytes)) {
            return launch_element_route<t>(frame, copied->x, y, log_bytes, stream);
        }
        if (gathering != Gathering::kNone && frame.has_zeros()) {
            // Rows, and what they are inside of.
            if (Margins<2> few; make_margins(frame, copied->x, y, log_bytes, &few)) return launch_margins<t>(few, log_bytes, stream);
            if (Margins<kMaxAxes> all; make_margins(frame, copied->x, y, log_bytes, &all)) return launch_margins<t>(all, log_bytes, stream);
        }
        if (gathering != Gathering::kNone) {
            return launch_gather<t>(make_gather(frame, copied->x, y, log_bytes, gathering), gathering, log_bytes, stream);
        }
    }
    if (are_runs) return launch_runs<t>(planned, stream);
    if (planned.are_alike && first.way == Way::kRows) return launch_rows<t>(planned, stream);
    if (planned.are_alike && planned.count == 1 && first.way == Way::kPacked) {
        if constexpr (kCuts) {
            if (AicfStatus status; launch_cut<t>(first, stream, &status)) return status;
        }
        return launch_lines<t>(first, stream);
    }
    return launch_plan<t, Rung::kPacked>(parts, log_bytes, stream);
}

template <Tunables t>
struct naive {
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        return dispatch<0, 3>(find_log_bytes(p.dtype), [&]<int kLog>() { return launch_naive<ElementOf<kLog>, t.threads>(p, stream); });
    }
};

template <Tunables t>
struct merged {
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        return launch_plan<t, Rung::kMerged>(list_parts(p), find_log_bytes(p.dtype), stream);
    }
};

template <Tunables t>
struct turned {
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        return launch_plan<t, Rung::kTurned>(list_parts(p), find_log_bytes(p.dtype), stream);
    }
};

template <Tunables t>
struct packed {
    static AicfStatus launch(const Params& p, cudaStream_t stream) {
        return launch_plan<t, Rung::kPacked>(list_parts(p), find_log_bytes(p.dtype), stream);
    }
};

template <Tunables t>
struct gathered {
    static AicfStatus launch(const Params& p, cudaStream_t stream) { return launch_best_way<t, false>(p, stream); }
};

template <Tunables t>
struct cut {
    static AicfStatus launch(const Params& p, cudaStream_t stream) { return launch_best_way<t, true>(p, stream); }
};

AicfStatus launch(const Params& params, void*, cudaStream_t stream) { return AICF_KERNEL<kTunables>::launch(params, stream); }

}  // namespace
}  // namespace aicf::strided_copy

#include "strided_copy/entry_points.hpp"

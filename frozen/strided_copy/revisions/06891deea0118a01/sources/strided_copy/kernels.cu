// Copies of up to 8 pieces of up to 5 axes, any strides on both sides: y_i[a, b, n, c, d] = x_i[a, b, n, c, d]. Bits are moved. Pieces
// that are put into a whole come with boxes of zeros around them (parts.hpp).
//
// | kernel   | idea                                                                                                          |
// |----------|---------------------------------------------------------------------------------------------------------------|
// | naive    | a thread per element, which divides its number by the extents                                                 |
// | merged   | axes in the order of y's memory, merged where both sides allow; accesses as wide as both sides allow          |
// | turned   | the same, and pieces whose innermost axes differ go through tiles in shared memory                            |
// | packed   | the same, tiles by words (packed.cuh); rows that begin anywhere by shifted words (shifted.cuh)                |
// | gathered | a kernel per way, for launches that have one, of few instructions and parameters where little moves: runs and |
// |          | joined rows (routed.cuh), small tiles (panels.cuh), slabs (slabs.cuh); one piece in a dense y by packs of y or|
// |          | by elements (gathered.cuh), zeros around it by pairs (margins.cuh)                                            |
// | cut      | the same, and tiles whose lines or columns begin anywhere are cut at sectors of y (cut.cuh)                   |
#include <cstdint>

#include "strided_copy/api.hpp"
#include "strided_copy/cut.cuh"
#include "strided_copy/gathered.cuh"
#include "strided_copy/margins.cuh"
#include "strided_copy/packed.cuh"
#include "strided_copy/panels.cuh"
#include "strided_copy/parts.hpp"
#include "strided_copy/pieces.cuh"
#include "strided_copy/routed.cuh"
#include "strided_copy/shifted.cuh"
#include "strided_copy/slabs.cuh"

namespace aicf::strided_copy {

struct Boxes {
    Part parts[kMaxParts];
    std::int64_t first_blocks[kMaxParts + 1];
    int num_parts;
};

// grid: blocks of each part, one part after the other.
template <class Word, int kThreads>
__global__ void __launch_bounds__(kThreads) copy_naive(const __grid_constant__ Boxes all) {
    int i = 0;
    while (i + 1 < all.num_parts && blockIdx.x >= all.first_blocks[i + 1]) ++i;
    const Part& p = all.parts[i];
    const std::int64_t num_blocks = all.first_blocks[i + 1] - all.first_blocks[i];
    std::int64_t count = 1;
    for (int axis = 0; axis < kMaxAxes; ++axis) count *= p.extents[axis];
    for (std::int64_t at = (blockIdx.x - all.first_blocks[i]) * kThreads + threadIdx.x; at < count; at += num_blocks * kThreads) {
        std::int64_t left = at, from = 0, to = 0;
#pragma unroll
        for (int axis = kMaxAxes - 1; axis >= 0; --axis) {
            const std::int64_t place = left % p.extents[axis];
            left /= p.extents[axis];
            from += place * p.x_strides[axis];
            to += place * p.y_strides[axis];
        }
        reinterpret_cast<Word*>(p.y)[to] = p.x == nullptr ? Word{} : reinterpret_cast<const Word*>(p.x)[from];
    }
}

// Offsets of both sides at the place `number` of the axes from kFirst on.
struct Offsets {
    std::int64_t x, y;
};

template <int kFirst>
__device__ __forceinline__ Offsets find_offsets(const Piece& p, int number) {
    Offsets found = {0, 0};
#pragma unroll
    for (int axis = kFirst; axis < kMaxAxes; ++axis) {
        if (axis >= p.num_axes) break;
        const int quotient = p.axes[axis].divisor.divide(number);
        const int place = p.axes[axis].divisor.find_remainder(number, quotient);
        found.x += place * p.axes[axis].x_step;
        found.y += place * p.axes[axis].y_step;
        number = quotient;
    }
    return found;
}

// kItems accesses a thread, a block's width apart; all loads are under way before the first store.
template <class Access, int kThreads, int kItems>
__device__ __forceinline__ void copy_accesses(const Piece& p, int block) {
    const int first = block * (kThreads * kItems) + static_cast<int>(threadIdx.x);
    Access loaded[kItems];
    char* places[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const int number = first + u * kThreads;
        places[u] = nullptr;
        if (number >= p.num_accesses) continue;
        const Offsets at = find_offsets<0>(p, number);
        places[u] = p.y + at.y;
        loaded[u] = p.x == nullptr ? Access{} : read_once(reinterpret_cast<const Access*>(p.x + at.x));
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        if (places[u] != nullptr) *reinterpret_cast<Access*>(places[u]) = loaded[u];
    }
}

// The same for pieces of 2^31 accesses and more, one access after the other.
template <class Access, int kThreads>
__device__ __forceinline__ void copy_large(const Piece& p, int block) {
    const std::int64_t step = static_cast<std::int64_t>(p.num_blocks) * kThreads;
    for (std::int64_t at = static_cast<std::int64_t>(block) * kThreads + threadIdx.x; at < p.num_accesses; at += step) {
        std::int64_t left = at;
        Offsets found = {0, 0};
        for (int axis = 0; axis < p.num_axes; ++axis) {
            const std::int64_t place = left % p.axes[axis].extent;
            left /= p.axes[axis].extent;
            found.x += place * p.axes[axis].x_step;
            found.y += place * p.axes[axis].y_step;
        }
        *reinterpret_cast<Access*>(p.y + found.y) = p.x == nullptr ? Access{} : *reinterpret_cast<const Access*>(p.x + found.x);
    }
}

template <class Access, int kThreads, int kItems>
__device__ __forceinline__ void copy_run(const Piece& p, int block) {
    if (p.way == Way::kLarge) return copy_large<Access, kThreads>(p, block);
    copy_accesses<Access, kThreads, kItems>(p, block);
}

template <int kThreads, int kItems>
__device__ __forceinline__ void copy_runs(const Piece& p, int block) {
    switch (p.log_bytes) {
        case 0: return copy_run<std::uint8_t, kThreads, kItems>(p, block);
        case 1: return copy_run<std::uint16_t, kThreads, kItems>(p, block);
        case 2: return copy_run<std::uint32_t, kThreads, kItems>(p, block);
        case 3: return copy_run<std::uint64_t, kThreads, kItems>(p, block);
        default: return copy_run<uint4, kThreads, kItems>(p, block);
    }
}

template <bool kHasFolds>
__device__ __forceinline__ TilePart<kHasFolds> find_part(const Piece& p, int block) {
    const int row = p.tiles_down.divide(block), rest = p.tiles_across.divide(row);
    const int first_down = p.tiles_down.find_remainder(block, row) << p.log_down;
    const int first_across = p.tiles_across.find_remainder(row, rest) << p.log_across;
    const Offsets at = find_offsets<2>(p, rest);
    const Axis &down = p.axes[0], &across = p.axes[1];
    return {p.x + at.x + first_across * across.x_step,  p.y + at.y + first_down * down.y_step,          first_down, first_across,
            static_cast<int>(down.extent) - first_down, static_cast<int>(across.extent) - first_across, p.log_down};
}

// Takes a tile of axes 1 and 0 to shared memory along x's innermost axis, and from there to y along y's.
template <class Word, int kThreads>
__device__ __forceinline__ void turn_tile(const Piece& p, int block, char* shared) {
    constexpr int kItems = (1 << kLogTile) / kThreads;
    const TilePart<true> part = find_part<true>(p, block);
    const Axis &down = p.axes[0], &across = p.axes[1];
    const int num_down = part.num_down, num_across = part.num_across;
    const char* const x = part.x + part.first_down * down.x_step;
    char* const y = part.y + part.first_across * across.y_step;
    const int num_places = 1 << (p.log_down + p.log_across);
    Word loaded[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        if (u * kThreads >= num_places) break;
        const int place = u * kThreads + static_cast<int>(threadIdx.x);
        const int i = place >> p.log_across, j = place & ((1 << p.log_across) - 1);
        if (place < num_places && i < num_down && j < num_across) {
            loaded[u] = *reinterpret_cast<const Word*>(x + i * down.x_step + j * across.x_step);
        }
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        if (u * kThreads >= num_places) break;
        const int place = u * kThreads + static_cast<int>(threadIdx.x);
        const int i = place >> p.log_across, j = place & ((1 << p.log_across) - 1);
        if (place < num_places && i < num_down && j < num_across) {
            *reinterpret_cast<Word*>(shared + i * p.pitch_bytes + j * static_cast<int>(sizeof(Word))) = loaded[u];
        }
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        if (u * kThreads >= num_places) break;
        const int place = u * kThreads + static_cast<int>(threadIdx.x);
        const int j = place >> p.log_down, i = place & ((1 << p.log_down) - 1);
        if (place < num_places && i < num_down && j < num_across) {
            *reinterpret_cast<Word*>(y + i * down.y_step + j * across.y_step) =
                *reinterpret_cast<const Word*>(shared + i * p.pitch_bytes + j * static_cast<int>(sizeof(Word)));
        }
    }
}

template <int kThreads>
__device__ __forceinline__ void turn_tiles(const Piece& p, int block, char* shared) {
    switch (p.log_bytes) {
        case 0: return turn_tile<std::uint8_t, kThreads>(p, block, shared);
        case 1: return turn_tile<std::uint16_t, kThreads>(p, block, shared);
        case 2: return turn_tile<std::uint32_t, kThreads>(p, block, shared);
        default: return turn_tile<std::uint64_t, kThreads>(p, block, shared);
    }
}

// kItems packs a thread, a block's width apart.
template <class Element, int kThreads, int kItems>
__device__ __forceinline__ void shift_packs(const Piece& p, int block) {
    const int first = block * (kThreads * kItems) + static_cast<int>(threadIdx.x);
    Pack<Element> packs[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const int number = first + u * kThreads;
        packs[u].end = 0;
        if (number >= p.num_accesses) continue;
        const int row = p.axes[0].divisor.divide(number);
        const Offsets at = find_offsets<1>(p, row);
        packs[u] = load_pack<Element>(p, p.x + at.x, p.y + at.y, p.axes[0].divisor.find_remainder(number, row));
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        if (packs[u].end > 0) packs[u].store();
    }
}

template <int kThreads, int kItems>
__device__ __forceinline__ void shift_rows(const Piece& p, int block) {
    switch (p.log_bytes) {
        case 0: return shift_packs<std::uint8_t, kThreads, kItems>(p, block);
        case 1: return shift_packs<std::uint16_t, kThreads, kItems>(p, block);
        default: return shift_packs<std::uint32_t, kThreads, kItems>(p, block);
    }
}

// grid: blocks of each piece, one piece after the other.
template <int kThreads, int kItems, Rung kRung, int kCapacity>
__global__ void __launch_bounds__(kThreads, 768 / kThreads) copy_pieces(const __grid_constant__ Plan<kCapacity> plan) {
    extern __shared__ __align__(16) char shared[];
    const int number = static_cast<int>(blockIdx.x);
    int i = 0;
    while (i + 1 < plan.num_pieces && number >= plan.pieces[i + 1].first_block) ++i;
    const Piece& p = plan.pieces[i];
    const int block = number - p.first_block;
    if constexpr (kRung >= Rung::kTurned) {
        if (p.way == Way::kTiles) return turn_tiles<kThreads>(p, block, shared);
    }
    if constexpr (kRung >= Rung::kPacked) {
        if (p.way == Way::kPacked) return turn_packed<kThreads>(p, find_part<true>(p, block), shared);
        if (p.way == Way::kRows) return shift_rows<kThreads, kItems>(p, block);
    }
    copy_runs<kThreads, kItems>(p, block);
}

// Threads that a multiprocessor should hold where each has so many accesses under way: their registers follow.
inline constexpr int find_resident_threads(int items) { return items <= 2 ? 1536 : items <= 4 ? 1024 : 512; }

// One piece: kItems accesses a thread, a block's width apart. grid: accesses by blocks.
template <class Access, int kThreads, int kItems, int kAxes>
__global__ void __launch_bounds__(kThreads, find_resident_threads(kItems) / kThreads)
    copy_routed(const __grid_constant__ Route<kAxes> route) {
    const std::uint32_t first = blockIdx.x * (kThreads * kItems) + threadIdx.x;
    Access loaded[kItems];
    Located at[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const std::uint32_t number = first + u * kThreads;
        at[u] = locate(route, number);
        if (number < route.num_accesses) loaded[u] = read_once(reinterpret_cast<const Access*>(route.x) + at[u].x);
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        if (first + u * kThreads < route.num_accesses) reinterpret_cast<Access*>(route.y)[at[u].y] = loaded[u];
    }
}

// Pieces side by side in y's rows: y in the order of its memory. grid: accesses by blocks.
template <class Access, int kThreads, int kItems, int kCapacity>
__global__ void __launch_bounds__(kThreads, find_resident_threads(kItems) / kThreads)
    copy_joined(const __grid_constant__ Join<kCapacity> join) {
    const std::uint32_t first = blockIdx.x * (kThreads * kItems) + threadIdx.x;
    Access loaded[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const std::uint32_t number = first + u * kThreads;
        if (number < join.num_accesses) loaded[u] = read_once(find_source<Access>(join, number));
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const std::uint32_t number = first + u * kThreads;
        if (number < join.num_accesses) reinterpret_cast<Access*>(join.y)[number] = loaded[u];
    }
}

// Runs or rows: accesses of 2^kLogBytes, or packs of elements of as many.
// grid: blocks of each piece, one piece after the other.
template <Way kWay, int kLogBytes, int kThreads, int kItems, int kCapacity>
__global__ void __launch_bounds__(kThreads, find_resident_threads(kItems) / kThreads)
    copy_alike(const __grid_constant__ AlikePlan<kCapacity> plan) {
    const int number = static_cast<int>(blockIdx.x);
    int i = 0;
#pragma unroll
    for (int k = 1; k < kCapacity; ++k) i += number >= plan.first_blocks[k];
    const Piece& p = plan.pieces[i];
    const int block = number - (kCapacity > 1 ? plan.first_blocks[i] : 0);
    using Type = typename Access<1 << kLogBytes>::Type;
    if constexpr (kWay == Way::kRows) {
        shift_packs<Type, kThreads, kItems>(p, block);
    } else {
        copy_accesses<Type, kThreads, kItems>(p, block);
    }
}

// Tiles of words of one piece. grid: its tiles.
template <int kItemBytes, int kThreads, int kLogLines, int kLogX, int kLogY, bool kHasFolds>
__global__ void __launch_bounds__(kThreads, (kItemBytes < 4 ? 1024 : 1536) / kThreads) copy_lines(const __grid_constant__ Piece p) {
    extern __shared__ __align__(16) char shared[];
    turn_lines<kItemBytes, kThreads, kLogLines, kLogX, kLogY>(p, find_part<kHasFolds>(p, static_cast<int>(blockIdx.x)), shared);
}

// Small tiles of words of one piece.
template <int kItemBytes, int kLogX, int kLogY>
__global__ void __launch_bounds__(kPanelThreads, find_resident_panels(kLogX)) copy_panels(const __grid_constant__ Panels p) {
    extern __shared__ __align__(16) char shared[];
    turn_panel<kItemBytes, kLogX, kLogY>(p, shared);
}

// Tiles of one piece, cut at sectors or words of y. grid: tiles across, down, and places of the third axis.
template <class Element, int kTileLines, int kThreads, bool kAtSectors>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) copy_cut(const __grid_constant__ CutTiles p) {
    using Tile = CutTile<Element, kTileLines, kThreads / 32, kAtSectors>;
    __shared__ __align__(16) char shared[Tile::kSharedBytes];
    const Tile tile(p);
    if constexpr (Tile::kIsShort) {
        tile.is_edge(p) ? tile.read_edge(p, shared) : tile.read(p, shared);
    } else {
        tile.read(p, shared);
    }
    __syncthreads();
    tile.write(p, shared);
}

// Slabs of one piece. grid: slabs by blocks.
template <class Element, int kAxes>
__global__ void __launch_bounds__(kSlabThreads, 2048 / kSlabThreads) copy_slabs(const __grid_constant__ Slabs<kAxes> s) {
    extern __shared__ __align__(16) char shared[];
    const std::uint32_t first_word = blockIdx.x * s.block_words;
    const std::uint32_t num_words = min(s.block_words, s.num_words - first_word);
    read_slabs(s, first_word, num_words, shared);
    write_slabs<Element>(s, first_word, num_words, shared);
}

// kItems pairs of y a thread, a block's width apart. grid: pairs by blocks.
template <class Element, int kThreads, int kItems, int kOuter>
__global__ void __launch_bounds__(kThreads, find_resident_threads(kItems) / kThreads)
    copy_margins(const __grid_constant__ Margins<kOuter> m) {
    using Both = typename Access<2 * sizeof(Element)>::Type;
    const std::uint32_t first = blockIdx.x * (kThreads * kItems) + threadIdx.x;
    Element loaded[kItems][2];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const std::uint32_t number = first + u * kThreads;
        const Pair pair = find_pair(m, number);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            loaded[u][e] = pair.is_inside[e] ? reinterpret_cast<const Element*>(m.x)[pair.at + e] : Element{};
        }
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const std::uint32_t number = first + u * kThreads;
        if (number < m.num_pairs) reinterpret_cast<Both*>(m.y)[number] = lay_pair(loaded[u][0], loaded[u][1]);
    }
}

// kItems packs of y a thread, a block's width apart. grid: packs by blocks.
template <class Element, int kThreads, int kItems, int kAxes>
__global__ void __launch_bounds__(kThreads, find_resident_threads(2 * kItems) / kThreads) gather_packs(const __grid_constant__ Gather g) {
    constexpr int kCount = GatheredPack<Element, kAxes>::kCount;
    const int first = static_cast<int>(blockIdx.x) * (kThreads * kItems) + static_cast<int>(threadIdx.x);
    const int num_packs = (g.num_elements + g.misfit - 1) / kCount + 1;
    GatheredPack<Element, kAxes> packs[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const int number = first + u * kThreads;
        if (number < num_packs) packs[u].load(g, number * kCount - g.misfit);
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const int number = first + u * kThreads;
        if (number < num_packs) packs[u].store(g, number * kCount - g.misfit, g.y + std::int64_t{number} * kGatheredBytes);
    }
}

// kItems elements of y a thread, a block's width apart. grid: elements by blocks.
template <class Element, int kThreads, int kItems, int kAxes>
__global__ void __launch_bounds__(kThreads, find_resident_threads(kItems) / kThreads) gather_elements(const __grid_constant__ Gather g) {
    const int first = static_cast<int>(blockIdx.x) * (kThreads * kItems) + static_cast<int>(threadIdx.x);
    Element loaded[kItems];
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const int number = first + u * kThreads;
        const Origin origin = find_origin<0, kAxes>(g, number);
        const bool is_inside = origin.is_inside && number < g.num_elements;
        loaded[u] = is_inside ? *reinterpret_cast<const Element*>(g.x + origin.offset) : Element{};
    }
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
        const int number = first + u * kThreads;
        if (number < g.num_elements) reinterpret_cast<Element*>(g.y)[number] = loaded[u];
    }
}

}  // namespace aicf::strided_copy

// What a launch copies: pieces, each with the axes that are left of it. Addresses and strides are in bytes.
#pragma once

#include <cstdint>

#include "common/division.hpp"
#include "strided_copy/contract.hpp"

namespace aicf::strided_copy {

// What a launch reads once need not stay in L2, where its line would take the place of one that must be written back first.
#ifdef __CUDACC__
template <class Access>
__device__ __forceinline__ Access read_once(const Access* source) {
    if constexpr (kTunables.stream != 0) {
        return __ldcs(source);
    } else {
        return *source;
    }
}
#endif

inline constexpr int kMaxPieces = 8;
inline constexpr int kMaxAxes = 5;
// Pieces, and two boxes of zeros along each axis around them.
inline constexpr int kMaxParts = kMaxPieces + 2 * kMaxAxes;
// Elements of a tile, as a power of two: 16 per thread of 256.
inline constexpr int kLogTile = 12;

// An axis of a piece: how many steps it has, and how far a step goes on either side.
struct Axis {
    std::int64_t extent, x_step, y_step;
    Divisor divisor;  // the extent, unless the piece is large
};

// What a kernel does that the one before does not: see the table in kernels.cu.
enum class Rung { kMerged, kTurned, kPacked, kGathered };

// Two axes that one side has as one: places of the first are counted by the divisor, the second steps this far on the other side. An axis
// alone has no step.
struct Fold {
    Divisor first;
    std::int64_t step;

    // How far place `i` lies from the first, where those of the first axis lie `first_step` apart.
#ifdef __CUDACC__
    __device__ __forceinline__ std::int64_t find_offset(int i, std::int64_t first_step) const {
        if (step == 0) return i * first_step;
        const int second = first.divide(i);
        return second * step + first.find_remainder(i, second) * first_step;
    }
#endif
};

// How the accesses of a piece are numbered: in 31 bits, in tiles of elements or of words that are, in packs of rows that are, or in 64
// bits where there are more.
enum class Way { kRuns, kTiles, kPacked, kRows, kLarge };

// y = x for one piece. Axis 0 is innermost in y. In tiles axis 1 is innermost in x, and a tile has 2^log_across places of axis 1 and
// 2^log_down of axis 0. Where x is null, y is cleared, by runs. In rows axis 0 counts packs of 16 bytes of y, and has no steps: a row's
// bytes are neighbours on both sides.
struct Piece {
    const char* x;
    char* y;
    const char* x_end;          // where the piece ends in x, if it has no gaps there, else null
    std::int64_t num_accesses;  // without tiles
    int num_axes;               // at least 1, in tiles 2
    int log_bytes;              // of an access; of an element in tiles and rows
    int log_x, log_y;           // of an access on either side, in tiles of words
    int row_bytes;              // in rows
    int first_block, num_blocks;
    Way way;
    int log_down, log_across;
    int pitch_bytes;  // of a place of axis 0 in shared memory
    int log_lines;    // of a tile of words
    Divisor tiles_down, tiles_across;
    Axis axes[kMaxAxes];
    Fold down, across;  // in tiles of words
};

// At most kCapacity parts: a launch copies its parameters, most have few.
template <int kCapacity>
struct Plan {
    Piece pieces[kCapacity];
    int num_pieces;
};

// Pieces that go the same way by accesses of the same width. Where their blocks begin lies side by side: a block finds its piece by reads
// that do not wait for each other.
template <int kCapacity>
struct AlikePlan {
    int first_blocks[kCapacity];  // those behind the last piece are none's
    Piece pieces[kCapacity];
};

}  // namespace aicf::strided_copy

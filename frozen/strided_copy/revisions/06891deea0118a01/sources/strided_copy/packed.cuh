// Tiles of a piece by words: as many bytes as an access allows on either side, and elements of 1 or 2 bytes exchanged in registers.
//
// A tile has 128 lines, or fewer, of 128 bytes of x. A line is one place of axis 0 (innermost in y) and 128 bytes along axis 1 (innermost
// in x); 2^log_down lines follow each other along axis 0, and what is left of the lines lies side by side along axis 1. In shared memory a
// line has a pitch of 33 words: lanes that read one word of each of kRows * u-th lines and kRows words beside each other meet in no bank.
#pragma once

#include <cstdint>

#include "strided_copy/pieces.cuh"
#include "strided_copy/words.cuh"

namespace aicf::strided_copy {

inline constexpr int kLogMostLines = 7;
// Lines of a small tile, of which a block of this many threads reads 16 bytes each.
inline constexpr int find_log_few_lines(int threads) { return threads > 256 ? 6 : 5; }
inline constexpr int kLineBytes = 128;
inline constexpr int kLineWords = kLineBytes / 4;
inline constexpr int kPitchWords = kLineWords + 1;

inline constexpr int count_packed_bytes(int log_lines) { return 4 * kPitchWords << log_lines; }

// A tile's part of a piece: its first line in x and its first element of a column in y, which places of both axes are these, and how many
// are left from there on. Where it has no folds, the axes are as they are.
template <bool kHasFolds>
struct TilePart {
    const char* x;  // of place 0 of axis 0
    char* y;        // of place 0 of axis 1
    int first_down, first_across;
    int num_down, num_across;
    int log_down;

    __device__ __forceinline__ const char* find_row(const Piece& p, int row) const {
        return x + find_offset(p.down, first_down + row, p.axes[0].x_step);
    }
    __device__ __forceinline__ char* find_column(const Piece& p, int column) const {
        return y + find_offset(p.across, first_across + column, p.axes[1].y_step);
    }

    static __device__ __forceinline__ std::int64_t find_offset(const Fold& fold, int place, std::int64_t step) {
        if constexpr (kHasFolds) {
            return fold.find_offset(place, step);
        } else {
            return static_cast<std::int64_t>(static_cast<unsigned>(place)) * step;
        }
    }
};

template <int kBytes>
struct Access {};
template <>
struct Access<1> {
    using Type = std::uint8_t;
};
template <>
struct Access<2> {
    using Type = std::uint16_t;
};
template <>
struct Access<4> {
    using Type = std::uint32_t;
};
template <>
struct Access<8> {
    using Type = uint2;
};
template <>
struct Access<16> {
    using Type = uint4;
};

// A thread's place among the lines: always the same bytes of a line, of every kStep-th line from `first` on.
template <int kBytes, int kThreads, int kLogLines>
struct LineWalk {
    static constexpr int kPerLine = kLineBytes / kBytes;
    static constexpr int kStep = kThreads / kPerLine;
    static constexpr int kCount = (1 << kLogLines) / kStep;
    static_assert(kThreads % kPerLine == 0 && kCount > 0, "a thread stays at its place of a line, and has one");

    int first = static_cast<int>(threadIdx.x) / kPerLine;
    int place = static_cast<int>(threadIdx.x) % kPerLine * kBytes;
};

// Reads lines of x by accesses of kBytes, up to 16 of a thread under way at once, or 8 where there are many narrow ones.
template <int kBytes, int kThreads, int kLogLines, class Source, class Tile>
__device__ __forceinline__ void read_lines(const Source& p, const Tile& t, char* shared) {
    using Type = typename Access<kBytes>::Type;
    using Walk = LineWalk<kBytes, kThreads, kLogLines>;
    constexpr int kMost = kBytes < 4 ? 8 : 16, kAtOnce = Walk::kCount < kMost ? Walk::kCount : kMost;
    const Walk walk;
    const int mask = (1 << t.log_down) - 1, left = (t.num_across << p.log_bytes) - walk.place;
    char* const to = shared + walk.first * (4 * kPitchWords) + walk.place;
#pragma unroll 1
    for (int base = 0; base < Walk::kCount; base += kAtOnce) {
        Type loaded[kAtOnce];
        bool is_there[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
            const int line = walk.first + (base + u) * Walk::kStep;
            const int row = line & mask, panel = (line >> t.log_down) * kLineBytes;
            is_there[u] = row < t.num_down && panel < left;
            if (is_there[u]) loaded[u] = read_once(reinterpret_cast<const Type*>(t.find_row(p, row) + (walk.place + panel)));
        }
        char* const lines = to + base * (Walk::kStep * 4 * kPitchWords);
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
            if (!is_there[u]) continue;
            char* const line = lines + u * (Walk::kStep * 4 * kPitchWords);
            if constexpr (kBytes <= 4) {
                *reinterpret_cast<Type*>(line) = loaded[u];
            } else {
                const auto* words = reinterpret_cast<const std::uint32_t*>(&loaded[u]);
#pragma unroll
                for (int k = 0; k < kBytes / 4; ++k) reinterpret_cast<std::uint32_t*>(line)[k] = words[k];
            }
        }
    }
}

// The same for lines that begin between words: a word from two aligned ones and a shift.
template <class Element, int kThreads, int kLogLines, class Tile>
__device__ __forceinline__ void read_shifted_lines(const Piece& p, const Tile& t, char* shared) {
    using Walk = LineWalk<4, kThreads, kLogLines>;
    constexpr int kAtOnce = Walk::kCount < 8 ? Walk::kCount : 8;
    const Walk walk;
    const int mask = (1 << t.log_down) - 1, bytes_across = t.num_across * static_cast<int>(sizeof(Element));
    char* const to = shared + walk.first * (4 * kPitchWords) + walk.place;
#pragma unroll 1
    for (int base = 0; base < Walk::kCount; base += kAtOnce) {
        std::uint32_t loaded[kAtOnce][2];
        int bits[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
            const int line = walk.first + (base + u) * Walk::kStep;
            const int row = line & mask, at = (line >> t.log_down) * kLineBytes + walk.place;
            loaded[u][0] = loaded[u][1] = 0;
            if (row >= t.num_down || at >= bytes_across) continue;
            const char* const begin = t.find_row(p, row);
            const Words<Element> words = find_words<Element>(p, begin, begin + bytes_across, begin + at);
            bits[u] = words.bits;
            words.load(loaded[u]);
        }
        char* const lines = to + base * (Walk::kStep * 4 * kPitchWords);
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
            *reinterpret_cast<std::uint32_t*>(lines + u * (Walk::kStep * 4 * kPitchWords)) =
                __funnelshift_r(loaded[u][0], loaded[u][1], bits[u]);
        }
    }
}

// Exchanges rows and columns of kRows words, 4 / kItemBytes elements each: turned[e] holds column e. A column shorter than a word lies in
// the low bytes of one.
template <int kItemBytes, int kRows>
__device__ __forceinline__ void turn_words(const std::uint32_t (&words)[kRows],
                                           std::uint32_t (&turned)[4 / kItemBytes][(kRows * kItemBytes + 3) / 4]) {
    if constexpr (kItemBytes == 4) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) turned[0][r] = words[r];
    } else if constexpr (kRows * kItemBytes < 4) {
        static_assert(kRows == 1, "one element of a column");
#pragma unroll
        for (int e = 0; e < 4 / kItemBytes; ++e) turned[e][0] = words[0] >> (8 * kItemBytes * e);
    } else if constexpr (kItemBytes == 2) {
#pragma unroll
        for (int r = 0; r < kRows; r += 2) {
            turned[0][r / 2] = __byte_perm(words[r], words[r + 1], 0x5410);
            turned[1][r / 2] = __byte_perm(words[r], words[r + 1], 0x7632);
        }
    } else {
#pragma unroll
        for (int r = 0; r < kRows; r += 4) {
            const std::uint32_t low01 = __byte_perm(words[r], words[r + 1], 0x5140);
            const std::uint32_t low23 = __byte_perm(words[r + 2], words[r + 3], 0x5140);
            const std::uint32_t high01 = __byte_perm(words[r], words[r + 1], 0x7362);
            const std::uint32_t high23 = __byte_perm(words[r + 2], words[r + 3], 0x7362);
            turned[0][r / 4] = __byte_perm(low01, low23, 0x5410);
            turned[1][r / 4] = __byte_perm(low01, low23, 0x7632);
            turned[2][r / 4] = __byte_perm(high01, high23, 0x5410);
            turned[3][r / 4] = __byte_perm(high01, high23, 0x7632);
        }
    }
}

// Stores kRows elements of a column, which lie in words.
template <int kBytes, int kWords>
__device__ __forceinline__ void store_column(char* to, const std::uint32_t (&words)[kWords]) {
    using Type = typename Access<kBytes>::Type;
    if constexpr (kBytes <= 4) {
        *reinterpret_cast<Type*>(to) = static_cast<Type>(words[0]);
    } else if constexpr (kBytes == 8) {
        *reinterpret_cast<Type*>(to) = {words[0], words[1]};
    } else {
        *reinterpret_cast<Type*>(to) = {words[0], words[1], words[2], words[3]};
    }
}

// Writes unit `unit` of a tile by accesses of kRows elements: a warp takes 32 lines and kRows words of them, 32 / kRows accesses that
// follow each other in y, for each of as many columns as these words hold.
template <int kItemBytes, int kRows, int kLogLines, class Source, class Tile>
__device__ __forceinline__ void write_columns(const Source& p, const Tile& t, const char* shared, int unit) {
    constexpr int kColumns = 4 / kItemBytes, kGroups = (1 << kLogLines) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int line = unit % kGroups * 32 + lane % (32 / kRows) * kRows;
    const int word = unit / kGroups * kRows + lane / (32 / kRows);
    const int row = line & ((1 << t.log_down) - 1);
    const int column = ((line >> t.log_down) * kLineWords + word) * kColumns;
    if (row >= t.num_down || column >= t.num_across) return;
    const auto* from = reinterpret_cast<const std::uint32_t*>(shared) + line * kPitchWords + word;
    std::uint32_t words[kRows], turned[kColumns][(kRows * kItemBytes + 3) / 4];
#pragma unroll
    for (int r = 0; r < kRows; ++r) words[r] = from[r * kPitchWords];
    turn_words<kItemBytes, kRows>(words, turned);
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
        if (column + e >= t.num_across) continue;
        store_column<kItemBytes * kRows>(t.find_column(p, column + e) + row * kItemBytes, turned[e]);
    }
}

// The same for elements of two words, one column at a time. Where two lines make an access, half a warp has all even lines: the other half,
// which has the next column, reads its words in another order, so that one half's words lie in even banks and the other's in odd ones.
template <int kRows, int kLogLines, class Source, class Tile>
__device__ __forceinline__ void write_wide_columns(const Source& p, const Tile& t, const char* shared, int unit) {
    constexpr int kItemBytes = 8;
    constexpr int kColumns = kLineWords / 2, kGroups = (1 << kLogLines) / 32;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int line = unit % kGroups * 32 + lane % (32 / kRows) * kRows;
    const int in_line = unit / kGroups * kRows + lane / (32 / kRows);
    const int row = line & ((1 << t.log_down) - 1);
    const int column = (line >> t.log_down) * kColumns + in_line;
    if (row >= t.num_down || column >= t.num_across) return;
    const int swap = lane / (32 / kRows);
    const auto* from = reinterpret_cast<const std::uint32_t*>(shared) + line * kPitchWords + 2 * in_line;
    std::uint32_t words[2 * kRows], ordered[2 * kRows];
#pragma unroll
    for (int k = 0; k < 2 * kRows; ++k) words[k] = from[k / 2 * kPitchWords + (k % 2 ^ swap)];
#pragma unroll
    for (int k = 0; k < 2 * kRows; ++k) ordered[k] = swap == 0 ? words[k] : words[k ^ 1];
    store_column<kItemBytes * kRows>(t.find_column(p, column) + row * kItemBytes, ordered);
}

// How a tile's columns are written by accesses of 2^kLogY bytes.
template <int kItemBytes, int kLogY, int kLogLines>
struct ColumnWalk {
    static constexpr int kRows = (1 << kLogY) / kItemBytes < 1 ? 1 : (1 << kLogY) / kItemBytes;
    static constexpr int kItemWords = kItemBytes == 8 ? 2 : 1;
    static constexpr int kUnits = (1 << kLogLines) / 32 * (kLineWords / kItemWords / kRows);  // of a warp each

    template <class Source, class Tile>
    static __device__ __forceinline__ void write(const Source& p, const Tile& t, const char* shared, int unit) {
        if constexpr (kItemBytes == 8) {
            write_wide_columns<kRows, kLogLines>(p, t, shared, unit);
        } else {
            write_columns<kItemBytes, kRows, kLogLines>(p, t, shared, unit);
        }
    }
};

template <int kItemBytes, int kLogY, int kThreads, int kLogLines, class Tile>
__device__ __forceinline__ void write_as_wide(const Piece& p, const Tile& t, const char* shared) {
    using Walk = ColumnWalk<kItemBytes, kLogY, kLogLines>;
#pragma unroll(kItemBytes == 8 ? 4 : 2)
    for (int unit = static_cast<int>(threadIdx.x) / 32; unit < Walk::kUnits; unit += kThreads / 32) {
        Walk::write(p, t, shared, unit);
    }
}

// Accesses of 2^kLogX bytes; narrower ones than of a word are of shifted words.
template <int kItemBytes, int kLogX, int kThreads, int kLogLines, class Tile>
__device__ __forceinline__ void read_as_wide(const Piece& p, const Tile& t, char* shared) {
    if constexpr (kLogX >= 2) {
        read_lines<1 << kLogX, kThreads, kLogLines>(p, t, shared);
    } else {
        read_shifted_lines<typename Access<kItemBytes>::Type, kThreads, kLogLines>(p, t, shared);
    }
}

// The accesses are as wide as the host found, log_x and log_y of the piece; those of y are of 2 bytes for elements of 2 only.
template <int kItemBytes, int kThreads, int kLogLines, class Tile>
__device__ __forceinline__ void read_tile(const Piece& p, const Tile& t, char* shared) {
    if (p.log_x == 4) return read_as_wide<kItemBytes, 4, kThreads, kLogLines>(p, t, shared);
    if (p.log_x == 3) return read_as_wide<kItemBytes, 3, kThreads, kLogLines>(p, t, shared);
    if constexpr (kItemBytes <= 4) {
        if (p.log_x == 2) return read_as_wide<kItemBytes, 2, kThreads, kLogLines>(p, t, shared);
    }
    if constexpr (kItemBytes <= 2) read_as_wide<kItemBytes, 0, kThreads, kLogLines>(p, t, shared);
}

template <int kItemBytes, int kThreads, int kLogLines, class Tile>
__device__ __forceinline__ void write_tile(const Piece& p, const Tile& t, const char* shared) {
    if (p.log_y == 4) return write_as_wide<kItemBytes, 4, kThreads, kLogLines>(p, t, shared);
    if (p.log_y == 3) return write_as_wide<kItemBytes, 3, kThreads, kLogLines>(p, t, shared);
    if constexpr (kItemBytes <= 4) {
        if (p.log_y == 2) return write_as_wide<kItemBytes, 2, kThreads, kLogLines>(p, t, shared);
    }
    if constexpr (kItemBytes <= 2) write_as_wide<kItemBytes, 0, kThreads, kLogLines>(p, t, shared);
}

// A width that the piece says, in place of one that the compiler knows.
inline constexpr int kAnyLog = -1;

template <int kItemBytes, int kThreads, int kLogLines, int kLogX = kAnyLog, int kLogY = kAnyLog, class Tile>
__device__ __forceinline__ void turn_lines(const Piece& p, const Tile& t, char* shared) {
    if constexpr (kLogX == kAnyLog) {
        read_tile<kItemBytes, kThreads, kLogLines>(p, t, shared);
    } else {
        read_as_wide<kItemBytes, kLogX, kThreads, kLogLines>(p, t, shared);
    }
    __syncthreads();
    if constexpr (kLogY == kAnyLog) {
        write_tile<kItemBytes, kThreads, kLogLines>(p, t, shared);
    } else {
        write_as_wide<kItemBytes, kLogY, kThreads, kLogLines>(p, t, shared);
    }
}

// Tiles of all lines, of elements of up to 4 bytes.
template <int kThreads, class Tile>
__device__ __forceinline__ void turn_packed(const Piece& p, const Tile& t, char* shared) {
    switch (p.log_bytes) {
        case 0: return turn_lines<1, kThreads, kLogMostLines>(p, t, shared);
        case 1: return turn_lines<2, kThreads, kLogMostLines>(p, t, shared);
        default: return turn_lines<4, kThreads, kLogMostLines>(p, t, shared);
    }
}

}  // namespace aicf::strided_copy

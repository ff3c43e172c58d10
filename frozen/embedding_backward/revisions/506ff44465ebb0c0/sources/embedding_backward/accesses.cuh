// A pack's elements out of rows that begin anywhere: by the widest accesses that all rows of the matrix begin on a multiple of.
#pragma once

#include <cstdint>

#include "common/elements.cuh"
#include "common/rows.cuh"

namespace aicf::embedding_backward {

// What is on its way, as it lies in memory: loads of several packs are under way together where nothing looks at them in between.
// kAccess: bytes of an access, 16, 8 or 4, of which a pack's lie next to each other; 0: elements, of which a group's do.
template <class Element, int kGroup, int kAccess>
struct Piece {
    static constexpr int kElems = kPackElems<Element>, kWords = 4;
    std::uint32_t words[kWords];

    // Of columns `rank * kElems` on, of those `width` that the row has.
    __device__ __forceinline__ void load(const Element* row, int rank, int width) {
        const Element* const source = row + rank * kElems;
        const int num_valid = width - rank * kElems;
        if (num_valid >= kElems) {
            if constexpr (kAccess == 16) *reinterpret_cast<uint4*>(words) = *reinterpret_cast<const uint4*>(source);
#pragma unroll
            for (int w = 0; w < kWords; w += 2) {
                if constexpr (kAccess == 8) {
                    *reinterpret_cast<uint2*>(words + w) = *reinterpret_cast<const uint2*>(source + w * kElems / kWords);
                } else if constexpr (kAccess == 4) {
                    words[w] = *reinterpret_cast<const std::uint32_t*>(source + w * kElems / kWords);
                    words[w + 1] = *reinterpret_cast<const std::uint32_t*>(source + (w + 1) * kElems / kWords);
                }
            }
            return;
        }
#pragma unroll
        for (std::uint32_t& word : words) word = 0;
#pragma unroll
        for (int i = 0; i < kElems; ++i) {
            if (i >= num_valid) continue;
            if constexpr (sizeof(Element) == 4) {
                words[i] = reinterpret_cast<const std::uint32_t*>(source)[i];
            } else {
                words[i / 2] |= static_cast<std::uint32_t>(reinterpret_cast<const std::uint16_t*>(source)[i]) << i % 2 * 16;
            }
        }
    }

    __device__ __forceinline__ Pack<Element> unpack() const { return aicf::unpack<Element>({words[0], words[1], words[2], words[3]}); }
};

template <class Element, int kGroup>
struct Piece<Element, kGroup, 0> {
    static constexpr int kElems = kPackElems<Element>;
    Element elements[kElems];

    __device__ __forceinline__ void load(const Element* row, int rank, int width) {
#pragma unroll
        for (int i = 0; i < kElems; ++i) elements[i] = rank + i * kGroup < width ? row[rank + i * kGroup] : from_float<Element>(0.0f);
    }

    __device__ __forceinline__ Pack<Element> unpack() const {
        Pack<Element> pack;
#pragma unroll
        for (int i = 0; i < kElems; ++i) pack.values[i] = to_float(elements[i]);
        return pack;
    }
};

// How rows are accessed: `loads` is the kAccess of pieces, and `stores_packs` says that rows of the table take accesses of 16 bytes.
struct Accesses {
    int loads;
    bool stores_packs;
};

// A pack that a thread of a group has, put where pieces came from.
template <class Element, int kGroup>
__device__ __forceinline__ void store_piece(Element* row, int rank, int width, const Pack<Element>& pack, Accesses accesses) {
    constexpr int kElems = kPackElems<Element>;
    if (accesses.loads != 0) return store_pack_part(row + rank * kElems, pack, width - rank * kElems, accesses.stores_packs);
    RowSpan<Element, kGroup, kElems>{width, rank, false}.store(row, 0, pack);
}

template <class Element, int kGroup>
__device__ __forceinline__ void store_zeros(Element* row, int rank, int width, Accesses accesses) {
    RowSpan<Element, kGroup, kPackElems<Element>>{width, rank, accesses.stores_packs}.store(row, 0, {});
}

}  // namespace aicf::embedding_backward

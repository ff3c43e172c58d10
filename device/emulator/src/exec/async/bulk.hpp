// Instructions of bulk and tensor copies as the decoder hands them to the interpreter (Op::kBulk).
#pragma once

#include <cstdint>

namespace aicf::emu {

enum class BulkOp : uint8_t {
    kCopy,
    kTensor,
    kPrefetch,
    kTensorPrefetch,
    kCommit,
    kWait,
    kReplace,     // tensormap.replace
    kCopyMap,     // tensormap.cp_fenceproxy
    kStoreAsync,  // st.async, red.async
};

// Bits of Inst::mode2.
enum BulkFlags : uint8_t {
    kBulkToGlobal = 1,
    kBulkFromShared = 2,
    kBulkReduces = 4,    // Inst::vec: AtomOp, Inst::dbytes: AtomType (tensors: of the map)
    kBulkMulticast = 8,
    kBulkIm2col = 16,
    kBulkReadOnly = 32,  // wait_group.read
};

// Listed operands, the same for all: an address is a 64-bit base row and an offset (two words, not operands).
enum BulkSlot : uint32_t {
    kSlotTo = 0,
    kSlotFrom = 3,
    kSlotBarrier = 6,
    kSlotSize = 9,
    kSlotMask = 10,
    kSlotCoordinates = 11,
    kSlotOffsets = 16,
    kSlotValues = 11,  // st.async: the data, in place of coordinates
    kNumBulkSlots = 19,
};

}  // namespace aicf::emu

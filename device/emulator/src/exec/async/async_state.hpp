// What is under way between the issue of an asynchronous operation and its completion. PTX ISA, "Asynchronous operations", "mbarrier" and
// "Data Movement and Conversion Instructions: Asynchronous copy".
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace aicf::emu {

struct Warp;
struct Block;

// cp.async.mbarrier.arrive: an arrival that is made when the cp.async copies which the thread issued before it are complete.
struct DeferredArrival {
    Warp* warp = nullptr;
    uint32_t lane = 0;
    uint32_t serial = 0;  // copies of the warp with a lower serial number
    uint32_t agent = 0;
};

enum class BulkKind : uint8_t { kGlobalToShared, kSharedToShared, kSharedToGlobal };

struct TensorCopy;  // tensormap/tensor_map.hpp: a tensor map and where the box lies

// A bulk copy, or the part of a multicast that goes to one block.
struct BulkCopy {
    BulkKind kind = BulkKind::kGlobalToShared;
    bool reduces = false;
    uint8_t reduce_op = 0, reduce_type = 0;  // AtomOp, AtomType
    uint32_t pc = 0, thread = 0;             // who issued it; `thread` in its block
    uint32_t agent = 0, reader = 0;          // stores: `reader` reads shared memory, `agent` writes
    bool reader_done = false;                // somebody waited for the reading
    uint32_t group = 0;          // of its thread's bulk groups
    uint32_t bytes = 0;          // that an mbarrier counts
    Block* issuer = nullptr;
    Block* shared_block = nullptr;  // of the shared memory that is written, or for stores read
    Block* source_block = nullptr;  // between blocks: of what is read
    uint32_t shared = 0, source_shared = 0;
    uint64_t global = 0;
    std::shared_ptr<const TensorCopy> tensor;  // null: a run of bytes
    std::vector<uint8_t> staged;               // of a store whose source has been read, or of st.async
    std::vector<uint8_t> staged_state;
    bool is_staged = false;
};

constexpr uint32_t kMbarrierMaxCount = (1u << 20) - 1;
constexpr int64_t kMbarrierMaxTx = (1 << 20) - 1;

// The state of an mbarrier object. Shared memory holds pack() of it: an image in which a stray store shows.
struct Mbarrier {
    uint32_t expected = 0;  // arrivals of a phase
    uint32_t pending = 0;   // arrivals that the current phase lacks
    uint32_t phase = 0;     // number of the current phase: how many are complete
    int64_t tx = 0;         // bytes that the current phase lacks; below 0 while copies are ahead of what was announced
    uint64_t announced_bytes = 0, delivered_bytes = 0;  // in the current phase, for reports
    uint32_t init_pc = 0;
    std::vector<DeferredArrival> deferred;
    std::vector<BulkCopy> copies;  // in flight, which will count here

    uint64_t pack() const {
        return 2ull << 62 | static_cast<uint64_t>(phase & 1) << 61 | (static_cast<uint64_t>(tx) & 0x1FFFFF) << 40 |
               static_cast<uint64_t>(pending) << 20 | expected;
    }
};

enum class MbarrierOp : uint8_t {
    kInit,
    kInval,
    kArrive,
    kArriveNoComplete,
    kArriveDrop,
    kArriveDropNoComplete,
    kExpectTx,
    kCompleteTx,
    kTestWait,
    kPendingCount,
    kArriveAsync,         // cp.async.mbarrier.arrive
    kArriveAsyncNoInc,
    kFenceInit,
};

// Bits of Inst::mode2 of the mbarrier family.
enum MbarrierFlags : uint8_t {
    kMbarrierRelaxed = 1,  // orders nothing
    kMbarrierParity = 2,   // waits by parity, not by state
    kMbarrierExpectTx = 4, // arrivals that announce bytes first
    kMbarrierGeneric = 8,  // the address is generic
    kMbarrierRemote = 16,  // .shared::cluster
};

}  // namespace aicf::emu

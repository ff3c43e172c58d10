// Bulk and tensor copies: what happens when they are issued, and their groups. PTX ISA, "Asynchronous copy".
//
// A load is made when the mbarrier that it counts on is polled and lacks only bytes (async/mbarrier.cpp); a store reads shared memory when
// its group is waited for, and writes global memory when the group is waited for without .read. Under the random schedule half of them
// are made at once.
#include <algorithm>
#include <cstdio>

#include "../../memory/footprint.hpp"
#include "../../tensormap/tensor_map.hpp"
#include "../warp/warp.hpp"
#include "bulk.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

namespace {

constexpr uint32_t kBulkAlignment = 16, kTensorAlignment = 128, kMapBytes = 128;
constexpr uint8_t kInFlight = 2;

// The runs of shared memory that a copy touches: one, unless a swizzle leaves gaps or ends in the middle of its span.
template <typename Visit>
void visit_shared_side(const BulkCopy& copy, Visit&& visit) {
    if (copy.tensor && (copy.bytes % kTensorAlignment != 0 || copy.tensor->map.shared_bytes() != copy.bytes))
        visit_box(*copy.tensor, copy.shared, [&](uint64_t, uint32_t shared, uint32_t bytes) { visit(shared, bytes); });
    else
        visit(copy.shared, copy.bytes);
}

AtomType reduction_type(const TensorMap& map, AtomOp op) {
    const bool bitwise = op == AtomOp::kAnd || op == AtomOp::kOr || op == AtomOp::kXor;
    switch (map.type) {
        case MapType::kU32: return bitwise ? AtomType::kB32 : AtomType::kU32;
        case MapType::kI32: return bitwise ? AtomType::kB32 : AtomType::kS32;
        case MapType::kU64: return bitwise ? AtomType::kB64 : AtomType::kU64;
        case MapType::kI64: return bitwise ? AtomType::kB64 : AtomType::kS64;
        case MapType::kF16: return AtomType::kF16;
        case MapType::kBF16: return AtomType::kBF16;
        case MapType::kF64: return AtomType::kF64;
        default: return AtomType::kF32;
    }
}

bool is_tensor_reduction(const TensorMap& map, AtomOp op) {
    const bool is_half = map.type == MapType::kF16 || map.type == MapType::kBF16;
    const bool is_integer = map.type >= MapType::kU32 && map.type <= MapType::kI64;
    switch (op) {
        case AtomOp::kAdd: return map.type >= MapType::kU32;
        case AtomOp::kMin:
        case AtomOp::kMax: return is_integer || is_half;
        case AtomOp::kInc:
        case AtomOp::kDec: return map.type == MapType::kU32;
        default: return is_integer && map.type != MapType::kI64;  // an H200 has no bitwise reduction of signed 64-bit numbers
    }
}

}  // namespace

template <Mode M>
uint64_t Interpreter<M>::listed_address(const Inst& inst, uint32_t slot, uint32_t lane) const {
    const uint64_t offset = listed(inst, slot + 1) | static_cast<uint64_t>(listed(inst, slot + 2)) << 32;
    return row64(listed(inst, slot))[lane] + offset;
}

template <Mode M>
size_t Interpreter<M>::draw(size_t count) {
    uint64_t z = block_.random += 0x9E3779B97F4A7C15ull;  // SplitMix64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return static_cast<size_t>((z ^ (z >> 31)) % count);
}

template <Mode M>
void Interpreter<M>::bad_access(uint32_t lane, Finding finding, MemSpace space, uint64_t address, uint32_t bytes, bool is_write) {
    report_access(worker_, block_, warp_, pc_, lane, {finding, space, is_write, false, address, bytes});
    if (warp_.depends) return;
    const int status = finding == Finding::kMisaligned ? kErrorMisalignedAddress : kErrorIllegalAddress;
    if (!checking(kMemcheck)) return stop_launch(status);
    std::lock_guard lock(block_.launch->mutex);  // go on, to collect all findings; the launch fails at its end
    if (block_.launch->status == kSuccess) block_.launch->status = status;
}

// Whether a run of bytes of global memory may be touched; reports when not.
template <Mode M>
bool Interpreter<M>::check_run(uint32_t lane, uint64_t address, uint32_t bytes, bool is_write) {
    Range& range = worker_.ranges[pc_];
    if (address >= range.begin && address + bytes <= range.end && address + bytes >= address) return true;
    const Allocation* allocation = memory_.find(address);
    const bool inside = allocation && address >= allocation->address && address + bytes <= allocation->address + allocation->size_bytes;
    if (inside && allocation->live && memory_.reaches(*allocation)) {
        if (is_write && allocation->read_only && checking(kMemcheck)) {
            report_access(worker_, block_, warp_, pc_, lane, {Finding::kReadOnlyWrite, MemSpace::kGlobal, true, false, address, bytes});
            return true;
        }
        if (is_write && checking(kDependence)) worker_.stored.insert(allocation->address);
        range = {allocation->address, allocation->address + allocation->size_bytes, allocation->given, allocation->is_shared};
        return true;
    }
    const Finding outside = is_write ? Finding::kOutOfBoundsWrite : Finding::kOutOfBoundsRead;
    const Finding finding = inside && allocation->live ? Finding::kPeerAccess : inside ? Finding::kUseAfterFree : outside;
    bad_access(lane, finding, MemSpace::kGlobal, address, bytes, is_write);
    return false;
}

// The block and offset of `bytes` bytes of shared memory; null after a report.
template <Mode M>
Block* Interpreter<M>::check_shared_run(uint32_t lane, uint64_t address, uint32_t bytes, uint32_t alignment, bool is_write,
                                        uint32_t& offset) {
    Block* owner = shared_of(static_cast<uint32_t>(address), offset);
    if (offset % alignment != 0) {
        bad_access(lane, Finding::kMisaligned, MemSpace::kShared, static_cast<uint32_t>(address), alignment, is_write);
        return nullptr;
    }
    if (owner && owner->has_shared(offset, bytes)) return owner;
    bad_access(lane, is_write ? Finding::kOutOfBoundsWrite : Finding::kOutOfBoundsRead, MemSpace::kShared, static_cast<uint32_t>(address),
               bytes, is_write);
    return nullptr;
}

// The tensor map at a generic address and the box's place; false after a report.
template <Mode M>
bool Interpreter<M>::read_tensor_map(const Inst& inst, uint32_t slot, uint32_t lane, TensorCopy& copy) {
    const uint64_t address = listed_address(inst, slot, lane);
    const auto invalid = [&](const std::string& why) {
        misuse(lane, Finding::kTensorMapInvalid, why);
        return false;
    };
    const uint64_t window = address & kWindowMask;
    if (window == kSharedWindow || window == kLocalWindow)
        return invalid("a tensor map is read from global, constant or parameter memory (a __grid_constant__ parameter), not from here");
    if ((address & ~kWindowMask) % 64 != 0) return invalid("the address of the tensor map is no multiple of 64");
    if (!read_generic(block_, warp_, lane, address, &copy.map, sizeof copy.map))
        return invalid("there are no 128 bytes at the address of the tensor map");
    if (std::string fault = tensor_map_fault(copy.map); !fault.empty()) return invalid(fault);
    const TensorMap& map = copy.map;
    if (map.rank != inst.bytes)
        return invalid("the tensor map has rank " + std::to_string(map.rank) + ", and the instruction is of " + std::to_string(inst.bytes) +
                       "d");
    if (map.im2col != ((inst.mode2 & kBulkIm2col) != 0))
        return invalid(map.im2col ? "the tensor map is of im2col mode, the instruction of tile mode"
                                  : "the tensor map is of tile mode, the instruction of im2col mode");
    if (map.interleave != 0) return invalid("interleaved layouts are not supported by the emulated device");
    for (uint32_t i = 0; i < map.rank; ++i) copy.at[i] = static_cast<int32_t>(row32(listed(inst, kSlotCoordinates + i))[lane]);
    // As an H200 has it: both end a kernel there as an illegal instruction.
    if (static_cast<int64_t>(copy.at[0]) * map.element_bytes() % kBulkAlignment != 0)
        return invalid("the first coordinate, " + std::to_string(copy.at[0]) + ", is no multiple of 16 bytes");
    if (inst.mode2 & kBulkToGlobal) {
        for (uint32_t i = 0; i < map.rank; ++i)
            if (copy.at[i] < 0) return invalid("a store has the negative coordinate " + std::to_string(copy.at[i]));
    }
    for (uint32_t i = 0; i < 3; ++i) copy.offset[i] = row32(listed(inst, kSlotOffsets + i))[lane] & 0xFFFF;
    return true;
}

// The runs of global memory that a copy reads or writes: bounds, counters, the accesses of its agent. False after a report.
template <Mode M>
bool Interpreter<M>::check_global_side(uint32_t lane, const BulkCopy& copy, bool is_write) {
    bool fine = true;
    const auto visit = [&](uint64_t global, uint32_t, uint32_t bytes) {
        if (global == kOutOfBounds || !fine) return;
        fine = check_run(lane, global, bytes, is_write);
        if (!fine) return;
        if (checking(kStreamcheck) && memory_.contains(global)) {
            const Touch touch = !is_write ? Touch::kRead : copy.reduces ? Touch::kStrongWrite : Touch::kWrite;
            memory_.footprints().mark(touch, global, bytes);
        }
        if constexpr (kCount) count_bulk_global(global, bytes, !is_write || copy.reduces, is_write);
        if (checking(kRacecheck)) agent_access({copy.agent}, MemSpace::kGlobal, nullptr, global, bytes, is_write);
    };
    if (!copy.tensor) {
        visit(copy.global, 0, copy.bytes);
        return fine;
    }
    TensorCopy plain = *copy.tensor;  // row by row: a swizzle changes nothing on this side
    plain.map.swizzle = 0;
    plain.whole_units = false;  // what goes into padding is nobody's wish
    visit_box(plain, 0, visit);
    return fine;
}

template <Mode M>
void Interpreter<M>::issue_load(const Inst& inst, uint32_t lane) {
    BulkCopy copy;
    copy.kind = inst.mode2 & kBulkFromShared ? BulkKind::kSharedToShared : BulkKind::kGlobalToShared;
    copy.pc = pc_;
    copy.thread = thread_of(lane);
    copy.issuer = &block_;
    copy.reduces = inst.mode2 & kBulkReduces;
    copy.reduce_op = inst.vec;
    copy.reduce_type = inst.dbytes;
    if (static_cast<BulkOp>(inst.mode) == BulkOp::kTensor) {
        auto tensor = std::make_shared<TensorCopy>();
        if (!read_tensor_map(inst, kSlotFrom, lane, *tensor)) return;
        copy.bytes = tensor->map.box_bytes();
        copy.tensor = std::move(tensor);
    } else {
        copy.bytes = row32(listed(inst, kSlotSize))[lane];
        const uint64_t from = listed_address(inst, kSlotFrom, lane);
        if (copy.bytes % kBulkAlignment != 0)
            return bad_access(lane, Finding::kMisaligned, MemSpace::kShared, copy.bytes, kBulkAlignment, true);
        if (copy.kind == BulkKind::kSharedToShared) {
            copy.source_block = check_shared_run(lane, from, copy.bytes, kBulkAlignment, false, copy.source_shared);
            if (!copy.source_block) return;
        } else {
            if (from % kBulkAlignment != 0) return bad_access(lane, Finding::kMisaligned, MemSpace::kGlobal, from, kBulkAlignment, false);
            copy.global = from;
        }
    }
    const uint64_t to = listed_address(inst, kSlotTo, lane), barrier = listed_address(inst, kSlotBarrier, lane);
    const uint32_t alignment = copy.tensor ? kTensorAlignment : kBulkAlignment;
    if (!(inst.mode2 & kBulkMulticast)) return issue_load_to(lane, std::move(copy), to, barrier, alignment);
    const uint32_t blocks = row32(listed(inst, kSlotMask))[lane] & 0xFFFF;
    const uint32_t cluster_blocks = block_.cluster ? static_cast<uint32_t>(block_.cluster->blocks.size()) : 1;
    if (blocks == 0 || blocks >> cluster_blocks != 0) {
        return misuse(
            lane, Finding::kInvalidMulticast,
            "the mask " + std::to_string(blocks) + " names blocks that a cluster of " + std::to_string(cluster_blocks) + " has not");
    }
    for (uint32_t rank = 0; rank < cluster_blocks; ++rank) {
        if (!(blocks >> rank & 1)) continue;
        const uint64_t window = static_cast<uint64_t>(rank + 1) << kSharedRankShift;
        issue_load_to(lane, copy, (to & kSharedOffsetMask) | window, (barrier & kSharedOffsetMask) | window, alignment);
    }
}

template <Mode M>
void Interpreter<M>::issue_load_to(uint32_t lane, BulkCopy copy, uint64_t to, uint64_t barrier_address, uint32_t alignment) {
    const uint32_t extent = copy.tensor ? copy.tensor->map.shared_bytes() : copy.bytes;
    copy.shared_block = check_shared_run(lane, to, extent, alignment, true, copy.shared);
    if (!copy.shared_block) return;
    if (checking(kRacecheck)) copy.agent = agent_start(lane, Proxy::kAsync).id;
    if (copy.kind == BulkKind::kGlobalToShared && !copy.is_staged && !check_global_side(lane, copy, false)) return;
    if (checking(kRacecheck)) {
        if (copy.kind == BulkKind::kSharedToShared && !copy.is_staged)
            agent_access({copy.agent}, MemSpace::kShared, copy.source_block, copy.source_shared, copy.bytes, false);
        visit_shared_side(copy, [&](uint32_t shared, uint32_t bytes) {
            agent_access({copy.agent}, MemSpace::kShared, copy.shared_block, shared, bytes, true);
        });
    }
    register_load(lane, std::move(copy), barrier_address);
}

// Marks the destination as in flight, and lets the mbarrier know.
template <Mode M>
void Interpreter<M>::register_load(uint32_t lane, BulkCopy copy, uint64_t barrier_address) {
    const auto ref = mbarrier_place(lane, barrier_address);
    if (!ref.barrier) return;
    if constexpr (kCount) {
        count().bulk_copies++;
        (copy.kind == BulkKind::kSharedToShared ? count().bulk_cluster_bytes : count().bulk_load_bytes) += copy.bytes;
        if (copy.reduces) count().bulk_reduce_bytes += copy.bytes;
    }
    if (uint8_t* state = copy.shared_block->shared_state) {
        visit_shared_side(copy, [&](uint32_t shared, uint32_t bytes) {
            for (uint32_t i = 0; i < bytes; ++i) state[shared + i] |= kInFlight;
        });
    }
    ++worker_.progress;
    if (block_.launch->options.schedule == Schedule::kRandom && draw(2) == 0) {
        deliver_bulk(copy);
        if (checking(kRacecheck)) agent_release({copy.agent}, ref.object);
        ref.barrier->tx -= copy.bytes;
        ref.barrier->delivered_bytes += copy.bytes;
        return mbarrier_settle(*ref.owner, ref.address, *ref.barrier, false);
    }
    ref.barrier->copies.push_back(std::move(copy));
}

static bool is_same_store(const BulkCopy& copy, const BulkCopy& before) {
    if (copy.pc != before.pc || copy.thread == before.thread || copy.group != before.group || before.reader_done) return false;
    if (copy.shared != before.shared || copy.shared_block != before.shared_block || copy.bytes != before.bytes) return false;
    if (!copy.tensor || !before.tensor) return !copy.tensor && !before.tensor && copy.global == before.global;
    const TensorCopy &one = *copy.tensor, &other = *before.tensor;
    return std::memcmp(&one.map, &other.map, sizeof one.map) == 0 && std::equal(one.at, one.at + kMaxTensorRank, other.at) &&
           std::equal(one.offset, one.offset + 3, other.offset);
}

template <Mode M>
void Interpreter<M>::issue_store(const Inst& inst, uint32_t lane) {
    BulkCopy copy;
    copy.kind = BulkKind::kSharedToGlobal;
    copy.pc = pc_;
    copy.thread = lane;
    copy.issuer = &block_;
    copy.reduces = inst.mode2 & kBulkReduces;
    copy.reduce_op = inst.vec;
    copy.reduce_type = inst.dbytes;
    copy.group = warp_.bulk_commits[lane];
    uint32_t alignment = kBulkAlignment;
    if (static_cast<BulkOp>(inst.mode) == BulkOp::kTensor) {
        auto tensor = std::make_shared<TensorCopy>();
        if (!read_tensor_map(inst, kSlotTo, lane, *tensor)) return;
        if (copy.reduces) {
            const AtomOp op = static_cast<AtomOp>(inst.vec);
            if (!is_tensor_reduction(tensor->map, op))
                return misuse(lane, Finding::kTensorMapInvalid, "this reduction is not defined for the element type of the tensor map");
            copy.reduce_type = static_cast<uint8_t>(reduction_type(tensor->map, op));
        }
        copy.bytes = tensor->map.box_bytes();
        tensor->whole_units = !copy.reduces;
        copy.tensor = std::move(tensor);
        alignment = kTensorAlignment;
    } else {
        copy.bytes = row32(listed(inst, kSlotSize))[lane];
        copy.global = listed_address(inst, kSlotTo, lane);
        if (copy.bytes % kBulkAlignment != 0)
            return bad_access(lane, Finding::kMisaligned, MemSpace::kShared, copy.bytes, kBulkAlignment, true);
        if (copy.global % kBulkAlignment != 0)
            return bad_access(lane, Finding::kMisaligned, MemSpace::kGlobal, copy.global, kBulkAlignment, true);
    }
    const uint32_t extent = copy.tensor ? copy.tensor->map.shared_bytes() : copy.bytes;
    copy.shared_block = check_shared_run(lane, listed_address(inst, kSlotFrom, lane), extent, alignment, false, copy.shared);
    if (!copy.shared_block) return;
    // A warp that executes a store with the same operands in all its threads makes it once, as ptxas does: so libraries write it.
    if (!copy.reduces && !warp_.bulk_stores.empty() && is_same_store(copy, warp_.bulk_stores.back())) return;
    if (checking(kRacecheck)) {
        copy.reader = agent_start(lane, Proxy::kAsync).id;
        visit_shared_side(copy, [&](uint32_t shared, uint32_t bytes) {
            agent_access({copy.reader}, MemSpace::kShared, copy.shared_block, shared, bytes, false);
        });
        copy.agent = agent_start(lane, Proxy::kAsync).id;
    }
    if (!check_global_side(lane, copy, true)) return;
    if constexpr (kCount) {
        count().bulk_copies++;
        count().bulk_store_bytes += copy.bytes;
        if (copy.reduces) count().bulk_reduce_bytes += copy.bytes;
    }
    if (block_.launch->options.schedule == Schedule::kRandom && draw(2) == 0) stage_store(copy);
    warp_.bulk_stores.push_back(std::move(copy));
}

// Waits for the lanes' groups, but for their latest `groups_left`; `all`: also for copies that are in no group yet.
template <Mode M>
void Interpreter<M>::finish_bulk(uint32_t lanes, uint32_t groups_left, bool all, bool read_only) {
    for (size_t i = 0; i < warp_.bulk_stores.size();) {
        BulkCopy& copy = warp_.bulk_stores[i];
        const uint32_t lane = copy.thread;
        const bool is_due = (lanes >> lane & 1) && (all || copy.group + groups_left < warp_.bulk_commits[lane]);
        if (!is_due) {
            ++i;
            continue;
        }
        if (!copy.is_staged) stage_store(copy);
        if (checking(kRacecheck) && copy.reader) agent_join({copy.reader}, 1u << lane);
        copy.reader = 0;
        if (read_only) {
            ++i;
            continue;
        }
        write_store(copy);
        if (checking(kRacecheck)) agent_join({copy.agent}, 1u << lane);
        warp_.bulk_stores.erase(warp_.bulk_stores.begin() + static_cast<ptrdiff_t>(i));
    }
}

// Threads exit: what they stored goes out. Shared memory may be gone before it is read, unless they waited.
template <Mode M>
void Interpreter<M>::exit_bulk(uint32_t lanes) {
    for (const BulkCopy& copy : warp_.bulk_stores) {
        if (!(lanes >> copy.thread & 1) || copy.reader_done || !checking(kSynccheck)) continue;
        report_event(worker_, block_, warp_, copy.pc, copy.thread, Finding::kBulkStoreUnfinished,
                     "the thread exits without a cp.async.bulk.wait_group for it: shared memory may be gone before it has been read");
    }
    finish_bulk(lanes, 0, true, false);
    if (static_cast<uint32_t>(std::popcount(lanes)) != block_.live_threads || !checking(kSynccheck)) return;
    for (const auto& [address, barrier] : block_.mbarriers) {
        for (const BulkCopy& copy : barrier.copies) {
            report_event(worker_, block_, warp_, copy.pc, std::countr_zero(lanes), Finding::kBulkStoreUnfinished,
                         "the block ends while " + std::to_string(copy.bytes) + " bytes are on their way into its shared memory: nobody " +
                             "waited for the mbarrier at shared address " + std::to_string(address));
        }
    }
}

template <Mode M>
void Interpreter<M>::bulk(const Inst& inst, uint32_t mask) {
    switch (static_cast<BulkOp>(inst.mode)) {
        case BulkOp::kCommit: for_lanes(mask, [&](uint32_t lane) { ++warp_.bulk_commits[lane]; }); break;
        case BulkOp::kWait: {
            if constexpr (kCount) count().async_waits++;
            const uint32_t left = row32(listed(inst, kSlotSize))[std::countr_zero(mask)];
            const bool read_only = inst.mode2 & kBulkReadOnly;
            finish_bulk(mask, left, false, read_only);
            for (BulkCopy& copy : warp_.bulk_stores)
                copy.reader_done |= copy.is_staged && copy.reader == 0 && read_only && (mask >> copy.thread & 1);
            break;
        }
        case BulkOp::kCopy:
        case BulkOp::kTensor:
            for_lanes(mask, [&](uint32_t lane) {
                if (fatal_) return;
                if (inst.mode2 & kBulkToGlobal)
                    issue_store(inst, lane);
                else
                    issue_load(inst, lane);
            });
            break;
        case BulkOp::kPrefetch:
            for_lanes(mask, [&](uint32_t lane) {
                const uint64_t from = listed_address(inst, kSlotFrom, lane);
                const uint32_t bytes = row32(listed(inst, kSlotSize))[lane];
                if (from % kBulkAlignment != 0 || bytes % kBulkAlignment != 0)
                    return bad_access(lane, Finding::kMisaligned, MemSpace::kGlobal, from, kBulkAlignment, false);
                check_run(lane, from, bytes, false);
            });
            break;
        case BulkOp::kTensorPrefetch:
            for_lanes(mask, [&](uint32_t lane) {
                TensorCopy copy;
                if (!read_tensor_map(inst, kSlotFrom, lane, copy)) return;
            });
            break;
        case BulkOp::kReplace:
        case BulkOp::kCopyMap: change_tensor_map(inst, mask); break;
        case BulkOp::kStoreAsync: for_lanes(mask, [&](uint32_t lane) { store_async(inst, lane); }); break;
    }
    ++pc_;
}

template <Mode M>
void Interpreter<M>::store_async(const Inst& inst, uint32_t lane) {
    // An H200 ends the kernel, whosever shared memory it is; a cluster of one block that was asked for is enough. PTX says nothing of it.
    if (!block_.launch->launch->has_cluster)
        misuse(lane, Finding::kNoCluster, "a GPU ends the kernel with an illegal instruction; ordinary stores serve a block that is alone");
    BulkCopy copy;
    copy.kind = BulkKind::kSharedToShared;
    copy.pc = pc_;
    copy.thread = thread_of(lane);
    copy.issuer = copy.source_block = &block_;
    copy.reduces = inst.mode2 & kBulkReduces;
    copy.reduce_op = inst.vec;
    copy.reduce_type = inst.dbytes;
    copy.bytes = inst.bytes;
    copy.is_staged = true;
    copy.staged.resize(inst.bytes);
    const AtomType type = static_cast<AtomType>(inst.dbytes);
    const uint32_t size = type == AtomType::kB64 || type == AtomType::kU64 || type == AtomType::kS64 || type == AtomType::kF64 ? 8 : 4;
    for (uint32_t i = 0; i * size < inst.bytes; ++i) {
        const uint8_t* value = row(listed(inst, kSlotValues + i)) + lane * size;
        std::memcpy(copy.staged.data() + i * size, value, size);
    }
    issue_load_to(lane, std::move(copy), listed_address(inst, kSlotTo, lane), listed_address(inst, kSlotBarrier, lane), inst.bytes);
}

// tensormap.replace and tensormap.cp_fenceproxy: in global or shared memory.
template <Mode M>
void Interpreter<M>::change_tensor_map(const Inst& inst, uint32_t mask) {
    const bool copies = static_cast<BulkOp>(inst.mode) == BulkOp::kCopyMap;
    if (copies) mask &= -mask;  // one copy for the warp
    for_lanes(mask, [&](uint32_t lane) {
        const auto place = [&](uint32_t slot, bool in_shared, bool is_write) -> uint8_t* {
            const uint64_t address = listed_address(inst, slot, lane);
            if (in_shared || (address & kWindowMask) == kSharedWindow) {
                uint32_t offset = 0;
                Block* owner = check_shared_run(lane, address, kMapBytes, 64, is_write, offset);
                if (!owner) return nullptr;
                if (is_write && owner->shared_state) std::memset(owner->shared_state + offset, 1, kMapBytes);
                return owner->shared + offset;
            }
            if (address % 64 != 0) {
                bad_access(lane, Finding::kMisaligned, MemSpace::kGlobal, address, 64, is_write);
                return nullptr;
            }
            if (!check_run(lane, address, kMapBytes, is_write)) return nullptr;
            if (is_write) memory_.mark_initialized(address, kMapBytes);
            return reinterpret_cast<uint8_t*>(memory_.alias(memory_.data_offset(address)));
        };
        uint8_t* to = place(kSlotTo, inst.mode2 & kBulkFromShared, true);
        if (!to) return;
        if (copies) {
            if (const uint8_t* from = place(kSlotFrom, true, false)) std::memcpy(to, from, kMapBytes);
            return;
        }
        TensorMap map;
        std::memcpy(&map, to, sizeof map);
        if (std::string fault = tensor_map_fault(map); !fault.empty()) return misuse(lane, Finding::kTensorMapInvalid, fault);
        const uint32_t slot = listed(inst, kSlotMask);
        const uint64_t value = inst.dbytes == 8 ? row64(slot)[lane] : row32(slot)[lane];
        if (!replace_field(map, static_cast<MapField>(inst.vec), row32(listed(inst, kSlotSize))[lane], value))
            return misuse(lane, Finding::kTensorMapInvalid, "the field cannot have the value " + std::to_string(value));
        std::memcpy(to, &map, sizeof map);
    });
}

template <Mode M>
void Interpreter<M>::fence_proxy(const Inst& inst, uint32_t mask) {
    constexpr ProxyFence kKinds[] = {ProxyFence::kAsync, ProxyFence::kAsyncGlobal, ProxyFence::kAsyncShared, ProxyFence::kAlias,
                                     ProxyFence::kTensormap};
    if (checking(kRacecheck)) proxy_fence(mask, kKinds[inst.mode]);
    ++pc_;
}

#define AICF_INSTANTIATE(MODE)                                    \
    template void Interpreter<MODE>::bulk(const Inst&, uint32_t); \
    template void Interpreter<MODE>::exit_bulk(uint32_t);         \
    template size_t Interpreter<MODE>::draw(size_t);              \
    template void Interpreter<MODE>::fence_proxy(const Inst&, uint32_t);
AICF_INSTANTIATE(Mode::kPlain)
AICF_INSTANTIATE(Mode::kChecked)
AICF_INSTANTIATE(Mode::kCounted)

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu

// cp.async: the copy is made at the latest legal moment, when its group is waited for, so that code which reads too early sees old bytes.
#include <algorithm>

#include "../../memory/footprint.hpp"
#include "../warp/warp.hpp"

namespace aicf::emu {
inline namespace AICF_ENGINE_NAMESPACE {

template <Mode M>
void Interpreter<M>::async_copy(const Inst& inst, uint32_t mask) {
    alignas(64) uint64_t to[kWarpLanes];
    alignas(64) uint64_t from[kWarpLanes];
    AsyncCopy copy;
    const uint32_t ignored = predicate(inst.pa);
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        to[lane] = row32(inst.a)[lane] + inst.imm;
        from[lane] = row64(inst.b)[lane] + static_cast<uint64_t>(inst.offset);
        copy.source_bytes[lane] = ignored >> lane & 1 ? 0 : static_cast<uint8_t>(std::min<uint32_t>(row32(inst.c)[lane], inst.bytes));
        copy.group[lane] = warp_.commits[lane];
        // A generic address is taken for what it points to.
        to[lane] &= 0xFFFFFFFFull;
    }
    mask = check_shared(mask, to, inst.bytes, true, false);
    // Lanes that read nothing have no source to check.
    uint32_t reading = 0;
    for_lanes(mask, [&](uint32_t lane) { reading |= copy.source_bytes[lane] ? 1u << lane : 0; });
    uint32_t readable = 0;
    for_lanes(reading, [&](uint32_t lane) {
        uint32_t ok = 0;
        if (copy.source_bytes[lane] == inst.bytes) {
            ok = check_global(1u << lane, from, inst.bytes, false, false, from[lane], from[lane], from[lane]);
        } else {  // a part: byte by byte up to the source size, the base aligned all the same
            ok = from[lane] % inst.bytes == 0 || copy.source_bytes[lane] == 0
                     ? 1u << lane
                     : check_global(1u << lane, from, inst.bytes, false, false, from[lane], from[lane], from[lane]);
            uint64_t last[kWarpLanes] = {};
            last[lane] = from[lane] + copy.source_bytes[lane] - 1;
            if (ok)
                ok = check_global(1u << lane, from, 1, false, false, from[lane], from[lane], 0) &
                     check_global(1u << lane, last, 1, false, false, last[lane], last[lane], 0);
        }
        readable |= ok;
    });
    mask &= ~(reading & ~readable);
    if (mask == 0) return;
    if (checking(kInitcheck)) {
        for_lanes(reading & readable, [&](uint32_t lane) {
            if (memory_.is_initialized(from[lane], copy.source_bytes[lane])) return;
            report_access(worker_, block_, warp_, pc_, lane,
                          {Finding::kUninitialized, MemSpace::kGlobal, false, false, from[lane], copy.source_bytes[lane]});
        });
        for_lanes(mask, [&](uint32_t lane) {
            for (uint32_t i = 0; i < inst.bytes; ++i) block_.shared_state[to[lane] + i] |= 2;
        });
    }
    if (checking(kDependence))
        for_lanes(reading & readable, [&](uint32_t lane) {
            if (is_unknown(from[lane], copy.source_bytes[lane], false)) note_dependence();
        });
    if (checking(kStreamcheck))
        for_lanes(reading & readable, [&](uint32_t lane) {
            if (memory_.contains(from[lane])) memory_.footprints().mark(Touch::kRead, from[lane], copy.source_bytes[lane]);
        });
    if (checking(kRacecheck)) race_write(mask, to, inst.bytes, false, nullptr);
    if constexpr (kCount) count_async_copy(mask, reading & readable, to, from, inst.bytes);
    copy.mask = mask;
    copy.pc = pc_;
    copy.serial = warp_.async_serial++;
    copy.bytes = inst.bytes;
    for (uint32_t lane = 0; lane < kWarpLanes; ++lane) {
        copy.destination[lane] = static_cast<uint32_t>(to[lane]);
        copy.source[lane] = memory_.data_offset(from[lane]);
    }
    warp_.async.push_back(copy);
}

template <Mode M>
void Interpreter<M>::async_commit(uint32_t mask) {
    for_lanes(mask, [&](uint32_t lane) { ++warp_.commits[lane]; });
}

template <Mode M>
void Interpreter<M>::async_wait(const Inst& inst, uint32_t mask) {
    if constexpr (kCount) count().async_waits += !warp_.async.empty();
    if (inst.flags & kFlagWaitAll)
        finish_async(mask, 0, true);
    else
        finish_async(mask, inst.imm, false);
}

// Makes the copies of the lanes' groups, but for the latest `groups_left` committed ones; `all`: uncommitted ones as well.
template <Mode M>
void Interpreter<M>::finish_async(uint32_t lanes, uint32_t groups_left, bool all) {
    size_t kept = 0;
    for (size_t i = 0; i < warp_.async.size(); ++i) {
        AsyncCopy& copy = warp_.async[i];
        uint32_t ready = 0;
        for_lanes(copy.mask & lanes, [&](uint32_t lane) {
            const bool done = all || copy.group[lane] + groups_left < warp_.commits[lane];
            ready |= done ? 1u << lane : 0;
        });
        if (ready) {
            make_async_copies(copy, ready);
            if (checking(kRacecheck)) {
                uint64_t address[kWarpLanes];
                for (uint32_t lane = 0; lane < kWarpLanes; ++lane) address[lane] = copy.destination[lane];
                const uint32_t here = pc_;
                pc_ = copy.pc;
                // Those that an mbarrier tells of are ordered by it, however late they are made here.
                uint32_t untold = 0;
                for_lanes(ready, [&](uint32_t lane) { untold |= copy.serial >= warp_.async_handed[lane] ? 1u << lane : 0; });
                if (untold) race_write(untold, address, copy.bytes, false, nullptr);
                pc_ = here;
            }
            copy.mask &= ~ready;
        }
        if (copy.mask) {
            if (kept != i) warp_.async[kept] = copy;
            ++kept;
        }
    }
    warp_.async.resize(kept);
}

template <Mode M>
void Interpreter<M>::make_async_copies(const AsyncCopy& copy, uint32_t lanes) {
    const uint8_t* base = reinterpret_cast<const uint8_t*>(memory_.alias(0));
    for_lanes(lanes, [&](uint32_t lane) {
        uint8_t* to = block_.shared + copy.destination[lane];
        std::memcpy(to, byte_at(base, copy.source[lane]), copy.source_bytes[lane]);
        std::memset(to + copy.source_bytes[lane], 0, copy.bytes - copy.source_bytes[lane]);
        if (checking(kInitcheck)) std::memset(block_.shared_state + copy.destination[lane], 1, copy.bytes);
    });
}

// The copies that a thread of any warp of the block issued before its `serial`-th: an mbarrier is about to see them complete.
template <Mode M>
void Interpreter<M>::finish_async_of(Warp& warp, uint32_t lane, uint32_t serial, [[maybe_unused]] uint64_t object) {
    for (size_t i = 0; i < warp.async.size();) {
        AsyncCopy& copy = warp.async[i];
        if (copy.serial < serial && copy.mask >> lane & 1) {
            make_async_copies(copy, 1u << lane);
            copy.mask &= ~(1u << lane);
        }
        if (copy.mask == 0)
            warp.async.erase(warp.async.begin() + static_cast<ptrdiff_t>(i));
        else
            ++i;
    }
}

template class Interpreter<Mode::kPlain>;
template class Interpreter<Mode::kChecked>;
template class Interpreter<Mode::kCounted>;

}  // namespace AICF_ENGINE_NAMESPACE
}  // namespace aicf::emu
